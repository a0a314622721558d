"""Plots draw the recording's own numbers, and show nothing by themselves."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

import vramline as package  # noqa: E402

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


def in_bytes(values, unit):
    """Drawn values as bytes; what is not known is a gap."""
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
        assert bars.get_label() == compared.runs[number]


def test_runs_over_steps(fixtures):
    compared = package.compare([fixtures / "tf221_cpu_keras.vram"] * 2)
    axes = compared.plot("step")
    rows = [row for row in compared.rows if row["by"] == "step"]
    for number, line in enumerate(axes.lines):
        assert in_bytes(line.get_ydata(), axes.get_ylabel()) == [row["bytes"][number] for row in rows]
    with pytest.raises(ValueError, match="layer"):
        compared.plot("epoch")


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
