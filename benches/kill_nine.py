"""kill -9 of a training job at random moments, and what is left of its recording.

    python benches/kill_nine.py [--fast N] [--fit N] [--seed N]

A loop that uses `vramline.record`, and a Keras fit on TensorFlow under `vramline run`, are killed at random moments, a few of
them while they start. After each kill every step that the job had announced must be in the recording, and the tool, pyarrow,
pandas and DuckDB must read it. Prints a table.
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

import killed

BINARY = pathlib.Path(os.environ.get("VRAMLINE_BIN", ROOT / "target/release/vramline"))


def row(name, times, kill, seed):
    chance = random.Random(seed)
    announced, torn, lost = 0, 0, 0
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            job = kill(pathlib.Path(folder), chance)
            try:
                killed.check(job, BINARY)
            except AssertionError as error:
                lost += 1
                print(f"{name}: {error}", file=sys.stderr)
            announced += job.announced + 1
            torn += job.torn > 0
    print(f"| {name} | {times} | {announced:,} | {lost} | {torn} |", flush=True)
    return lost


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", type=int, default=200, help="kills of a loop with vramline.record")
    parser.add_argument("--fit", type=int, default=20, help="kills of a Keras fit under vramline run")
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    print("| kill -9 of | times | steps announced | recordings with a loss | with a torn tail |\n|---|---|---|---|---|")
    lost = row("a loop with `vramline.record`", args.fast, killed.kill_fast, args.seed)
    lost += row("a Keras fit under `vramline run`", args.fit, lambda *to: killed.kill_fit(*to, BINARY), args.seed)
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
