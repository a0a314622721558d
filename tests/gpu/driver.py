"""The driver's figures as vramline tells them against NVML's own, asked at the same instant through ctypes.

    python tests/gpu/driver.py OUT [VRAMLINE]     # needs a GPU, vramline installed; PyTorch or JAX for the process's own figures

Three ways: `memory_info` between two answers of NVML that are equal; `vramline doctor` on an idle device; and `driver.arrows` of a
job that asks NVML itself, all the time, while it allocates and frees. Prints what held and what did not; exits with 1 where anything
did not. `driver.json` in OUT has the figures.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

failures = []
figures = {}


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Nvml:
    """NVML, asked directly."""

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        assert self.library.nvmlInit_v2() == 0
        count = ctypes.c_uint()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self.devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                self.devices.append(device)

    def text(self, function, device):
        out = ctypes.create_string_buffer(96)
        assert getattr(self.library, function)(device, out, 96) == 0
        return out.value.decode()

    def uuid(self, device):
        return self.text("nvmlDeviceGetUUID", device)

    def memory(self, device):
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        error = self.library.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory))
        assert error == 0, error
        return memory.total, memory.reserved, memory.free, memory.used

    def processes(self, device):
        count, listed = ctypes.c_uint(256), (Process * 256)()
        error = self.library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), listed)
        assert error == 0, error
        return {each.pid: None if each.used == 2**64 - 1 else each.used for each in listed[: count.value]}


def check(what, holds, *told):
    print(f"  {'ok' if holds else 'FAILED'}: {what}", *(() if holds else told))
    if not holds:
        failures.append(what)


def between(nvml, device, ask, turns=500):
    """An answer that stood between two equal ones of NVML, and that one."""
    for _ in range(turns):
        before = nvml.memory(device)
        answer = ask()
        if nvml.memory(device) == before:
            return before, answer
    raise SystemExit("the device's figures never stood still")


def use_device():
    """Has a framework take memory on the first device; gives a way to take and to free more."""
    try:
        import torch

        kept = [torch.ones(1 << 20, device="cuda")]
        return "torch", lambda mib: kept.append(torch.ones(mib << 18, device="cuda")), lambda: (kept.clear(), torch.cuda.empty_cache())
    except ImportError:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")
        import jax.numpy as jnp

        kept = [jnp.ones(1 << 20).block_until_ready()]
        return "jax", lambda mib: kept.append(jnp.ones(mib << 18).block_until_ready()), kept.clear


def inside(nvml):
    """`memory_info` and `devices()` in a process that uses the device."""
    import vramline

    begin = time.perf_counter()
    vramline.devices()
    figures["first_devices_call_ms"] = (time.perf_counter() - begin) * 1e3
    framework, take, free = use_device()
    print(f"== memory_info, with {framework}")
    from vramline.frameworks import driver

    uuid = driver.figures("GPU:0").uuid
    device = next(each for each in nvml.devices if nvml.uuid(each).endswith(uuid))
    for moment in ("context", "1 GiB more", "freed"):
        if moment == "1 GiB more":
            take(1024)
        if moment == "freed":
            free()
        own, info = between(nvml, device, lambda: vramline.memory_info("GPU:0"))
        told = (info.driver_total, info.driver_reserved, info.driver_free, info.driver_used)
        check(f"{moment}: device figures are NVML's", told == own, told, own)
        check(f"{moment}: reserved + free + used = total", sum(told[1:]) == told[0], told)
        listed = nvml.processes(device)
        held = listed.get(os.getpid())
        check(f"{moment}: what this process holds is NVML's", info.process == held or len(listed) == 0, info.process, listed, info.why("process"))
        figures[moment] = {"device": told, "process": info.process, "why": info.why("process"), "listed": listed, "pool": info.pool}
    begin = time.perf_counter()
    for _ in range(1000):
        driver.figures("GPU:0", 0)
    figures["memory_info_driver_us"] = (time.perf_counter() - begin) * 1e3


def idle(nvml, binary):
    """`vramline doctor`."""
    print("== doctor")
    device = nvml.devices[0]

    def ask():
        return json.loads(subprocess.run([binary, "doctor", "--json", "--python", sys.executable], capture_output=True, check=True).stdout)

    own, document = between(nvml, device, ask, 20)
    told = document["devices"][0]
    check("device figures", tuple(told[f"{name}_bytes"] for name in ("total", "reserved", "free", "used")) == own, told, own)
    check("uuid", told["uuid"] == nvml.uuid(device))
    check("identity", told["identity"] == "used-excludes-reserved", told["identity"])
    figures["doctor"] = {"driver": document["driver"], "device": told, "host": document["host"], "measures": document["measures"]}


def job(path):
    """The job of `watched`: allocates and frees while a thread asks NVML all the time."""
    nvml = Nvml()
    device, samples, is_over = nvml.devices[0], [], threading.Event()

    def ask():
        while not is_over.is_set():
            before = time.monotonic_ns()
            used, listed = nvml.memory(device)[3], nvml.processes(device)
            samples.append((before, time.monotonic_ns(), used, listed.get(os.getpid())))
            time.sleep(0.002)

    thread = threading.Thread(target=ask)
    thread.start()
    _, take, free = use_device()
    for turn in range(12):
        take(128 + 64 * turn)
        time.sleep(0.4)
        if turn % 4 == 3:
            free()
            time.sleep(0.4)
    is_over.set()
    thread.join()
    pathlib.Path(path).write_text(json.dumps({"pid": os.getpid(), "uuid": nvml.uuid(device), "samples": samples}))


def watched(out, binary):
    """Every row of `driver.arrows` was NVML's answer at that time."""
    import vramline

    for rate in (20, 100):
        print(f"== vramline run --rate {rate}")
        folder, path = out / f"driver-{rate}.vram", out / f"samples-{rate}.json"
        command = [binary, "run", "--no-report", "--trace", "off", "--rate", str(rate), "-o", str(folder), "--"]
        done = subprocess.run([*command, sys.executable, __file__, "--job", str(path)], capture_output=True, text=True)
        check("the job ends well", done.returncode == 0, done.stderr[-2000:])
        told = json.loads(path.read_text())
        columns, torn = vramline._vramline.read_stream(folder / "driver.arrows")
        rows = [dict(zip(columns, values)) for values in zip(*(load_column(columns, name) for name in columns))]
        check("nothing torn", torn == 0)

        def fits(row, place, samples=told["samples"]):
            # The answers around the row: whatever the device showed between them. A figure that came and went between two
            # answers of ours is no contradiction; one that was there before and after is.
            # While a context is made the driver answers nobody for a tenth of a second, and what it says then is of some moment in it.
            before = [each for each in samples if each[0] <= row["time_ns"]][-1:]
            after = [each for each in samples if each[0] >= row["time_ns"]][:1]
            near = [each for each in samples if abs(each[0] - row["time_ns"]) < 150_000_000]
            known = [each[place] for each in before + near + after if each[place] is not None]
            return not known or row["used_bytes"] in known or min(known) <= (row["used_bytes"] or 0) <= max(known)

        within = [row for row in rows if told["samples"][0][0] < row["time_ns"] < told["samples"][-1][1]]
        device = [row for row in within if row["kind"] == "device" and row["device"] == told["uuid"]]
        own = [row for row in within if row["kind"] == "process" and row["pid"] == told["pid"] and row["device"] == told["uuid"]]
        wrong = [row for row in device if not fits(row, 2)]
        check(f"{len(device)} device rows are NVML's", len(device) > 5 and len(wrong) <= len(device) // 20, wrong[:3])
        wrong = [row for row in own if not fits(row, 3)]
        is_listed = any(each[3] is not None for each in told["samples"])
        check(f"{len(own)} rows of the process are NVML's", not is_listed or (len(own) > 3 and not wrong), wrong[:3])
        check("they are the job's", all(row["job"] == 1 for row in own))
        manifest = json.loads((folder / "run.json").read_text())
        run = manifest["driver"]
        seconds = run["watched_ns"] / 1e9
        spent = sum(run["costs"][lane]["nanos"] for lane in ("memory", "processes"))
        figures[f"run at {rate} Hz"] = {
            "standing": run["standing"],
            "namespace": run["namespace"],
            "costs": run["costs"],
            "host": run["host"],
            "nvml_us_per_second": spent / 1e3 / seconds,
            "device_rows": len(device),
            "process_rows": len(own),
            "bytes": (folder / "driver.arrows").stat().st_size,
        }
        print("  NVML time per second:", f"{spent / 1e3 / seconds:.0f} µs;", "standing", run["standing"], run["namespace"])


def load_column(columns, name):
    values = columns[name]
    if isinstance(values, list):
        return values
    numbers, nulls = memoryview(values[0]).cast("q"), values[1]
    return [None if null else number for number, null in zip(numbers, nulls)]


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    binary = sys.argv[2] if len(sys.argv) > 2 else "vramline"
    nvml = Nvml()
    idle(nvml, binary)
    watched(out, binary)
    # Last: from here on this process has a context.
    inside(nvml)
    figures["failures"] = failures
    (out / "driver.json").write_text(json.dumps(figures, indent=1))
    print("failures:", failures or "none")
    return bool(failures)


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        job(sys.argv[2])
    else:
        sys.exit(main())
