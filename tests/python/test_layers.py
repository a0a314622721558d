"""Layers and roles of Keras models, against the objects themselves: their variables, their slots, and a tape of what each layer takes and gives."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import recorded_truth
from layers_truth import by_layer, has_layer, has_such_tensors, requested, rows_of, shares

JOB = Path(__file__).parent / "jobs" / "kinds.py"
KINDS = ["sequential", "two_inputs", "subclassed", "nested", "shared", "recurrent", "own_step", "two_optimizers"]
# Built in the first step of a loop of one's own, or with the peak in the step that builds the model.
LATE = ["first_step", "loop", "first_tape", "compiled_loop"]


@pytest.fixture(scope="module", params=[*KINDS, *LATE])
def run(request, binary, vramline, tmp_path_factory):
    """What a model says of itself, and what the report says of its peak."""
    folder = tmp_path_factory.mktemp("layers")
    # A later trace, which a peak that rises by chance opens, knows fewer of the variables that lay there before it.
    told = recorded_truth(binary, folder, JOB, request.param, options=["--trace", "steps=5"])
    pool = vramline(folder / "run.vram")["pools"][0]
    return told, pool


def test_bytes_have_layers(run):
    told, pool = run
    found = shares(told, pool)
    assert found.layer >= 0.95, by_layer(row for row in pool["at_peak"]["rows"] if not has_layer(told, row))
    assert found.right_layer >= 0.95, found


def test_bytes_have_their_roles(run):
    told, pool = run
    assert shares(told, pool).right_role >= 0.99, (pool["at_peak"]["by_role"], rows_of(pool, "unknown")[:5])


def test_parameters_are_the_layers_own(run):
    told, pool = run
    assert by_layer(rows_of(pool, "parameters")) == told["own"]


def test_slots_are_those_of_their_layers(run):
    told, pool = run
    found = by_layer(rows_of(pool, "optimizer"))
    # Counters and rates have no layer.
    assert found.pop("", 0) < 100
    assert all(size <= told["slots"][layer] for layer, size in found.items())
    # Slots that are still zero share their zeros: TensorFlow computes equal constants of a function once.
    assert found.total() >= told["least_slots"]


def test_activations_and_gradients_are_of_layers_that_have_such_tensors(run):
    told, pool = run
    rows = rows_of(pool, "activations", "gradients")
    right = sum(row["bytes"] for row in rows if has_such_tensors(told, row))
    assert right >= 0.95 * sum(row["bytes"] for row in rows)


def test_little_is_unknown(run):
    _, pool = run
    assert pool["at_peak"]["by_role"]["unknown"] <= 0.01 * requested(pool), rows_of(pool, "unknown")[:5]


def test_models_that_are_trained_in_turns_are_told_apart(binary, tmp_path):
    """Both have ops such as `adam/Sqrt_1`; which function runs tells whose."""
    recorded_truth(binary, tmp_path, JOB.with_name("turns.py"))
    subprocess.run([binary, "export", tmp_path / "run.vram", "--to", "json", "-o", tmp_path / "lives.json"], check=True, timeout=60)
    lives = json.loads((tmp_path / "lives.json").read_text())["allocations"]
    # Every tensor as large as a kernel is of that model: what its optimizer computes, too.
    for name, width in (("one", 512), ("two", 300)):
        of_size = [each for each in lives if each["bytes"] == 4 * 64 * width and "/" in each["op"]]
        assert len(of_size) >= 6, of_size
        assert {each["layer"].partition("/")[0] for each in of_size} == {name}, of_size
