"""Does "sure" mean sure? What `vramline plan` calls sure and likely under a limit, against further real runs.

    python benches/sure.py gather --onednn 0|1 [--group seen|unseen] [--models A,B] [--parts plan,sure,free,edge,curve] [--minutes N] [--again plan,free]
    python benches/sure.py compare [--write docs/proof/sure.md]

The models are those of tests/python/models/further.py. All were chosen before a plan was made of any of them; the planner was changed for what
was seen on the first group, and the second one was not looked at before that. For each of them, with oneDNN's kernels and without, and under
two limits:
- `plan`: the plan as a user makes it, with the command, so that it runs its own answer; what it says, how many runs it took, how long;
- `sure`: 20 further runs of the batch size that it calls sure, under the limit;
- `free`: peaks of runs with memory to spare at two batch sizes, against the interval that the small probes alone give;
- `edge`: from there up a ladder of batch sizes in steps of 3 %, 8 runs each, until a run fails; then on, until none of 4 passes;
- `curve`: the same ladder without a plan, from a batch size that always passed up. The planner's weights for widths of edges were chosen after these runs.

Rows are kept in benches/kept, recordings in benches/out/sure. What is there is not run again, but for the parts that `--again` names: after a
change of the planner its answers have to be asked for again, and runs of the same batch size under the same limit still count. But for
limits, rows count only on the kind of processor that they were made on: others run other kernels in other orders. TensorFlow decides about
oneDNN when it is imported, so a process gathers for one setting. Gather on a quiet machine, one setting after the other.
"""

import argparse
import datetime
import itertools
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
import further
from forked import forked

PROGRAM = ROOT / "tests/python/models/further.py"
OUT = ROOT / "benches/out/sure"
# Rows are kept in the repository: they take hours.
KEPT = ROOT / "benches/kept"
MIB = 1 << 20
AMPLE = 16000
STEPS = 12
DEADLINE = 240
FURTHER_RUNS = 20
FREE_RUNS = 4
EDGE_RUNS = 8
NEVER_RUNS = 4
STEP = 1.03
STEADY_RUNGS = 2
GROUPS = {"seen": further.BUILDERS, "unseen": further.UNSEEN}
# A limit leaves room for about so many times the largest probe.
FACTORS = (6, 12)

PROBES = dict.fromkeys(further.MODELS, (5, 7, 11)) | {
    "large_filters": (11, 19, 29),
    "tabular": (151, 251, 401),
    "graph": (17, 29, 53),
    "pooled_by_rank": (17, 29, 53),
    "triplets": (17, 29, 53),
    "points": (17, 29, 53),
    "gru_tagger": (17, 29, 53),
    "separable_text": (17, 29, 53),
    "variational": (17, 29, 53),
    "pyramid": (11, 17, 23),
    "mixer": (11, 17, 23),
    "memory": (17, 29, 53),
}


def own_environment():
    """That of a user; oneDNN's setting is inherited."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_") or name == "TF_ENABLE_ONEDNN_OPTS"}
    return kept | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def environment(limit):
    """That of a run which nobody records, under a limit in MiB."""
    return own_environment() | {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}


def passes(model, batch, limit):
    """The peak of one run; None where it ran out of memory."""
    peak, _ = forked(lambda: further.train(model, batch, STEPS), environment(limit), DEADLINE, f"{model} {batch} under {limit} MiB")
    return peak


def this_processor():
    """The kind of processor that this is, as far as TensorFlow's kernels depend on it."""
    lines = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if ":" in line)
    facts = {}
    for name, value in lines:
        facts.setdefault(name.strip(), value.strip())
    features = [name for name in ("avx2", "avx512f") if name in facts.get("flags", "").split()]
    return f"{facts.get('model name', platform.machine())}, family {facts.get('cpu family', 'unknown')}, {', '.join(features) or 'no AVX2'}"


def path_of(onednn):
    return KEPT / f"sure-onednn-{onednn}.jsonl"


def lines_of(onednn):
    path = path_of(onednn)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


class Kept:
    """What was gathered of one setting on one kind of processor (None: earlier rows do not say): a row for each question, as lines of JSON.
    The last row of a question counts."""

    def __init__(self, onednn, processor, again=()):
        self.path, self.processor, self.rows = path_of(onednn), processor, {}
        for row in lines_of(onednn):
            key = tuple(row["key"])
            if key[1] not in again and (key[1] == "limit" or row.get("processor") == processor):
                self.rows[key] = row

    def get(self, key, make):
        if key not in self.rows:
            row = {"key": key, "processor": self.processor} | make()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row)[:400], flush=True)
            self.rows[key] = row
        return self.rows[key]


def limit_of(kept, model, factor):
    """In MiB: what a free run takes at about that batch size."""
    return kept.get((model, "limit", factor), lambda: {"limit": -(-passes(model, factor * PROBES[model][-1], AMPLE) // MIB)})["limit"]


def vramline_plan(onednn, model, *options):
    """What `vramline plan` says. Its probes are made once."""
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    folder = OUT / f"plans-{onednn}" / model
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [binary, "plan", "--batches", ",".join(map(str, PROBES[model])), "--steps", str(STEPS), "--json", "-o", folder, *options]
    job = [sys.executable, PROGRAM, model, "--batch", "{batch}", "--steps", str(STEPS)]
    begin = time.monotonic()
    done = subprocess.run([*command, "--", *job], env=own_environment(), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3, 4):
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return json.loads(done.stdout), round(time.monotonic() - begin, 1)


def plan_row(onednn, model, limit):
    plan, seconds = vramline_plan(onednn, model, "--limit", f"{limit}MiB")
    told = plan["confirmation"]
    return {
        "sure": plan["largest_batch"]["sure"],
        "likely": plan["largest_batch"]["likely"],
        "confirmed": told["confirmed"],
        "state": told["text"],
        "passes": told["passes"],
        "runs": [[run["batch"], run["only_measured"], run["passed"]] for run in told["runs"]],
        "warnings": [warning["code"] for warning in plan["warnings"]],
        "seconds": seconds,
    }


def free_row(onednn, model, factor):
    batch = factor * PROBES[model][-1]
    plan, _ = vramline_plan(onednn, model, "--no-confirm", "--batch", str(batch))
    (told,) = [each for each in plan["predictions"] if each["batch"] == batch]
    peaks = sorted(passes(model, batch, AMPLE) for _ in range(FREE_RUNS))
    return {"batch": batch, "peaks": peaks} | {name: told[f"{name}_bytes"] for name in ("peak", "low", "high")}


class Limited:
    """Runs of a model under a limit."""

    def __init__(self, kept, model, limit):
        self.kept, self.model, self.limit = kept, model, limit

    def passed(self, batch, number):
        """Whether a run of a batch size passes; each number is one run."""

        def made():
            peak = passes(self.model, batch, self.limit)
            return {"passed": peak is not None, "peak": peak}

        return self.kept.get((self.model, "run", self.limit, batch, number), made)["passed"]

    def all_pass(self, batch, count):
        return all(self.passed(batch, number) for number in range(count))

    def further(self, sure):
        return {"passed": [self.passed(sure, number) for number in range(FURTHER_RUNS)]}

    def edge(self, sure, base):
        """The largest batch size of which all runs passed, the first with a failure, and the last with a pass."""
        place = next(place for place in itertools.count(-60) if rung(base, place) > sure)
        always = sure
        while self.all_pass(rung(base, place), EDGE_RUNS):
            always, place = rung(base, place), place + 1
        failed, last = rung(base, place), always
        while any(self.passed(rung(base, place), number) for number in range(NEVER_RUNS)):
            last, place = rung(base, place), place + 1
        return {"always": always, "failed": failed, "last": last}

    def curve(self, base):
        """Runs the ladder from a batch size that always passed to one that never did, around one that is near the edge."""
        place, steady = 0, 0
        while steady < STEADY_RUNGS:
            steady = steady + 1 if self.all_pass(rung(base, place), EDGE_RUNS) else 0
            place -= 1
        lowest, place = place + 1, 0
        while sum(self.passed(rung(base, place), number) for number in range(NEVER_RUNS)):
            place += 1
        return {"lowest": rung(base, lowest), "highest": rung(base, place)}


def rung(base, place):
    """A batch size of the ladder that stands on another one."""
    return round(base * STEP**place)


def gather(onednn, models, parts, minutes, again):
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = str(onednn)
    end = time.monotonic() + 60 * minutes if minutes else None
    kept = Kept(onednn, this_processor(), again)
    for part, model, factor in itertools.product(parts, models, FACTORS):
        if end is not None and time.monotonic() > end:
            raise SystemExit("time is up; go on with the same command")
        if part == "probes":
            kept.get((model, "probes"), lambda model=model: {"seconds": vramline_plan(onednn, model, "--no-confirm")[1]})
            continue
        if part == "free":
            kept.get((model, "free", factor), lambda model=model, factor=factor: free_row(onednn, model, factor))
            continue
        limit = limit_of(kept, model, factor)
        if part == "curve":
            base = factor * PROBES[model][-1]
            kept.get((model, part, limit), lambda model=model, limit=limit, base=base: Limited(kept, model, limit).curve(base))
            continue
        sure = kept.get((model, "plan", limit), lambda model=model, limit=limit: plan_row(onednn, model, limit))["sure"]
        runs, asked = Limited(kept, model, limit), (limit, sure)
        if part == "sure" and sure is not None:
            kept.get((model, part, *asked), lambda runs=runs, sure=sure: runs.further(sure))
        if part == "edge" and sure is not None:
            base = factor * PROBES[model][-1]
            kept.get((model, part, *asked), lambda runs=runs, sure=sure, base=base: runs.edge(sure, base))


def all_kept(onednn):
    """What was gathered of one setting, for each kind of processor."""
    known = dict.fromkeys(row.get("processor") for row in lines_of(onednn))
    return [Kept(onednn, processor) for processor in known]


def rows_of(onednn, builders):
    """What is known of each model and limit, with the parts that were gathered so far."""
    names = [build.__name__ for build in builders]
    for kept, model, factor in itertools.product(all_kept(onednn), names, FACTORS):
        limit = kept.rows.get((model, "limit", factor), {}).get("limit")
        plan = kept.rows.get((model, "plan", limit))
        if plan is None:
            continue
        asked = (limit, plan["sure"])
        yield {
            "model": model,
            "onednn": onednn,
            "processor": kept.processor,
            "limit": limit,
            "plan": plan,
            "probes_seconds": kept.rows.get((model, "probes"), {}).get("seconds"),
            "further": kept.rows.get((model, "sure", *asked), {}).get("passed"),
            "edge": kept.rows.get((model, "edge", *asked)),
            "free": kept.rows.get((model, "free", factor)),
        }


def share(told, real):
    return "not run" if told is None or real is None else f"{told / real - 1:+.1%}"


def table(rows):
    lines = [
        "| model | oneDNN | limit | runs of the plan | sure | further runs | always passed | sure, of that | likely | last pass | likely, of that |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        plan, passed, edge = row["plan"], row["further"], row["edge"] or {}
        lines.append(
            f"| {row['model']} | {'on' if row['onednn'] else 'off'} | {row['limit']} MiB | {len(plan['runs'])} | {plan['sure'] or 'none'} "
            f"| {f'{sum(passed)} of {len(passed)}' if passed else 'not run'} | {edge.get('always', 'not run')} | {share(plan['sure'], edge.get('always'))} "
            f"| {plan['likely']} | {edge.get('last', 'not run')} | {share(plan['likely'], edge.get('last'))} |"
        )
    return lines


def summary(rows):
    plans, further_runs = [row["plan"] for row in rows], [row["further"] for row in rows if row["further"]]
    edges = [(row["plan"], row["edge"]) for row in rows if row["edge"]]
    peaks = [(row["free"], peak) for row in rows if row["free"] for peak in row["free"]["peaks"]]
    inside = sum(free["low"] <= peak <= free["high"] for free, peak in peaks)
    runs = [len(plan["runs"]) for plan in plans]
    seconds = [(row["plan"]["seconds"], row["probes_seconds"]) for row in rows if row["probes_seconds"]]

    def mean(values):
        values = list(values)
        return f"{statistics.mean(values):.1%}" if values else "not run"

    return [
        "| | |",
        "|---|---|",
        f"| limits that were planned for | {len(rows)} |",
        f"| with a batch size that is sure | {sum(plan['sure'] is not None for plan in plans)} |",
        f"| limits at which every further run of it passed | {sum(all(passed) for passed in further_runs)} of {len(further_runs)} |",
        f"| further runs that passed | {sum(map(sum, further_runs))} of {sum(map(len, further_runs))} |",
        f"| runs of a plan beside its six probes: mean, most | {statistics.mean(runs):.1f}, {max(runs)} |",
        f"| seconds of these runs, as a share of the seconds of the probes: mean | {mean(run / probes for run, probes in seconds)} |",
        f"| sure against the largest that always passed: mean | {mean(plan['sure'] / edge['always'] - 1 for plan, edge in edges)} |",
        f"| likely against the last that passed, either way: mean | {mean(abs(plan['likely'] / edge['last'] - 1) for plan, edge in edges)} |",
        f"| free runs inside the predicted interval | {f'{inside} of {len(peaks)}' if peaks else 'not run'} |",
        f"| width of the interval, as a share of the predicted peak: mean | {mean((free['high'] - free['low']) / free['peak'] for free, _ in peaks)} |",
    ]


ABOUT = """# What plan calls sure

`benches/sure.py` writes this page and describes the method. The models are in `tests/python/models/further.py`; all were chosen before a plan
was made of any of them. `plan` ran its own answer, as it does by default. Then its batch size that is *sure* ran 20 more times under the
limit, for 12 steps each. *Always passed* is the largest batch size of a ladder in steps of 3 % with no failure in 8 runs; *last pass* the
largest with a run that passed. Times were taken on a quiet machine."""

ABOUT_GROUPS = {
    "unseen": """## Unseen models

Plans of these models were not looked at when the list was made. Since then the search was changed for what runs of `conv_lstm`, `inception`,
`upscale` and `variational` showed, and answers of an earlier search were seen for `memory`, `separable_text` and `clips`.""",
    "seen": """## Models that were looked at

The planner was changed for what was seen on these.""",
}

BEFORE = """## Before the search was changed

On 2026-11-20 four limits of `variational` were planned with a chance of failure of 0.5 % at the answer and weights for sharper edges. With
oneDNN 301 under 36 MiB and 475 under 70 MiB, without it 524 under 93 MiB: 20 of 20 further runs passed each. Without it 269 under 77 MiB: 18
of 20. Its edges are wide: from 475 to 599 every batch size of the ladder had a run that passed, while 549 had failures. Today's chance is
0.3 %, and wide edges weigh more.

Until 2026-11-19 the answer kept a fixed distance from the failures that a climb had seen, 7.7 % or more, and all runs of a plan were traced.
Two of the unseen models were planned that way with oneDNN, under two limits each: `volume_unet` 73 under 188 MiB and 131 under 323 MiB,
`memory` 315 under 66 MiB and 623 under 125 MiB. All 80 further runs passed, and the plans took 11 runs beside their six probes in the
mean. Two faults were seen with other models. A trace changes how threads order ops, so its runs pass or fail where others do not: `conv_lstm`
without oneDNN under 196 MiB. And where runs differ much, one failure far below the edge cost a third of the batch size there.

On 2026-11-18 `plan` searched for its answer without climbing towards the edge. Its answers for eight of the models that were looked at, under
28 limits, were cautious: 26 of them ran 20 more times, and all 520 runs passed; two were not run again. Against the largest batch size that
always passed, `sure` was 10.6 % below in the mean, and `likely` was 5.8 % off the last that passed; that was measured at 9 limits. 20 of 32 free runs
were inside the predicted interval, which was 7.6 % wide in the mean. The plans took 5.4 runs in the mean beside their six probes, and 7 at
most.

A search that left 2 % of the batch size instead of 4 % was tried, too: 218 of 220 further runs passed; two of 20 runs of `graph` under 213 MiB
at 620 failed, and none of 20 at 608."""


def not_planned(group):
    """The models of a group that have no plan yet under some limit."""
    missing = []
    for onednn in (1, 0):
        planned = [row["model"] for row in rows_of(onednn, GROUPS[group])]
        names = [build.__name__ for build in GROUPS[group] if planned.count(build.__name__) < len(FACTORS)]
        if names:
            missing.append(f"with oneDNN {'on' if onednn else 'off'}: {', '.join(f'`{name}`' for name in names)}")
    return [f"Not planned yet under both limits {'; '.join(missing)}."] if missing else []


ABOUT_EDGES = """## Edges

Runs that passed, of those at a batch size, without a plan and without Vramline, while other programs used the processors. The weights that
`plan` gives to widths of edges before its first run were chosen by hand after these."""


def edges():
    """A row for each limit where the ladder was run from a batch size that always passed to one that never did."""
    lines = ["| model | oneDNN | limit | batch size: runs that passed |", "|---|---|---|---|"]
    for onednn, kept in [(setting, kept) for setting in (1, 0) for kept in all_kept(setting)]:
        for model, _, limit in (key for key in kept.rows if key[1] == "curve"):
            passed = {}
            for key, row in kept.rows.items():
                if key[:3] == (model, "run", limit):
                    passed.setdefault(key[3], []).append(row["passed"])
            cells = [f"{batch}: {sum(each)} of {len(each)}" for batch, each in sorted(passed.items())]
            lines.append(f"| {model} | {'on' if onednn else 'off'} | {limit} MiB | {', '.join(cells)} |")
    return lines


def compare(write):
    parts = []
    for group in ("unseen", "seen"):
        rows = [row for onednn in (1, 0) for row in rows_of(onednn, GROUPS[group])]
        if rows:
            processors = ", ".join(dict.fromkeys(row["processor"] or "not recorded" for row in rows))
            parts += [f"{ABOUT_GROUPS[group]} Processor: {processors}.", "\n".join(summary(rows)), "\n".join(table(rows))]
        parts += not_planned(group) if rows else [ABOUT_GROUPS[group], "None of these has a plan of today yet."]
    parts += [ABOUT_EDGES, "\n".join(edges()), BEFORE]
    text = "\n\n".join(parts)
    print(text)
    if write:
        import keras
        import tensorflow as tf

        about = f"TensorFlow {tf.__version__}, Keras {keras.__version__}, CPU pool allocator; {os.cpu_count()} cores, {platform.machine()}"
        write.write_text(f"{ABOUT}\n\n{about}; {datetime.date.today()}.\n\n{text}\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("gather", "compare"))
    parser.add_argument("--onednn", type=int, choices=(0, 1), default=1)
    parser.add_argument("--group", choices=GROUPS, default="unseen")
    parser.add_argument("--models", help="those of the group unless given")
    parser.add_argument("--parts", default="probes,plan,sure,free,edge")
    parser.add_argument("--minutes", type=float, help="end after so long; the same command goes on")
    parser.add_argument("--again", default="", help="parts whose rows are gathered again")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    if asked.what == "gather":
        models = asked.models.split(",") if asked.models else [build.__name__ for build in GROUPS[asked.group]]
        gather(asked.onednn, models, asked.parts.split(","), asked.minutes, asked.again.split(","))
    else:
        compare(asked.write)


if __name__ == "__main__":
    main()
