"""How fast `vramline oom` goes through a log: a gigabyte of a training job's output with failures in it, against `cat` and `grep -c`.

    python benches/oom_log.py [--bytes N]

Everything is read from the page cache, best of five; a ratio to the peers of the same run is printed, nothing is asserted but that every
failure is found.
"""

import argparse
import json
import os
import random
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
FIXTURES = HERE.parent / "fixtures"


def make(path, size):
    """Progress, losses and warnings, and now and then a failure; says how many there are."""
    rng = random.Random(1)
    dump = (FIXTURES / "tf221_cpu_oom.log").read_bytes()
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
    block = b"".join(lines[rng.randrange(1000)] for _ in range(20_000))
    count = written = 0
    with open(path, "wb") as file:
        while written < size:
            written += file.write(block)
            if rng.random() < 0.05 or not count:
                written += file.write(dump)
                count += 1
    return count


def best(command, times=5):
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        found.append((time.perf_counter() - begin, done.stdout))
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    arguments = parser.parse_args()
    binary = os.environ.get("VRAMLINE_BIN") or HERE.parent / "target/release/vramline"
    OUT.mkdir(exist_ok=True)
    log = OUT / "job.log"
    try:
        failures = make(log, arguments.bytes)
        megabytes = log.stat().st_size / 1e6
        peers = {
            "cat": ["cat", log],
            "grep -c": ["grep", "-c", "ran out of memory", log],
            "vramline oom": [binary, "oom", "--json", log],
        }
        seconds = {}
        for name, command in peers.items():
            seconds[name], out = best(command, 5)
            print(f"{name:14} {seconds[name]:7.3f} s  {megabytes / seconds[name]:8.0f} MB/s")
        assert len(json.loads(out)["failures"]) == failures
        ratio = seconds["grep -c"] / seconds["vramline oom"]
        print(f"{megabytes:.0f} MB, {failures} failures found; {ratio:.2f} times as fast as grep")
    finally:
        log.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
