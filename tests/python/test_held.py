"""Which objects hold memory on a device: the search, the figures of a cell, what a traceback keeps. With the stand-in for PyTorch on a GPU.

Real kernels with TensorFlow, JAX and PyTorch on the CPU are in tests/integrations/test_notebook.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch_stand_in
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "held.py"
KIB = 1 << 10


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held")
    environment = job_environment(torch_stand_in.install(folder))
    done = subprocess.run([sys.executable, JOB], env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_each_block_counts_once_and_is_freed_by_its_last_name(told):
    found = told["objects"]
    assert found["complete"]
    # The weight, which another name has too, and its gradient, which that name leads to as well.
    assert found["model"] == [128 * KIB, 0] and found["alias"] == [0, 0]
    assert found["function"] == [4 * KIB, 4 * KIB] and found["started"] == [16 * KIB, 16 * KIB] and found["default"] == [2 * KIB, 2 * KIB]
    assert "number" not in found
    assert found["bytes"] == (128 + 4 + 16 + 2) * KIB


def test_namespaces_types_and_modules_lead_nowhere(told):
    assert told["namespace"] == {"bytes": 0, "complete": True}


def test_a_deep_structure_is_searched_and_a_huge_one_is_given_up(told):
    assert told["deep"] == {"bytes": 32 * KIB, "complete": True, "chain": [32 * KIB, 32 * KIB]}
    assert told["budget"] == {"bytes": 0, "complete": False}


def test_a_cell_has_the_figures_of_the_allocator(told):
    cell = told["cell"]
    assert cell["equal"] == ["GPU:0", True, True, True]
    assert cell["change"] == cell["named"] == 100 * KIB
    assert "on GPU:0 (PyTorch); 100 KiB stay: " in cell["text"]
    # What no name has here is a row of its own, so that the sizes add up to what is in use.
    assert "no name" in cell["text"] and "in use" in cell["text"]


def test_a_traceback_keeps_what_no_name_has(told):
    device, error, size, rows = told["kept"]
    assert (device, error, size) == ("GPU:0", "ValueError", 64 * KIB)
    assert rows == [["passed in inner()", 40 * KIB], ["mine in inner()", 24 * KIB]]
    # What has a name is not freed with the traceback.
    assert told["kept beside a name"] == [24 * KIB]
