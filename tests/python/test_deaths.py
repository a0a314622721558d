"""Jobs that die of memory on purpose: the first sentence names the true cause, and the first advice, followed, makes the job pass.

On TensorFlow's pool for the CPU, under `vramline run --limit`. The same for PyTorch and JAX on a GPU is `tests/gpu/failures.py`; the logs of
those runs are fixtures.
"""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "deaths.py"

# Each death: its argument, the limit in MiB, the verdict, a word that the first sentence has, and what the first advice has.
DEATHS = {
    "far": ("262144", 200, {"limit"}, "limit that was set", "raise the limit"),
    # A little less than what it needs, which is found first.
    "slightly": ("", None, {"limit"}, "limit that was set", "raise the limit"),
    "pieces": ("apart", 64, {"fragmented"}, "fragmented", "free the"),
    "leak": ("tensor", 160, {"limit"}, "grows by", "store numbers, not tensors"),
    # Longer pieces than all before fit into no hole.
    "growing": ("", 96, {"limit", "fragmented"}, "because inputs grow", "limit the input size"),
}


def run(binary, folder, way, argument, limit):
    recording = folder / f"{way}-{argument or 'plain'}-{limit}.vram"
    command = [binary, "run", "--no-report", "--limit", f"{limit}MiB", "-o", recording, "--", sys.executable, JOB, way, argument]
    done = subprocess.run(command, env=job_environment(), capture_output=True, text=True, check=False, timeout=300)
    return done, recording


def needed(binary, recording):
    """The smallest limit in MiB with which a job passes, by replay."""
    asked = [binary, "replay", recording, "--find", "limit", "--json"]
    answer = json.loads(subprocess.run(asked, capture_output=True, text=True, check=False).stdout)
    return answer["what_if"][0]["limit_bytes"] >> 20


@pytest.fixture(scope="module")
def deaths(binary, tmp_path_factory):
    """What `oom` says of each, from its recording."""
    folder = tmp_path_factory.mktemp("deaths")

    def die(way):
        argument, limit, *_ = DEATHS[way]
        if limit is None:
            done, recording = run(binary, folder, way, argument, 1024)
            assert done.returncode == 0, done.stderr
            limit = needed(binary, recording) - 3
        done, recording = run(binary, folder, way, argument, limit)
        assert done.returncode not in (0, 2), f"{way}: {done.stderr}"
        told = subprocess.run([binary, "oom", recording, "--json"], capture_output=True, text=True, check=True)
        return json.loads(told.stdout)

    with ThreadPoolExecutor(3) as threads:
        return dict(zip(DEATHS, threads.map(die, DEATHS), strict=True)), folder


@pytest.mark.parametrize("way", DEATHS)
def test_the_first_sentence_names_the_cause(deaths, way):
    report = deaths[0][way]
    _, _, verdicts, word, first = DEATHS[way]
    assert report["failures"][0]["verdict"] in verdicts, report["headline"]
    assert word in report["headline"], report["headline"]
    assert first in report["failures"][0]["advice"][0]["text"], report["failures"][0]["advice"]


def test_the_first_advice_makes_the_job_pass(binary, deaths):
    reports, folder = deaths

    def wanted(way):
        """The limit that the first advice names, in MiB."""
        text = reports[way]["failures"][0]["advice"][0]["text"]
        return int(re.search(r"to (\d+) MiB or more", text)[1])

    # What is far too large needs more than the request that failed first, and the advice says so; the next is a smaller batch.
    first, second = reports["far"]["failures"][0]["advice"][:2]
    assert "later requests are unknown" in first["text"] and "a smaller batch size" in second["text"]
    followed = {
        "far": ("4096", DEATHS["far"][1]),
        "slightly": ("", wanted("slightly")),
        "pieces": ("joined", DEATHS["pieces"][1]),
        "leak": ("float", DEATHS["leak"][1]),
        "growing": ("16384", DEATHS["growing"][1]),
    }

    def passes(way):
        done, _ = run(binary, folder, way, *followed[way])
        return done

    with ThreadPoolExecutor(3) as threads:
        for way, done in zip(followed, threads.map(passes, followed), strict=True):
            assert done.returncode == 0, f"{way} with {followed[way]}: {done.stderr}"
