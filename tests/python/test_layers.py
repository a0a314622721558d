"""Layers and roles of Keras models, against the objects themselves: their variables, their slots, and a tape of what each layer takes and gives."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "kinds.py"
KINDS = ["sequential", "two_inputs", "subclassed", "nested", "shared", "recurrent", "own_step", "two_optimizers"]


@pytest.fixture(scope="module", params=KINDS)
def run(request, binary, vramline, tmp_path_factory):
    """What a model says of itself, and what the report says of its peak."""
    folder = tmp_path_factory.mktemp("layers")
    command = [binary, "run", "-o", folder / "run.vram", "--", sys.executable, JOB, request.param]
    done = subprocess.run(command, env=job_environment(), cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"model"'))
    pool = vramline(folder / "run.vram")["pools"][0]
    return told, pool


def rows_of(pool, role):
    return [row for row in pool["at_peak"]["rows"] if row["role"] == role]


def by_layer(rows):
    sizes = Counter()
    for row in rows:
        sizes[row["layer"]] += row["bytes"]
    return sizes


def requested(pool):
    return pool["at_peak"]["named_bytes"] + pool["at_peak"]["unnamed_bytes"]


def test_bytes_have_layers(run):
    told, pool = run
    known = {*told["layers"], "input data", "loss"}
    rows = pool["at_peak"]["rows"]
    # A step of the program's own is told by its line.
    right = sum(row["bytes"] for row in rows if row["layer"] in known or row["layer"].startswith("kinds.py:"))
    assert right >= 0.95 * requested(pool), by_layer(row for row in rows if row["layer"] not in known)


def test_parameters_are_the_layers_own(run):
    told, pool = run
    assert by_layer(rows_of(pool, "parameters")) == told["own"]


def test_slots_are_those_of_their_layers(run):
    told, pool = run
    found = by_layer(rows_of(pool, "optimizer"))
    # Counters and rates have no layer.
    assert found.pop("", 0) < 100
    # Slots that are still zero share their zeros: TensorFlow computes equal constants of a function once.
    assert all(size <= told["slots"][layer] for layer, size in found.items())
    assert found.total() >= sum(told["slots"].values()) / 2


def test_activations_and_gradients_are_of_layers_that_have_such_tensors(run):
    told, pool = run
    right = whole = 0
    for role in ("activations", "gradients"):
        for row in rows_of(pool, role):
            each = row["bytes"] // row["count"]
            inside = [path for path in told["passed"] if path == row["layer"] or path.startswith(row["layer"] + "/")]
            sizes = {size for path in inside for size in told["passed"][path]}
            whole += row["bytes"]
            # A gradient of a layer's weights is no larger than these.
            weights = sum(told["own"].get(path, 0) for path in inside)
            right += row["bytes"] if each in sizes or each <= weights else 0
    assert right >= 0.95 * whole


def test_little_is_unknown(run):
    _, pool = run
    assert pool["at_peak"]["by_role"]["unknown"] <= 0.01 * requested(pool), rows_of(pool, "unknown")[:5]
