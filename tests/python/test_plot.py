"""Plots draw the recording's own numbers, and show nothing by themselves."""

import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot

import vramline as package
from vramline.reading import plot

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(autouse=True)
def nothing_is_shown(monkeypatch):
    def show(*_, **__):
        raise AssertionError("a plot was shown")

    monkeypatch.setattr(pyplot, "show", show)
    yield
    pyplot.close("all")


@pytest.fixture
def run(fixtures):
    return package.load(fixtures / "tf221_cpu_keras.vram")


def in_bytes(values, label):
    """Drawn values as bytes, by the unit in the label of the axis; an unknown value is a gap."""
    unit = label.rpartition("(")[2].rstrip(")")
    return [None if np.isnan(value) else round(value * SIZES[unit]) for value in values]


def test_usage_over_steps(run):
    axes = run.plot()
    steps = run.report["steps"]
    drawn = {line.get_label().split(", ")[1]: in_bytes(line.get_ydata(), axes.get_ylabel()) for line in axes.lines}
    assert drawn == {
        "peak": [step["peak_bytes"] for step in steps],
        "in use at the end": [step["current_bytes"] for step in steps],
    }
    assert None in drawn["peak"]
    assert run.plot(ax=axes) is axes
    assert not run.plot(pool="no such pool").lines


def test_bars_of_labels(run):
    axes = run.plot("labels")
    marks = [mark for mark in run.report["marks"] if mark["kind"] == "mark"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [mark["label"] for mark in marks] == ["after training"]
    widths = [bar.get_width() for bar in axes.patches]
    assert in_bytes(widths, axes.get_xlabel()) == [mark["current_bytes"] for mark in marks]
    with pytest.raises(ValueError, match="steps"):
        run.plot("epochs")


@pytest.mark.parametrize("by", ["device", "role", "op", "layer"])
def test_models_side_by_side(fixtures, by):
    compared = package.compare([fixtures / "tf221_cpu_cnn_from_start.xplane.pb", fixtures / "tf221_cpu_keras.vram"])
    axes = compared.plot(by, top=5)
    rows = [row for row in compared.rows if row["by"] == by and any(row["bytes"])][:5]
    assert len(axes.containers) == 2
    for number, bars in enumerate(axes.containers):
        drawn = in_bytes([bar.get_width() for bar in bars], axes.get_xlabel())
        assert drawn == [row["bytes"][number] for row in rows]
        assert bars.get_label() == plot._shorten(compared.runs[number], 32)


def drawn_texts(axes):
    """The tick labels of the steps, by place."""
    return {round(place): label.get_text() for place, label in zip(axes.get_xticks(), axes.get_xticklabels())}


def test_runs_over_steps(fixtures, run):
    compared = package.compare([fixtures / "tf221_cpu_keras.vram"] * 2)
    axes = compared.plot("step")
    rows = [row for row in compared.rows if row["by"] == "step"]
    # As they ran: training, validation after each epoch, prediction last.
    ran = [(step["phase"], step["epoch"], step["step"]) for step in run.report["steps"]]
    assert [(row["phase"], row.get("epoch"), row["step"]) for row in rows] == ran
    # Peaks are not joined with what is in use at a step's end: a line for each figure, with gaps where the other is told.
    figures = ("peak", "in-use")
    assert [row["figure"] for row in rows] == ["peak"] * 5 + ["in-use"] * 13
    lines = iter(axes.lines)
    for number, name in enumerate(compared.runs):
        for figure, words in zip(figures, ("peak", "in use at the end")):
            line = next(lines)
            told = [row["bytes"][number] if row["figure"] == figure else None for row in rows]
            assert in_bytes(line.get_ydata(), axes.get_ylabel()) == told
            assert line.get_label() == f"{plot._shorten(name, 32)}, {words}"
    assert next(lines, None) is None
    with pytest.raises(ValueError, match="layer"):
        compared.plot("epoch")


@pytest.mark.parametrize("what", ["comparison", "run"])
def test_steps_have_their_names(fixtures, run, what):
    axes = run.plot() if what == "run" else package.compare([run, run]).plot("step")
    names = drawn_texts(axes)
    steps = run.report["steps"]
    begins = {0: "epoch 0, train 0", 6: "validation 0", 8: "epoch 1, train 0", 14: "validation 0", 16: "predict 0"}
    assert names == {place: begins.get(place, str(step["step"])) for place, step in enumerate(steps)}


def test_many_steps_have_room(run):
    """What begins an epoch has a name before others have; no two stand on each other."""
    report = run.report
    step = report["steps"][0]
    report["steps"] = [
        step | {"epoch": number // 300, "step": number % 300, "phase": "train"} for number in range(1000)
    ]
    places = drawn_texts(plot.steps(report))
    assert {0: "epoch 0, train 0", 300: "epoch 1, train 0", 600: "epoch 2, train 0", 900: "epoch 3, train 0"}.items() <= places.items()
    order = sorted(places)
    assert 12 <= len(order) <= 24
    assert min(after - before for before, after in itertools.pairwise(order)) >= 1000 // 24
    report["steps"] = [step | {"epoch": None, "step": 7 + number} for number in range(3)]
    axes = plot.steps(report)
    assert drawn_texts(axes) == {0: "7", 1: "8", 2: "9"} and axes.get_xlabel() == "train step"


@pytest.mark.parametrize("by", ["device", "role", "op", "layer", "step"])
def test_no_name_is_cut_by_the_edge(fixtures, tmp_path, by):
    long = tmp_path / ("a run with a very long name, which nobody reads to its end" + "." * 40 + "vram")
    long.symlink_to(fixtures / "tf221_cpu_keras.vram")
    compared = package.compare([fixtures / "tf221_cpu_cnn_from_start.xplane.pb", long])
    axes = compared.plot(by)
    axes.figure.savefig(tmp_path / "plot.png")
    page, drawn = axes.figure.bbox, axes.get_tightbbox()
    assert page.x0 <= drawn.x0 and drawn.x1 <= page.x1 and page.y0 <= drawn.y0 and drawn.y1 <= page.y1
    legend = axes.get_legend().get_window_extent()
    assert legend.width < axes.bbox.width
    assert axes.bbox.width > page.width / 3


def test_bars_of_several_pools_are_told_apart(fixtures):
    names = ("jax0112_h200_from_start.xplane.pb", "jax0112_h200_convolution.xplane.pb.gz")
    compared = package.compare([fixtures / name for name in names])
    labels = [label.get_text() for label in compared.plot("role").get_yticklabels()]
    assert len({row["pool"] for row in compared.rows if row["by"] == "role" and any(row["bytes"])}) > 1
    assert len(labels) == len(set(labels)) and "temporaries, GPU_0_bfc" in labels


def test_a_figure_of_the_caller_keeps_its_layout(run):
    figure, axes = pyplot.subplots()
    engine = figure.get_layout_engine()
    assert run.plot(ax=axes) is axes and package.compare([run, run]).plot(ax=axes) is axes
    assert figure.get_layout_engine() is engine


def test_a_callback_is_drawn_and_displayed():
    callback = package.keras.MemoryCallback()
    names = ["Epoch 1 end", "<b>Epoch</b> & 2"]
    for number, name in enumerate(names):
        row = {"label": name, "device": "GPU:0", "peak_bytes": (number + 3) << 28, "current_bytes": None}
        callback.history.append(row)
    axes = callback.plot()
    assert in_bytes([bar.get_width() for bar in axes.patches], axes.get_xlabel()) == [3 << 28, 4 << 28]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    shown = callback._repr_html_()
    assert "&lt;b&gt;Epoch&lt;/b&gt; &amp; 2" in shown and "<b>" not in shown


def test_notebooks_show_tables(run, tmp_path):
    assert "bfc_cpu_allocator_for_gpu" in run._repr_html_() and "69.5 MiB" in run._repr_html_()
    hostile = tmp_path / "<script>alert(1).vram"
    hostile.symlink_to(run.path.resolve())
    for shown in (package.load(hostile)._repr_html_(), package.compare([run, hostile])._repr_html_()):
        assert "<script" not in shown and "&lt;script" in shown


def test_without_matplotlib_there_is_a_hint(fixtures):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import vramline\n"
        f"run = vramline.load({str(fixtures / 'tf221_cpu_keras.vram')!r})\n"
        "try: run.plot()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "hint: pip install matplotlib"


def test_importing_the_package_imports_no_matplotlib():
    code = "import sys, vramline; assert 'matplotlib' not in sys.modules and 'html' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
