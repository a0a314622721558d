"""Host memory in the place of a device's: a tensor that is deleted, the peak of a block, whose limit it is, and two jobs side by side.

Two runs of one script: as people start it, and with a limit. Everything is compared with TensorFlow's own `get_memory_info`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import assert_adds_up, job_environment

JOB = Path(__file__).parent / "jobs" / "deletes.py"
MIB = 1 << 20
GIB = 1 << 30


def run(*command, **variables):
    return subprocess.run(command, env=job_environment(**variables), capture_output=True, text=True, check=False, timeout=200)


class Recorded:
    """A run of the script, what it was told, and its report."""

    def __init__(self, binary, folder, *options):
        self.path = folder / "job.vram"
        facts = folder / "facts.json"
        done = run(binary, "run", "--no-report", *options, "-o", self.path, "--", sys.executable, JOB, facts, folder)
        assert done.returncode == 0, done.stderr
        self.facts = json.loads(facts.read_text())
        told = run(binary, "report", self.path, "--json")
        assert told.returncode == 0, told.stderr
        self.report = json.loads(told.stdout)
        assert_adds_up(self.report)
        self.text = run(binary, "report", self.path, "--full").stdout
        self.pool = self.report["pools"][0]

    def line(self, word):
        (line,) = [line for line in self.report["ledger"] if line["line"] == word]
        return line


@pytest.fixture(scope="module")
def plain(binary, tmp_path_factory):
    return Recorded(binary, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def limited(binary, tmp_path_factory):
    return Recorded(binary, tmp_path_factory.mktemp("limited"), "--limit", "300MiB")


def test_a_deleted_tensor_is_gone_at_once_and_waiting_changes_nothing(plain):
    moments = plain.facts["script"]
    assert moments["allocated"]["current"] - moments["start"]["current"] == 64 * MIB
    assert moments["deleted"]["current"] == moments["later"]["current"] == moments["start"]["current"]
    assert moments["later"]["peak"] == moments["allocated"]["peak"]
    # The peak of the run is that one, although the script's own peak was reset many times since.
    assert plain.pool["peak_bytes"] == plain.pool["lifetime_peak_bytes"] == moments["allocated"]["peak"]


def test_a_deletion_is_told_as_what_it_is(plain):
    deleted = plain.facts["watched"]["deleted"]
    assert deleted["change"] == deleted["truth"] == -16 * MIB
    assert "given back to the pool: 16,777,216 bytes; TensorFlow reuses them" in deleted["text"]
    assert "given back to the system: 0 bytes; TensorFlow's pool keeps the memory that it reserved" in deleted["text"]
    assert "to give them back to the system: end the process" in deleted["text"]
    for text in (deleted["text"], json.dumps(plain.report["findings"])):
        assert "fragment" not in text
    assert "given back to the pool" in deleted["html"]


def test_a_block_has_its_own_peak(plain):
    watched = plain.facts["watched"]
    lower = watched["lower"]
    assert lower["peak"] == lower["truth"]["peak"] < lower["before"]
    assert f"peak inside the block: {lower['peak']:,} bytes" in lower["text"]
    # A watch inside resets the peak; the outer one keeps its own.
    outer, inner = watched["outer"], watched["inner"]
    assert outer["peak"] == outer["truth"]["peak"] > outer["after"] == inner["peak"] == inner["truth"]["peak"]
    assert watched["nothing"]["peak"] == watched["nothing"]["truth"]["current"]


def test_a_peak_that_is_not_reset_is_known_where_it_rises(plain):
    kept, risen = plain.facts["watched"]["not reset"], plain.facts["watched"]["risen"]
    assert kept["truth"]["peak"] == kept["whole"]
    assert kept["peak"] is None and f"at most {kept['whole']:,} bytes, the peak before the block" in kept["why"]
    assert f"peak inside the block: unknown ({kept['why']})" in kept["text"]
    assert risen["peak"] == risen["truth"]["peak"] > risen["before"] and risen["why"] is None


def test_a_peak_that_somebody_else_resets_is_not_known(plain):
    stepped = plain.facts["watched"]["stepped"]
    assert (stepped["peak"], stepped["why"]) == (None, "the peak was reset inside the block")


def test_the_ledger_stands_at_the_peak_of_the_tables(plain):
    ledger, held = plain.report["ledger"], plain.pool["at_peak"]
    assert {line["moment"] for line in ledger} == {"peak"}
    assert {line["at_ns"] for line in ledger} == {plain.pool["peak_at_ns"] + 1}
    assert plain.line("in use")["bytes"] == held["in_use_bytes"] == plain.pool["peak_bytes"]
    for role, bytes_ in held["by_role"].items():
        assert sum(line["bytes"] for line in ledger if line["line"] == role) == bytes_
    pool = plain.line("pool")
    assert (pool["bytes"], pool["source"]) == (plain.pool["replay"]["pool_at_peak_bytes"], "replay")
    assert plain.line("cached free")["bytes"] == plain.pool["replay"]["cached_at_peak_bytes"]
    for place, line in enumerate(ledger):
        parts = [part["bytes"] for part in ledger if part["part_of"] == place and part["bytes"] is not None]
        assert line["bytes"] is None or not parts or sum(parts) == line["bytes"], line
    assert "(host memory) at" in plain.text and ", the peak" in plain.text


def test_host_memory_has_no_driver_and_python_is_no_context(plain):
    for line in plain.report["ledger"]:
        assert line["source"] != "driver" and "context" not in line["line"], line
    for word in ("device total", "free", "this job"):
        assert (plain.line(word)["source"], plain.line(word)["bytes"] > 0) == ("host", True)
    own = plain.line("the program's own")
    assert own["bytes"] > 10 * MIB and "Python" in own["detail"]
    assert plain.line("this job")["told_at_ns"] is not None


def test_a_default_that_nobody_set_is_no_limit(plain):
    assert (plain.pool["limit_bytes"], plain.pool["limit_by"]) == (64 * GIB, "built-in")
    assert plain.report["verdict"]["limit_bytes"] is None
    sentences = [plain.report["headline"], *plain.report["explanation"]]
    assert not any("limit" in sentence or "64.0 GiB" in sentence for sentence in sentences), sentences
    assert "64.0 GiB (built-in)" in plain.text
    assert plain.facts["limit"] == {"bytes": 64 * GIB, "by": "built-in", "why": None}


def test_a_limit_of_the_user_is_one(limited):
    assert (limited.pool["limit_bytes"], limited.pool["limit_by"]) == (300 * MIB, "run")
    assert limited.report["verdict"]["limit_bytes"] == 300 * MIB
    assert "of its limit of 300 MiB" in " ".join([limited.report["headline"], *limited.report["explanation"]])
    assert limited.facts["limit"] == {"bytes": 300 * MIB, "by": "run", "why": None}


def test_two_jobs_share_host_memory(plain, limited, binary):
    done = run(binary, "pack", "--json", f"a={plain.path}", f"b={limited.path}")
    document = json.loads(done.stdout)
    assert document["device"]["is_host"] and document["device"]["name"] == "host memory"
    assert document["device"]["total_bytes"] == plain.line("device total")["bytes"]
    assert document["device"]["reserved_bytes"] == 0
    for job, recorded in zip(document["jobs"], (plain, limited), strict=True):
        assert job["outside_bytes"] == recorded.line("the program's own")["bytes"]
        assert job["minimum_bytes"] >= recorded.pool["peak_bytes"]
    text = run(binary, "pack", f"a={plain.path}", f"b={limited.path}").stdout
    assert "outside the pool" in text and "contexts" not in text, text
