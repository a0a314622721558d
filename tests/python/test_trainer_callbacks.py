"""The callbacks for Hugging Face's and Lightning's trainers with fakes of their interfaces, and what is said where a package is missing.

The fakes and a stand-in for PyTorch keep this quick; `tests/integrations/test_trainer_callbacks.py` has the real trainers and trackers.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import job_environment
from torch_stand_in import install

HERE = Path(__file__).parent
MIB = 1 << 20
GIB = 1 << 30
KEPT = 2 * MIB


def python(folder, *arguments):
    environment = job_environment(install(folder), HERE / "fakes")
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    done = python(folder, HERE / "jobs" / "trainer_callbacks.py", folder)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    return json.loads(last) | {"printed": printed, "errors": done.stderr, "folder": folder}


def figures(history):
    return [(row["label"], row["phase"], row["step"], row["peak_bytes"]) for row in history]


def test_chosen_steps_and_phases_have_the_allocators_peaks(told):
    hf = told["hf"]
    train = [size for what, size in hf["truth"] if what == "train"]
    evaluated = KEPT + 20 * MIB
    assert figures(hf["history"]) == [
        ("Epoch 1 begin", "train", None, KEPT),
        ("Step 1", "train", 1, train[1]),
        ("Epoch 1 end", "train", None, train[1]),
        ("Epoch 2 begin", "train", None, KEPT),
        ("Step 2", "train", 2, train[2]),
        ("Epoch 2 end", "train", None, train[3]),
        ("Training", "train", None, train[3]),
        ("Evaluation of long", "validation", None, evaluated),
        ("Prediction", "predict", None, evaluated),
    ]
    assert hf["labels"] == [row["label"] for row in hf["history"]]
    assert told["usage"] == [row["peak_bytes"] / GIB for row in hf["history"]]
    shown = [row for row in hf["history"] if not row["label"].endswith("begin")]
    assert [line.partition(":")[0] for line in told["printed"]] == [row["label"] for row in shown]


def test_prepared_calls_read_the_same_figures_while_cuda_is_in_use(told):
    assert told["prepared"] == {"equal": True, "without CUDA": [None, False, None], "after 100 reads": None}


def test_a_recording_says_which_framework_is_in_use(told):
    (facts,) = Path(told["hf"]["path"]).glob("process-*.json")
    assert json.loads(facts.read_text())["used"] == ["torch"]


def test_names_in_the_log_have_the_trainers_prefixes(told):
    hf = told["hf"]
    train = [size for what, size in hf["truth"] if what == "train"]
    lines = [line for line in hf["log"] if "loss" in line]
    assert [line["vram_peak_gib"] for line in lines] == [train[1] / GIB, train[3] / GIB]
    assert told["metrics"]["train_vram_peak_gib"] == train[3] / GIB
    assert told["evaluated"]["eval_long_vram_peak_gib"] == told["predicted"]["test_vram_peak_gib"] == (KEPT + 20 * MIB) / GIB
    assert not any("vram" in name for line in told["another trainer"] for name in line)


def test_each_rank_has_its_recording(told):
    assert Path(told["hf"]["path"]).name == "hf.vram" and Path(told["rank"]).name == "ranked-rank3.vram"


def test_lightnings_steps_are_updates(told):
    lightning = told["lightning"]
    train = [size for what, size in lightning["truth"] if what == "train"]
    steps = [train[1], train[3]]
    assert [row["peak_bytes"] for row in lightning["history"] if row["step"] is not None] == steps
    by_name = [(step, line) for step, line in lightning["lines"] if "vram_peak_gib" in line]
    assert [(step, line["vram_peak_gib"]) for step, line in by_name] == [(n, size / GIB) for n, size in enumerate(steps)]
    assert [line["val_vram_peak_gib"] for _, line in lightning["lines"] if "val_vram_peak_gib" in line] == [(KEPT + 20 * MIB) / GIB]
    assert [line["train_vram_peak_gib"] for _, line in lightning["lines"] if "train_vram_peak_gib" in line] == [(KEPT + 20 * MIB) / GIB]


@pytest.mark.parametrize(("name", "where"), [
    ("hf", "It happened in training, step 0."),
    ("hf evaluation", "It happened in an evaluation."),
    ("lightning", "It happened in training, step 0."),
    ("loop", "step 12: GPU:0 "),
])
def test_an_out_of_memory_error_gets_one_note(name, where, told, binary):
    failed = told[f"failed, {name}"]
    assert failed["text"].startswith("CUDA out of memory. Tried to allocate ") and "Vramline" not in failed["text"]
    said = failed["notes"] if sys.version_info >= (3, 11) else [f"Vramline: {told['errors']}"]
    assert "at the peak of this evaluation." in said[0] or name != "hf evaluation"
    assert said[0].startswith("Vramline: Out of memory (") and where in said[0] and "What to do:" in said[0]
    assert len(failed["notes"]) == 1
    answer = subprocess.run([binary, "oom", told["folder"] / "failed.vram"], capture_output=True, text=True, check=True).stdout
    assert "Out of memory (" in answer


def test_a_logger_that_fails_costs_one_warning(told):
    said = [line for line in told["errors"].splitlines() if "no server" in line]
    assert said == ["vramline: MemoryCallback: some figures are missing: ConnectionError: no server"]


def test_what_cannot_be_done_is_said_with_a_hint(told):
    assert told["refused"].startswith('steps: expected "all", a list of step numbers or None, found 5\nhint: steps=[5] measures step 5, ')
    assert told["no run"] == "run: no run of MLflow or Weights & Biases is active\nhint: pass it: vramline.log_report(run)"
    assert told["not a run"].startswith("run: expected a run of MLflow or its ID, or a run of Weights & Biases, found int\nhint: ")


@pytest.mark.parametrize(
    ("module", "package"), [("huggingface", "transformers"), ("lightning", "lightning")]
)
def test_a_missing_package_is_named(module, package, tmp_path):
    code = f"import vramline; print('imported'); vramline.{module}"
    done = subprocess.run([sys.executable, "-c", code], env=job_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "imported\n"
    said = done.stderr.splitlines()
    assert said[-2].startswith(f"ImportError: vramline.{module} needs the package {package}") and said[-1] == f"hint: pip install {package}"
