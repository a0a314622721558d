"""Keras models in a loop without a graph: whose gradients are whose, and which steps there are."""

from collections import Counter
from pathlib import Path

import pytest
from conftest import recorded_truth

JOB = Path(__file__).parent / "jobs" / "eager.py"


@pytest.fixture(scope="module")
def run(binary, vramline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("eager")
    told = recorded_truth(binary, folder, JOB)
    return told, vramline(folder / "run.vram")


def of_role(report, role):
    found = Counter()
    for row in report["pools"][0]["at_peak"]["rows"]:
        if row["role"] == role:
            found[row["layer"]] += row["bytes"]
    return found


def test_the_peak_is_the_frameworks(run):
    told, report = run
    assert report["pools"][0]["lifetime_peak_bytes"] == told["peak"]


def test_models_with_the_same_name_are_told_apart(run):
    told, report = run
    for role in ("parameters", "optimizer"):
        found = of_role(report, role)
        assert {layer: found[layer] for layer in told["kernels"] if found[layer] < told["kernels"][layer]} == {}, found
        # Biases, and counters of the optimizers.
        assert found.total() <= 1.1 * sum(told["kernels"].values())


def test_gradients_belong_to_layers(run):
    told, report = run
    found = of_role(report, "gradients")
    of_layers = sum(size for layer, size in found.items() if layer in told["kernels"])
    # That of the loss has none.
    assert of_layers >= 0.95 * found.total(), found


def test_gradients_that_the_program_still_holds_are_no_state(run):
    told, report = run
    assert of_role(report, "gradients").total() >= sum(size for layer, size in told["kernels"].items() if layer.startswith("net (2)"))
    # The data of the program, handles, and scalars.
    assert of_role(report, "state").total() <= told["data"] + 20_000, of_role(report, "state")
    assert report["pools"][0]["at_peak"]["by_role"]["unknown"] < 1_000


def test_a_step_of_the_program_is_one_step(run):
    """Two updates of optimizers in each are no steps of their own."""
    told, report = run
    assert [(step["step"], step["how"]) for step in report["steps"]] == [(number, "api") for number in range(told["steps"])]
