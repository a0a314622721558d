"""`MemoryCallback` in the real trainers of Hugging Face and Lightning, its figures in real trackers, and `log_report`.

PyTorch runs on the CPU, where it counts no memory: `jobs/cuda_stand_in.py` stands in for the counters of `torch.cuda`, and knows the truth.
MLflow writes to its local file store, Weights & Biases in its offline mode, TensorBoard to its files; these files are read here.
"""

import csv
import functools
import json
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import vramline

JOBS = Path(__file__).parent / "jobs"
MIB = 1 << 20
GIB = 1 << 30
BASE = 5 * MIB
RESERVED = 64 * MIB


def run(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VRAMLINE", "WANDB", "MLFLOW", "HF_"))}
    environment |= {
        "VRAMLINE_BIN": os.environ["VRAMLINE_BIN"],
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_TRACKING_URI": f"file:{folder}/store",
        # Newer versions of MLflow ask for it.
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
    }
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "facts.json").read_text()) | {"errors": done.stderr, "folder": folder}


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hugging_face")
    return run(folder, JOBS / "hugging_face.py", folder)


@pytest.fixture(scope="module")
def lightning_job(tmp_path_factory):
    """A function: the job with one of the packages, which runs once."""

    @functools.cache
    def of(package):
        folder = tmp_path_factory.mktemp("lightning")
        return run(folder, JOBS / "lightning_job.py", folder, package) | {"package": package}

    return of


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning", "late"])
def any_lightning(request, lightning_job):
    return lightning_job(request.param)


@pytest.fixture
def lightning(lightning_job):
    return lightning_job("lightning.pytorch")


def figures(history):
    return [(row["label"], row["phase"], row["epoch"], row["step"], row["peak_bytes"]) for row in history]


def seen(told, what):
    """What the stand-in saw in use at each of these moments."""
    return [size for name, size in told["seen"] if name == what]


def without_ours(line):
    """A line of a log without figures of memory, and without times, which differ in every run."""
    return {name: value for name, value in line.items() if "vram" not in name and "_second" not in name and "_runtime" not in name}


# --- Hugging Face ---


def test_the_trainers_results_are_the_same_to_the_last_bit(hugging_face):
    bare, measured = hugging_face["bare"], hugging_face["all"]
    assert measured["digest"] == bare["digest"]
    assert [without_ours(line) for line in measured["log"][: len(bare["log"])]] == [without_ours(line) for line in bare["log"]]
    # They do compare something.
    assert sum("loss" in line for line in bare["log"]) == 8
    assert bare["resets"] == 0 and not any("vram" in name for line in bare["lines"] for name in line)


def test_steps_epochs_and_phases_have_their_own_peaks(hugging_face):
    told = hugging_face["all"]
    train = seen(told, "train")
    # A step is two batches.
    steps = [max(pair) for pair in zip(train[::2], train[1::2], strict=True)]
    evaluated = BASE + 20 * MIB
    expected = []
    for epoch in (0, 1):
        expected.append((f"Epoch {epoch + 1} begin", "train", epoch, None, BASE))
        expected += [(f"Step {n}", "train", epoch, n, steps[n]) for n in range(8 * epoch, 8 * epoch + 8)]
        expected.append((f"Epoch {epoch + 1} end", "train", epoch, None, max(steps[8 * epoch : 8 * epoch + 8])))
        expected.append((f"Evaluation at step {8 * epoch + 8}", "validation", epoch, None, evaluated))
    expected.append(("Training", "train", None, None, max(*steps, evaluated)))
    expected.append(("Prediction", "predict", None, None, BASE + 30 * MIB))
    expected.append(("Evaluation", "validation", None, None, evaluated))
    assert figures(told["history"]) == expected
    assert {row["device"] for row in told["history"]} == {"GPU:0"}
    assert {(row["current_bytes"], row["reserved_bytes"]) for row in told["history"]} == {(BASE, RESERVED)}


def test_the_figures_are_in_the_trainers_log_under_its_own_prefixes(hugging_face):
    told = hugging_face["all"]
    train = seen(told, "train")
    lines = [line for line in told["log"] if "loss" in line]
    # A line is for two steps of two batches.
    assert [line["vram_peak_gib"] for line in lines] == [max(train[n : n + 4]) / GIB for n in range(0, 32, 4)]
    assert {(line["vram_current_gib"], line["vram_reserved_gib"]) for line in lines} == {(BASE / GIB, RESERVED / GIB)}
    evaluations = [line for line in told["log"] if "eval_loss" in line]
    assert [line["eval_vram_peak_gib"] for line in evaluations] == [25 * MIB / GIB] * 3
    assert told["metrics"]["train_vram_peak_gib"] == max(train) / GIB
    assert told["predict metrics"]["test_vram_peak_gib"] == 35 * MIB / GIB
    assert told["evaluate metrics"]["eval_vram_peak_gib"] == 25 * MIB / GIB
    # A callback that comes before ours in the program's list finds them too.
    assert [line.get("vram_peak_gib") for line in told["lines"] if "loss" in line] == [line["vram_peak_gib"] for line in lines]
    assert not any("vram" in name for line in hugging_face["no logs"]["log"] for name in line)


def test_the_recording_has_what_was_measured(hugging_face, binary):
    told = hugging_face["all"]
    path = hugging_face["folder"] / "hf.vram"
    assert told["path"] == str(path)
    report = json.loads(subprocess.run([binary, "report", path, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [(step["phase"], step["step"], step["epoch"], step["peak_bytes"], step["how"]) for step in report["steps"]] == [
        (phase, step, epoch, peak, "trainer") for _, phase, epoch, step, peak in figures(told["history"]) if step is not None
    ]
    marks = vramline.load(path).marks
    phases = [label for kind, label in zip(marks["kind"], marks["label"], strict=True) if kind == "phase"]
    assert phases == ["Evaluation at step 8", "Evaluation at step 16", "Training", "Prediction", "Evaluation"]
    listed = vramline.load(path).inventory
    variables = {name: (role, int(size)) for name, role, size in zip(listed["name"], listed["role"], listed["bytes"], strict=True)}
    assert variables["net.0.weight"] == ("parameters", 4 * 8 * 4)
    assert variables["net.0.weight exp_avg"] == ("optimizer", 4 * 8 * 4)


def test_a_peak_that_the_trainer_reports_itself_is_not_reset(hugging_face):
    told = hugging_face["skip_memory_metrics=False"]
    assert told["resets"] == 0
    assert "MemoryCallback does not reset PyTorch's peak, which Trainer(skip_memory_metrics=False) reports" in hugging_face["errors"]
    highest = max(size for _, size in told["seen"])
    # Peaks of the stand-in have never been reset here, except by earlier trainings: those that rise are right, the others unknown.
    known = [row["peak_bytes"] for row in told["history"] if row["peak_bytes"] is not None and not row["label"].endswith("begin")]
    assert known and known == sorted(known) and max(known) == highest
    assert any(row["peak_bytes"] is None for row in told["history"])


@pytest.mark.parametrize("trainer", ["hugging_face", "lightning"])
def test_an_out_of_memory_error_gets_a_note(trainer, request, binary):
    job = request.getfixturevalue(trainer)
    told = job["failed"]
    # Programs look for an error with this text only.
    assert len(told["args"]) == 1 and told["args"][0].startswith("CUDA out of memory. Tried to allocate 2.00 GiB.")
    (note,) = told["notes"]
    assert note.startswith("Vramline: Out of memory (exhausted): an allocation of 2.00 GiB failed")
    # The fifth batch is the first of the third step; four batches ran.
    assert "\n  It happened in training, step 2.\n" in note
    assert "\n  GPU:0: 5 MiB in use now, 9 MiB at the peak of this training.\n" in note
    assert "\n  What to do:\n  1. " in note
    answer = subprocess.run([binary, "oom", job["folder"] / "failed.vram"], capture_output=True, text=True, check=True).stdout
    assert "Out of memory (exhausted): an allocation of 2.00 GiB failed" in " ".join(answer.split())


def test_after_a_failure_the_callback_goes_on(hugging_face):
    assert hugging_face["failed"]["after"]["eval_vram_peak_gib"] == 25 * MIB / GIB


# --- Lightning ---


def test_lightnings_results_are_the_same_to_the_last_bit(any_lightning):
    bare, measured = any_lightning["bare"], any_lightning["all"]
    assert (measured["digest"], measured["losses"]) == (bare["digest"], bare["losses"])
    assert bare["resets"] == 0 and len(bare["losses"]) == 16


def test_lightnings_steps_epochs_and_phases(any_lightning):
    told = any_lightning["all"]
    train = seen(told, "train")
    steps = [max(pair) for pair in zip(train[::2], train[1::2], strict=True)]
    validated = BASE + 20 * MIB
    expected = [("Sanity check", "validation", None, None, validated)]
    for epoch in (0, 1):
        expected.append((f"Epoch {epoch + 1} begin", "train", epoch, None, BASE))
        expected += [(f"Step {n}", "train", epoch, n, steps[n]) for n in range(4 * epoch, 4 * epoch + 4)]
        expected.append((f"Validation of epoch {epoch + 1}", "validation", epoch, None, validated))
        expected.append((f"Epoch {epoch + 1} end", "train", epoch, None, validated))
    expected.append(("Training", "train", None, None, validated))
    expected.append(("Validation", "validation", None, None, validated))
    expected.append(("Test", "validation", None, None, BASE + 25 * MIB))
    expected.append(("Prediction", "predict", None, None, BASE + 30 * MIB))
    assert figures(told["history"]) == expected
    assert told["path"] == str(any_lightning["folder"] / "lightning.vram")
    # Either base serves both packages; with one imported before, it is that one's.
    assert any_lightning["bases"][0].startswith("pytorch_lightning" if any_lightning["package"] == "pytorch_lightning" else "lightning.pytorch")


def test_the_figures_reach_lightnings_loggers(any_lightning):
    told = any_lightning["all"]
    train = seen(told, "train")
    with open(Path(told["csv"]) / "metrics.csv") as file:
        rows = list(csv.DictReader(file))

    def column(name):
        return [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]

    # A line is for two steps of two batches, at the step of Lightning's own figures.
    assert column("vram_peak_gib") == [(2 * n + 1, max(train[4 * n : 4 * n + 4]) / GIB) for n in range(4)]
    assert [step for step, _ in column("loss")] == [step for step, _ in column("vram_peak_gib")]
    assert {value for _, value in column("vram_reserved_gib")} == {RESERVED / GIB}
    assert [value for _, value in column("val_vram_peak_gib")] == [25 * MIB / GIB] * 3
    assert [value for _, value in column("test_vram_peak_gib")] == [30 * MIB / GIB]
    assert [value for _, value in column("predict_vram_peak_gib")] == [35 * MIB / GIB]
    assert [value for _, value in column("train_vram_peak_gib")] == [25 * MIB / GIB]
    assert [value for _, value in board(told["board"])["vram_peak_gib"]] == [value for _, value in column("vram_peak_gib")]


def test_next_to_a_monitor_of_the_peak_nothing_is_reset(lightning):
    assert lightning["DeviceStatsMonitor"]["resets"] == 0 < lightning["all"]["resets"]
    assert "MemoryCallback does not reset PyTorch's peak, which DeviceStatsMonitor reports" in lightning["errors"]


def test_without_logs_nothing_is_logged(lightning):
    assert "vram" not in (Path(lightning["no logs"]["csv"]) / "metrics.csv").read_text()
    assert lightning["no logs"]["history"]


def test_the_class_is_no_callback(lightning):
    assert lightning["the class"] == "callbacks: expected an object, found the class MemoryCallback\nhint: callbacks=[MemoryCallback()]"


# --- Trackers ---


def board(folder):
    """The figures in TensorBoard's files: by name, (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(each.step, each.value) for each in events.Scalars(name)] for name in events.Tags()["scalars"]}


def board_tensors(folder, name):
    """A figure in TensorBoard's files where TensorFlow wrote them, which stores it as tensors."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder))
    events.Reload()
    return [float(make_ndarray(each.tensor_proto)) for each in events.Tensors(name)]


def offline_run(folder):
    """What the file of an offline run of Weights & Biases holds: the lines of its history, and its summary."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    history, summary = [], {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            summary |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update}
    return history, summary, path.parent / "files"


def records(data, block=1 << 15, head=7):
    """The records of a log file as LevelDB writes it: parts with checksum, length and kind, in blocks, behind a header."""
    assert data.startswith(b":W&B")
    at, parts = head, []
    while at + head <= len(data):
        if block - at % block < head:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts.append(data[at + head : at + head + length])
        at += head + length
        # Whole, or the last part.
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def test_the_figures_reach_tensorboard(hugging_face):
    told = hugging_face["tracked"]
    (file,) = hugging_face["folder"].rglob("events.out.tfevents.*")
    shown = board(file.parent)
    lines = [(line["step"], line["vram_peak_gib"]) for line in told["log"] if "loss" in line]
    assert shown["train/vram_peak_gib"] == lines
    assert [value for _, value in shown["eval/vram_peak_gib"]] == [25 * MIB / GIB] * 2


def mlflow_client(folder, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return mlflow.MlflowClient(f"file:{folder}/store")


def has_report(client, run, verdict, folder):
    files = {file.path: file.file_size for file in client.list_artifacts(run, "vramline")}
    assert sorted(files) == ["vramline/report.html", "vramline/report.txt"] and files["vramline/report.html"] > 100_000
    assert client.get_run(run).data.tags["vramline.verdict"] == verdict
    assert verdict.startswith("Peak memory: ")
    text = Path(client.download_artifacts(run, "vramline/report.txt", folder)).read_text()
    assert " ".join(verdict.split()) in " ".join(text.split())


def test_the_figures_reach_mlflow_and_so_does_the_report(hugging_face, tmp_path, monkeypatch):
    told = hugging_face["tracked"]
    client = mlflow_client(hugging_face["folder"], monkeypatch)
    (run,) = client.search_runs(["0"])
    lines = [(line["step"], line["vram_peak_gib"]) for line in told["log"] if "loss" in line]
    # The trainer logs to MLflow in the background, where a later line may come first.
    assert sorted((each.step, each.value) for each in client.get_metric_history(run.info.run_id, "vram_peak_gib")) == lines
    assert run.data.metrics["eval_vram_peak_gib"] == 25 * MIB / GIB
    has_report(client, run.info.run_id, told["verdict"], tmp_path)


def test_lightnings_figures_and_report_reach_mlflow(lightning, tmp_path, monkeypatch):
    told = lightning["tracked"]
    client = mlflow_client(lightning["folder"], monkeypatch)
    train = seen(told, "train")
    history = client.get_metric_history(told["run"], "vram_peak_gib")
    assert [(each.step, each.value) for each in history] == [(2 * n + 1, max(train[4 * n : 4 * n + 4]) / GIB) for n in range(4)]
    has_report(client, told["run"], told["verdict"], tmp_path)


@pytest.mark.parametrize("trainer", ["hugging_face", "lightning"])
def test_figures_and_report_reach_weights_and_biases(trainer, request):
    job = request.getfixturevalue(trainer)
    told = job["tracked"]
    history, summary, files = offline_run(job["folder"])
    train = seen(told, "train")
    name = {"hugging_face": "train/vram_peak_gib", "lightning": "vram_peak_gib"}[trainer]
    assert [line[name] for line in history if name in line] == [max(train[n : n + 4]) / GIB for n in range(0, len(train), 4)]
    (page,) = [line for line in history if "vramline/report/path" in line]
    assert page["vramline/report/_type"] == "html-file"
    assert (files / page["vramline/report/path"]).read_text().lower().startswith("<!doctype html>")
    assert summary["vramline/verdict"] == told.get("again", told["verdict"])


def test_kerass_figures_and_report_reach_all_three(tmp_path, monkeypatch):
    told = run(tmp_path, JOBS / "keras_trackers.py", tmp_path)
    peaks = [row["peak_bytes"] / GIB for row in told["history"] if row["label"].endswith(" end")]
    assert len(peaks) == 2
    # TensorBoard and Keras keep figures with 32 bits.
    assert board_tensors(tmp_path / "board" / "train", "epoch_vram_peak_gib") == pytest.approx(peaks, rel=1e-6)
    client = mlflow_client(tmp_path, monkeypatch)
    assert client.get_run(told["run"]).data.metrics["vram_peak_gib"] == pytest.approx(peaks[-1], rel=1e-6)
    has_report(client, told["run"], told["verdict"], tmp_path)
    history, summary, _ = offline_run(tmp_path)
    assert [line["epoch/vram_peak_gib"] for line in history if "epoch/vram_peak_gib" in line] == pytest.approx(peaks, rel=1e-6)
    assert [line for line in history if "vramline/report/path" in line]
    assert summary["vramline/verdict"] == told["verdict"]


@pytest.fixture(scope="module")
def private(tmp_path_factory, binary):
    """A recording whose script, argument, folder, host, label and layers have a name with "kestrel"."""
    folder = tmp_path_factory.mktemp("private") / "kestrel_home"
    folder.mkdir()
    recording = folder / "kestrel.vram"
    command = [binary, "run", "--no-report", "--trace", "all", "--label", "team=kestrel_team", "-o", recording, "--", sys.executable]
    done = subprocess.run([*command, JOBS / "kestrel.py", "kestrel_argument"], cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    for path in recording.glob("*.json"):
        path.write_text(path.read_text().replace(f'"{socket.gethostname()}', '"kestrel_host'))
    return recording


@pytest.mark.parametrize("redacts", ["yes", "no"])
def test_a_redacted_report_brings_no_name_of_the_user_to_a_tracker(private, redacts, tmp_path, monkeypatch):
    (tmp_path / "recording").write_text(str(private))
    told = run(tmp_path, JOBS / "log_report.py", tmp_path, redacts)
    has_report(mlflow_client(tmp_path, monkeypatch), told["run"], told["verdicts"][0], tmp_path)
    _, summary, _ = offline_run(tmp_path)
    assert summary["vramline/verdict"] == told["verdicts"][1]
    for tracker in ("store", "wandb"):
        files = {path: path.read_bytes() for path in (tmp_path / tracker).rglob("*") if path.is_file() and not path.is_symlink()}
        named = {path.name: word for path, data in files.items() for word in re.findall(rb"\w*kestrel\w*", data)}
        # Without the option they are there, or this would find nothing anywhere.
        assert (named == {}) == (redacts == "yes"), named


# --- Ranks, and loops with accelerate ---


@pytest.mark.parametrize("trainer", ["hugging_face", "lightning"])
def test_each_rank_measures_itself_and_the_first_logs_the_highest(trainer, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE_") or name == "VRAMLINE_BIN"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", JOBS / "ranks.py", tmp_path, trainer]
    done = subprocess.run(
        command, env=environment | {"CUDA_VISIBLE_DEVICES": ""}, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"facts-{rank}.json").read_text()) for rank in (0, 1)]
    for rank, told in enumerate(ranks):
        base = BASE + 100 * rank * MIB
        assert [row["peak_bytes"] for row in told["history"] if row["step"] is not None] == [base + n * MIB for n in range(1, 9)]
        assert [line["vram_peak_gib"] for line in told["lines"]] == [(base + n * MIB) / GIB for n in (2, 4, 6, 8)]
        assert json.loads((next(Path(told["path"]).glob("process-*.json"))).read_text())["rank"] == rank
    assert [Path(told["path"]).name for told in ranks] == ["run.vram", "run-rank1.vram"]
    assert not any("all_ranks" in name for line in ranks[1]["lines"] for name in line)
    # What the second rank has told by then: its peak of this line or of one before.
    of_all = [(line["vram_peak_rank"], line["vram_peak_gib_all_ranks"]) for line in ranks[0]["lines"]][1:]
    of_second = [(1, line["vram_peak_gib"]) for line in ranks[1]["lines"]]
    assert of_all == sorted(of_all) and set(of_all) <= set(of_second)


def test_a_loop_with_accelerate_is_recorded(tmp_path, binary):
    told = run(tmp_path, JOBS / "accelerated.py", tmp_path)
    steps = vramline.load(tmp_path / "run.vram").steps
    assert [int(peak) for peak in steps["peak_bytes"]] == [size for _, size in told["seen"][::2]] == [BASE + n * MIB for n in range(10, 16)]
    (note,) = told["notes"]
    assert note.startswith("Vramline: Out of memory (exhausted): an allocation of 2.00 GiB failed")
    answer = subprocess.run([binary, "oom", tmp_path / "run.vram"], capture_output=True, text=True, check=True).stdout
    assert "Out of memory (exhausted)" in answer
