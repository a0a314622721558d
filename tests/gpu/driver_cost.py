"""What `vramline run --driver-trace on` costs: a loop of tiny kernels, a step of a GPT, the start of PyTorch, and a start of CUDA alone.

    python tests/gpu/driver_cost.py OUT [--pairs N] [--rounds N] [--library FILE]

Needs a GPU that nothing else uses. Starts are measured with and without the preloaded library, in turns (without, with, with, without, ...). For the
loop and the step, a process with the library and one without live on the same processors and measure short blocks in turns; every pair of
neighbouring blocks gives one ratio, and each pair of processes one median of them, so that the layout of one process does not decide. The
table has the median over the pairs with an interval that holds it with 95 % probability where there are enough pairs, else the least and the most.
The bars are 1 % for the loop and the step and 50 ms for the starts. Exits with 1 where a median is above its bar. `cost.json` is written after
each pair. How long NVML takes for what the library asks of it is measured as well.
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

# Tells how long its start took, and then answers each line with the nanoseconds of a turn of that block.
TORCH = """
import os, sys, time
begun = int(os.environ["COST_BEGUN"])
import torch
x = torch.ones(1024, device="cuda")
x.sum().item()
print("COST", time.monotonic_ns() - begun, flush=True)
# Both processes on the same two processors, since these differ in speed more than what is measured.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-2:])
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
data = torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16)
def gpt():
    optimizer.zero_grad()
    net(data).float().pow(2).mean().backward()
    optimizer.step()
blocks = {"tiny": (4000, lambda: x.add_(1)), "gpt": (2, gpt)}
for line in sys.stdin:
    size, call = blocks[line.strip()]
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(size):
        call()
    torch.cuda.synchronize()
    print("COST", (time.perf_counter_ns() - begin) / size, flush=True)
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
# Name: unit, nanoseconds of the unit, and the bar: a share, or so many of the unit.
FIGURES = {
    "start of CUDA": ("ms", 1e6, None, 50),
    "start of PyTorch": ("ms", 1e6, None, 50),
    "tiny kernel": ("us", 1e3, 0.01, None),
    "GPT step": ("ms", 1e6, 0.01, None),
}
BLOCKS = {"tiny kernel": "tiny", "GPT step": "gpt"}
WARM_ROUNDS = 4


class Job:
    """A process with or without the library, and what it says."""

    def __init__(self, script, library, folder):
        environment = dict(os.environ)
        if library:
            folder.mkdir(parents=True, exist_ok=True)
            environment |= {"LD_PRELOAD": str(library), "VRAMLINE_DRIVER_TRACE": str(folder)}
        environment["COST_BEGUN"] = str(time.monotonic_ns())
        words = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", script], env=environment, **words)

    def answer(self, question=None):
        if question:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("COST"):
                return float(line.split()[1])
        raise SystemExit(f"error: the job ended with {self.process.wait()}")

    def end(self):
        self.process.stdin.close()
        if self.process.wait():
            raise SystemExit(f"error: the job ended with {self.process.returncode}")


def interval(values):
    """The median with the order statistics around it that hold the median of the population with at least 95 % probability."""
    values = sorted(values)
    count, left = len(values), 0
    # As long as the median is below the value behind it with at most 2.5 %.
    while sum(math.comb(count, k) for k in range(left + 2)) / 2**count <= 0.025 and left + 1 < count // 2:
        left += 1
    return statistics.median(values), values[left], values[count - 1 - left]


def in_turns(pair):
    return (False, True) if pair % 2 == 0 else (True, False)


def starts(script, pairs, library, out):
    """Nanoseconds of starts without and with the library."""
    found = {False: [], True: []}
    for pair in range(-1, pairs):  # The first fills the page cache.
        for is_on in in_turns(pair):
            job = Job(script, library if is_on else None, out / "calls")
            if pair >= 0:
                found[is_on].append(job.answer())
            job.end()
    return found


def torch_pair(pair, rounds, library, out):
    """Starts two processes of PyTorch, one after the other, and lets them measure in turns."""
    jobs, figures = {}, {}
    for is_on in in_turns(pair):
        jobs[is_on] = Job(TORCH, library if is_on else None, out / "calls")
        figures.setdefault("start of PyTorch", {})[is_on] = jobs[is_on].answer()
    for name, block in BLOCKS.items():
        found = {False: [], True: []}
        for turn in range(WARM_ROUNDS + rounds):
            for is_on in in_turns(turn):
                found[is_on].append(jobs[is_on].answer(block))
        figures[name] = {is_on: times[WARM_ROUNDS:] for is_on, times in found.items()}
    for job in jobs.values():
        job.end()
    return figures


def row(name, without, with_it, changes):
    """Prints and gives the line of a figure. `changes` are shares or, for starts, nanoseconds."""
    unit, scale, share, most = FIGURES[name]
    median, low, high = interval(changes)
    is_met = median <= (share if most is None else most * scale)
    shown = (lambda change: f"{change:+.2%}") if most is None else (lambda change: f"{change / scale:+.1f} {unit}")
    bar = f"{share:.0%}" if most is None else f"{most} {unit}"
    print(
        f"{name}: {statistics.median(without) / scale:.3f} {unit} without, {statistics.median(with_it) / scale:.3f} with: "
        f"{shown(median)} ({shown(low)} to {shown(high)}, {len(changes)} pairs), bar {bar}: {'met' if is_met else 'NOT MET'}",
        flush=True,
    )
    return {"name": name, "unit": unit, "median": median, "low": low, "high": high, "changes": changes, "bar": bar, "is_met": is_met}


def rows_of(pairs):
    """The lines of all pairs of PyTorch's processes so far."""
    told = [(pair["start of PyTorch"][False], pair["start of PyTorch"][True]) for pair in pairs]
    rows = [row("start of PyTorch", *zip(*told, strict=True), [with_it - without for without, with_it in told])]
    for name in BLOCKS:
        both = [(pair[name][False], pair[name][True]) for pair in pairs]
        medians = [statistics.median(one / other - 1 for one, other in zip(with_it, without, strict=True)) for without, with_it in both]
        joined = [[time for pair in both for time in pair[place]] for place in (0, 1)]
        rows.append(row(name, *joined, medians))
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
    parser.add_argument("--pairs", type=int, default=6, help="pairs of processes of PyTorch, and half the starts of CUDA alone")
    parser.add_argument("--rounds", type=int, default=40, help="blocks of each process")
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
    found = starts(PLAIN, 2 * options.pairs, library.resolve(), out)
    plain = [row("start of CUDA", found[False], found[True], [one - other for one, other in zip(found[True], found[False], strict=True)])]
    rows, pairs = plain, []
    for pair in range(options.pairs if importlib.util.find_spec("torch") else 0):
        pairs.append(torch_pair(pair, options.rounds, library.resolve(), out))
        print(f"after {pair + 1} of {options.pairs} pairs:", flush=True)
        rows = plain + rows_of(pairs)
        (out / "cost.json").write_text(json.dumps({"nvml_us": nvml, "rows": rows}, indent=1))
    (out / "cost.json").write_text(json.dumps({"nvml_us": nvml, "rows": rows}, indent=1))
    return int(not all(row["is_met"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
