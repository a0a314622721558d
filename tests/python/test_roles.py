"""Roles of programs without Keras: only a variable is a parameter, and what the program holds across steps is its state."""

from pathlib import Path

import pytest
from conftest import recorded_truth

JOB = Path(__file__).parent / "jobs" / "plain.py"


@pytest.fixture(scope="module", params=["tensors", "eager", "function", "eager without names", "function without names"])
def run(request, binary, vramline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    told = recorded_truth(binary, folder, JOB, request.param)
    return told, vramline(folder / "run.vram")["pools"][0]


def test_no_byte_has_a_wrong_role(run):
    told, pool = run
    roles = pool["at_peak"]["by_role"]
    assert pool["lifetime_peak_bytes"] == told["peak"]
    for role in ("parameters", "optimizer", "gradients"):
        if role in told:
            assert roles[role] == told[role]
    for role, least in told.get("least", {}).items():
        assert roles[role] >= least
    for role, most in told.get("most", {}).items():
        # Handles, and scalars such as a loss that the loop still holds.
        assert roles[role] <= most + 2_000


def test_variables_have_their_own_names(run):
    told, pool = run
    found = {}
    for row in pool["at_peak"]["rows"]:
        if row["variable"] and row["role"] in ("parameters", "state"):
            name = row["variable"].partition(":")[0]
            found[name] = found.get(name, 0) + row["bytes"]
    assert found == told.get("variables", {})


def test_code_without_layers_has_lines(run):
    _, pool = run
    rows = pool["at_peak"]["rows"]
    told = sum(row["bytes"] for row in rows if row["source"].startswith("plain.py:"))
    assert told >= 0.95 * sum(row["bytes"] for row in rows), [row for row in rows if not row["source"]][:5]
