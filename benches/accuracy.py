"""Does plan tell the truth? Predicted peaks and largest batches against real TensorFlow runs.

    python benches/accuracy.py gather [--models A,B] [--only probes,free,limits,sure] [--runs N] [--minutes N]
    python benches/accuracy.py fork-check MODEL
    python benches/accuracy.py compare [--write docs/proof/accuracy.md]

The models are those of tests/python/models/planned.py: some were looked at while the planner was written, the others were not.
`gather` collects, on the CPU with TensorFlow's pool allocator: probes, which are recordings of small batches by `vramline run`;
the peaks of real runs at large batches with memory to spare; under three limits, which batches passed and how often; and
runs of the very batch that plan calls sure under each limit.
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
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python/models"))
import planned
from forked import forked
from what_if import environment

PROGRAM = ROOT / "tests/python/models/planned.py"
OUT = ROOT / "benches/out/accuracy"
RUNS = OUT / "runs.jsonl"
POOL = "bfc_cpu_allocator_for_gpu"
MIB = 1 << 20
AMPLE = 16000
PROBE_RUNS = 2
# As `vramline plan -- CMD` makes them.
PROBE_STEPS = 12
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
    "densenet": ((5, 7, 11), (44, 88), (88, 121, 154)),
    "vae": ((5, 7, 13), (52, 104), (104, 143, 182)),
    "vit": ((5, 7, 11), (44, 88), (88, 121, 154)),
}


class Clock:
    """Ends a gathering after so many minutes, between two runs."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes if minutes else None

    def check(self):
        if self.end is not None and time.monotonic() > self.end:
            raise SystemExit("time is up; go on with the same command")


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
    command = [binary(), "run", "--no-report", "--json", told.with_suffix(".part"), "--trace", f"steps={PROBE_STEPS}", "-o", part, "--"]
    begin = time.monotonic()
    job = [sys.executable, PROGRAM, model, "--batch", str(batch), "--steps", str(PROBE_STEPS)]
    done = subprocess.run([*command, *job], env=environment(AMPLE), capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{model} {batch}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    report = json.loads(told.with_suffix(".part").read_text(encoding="utf-8"))
    (pool,) = [each for each in report["pools"] if each["name"] == POOL]
    steps = sum(phase["steps"] for phase in report["phases"])
    assert pool["from_start"] is True, "the recording does not begin before the first allocation"
    assert pool["peak_bytes"] == said["peak_bytes"], "the recording's peak is not TensorFlow's"
    assert steps == PROBE_STEPS, f"{steps} steps are recorded"
    part.rename(path)
    said |= {"run": run, "allocs": pool["allocs"], "seconds": round(time.monotonic() - begin, 2), "load": os.getloadavg()[0]}
    told.with_suffix(".part").unlink()
    told.write_text(json.dumps(said) + "\n", encoding="utf-8")
    print(json.dumps(said), flush=True)


# Truths.


def in_a_fork(model, batch, limit):
    """One training in a fork of this process. The peak in bytes, or None where it ran out of memory; and the seconds."""
    return forked(lambda: planned.train(model, batch, planned.STEPS)[0], environment(limit), DEADLINE, f"{model} {batch} under {limit} MiB")


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
        peak, seconds = (in_a_fork if how == "fork" else fresh)(model, batch, limit)
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
        self.add(row)

    def add(self, row):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def fill(self, model, batch, limit, runs, clock, how="fork"):
        while len(self.of(model, batch, limit, how)) < runs:
            clock.check()
            self.make(model, batch, limit, how)
        return self.of(model, batch, limit, how)


def state(rows, runs):
    """What is known of a batch under a limit: always, sometimes or never passes, or None where runs are missing."""
    passed = sum(row["passed"] for row in rows)
    if 0 < passed < len(rows):
        return "sometimes"
    if passed == 0:
        # A run that fails waits ten seconds for memory: half as many will do.
        return "never" if len(rows) >= runs // 2 else None
    return "always" if len(rows) >= runs else None


class Edge:
    """Which batches pass under a limit. Batches are tried on a grid of steps of 3 %."""

    def __init__(self, kept, model, limit, batch, runs, clock):
        self.kept, self.model, self.limit, self.batch, self.runs, self.clock = kept, model, limit, batch, runs, clock

    def at(self, place):
        return max(2, round(self.batch * 1.03**place))

    def rows(self):
        return [row for row in self.kept.rows if (row["model"], row["limit"], row["how"]) == (self.model, self.limit, "fork")]

    def once(self, place):
        """Whether one run passes there; one that was made before will do."""
        return self.kept.fill(self.model, self.at(place), self.limit, 1, self.clock)[0]["passed"]

    def state(self, place):
        while True:
            rows = self.kept.of(self.model, self.at(place), self.limit)
            told = state(rows, self.runs)
            if told is not None:
                return told
            self.kept.fill(self.model, self.at(place), self.limit, len(rows) + 1, self.clock)

    def search(self):
        """Walks by single runs to a place where passing ends, then looks at the batches around it closely."""
        place, stride = 0, 4
        passes = self.once(0)
        while self.once(place + (stride if passes else -stride)) == passes:
            place += stride if passes else -stride
        low = place if passes else place - stride
        if self.once(low + stride // 2):
            low += stride // 2
        # The highest place where all passes, and the lowest above it where none does.
        sure = low
        while self.state(sure) != "always":
            sure -= 1
        while self.state(sure + 1) == "always":
            sure += 1
        # Nothing below it may have failed either, in any run.
        while self.state(sure) != "always" or any(not row["passed"] and row["batch"] < self.at(sure) for row in self.rows()):
            sure -= 1
        over = sure + 1
        while self.state(over) != "never":
            over += 1
        return self.at(sure), self.at(over - 1), self.at(over)


def limits(kept, model):
    """The limits in MiB: the middle of the peaks of free runs at the batches that they shall leave room for."""
    found = []
    for batch in CASES[model][2]:
        near = sorted(CASES[model][1], key=lambda known: abs(known - batch))
        peaks = {known: [row["peak_bytes"] for row in kept.of(model, known, AMPLE)] for known in near}
        (b1, p1), (b2, p2) = sorted((known, statistics.median(peaks[known])) for known in near)
        found.append(max(1, round((p1 + (p2 - p1) * (batch - b1) / (b2 - b1)) / MIB)))
    return found


def gather(models, kinds, runs, clock):
    kept = Kept(RUNS)
    for model in models:
        for run in range(PROBE_RUNS if "probes" in kinds else 0):
            for batch in CASES[model][0]:
                clock.check()
                record(model, batch, run)
    for model in models:
        for batch in CASES[model][1] if "free" in kinds else ():
            kept.fill(model, batch, AMPLE, runs, clock)
    edges = Kept(OUT / "edges.jsonl")
    # One limit of every model first, so that a gathering that is ended early has seen all of them.
    for number in range(3 if "limits" in kinds else 0):
        for model in models:
            done = [row for row in edges.rows if (row["model"], row["number"], row["runs"]) == (model, number, runs)]
            if done:
                continue
            known = [row for row in edges.rows if (row["model"], row["number"]) == (model, number)]
            if not known:
                # Written down before the search: more free runs would move it.
                edges.add({"model": model, "number": number, "limit": limits(kept, model)[number], "runs": 0})
                known = edges.rows[-1:]
            limit = known[0]["limit"]
            always, last, over = Edge(kept, model, limit, CASES[model][2][number], runs, clock).search()
            edges.add({"model": model, "number": number, "limit": limit, "runs": runs, "always": always, "last": last, "never": over})
    for model in models if "sure" in kinds else ():
        for edge in found_edges(edges, model):
            # The plan's own answer: what is called sure without a run ends at four times the largest probe.
            sure = plan(model, "--limit", f"{edge['limit']}MiB")["largest_batch"]["expected"]
            if sure is not None:
                kept.fill(model, sure, edge["limit"], runs, clock)


def fork_check(model, runs, clock):
    """Both kinds of runs in turns, so that both see the same load."""
    kept, batch = Kept(OUT / "fork.jsonl"), CASES[model][1][0]
    for run in range(runs):
        for how in ("fork", "fresh"):
            kept.fill(model, batch, AMPLE, run + 1, clock, how)
    for how in ("fork", "fresh"):
        print(how, sorted(row["peak_bytes"] for row in kept.of(model, batch, AMPLE, how)))


# Comparison.


def found_edges(edges, model):
    """Of a search that was repeated with more runs the last counts; one that has only begun has no runs."""
    found = {row["number"]: row for row in edges.rows if row["model"] == model and row["runs"]}
    return [edge for _, edge in sorted(found.items())]


def plan(model, *arguments):
    """What `vramline plan` says from the probes of a model. What XLA compiles it has to compile itself, so that gets the command."""
    options, job = ["--steps", str(planned.STEPS), "--json", "--no-confirm"], []
    if model in planned.COMPILED:
        options += ["--batches", ",".join(map(str, CASES[model][0])), "-o", str(OUT / "compiled" / model)]
        job = ["--", sys.executable, str(PROGRAM), model, "--batch", "{batch}", "--steps", str(planned.STEPS)]
    else:
        probes = [f"{batch}={probe_path(model, batch, run)}" for batch in CASES[model][0] for run in range(PROBE_RUNS)]
        options += [word for probe in probes for word in ("--probe", probe)]
    command = [binary(), "plan", *options, *arguments, *job]
    done = subprocess.run(command, env=environment(AMPLE), capture_output=True, text=True, check=False)
    # It does not fit, or that is not certain: answers too.
    if done.returncode not in (0, 3, 4):
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def line(model):
    """The straight line through the peaks of the smallest and the largest probe, each the mean of its runs: (bytes, bytes a sample)."""
    ends = []
    for batch in (CASES[model][0][0], CASES[model][0][-1]):
        told = [json.loads(probe_path(model, batch, run).with_suffix(".json").read_text(encoding="utf-8")) for run in range(PROBE_RUNS)]
        ends.append((batch, statistics.mean(each["peak_bytes"] for each in told)))
    (first, low), (last, high) = ends
    slope = (high - low) / (last - first)
    return low - slope * first, slope


def peaks_of(kept, model):
    """The predicted and the real peaks at each batch that was run with memory to spare."""
    rows = []
    for batch in CASES[model][1]:
        real = sorted(row["peak_bytes"] for row in kept.of(model, batch, AMPLE))
        if not real:
            continue
        (told,) = [each for each in plan(model, "--batch", str(batch))["predictions"] if each["batch"] == batch]
        base, slope = line(model)
        middle = statistics.median(real)
        rows.append(
            {
                "model": model,
                "batch": batch,
                "real": real,
                "median": middle,
                "peak": told["peak_bytes"],
                "low": told["low_bytes"],
                "high": told["high_bytes"],
                "error": told["peak_bytes"] / middle - 1,
                "inside": sum(told["low_bytes"] <= each <= told["high_bytes"] for each in real),
                "line": base + slope * batch,
                "line_error": (base + slope * batch) / middle - 1,
                "spread": real[-1] / real[0] - 1,
                # Nothing where it is narrower: that shows in the runs inside.
                "wider": max(told["high_bytes"] / told["low_bytes"] - real[-1] / real[0], 0.0),
                # What one real run tells of another: no prediction of one number can be better.
                "noise": statistics.mean(abs(each / middle - 1) for each in real),
            }
        )
    return rows


def edges_of(kept, edges, model):
    """The predicted and the real largest batches under each limit whose edge was searched."""
    rows = []
    for edge in found_edges(edges, model):
        told = plan(model, "--limit", f"{edge['limit']}MiB")["largest_batch"]
        base, slope = line(model)
        tried = [row for row in kept.rows if (row["model"], row["limit"], row["how"]) == (model, edge["limit"], "fork")]
        shares = {}
        for row in tried:
            shares.setdefault(row["batch"], []).append(row["passed"])
        # The smallest batch that ever failed bounds what is sure, and the largest that ever passed what is likely.
        failed = min(batch for batch, passed in shares.items() if not all(passed))
        passed = max(batch for batch, passed in shares.items() if any(passed))
        rows.append(
            edge
            | {
                "sure": told["expected"],
                "likely": told["likely"],
                "line": int((edge["limit"] * MIB - base) / slope) if slope > 0 else None,
                "failed": failed,
                "passed": passed,
                "shares": {batch: (sum(each), len(each)) for batch, each in sorted(shares.items())},
            }
        )
    return rows


def mib(count):
    return f"{count / MIB:.1f}"


def peak_table(rows):
    lines = [
        "| model | batch | of the largest probe | real: least, median, most (MiB) | spread | predicted (MiB) | error | inside | line | its error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        real = row["real"]
        lines.append(
            f"| {row['model']} | {row['batch']} | {row['batch'] / CASES[row['model']][0][-1]:.0f}x "
            f"| {mib(real[0])}, {mib(row['median'])}, {mib(real[-1])} ({len(real)} runs) | {row['spread']:.1%} "
            f"| {mib(row['peak'])} [{mib(row['low'])} to {mib(row['high'])}] | {row['error']:+.1%} | {row['inside']} of {len(real)} "
            f"| {mib(row['line'])} | {row['line_error']:+.1%} |"
        )
    return lines


def edge_table(rows):
    lines = [
        "| model | limit | always passed | first failure | last pass | never passed | sure | likely "
        "| sure passed | sure, of always | likely, of last pass | line |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        sure, likely = row["sure"], row["likely"]
        lines.append(
            f"| {row['model']} | {row['limit']} MiB | {row['always']} | {row['failed']} | {row['passed']} | {row['never']} "
            f"| {sure or 'none'} | {likely} | {holds(row)} | {ratio(sure, row['always'])} | {ratio(likely, row['passed'])} | {row['line'] or 'none'} |"
        )
    return lines


def holds(row):
    """Whether the batch that is called sure passed whenever it was tried: how often it passed, or what others tell of it."""
    sure = row["sure"]
    if sure is None:
        return "unknown"
    if sure in row["shares"]:
        passed, runs = row["shares"][sure]
        return f"{passed} of {runs}"
    if sure <= row["always"]:
        return "larger ones did"
    return "not tried" if sure < row["failed"] else "smaller ones did not"


def is_wrong(row):
    """A batch that is called sure failed, or a smaller one did."""
    return row["sure"] is not None and row["failed"] <= row["sure"]


def ratio(told, real):
    return "unknown" if told is None else f"{told / real - 1:+.1%}"


def summary(peaks, edges):
    lines = ["| | tuned on | unseen |", "|---|---|---|"]

    def both(title, rows, count):
        told = []
        for names in (planned.TUNED_ON, planned.UNSEEN):
            mine = [row for row in rows if row["model"] in names]
            told.append(count(mine) if mine else "none")
        lines.append(f"| {title} | {told[0]} | {told[1]} |")

    def mean_worst(name):
        def count(rows):
            errors = [abs(row[name]) for row in rows]
            return f"{statistics.mean(errors):.1%}, {max(errors):.1%}"

        return count

    def apart(told, real):
        def count(rows):
            known = [abs(row[told] / row[real] - 1) for row in rows if row[told] is not None]
            return f"{statistics.mean(known):.1%}, {max(known):.1%}" if known else "none"

        return count

    both("peaks predicted", peaks, lambda rows: str(len(rows)))
    both("error of the predicted peak: mean, worst", peaks, mean_worst("error"))
    both("error of the straight line: mean, worst", peaks, mean_worst("line_error"))
    both("real runs off their own median: mean, worst", peaks, mean_worst("noise"))
    both("spread of real runs (most over least): mean, worst", peaks, mean_worst("spread"))
    both(
        "real runs inside the predicted interval",
        peaks,
        lambda rows: f"{sum(row['inside'] for row in rows)} of {sum(len(row['real']) for row in rows)}",
    )
    both("the interval is wider than the spread by: mean, worst", peaks, mean_worst("wider"))
    both("limits", edges, lambda rows: str(len(rows)))
    both("no batch size is called sure, because the plan is not certain", edges, lambda rows: str(sum(row["sure"] is None for row in rows)))
    both("called sure, and it or a smaller batch size failed in a run", edges, lambda rows: str(sum(map(is_wrong, rows))))
    both("sure against the largest that always passed: mean, worst", edges, apart("sure", "always"))
    both("likely against the largest that passed in any run: mean, worst", edges, apart("likely", "passed"))
    both("the line's answer against the largest that always passed: mean, worst", edges, apart("line", "always"))
    return lines


def compare(models, write):
    kept, edges = Kept(RUNS), Kept(OUT / "edges.jsonl")
    peaks = [row for model in models for row in peaks_of(kept, model)]
    found = [row for model in models for row in edges_of(kept, edges, model)]
    (OUT / "compared.json").write_text(json.dumps({"peaks": peaks, "edges": found}, indent=1), encoding="utf-8")
    parts = [summary(peaks, found)]
    for title, names in (("Tuned on", planned.TUNED_ON), ("Unseen", planned.UNSEEN)):
        if not any(row["model"] in names for row in peaks):
            continue
        parts.append([f"## {title}"])
        parts.append(peak_table([row for row in peaks if row["model"] in names]))
        parts.append(edge_table([row for row in found if row["model"] in names]))
    text = "\n\n".join("\n".join(part) for part in parts)
    print(text)
    if write:
        import keras
        import tensorflow as tf

        about = (
            f"TensorFlow {tf.__version__}, Keras {keras.__version__}, CPU pool allocator; {os.cpu_count()} cores, {platform.machine()}; "
            f"{datetime.date.today()}"
        )
        write.write_text(f"# Accuracy of plans (TensorFlow)\n\n{ABOUT}\n\n{about}\n\n{text}\n", encoding="utf-8")


ABOUT = """`make proof` writes this page with `benches/accuracy.py`, which describes the method. The models are in `tests/python/models/planned.py`.

Each model is recorded at three small batch sizes, twice each. From these six recordings, `vramline plan` predicts the peak at larger batch
sizes, and the largest batch size under a limit. It is compared with real runs of four steps: at least eight at each batch size, with memory
to spare for the peaks, and under the limit for the largest batch size. Threads run ops in a different order each time, so real runs differ
among themselves; the error is against their median. *Inside* counts the real runs within the predicted interval. The *line* is the
straight line through the recorded peaks of the smallest and the largest probe, each the mean of two.

Under a limit, batch sizes are tried in steps of 3 %. *Always passed* is the largest with no failure in eight runs, *first failure* the
smallest with one, *last pass* the largest with a run that passed, and *never passed* the next one, where no run did. *Sure passed* counts
runs of the batch size that is called sure."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("gather", "fork-check", "compare"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("--models", default=",".join(planned.MODELS))
    parser.add_argument("--only", default="probes,free,limits,sure")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--minutes", type=float, help="end after so long; the same command goes on")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    clock = Clock(asked.minutes)
    if asked.what == "gather":
        gather(asked.models.split(","), asked.only.split(","), asked.runs, clock)
    if asked.what == "fork-check":
        fork_check(asked.model, asked.runs, clock)
    if asked.what == "compare":
        compare(asked.models.split(","), asked.write)


if __name__ == "__main__":
    main()
