"""The Python API as people type it: each thing works, or says what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "typed.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return run(tmp_path_factory.mktemp("typed"), TF_CPU_ALLOCATOR_USE_BFC="1")


def run(folder, **variables):
    # Not lean: one of them draws.
    environment = job_environment(lean=False, MPLBACKEND="agg", **variables)
    done = subprocess.run([sys.executable, JOB], env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"printed": done.stdout}


def test_a_peak_that_is_not_there_yet_is_reset(told):
    for name in ("reset before anything", "reset before the first tensor"):
        assert told[name] == {"given": None, "said": "", "warned": []}
    assert told["no such peak"]["raised"].startswith("LookupError: no device GPU:7 in use; devices in use: CPU:0")


def test_devices_may_be_one_and_are_checked(told):
    assert told["one device"]["given"] == ["CPU:0"]
    # Once, though there were two trainings.
    assert told["no such device"]["said"] == "vramline: MemoryCallback: no device GPU:7 is in use; devices in use: CPU:0\n"


def test_batches_are_a_list(told):
    for name, found in (("a number", "5"), ("a word", "'every'")):
        raised = told[name]["raised"]
        assert raised.startswith(f'ValueError: batches: expected "all", a list of batch numbers or None, found {found}\nhint: batches=[5] ')
    assert told["a range"]["given"] == [0, 5]


def test_the_class_is_no_callback(told):
    assert told["the class"]["raised"] == (
        "TypeError: callbacks: expected an object, found the class MemoryCallback\nhint: callbacks=[MemoryCallback()]"
    )


@pytest.mark.parametrize("place", ["before", "behind"])
def test_every_callback_sees_the_figures(told, place):
    figures = [f"vram_{name}_{unit}" for name in ("current", "peak") for unit in ("gib", "mib")]
    given = told[f"csv {place}"]["given"]
    # Keras makes a column for each with validation too.
    assert [column for column in given["columns"] if not column.startswith("val_")] == ["epoch", "loss", *figures]
    assert given["history"] == ["loss", *figures]


def test_what_is_printed_has_a_fitting_unit(told):
    lines = [line for line in told["printed"].splitlines() if line.startswith("Epoch 1 end: CPU:0 peak ")]
    assert lines and all(" KiB, in use " in line for line in lines), told["printed"]


def test_a_name_that_is_taken_is_told(told):
    # One program goes on in its own recording.
    assert (told["recorded"]["given"], told["recorded again"]["given"]) == ("run.vram", "run.vram")
    assert told["an older one"]["warned"] == ["'x-2.vram' is newer than 'x.vram', whose name was already taken when it was recorded"]
    assert told["the newest"] == {"given": "x-2.vram", "said": "", "warned": []}


def test_nothing_to_draw_is_said(told):
    raised = told["no roles"]["raised"]
    assert raised.startswith("ValueError: by: the runs have no role in common to plot, expected ") and "\nhint: " in raised


def test_notebooks_show_tables(told):
    for shown in told["notebook"].values():
        assert shown.startswith("<div><p>") and "<table>" in shown


def test_a_device_that_is_not_counted_is_said_once(tmp_path):
    """Without its pool TensorFlow counts nothing on the CPU, unless it uses oneDNN, which has an allocator that counts."""
    said = run(tmp_path, TF_ENABLE_ONEDNN_OPTS="0")["one device"]["said"]
    assert said.startswith("vramline: MemoryCallback: CPU:0 is not measured: TensorFlow does not count the memory of this device: ")
    assert said.count("\n") == 1 and "TF_CPU_ALLOCATOR_USE_BFC=1" in said
