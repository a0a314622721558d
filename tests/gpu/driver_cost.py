"""What `vramline run --driver-trace on` costs: a loop of tiny kernels, a step of a GPT, the start of PyTorch, and a start of CUDA alone.

    python tests/gpu/driver_cost.py OUT [--pairs N] [--library FILE]

Needs a GPU that nothing else uses. Each job runs with and without the preloaded library, in turns (without, with, with, without, ...), and each
pair gives one ratio or difference. The table has the median over the pairs with an interval that holds it with 95 % probability; the bars are
1 % for the loop and the step and 50 ms for the starts. 12 pairs take about two and a half minutes on an H200. Exits with 1 where a median is above
its bar, and writes `cost.json`. How long NVML takes for what the library asks of it is measured as well.
"""

import argparse
import ctypes
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

# The job prints what it measured. A block is short, and the median of the blocks leaves out what disturbs some of them.
TORCH = """
import os, statistics, time
begun = int(os.environ["COST_BEGUN"])
import torch
x = torch.ones(1024, device="cuda")
x.sum().item()
start = time.monotonic_ns() - begun
def blocks(count, size, call):
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(size):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter_ns() - begin) / size)
    return statistics.median(found)
add = lambda: x.add_(1)
blocks(2, 2000, add)
tiny = blocks(30, 4000, add)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
data = torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16)
def step():
    optimizer.zero_grad()
    net(data).float().pow(2).mean().backward()
    optimizer.step()
blocks(2, 3, step)
print("COST", start, tiny, blocks(24, 3, step))
"""
PLAIN = """
import ctypes, os, time
begun = int(os.environ["COST_BEGUN"])
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))):
    assert result == 0, result
print("COST", time.monotonic_ns() - begun)
"""
# Name, unit, nanoseconds of the unit; the bar as a share, or in that unit.
FIGURES = {
    "torch": [("start of PyTorch", "ms", 1e6, None, 50), ("tiny kernel", "us", 1e3, 0.01, None), ("GPT step", "ms", 1e6, 0.01, None)],
    "plain": [("start of CUDA", "ms", 1e6, None, 50)],
}


def measure(script, library, folder):
    """The figures of one process, in nanoseconds."""
    environment = dict(os.environ)
    if library:
        folder.mkdir(parents=True, exist_ok=True)
        environment |= {"LD_PRELOAD": str(library), "VRAMLINE_DRIVER_TRACE": str(folder)}
    environment["COST_BEGUN"] = str(time.monotonic_ns())
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("COST")]
    if done.returncode or not lines:
        raise SystemExit(f"error: the job ended with {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return [float(word) for word in lines[0].split()[1:]]


def interval(values):
    """The median with the order statistics around it that hold the median of the population with at least 95 % probability."""
    values = sorted(values)
    count, left = len(values), 0
    # As long as the median is below the value behind it with at most 2.5 %.
    while sum(math.comb(count, k) for k in range(left + 2)) / 2**count <= 0.025 and left + 1 < count // 2:
        left += 1
    return statistics.median(values), values[left], values[count - 1 - left]


def compare(kind, script, pairs, library, out):
    found = {False: [], True: []}
    measure(script, None, None)  # Fills the page cache.
    for pair in range(pairs):
        for is_on in (False, True) if pair % 2 == 0 else (True, False):
            found[is_on].append(measure(script, library if is_on else None, out / "calls"))
    rows = []
    for place, (name, unit, scale, share, most) in enumerate(FIGURES[kind]):
        without, with_it = ([one[place] / scale for one in found[is_on]] for is_on in (False, True))
        if share is None:
            median, low, high = interval([one - other for one, other in zip(with_it, without, strict=True)])
            shown, is_met = f"{median:+.1f} {unit} ({low:+.1f} to {high:+.1f}), bar {most} {unit}", median <= most
        else:
            median, low, high = interval([one / other - 1 for one, other in zip(with_it, without, strict=True)])
            shown, is_met = f"{median:+.2%} ({low:+.2%} to {high:+.2%}), bar {share:.0%}", median <= share
        medians = f"{statistics.median(without):.3f} {unit} without, {statistics.median(with_it):.3f} with"
        print(f"{name}: {medians}: {shown}: {'met' if is_met else 'NOT MET'}", flush=True)
        rows.append(
            {"name": name, "unit": unit, "without": without, "with": with_it, "median": median, "low": low, "high": high, "pairs": pairs, "is_met": is_met}
        )
    return rows


def nvml_times():
    """Microseconds of NVML's start, of its figure of a device and of its list of processes."""

    def timed(call):
        begin = time.perf_counter_ns()
        error = call()
        return (time.perf_counter_ns() - begin) / 1e3, error

    class Memory(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]

    nvml, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    start, error = timed(nvml.nvmlInit_v2)
    if error:
        return {"error": error}
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    room = (ctypes.c_uint64 * 768)()

    def listed():
        return nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(ctypes.c_uint(256)), room)

    used = [timed(lambda: nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory)))[0] for _ in range(200)]
    lists = [timed(listed) for _ in range(50)]
    return {"start": start, "used": statistics.median(used), "list": statistics.median(one for one, _ in lists), "list_error": lists[0][1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--library", type=pathlib.Path)
    options = parser.parse_args()
    library = options.library
    if library is None:
        package = importlib.util.find_spec("vramline")
        if package is None:
            raise SystemExit("error: vramline is not installed\nhint: install the wheel, or give --library")
        library = pathlib.Path(package.origin).parent / "libvramline_driver.so"
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    nvml = nvml_times()
    print("NVML (us):", ", ".join(f"{name} {value:.1f}" for name, value in nvml.items()), flush=True)
    rows = compare("plain", PLAIN, options.pairs, library.resolve(), out)
    if importlib.util.find_spec("torch"):
        rows += compare("torch", TORCH, options.pairs, library.resolve(), out)
    (out / "cost.json").write_text(json.dumps({"nvml_us": nvml, "rows": rows}, indent=1))
    return int(not all(row["is_met"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
