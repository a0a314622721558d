"""Builds of the binary against each other: is a release as fast and as small as the one before?

    python benches/builds.py BEFORE AFTER [...] [--runs N]

Each binary reads the same large files, which are made here from fixtures and kept in benches/out/: a trace of a million memory events
as JSON and as a page, a PyTorch snapshot of 500 MB, and a replay. Binaries take turns; the best of N runs counts.
Memory is the highest resident set.
"""

import argparse
import json
import pathlib
import subprocess

from against_pickle import OUT, ROOT, make, run
from page import repeated

TRACE = ROOT / "fixtures" / "tf221_cpu_cnn_from_start.xplane.pb"
EVENTS = 1_000_000


def large_trace(binary):
    """The fixture, repeated until it has enough memory events."""
    path = OUT / "repeated.xplane.pb"
    if not path.exists():
        told = subprocess.run([binary, "report", TRACE, "--json", "--top", "1"], check=True, capture_output=True)
        report = json.loads(told.stdout)
        events = sum(pool["allocs"] + pool["frees"] for pool in report["pools"])
        begins = [step["begin_ns"] for step in report["steps"]]
        repeated(TRACE, path, -(-EVENTS // events), max(begins) - min(begins) + 500_000_000)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", nargs="+", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    trace = large_trace(args.binaries[0])
    snapshot, _ = make("half.snapshot.pickle", 500)
    whole = ROOT / "fixtures" / "torch2110_h200_resnet50_b64.snapshot.pickle.gz"
    cases = {
        "trace to JSON": ["report", trace, "--json"],
        "trace to a page": ["report", trace, "--html", OUT / "builds.html"],
        "snapshot to JSON": ["report", snapshot, "--json"],
        "replay of a snapshot": ["replay", whole, "--json"],
    }
    print(f"| best of {args.runs} | " + " | ".join(binary.name for binary in args.binaries) + " | last / first |")
    print("|---|" + "---|" * (len(args.binaries) + 1))
    for name, command in cases.items():
        seconds = {binary: [] for binary in args.binaries}
        for _ in range(args.runs):
            for binary in args.binaries:
                seconds[binary].append(run([binary, *command], False)[0])
        best = [min(seconds[binary]) for binary in args.binaries]
        held = [run([binary, *command], True)[1] for binary in args.binaries]
        print(f"| {name}: time | " + " | ".join(f"{each:.3f} s" for each in best) + f" | {best[-1] / best[0]:.2f} |", flush=True)
        print(f"| {name}: memory | " + " | ".join(f"{each / 1e6:.0f} MB" for each in held) + f" | {held[-1] / held[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
