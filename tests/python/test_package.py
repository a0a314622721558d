"""The package as such: what it imports, and that its stubs say what the library has."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import vramline
from vramline import _vramline


def test_importing_it_imports_no_framework():
    code = "import sys, vramline; print([name for name in ('tensorflow', 'keras', 'jax', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_stubs_are_those_of_the_library():
    stub = ast.parse((Path(vramline.__file__).parent / "_vramline.pyi").read_text(encoding="utf-8"))
    told = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    there = {name for name in dir(_vramline) if not name.startswith("_")}
    assert told == there
    (recorder,) = (node for node in stub.body if isinstance(node, ast.ClassDef))
    methods = {node.name for node in recorder.body if isinstance(node, ast.FunctionDef)} - {"__init__"}
    assert methods == {name for name in dir(_vramline.Recorder) if not name.startswith("_")}


def test_everything_public_is_documented():
    for name in vramline.__all__:
        if name not in ("__version__", "keras"):
            assert inspect.getdoc(getattr(vramline, name)), name


def test_it_has_types():
    assert (Path(vramline.__file__).parent / "py.typed").is_file()
