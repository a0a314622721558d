"""How fast `vramline oom` reads a log, and in how much memory: a gigabyte of a training job's output with failures in it.

    python benches/oom_log.py [BINARY ...] [--bytes N] [--failures N] [--runs N]

Several binaries are compared with each other, for example the builds before and after a change. `cat` and `grep -c` run in the same
turns. The log is read from the page cache; the best of the runs counts. Memory is the highest resident set. The only thing that is
asserted is that every failure is found.
"""

import argparse
import json
import os
import pathlib
import random

from against_pickle import BINARY, OUT, ROOT, run


def make(path, size, failures):
    """Writes progress bars, losses and warnings, with failures at even distances."""
    rng = random.Random(1)
    dump = (ROOT / "fixtures" / "tf221_cpu_oom.log").read_bytes()
    lines = [
        b"%d/1875 [%s%s] - ETA: %ds - loss: %.4f - accuracy: %.4f\r"
        % (step, b"=" * (step % 30), b"." * (29 - step % 30), step % 90, rng.random(), rng.random())
        for step in range(500)
    ]
    lines += [
        b"2026-11-15 12:00:%02d.%06d: I tensorflow/core/kernels/data/shuffle_dataset_op.cc:450] Filling up shuffle buffer: %d of 50000\n"
        % (step % 60, rng.randrange(10**6), step)
        for step in range(500)
    ]
    block = b"".join(lines[rng.randrange(1000)] for _ in range(1_000))
    between = max(size // failures - len(dump), 0)
    with open(path, "wb") as file:
        for _ in range(failures):
            for _ in range(-(-between // len(block))):
                file.write(block)
            file.write(dump)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="*", type=pathlib.Path, default=[BINARY])
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--failures", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    log = OUT / "job.log"
    try:
        make(log, args.bytes, args.failures)
        peers = {"cat": ["cat", log], "grep -c": ["grep", "-c", "ran out of memory", log]}
        peers |= {f"{os.path.relpath(binary)} oom": [binary, "oom", "--json", log] for binary in args.binaries}
        seconds = {name: [] for name in peers}
        for _ in range(args.runs):
            for name, command in peers.items():
                seconds[name].append(run(command, False)[0])
        print(f"{log.stat().st_size / 1e6:.0f} MB, {args.failures} failures; best of {args.runs}, in turns\n")
        print("| | time | against grep | peak resident |\n|---|---|---|---|")
        for name, command in peers.items():
            _, resident, out = run(command, True)
            if "oom" in name:
                assert len(json.loads(out)["failures"]) == args.failures
            best = min(seconds[name])
            print(f"| {name} | {best:.3f} s | {best / min(seconds['grep -c']):.2f} | {resident / 1e6:.0f} MB |")
    finally:
        log.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
