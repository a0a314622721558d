"""Do the fixes save what plan says? Every fix that can be applied from outside, predicted and measured on real models.

    python benches/fixes.py [--runs N] [--torch ROWS] [--write docs/proof/accuracy-fixes.md]

On the CPU with TensorFlow's pool allocator, by `vramline verify`, which plans from small batches, runs the model as it is and with the
fix, several times each, and compares the savings. PyTorch's expandable segments were measured on an H200: fixtures/plan/truths.jsonl.
Fixes of PyTorch programs were measured there, too: --torch is the `torch_fixes.jsonl` that `tests/gpu/torch_fixes.py` wrote. What is there
in benches/out/fixes is not run again.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

from what_if import environment

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests/python/models/planned.py"
OUT = ROOT / "benches/out/fixes"
MIB = 1 << 20
AMPLE = 16000
# The model, the batch, the probes.
MODELS = [("unet", 88, "5,7,11"), ("dense", 8104, "251,509,1013")]
FIXES = ["accumulate", "mixed-precision", "one-thread", "compile"]


def verify(model, batch, probes, fix, runs):
    """The document of `vramline verify`."""
    kept = OUT / f"{model}-{fix}.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    command = [binary, "verify", "--json", "--fix", fix, "--batch", str(batch), "--batches", probes, "--runs", str(runs)]
    command += ["-o", str(OUT / model), "--trace-steps", "4", "--", sys.executable, str(PROGRAM), model, "--batch", "{batch}", "--steps", "6"]
    done = subprocess.run(command, env=environment(AMPLE), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{model} {fix}: {done.stderr[-2000:]}")
    kept.write_text(done.stdout, encoding="utf-8")
    return json.loads(done.stdout)


def expandable():
    """Rows of PyTorch's expandable segments, predicted from batches 2, 4 and 8."""
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    told = [json.loads(line) for line in (ROOT / "fixtures/plan/truths.jsonl").read_text(encoding="utf-8").splitlines()]
    real = {(row["case"], row["batch"]): row["reserved_bytes"] for row in told if row["kind"] == "free"}
    for row in told:
        if row["kind"] != "expandable":
            continue
        probes = [word for batch in (2, 4, 8) for word in ("--probe", f"{batch}={ROOT}/fixtures/plan/{row['case']}-{batch}.pickle.gz")]
        command = [binary, "plan", *probes, "--batch", str(row["batch"]), "--steps", "3", "--json"]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        (fix,) = [each for each in said["fixes"] if each["name"] == "expandable"]
        before, measured = real[row["case"], row["batch"]], row["reserved_bytes"]
        off = (said["predictions"][0]["pool_bytes"] - fix["pool_bytes"]) - (before - measured)
        yield (
            f"| {row['case']} | {row['batch']} | {before / MIB:,.0f} | {fix['pool_bytes'] / MIB:,.0f} | {measured / MIB:,.0f} "
            f"| {fix['pool_bytes'] / measured - 1:+.2%} | {off / before:+.2%} |"
        )


def autocast():
    """Rows of autocast in PyTorch, predicted from small batches: on an H200, and of tensors without memory (fixtures/fake_torch.py)."""
    binary = os.environ.get("VRAMLINE_BIN", str(ROOT / "target/release/vramline"))
    for folder, told, ending, where in (("fixes", "measured", "vram", "H200"), ("autocast", "truths", "pickle.gz", "fake tensors")):
        rows = [json.loads(line) for line in (ROOT / f"fixtures/{folder}/{told}.jsonl").read_text(encoding="utf-8").splitlines()]
        real = {(row["job"], row["fix"]): row for row in rows if row["fix"] in ("", "mixed-precision")}
        for job in dict.fromkeys(job for job, fix in real if fix):
            probes = sorted(ROOT.glob(f"fixtures/{folder}/{job}-[0-9]*.{ending}"))
            words = [word for path in probes for word in ("--probe", f"{path.name.removesuffix('.' + ending).rsplit('-', 1)[1]}={path}")]
            before, after = real[job, ""]["allocated"], real[job, "mixed-precision"]["allocated"]
            command = [binary, "plan", *words, "--batch", str(real[job, ""]["batch"]), "--steps", "4", "--json"]
            said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
            fixes = [fix for fix in said["fixes"] if fix["name"] == "mixed-precision"]
            # A fix that is not offered is said to save nothing.
            saves = fixes[0]["saves_bytes"] if fixes else 0
            apart = "measured only" if saves is None else f"{(saves - (before - after)) / before:+.1%}"
            told_saving = "none" if saves is None else f"{saves / MIB:,.0f}"
            yield (
                f"| {job} | {real[job, '']['batch']} | {where} | {'yes' if fixes else 'no'} | {before / MIB:,.0f} | {after / MIB:,.0f} "
                f"| {told_saving}, {(before - after) / MIB:,.0f} | {apart} |"
            )


def written_in(rows):
    """Rows of fixes that were written into a PyTorch program."""
    size = lambda number: "none" if number is None else f"{number / MIB:,.0f}"  # noqa: E731
    for row in map(json.loads, rows.read_text(encoding="utf-8").splitlines()):
        cells = [row["job"], str(row["batch"]), row["fix"] or "as it is", "yes" if row["offered"] or not row["fix"] else "no"]
        for figure in ("allocated", "reserved"):
            told = row[figure]
            saving = told["saving"] or (None, None)
            cells += [f"{size(told['predicted'])}, {size(told['measured'])}", f"{size(saving[0])}, {size(saving[1])}"]
            cells.append("" if told["apart"] is None else f"{told['apart']:+.1%}")
        yield f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--torch", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    lines = [
        "| model | batch | fix | without: predicted, measured (MiB) | with: predicted, measured (MiB) "
        "| saving: predicted, measured (MiB) | apart, of the peak |",
        "|---|---|---|---|---|---|---|",
    ]
    size = lambda number: "none" if number is None else f"{number / MIB:.1f}"  # noqa: E731
    for model, batch, probes in MODELS:
        for fix in FIXES:
            told = verify(model, batch, probes, fix, asked.runs)
            off = "measured only" if told["off_share"] is None else f"{told['off_share']:+.1%}"
            lines.append(
                f"| {model} | {batch} | {fix} | {size(told['without_predicted_bytes'])}, {size(told['without_measured_bytes'])} "
                f"| {size(told['predicted_bytes'])}, {size(told['measured_bytes'])} "
                f"| {size(told['predicted_saving_bytes'])}, {size(told['measured_saving_bytes'])} | {off} |"
            )
            print(lines[-1], flush=True)
    lines += ["", "PyTorch 2.11 on an H200, `expandable_segments`, predicted from batches 2, 4 and 8; reserved bytes:", ""]
    lines += [
        "| model | batch | without: measured (MiB) | with: predicted (MiB) | with: measured (MiB) | off | saving apart, of the peak |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += expandable()
    lines += ["", "`torch.autocast` with bfloat16 in PyTorch 2.11, predicted from three small batches; one that is not offered is said to save nothing:", ""]
    lines += [
        "| job | batch | measured with | offered | without (MiB) | with (MiB) | saving: predicted, measured (MiB) | apart, of the peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += autocast()
    if asked.torch:
        lines += ["", "Fixes written into PyTorch programs on an H200, predicted and measured (MiB); one that is not offered is said to save nothing:", ""]
        lines += [
            "| job | batch | fix | offered | allocated | saves | apart, of the peak | reserved | saves | apart, of the pool |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += written_in(asked.torch)
    text = "\n".join(lines)
    print(text)
    if asked.write:
        import tensorflow as tf

        about = f"TensorFlow {tf.__version__}, CPU pool allocator, {os.cpu_count()} cores, {asked.runs} runs each; {datetime.date.today()}"
        head = "# Fixes, predicted and measured\n\n`make proof` writes this page with `benches/fixes.py`, which describes the method.\n"
        asked.write.write_text(f"{head}\n{about}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
