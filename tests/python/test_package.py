"""The package as such: what it imports, and that its stubs say what the library has."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY

import vramline
from vramline import _vramline
from vramline.attach import settings, window


def test_importing_it_imports_no_framework():
    code = "import sys, vramline; print([name for name in ('tensorflow', 'keras', 'jax', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_stubs_are_those_of_the_library():
    stub = ast.parse((Path(vramline.__file__).parent / "_vramline.pyi").read_text(encoding="utf-8"))
    told = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    told |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)} - {"__version__"}
    there = {name for name in dir(_vramline) if not name.startswith("_")}
    assert told == there
    for told in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        methods = {node.name for node in told.body if isinstance(node, ast.FunctionDef)}
        methods |= {node.target.id for node in told.body if isinstance(node, ast.AnnAssign)}
        assert {name for name in methods if not name.startswith("_")} == {
            name for name in dir(getattr(_vramline, told.name)) if not name.startswith("_")
        }


class _Job:
    """Takes what a window says."""

    name = "host-1-1"

    def __init__(self, folder):
        self.folder = folder
        self.labels = []
        self.states = []

    def mark(self, kind, label, trace_state=None, **_):
        self.labels.append(label)
        self.states.append(trace_state)


def test_a_trace_that_takes_much_memory_ends(tmp_path, monkeypatch):
    job = _Job(tmp_path)
    held = iter([100 << 20, 150 << 20, (100 << 20) + window._MOST_MEMORY + 1])
    monkeypatch.setattr(window._vramline, "resident_bytes", lambda: next(held))
    monkeypatch.setattr(window, "available_bytes", lambda: 64 << 30)
    trace = window.Window(job, settings.RunOptions(trace="all"))
    trace.open("tensorflow", lambda folder: lambda folder: None)
    assert [trace.stepped() for _ in range(3)] == [False, False, True]
    trace.close(trace.why_now, wait=True)
    assert job.labels[1].startswith("trace stopped: its events may use up to 2147 MB of host memory")
    assert job.labels[2].startswith("trace written: 3 steps")
    assert job.states == ["begun", "stopped", "written"]


def test_a_trace_that_cannot_be_made_says_so(tmp_path, capsys):
    def fail(*_):
        raise RuntimeError("no profiler")

    for start, states in ((fail, ["failed"]), (lambda _: fail, ["begun", "stopped", "lost"])):
        job = _Job(tmp_path)
        trace = window.Window(job, settings.RunOptions(trace="all"))
        trace.open("tensorflow", start)
        trace.close("the program ended", wait=True)
        assert job.states == states
    assert capsys.readouterr().err.count("no profiler") == 2


def test_everything_public_is_documented():
    for name in vramline.__all__:
        if name not in ("__version__", "huggingface", "keras", "lightning"):
            assert inspect.getdoc(getattr(vramline, name)), name


def test_it_has_types():
    assert (Path(vramline.__file__).parent / "py.typed").is_file()


def test_every_capability_has_tests_that_exist():
    page = (REPOSITORY / "docs/proof/capabilities.md").read_text(encoding="utf-8")
    counts = {"M": 7, "E": 4, "T": 7, "P": 6, "R": 8}
    rows = [f"{kind}{number}" for kind, count in counts.items() for number in range(1, count + 1)]
    assert re.findall(r"^\| ([A-Z]\d) \|", page, re.MULTILINE) == rows
    named = re.findall(r"`(\w+\.(?:py|rs))::(\w+)`", page)
    assert len(named) > len(rows)
    for file, test in named:
        folder = REPOSITORY / ("tests/python" if file.endswith(".py") else "crates/vramline/tests/it")
        assert re.search(rf"^(def|fn) {test}\(", (folder / file).read_text(encoding="utf-8"), re.MULTILINE), (file, test)
