"""Plan against real batches on an H200: PyTorch's allocated and reserved peaks, and the memory of the process.

    python benches/accuracy_gpu.py [--write docs/proof/accuracy-gpu.md]

The snapshots of batches 2, 4 and 8, and what larger batches really took, are in fixtures/plan (tests/gpu/plan_probes.py made them), so
no GPU is needed. In the same table: the straight line through the probes' own peaks. What the process holds beside the pool is taken
from the largest probe, where NVML told it.
"""

import argparse
import collections
import datetime
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROBES = (2, 4, 8)
FIGURES = ("allocated_bytes", "reserved_bytes", "process_bytes")


def truths():
    """Rows by kind, case and batch."""
    found = collections.defaultdict(dict)
    for line in (ROOT / "fixtures/plan/truths.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["kind"], row["case"]][row["batch"]] = row
    return found


def plan(case, batches):
    """What `vramline plan` says of batches, by batch."""
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    probes = [word for batch in PROBES for word in ("--probe", f"{batch}={ROOT}/fixtures/plan/{case}-{batch}.pickle.gz")]
    command = [binary, "plan", *probes, "--batch", ",".join(map(str, batches)), "--steps", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    return {each["batch"]: each for each in json.loads(done.stdout)["predictions"]}


def line(rows, figure, batch):
    """The straight line through the first and the last probe."""
    first, last = rows[PROBES[0]][figure], rows[PROBES[-1]][figure]
    return first + (last - first) * (batch - PROBES[0]) / (PROBES[-1] - PROBES[0])


def table():
    """The summary and the rows, as text."""
    found = truths()
    errors = collections.defaultdict(list)
    rows = []
    for kind, case in sorted(found):
        if kind != "free":
            continue
        real, probes = found["free", case], found["snapshot", case]
        said = plan(case, sorted(real))
        beside = probes[PROBES[-1]]["process_bytes"] - probes[PROBES[-1]]["reserved_bytes"]
        for batch, truth in sorted(real.items()):
            pool = said[batch]["pool_bytes"]
            # Where benchmarking gives memory back in between, the process at its end holds less than the pool's peak.
            ours = dict(zip(FIGURES, (said[batch]["peak_bytes"], pool, pool + beside if beside > 0 else None)))
            cells = []
            for figure in FIGURES:
                if ours[figure] is None or not truth[figure]:
                    cells.append("not comparable")
                    continue
                off = ours[figure] / truth[figure] - 1
                straight = line(probes, figure, batch) / truth[figure] - 1
                errors[figure, "plan"].append(abs(off))
                errors[figure, "line"].append(abs(straight))
                cells.append(f"{truth[figure] / 2**20:,.0f} MiB: {off:+.2%} (line {straight:+.1%})")
            rows.append(f"| {case} | {batch} | " + " | ".join(cells) + " |")
    lines = ["| | plan: median, worst | straight line: median, worst |", "|---|---|---|"]
    for figure in FIGURES:
        both = [f"{statistics.median(errors[figure, who]):.2%}, {max(errors[figure, who]):.2%}" for who in ("plan", "line")]
        lines.append(f"| {figure.split('_')[0]} | {both[0]} | {both[1]} |")
    return "\n".join([*lines, "", "| case | batch | allocated | reserved | process |", "|---|---|---|---|---|", *rows])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    text = table()
    print(text)
    if asked.write:
        about = (
            "PyTorch 2.11 on one NVIDIA H200, driver 580.159; snapshots of three steps at batch sizes 2, 4 and 8; compared with runs that were not recorded. "
            f"Written {datetime.date.today()}."
        )
        head = "# Accuracy of plans on a GPU (PyTorch)\n\n`make proof` writes this page with `benches/accuracy_gpu.py`, which describes the method.\n"
        notes = (
            "VGG-16 reserves twice what it allocates: the scratch memory of its convolutions has another size in each layer, "
            "and cached blocks of one size do not serve the next. cuDNN chooses its algorithm by the size of the "
            "problem, so the scratch memory is not linear from 2 to 8. But two batch sizes with the same algorithm differ by a "
            "whole number of granules a sample, and adjacent layers show how it continues. ResNet-50 is the worst: which algorithm cuDNN "
            "takes for the gradients of its weights from 16 on, no probe shows. These rules were found on these models and on those of "
            "[the other page](accuracy-held-out.md)."
        )
        asked.write.write_text(f"{head}\n{about}\n\n{notes}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
