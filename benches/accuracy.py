"""Does plan tell the truth? Predicted peaks and largest batches against real TensorFlow runs.

    python benches/accuracy.py gather [--models A,B] [--only probes,free,limits] [--runs N] [--minutes N]
    python benches/accuracy.py fork-check MODEL
    python benches/accuracy.py compare [--write docs/accuracy.md]

The models are those of tests/python/models/planned.py: some were looked at while the planner was written, the others were not.
`gather` collects, on the CPU with TensorFlow's pool allocator: probes, which are recordings of small batches by `vramline run`;
the peaks of real runs at large batches with memory to spare; and, under three limits, which batches passed and how often.
Executors with threads order ops differently each time, so a batch is run many times, one run after the other. All is kept in
benches/out/accuracy, and what is there is not run again: `gather` may be ended at any time.

Runs that are not recorded are forks of a process that has imported TensorFlow and has not used it: TensorFlow reads its pool's
settings when it makes the pool. `fork-check` runs both kinds, for comparison.
"""

import argparse
import datetime
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python/models"))
import planned  # noqa: E402

PROGRAM = ROOT / "tests/python/models/planned.py"
OUT = ROOT / "benches/out/accuracy"
RUNS = OUT / "runs.jsonl"
POOL = "bfc_cpu_allocator_for_gpu"
MIB = 1 << 20
AMPLE = 16000
PROBE_RUNS = 2
DEADLINE = 240

# What is asked of each model: the batches of the probes, none of them a dimension of the model; the batches whose peak is
# predicted; and about which batches the three limits leave room for, on which the limits are set (see `limits`).
CASES = {
    "dense": ((251, 509, 1013), (4052, 8104), (8104, 11143, 14182)),
    "unet": ((5, 7, 11), (44, 88), (88, 121, 154)),
    "lstm": ((17, 31, 59), (236, 472), (472, 649, 826)),
    "transformer": ((5, 7, 11), (44, 88), (88, 121, 154)),
    "resnet": ((5, 7, 11), (44, 88), (88, 121, 154)),
    "mobilenet": ((5, 7, 11), (44, 88), (88, 121, 154)),
    "gan": ((11, 19, 37), (148, 296), (296, 407, 518)),
    "jit": ((7, 11, 19), (76, 152), (152, 209, 266)),
    "autoencoder": ((5, 7, 13), (52, 104), (104, 143, 182)),
    "text_cnn": ((13, 29, 53), (212, 424), (424, 583, 742)),
    "seq2seq": ((11, 19, 37), (148, 296), (296, 407, 518)),
}


class Clock:
    """Ends a gathering after so many minutes, between two runs."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes if minutes else None

    def check(self):
        if self.end is not None and time.monotonic() > self.end:
            raise SystemExit("time is up; go on with the same command")


def environment(limit):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return kept | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit),
    }


def binary():
    return os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))


# Probes.


def probe_path(model, batch, run):
    return OUT / "probes" / f"{model}-{batch}-{run}.vram"


def record(model, batch, run):
    """One recording by `vramline run`, and what its report says of it."""
    path = probe_path(model, batch, run)
    told = path.with_suffix(".json")
    if told.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.vram")
    subprocess.run(["rm", "-rf", part, path], check=True)
    command = [binary(), "run", "--no-report", "--json", told.with_suffix(".part"), "--trace", f"steps={planned.STEPS}", "-o", part, "--"]
    begin = time.monotonic()
    job = [sys.executable, PROGRAM, model, "--batch", str(batch)]
    done = subprocess.run([*command, *job], env=environment(AMPLE), capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{model} {batch}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    report = json.loads(told.with_suffix(".part").read_text(encoding="utf-8"))
    (pool,) = [each for each in report["pools"] if each["name"] == POOL]
    steps = sum(phase["steps"] for phase in report["phases"])
    assert pool["from_start"] is True, "the recording does not begin before the first allocation"
    assert pool["peak_bytes"] == said["peak_bytes"], "the recording's peak is not TensorFlow's"
    assert steps == planned.STEPS, f"{steps} steps are recorded"
    part.rename(path)
    said |= {"run": run, "allocs": pool["allocs"], "seconds": round(time.monotonic() - begin, 2), "load": os.getloadavg()[0]}
    told.with_suffix(".part").unlink()
    told.write_text(json.dumps(said) + "\n", encoding="utf-8")
    print(json.dumps(said), flush=True)


# Truths.


def forked(model, batch, limit):
    """One training in a fork of this process. The peak in bytes, or None where it ran out of memory; and the seconds."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    from tensorflow.python.eager import context

    assert context._context is None or not context._context._initialized, "a fork needs a TensorFlow that was never used"
    reader, writer = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            os.environ.clear()
            os.environ.update(environment(limit))
            peak, _ = planned.train(model, batch, planned.STEPS)
            os.write(writer, json.dumps(peak).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writer, json.dumps(repr(error)[:2000]).encode())
            os._exit(1)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], DEADLINE)
        told = os.read(reader, 4096) if ready else b""
    finally:
        os.close(reader)
        if not told:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not ready:
        raise RuntimeError(f"{model} {batch} under {limit} MiB took more than {DEADLINE} s")
    # Where memory is very short TensorFlow may die of a signal instead of raising: that is not passing either.
    peak = json.loads(told) if told else None
    if isinstance(peak, str):
        raise RuntimeError(f"{model} {batch} under {limit} MiB: {peak}")
    return peak, time.monotonic() - begin


def fresh(model, batch, limit):
    """The same in a process of its own."""
    begin = time.monotonic()
    command = [sys.executable, PROGRAM, model, "--batch", str(batch)]
    done = subprocess.run(command, env=environment(limit), capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode > 0 and done.returncode != planned.OUT_OF_MEMORY:
        raise RuntimeError(f"{model} {batch} under {limit} MiB: {done.stderr[-2000:]}")
    peak = json.loads(done.stdout.splitlines()[-1])["peak_bytes"] if done.returncode == 0 else None
    return peak, time.monotonic() - begin


class Kept:
    """Every run that was made, as lines of JSON."""

    def __init__(self, path):
        self.path, self.rows = path, []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def of(self, model, batch, limit, how="fork"):
        return [row for row in self.rows if (row["model"], row["batch"], row["limit"], row["how"]) == (model, batch, limit, how)]

    def make(self, model, batch, limit, how="fork"):
        load = os.getloadavg()[0]
        peak, seconds = (forked if how == "fork" else fresh)(model, batch, limit)
        row = {
            "model": model,
            "batch": batch,
            "limit": limit,
            "how": how,
            "run": len(self.of(model, batch, limit, how)),
            "peak_bytes": peak,
            "passed": peak is not None,
            "seconds": round(seconds, 2),
            "load": load,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        return row

    def fill(self, model, batch, limit, runs, clock, how="fork"):
        while len(self.of(model, batch, limit, how)) < runs:
            clock.check()
            self.make(model, batch, limit, how)
        return self.of(model, batch, limit, how)


def gather(models, kinds, runs, clock):
    kept = Kept(RUNS)
    if "probes" in kinds:
        for model in models:
            for run in range(PROBE_RUNS):
                for batch in CASES[model][0]:
                    clock.check()
                    record(model, batch, run)
    if "free" in kinds:
        for model in models:
            for batch in CASES[model][1]:
                kept.fill(model, batch, AMPLE, runs, clock)


def fork_check(model, runs, clock):
    """Both kinds of runs in turns, so that both see the same load."""
    kept, batch = Kept(OUT / "fork.jsonl"), CASES[model][1][0]
    for run in range(runs):
        for how in ("fork", "fresh"):
            kept.fill(model, batch, AMPLE, run + 1, clock, how)
    for how in ("fork", "fresh"):
        print(how, sorted(row["peak_bytes"] for row in kept.of(model, batch, AMPLE, how)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("gather", "fork-check", "compare"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("--models", default=",".join(planned.MODELS))
    parser.add_argument("--only", default="probes,free,limits")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--minutes", type=float)
    asked = parser.parse_args()
    clock = Clock(asked.minutes)
    if asked.what == "gather":
        gather(asked.models.split(","), asked.only.split(","), asked.runs, clock)
    if asked.what == "fork-check":
        fork_check(asked.model, asked.runs, clock)


if __name__ == "__main__":
    main()
