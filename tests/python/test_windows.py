"""Traces after the first one: of what comes later in a program, and those that the program makes of itself.

Each job of `jobs/phases.py` reaches its highest peak after the first steps. What the report explains must be that peak, as TensorFlow
counted it.
"""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import assert_adds_up, job_environment

JOBS = Path(__file__).parent / "jobs"
SECONDS = 200
AT_ONCE = 2
CASES = ["fit", "validation", "predict", "sequence", "rise", "one rise", "fork"]


class Ended:
    """A job that has ended."""

    def __init__(self, binary, folder, done):
        self._binary, self.folder, self.done = binary, folder, done

    @property
    def facts(self):
        return json.loads((self.folder / "facts.json").read_text(encoding="utf-8"))

    def report(self, *options):
        command = [self._binary, "report", self.folder / "job.vram", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert_adds_up(document)
        return document


@pytest.fixture(scope="module")
def ended(binary, tmp_path_factory):
    """Every job, by its name; two at once."""
    root = tmp_path_factory.mktemp("windows")

    def run(name, script, *words, recorded=True):
        folder = root / name.replace(" ", "-")
        folder.mkdir()
        command = [sys.executable, JOBS / script, *words]
        environment = job_environment()
        if recorded:
            command = [binary, "run", "--no-report", "-o", folder / "job.vram", "--", *command]
        else:
            environment["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        return Ended(binary, folder, done)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = {case: pool.submit(run, case, "phases.py", case, "facts.json") for case in CASES}
        started["alone"] = pool.submit(run, "alone", "phases.py", "rise", "facts.json", recorded=False)
        started["own"] = pool.submit(run, "own", "profiles.py", "both", "logs")
        yield {name: job.result() for name, job in started.items()}


def windows(report):
    return [window["opened_for"] for window in report["windows"]]


def near(ours, theirs):
    """The peak of steps that do the same differs by some blocks from step to step."""
    return abs(ours - theirs) <= theirs / 20


@pytest.mark.parametrize(
    ("case", "phase", "fit", "reason"),
    [
        ("fit", "train", 2, "fit"),
        ("validation", "validation", 1, "validation"),
        ("predict", "predict", None, "predict"),
        ("rise", "train", None, "rise"),
    ],
)
def test_the_peak_that_is_explained_is_that_of_the_run(ended, case, phase, fit, reason):
    job = ended[case]
    assert job.done.returncode == 0, job.done.stderr
    report, theirs = job.report(), job.facts["end"]["peak"]
    (pool,) = report["pools"]
    assert pool["lifetime_peak_bytes"] == theirs
    assert near(pool["peak_bytes"], theirs)
    assert pool["window"] > 1
    assert (pool["peak_in"]["phase"], pool["peak_in"]["fit"]) == (phase, fit)
    assert windows(report)[0] == "start"
    assert all(window["state"] == "written" and window["is_read"] for window in report["windows"])
    if reason:
        # A window of some steps may be followed by one for a later step that takes a twentieth more.
        assert windows(report)[pool["window"] - 1] in (reason, "rise")
        assert reason in windows(report)
    # The first line says where that was.
    names = {"train": "training", "validation": "validation", "predict": "prediction"}
    assert f"in {names[phase]} step " in report["headline"]
    assert "No trace covers" not in report["headline"]
    assert [warning["code"] for warning in report["warnings"]] == []
    # Steps that a later trace covers have peaks of their own, the highest of them the trace's.
    shown = report["windows"][pool["window"] - 1]
    covered = [step for step in report["steps"] if shown["begin_ns"] <= step["begin_ns"] < shown["end_ns"]]
    peaks = [step["peak_bytes"] for step in covered if step["peak_bytes"] is not None]
    assert max(peaks) <= pool["peak_bytes"]
    assert near(max(peaks), pool["peak_bytes"])
    # What a replay says is of the trace from the start.
    assert pool["from_start"] is False
    assert pool["replay"]["exact"] is True


def test_longer_sequences_are_traced_again(ended):
    """How much the first longer step holds at once, threads decide: the peak is explained, or the first line says that it is not."""
    report, theirs = ended["sequence"].report(), ended["sequence"].facts["end"]["peak"]
    (pool,) = report["pools"]
    assert pool["lifetime_peak_bytes"] == theirs
    assert {"retrace", "rise"} & set(windows(report)), windows(report)
    assert pool["window"] > 1 and pool["peak_in"]["phase"] == "train"
    assert near(pool["peak_bytes"], theirs) or "No trace covers" in report["headline"], report["headline"]


def test_fits_and_retraces_are_told(ended):
    report = ended["fit"].report()
    assert [(phase["fit"], phase["phase"], phase["steps"]) for phase in report["phases"]] == [(1, "train", 8), (2, "train", 12)]
    assert [(epoch["fit"], epoch["epoch"]) for epoch in report["epochs"]] == [(1, 0), (2, 0), (2, 1)]
    assert {step["fit"] for step in ended["sequence"].report()["steps"]} == {None}
    retraces = [mark for mark in ended["sequence"].report()["marks"] if mark["kind"] == "retrace"]
    assert retraces
    assert all(mark["label"] for mark in retraces)


def test_a_rise_that_never_returns_is_placed_and_not_explained(ended):
    report = ended["one rise"].report()
    (pool,) = report["pools"]
    assert pool["lifetime_peak_bytes"] == ended["one rise"].facts["end"]["peak"]
    assert pool["peak_bytes"] * 20 < pool["lifetime_peak_bytes"]
    assert (pool["rose_in"]["step"], pool["rose_in"]["phase"]) == (9, "train")
    assert ", in training step 9. No trace covers that moment (`vramline run --trace all` would)." in report["headline"]
    assert windows(report) == ["start", "rise"]


def test_a_fork_or_an_exception_in_a_later_window_changes_nothing(ended):
    job = ended["fork"]
    assert job.done.returncode == 1
    assert job.done.stderr.count("RuntimeError: as the test wants it") == 1
    report = job.report()
    assert windows(report) == ["start", "rise", "rise"]
    assert all(window["state"] == "written" for window in report["windows"])
    assert len(report["run"]["processes"]) == 1


def test_the_script_reads_the_same_figures_as_without_us(ended):
    assert ended["alone"].done.returncode == 0, ended["alone"].done.stderr
    # The order of two threads of TensorFlow decides about a block or two.
    ours, theirs = ended["rise"].facts["end"], ended["alone"].facts["end"]
    assert near(ours["peak"], theirs["peak"])
    assert abs(ours["current"] - theirs["current"]) < 16_384


def test_profiles_of_the_programs_own_are_read_where_they_lie(ended, tmp_path):
    job = ended["own"]
    assert job.done.returncode == 0, job.done.stderr
    report = job.report()
    places = [window["path"] for window in report["windows"] if window["opened_for"] == "program"]
    # Of the callback's warm-up nothing is written, and nothing told.
    assert [Path(place).relative_to(job.folder).parts[:2] for place in places] == [
        ("logs", "hand"),
        ("logs", "with"),
        ("logs", "callback"),
        ("logs", "level"),
    ]
    assert all(Path(place).is_absolute() for place in places)
    told = [warning["text"] for warning in report["warnings"] if warning["code"] == "own-profile"]
    assert all(any(place in text for text in told) for place in places)
    # TensorFlow 2.21 records memory whatever level it is given. Where a version does not, the report says which switch would.
    levels = [warning for warning in report["warnings"] if "the program's own profile" in warning["text"]]
    assert all("host_tracer_level=2" in warning["hint"] for warning in levels)
    # Every step that one of the profiles covers has a peak; so have those that we traced, before and between.
    fits = [[step["peak_bytes"] is not None for step in report["steps"] if step["fit"] == fit] for fit in (1, 2, 3)]
    assert fits == [[True] * 2, [True] * 4, [True] * 3]
    # Ours may come after theirs.
    assert windows(report)[0] == "start"
    assert len([reason for reason in windows(report) if reason != "program"]) > 1

    # Moved away: a warning with the path, and the rest as it was.
    moved = tmp_path / "logs"
    shutil.move(job.folder / "logs", moved)
    try:
        missing = [warning["text"] for warning in job.report()["warnings"] if warning["code"] == "own-profile-missing"]
        assert len(missing) == len(places)
        assert all(any(place in text for text in missing) for place in places)
    finally:
        shutil.move(moved, job.folder / "logs")
    # Hidden where names are hidden.
    hidden = json.dumps(job.report("--redact"))
    assert str(job.folder) not in hidden
    assert "plugins/profile" not in hidden
