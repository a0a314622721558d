"""Memory that grows is told by what it grows with: fits, traces of functions, inputs, or every step; and by what is kept."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "grows.py"
RULES = ("leak", "staircase", "growing-inputs")


class Grown:
    """A case of `grows.py` under `vramline run`."""

    def __init__(self, folder, binary, case):
        self.path = folder / f"{case}.vram"
        command = [binary, "run", "--no-report", "-o", self.path, "--", sys.executable, JOB, case]
        environment = job_environment()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        self.counted = [int(number) for number in done.stdout.split()]
        report = subprocess.run([binary, "report", "--json", self.path], capture_output=True, text=True, check=True, timeout=60)
        self.report = json.loads(report.stdout)
        self.findings = {finding["rule"]: finding for finding in self.report["findings"]}
        self.grows = [rule for rule in self.findings if rule in RULES]
        self.pool = max(self.report["pools"], key=lambda pool: pool["peak_bytes"])


@pytest.fixture(scope="module")
def grown(tmp_path_factory, binary):
    """A function: the case of that name, run once."""
    folder = tmp_path_factory.mktemp("grown")
    ran = {}

    def case(name):
        if name not in ran:
            ran[name] = Grown(folder, binary, name)
        return ran[name]

    return case


def size_of(text):
    """The bytes of a size as reports write it."""
    number, unit = re.fullmatch(r"([\d.]+) (B|KiB|MiB|GiB)", text).groups()
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)


def test_models_in_a_list_are_a_stair_with_each_fit(grown):
    job = grown("models")
    assert job.grows == ["staircase"], job.report["findings"]
    found = job.findings["staircase"]
    assert "at fits 2, 3 and 4." in found["text"]
    # TensorFlow's own counter, at the end of each fit.
    ends = job.counted[5::6]
    assert len(ends) == 4
    assert found["bytes"] == pytest.approx(ends[-1] - ends[0], rel=0.05), (found, ends)
    rise = size_of(re.search(r"grows by ([\d.]+ \w+) with", found["text"]).group(1))
    assert rise == pytest.approx((ends[-1] - ends[0]) / 3, rel=0.2), (found, ends)
    assert "clear_session" in found["fix"]
    assert "net512/dense/kernel float32[512,512] (4 instead of 1, " in found["text"], found


def test_a_model_that_is_fitted_again_is_none(grown):
    job = grown("same_model")
    assert job.grows == [], job.report["findings"]
    # Every step asks for what the one before asked for.
    patterns = job.pool["patterns"]
    assert patterns["repeated_bytes"] > 0.9 and patterns["steady_from_step"] is not None, patterns
    assert patterns["churning_ops"] == 0 and patterns["churning"] == []
    assert patterns["padded_pool_bytes"] == patterns["pool_bytes"]


def test_a_variable_more_with_each_step_is_a_leak(grown):
    job = grown("variables")
    assert job.grows == ["leak"], job.report["findings"]
    slope = size_of(re.search(r"grows by ([\d.]+ \w+) per step", job.findings["leak"]["text"]).group(1))
    assert slope == pytest.approx((job.counted[-1] - job.counted[10]) / (len(job.counted) - 11), rel=0.05)
    assert "moving_average:0 float32[65536] (" in job.findings["leak"]["text"], job.findings["leak"]


def test_a_function_that_is_traced_again_is_a_stair_with_each_trace(grown):
    job = grown("retraces")
    assert job.grows == ["staircase"], job.report["findings"]
    found = job.findings["staircase"]
    assert "with each retrace of a tf.function" in found["text"] and "Retraced: train (" in found["text"], found
    assert "reduce_retracing=True" in found["fix"]
    assert found["bytes"] == pytest.approx(job.counted[-1] - job.counted[0], rel=0.2), (found, job.counted)


def test_longer_inputs_are_no_leak(grown):
    job = grown("longer")
    assert job.grows == ["growing-inputs"], job.report["findings"]
    found = job.findings["growing-inputs"]
    assert "not a leak" in found["text"] and "These ops request more in each traced step" in found["text"], found
    assert "float(loss)" not in found["fix"]
    # The trace shows it: activations of each step are larger than those of the one before. Layers have the names of the tables.
    sizes = {op["layer"]: op for op in job.pool["patterns"]["churning"]}
    assert {"conv1d", "dense", "input data"} <= set(sizes) <= {"conv1d", "dense", "input data", "loss"}, sizes
    assert all(op["sizes"] >= 3 and op["smallest_bytes"] < op["largest_bytes"] for op in sizes.values()), sizes


def test_sequences_of_any_length_churn(grown):
    job = grown("ragged")
    assert job.grows == [], job.report["findings"]
    patterns = job.pool["patterns"]
    assert patterns["repeated_bytes"] < 0.5 and patterns["steady_from_step"] is None, patterns
    assert patterns["churning_ops"] > 3
    for op in patterns["churning"]:
        assert op["sizes"] >= 3 and op["smallest_bytes"] <= op["largest_bytes"] <= op["total_bytes"], op
    # Activations of the convolution are as long as the sequences.
    assert "conv1d" in {op["layer"] for op in patterns["churning"]}, patterns
    assert patterns["pool_bytes"] == job.pool["replay"]["pool_bytes"]
    assert patterns["padded_pool_bytes"] is not None
