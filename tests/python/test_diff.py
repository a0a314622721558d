"""`vramline diff` on real runs of TensorFlow: a regression of a few percent in one layer is found and named, and repeats of a run are
no alarm."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import job_environment

import vramline as package

JOB = Path(__file__).parent / "jobs" / "wider.py"
REPEATS = 10
BATCH, WIDTH, WIDER = 2048, 1000, 1030


@pytest.fixture(scope="module")
def runs(binary, tmp_path_factory):
    """Recordings of the same model ten times, and three times with a layer that is 3 % wider."""
    folder = tmp_path_factory.mktemp("diff")
    environment = job_environment()

    def record(name, width):
        recording = folder / f"{name}.vram"
        command = [binary, "run", "--no-report", "--step-peaks", "-o", recording, "--", sys.executable, JOB, str(width)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        return recording

    jobs = [(f"same-{number}", WIDTH) for number in range(REPEATS)] + [(f"wider-{number}", WIDER) for number in range(3)]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda job: record(*job), jobs))


def diff(binary, *arguments):
    """The exit code and the document."""
    done = subprocess.run([binary, "diff", "--json", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_wider_layer_is_found_and_named(binary, runs):
    same, wider = runs[:REPEATS], runs[REPEATS:]
    _, document = diff(binary, "--repeats", *same, "--repeats", *wider)
    ops = {row["what"]: row for row in document["rows"] if row["by"] == "op"}
    relu = ops["model_1/changed_1/Relu"]
    assert relu["bytes"] == [BATCH * WIDTH * 4, BATCH * WIDER * 4]
    assert (relu["delta_bytes"], relu["spread_bytes"]) == (BATCH * (WIDER - WIDTH) * 4, 0)
    # The verdict names what changed most. At which moment the peak is, threads decide: then a kernel's copy may be more than the layer.
    more = [row["what"] for row in ops.values() if (row["delta_bytes"] or 0) > relu["delta_bytes"] and not row["within_spread"]]
    named = [what for what in more if not what.startswith("(")] or ["model_1/changed_1/Relu (+240 KiB)"]
    assert any(f"op {what}" in document["headline"] for what in named), document["headline"]
    # The layer's weights, slots and gradients grow with it. Its other blocks are there at the peak, or not, as threads decide: repeats differ
    # by them.
    layers = {row["what"]: row for row in document["rows"] if row["by"] == "layer"}
    changed, first = layers["changed"], layers["first"]
    assert changed["delta_bytes"] >= relu["delta_bytes"] - changed["spread_bytes"]
    assert abs(first["delta_bytes"]) <= first["spread_bytes"]


def test_ten_repeats_raise_no_alarm(binary, runs):
    """One run may need a fifth more than the next, when a hole is too small by a hair; repeats tell."""
    same = runs[:REPEATS]
    code, document = diff(binary, "--repeats", *same[:5], "--repeats", *same[5:], "--fail-over", "2%")
    assert (code, document["gate"]) == (0, "pass"), document["alarms"]
    assert [side["repeats"] for side in document["sides"]] == [5, 5]
    for other in same:
        code, document = diff(binary, other, "--repeats", *same, "--fail-over", "2%")
        assert (code, document["gate"]) == (0, "pass"), document["alarms"]
        peak = next(row for row in document["rows"] if row["by"] == "device")
        assert peak["within_spread"] and peak["low_bytes"][0] <= peak["bytes"][1] <= peak["high_bytes"][0]


def test_steps_meet_by_number(binary, runs):
    _, document = diff(binary, runs[0], runs[-1], "--by", "step")
    steps = [row for row in document["rows"] if row["by"] == "step"]
    assert [(row["step"], row["phase"], row["figure"]) for row in steps] == [(n, "train", "peak") for n in range(4)]
    assert all(all(size > 0 for size in row["bytes"]) for row in steps)


def test_python_says_the_same(binary, runs):
    _, document = diff(binary, runs[0], runs[-1])
    compared = package.compare([runs[0], package.load(runs[-1])])
    assert compared.report == document
    assert str(compared).startswith(document["headline"])
    repeated = package.compare([runs[:3], str(runs[-1])])
    assert [side["repeats"] for side in repeated.report["sides"]] == [3, 1]
    with pytest.raises(ValueError, match="two or more"):
        package.compare([runs[0]])
    with pytest.raises(OSError, match="hint"):
        package.compare([runs[0], runs[0] / "missing"])


@pytest.mark.parametrize("kind", [str, Path, os.fsencode, package.load, lambda path: {"before": path}, lambda path: {path}, lambda _: 7])
def test_one_run_is_no_list_of_runs(fixtures, kind):
    """A text is a sequence of letters, and a dictionary one of names: neither is taken for runs."""
    with pytest.raises(TypeError, match=r"runs: expected a list of two or more(.|\n)*hint: "):
        package.compare(kind(fixtures / "tf221_cpu_keras.vram"))
    with pytest.raises(TypeError, match="found 7"):
        package.compare([7, fixtures / "tf221_cpu_keras.vram"])


def test_a_file_of_another_kind_is_no_recording(fixtures, tmp_path):
    snapshot = fixtures / "torch" / "late.pickle.gz"
    with pytest.raises(NotADirectoryError, match=r"late.pickle.gz' is a file, (.|\n)*hint: (.|\n)*vramline report .*late.pickle.gz"):
        package.load(snapshot)
    with pytest.raises(FileNotFoundError, match="no recording at"):
        package.load(tmp_path / "missing.vram")
    with pytest.raises(ValueError, match=r"is a folder, but not a recording\nhint: make a recording with `vramline run`"):
        package.load(tmp_path)
    with pytest.raises(ValueError, match=r"is a folder, but not a recording\nhint: load a recording inside it, such as '.*\.vram'"):
        package.load(fixtures)
