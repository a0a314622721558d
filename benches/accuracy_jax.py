"""Writes the page about plans for JAX from what `tests/gpu/jax_plan.py` recorded on a GPU.

python benches/accuracy_jax.py --vramline BINARY [--first FOLDER] [--second FOLDER] [--third FOLDER] [--before BINARY] [--write docs/proof/accuracy-jax.md]

A FOLDER is the `probes-*.tar.gz` of a group, unpacked: the probes, what the compiler made for the target, and the truths; that of the third
group is by default fixtures/jax-plan-3. The probes and the truths are of the GPU; the predictions are computed here, without one. The
section of a group without a folder stays as it is in the page. `--before` plans the first group with
an older binary, too, to say what a change did.
"""

import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/proof/accuracy-jax.md"
MIB = 1 << 20
BATCHES = (3, 5, 7)
TARGETS = {"decoder": 40, "residual": 48, "vision": 44, "recurrent": 50, "denoiser": 52, "towers": 46}
MODES = ("preallocated", "growing")
# As many steps as the runs have that the predictions are compared with.
STEPS = 4
# The models of each group, and what is said of them below the title of its section.
GROUPS = {
    "First group": (
        ("decoder", "residual"),
        """**These are not unseen models.** XLA tries kernels while it compiles, on several threads. That the buffers for it are lines of the
batch size, and have to be matched by size and not by order, was found on these recordings; the last column is the error before.
Of two models with one real run per row, the table says that the rule explains them, not how often it will be right.""",
    ),
    "Second group": (
        ("vision", "recurrent"),
        """Two models that were listed before anything of them ran: a vision transformer and a gated recurrent net. The recurrent net has no rows:
its probes failed in JAX's profiler ([why](../how-to/jax.md#if-the-job-fails-with-cuda_error_launch_failed)). The range of the growing
pool began at 1,534 MiB and missed the truth, before it was widened downwards, too.""",
    ),
    "Third group": (
        ("denoiser", "towers"),
        "Two models that were listed before anything of them ran: a convolutional net with skips, and a search of two towers.",
    ),
}


def planned(vramline, folder, model, mode):
    """The prediction for the target, and the codes of the plan's warnings."""
    probes, target = folder / f"probes-{model}-{mode}", TARGETS[model]
    words = [word for batch in BATCHES for word in ("--probe", f"{batch}={probes}/probe-{batch}-0.vram")]
    words += ["--compiled", f"{target}={probes}/compiled-{target}", "--batch", str(target), "--steps", str(STEPS)]
    done = subprocess.run([vramline, "plan", *words, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3, 4), done.stderr
    told = json.loads(done.stdout)
    (said,) = told["predictions"]
    return said, sorted({each["code"] for each in told["warnings"]})


def compared(vramline, folder, model, mode):
    """Figure, predicted, its range, and measured; and the codes of the warnings."""
    real = json.loads((folder / f"truth-{model}-{mode}.json").read_text(encoding="utf-8"))
    said, codes = planned(vramline, folder, model, mode)
    figures = [
        ("peak", said["peak_bytes"], (said["low_bytes"], said["high_bytes"]), real["peak_bytes_in_use"]),
        ("pool", said["pool_bytes"], (said["pool_low_bytes"], said["pool_high_bytes"]), real["peak_pool_bytes"]),
        ("process", said["process_bytes"], None, real["process_bytes"]),
    ]
    return figures, codes, real["jax"]


def row(model, mode, figure, predicted, between, measured, before):
    span = "" if between is None else f"{between[0] / MIB:,.1f} to {between[1] / MIB:,.1f}"
    inside = "" if between is None else "yes" if between[0] <= measured <= between[1] else "no"
    was = "" if before is None else f" {before / measured - 1:+.2%} |"
    cells = (model, mode, str(TARGETS[model]), figure, f"{predicted / MIB:,.1f}", span, f"{measured / MIB:,.1f}", f"{predicted / measured - 1:+.2%}", inside)
    return f"| {' | '.join(cells)} |{was}"


def section(title, folder, vramline, before):
    models, about = GROUPS[title]
    rows, warned, versions = [], [], set()
    for model in models:
        for mode in MODES:
            if not (folder / f"probes-{model}-{mode}" / f"compiled-{TARGETS[model]}").exists():
                continue
            figures, codes, version = compared(vramline, folder, model, mode)
            older = compared(before, folder, model, mode)[0] if before else [None] * len(figures)
            rows += [row(model, mode, *figure, earlier and earlier[1]) for figure, earlier in zip(figures, older)]
            warned.append(f"- {model}, {mode}: {', '.join(f'`{code}`' for code in codes) or 'none'}")
            versions.add(version)
    return "\n".join([
        f"## {title}",
        "",
        f"{about} JAX {', '.join(sorted(versions))}.",
        "",
        "| model | pool | batch | figure | predicted | range | measured | off | inside |" + (" off before |" if before else ""),
        "|---|---|---|---|---|---|---|---|---|" + ("---|" if before else ""),
        *rows,
        "",
        "Warnings of these plans:",
        "",
        *warned,
    ])  # fmt: skip


def page(sections):
    return "\n".join([
        "# Accuracy of plans for JAX",
        "",
        "`benches/accuracy_jax.py` writes this page from what `tests/gpu/jax_plan.py` recorded; the two describe the method.",
        "",
        "One NVIDIA H200, with all runs of a group on it at the same time. Probes of batch sizes 3, 5 and 7. The probes were",
        "recorded on the GPU, and the measured figures are of one run each there, without Vramline. The predictions were computed afterwards,",
        "from the recorded probes, on a machine without a GPU. MiB; the pool is what JAX takes from the driver, the process what NVML counts.",
        "",
        "What a preallocated pool takes is a setting, not a prediction: these rows show only that the plan says so.",
        "",
        "The range of a growing pool reaches from half to twice what the orders of the three probes give (in the first group, which is older,",
        "only upwards): such a pool grows in regions of doubled size, so one kernel that XLA tries at the target and not in the probes can double",
        "it, and one less can halve it. At batch size 128 of another network XLA took 8.2 GiB to",
        "try kernels ([XLA](../explanation/how-planning-works.md#xla)).",
        "",
        "\n\n".join(sections),
    ]) + "\n"  # fmt: skip


def kept(title):
    """The section as the page has it, or None."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return next((f"## {part}".rstrip("\n") for part in parts if part.startswith(f"{title}\n")), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vramline", required=True)
    parser.add_argument("--first", type=Path)
    parser.add_argument("--second", type=Path)
    parser.add_argument("--third", type=Path, default=ROOT / "fixtures/jax-plan-3")
    parser.add_argument("--before")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    folders = dict(zip(GROUPS, (asked.first, asked.second, asked.third)))
    sections = []
    for title, folder in folders.items():
        before = asked.before if title == "First group" else None
        sections.append(section(title, folder, asked.vramline, before) if folder and folder.exists() else kept(title))
    text = page(filter(None, sections))
    print(text)
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
