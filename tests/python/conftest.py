"""Fixtures of the tests against real frameworks: the tool, run as a user runs it, and the recorded traces.

Every report that passes through here has its identities checked, whatever the test wants of it.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

# A shell starts what runs in its background with interrupts ignored, and so would be every job started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# So does `nohup` with hang-ups.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# TensorFlow reads it when it is imported, which some test modules do.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Assertions of the helper explain themselves like those of the tests.
pytest.register_assert_rewrite("xplane_truth", "layers_truth", "exposition")

REPOSITORY = Path(__file__).resolve().parents[2]
ABSENT = Path(__file__).parent / "absent"


def job_environment(*paths, lean=True, **variables):
    """The environment of a job, with these paths to import from and these variables.

    Settings of whoever runs the tests do not decide what is tested. The exception is oneDNN: TensorFlow uses its kernels on
    some processors and not on others, the tests must pass with both, and this variable chooses.
    TensorFlow imports JAX, Matplotlib and pandas where they are installed, a third of its start; a `lean` job has none of them.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "TF_ENABLE_ONEDNN_OPTS" or not name.startswith(("TF_", "KERAS_"))
    }
    searched = [*paths, *([ABSENT] if lean else []), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(map(str, searched)),
    } | variables


def recorded_truth(binary, folder, job, *arguments, options=()):
    """Runs a job under `vramline run`, into `folder/run.vram`, and gives the line of JSON in which it says what is true of it."""
    command = [binary, "run", "-o", folder / "run.vram", *options, "--", sys.executable, job, *arguments]
    done = subprocess.run(command, env=job_environment(), cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


# The files that take longest, which begin first: a worker takes a file at a time, and none shall be left with a long one.
LONGEST = ["within", "tensorflow", "run", "examples", "page", "plan", "serve", "crash", "replay", "oom", "diff"]


def pytest_collection_modifyitems(items):
    order = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.module.__name__, len(order)))


def pytest_configure(config):
    config.addinivalue_line("markers", "job(*names): the jobs of recorded_jobs.py whose end the test looks at")


@pytest.fixture(scope="session")
def fixtures():
    """The folder of recorded traces."""
    return REPOSITORY / "fixtures"


@pytest.fixture(scope="session")
def binary():
    """The tool: $VRAMLINE_BIN, else the release build of this checkout."""
    told = os.environ.get("VRAMLINE_BIN")
    path = Path(told) if told else REPOSITORY / "target" / "release" / "vramline"
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not there or cannot be run: cargo build --release, or set VRAMLINE_BIN", pytrace=False)
    return path


@pytest.fixture(scope="module")
def ends(request, binary, tmp_path_factory):
    """Jobs of recorded_jobs.py by name, started or waiting to be: those of the chosen tests of a file."""
    # It imports this file.
    from recorded_jobs import started

    items = [item for item in request.session.items if item.path == request.path]
    names = {name for item in items for mark in item.iter_markers("job") for name in mark.args}
    with started(names, binary, tmp_path_factory.mktemp("jobs")) as found:
        yield found


@pytest.fixture
def jobs(request, ends):
    """The jobs that the test names, ended."""
    return [ends[name].result() for mark in request.node.iter_markers("job") for name in mark.args]


@pytest.fixture
def job(jobs):
    (only,) = jobs
    return only


@pytest.fixture(scope="session")
def vramline(binary):
    """A function: `vramline report PATH --json [ARGUMENTS]`, parsed and checked."""

    def report(path, *arguments):
        command = [binary, "report", path, "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert_adds_up(document)
        return document

    return report


def assert_adds_up(report):
    """The identities that hold in every report, by design."""
    for pool in report["pools"]:
        # Without a trace nothing is known of what a pool held.
        if pool["at_peak"] is None:
            assert not pool["allocs"]
            continue
        assert pool["at_peak"]["in_use_bytes"] == pool["peak_bytes"]
        assert pool["at_peak"]["time_ns"] == pool["peak_at_ns"]
        for held in (pool["at_peak"], pool.get("at")):
            if held is not None:
                assert_held_adds_up(held)


def assert_held_adds_up(held):
    requested = held["named_bytes"] + held["unnamed_bytes"]
    assert requested + held["slack_bytes"] + held["before_recording_bytes"] == held["in_use_bytes"]
    assert sum(held["by_role"].values()) == requested
    listed = sum(row["bytes"] for row in held["rows"])
    if "rest" in held:
        assert listed + held["rest"]["bytes"] == requested
    else:
        assert listed == requested
        by_role = Counter(dict.fromkeys(held["by_role"], 0))
        for row in held["rows"]:
            by_role[row["role"]] += row["bytes"]
        # A row that joins several roles has none.
        assert "" in by_role or by_role == held["by_role"]
    assert all(size >= 0 for size in held["by_role"].values())
    assert all(row["bytes"] >= 0 and row["count"] > 0 and row["slack_bytes"] >= 0 for row in held["rows"])
