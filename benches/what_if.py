"""Does what-if tell the truth? Predicted "fits" against real TensorFlow runs under that limit.

    python benches/what_if.py [--cases N] [--repeats N] [--workers N] [--write docs/proof/what-if.md]

Each model is trained once under an ample limit, on the CPU with TensorFlow's pool allocator, and traced from its first
allocation. `vramline replay --find limit` gives the smallest limit L at which the recorded requests fit. Then limits around L
are predicted (`--what-if limit=...`) and tried: the same training, untraced, several times under that limit. Executors with
threads order ops differently each time, so what is observed is a share of runs that pass. Results are kept in
benches/out/what_if.jsonl, and a case that is there is not run again.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests/python/models/families.py"
KEPT = ROOT / "benches/out/what_if.jsonl"
POOL = "bfc_cpu_allocator_for_gpu"
MIB = 1 << 20
AMPLE = 4000
OUT_OF_MEMORY = 9
# Below, at and above the edge.
EDGES = (0.80, 0.92, 1.00, 1.08, 1.25)
MODELS = [
    ("dense", 512),
    ("convolutional", 64),
    ("unet", 64),
    ("attention", 64),
    ("convolutional", 160),
    ("unet", 24),
    ("recurrent", 1024),
    ("ragged", 512),
]


def environment(limit):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return kept | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit),
    }


def train(model, batch, limit, logdir, *options):
    command = [sys.executable, PROGRAM, model, logdir, "--batch", str(batch), *options]
    done = subprocess.run(command, env=environment(limit), capture_output=True, text=True, timeout=600, check=False)
    # Where memory is very short TensorFlow may die of a signal instead of raising: that is not passing either.
    if done.returncode > 0 and done.returncode != OUT_OF_MEMORY:
        raise RuntimeError(f"{model} {batch} under {limit} MiB: {done.stderr[-2000:]}")
    return done.returncode == 0


def replay(trace, *arguments):
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    command = [binary, "replay", trace, "--json", "--pool", POOL, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def edge(model, batch, folder):
    """The trace of a free run, and the smallest limit in MiB at which it fits."""
    logdir = Path(folder) / f"{model}-{batch}"
    assert train(model, batch, AMPLE, logdir)
    (trace,) = logdir.glob("plugins/profile/*/*.xplane.pb")
    document = replay(trace, "--find", "limit")
    assert document["pools"][0]["exact"]
    return trace, document["what_if"][-1]["limit_bytes"] // MIB


def cases(models, folder, workers):
    with ThreadPoolExecutor(workers) as pool:
        edges = list(pool.map(lambda model: edge(*model, folder), models))
    for (model, batch), (trace, found) in zip(models, edges):
        limits = [max(1, round(found * share)) for share in EDGES]
        answers = replay(trace, *[word for limit in limits for word in ("--what-if", f"limit={limit}MiB")])["what_if"]
        for limit, answer in zip(limits, answers):
            yield {"model": model, "batch": batch, "limit": limit, "edge": found, "predicted": answer["fits"]}


def key(case):
    return case["model"], case["batch"], case["limit"]


def observe(case, repeats):
    passed = [train(case["model"], case["batch"], case["limit"], "-", "--no-trace") for _ in range(repeats)]
    return case | {"passed": sum(passed), "runs": repeats}


def run(count, repeats, workers, kept=None):
    """Every case with what was observed. `kept` is a file of cases that were run before."""
    known = {}
    if kept is not None and kept.exists():
        known = {key(case): case for case in map(json.loads, kept.read_text(encoding="utf-8").splitlines())}
    models = MODELS[: -(-count // len(EDGES))]
    done = [case for case in known.values() if (case["model"], case["batch"]) in models]
    missing = [m for m in models if sum((case["model"], case["batch"]) == m for case in done) < len(EDGES)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        # The edge of a trace differs a little from run to run, so a model is done as a whole.
        new = list(cases(missing, folder, workers))
        done = [case for case in done if (case["model"], case["batch"]) not in missing]
        for case in pool.map(lambda case: observe(case, repeats), new):
            print(json.dumps(case), flush=True)
            done.append(case)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(case) + "\n")
    return done


def table(done, repeats):
    words = {True: "fits", False: "does not fit", None: "perhaps"}
    lines = ["| predicted | cases | all runs passed | some passed | none passed |", "|---|---|---|---|---|"]
    for predicted, word in words.items():
        rows = [case for case in done if case["predicted"] is predicted]
        all_ = sum(case["passed"] == case["runs"] for case in rows)
        none = sum(case["passed"] == 0 for case in rows)
        lines.append(f"| {word} | {len(rows)} | {all_} | {len(rows) - all_ - none} | {none} |")
    lines += ["", "| model | batch | smallest limit found | limit | of it | predicted | passed |", "|---|---|---|---|---|---|---|"]
    for case in done:
        share = f"{case['limit'] / case['edge']:.2f}"
        lines.append(
            f"| {case['model']} | {case['batch']} | {case['edge']} MiB | {case['limit']} MiB | {share} "
            f"| {words[case['predicted']]} | {case['passed']} of {case['runs']} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=len(MODELS) * len(EDGES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    done = run(asked.cases, asked.repeats, asked.workers, KEPT)
    text = table(done, asked.repeats)
    print(text)
    if asked.write:
        import tensorflow as tf

        about = (
            f"TensorFlow {tf.__version__}, CPU pool allocator; {os.cpu_count()} cores, {platform.machine()}; "
            f"{datetime.date.today()}"
        )
        asked.write.write_text(
            "# What-if: predicted and real limits\n\n`make proof` writes this page with `benches/what_if.py`, which describes the method.\n\n"
            f"{about}\n\n{text}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
