"""What `vramline run --driver-trace on` costs: each call of the driver, a loop of tiny kernels, a step of a GPT, starts.

    python tests/gpu/driver_cost.py OUT [--quick] [--library FILE] [--write FILE]
    python tests/gpu/driver_cost.py OUT --again [--write FILE]      # the table of figures that are there; no GPU

Needs a GPU that nothing else uses and a C compiler; PyTorch for its parts. Takes 2 to 3 minutes. Processes that do the same differ by several
percent, so nothing here compares processes that were started apart, except where a start is what is measured:

- *Calls*: one process calls each function of the driver through the pointer that the preloaded library hands out and through the driver's own,
  which is read from the symbols of libcuda. Blocks of calls alternate; each pair of neighbouring blocks gives one difference. It is done twice:
  as fast as possible, and with 2 MiB of other memory read before each call, so that the library is not in the processor's nearest caches.
- *A step*: the calls that a step makes, counted by another preloaded library (`driver_cost.c`), times what each call costs.
- *Forks*: a process that has imported PyTorch forks two children, one of which records. They have the same memory layout and run on the same
  processors, and measure blocks in turns. Pairs of which neither records tell how precise this is. It is left out where the import of PyTorch
  loads the driver, since both would record.
- *Starts*: pairs of processes with and without the library, in turns. For `import torch`, also the number of symbols it asks for times the cost.

Each median has the interval of order statistics that holds it with 95 % probability; with fewer than 6 values, all of them. `cost.json` has
all figures. `--write` puts the table into the section "What a recording costs" of a page. Exits with 1 where a bar is not met: 1 % of the loop
and of the step, 50 ms of a start.
"""

import argparse
import ctypes
import datetime
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve()
IS_STUB = "STUB_DEVICE" in os.environ  # The driver of tests/python/driver_trace stands for the real one.
SHARE, START_NANOS = 0.01, 50e6
LIMIT_SECONDS = 80
KERNELS, MIB = 256, 1 << 20
WALKED = 2 * MIB
# What the stub lacks to make the handle that a function takes.
NEEDED = {"cuGraphLaunch": "cuGraphCreate", "cuKernel": "cuLibraryLoadData"}
PLAIN = """
import ctypes, os, time
begun = int(os.environ["COST_BEGUN"])
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))):
    assert result == 0, result
print("COST", time.monotonic_ns() - begun)
"""


def interval(values):
    """The median with the order statistics around it that hold the median of the population with at least 95 % probability."""
    values = sorted(values)
    count, left, below = len(values), 0, 1
    # As long as the median is below the value behind it with at most 2.5 %.
    while left + 1 < count // 2 and (below := below + math.comb(count, left + 1)) * 40 <= 2**count:
        left += 1
    return {"median": statistics.median(values), "low": values[left], "high": values[count - 1 - left], "count": count}


# Inside a process with a preloaded library: one of these runs.


def symbol(library, name):
    """The address of an exported function of a loaded library, read from its file: nobody can stand between."""
    pattern = re.compile(rf"(\w+)-\w+ \S+ 0+ \S+ \d+ +(\S*/{re.escape(library)}\S*)$", re.MULTILINE)
    start, path = pattern.search(pathlib.Path("/proc/self/maps").read_text()).groups()
    data = pathlib.Path(path).read_bytes()
    (first,), (entry, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, first + entry * number) for number in range(count)]
    (table,) = (section for section in sections if section[1] == 11)  # The dynamic symbols.
    texts = sections[table[6]][4]
    for offset in range(table[4], table[4] + table[5], 24):
        text, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, offset)
        if section and info & 15 == 2 and data.startswith(name.encode() + b"\0", texts + text):
            return int(start, 16) + value
    raise SystemExit(f"error: {library} has no function {name}")


class Driver:
    """The driver's functions, by its own pointers and by those that are handed out here."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        lookup = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
        self.lookups = [lookup(symbol("libcuda.so", "cuGetProcAddress_v2")), lookup(("cuGetProcAddress_v2", self.library))]
        self.kept = []

    def pointers(self, name):
        """The driver's own pointer and the one that is handed out; `None` where the driver has no such function."""
        found = []
        for ask in self.lookups:
            place = ctypes.c_void_p()
            error = ask(name.encode(), ctypes.byref(place), 12000, 0, None)
            found.append(None if error else place.value)
        return tuple(found) if all(found) else None

    def __call__(self, name, *arguments):
        result = ctypes.CFUNCTYPE(ctypes.c_int)(self.pointers(name)[1])(*map(ctypes.c_void_p, arguments))
        if result:
            raise RuntimeError(f"{name} returned {result}")

    def room(self, size=8):
        """The address of memory that lives as long as this."""
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])

    def made(self, name, *arguments):
        place = self.room()
        self(name, place, *arguments)
        return ctypes.c_uint64.from_address(place).value


class Cases:
    """Functions with arguments with which a training loop might call them: lists of arguments, and the function that follows each call."""

    def __init__(self, driver):
        self.driver = driver
        driver("cuInit", 0)
        driver("cuCtxSetCurrent", driver.made("cuDevicePrimaryCtxRetain", 0))
        self.stream, self.event = driver.made("cuStreamCreate", 1), driver.made("cuEventCreate", 2)
        self.memory, self.other = driver.made("cuMemAlloc", MIB), driver.made("cuMemAlloc", MIB)
        entries = " ".join(f".visible .entry k{number}() {{ ret; }}" for number in range(KERNELS))
        text = f".version 7.0\n.target sm_50\n.address_size 64\n{entries}\n\0".encode()
        self.code = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
        module = driver.made("cuModuleLoadData", self.code)
        names = [ctypes.create_string_buffer(b"k%d" % number) for number in range(KERNELS)]
        self.name = ctypes.addressof(names[0])
        driver.kept += [text, names]
        self.kernels = [driver.made("cuModuleGetFunction", module, ctypes.addressof(name)) for name in names]

    def launch(self, kernel):
        # The stub checks that every argument arrives.
        return [kernel, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10] if IS_STUB else [kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, 0, 0]

    def launch_ex(self):
        # CUlaunchConfig: grid, block, shared memory, stream, attributes and their number.
        config = struct.pack("<7I4xQQI4x", 1, 1, 1, 1, 1, 1, 0, self.stream, 0, 0)
        place = self.driver.room(len(config))
        ctypes.memmove(place, config, len(config))
        return [place, self.kernels[0], 0, 0]

    def pinned(self):
        return self.driver.made("cuMemHostAlloc", 4096, 0)

    def kernel(self):
        return self.driver.made("cuLibraryGetKernel", self.driver.made("cuLibraryLoadData", self.code, *[0] * 6), self.name)

    def graph(self):
        return self.driver.made("cuGraphInstantiateWithFlags", self.driver.made("cuGraphCreate", 0), 0)

    def all(self):
        """Name of the case, function, function after it or `None`, and what makes the lists of arguments."""
        stream, event, memory, other = self.stream, self.event, self.memory, self.other
        room = self.driver.room
        yield "cuLaunchKernel", "cuLaunchKernel", None, lambda: [self.launch(self.kernels[0])]
        yield f"cuLaunchKernel, {KERNELS} kernels", "cuLaunchKernel", None, lambda: [self.launch(kernel) for kernel in self.kernels]
        yield "cuLaunchKernelEx", "cuLaunchKernelEx", None, lambda: [self.launch_ex()]
        yield "cuKernelGetFunction", "cuKernelGetFunction", None, lambda: [[room(), self.kernel()]]
        yield "cuKernelGetAttribute", "cuKernelGetAttribute", None, lambda: [[room(), 0, self.kernel(), 0]]
        # The most dynamic shared memory.
        yield "cuKernelSetAttribute", "cuKernelSetAttribute", None, lambda: [[8, 1024, self.kernel(), 0]]
        yield "cuGraphLaunch", "cuGraphLaunch", None, lambda: [[self.graph(), stream]]
        yield "cuMemcpyAsync", "cuMemcpyAsync", None, lambda: [[memory, other, 4096, stream]]
        yield "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync", None, lambda: [[memory, other, 4096, stream]]
        yield "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync", None, lambda: [[memory, self.pinned(), 4096, stream]]
        yield "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync", None, lambda: [[self.pinned(), memory, 4096, stream]]
        yield "cuMemsetD8Async", "cuMemsetD8Async", None, lambda: [[memory, 0, 4096, stream]]
        yield "cuMemsetD32Async", "cuMemsetD32Async", None, lambda: [[memory, 0, 1024, stream]]
        yield "cuEventRecord", "cuEventRecord", None, lambda: [[event, stream]]
        yield "cuEventRecordWithFlags", "cuEventRecordWithFlags", None, lambda: [[event, stream, 0]]
        yield "cuEventQuery", "cuEventQuery", None, lambda: [[event]]
        yield "cuEventSynchronize", "cuEventSynchronize", None, lambda: [[event]]
        yield "cuStreamWaitEvent", "cuStreamWaitEvent", None, lambda: [[stream, event, 0]]
        yield "cuStreamSynchronize", "cuStreamSynchronize", None, lambda: [[stream]]
        yield "cuStreamQuery", "cuStreamQuery", None, lambda: [[stream]]
        yield "cuStreamIsCapturing", "cuStreamIsCapturing", None, lambda: [[stream, room()]]
        yield "cuCtxSynchronize", "cuCtxSynchronize", None, lambda: [[]]
        yield "cuCtxGetCurrent", "cuCtxGetCurrent", None, lambda: [[room()]]
        yield "cuCtxSetCurrent", "cuCtxSetCurrent", None, lambda: [[self.driver.made("cuDevicePrimaryCtxRetain", 0)]]
        yield "cuFuncGetAttribute", "cuFuncGetAttribute", None, lambda: [[room(), 0, self.kernels[0]]]
        yield "cuPointerGetAttribute", "cuPointerGetAttribute", None, lambda: [[room(), 2, memory]]
        yield "cuEventCreate and cuEventDestroy", "cuEventCreate", "cuEventDestroy", lambda: [[room(), 2]]
        yield "cuMemAllocAsync and cuMemFreeAsync", "cuMemAllocAsync", "cuMemFreeAsync", lambda: [[room(), 4096, stream, *[0] * 8, stream]]
        yield "cuMemAlloc and cuMemFree (measured)", "cuMemAlloc", "cuMemFree", lambda: [[room(), 4 * MIB]]


class Turns:
    """`take_turns` of driver_cost.c: see there."""

    def __init__(self, helper):
        self.function = ctypes.CDLL(helper).take_turns
        self.function.restype = ctypes.c_uint64
        self.walk = ctypes.create_string_buffer(b"\1" * WALKED, WALKED)

    def __call__(self, functions, seconds, wait, arguments, count, blocks, walked=0):
        """What the second function adds: nanoseconds a call, and shares of a block with its wait."""
        rows = ((ctypes.c_uint64 * 12) * len(arguments))()
        for row, given in zip(rows, arguments):
            row[: len(given)] = [value & (1 << 64) - 1 for value in given]
        calls, whole = (ctypes.c_uint64 * (2 * blocks))(), (ctypes.c_uint64 * (2 * blocks))()
        pair = ctypes.c_void_p * 2
        numbers = map(ctypes.c_uint64, (len(arguments), count, blocks))
        after = pair(*seconds) if seconds else None
        failed = self.function(pair(*functions), after, ctypes.c_void_p(wait), rows, *numbers, self.walk, ctypes.c_uint64(walked), calls, whole)
        own = [nanos / count for nanos in calls[::2]]
        added = [(one - other) / count for one, other in zip(calls[1::2], calls[::2])]
        ratio = [one / other - 1 for one, other in zip(whole[1::2], whole[::2])]
        return {"failed": failed, "own": statistics.median(own), "added": interval(added), "ratio": interval(ratio)}


def inside_calls(helper, scale, names):
    """What the library adds to each call, and which functions of `names` it wraps."""
    driver, turns = Driver(), Turns(helper)
    cases, rows = Cases(driver), {}
    wait = driver.pointers("cuCtxSynchronize")
    for case, name, follower, make in cases.all():
        found = [driver.pointers(each) for each in (name, follower) if each]
        if None in found or any(name.startswith(prefix) and not driver.pointers(needed) for prefix, needed in NEEDED.items()):
            rows[case] = {"missing": True}
            continue
        if found[0][0] == found[0][1]:
            rows[case] = {"is_wrapped": False}
            continue
        seconds = found[1] if follower else None
        arguments = make()
        is_slow = "measured" in case
        measure = [found[0], seconds, wait[0] if wait else None, arguments]
        # The first calls of a function are measured by design, and everything is warm after them.
        turns(*measure, 64 if is_slow else 1024, 1)
        warm = turns(*measure, 4 if is_slow else KERNELS, int((50 if is_slow else 1000) * scale))
        cold = None if is_slow else turns(*measure, 16, int(200 * scale), WALKED)
        rows[case] = {"function": name, "follower": follower, "is_wrapped": True, "warm": warm, "cold": cold, "is_measured": is_slow}
    # Of symbols that are no concern of the library: what it adds to the 3 bytes that it looks at.
    own = symbol("libc.so.6", "dlsym")
    handed_out = ctypes.cast(ctypes.CDLL(None).dlsym, ctypes.c_void_p).value
    name = ctypes.create_string_buffer(b"strlen")
    asked = turns((own, handed_out), None, None, [[ctypes.CDLL("libc.so.6")._handle, ctypes.addressof(name)]], 256, int(300 * scale))
    wrapped = {name: pair[0] != pair[1] for name in names if (pair := driver.pointers(name))}
    return {"calls": rows, "dlsym": asked, "wrapped": wrapped}


def torch_blocks():
    """Blocks of calls by name, with their number of calls each. Starts CUDA."""
    import torch

    torch.ones(1024, device="cuda").sum().item()
    started = time.perf_counter_ns()
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    data, x = torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16), torch.ones(1024, device="cuda")

    def gpt():
        optimizer.zero_grad()
        net(data).float().pow(2).mean().backward()
        optimizer.step()

    return started, torch.cuda.synchronize, {"tiny": (2000, lambda: x.add_(1)), "gpt": (3, gpt)}


def stub_blocks():
    """The same without PyTorch, for tests of this script."""
    cases = Cases(Driver())
    started = time.perf_counter_ns()
    call = ctypes.CFUNCTYPE(ctypes.c_int)(cases.driver.pointers("cuLaunchKernel")[1])
    given = [ctypes.c_void_p(value) for value in cases.launch(cases.kernels[0])]

    def gpt():
        for _ in range(5):
            call(*given)

    return started, int, {"tiny": (500, lambda: call(*given)), "gpt": (10, gpt)}


BLOCKS = stub_blocks if IS_STUB else torch_blocks


def timed(block, synchronize):
    size, call = block
    synchronize()
    begin = time.perf_counter_ns()
    for _ in range(size):
        call()
    synchronize()
    return (time.perf_counter_ns() - begin) / size


def inside_count(helper):
    """How often a call of each block calls each function of the driver. The helper is preloaded."""
    library = ctypes.CDLL(helper)
    library.count_of.restype = ctypes.c_char_p
    library.times_asked.restype = ctypes.c_uint64

    def counts():
        found, slot, calls = {}, 0, ctypes.c_uint64()
        while (name := library.count_of(ctypes.c_uint64(slot), ctypes.byref(calls))) is not None:
            plain = re.sub(r"(_v\d)?(_ptsz|_ptds)?$", "", name.decode())
            found[plain] = found.get(plain, 0) + calls.value
            slot += 1
        return found

    before = library.times_asked()
    if not IS_STUB:
        import torch  # noqa: F401
    asked = library.times_asked() - before
    _, synchronize, blocks = BLOCKS()
    result = {}
    for name, block in blocks.items():
        for _ in range(4):
            timed(block, synchronize)
        first = counts()
        nanos = [timed(block, synchronize) for _ in range(5)]
        made = {function: calls - first.get(function, 0) for function, calls in counts().items()}
        result[name] = {"nanos": statistics.median(nanos), "calls": {function: calls / (5 * block[0]) for function, calls in made.items() if calls}}
    return {"symbols": asked, "blocks": result}


class Child:
    """A fork of this process that measures blocks on demand. The library looks for its folder when the driver is first asked for."""

    def __init__(self, is_recording):
        (ask, self.ask), (self.told, tell) = os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process:
            os.close(ask), os.close(tell)
            self.told = os.fdopen(self.told)
            return
        try:
            # So that it ends with its parent.
            os.close(self.ask)
            if not is_recording:
                del os.environ["VRAMLINE_DRIVER_TRACE"]
            begin = time.perf_counter_ns()
            started, synchronize, blocks = BLOCKS()
            os.write(tell, b"%d\n" % (started - begin))
            for line in os.fdopen(ask):
                os.write(tell, b"%f\n" % timed(blocks[line.strip()], synchronize))
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)

    def answer(self, question=None):
        if question:
            os.write(self.ask, question.encode() + b"\n")
        line = self.told.readline()
        if not line:
            raise RuntimeError("a forked job failed")
        return float(line)

    def end(self):
        os.close(self.ask)
        self.told.close()
        os.waitpid(self.process, 0)


def inside_forks(folder, pairs, nulls, rounds):
    """Figures of pairs of children: of the first `pairs` one records, of the `nulls` after them none. Text: why there are none."""
    if not IS_STUB:
        import torch  # noqa: F401
    if "libcuda.so" in pathlib.Path("/proc/self/maps").read_text():
        return "importing PyTorch loads the driver, so both would record"
    # Both on the same two processors, since these differ in speed more than what is measured.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-2:])
    found, files = [], 0
    for pair in range(pairs + nulls):
        is_null, children, starts = pair >= pairs, {}, {}
        try:
            for which in in_turns(pair):
                children[which] = Child(which and not is_null)
                starts[which] = children[which].answer()
            now = len(list(pathlib.Path(folder).glob("calls-*.bin")))
            if now - files != int(not is_null):
                return "the children do not record as they should"
            row, files = {"is_null": is_null, "start": starts[True] - starts[False]}, now
            for name in ("tiny", "gpt"):
                times = {False: [], True: []}
                for turn in range(rounds + 3):
                    for which in in_turns(turn):
                        times[which].append(children[which].answer(name))
                ratios = [one / other - 1 for one, other in zip(times[True][3:], times[False][3:])]
                row[name] = {"without": statistics.median(times[False]), "change": statistics.median(ratios)}
        finally:
            # The last first: each has the pipes of those before it.
            for child in reversed(list(children.values())):
                child.end()
        found.append(row)
    return found


INSIDE = {"calls": inside_calls, "count": inside_count, "forks": inside_forks}


# Outside: starts the others, and adds up.


def in_turns(pair):
    return (False, True) if pair % 2 == 0 else (True, False)


def inside(what, variables, *arguments):
    """Runs a function of `INSIDE` in a process with these variables. `None` where it fails."""
    command = [sys.executable, HERE, "--inside", what, json.dumps(arguments)]
    process = subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    for line in text.splitlines():
        if process.returncode == 0 and line.startswith("COST "):
            return json.loads(line.removeprefix("COST "))
    print(f"FAILED: the measurement of {what} ended with {process.returncode}", flush=True)
    return None


def compiled(out):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise SystemExit("error: there is no C compiler\nhint: install gcc")
    helper = out / "driver_cost.so"
    words = ["-O2", "-fPIC", "-shared", "-nostdlib", "-ffreestanding", "-fvisibility=hidden"]
    subprocess.run([compiler, *words, "-o", helper, HERE.with_suffix(".c")], check=True)
    return str(helper)


def starts(command, pairs, variables):
    """What the library adds to a process, in nanoseconds: to what it says itself, or else to its whole life, and to its processor time."""
    rows = {"wall": [], "processor": []}
    base = []
    for pair in range(-1, pairs):  # The first fills the page cache.
        found = {}
        for is_on in in_turns(pair):
            begin = time.monotonic_ns()
            environment = os.environ | (variables if is_on else {}) | {"COST_BEGUN": str(begin)}
            child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            told = child.stdout.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                raise SystemExit(f"error: {command[0]} ended with {child.returncode}")
            wall = float(told.split()[1]) if told.startswith("COST") else time.monotonic_ns() - begin
            found[is_on] = (wall, (used.ru_utime + used.ru_stime) * 1e9)
        if pair >= 0:
            base.append(found[False][0])
            for place, name in enumerate(rows):
                rows[name].append(found[True][place] - found[False][place])
    return {"without": statistics.median(base)} | {name: interval(values) for name, values in rows.items()}


def step_cost(calls, counted):
    """What the calls of a block cost in nanoseconds, with warm and with cold caches, and at most: by the upper bounds. Also the functions whose own
    cost was not measured."""
    totals, rows = {}, [row for row in calls["calls"].values() if row.get("is_wrapped")]
    made = {name: number for name, number in counted["calls"].items() if calls["wrapped"].get(name)}
    for name, cost in (
        ("warm", lambda row: row["warm"]["added"]["median"]),
        ("cold", lambda row: (row["cold"] or row["warm"])["added"]["median"]),
        ("most", lambda row: max(row[way]["added"]["high"] for way in ("warm", "cold") if row[way])),
    ):
        # Of a pair, the first function has the cost of both.
        known = {row["follower"]: 0 for row in rows if row["follower"]}
        for row in rows:
            known[row["function"]] = max(known.get(row["function"], 0), cost(row))
        most = max(known[row["function"]] for row in rows if not row["is_measured"] and not row["follower"])
        totals[name] = sum(number * known.get(function, most) for function, number in made.items())
    return totals, {function: number for function, number in made.items() if function not in known}


def pairs_of(result):
    return result["forks"] if isinstance(result["forks"], list) else []


def table(result):
    """The rows of the page: what, without, what is added, how it was found, bar, and whether it is met; `None` where there is no bar."""

    def nanos(value):
        return f"{value / 1e6:,.1f} ms" if value >= 1e6 else f"{value / 1e3:,.2f} µs"

    def added(row, scale=1e6, unit="ms", digits=1):
        return f"{row['median'] / scale:+.{digits}f} {unit} ({row['low'] / scale:+.{digits}f} to {row['high'] / scale:+.{digits}f})"

    def shares(row):
        return f"{row['median']:+.2%} ({row['low']:+.2%} to {row['high']:+.2%})"

    calls = result["calls"]
    tiny = calls["calls"]["cuLaunchKernel"]["warm"]
    rows = [("loop of tiny kernels, by driver calls", nanos(tiny["own"]), shares(tiny["ratio"]), f"{tiny['ratio']['count']} pairs of blocks", "1 %",
             tiny["ratio"]["high"] <= SHARE)]
    names = {"tiny": "loop of tiny kernels", "gpt": "training step of a small GPT"}
    by = "the stub" if IS_STUB else "PyTorch"
    for block, name in names.items():
        counted = result["count"] and result["count"]["blocks"][block]
        if counted:
            totals, _ = step_cost(calls, counted)
            wrapped = sum(number for function, number in counted["calls"].items() if calls["wrapped"].get(function))
            warm, cold, most = (totals[way] / counted["nanos"] for way in ("warm", "cold", "most"))
            # Neither met nor missed where only the upper bound is above the bar.
            is_met = most <= SHARE or (False if cold > SHARE else None)
            verdict = "1 %" if is_met is not None else "1 %, not decided by the upper bound"
            rows.append((f"{name}, {by}, by its calls", nanos(counted["nanos"]), f"{warm:+.2%} warm, {cold:+.2%} cold, at most {most:+.2%}",
                         f"{wrapped:,.1f} wrapped calls", verdict, is_met))
        for is_null in (False, True):
            pairs = [pair[block] for pair in pairs_of(result) if pair["is_null"] == is_null]
            if pairs:
                without = statistics.median(pair["without"] for pair in pairs)
                found = interval([pair["change"] for pair in pairs])
                what = "neither records" if is_null else by
                rows.append((f"{name}, {what}", nanos(without), shares(found), f"{len(pairs)} pairs of forks", "", None))
    for name, row in result["starts"].items():
        rows.append((name, nanos(row["without"]), added(row["wall"]), f"{row['wall']['count']} pairs", "50 ms" if name == "start of CUDA" else "",
                     row["wall"]["median"] <= START_NANOS if name == "start of CUDA" else None))
        rows.append((f"{name}, processor time", "", added(row["processor"]), f"{row['processor']['count']} pairs", "", None))
    forks = [pair for pair in pairs_of(result) if not pair["is_null"]]
    if forks:
        found = interval([pair["start"] for pair in forks])
        rows.append((f"first use of CUDA, {by}", "", added(found), f"{len(forks)} pairs of forks", "50 ms", found["median"] <= START_NANOS))
    if result["count"]:
        each, symbols = calls["dlsym"]["added"]["high"], result["count"]["symbols"]
        whole = each * symbols + result["starts"]["start of a process"]["wall"]["high"]
        detail = f"{symbols:,} symbols of {each:.1f} ns each, and loading the library"
        rows.append(("import of PyTorch, at most", "", f"+{whole / 1e6:.2f} ms", detail, "50 ms", whole <= START_NANOS))
    return rows


def section(result):
    """The text of "What a recording costs"."""
    lines = [
        f"Written by `tests/gpu/driver_cost.py`: {result['device']}; {result['date']}. Each interval holds the median with 95 % probability. *By its",
        "calls*: the counted calls of the driver times what each costs, with the library in the processor's caches and without, and at most: times the",
        "largest upper bound. A step that waits for the GPU becomes longer by less.\n",
        "| | without | change | from | bar |",
        "|---|---|---|---|---|",
    ]
    for name, without, change, how, bar, is_met in table(result):
        lines.append(f"| {name} | {without} | {change} | {how} | {bar + {True: ', met', False: ', **not met**', None: ''}[is_met]} |")
    lines += ["", "What the library adds to one call, in nanoseconds:\n", "| call | by itself | added, warm | added, cold |", "|---|---|---|---|"]
    others = []
    for case, row in result["calls"]["calls"].items():
        if not row.get("is_wrapped"):
            others.append(f"`{case}` ({'missing here' if row.get('missing') else 'not wrapped'})")
            continue
        cells = [f"{row[way]['added']['median']:+,.1f} ({row[way]['added']['low']:+,.1f} to {row[way]['added']['high']:+,.1f})" if row[way] else ""
                 for way in ("warm", "cold")]
        lines.append(f"| {case} | {row['warm']['own']:,.0f} | {' | '.join(cells)} |")
    if isinstance(result["forks"], str):
        lines += ["", f"Forks of one process were not compared: {result['forks']}."]
    if others:
        lines += ["", f"Without a cost: {', '.join(others)}."]
    for name, counted in (result["count"] or {"blocks": {}})["blocks"].items():
        _, unknown = step_cost(result["calls"], counted)
        if unknown:
            found = ", ".join(f"`{function}` ({number:.2f})" for function, number in unknown.items())
            lines += ["", f"Wrapped calls of *{name}* whose own cost was not measured, which count with the largest of the others: {found}."]
    return "\n".join(lines) + "\n"


def write(page, text):
    """Replaces the section of a page."""
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(r"(## What a recording costs\n\n).*?(?=\n## |\Z)", lambda found: found[1] + text, old, count=1, flags=re.DOTALL)
    if not count:
        raise SystemExit(f"error: {page} has no section \"What a recording costs\"")
    page.write_text(new, encoding="utf-8")


def device_name():
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.splitlines()[0].replace(", ", ", driver ") if done.returncode == 0 and done.stdout.strip() else "unknown device"


def finished(result, out, page):
    """Prints and writes the table. The exit code."""
    text = section(result)
    (out / "section.md").write_text(text, encoding="utf-8")
    print(text)
    if page:
        write(page, text)
    calls = result["calls"]["calls"]
    failed = [case for case, row in calls.items() if row.get("is_wrapped") and row["warm"]["failed"]]
    if failed:
        print(f"FAILED: the driver refused calls of {', '.join(failed)}")
    return int(bool(failed) or not all(is_met is not False for *_, is_met in table(result)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the blocks and pairs: only whether it works")
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--again", action="store_true", help="measure nothing: the table from OUT/cost.json")
    options = parser.parse_args()
    if options.again:
        return finished(json.loads((options.out / "cost.json").read_text()), options.out, options.write)
    library = options.library
    if library is None:
        package = importlib.util.find_spec("vramline")
        if package is None:
            raise SystemExit("error: vramline is not installed\nhint: install the wheel, or give --library")
        library = pathlib.Path(package.origin).parent / "libvramline_driver.so"
    out = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    (out / "calls").mkdir(parents=True)
    helper, scale = compiled(out), 0.1 if options.quick else 1
    preloaded = {"LD_PRELOAD": str(library.resolve())}
    recording = preloaded | {"VRAMLINE_DRIVER_TRACE": str(out / "calls")}
    has_torch = importlib.util.find_spec("torch") is not None and not IS_STUB
    result = {"date": str(datetime.date.today()), "device": "the stub" if IS_STUB else device_name(), "count": None, "forks": None}
    begin = time.monotonic()

    def done(what):
        (out / "cost.json").write_text(json.dumps(result, indent=1))
        print(f"{what} measured after {time.monotonic() - begin:.0f} s", flush=True)

    names = []
    if has_torch or IS_STUB:
        result["count"] = inside("count", {"LD_PRELOAD": helper}, helper)
        blocks = (result["count"] or {"blocks": {}})["blocks"].values()
        names = sorted({name for block in blocks for name in block["calls"]})
        done("numbers of calls")
    result["calls"] = inside("calls", recording, helper, scale, names)
    if result["calls"] is None:
        return 1
    done("calls")
    result["starts"] = {
        "start of a process": starts([shutil.which("true")], int(200 * scale), recording),
        "start of CUDA": starts([sys.executable, "-c", PLAIN], int(30 * scale), recording),
    }
    done("starts")
    if has_torch:
        result["starts"]["import of PyTorch"] = starts([sys.executable, "-c", "import torch"], max(2, int(4 * scale)), recording)
        done("imports")
    if has_torch or IS_STUB:
        (out / "forks").mkdir()
        variables = preloaded | {"VRAMLINE_DRIVER_TRACE": str(out / "forks")}
        result["forks"] = inside("forks", variables, str(out / "forks"), *((1, 1, 4) if options.quick else (4, 2, 15)))
        if isinstance(result["forks"], str):
            print(f"no forks: {result['forks']}", flush=True)
        done("forks")
    is_whole = not (has_torch or IS_STUB) or (result["count"] and result["forks"])
    return finished(result, out, options.write) or int(not is_whole)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print("COST", json.dumps(INSIDE[sys.argv[2]](*json.loads(sys.argv[3]))))
    else:
        sys.exit(main())
