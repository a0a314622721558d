"""What lies beside the pool, by name: jobs under `vramline run --driver-trace on`, and how much of NVML's figure the calls explain.

    python tests/gpu/beside.py OUT [NAME ...] [--all] [--remedies] [--library FILE]

Needs a GPU, and PyTorch, JAX or CuPy for their jobs. Without names, a few jobs run that together take less than a minute; `--all` runs
every job, `--list` names them. One job runs at a time: another job on the device would change the figures. `--remedies`
measures whether settings that are said to save memory beside the pool do: what NVML counts for the process with and without each, without
any recording.

With `--library FILE` the library is preloaded directly, so that the package need not be installed. For each job the table has, by call
and library, what it takes at the end; the share is that of all named lines in what NVML counts for the process. Exits with 1 where a job fails.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python" / "driver_trace"))

from read_calls import UNKNOWN, read

MIB = 1 << 20

# At the end of every job: what NVML says of the device and of this process.
ENDING = """
import ctypes, json, os, time
beside_time = time.monotonic_ns()
class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
handle = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory))
count, listed = ctypes.c_uint(64), (Process * 64)()
failed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), listed)
found = [] if failed else [(one.pid, one.used) for one in listed[:count.value]]
own = [used for pid, used in found if pid == os.getpid()] or ([found[0][1]] if len(found) == 1 else [])
json.dump({"used": memory.used, "process": own[0] if own else None, "pid": os.getpid(), "time": beside_time}, open(os.environ["BESIDE_TOLD"], "w"))
"""

TORCH = """
import torch
torch.manual_seed(0)
device = torch.device("cuda")
x = torch.randn(1024, 1024, device=device)
"""
EAGER = TORCH + "for _ in range(20): y = torch.relu(x @ x)\ntorch.cuda.synchronize()\n"
JAX = "import jax, jax.numpy as jnp\nx = jnp.ones((2048, 2048))\n"
CUPY = "import cupy\na = cupy.random.rand(1 << 22)\nb = a * 2 + 1\nc = cupy.fft.fft(a)\ncupy.cuda.Device().synchronize()\n"
GROWS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

# Name: the packages that it needs, its text, its variables.
JOBS = {
    "torch-eager": (["torch"], EAGER, {}),
    "torch-convolution": (
        ["torch"],
        TORCH + "net = torch.nn.Conv2d(64, 64, 3, padding=1).to(device)\ni = torch.randn(16, 64, 112, 112, device=device)\n"
        "for _ in range(3): net(i).sum().backward()\ntorch.cuda.synchronize()\n",
        {},
    ),
    "torch-attention": (
        ["torch"],
        TORCH + "q = torch.randn(4, 16, 1024, 64, device=device, dtype=torch.bfloat16, requires_grad=True)\n"
        "for _ in range(3): torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()\ntorch.cuda.synchronize()\n",
        {},
    ),
    "torch-compile": (
        ["torch"],
        TORCH + "f = torch.compile(lambda t: torch.nn.functional.gelu(t @ t).sum())\nfor _ in range(3): f(x)\ntorch.cuda.synchronize()\n",
        {},
    ),
    "torch-graph": (
        ["torch"],
        EAGER + "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): z = torch.relu(x @ x)\ng.replay()\ntorch.cuda.synchronize()\n",
        {},
    ),
    "torch-streams": (
        ["torch"],
        TORCH + "streams = [torch.cuda.Stream() for _ in range(4)]\nfor s in streams:\n    with torch.cuda.stream(s): y = x @ x\n"
        "torch.cuda.synchronize()\n",
        {},
    ),
    "torch-processes": (
        ["torch"],
        EAGER + "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; x = torch.ones(1 << 24, device=\"cuda\"); "
        "(x * 2).sum().item()'], check=True)\n",
        {},
    ),
    "torch-run": (
        ["torch"],
        EAGER + "import subprocess, sys, tempfile\nwith tempfile.NamedTemporaryFile('w', suffix='.py') as f:\n"
        "    f.write('import torch; x = torch.ones(1 << 24, device=\\'cuda\\'); (x * 2).sum().item()')\n    f.flush()\n"
        "    subprocess.run([sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '2', f.name], check=True)\n",
        {},
    ),
    "torch-expandable": (["torch"], EAGER, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "torch-async": (["torch"], EAGER, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "jax-growing": (["jax"], JAX + "jax.jit(lambda t: jnp.tanh(t @ t).sum())(x).block_until_ready()\n", GROWS),
    "jax-preallocated": (["jax"], JAX + "(x @ x).block_until_ready()\n", {}),
    "jax-convolution": (
        ["jax"],
        "import jax, jax.numpy as jnp\ni = jnp.ones((16, 64, 112, 112))\nw = jnp.ones((64, 64, 3, 3))\n"
        "jax.jit(lambda a, b: jax.lax.conv(a, b, (1, 1), 'SAME'))(i, w).block_until_ready()\n",
        GROWS,
    ),
    "jax-async": (["jax"], JAX + "(x @ x).block_until_ready()\n", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
    "cupy": (["cupy"], CUPY, {}),
    "cupy-torch": (["cupy", "torch"], EAGER + CUPY, {}),
}
QUICK = ["torch-graph", "torch-async", "jax-growing"]

KINDS = {
    "context": ("cuInit", "cuDevicePrimaryCtx", "cuCtxCreate", "cuCtxDestroy", "cuGreenCtx", "cuCtxEnablePeer", "cuCtxDisablePeer"),
    "limits": ("cuCtxSetLimit",),
    "streams": ("cuStreamCreate", "cuStreamDestroy"),
    "events": ("cuEvent", "cuIpcOpenEvent"),
    "graphs": ("cuGraph", "cuDeviceGraph"),
    "code": ("cuModule", "cuLibrary", "cuKernel", "cuFunc", "cuOccupancy"),
    "first launches": ("cuLaunch",),
    "copies, fills, waits": ("cuMemcpy", "cuMemset", "cuCtxSynchronize", "cuStreamSynchronize"),
    "pinned memory": ("cuMemHost", "cuMemAllocHost", "cuMemFreeHost"),
    "pools of the driver": ("cuMemAllocAsync", "cuMemAllocFromPool", "cuMemFreeAsync", "cuMemPool", "cuDeviceSetMemPool"),
    "memory": ("cuMem", "cuArray", "cuMipmapped", "cuIpc", "cuMulticast", "cuImport", "cuDestroyExternal"),
}


def kind_of(function):
    return next((kind for kind, starts in KINDS.items() if function.startswith(starts)), "other")


def device_used():
    """What NVML counts on the first device."""

    class Memory(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]

    nvml, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory)) == 0
    return memory.used


def run(script, folder, library, variables, is_on=True):
    """Runs a script. Gives its exit code, the seconds it took and its files of calls; without a recording if it is not on."""
    environment = os.environ | variables | {"BESIDE_TOLD": str(folder / "told.json")}
    command = [sys.executable, str(script)]
    recording = folder / "run.vram"
    shutil.rmtree(recording, ignore_errors=True)
    if is_on and library:
        recording.mkdir(parents=True)
        before = environment.get("LD_PRELOAD")
        environment |= {"LD_PRELOAD": f"{library}:{before}" if before else str(library), "VRAMLINE_DRIVER_TRACE": str(recording)}
    elif is_on:
        command = ["vramline", "run", "--driver-trace", "on", "--trace", "off", "--no-report", "-o", str(recording), "--", *command]
    begin = time.monotonic()
    with open(folder / "log.txt", "w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=300)
    return done.returncode, time.monotonic() - begin, sorted(recording.glob("calls-*.bin"))


def explain(files, told, before):
    """The lines of a job's own process: what each kind of call of each library took, and how much of NVML's figure that is."""
    file = next((read(path) for path in files if f"-{told['pid']}-" in path.name), None)
    if file is None:
        return None
    # What is given back while the process ends does not count.
    calls = [call for call in file.calls if call["begin"] <= told["time"]]
    lines = {}
    for call in calls:
        library = pathlib.Path(call["library"] or "?").name.split(".so")[0]
        line = lines.setdefault((kind_of(call["function"]), library), {"bytes": 0, "calls": 0, "asked": 0})
        line["bytes"] += call["grew"]
        line["calls"] += 1
        if call["bytes"] != UNKNOWN and call["result"] == 0:
            line["asked"] += call["bytes"]
    named = sum(line["bytes"] for line in lines.values())
    gaps = sum(call["gap"] for call in calls)
    total = told["process"] or told["used"] - before
    return {
        "total": total,
        "total_by": "process" if told["process"] else "device",
        "named": named,
        "gaps": gaps,
        "share": named / total,
        "calls": len(calls),
        "dropped": file.dropped,
        "torn": file.torn,
        "notes": file.notes,
        "overlapping": sum(call["flags"] & 1 for call in calls),
        "with_line": sum(call["reason"] == 0 for call in calls),
        "processes": len(files),
        "lines": [{"kind": kind, "library": library} | line for (kind, library), line in lines.items()],
        "largest_gaps": sorted(
            ([call["gap"], call["function"], call["library"]] for call in calls if call["gap"]), key=lambda gap: -abs(gap[0])
        )[:8],
    }


def job(name, out, library):
    packages, text, variables = JOBS[name]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{name}: skipped, without {', '.join(missing)}", flush=True)
        return None
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "job.py"
    script.write_text(text + ENDING)
    before = device_used()
    code, seconds, files = run(script, folder, library, variables)
    if code != 0 or not (folder / "told.json").exists():
        print(f"{name}: FAILED with {code}\n{(folder / 'log.txt').read_text()[-2000:]}", flush=True)
        return {"failed": code}
    figures = explain(files, json.loads((folder / "told.json").read_text()), before)
    if figures is None:
        print(f"{name}: FAILED, no calls were recorded\n{(folder / 'log.txt').read_text()[-2000:]}", flush=True)
        return {"failed": "no calls"}
    print(
        f"{name}: {figures['share']:.1%} of {figures['total'] / MIB:.1f} MiB (NVML, {figures['total_by']}) has a name; between calls "
        f"{figures['gaps'] / MIB:.1f} MiB; {figures['calls']} calls, {figures['dropped']} dropped, {figures['processes']} processes, "
        f"{figures['with_line']} with a line; {seconds:.1f} s"
    )
    for line in sorted(figures["lines"], key=lambda line: -abs(line["bytes"])):
        if line["bytes"] or line["asked"] >= MIB:
            print(f"    {line['bytes'] / MIB:10.1f} MiB  {line['kind']:22} {line['library']:36} {line['calls']:6} calls")
    for gap, function, asker in figures["largest_gaps"]:
        print(f"    gap {gap / MIB:6.1f} MiB before {function} of {pathlib.Path(asker or '?').name}")
    sys.stdout.flush()
    return figures | {"seconds": seconds}


SIDE = TORCH + "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): y = x @ x\ntorch.cuda.synchronize()\n"
THREADS = TORCH + (
    "import threading\ndef work():\n    for _ in range(3): x @ x\n    torch.cuda.synchronize()\n"
    "threads = [threading.Thread(target=work) for _ in range(4)]\n[t.start() for t in threads]\n[t.join() for t in threads]\n"
)

# Name: the job and its variables without and with the remedy.
REMEDIES = {
    "no side stream": ((SIDE, {}), (TORCH + "y = x @ x\ntorch.cuda.synchronize()\n", {})),
    "one thread instead of four": ((THREADS, {}), (EAGER, {})),
    "CUBLAS_WORKSPACE_CONFIG=:16:8": ((EAGER, {}), (EAGER, {"CUBLAS_WORKSPACE_CONFIG": ":16:8"})),
    "CUBLAS_WORKSPACE_CONFIG=:0:0": ((EAGER, {}), (EAGER, {"CUBLAS_WORKSPACE_CONFIG": ":0:0"})),
    "CUBLASLT_WORKSPACE_SIZE=0": ((EAGER, {}), (EAGER, {"CUBLASLT_WORKSPACE_SIZE": "0"})),
    "CUDA_MODULE_LOADING=LAZY, not EAGER": ((EAGER, {"CUDA_MODULE_LOADING": "EAGER"}), (EAGER, {"CUDA_MODULE_LOADING": "LAZY"})),
    "no first launch of relu": ((EAGER, {}), (TORCH + "for _ in range(20): y = x @ x\ntorch.cuda.synchronize()\n", {})),
}


def remedies(out):
    """What NVML counts for the process without and with each remedy."""
    figures = {}
    for name, both in REMEDIES.items():
        folder = out / "remedies"
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for text, variables in both:
            script = folder / "job.py"
            script.write_text(text + ENDING)
            (folder / "told.json").unlink(missing_ok=True)
            code, _, _ = run(script, folder, None, variables, is_on=False)
            told = json.loads((folder / "told.json").read_text()) if code == 0 else {"process": None}
            found.append(told["process"])
        if None in found:
            print(f"{name}: FAILED\n{(folder / 'log.txt').read_text()[-1000:]}", flush=True)
            figures[name] = {"failed": True}
            continue
        without, with_it = found
        figures[name] = {"without": without, "with": with_it}
        print(f"{name}: {without / MIB:.1f} MiB without, {with_it / MIB:.1f} MiB with: saves {(without - with_it) / MIB:.1f} MiB", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--remedies", action="store_true")
    parser.add_argument("--library", type=pathlib.Path)
    options = parser.parse_args()
    if options.list:
        print("\n".join(JOBS))
        return 0
    unknown = [name for name in options.names if name not in JOBS]
    if unknown:
        raise SystemExit(f"error: no job is called {unknown[0]}\nhint: --list names them")
    library = options.library.resolve() if options.library else None
    names = options.names or (list(JOBS) if options.all else [] if options.remedies else QUICK)
    options.out.mkdir(parents=True, exist_ok=True)
    figures = {"jobs": {name: job(name, options.out.resolve(), library) for name in names}}
    if options.remedies:
        figures["remedies"] = remedies(options.out.resolve())
    (options.out / "beside.json").write_text(json.dumps(figures, indent=1))
    told = [*figures["jobs"].values(), *figures.get("remedies", {}).values()]
    return int(any(one is not None and "failed" in one for one in told))


if __name__ == "__main__":
    sys.exit(main())
