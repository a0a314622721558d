"""Time and memory of xprof's memory profile and of `vramline report --json` on the same large trace, in one run.

    python benches/against_xprof.py [--trace FILE] [--runs N] [--write docs/proof/benchmarks.md]

Makes a trace of at least 200 MB with real TensorFlow first, and one of twice that size (kept in benches/out/): the cost
of the two tools does not grow alike. Rules: warm page cache; every run in a fresh process; xprof's imports are not counted, our
whole process is; best of five, one tool after the other. Memory is the highest resident set of the process, and the
anonymous part of it apart: we read with a buffer, so nearly all of ours is anonymous.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / "out"
BINARY = pathlib.Path(os.environ.get("VRAMLINE_BIN", ROOT / "target/release/vramline"))

# As many as of xprof, by default.
OUR_RUNS = 5

XPROF = """
import sys, time
from xprof.convert import raw_to_tool_data
begin = time.perf_counter()
data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "memory_profile", {})
seconds = time.perf_counter() - begin
sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode())
print(seconds, file=sys.stderr)
"""


def watch(pid, peak, stop):
    """Samples what a process holds: the kernel's high-water mark, and the anonymous part, of which it keeps none.

    Not `ru_maxrss`: that counts what the parent held when it forked.
    """
    while not stop.is_set():
        try:
            with open(f"/proc/{pid}/status") as status:
                for line in status:
                    name, _, value = line.partition(":")
                    if name in peak:
                        peak[name] = max(peak[name], int(value.split()[0]) * 1024)
        except OSError:
            return
        time.sleep(0.002)


def run(command, is_watched):
    """Seconds, resident and anonymous bytes, standard output and standard error of a command.

    Watching the memory of a process holds it up, so a run is either timed or watched.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    peak, stop = {"VmHWM": 0, "RssAnon": 0}, threading.Event()
    sampler = threading.Thread(target=watch, args=(process.pid, peak, stop))
    if is_watched:
        sampler.start()
    output, error = process.communicate()
    seconds = time.perf_counter() - begin
    stop.set()
    if is_watched:
        sampler.join()
    if process.returncode:
        sys.exit(f"{command[0]} failed:\n{error.decode()}")
    return seconds, peak["VmHWM"], peak["RssAnon"], output, error.decode()


def run_xprof(trace, is_watched=False):
    _, resident, anonymous, output, error = run([sys.executable, "-c", XPROF, str(trace)], is_watched)
    seconds = float(error.strip().splitlines()[-1])
    return seconds, resident, anonymous, json.loads(output)


def run_vramline(trace, is_watched=False):
    seconds, resident, anonymous, output, _ = run([str(BINARY), "report", str(trace), "--json"], is_watched)
    return seconds, resident, anonymous, json.loads(output)


def make(name, megabytes):
    trace = OUT / name
    if not trace.exists():
        OUT.mkdir(exist_ok=True)
        print(f"making {trace.name} with TensorFlow ...", flush=True)
        script = [sys.executable, str(HERE / "make_trace.py"), str(trace), "--megabytes", str(megabytes)]
        subprocess.run(script, check=True, stderr=subprocess.DEVNULL)
    return trace


def assert_same_peak(theirs, ours):
    """A comparison of speed is worth something only where the answers agree."""
    for pool in ours["pools"]:
        summary = theirs["memoryProfilePerAllocator"][pool["name"]]["profileSummary"]
        assert int(summary["peakStats"]["peakBytesInUse"]) == pool["peak_bytes"], pool["name"]


def events(report):
    return sum(pool["allocs"] + pool["frees"] for pool in report["pools"])


def best(runs, column):
    return min(entry[column] for entry in runs)


def compare(trace, runs):
    """Both tools on one trace, in turns: the rows of a table, and our own runs."""
    trace.read_bytes()  # warm the page cache
    # One after the other, so that either finds the machine as it left it: memory that was idle for a second costs a
    # virtual machine dearly to touch again.
    theirs = [run_xprof(trace) for _ in range(runs)]
    ours = [run_vramline(trace) for _ in range(OUR_RUNS)]
    watched = {"theirs": run_xprof(trace, True), "ours": run_vramline(trace, True)}
    for name, results in (("xprof", theirs), ("vramline", ours)):
        print(f"{trace.name}: {name} " + ", ".join(f"{result[0]:.3f}" for result in results) + " s", flush=True)
    assert_same_peak(theirs[0][3], ours[0][3])
    size = f"{trace.stat().st_size / 1e6:.0f} MB, {events(ours[0][3]):,} memory events"
    rows = [f"| {size}: time | {best(theirs, 0):.2f} s | {best(ours, 0):.3f} s | {best(theirs, 0) / best(ours, 0):.0f} |"]
    for column, name in ((1, "peak resident"), (2, "of that anonymous")):
        rows.append(
            f"| {name} | {watched['theirs'][column] / 1e6:.0f} MB | {watched['ours'][column] / 1e6:.0f} MB |"
            f" {watched['theirs'][column] / max(watched['ours'][column], 1):.0f} |"
        )
    return rows, ours, watched["ours"][1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=pathlib.Path, help="measure on this trace instead of those made here")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    traces = [args.trace] if args.trace else [make("large.xplane.pb", 210), make("double.xplane.pb", 420)]

    import importlib.metadata as metadata

    lines = [
        f"xprof {metadata.version('xprof')}, TensorFlow {metadata.version('tensorflow-cpu')}; {os.cpu_count()} cores,"
        f" {platform.machine()}, Linux {platform.release().split('-')[0]}; {datetime.date.today()}",
        "",
        f"| best of {args.runs} and of {OUR_RUNS} | xprof | vramline | ratio |",
        "|---|---|---|---|",
    ]
    results = []
    for trace in traces:
        rows, ours, memory = compare(trace, args.runs)
        lines += rows
        results.append((ours, memory))
    if len(results) == 2:
        (once, less), (twice, more) = results
        lines += [
            "",
            f"How the cost of Vramline grows: {events(twice[0][3]) / events(once[0][3]):.2f} times the events take"
            f" {best(twice, 0) / best(once, 0):.2f} times the time and {more / less:.2f} times the memory.",
        ]
    print("\n" + "\n".join(lines))
    if args.write:
        head = "# Benchmarks\n\n`make proof` writes this page with `benches/against_xprof.py`, which describes the method.\n\n"
        args.write.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
