"""Random CUDA calls under the library of `vramline run --driver-trace on`: nothing may crash, hang or tear a record.

    python tests/gpu/soak.py OUT [--minutes N] [--library FILE] [--detach]
    python tests/gpu/soak.py OUT --check

Several processes run at once, each with 8 threads that call the driver at random: memory of every kind, pools, streams, events, graphs,
modules, arrays, pinned memory, requests that fail. They fork while the threads run, raise exceptions, and some are killed. Beside them run PyTorch
and CuPy, where they are installed, and one process without the library, to tell what the driver does by itself. Together they take less than
6 GiB of GPU memory. A process whose threads stand still for a minute counts as hanging.

Afterwards every file of calls is read back. `verdict.json` says whether the soak passed, and why not. `--detach` returns at once and goes on in
the background; `--check` prints the verdict later: exit code 0 passed, 1 failed, 2 not finished.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import faulthandler
import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python" / "driver_trace"))

from read_calls import UNKNOWN, read

MIB = 1 << 20
THREADS = 8
HANGING_SECONDS = 60
# So that a round of a process does not fill its file, which has at most 64 MiB.
ROUND_SECONDS, MOST_SECONDS_BETWEEN = 30, 0.02
OUT_OF_MEMORY = 2
# The driver of tests/python/driver_trace stands for the real one: it checks the arguments of a launch, and has fewer functions.
IS_STUB = "STUB_DEVICE" in os.environ
PTX = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"


class Driver:
    """The driver's functions, found in one of three ways. A call whose result is not the expected one raises."""

    def __init__(self, way):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.way, self.found = way, {}

    def function(self, name):
        if name not in self.found:
            self.found[name] = self.find(name)
        return self.found[name]

    def find(self, name):
        if self.way == "dlsym":
            return getattr(self.library, name, None)
        place, plain = ctypes.c_void_p(), name.removesuffix("_v2").encode()
        if self.way == "v1":
            error = self.library.cuGetProcAddress(plain, ctypes.byref(place), 12000, ctypes.c_uint64(0))
        else:
            error = self.library.cuGetProcAddress_v2(plain, ctypes.byref(place), 12000, ctypes.c_uint64(0), None)
        return ctypes.CFUNCTYPE(ctypes.c_int)(place.value) if error == 0 and place.value else None

    def has(self, *names):
        return all(self.function(name) for name in names)

    def __call__(self, name, *arguments, expects=(0,)):
        result = self.function(name)(*arguments)
        if result not in expects:
            raise RuntimeError(f"{name} returned {result}")
        return result


def made(kind=ctypes.c_void_p):
    value = kind()
    return value, ctypes.byref(value)


class SkippedError(Exception):
    """Raised and caught by the soak itself: the driver has no such function, or it is another's turn."""


class Worker(threading.Thread):
    """A thread that calls the driver at random until the time is over."""

    def __init__(self, driver, context, seed):
        super().__init__(daemon=True)
        self.driver, self.context, self.random = driver, context, random.Random(seed)
        self.turns, self.error, self.done = 0, None, collections.Counter()
        self.stream = None

    def run(self):
        try:
            if self.driver.has("cuCtxSetCurrent"):
                self.driver("cuCtxSetCurrent", self.context)
            self.stream, place = made()
            self.driver("cuStreamCreate", place, 1)
            ways = [way for way in dir(self) if way.startswith("do_")]
            while not self.is_over():
                way = self.random.choice(ways)
                try:
                    getattr(self, way)()
                    self.done[way] += 1
                except SkippedError:
                    pass
                self.turns += 1
                time.sleep(self.random.uniform(0, MOST_SECONDS_BETWEEN))
            self.driver("cuStreamDestroy_v2", self.stream)
        except BaseException as error:
            self.error = repr(error)

    is_over = staticmethod(lambda: False)

    def do_memory(self):
        address, place = made(ctypes.c_uint64)
        size = self.random.randrange(1, 4 * MIB)
        self.driver("cuMemAlloc_v2", place, ctypes.c_size_t(size))
        if self.driver.has("cuMemsetD8_v2", "cuMemcpyDtoH_v2"):
            value, back = self.random.randrange(256), (ctypes.c_ubyte * min(size, 4096))()
            self.driver("cuMemsetD8_v2", address, ctypes.c_ubyte(value), ctypes.c_size_t(size))
            self.driver("cuMemcpyDtoH_v2", back, address, ctypes.c_size_t(len(back)))
            if bytes(back) != bytes([value]) * len(back):
                raise RuntimeError("memory has other values than were written")
        self.driver("cuMemFree_v2", address)

    def do_refused(self):
        _, place = made(ctypes.c_uint64)
        self.driver("cuMemAlloc_v2", place, ctypes.c_size_t(1 << 45), expects=(OUT_OF_MEMORY,))

    def do_pitch(self):
        if not self.driver.has("cuMemAllocPitch_v2"):
            raise SkippedError
        (address, place), (_, row) = made(ctypes.c_uint64), made(ctypes.c_size_t)
        self.driver("cuMemAllocPitch_v2", place, row, ctypes.c_size_t(1000), ctypes.c_size_t(256), 4)
        self.driver("cuMemFree_v2", address)

    def do_pool(self):
        blocks = []
        for _ in range(self.random.randrange(1, 8)):
            address, place = made(ctypes.c_uint64)
            self.driver("cuMemAllocAsync", place, ctypes.c_size_t(self.random.randrange(1, 2 * MIB)), self.stream)
            blocks.append(address)
        for address in blocks:
            self.driver("cuMemFreeAsync", address, self.stream)
        if self.driver.has("cuStreamSynchronize"):
            self.driver("cuStreamSynchronize", self.stream)

    def do_streams_and_events(self):
        stream, place = made()
        self.driver("cuStreamCreateWithPriority", place, 1, 0)
        for _ in range(self.random.randrange(1, 6)):
            event, place = made()
            self.driver("cuEventCreate", place, 2)
            if self.driver.has("cuEventRecord", "cuStreamWaitEvent"):
                self.driver("cuEventRecord", event, stream)
                self.driver("cuStreamWaitEvent", self.stream, event, 0)
            self.driver("cuEventDestroy_v2", event)
        self.driver("cuStreamDestroy_v2", stream)

    def module(self):
        module, place = made()
        self.driver("cuModuleLoadData", place, PTX)
        function, place = made()
        if IS_STUB:
            return module, ctypes.c_void_p(self.random.randrange(1, 100))
        self.driver("cuModuleGetFunction", place, module, b"nothing")
        return module, function

    def launch(self, function, stream):
        if IS_STUB:
            self.driver("cuLaunchKernel", function, 1, 2, 3, 4, 5, 6, 7, *map(ctypes.c_void_p, (8, 9, 10)))
        else:
            self.driver("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)

    def do_module(self):
        if self.random.random() < 0.7:  # Compiling takes long, and would crowd out everything else.
            raise SkippedError
        module, function = self.module()
        for _ in range(20):
            self.launch(function, self.stream)
        if not IS_STUB:
            self.driver("cuStreamSynchronize", self.stream)
        self.driver("cuModuleUnload", module)

    def do_graph(self):
        names = ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecDestroy")
        if not self.driver.has(*names) or self.random.random() < 0.5:
            raise SkippedError
        module, function = self.module()
        self.launch(function, self.stream)
        (graph, place), (program, where) = made(), made()
        self.driver("cuStreamBeginCapture_v2", self.stream, 1)
        self.launch(function, self.stream)
        self.driver("cuStreamEndCapture", self.stream, place)
        self.driver("cuGraphInstantiateWithFlags", where, graph, ctypes.c_uint64(0))
        for _ in range(5):
            self.driver("cuGraphLaunch", program, self.stream)
        if not IS_STUB:
            self.driver("cuStreamSynchronize", self.stream)
            self.driver("cuGraphDestroy", graph)
        self.driver("cuGraphExecDestroy", program)
        self.driver("cuModuleUnload", module)

    def do_virtual(self):
        if not self.driver.has("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemAddressFree"):
            raise SkippedError
        size = ctypes.c_size_t(2 * MIB * self.random.randrange(1, 4))
        # CUmemAllocationProp: pinned memory of device 0. CUmemAccessDesc: device 0, to read and write.
        properties = (ctypes.c_uint32 * 8)(1, 0, 1, 0)
        access = (ctypes.c_uint32 * 3)(1, 0, 3)
        (memory, place), (address, where) = made(ctypes.c_uint64), made(ctypes.c_uint64)
        self.driver("cuMemCreate", place, size, properties, ctypes.c_uint64(0))
        self.driver("cuMemAddressReserve", where, size, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.driver("cuMemMap", address, size, ctypes.c_size_t(0), memory, ctypes.c_uint64(0))
        self.driver("cuMemSetAccess", address, size, access, ctypes.c_size_t(1))
        self.driver("cuMemUnmap", address, size)
        self.driver("cuMemRelease", memory)
        self.driver("cuMemAddressFree", address, size)

    def do_own_pool(self):
        if not self.driver.has("cuMemPoolCreate", "cuMemAllocFromPoolAsync", "cuMemPoolDestroy", "cuMemPoolTrimTo"):
            raise SkippedError
        # CUmemPoolProps: pinned memory of device 0.
        properties = (ctypes.c_uint32 * 22)(1, 0, 1, 0)
        (pool, place), (address, where) = made(), made(ctypes.c_uint64)
        self.driver("cuMemPoolCreate", place, properties)
        self.driver("cuMemAllocFromPoolAsync", where, ctypes.c_size_t(self.random.randrange(1, 2 * MIB)), pool, self.stream)
        self.driver("cuMemFreeAsync", address, self.stream)
        self.driver("cuStreamSynchronize", self.stream)
        self.driver("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))
        self.driver("cuMemPoolDestroy", pool)

    def do_array(self):
        if not self.driver.has("cuArrayCreate_v2", "cuArrayDestroy"):
            raise SkippedError
        array, place = made()
        description = (ctypes.c_uint64 * 3)(512, 64, 0x20 | 4 << 32)
        self.driver("cuArrayCreate_v2", place, description)
        self.driver("cuArrayDestroy", array)

    def do_pinned(self):
        if not self.driver.has("cuMemHostAlloc", "cuMemFreeHost"):
            raise SkippedError
        memory, place = made()
        self.driver("cuMemHostAlloc", place, ctypes.c_size_t(self.random.randrange(1, MIB)), 0)
        self.driver("cuMemFreeHost", memory)

    def do_host(self):
        """What others do at the same time: the loader, exceptions, memory."""
        ctypes.CDLL("libm.so.6").cos(ctypes.c_double(1))
        try:
            [].pop()
        except IndexError:
            return
        raise RuntimeError("nothing was raised")


def forked(driver, turn):
    """Forks while the threads run. The child calls the driver, which refuses, and ends in one of three ways. Gives what went wrong."""
    child = os.fork()
    if child == 0:
        signal.alarm(HANGING_SECONDS)
        function = driver.function("cuMemAlloc_v2")
        _, place = made(ctypes.c_uint64)
        for _ in range(3):
            function(place, ctypes.c_size_t(MIB))
        if turn % 3 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(turn % 100)
    _, status = os.waitpid(child, 0)
    expected = -signal.SIGKILL if turn % 3 == 0 else turn % 100
    code = os.waitstatus_to_exitcode(status)
    return None if code == expected else f"a forked child ended with {code} instead of {expected}"


def work(seed, seconds):
    """One process with its threads. Prints its counts; exit code 0 where everything went as it should."""
    faulthandler.enable()
    driver = Driver(("dlsym", "v1", "v2")[seed % 3])
    context, place = made()
    driver("cuInit", 0)
    driver("cuDevicePrimaryCtxRetain", place, 0)
    end = time.monotonic() + seconds
    Worker.is_over = staticmethod(lambda: time.monotonic() >= end)
    threads = [Worker(driver, context, 1000 * seed + one) for one in range(THREADS)]
    for thread in threads:
        thread.start()
    seen, when, turn = [0] * THREADS, [time.monotonic()] * THREADS, 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.25)
        if time.monotonic() < end:
            failed = forked(driver, turn)
            turn += 1
            if failed:
                sys.exit(failed)
        for one, thread in enumerate(threads):
            if thread.turns != seen[one] or not thread.is_alive():
                seen[one], when[one] = thread.turns, time.monotonic()
            elif time.monotonic() - when[one] > HANGING_SECONDS:
                faulthandler.dump_traceback(all_threads=True)
                sys.exit("a thread stands still")
    errors = [thread.error for thread in threads if thread.error]
    if errors:
        sys.exit(f"errors: {errors}")
    done = sum((thread.done for thread in threads), collections.Counter())
    print(json.dumps({"turns": sum(thread.turns for thread in threads), "forks": turn, "done": done}))


FRAMEWORKS = {
    "torch": """
import random, sys, threading, time, torch
end = time.monotonic() + float(sys.argv[1])
failed = []
def work(seed):
    r, count = random.Random(seed), 0
    stream = torch.cuda.Stream()
    try:
        while time.monotonic() < end:
            with torch.cuda.stream(stream):
                n = r.randrange(64, 768)
                x = torch.full((n, n), 2.0, device="cuda")
                assert torch.equal((x @ x)[0], torch.full((n,), 4.0 * n, device="cuda"))
                if r.random() < 0.05:
                    try:
                        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
                        raise AssertionError("too much was given")
                    except torch.OutOfMemoryError:
                        pass
                if r.random() < 0.02:
                    torch.linalg.svd(x[:64, :64]); torch.fft.fft(x[0])
            if r.random() < 0.02:
                torch.cuda.empty_cache()
            count += 1
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
x = torch.ones(256, 256, device="cuda"); y = x @ x
for _ in range(3):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): y = x @ x
    graph.replay(); torch.cuda.synchronize()
    assert y[0, 0].item() == 256
sys.exit(f"errors: {failed}" if failed else 0)
""",
    "cupy": """
import random, sys, threading, time, cupy
end = time.monotonic() + float(sys.argv[1])
failed = []
def work(seed):
    r = random.Random(seed)
    try:
        with cupy.cuda.Stream(non_blocking=True):
            while time.monotonic() < end:
                a = cupy.arange(r.randrange(1000, 200000), dtype=cupy.float64)
                assert int((a * 2).max()) == 2 * (len(a) - 1)
                if r.random() < 0.02: cupy.get_default_memory_pool().free_all_blocks()
                if r.random() < 0.02: cupy.fft.fft(a[:1024])
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
sys.exit(f"errors: {failed}" if failed else 0)
""",
}


def soak(out, seconds, library, processes):
    """Runs all processes. Gives what went wrong, the numbers of killed processes, and the counts."""
    recording, logs = out / "recording", out / "logs"
    for folder in (recording, logs):
        folder.mkdir(parents=True, exist_ok=True)
    traced = {"LD_PRELOAD": str(library), "VRAMLINE_DRIVER_TRACE": str(recording)}
    me, end = str(pathlib.Path(__file__).resolve()), time.monotonic() + seconds
    problems, counts = [], collections.Counter()

    def start(name, *words, more):
        with open(logs / f"{name}.txt", "w") as log:
            return subprocess.Popen([sys.executable, *words], env=os.environ | more, stdout=log, stderr=subprocess.STDOUT)

    def run(name, *words, more, limit):
        process = start(name, *words, more=more)
        try:
            process.wait(limit + 2 * HANGING_SECONDS)
        except subprocess.TimeoutExpired:
            problems.append(f"{name} did not end")
            process.kill()
            process.wait()
        text = (logs / f"{name}.txt").read_text()
        if process.returncode:
            problems.append(f"{name} ended with {process.returncode}: {text[-600:]}")
        elif words[0] == me:
            told = json.loads(text.splitlines()[-1])
            counts.update({"turns": told["turns"], "forks": told["forks"], **told["done"]} if more else {"turns_without": told["turns"]})
        counts["rounds"] += 1

    def rounds(place):
        """One process after the other; the first place has one process for the whole time."""
        number = 0
        while (left := end - time.monotonic()) > 1:
            limit = left if place == 0 else min(left, ROUND_SECONDS)
            run(f"worker-{place}-{number % 4}", me, "--work", str(place + 100 * number), str(limit), more=traced, limit=limit)
            number += 1

    jobs = [threading.Thread(target=rounds, args=(place,)) for place in range(processes)]
    jobs.append(threading.Thread(target=run, args=("without", me, "--work", "0", str(seconds)), kwargs={"more": {}, "limit": seconds}))
    frameworks = [name for name in FRAMEWORKS if importlib.util.find_spec(name) and not IS_STUB]
    for name in frameworks:
        words = (name, "-c", FRAMEWORKS[name], str(seconds))
        jobs.append(threading.Thread(target=run, args=words, kwargs={"more": traced, "limit": seconds}))
    for job in jobs:
        job.start()
    killed, turn = set(), random.Random(0)
    while time.monotonic() < end:
        victim = start(f"killed-{len(killed) % 4}", me, "--work", str(len(killed)), "1000", more=traced)
        try:
            victim.wait(min(turn.uniform(1, 6), max(0.1, end - time.monotonic())))
            problems.append(f"a process that was to be killed ended with {victim.returncode}")
        except subprocess.TimeoutExpired:
            victim.kill()
            victim.wait()
            killed.add(victim.pid)
    for job in jobs:
        job.join()
    return problems, killed, {"killed": len(killed), "frameworks": frameworks, "calls": dict(counts)}


def adds_up(file):
    """Whether gaps and charges of each device add up to the change from its first reading to one of its last ones. Threads write their last
    records in any order."""
    for device in {call["device"] for call in file.calls}:
        calls = [call for call in file.calls if call["device"] == device and call["after"] != UNKNOWN]
        known = [call for call in calls if call["before"] != UNKNOWN]
        if not known:
            continue
        first = min(known, key=lambda call: call["begin"])["before"]
        total = sum(call["gap"] + call["grew"] for call in calls)
        if total not in {call["after"] - first for call in calls[-64:]}:
            return False
    return True


def examined(path, is_killed):
    """Reads a file back. Gives what is wrong and the counts. A killed process may have been writing its last record, or have been between a
    reading and its record."""
    file = read(path)
    wrong = [f"{path.name}: {file.torn} bytes at its end are no whole record"] if file.torn else []
    wrong += [] if file.dropped or adds_up(file) else [f"{path.name}: gaps and charges do not add up"]
    counts = {
        "files": 1,
        "records": len(file.calls),
        "dropped": file.dropped,
        "overlapping": sum(call["flags"] & 1 for call in file.calls),
        "listed": sum(call["own"] != UNKNOWN for call in file.calls),
        "with_neighbours": sum(call["neighbours"] != 0 for call in file.calls),
        "incomplete_of_killed": int(is_killed and bool(wrong)),
    }
    return [] if is_killed else wrong, counts


def all_examined(recording, killed):
    paths = sorted(recording.glob("calls-*.bin"))
    problems, counts = [], collections.Counter()
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for wrong, one in pool.map(examined, paths, [int(path.name.split("-")[-2]) in killed for path in paths]):
            problems += wrong
            counts.update(one)
    return problems if counts["records"] else ["nothing was recorded"], dict(counts)


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(int(sys.argv[2]), float(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    out = options.out.resolve()
    verdict = out / "verdict.json"
    if options.check:
        if not verdict.exists():
            print("the soak has not finished")
            return 2
        print(verdict.read_text())
        return int(not json.loads(verdict.read_text())["passed"])
    library = options.library
    if library is None:
        package = importlib.util.find_spec("vramline")
        if package is None:
            raise SystemExit("error: vramline is not installed\nhint: install the wheel, or give --library")
        library = pathlib.Path(package.origin).parent / "libvramline_driver.so"
    out.mkdir(parents=True, exist_ok=True)
    verdict.unlink(missing_ok=True)
    if options.detach:
        words = [word for word in sys.argv[1:] if word != "--detach"]
        with open(out / "log.txt", "w") as log:
            subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        print(f"the soak runs; python tests/gpu/soak.py {options.out} --check")
        return 0
    begin = time.monotonic()
    problems, killed, counts = soak(out, 60 * options.minutes, library.resolve(), options.processes)
    wrong, files = all_examined(out / "recording", killed)
    told = {
        "passed": not problems and not wrong,
        "seconds": round(time.monotonic() - begin),
        "problems": (problems + wrong)[:50],
        "files": files,
        **counts,
    }
    part = out / "verdict.part"
    part.write_text(json.dumps(told, indent=1))
    part.replace(verdict)
    print(verdict.read_text())
    return int(not told["passed"])


if __name__ == "__main__":
    sys.exit(main())
