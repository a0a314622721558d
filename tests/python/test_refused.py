"""Jobs that meet the limit of their pool: those that died are not said to fit, those that went on are no failures.

The jobs of `jobs/refuses.py` run under `vramline run --limit`, as a user runs them, all at once: TensorFlow waits ten seconds before it
gives up. The truth of a limit is found by running the job under it.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "refuses.py"
POOL = "bfc_cpu_allocator_for_gpu"
MIB = 1 << 20

# Each situation with its limit in MiB and what the job ends with.
SITUATIONS = {"caught": (64, 0), "waits": (64, 0), "last": (80, 1), "step": (40, 1), "reraised": (64, 1)}


class Ended:
    def __init__(self, binary, folder, situation, limit):
        self.recording = folder / f"{situation}-{limit}.vram"
        self._binary = binary
        # oneDNN's product goes on without the memory it did not get, and the process dies of that.
        variables = {"TF_ENABLE_ONEDNN_OPTS": "0"} if situation == "step" else {}
        command = [binary, "run", "--no-report", "--limit", f"{limit}MiB", "-o", self.recording, "--", sys.executable, JOB]
        self.done = subprocess.run(
            [*command, situation],
            env=job_environment(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def asked(self, verb, *arguments, code=0):
        command = [self._binary, verb, self.recording, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def json(self, verb, *arguments, code=0):
        return json.loads(self.asked(verb, "--json", *arguments, code=code))


@pytest.fixture(scope="module")
def ends(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    with ThreadPoolExecutor(len(SITUATIONS)) as threads:
        jobs = {
            situation: threads.submit(Ended, binary, folder, situation, limit)
            for situation, (limit, _) in SITUATIONS.items()
        }
        ends = {situation: job.result() for situation, job in jobs.items()}
    for situation, ended in ends.items():
        assert ended.done.returncode == SITUATIONS[situation][1], ended.done.stderr
    return ends


def codes(document):
    return {warning["code"] for warning in document["warnings"]}


# --- Jobs that died ---


@pytest.mark.parametrize("situation", ["last", "step"])
def test_a_job_that_died_does_not_fit(ends, situation):
    ended, limit = ends[situation], SITUATIONS[situation][0]
    settings = ["--what-if", f"limit={limit}MiB", "--what-if", "limit=8GiB", "--what-if", "limit=8GiB,growth=off"]
    document = ended.json("replay", *settings, "--find", "limit")
    pool = document["pools"][0]
    assert pool["exact"] and pool["name"] == POOL
    early = pool["ended_early"]
    (failure,) = ended.json("oom")["failures"]
    assert (early["requested_bytes"], early["op"]) == (failure["requested_bytes"], failure["op"])
    assert early["pool"] == POOL and early["after_ns"] is not None
    same, large, taken, found = document["what_if"]
    assert same["fits"] is not True and same["recorded_fits"] is not True
    assert same["failed"]["asked_bytes"] == failure["requested_bytes"]
    assert same["failed"]["op"] == failure["op"]
    for row in (large, taken, found):
        assert (row["fits"], row["recorded_fits"], row["is_lower_bound"]) == (None, True, True)
    reasons = {unknown["path"]: unknown["reason"] for unknown in document["unknowns"]}
    assert "ended early" in reasons["what_if[1].fits"]
    assert found["limit_bytes"] > limit * MIB
    assert "failed" in document["headline"] and "unknown" in document["headline"]
    # Not certain is 4, and no is 3.
    ended.asked("replay", "--gate", "fits", "--what-if", "limit=8GiB", code=4)
    ended.asked("replay", "--gate", "fits", "--what-if", "limit=1MiB", code=3)
    text = ended.asked("replay", "--find", "limit")
    assert "so far" in text and "The run ended when" in text and "smallest that fits" not in text


def test_the_limit_of_a_job_that_dies_at_its_peak_is_enough(ends, binary, tmp_path):
    (found,) = ends["last"].json("replay", "--find", "limit")["what_if"]
    least = found["limit_bytes"] // MIB
    with ThreadPoolExecutor(2) as threads:
        below, enough = threads.map(lambda limit: Ended(binary, tmp_path, "last", limit), [least - 1, least])
    assert below.done.returncode == 1, "a lower limit is enough"
    assert enough.done.returncode == 0, enough.done.stderr
    # A run that was done says so, and of the same limit.
    whole = enough.json("replay", "--find", "limit")
    assert whole["pools"][0]["ended_early"] is None
    assert whole["what_if"][0]["fits"] is True
    assert whole["what_if"][0]["limit_bytes"] == found["limit_bytes"]


def test_a_job_that_died_is_packed_with_a_lower_bound(ends):
    document = ends["last"].json("pack", "--device-memory", "8GiB", code=4)
    (job,) = document["jobs"]
    assert document["fits"] is None
    assert job["basis"] == "lower-bound"
    assert "ended-early" in codes(document)
    (found,) = ends["last"].json("replay", "--find", "limit")["what_if"]
    assert job["minimum_bytes"] == found["limit_bytes"]


@pytest.mark.parametrize("situation", ["last", "step", "reraised"])
def test_a_failure_that_ended_the_job_is_said_first(ends, situation, vramline):
    ended = ends[situation]
    document = ended.json("oom")
    (failure,) = document["failures"]
    assert failure["outcome"] == "ended-job"
    assert document["verdict"]["word"] == failure["verdict"] == "limit"
    assert failure["attempts"] >= 4
    report = vramline(ended.recording)
    assert report["verdict"]["word"] == "out-of-memory"
    assert report["headline"].startswith("Out of memory (")
    assert failure["op"] and failure["op"] in report["headline"]
    # The graph's own name of the op, not only that of the function around it.
    assert situation != "step" or ("/" in failure["op"] and "__inference" not in failure["op"])


def test_what_was_held_then_has_the_names_of_the_trace(ends):
    (failure,) = ends["last"].json("oom")["failures"]
    held = {(holder["requested_bytes"], holder["op"]) for holder in failure["holders"]}
    assert {(20 * MIB, "Fill"), (3 * MIB, "Fill")} <= held
    (failure,) = ends["step"].json("oom")["failures"]
    named = sum(holder["bytes"] for holder in failure["holders"] if holder["op"])
    assert named >= 0.9 * sum(holder["bytes"] for holder in failure["holders"])


# --- Jobs that went on ---


def test_failures_that_were_caught_are_no_alarm(ends, vramline):
    ended = ends["caught"]
    report = vramline(ended.recording)
    assert report["verdict"]["word"] in ("fits", "full")
    assert "out of memory" not in report["headline"].lower()
    (note,) = [warning for warning in report["warnings"] if warning["code"] == "refused-at-first"]
    assert note["text"] == f"the job went on: 2 allocations (96.0 MiB, 80.0 MiB) in {POOL} failed"
    assert "out-of-memory" not in codes(report)
    document = ended.json("oom")
    assert document["verdict"]["word"] == "went-on"
    assert document["headline"].startswith("The job went on: ")
    assert [failure["outcome"] for failure in document["failures"]] == ["went-on"] * 2
    assert [failure["requested_bytes"] for failure in document["failures"]] == [96 * MIB, 80 * MIB]
    assert [failure["op"] for failure in document["failures"]] == ["Fill"] * 2
    assert all(failure["verdict"] and failure["attempts"] == 4 for failure in document["failures"])
    assert "The job went on: " in ended.asked("oom")
    # The run is whole: what it asked for is all that it asks for.
    found = ended.json("replay", "--what-if", "limit=8GiB", "--find", "limit")
    assert found["pools"][0]["ended_early"] is None
    assert [row["fits"] for row in found["what_if"]] == [True, True]


def test_a_request_that_waited_and_was_served_is_no_failure(ends, vramline):
    ended = ends["waits"]
    report = vramline(ended.recording)
    assert "out-of-memory" not in codes(report) and report["verdict"]["word"] != "out-of-memory"
    (note,) = [warning for warning in report["warnings"] if warning["code"] == "refused-at-first"]
    assert note["text"] == (
        f"the job went on: 1 allocation (50.0 MiB) in {POOL} failed at first and succeeded later"
    )
    document = ended.json("oom")
    (failure,) = document["failures"]
    assert (failure["outcome"], document["verdict"]["word"]) == ("served-later", "went-on")
    assert (failure["requested_bytes"], failure["op"]) == (50 * MIB, "Fill")
    assert failure["attempts"] >= 2 and not failure["advice"]
