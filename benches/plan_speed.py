"""How long a plan takes from probes that exist: an LSTM over so many time steps that a training step has 100,000 memory events.

    python benches/plan_speed.py [--length N]

Probes of three batches, two runs each, twelve steps each, as `vramline plan -- CMD` makes them, are kept in benches/out/plan_speed and
made where they are missing. Then plans of one and of five targets are timed; a further target is a fourth of the difference.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from what_if import environment

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benches/out/plan_speed"
BATCHES = (5, 7, 11)
AMPLE = 16000
TIMES = 5


def train(batch, length):
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((length, 4)), keras.layers.LSTM(8, return_sequences=True), keras.layers.LSTM(8)])
    model.compile("adam", "mse")
    data = np.zeros((batch * 16, length, 4), np.float32)
    model.fit(data, np.zeros((len(data), 8), np.float32), batch_size=batch, epochs=2, verbose=0)


def probes(binary, length):
    command = [binary, "plan", "--batches", ",".join(map(str, BATCHES)), "-o", OUT / str(length), "--batch", "64", "--json", "--"]
    job = [sys.executable, __file__, "--length", str(length), "--train", "{batch}"]
    done = subprocess.run([*command, *job], env=environment(AMPLE), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3, 4):
        raise SystemExit(done.stderr)
    return sorted((OUT / str(length)).glob("probe-*.vram"))


def seconds(binary, found, targets, *more):
    """The best of several: what disturbs only adds."""
    options = [word for path in found for word in ("--probe", f"{path.name.split('-')[1]}={path}")]
    command = [binary, "plan", *options, "--batch", ",".join(map(str, targets)), "--json", *more]
    taken = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        taken.append(time.perf_counter() - begin)
        assert done.returncode in (0, 3, 4), done.stderr
    return min(taken), json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train:
        return train(asked.train, asked.length)
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    found = probes(binary, asked.length)
    told = [json.loads(subprocess.run([binary, "report", path, "--json"], capture_output=True, check=True).stdout) for path in found]
    pools = [max(report["pools"], key=lambda pool: pool["allocs"]) for report in told]
    events = [2 * pool["allocs"] for pool in pools]
    steps = [sum(phase["steps"] for phase in report["phases"]) for report in told]
    each = statistics.median(count / max(steps, 1) for count, steps in zip(events, steps))
    one, _ = seconds(binary, found, [64])
    five, _ = seconds(binary, found, [64, 72, 80, 88, 96])
    limited, _ = seconds(binary, found, [64], "--limit", "1GiB")
    print(f"{len(found)} probes, {sum(events):,} memory events, about {each:,.0f} a step; {os.cpu_count()} cores")
    print(f"reading, aligning, one target with its fixes: {one:.2f} s; a further target {(five - one) / 4:.2f} s")
    print(f"with a limit, whose largest batches are searched: {limited:.2f} s")
    return None


if __name__ == "__main__":
    main()
