"""Roles of programs without Keras: only a variable is a parameter, and what the program holds across steps is its state."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "plain.py"


@pytest.fixture(scope="module", params=["tensors", "eager", "function"])
def run(request, binary, vramline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    command = [binary, "run", "-o", folder / "run.vram", "--", sys.executable, JOB, request.param]
    done = subprocess.run(command, env=job_environment(), cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"mode"'))
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
    # A value that was computed in this step and is about to be assigned may still have its op's name only.
    variables = told.get("variables", {})
    assert all(size == variables[name] for name, size in found.items()), found
    assert len(found) >= len(variables) / 2


def test_code_without_layers_has_lines(run):
    _, pool = run
    rows = pool["at_peak"]["rows"]
    told = sum(row["bytes"] for row in rows if row["source"].startswith("plain.py:"))
    assert told >= 0.95 * sum(row["bytes"] for row in rows), [row for row in rows if not row["source"]][:5]
