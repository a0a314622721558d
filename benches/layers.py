"""How much of a peak has the right layer and role, with oneDNN off and on.

    python benches/layers.py [--write docs/proof/layers.md]

Runs every model of `tests/python/jobs/kinds.py` under `vramline run`, with TF_ENABLE_ONEDNN_OPTS=0 and =1, and checks the report of
its peak against the model's own objects, by the code that `tests/python/test_layers.py` checks it with. Needs the package installed and TensorFlow; on
a machine without a GPU its pool allocator on the CPU stands in. Nothing is asserted.
"""

import argparse
import datetime
import importlib.metadata as metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"
sys.path.insert(0, str(TESTS))

from conftest import recorded_truth
from layers_truth import shares
from test_layers import JOB, KINDS, LATE

BINARY = os.environ.get("VRAMLINE_BIN", "vramline")

BUILDS = {
    "sequential": "`Sequential`, convolutions",
    "two_inputs": "functional, two inputs",
    "subclassed": "subclassed, built by its first step",
    "nested": "models in a model",
    "shared": "layers that are used twice",
    "recurrent": "LSTM and GRU",
    "own_step": "`train_step` of its own",
    "two_optimizers": "two optimizers",
    "first_step": "the step that builds the model, alone",
    "loop": "`GradientTape` loop without a graph",
    "first_tape": "the first step of that loop, alone",
    "compiled_loop": "`GradientTape` loop in a `tf.function`",
}


def measured(kind, setting):
    """The peak as the trace and as TensorFlow have it, and the shares."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = setting
    with tempfile.TemporaryDirectory() as folder:
        told = recorded_truth(BINARY, pathlib.Path(folder), JOB, kind)
        command = [BINARY, "report", "--json", f"{folder}/run.vram"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    pool = report["pools"][0]
    return pool["peak_bytes"], told["peak"], shares(told, pool)


def percent(share):
    """Rounded down: 100 % is said of all only."""
    return f"{int(share * 10_000) / 100:.2f} %"


def row(kind):
    cells = [f"`{kind}`: {BUILDS[kind]}"]
    found = [measured(kind, setting) for setting in "01"]
    cells += [f"{ours:,} / {theirs:,}" for ours, theirs, _ in found]
    cells += [" / ".join(percent(share) for share in of_each) for of_each in zip(*(each for _, _, each in found), strict=True)]
    line = "| " + " | ".join(cells) + " |"
    print(line, flush=True)
    return line


def processor():
    """Its name and number of cores."""
    names = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores"


COLUMNS = {
    "peak": "bytes at the highest moment that a trace shows, and TensorFlow's own peak. They differ where a step that was not traced had a"
    " higher peak: the order of ops differs from step to step",
    "has a layer": "requested bytes at the peak with a layer of the model, `input data`, `loss` or a line of the program",
    "right layer": "of parameters and slots the bytes that the layer really has; activations and gradients where the layer has tensors of"
    " that size; others where the layer is one of the model's",
    "right role": "all bytes, without those of unknown role, parameters and slots that the layer does not have, and parameters that have"
    " another role",
}

HEAD = """# Layers and roles at the peak

`make proof` writes this page with `benches/layers.py`.

TensorFlow uses oneDNN's kernels on some processors and not on others. They have other op names, need other scratch memory and run in
another order, so reports must be right with both. Each model of `tests/python/jobs/kinds.py` is trained under `vramline run` with
`TF_ENABLE_ONEDNN_OPTS=0` and `=1`. The report of its peak is compared with the model's own objects: the variables of each layer, the slots
of each optimizer, and the sizes of what each layer takes and returns. `tests/python/test_layers.py` requires 95 % right layers and 99 % right roles for each.

{columns}

Shares are of the requested bytes at the peak, rounded down; oneDNN off / on.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    lines = [
        f"vramline {metadata.version('vramline')}, TensorFlow {metadata.version('tensorflow-cpu')}, Keras {metadata.version('keras')},"
        f" Python {platform.python_version()}; {processor()}; {datetime.date.today()}",
        "",
        "| model | peak, oneDNN off: trace / TensorFlow | peak, oneDNN on: trace / TensorFlow | has a layer | right layer | right role |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    lines += [row(kind) for kind in [*KINDS, *LATE]]
    if args.write:
        columns = "\n".join(["| column | what it holds |", "|---|---|", *(f"| {name} | {what} |" for name, what in COLUMNS.items())])
        args.write.write_text(HEAD.format(columns=columns) + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
