"""`vramline.keras.MemoryCallback` in real Keras on TensorFlow's pool allocator for the CPU."""

import pytest
from recorded_jobs import DEVICE, GIB, uses, within

from vramline.shown import size_text


def figures(history, *, batches=None):
    return [row for row in history if (row["batch"] is not None) is batches or batches is None]


@uses("callback")
def test_the_callback_measures_epochs_and_validation(job):
    told = job.facts["epochs"]
    labels = []
    for epoch in (1, 2):
        labels += [f"Epoch {epoch} begin", f"Validation of epoch {epoch}", f"Epoch {epoch} end"]
    assert told["labels"] == [*labels, "Training"]
    assert [row["phase"] for row in told["history"]] == ["train", "validation", "train"] * 2 + ["train"]
    assert [row["epoch"] for row in told["history"]] == [0, 0, 0, 1, 1, 1, None]
    assert {row["device"] for row in told["history"]} == {DEVICE}
    assert told["memory_usage"] == [row["peak_bytes"] / GIB for row in told["history"]]


@uses("callback")
def test_the_callback_adds_its_figures_to_the_logs_of_keras(job):
    told, shown = job.facts["epochs"], job.facts["epochs"]["keras"]
    rows_of = {row["label"]: row for row in told["history"]}
    for epoch in (0, 1):
        end, validation = rows_of[f"Epoch {epoch + 1} end"], rows_of[f"Validation of epoch {epoch + 1}"]
        assert shown["vram_peak_gib"][epoch] == end["peak_bytes"] / GIB
        assert shown["vram_current_gib"][epoch] == end["current_bytes"] / GIB
        assert shown["val_vram_peak_gib"][epoch] == validation["peak_bytes"] / GIB
        line = job.facts["csv"][epoch]
        assert float(line["vram_peak_gib"]) == end["peak_bytes"] / GIB
        assert float(line["val_vram_peak_gib"]) == validation["peak_bytes"] / GIB
    assert sorted(job.facts["no logs"]["keras"]) == ["loss"]
    assert sorted(job.facts["chosen"]["keras"]) == ["loss", "vram_current_gib", "vram_current_mib", "vram_peak_gib", "vram_peak_mib"]


@uses("callback")
@pytest.mark.parametrize("name", ["epochs", "all", "chosen", "evaluate", "predict", "steps_per_execution", "exception"])
def test_each_figure_of_the_callback_is_that_units_own_peak(name, job):
    """The trace, which no reset changes, saw the same batches and epochs."""
    told = job.facts[name]
    number = {mark["mark"]: at for at, mark in enumerate(m for m in job.marks if m["kind"] == "step")}
    steps = [job.report["steps"][number[m["mark"]]] for m in within(job.marks, told) if m["kind"] == "step"]
    seen = {}
    for step in steps:
        seen.setdefault((step["phase"], step["epoch"], step["step"]), []).append(step["peak_bytes"])
    for row in figures(told["history"], batches=True):
        assert row["peak_bytes"] == seen[row["phase"], row["epoch"], row["batch"]].pop(0), row["label"]
    number = {mark["mark"]: at for at, mark in enumerate(m for m in job.marks if m["kind"] == "epoch")}
    epochs = [job.report["epochs"][number[m["mark"]]] for m in within(job.marks, told) if m["kind"] == "epoch"]
    ends_of = [row for row in told["history"] if row["label"].endswith(" end")]
    assert [row["peak_bytes"] for row in ends_of] == [epoch["peak_bytes"] for epoch in epochs]


@uses("callback")
def test_the_callback_measures_all_or_chosen_batches(job):
    def batches(name):
        return [(row["label"], row["phase"], row["batch"]) for row in figures(job.facts[name]["history"], batches=True)]

    expected = []
    for epoch in (1, 2):
        expected += [(f"Epoch {epoch}, batch {n}", "train", n) for n in range(3)]
        expected += [(f"Epoch {epoch}, validation batch {n}", "validation", n) for n in range(2)]
    assert batches("all") == expected
    assert batches("epochs") == []
    assert batches("chosen") == [(f"Epoch {epoch}, batch 1", "train", 1) for epoch in (1, 2)]
    assert job.facts["refused"].startswith("batches: expected \"all\", a list of batch numbers or None, found 'some'\nhint: ")


@uses("callback")
def test_the_callback_tells_evaluation_and_prediction_from_training(job):
    evaluated, predicted = job.facts["evaluate"], job.facts["predict"]
    assert evaluated["labels"] == ["Validation batch 0", "Validation batch 1", "Validation"]
    assert predicted["labels"] == ["Prediction batch 0", "Prediction batch 1", "Prediction"]
    assert {row["phase"] for row in evaluated["history"]} == {"validation"}
    assert {row["phase"] for row in predicted["history"]} == {"predict"}
    assert {row["epoch"] for row in evaluated["history"] + predicted["history"]} == {None}


@uses("callback")
def test_the_callback_counts_a_short_last_execution_right(job):
    assert job.facts["steps_per_execution"]["labels"] == [
        "Epoch 1 begin",
        "Epoch 1, batch 0 to 3",
        "Epoch 1, batch 4 to 5",
        "Epoch 1, validation batch 0 to 3",
        "Epoch 1, validation batch 4",
        "Validation of epoch 1",
        "Epoch 1 end",
        "Training",
    ]


@uses("callback")
def test_after_an_exception_in_fit_the_callback_goes_on(job):
    told = job.facts["exception"]
    assert job.facts["caught"] == "enough is enough"
    assert told["labels"][: job.facts["after the exception"]] == [
        "Epoch 1 begin",
        "Epoch 1, batch 0",
        "Epoch 1, batch 1",
    ]
    assert told["labels"][job.facts["after the exception"] :] == [
        "Validation batch 0",
        "Validation",
        "Epoch 1 begin",
        "Epoch 1, batch 0",
        "Epoch 1, batch 1",
        "Epoch 1 end",
        "Training",
    ]
    assert len(told["keras"]["vram_peak_gib"]) == 1


@uses("callback")
def test_the_callback_prints_what_it_is_asked_to(job):
    assert job.code == 0, job.err
    printed = job.out.split("--- printed ---\n")[1].split("--- end ---\n")[0].splitlines()
    shown = [row for row in job.facts["recorded"]["history"] if not row["label"].endswith("begin")]
    assert printed == [
        f"{row['label']}: {DEVICE} peak {size_text(row['peak_bytes'])}, in use {size_text(row['current_bytes'])}"
        for row in shown
    ]
    # Without being asked it prints nothing.
    assert job.out.split("--- printed ---\n")[0] == ""


@uses("callback")
def test_the_callback_records_what_it_measures(job):
    path = job.folder / "work" / "callback.vram"
    assert job.facts["path"] == str(path)
    report = job.report_on(path)
    told = job.facts["recorded"]["history"]
    assert [(step["phase"], step["step"], step["epoch"], step["peak_bytes"]) for step in report["steps"]] == [
        (row["phase"], row["batch"], row["epoch"], row["peak_bytes"]) for row in figures(told, batches=True)
    ]
    ends_of = [row for row in told if row["label"].endswith(" end")]
    assert [(epoch["epoch"], epoch["peak_bytes"]) for epoch in report["epochs"]] == [
        (row["epoch"], row["peak_bytes"]) for row in ends_of
    ]
    assert {row["role"] for row in report["inventory"]} >= {"parameters", "optimizer"}
