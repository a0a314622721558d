"""Time and memory of CPython's `pickle.load` and of `vramline report --json` on the same PyTorch snapshot, in one run.

    python benches/against_pickle.py [--snapshot FILE] [--runs N] [--write docs/proof/benchmarks.md]

Makes a snapshot of the documented schema first, a gigabyte with stacks of 30 frames, and one of half that size (kept in
benches/out/). Entries are as PyTorch writes them: frames are shared dictionaries, each list of them is its own but for
that of a completed free. Rules: warm page cache; every run in a fresh process; Python's start and imports are not
counted, our whole process is, with the report; best of the runs, one reader after the other. Memory is the highest resident
set of the process.
"""

import argparse
import datetime
import gc
import json
import os
import pathlib
import pickle
import platform
import random
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / "out"
BINARY = pathlib.Path(os.environ.get("VRAMLINE_BIN", ROOT / "target/release/vramline"))

DEPTH = 30
BYTES_PER_ENTRY = 145

PICKLE = """
import pickle, sys, time
with open(sys.argv[1], "rb") as file:
    begin = time.perf_counter()
    snapshot = pickle.load(file)
    seconds = time.perf_counter() - begin
print(seconds, sum(map(len, snapshot["device_traces"])), flush=True)
import os
os._exit(0)
"""


class Place:
    """Room for one block: the trace allocates and frees there again and again."""

    def __init__(self, address, size, largest):
        self.address, self.size, self.largest, self.frames = address, size, largest, None


def snapshot(megabytes, seed=4):
    """A snapshot whose pickle has about so many megabytes."""
    random.seed(seed)
    count = megabytes * 1_000_000 // BYTES_PER_ENTRY
    files = [f"/home/user/project/model/part_{i}.py" for i in range(40)]
    files += [f"/usr/lib/python3/dist-packages/torch/nn/modules/part_{i}.py" for i in range(20)]
    frames = [
        {"name": f"forward_{i % 170}", "filename": files[i % len(files)], "line": 10 + i % 700} for i in range(3000)
    ]
    stacks = [random.sample(frames, DEPTH) for _ in range(2000)]
    segments, places = [], []
    address = 0x7F0000000000
    for number in range(240):
        is_small = number % 3 == 0
        total = 2 << 20 if is_small else 64 << 20
        begin = address
        while address < begin + total:
            size = 512 * random.randint(1, 64) if is_small else (2 << 20) * random.randint(1, 4)
            size = min(size, begin + total - address)
            places.append(Place(address, 0, size))
            address += size
        segments.append((begin, total, is_small))
        address += 2 << 20
    trace = []
    clock = 1_794_709_572_064_774
    add = trace.append

    def entry(action, addr, size, frames):
        nonlocal clock
        clock += random.randrange(30)
        add(
            {
                "action": action,
                "addr": addr,
                "size": size,
                "stream": 0,
                "time_us": clock,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": frames,
            }
        )

    gc.disable()
    for begin, total, _ in segments:
        entry("segment_alloc", begin, total, list(random.choice(stacks)))
    while len(trace) < count:
        place = random.choice(places)
        if place.size == 0:
            place.size = place.largest - random.randrange(512)
            place.frames = list(random.choice(stacks))
            entry("alloc", place.address, place.size, place.frames)
        else:
            frames = list(random.choice(stacks))
            entry("free_requested", place.address, place.size, frames)
            entry("free_completed", place.address, place.size, frames)
            place.size, place.frames = 0, None
    return {
        "segments": final_segments(segments, places),
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
        "external_annotations": [],
    }


def final_segments(segments, places):
    final = []
    places = iter(places)
    for begin, total, is_small in segments:
        blocks, address = [], begin
        while address < begin + total:
            place = next(places)
            is_live = place.size > 0
            blocks.append(
                {
                    "address": place.address,
                    "size": place.largest,
                    "requested_size": place.size,
                    "state": "active_allocated" if is_live else "inactive",
                    "frames": place.frames if is_live else [],
                }
            )
            address += place.largest
        live = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        final.append(
            {
                "device": 0,
                "address": begin,
                "total_size": total,
                "allocated_size": live,
                "active_size": live,
                "requested_size": sum(b["requested_size"] for b in blocks),
                "stream": 0,
                "segment_type": "small" if is_small else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": blocks,
            }
        )
    return final


def true_peak(made):
    """The most allocated, added up in Python: each block takes its place's size."""
    sizes = {block["address"]: block["size"] for segment in made["segments"] for block in segment["blocks"]}
    now = peak = 0
    for entry in made["device_traces"][0]:
        if entry["action"] == "alloc":
            now += sizes[entry["addr"]]
            peak = max(peak, now)
        elif entry["action"] == "free_requested":
            now -= sizes[entry["addr"]]
    return peak


def make(name, megabytes):
    """The path of a snapshot, made if need be, and its true peak."""
    path, truth = OUT / name, OUT / f"{name}.peak"
    if not truth.exists():
        OUT.mkdir(exist_ok=True)
        print(f"making {name} ...", flush=True)
        made = snapshot(megabytes)
        with open(path, "wb") as file:
            pickle.dump(made, file)
        truth.write_text(str(true_peak(made)))
    return path, int(truth.read_text())


def watch(pid, peak, stop):
    """Samples the kernel's high-water mark of a process. Not `ru_maxrss`: that counts what the parent held."""
    while not stop.is_set():
        try:
            with open(f"/proc/{pid}/status") as status:
                for line in status:
                    name, _, value = line.partition(":")
                    if name == "VmHWM":
                        peak[0] = max(peak[0], int(value.split()[0]) * 1024)
        except OSError:
            return
        time.sleep(0.002)


def run(command, is_watched):
    """Seconds, resident bytes and standard output. A run is either timed or watched."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    peak, stop = [0], threading.Event()
    sampler = threading.Thread(target=watch, args=(process.pid, peak, stop))
    if is_watched:
        sampler.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - begin
    stop.set()
    if is_watched:
        sampler.join()
    if process.returncode:
        sys.exit(f"{command[0]} failed")
    return seconds, peak[0], output


def run_pickle(path, is_watched=False):
    _, resident, output = run([sys.executable, "-c", PICKLE, str(path)], is_watched)
    seconds, entries = output.split()
    return float(seconds), resident, int(entries)


def run_vramline(path, is_watched=False):
    seconds, resident, output = run([str(BINARY), "report", str(path), "--json"], is_watched)
    return seconds, resident, json.loads(output)


def compare(path, peak, runs):
    path.read_bytes()  # warm the page cache
    theirs = [run_pickle(path) for _ in range(runs)]
    ours = [run_vramline(path) for _ in range(runs)]
    their_memory, our_memory = run_pickle(path, True)[1], run_vramline(path, True)[1]
    for name, results in (("pickle.load", theirs), ("vramline", ours)):
        print(f"{path.name}: {name} " + ", ".join(f"{result[0]:.3f}" for result in results) + " s", flush=True)
    if peak is not None:
        # A comparison of speed is worth something only where the answer is right.
        assert ours[0][2]["pools"][0]["peak_bytes"] == peak, (ours[0][2]["pools"][0]["peak_bytes"], peak)
    best = [min(result[0] for result in results) for results in (theirs, ours)]
    size = path.stat().st_size
    rows = [
        f"| {size / 1e6:.0f} MB, {theirs[0][2]:,} entries: time | {best[0]:.2f} s | {best[1]:.3f} s |"
        f" {best[0] / best[1]:.1f} |",
        f"| peak resident | {their_memory / 1e6:.0f} MB | {our_memory / 1e6:.0f} MB | {their_memory / our_memory:.1f} |",
    ]
    return rows, theirs[0][2], best[1], our_memory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot", type=pathlib.Path, help="measure on this snapshot instead of those made here")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=pathlib.Path, help="put the table into this file too")
    args = parser.parse_args()
    made = (
        [(args.snapshot, None)]
        if args.snapshot
        else [make("half.snapshot.pickle", 500), make("whole.snapshot.pickle", 1000)]
    )
    lines = [
        f"CPython {platform.python_version()}; {os.cpu_count()} cores, {platform.machine()}, Linux"
        f" {platform.release().split('-')[0]}; {datetime.date.today()}",
        "",
        f"| best of {args.runs} | pickle.load | vramline report | ratio |",
        "|---|---|---|---|",
    ]
    results = []
    for path, peak in made:
        rows, *result = compare(path, peak, args.runs)
        lines += rows
        results.append(result)
    if len(results) == 2:
        (fewer, once, less), (many, twice, more) = results
        lines += [
            "",
            f"How the cost of Vramline grows: {many / fewer:.2f} times the entries take {twice / once:.2f} times the time and"
            f" {more / less:.2f} times the memory.",
        ]
    print("\n" + "\n".join(lines))
    if args.write:
        write(args.write, lines)


HEADING = "## A PyTorch snapshot against `pickle.load`"


def write(path, lines):
    """Puts the table under its heading, and leaves the rest of the file alone."""
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    before, _, after = text.partition(HEADING)
    _, mark, rest = after.partition("\n## ")
    how = "`benches/against_pickle.py` measures this and describes the method."
    part = "\n".join([HEADING, "", how, "", *lines, ""])
    path.write_text(before.rstrip() + "\n\n" + part + (mark + rest if mark else ""))


if __name__ == "__main__":
    main()
