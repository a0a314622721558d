"""Words that Python and the core must agree on: the core declares them, and the package uses no others."""

import ast
import importlib
import typing
from pathlib import Path

import numpy
import pytest

import vramline
from vramline import _vramline, words

PACKAGE = Path(vramline.__file__).parent
MARK_KINDS, PHASES, HOWS = _vramline.MARK_KINDS, _vramline.PHASES, _vramline.HOWS

# By the name of a function: which of its arguments, by place or by name, is one of which words.
ARGUMENTS = {
    "mark": {0: MARK_KINDS, 2: PHASES, 3: HOWS, "phase": PHASES, "how": HOWS, "trace_state": _vramline.TRACE_STATES, "opened_for": _vramline.WINDOW_REASONS},
    "step": {1: PHASES, 2: HOWS},
    "end": {0: PHASES, 1: HOWS},
    "_end": {2: PHASES},
    "span": {0: MARK_KINDS, 2: PHASES},
    "where": {"kind": MARK_KINDS},
    "_add": {4: _vramline.ROLES},
    "_torch_row": {2: _vramline.ROLES},
}


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        (words.MarkKind, _vramline.MARK_KINDS),
        (words.Phase, _vramline.PHASES),
        (words.How, _vramline.HOWS),
        (words.Role, _vramline.ROLES),
        (words.TraceState, _vramline.TRACE_STATES),
        (words.WindowReason, _vramline.WINDOW_REASONS),
    ],
)
def test_the_types_have_the_words_of_the_core(type_, told):
    assert typing.get_args(type_) == told


def used():
    """Every word that the package passes on: where, and what is allowed there."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            given = dict(enumerate(node.args)) | {keyword.arg: keyword.value for keyword in node.keywords}
            for place, allowed in ARGUMENTS.get(name, {}).items():
                if isinstance(given.get(place), ast.Constant) and given[place].value is not None:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", given[place].value, allowed


def test_the_package_uses_no_other_words():
    found = list(used())
    assert [(where, word) for where, word, allowed in found if word not in allowed] == []
    # Each word of a state is written somewhere, and the search does find them.
    states = {word for _, word, allowed in found if allowed is _vramline.TRACE_STATES}
    assert states == set(_vramline.TRACE_STATES)
    assert {word for _, word, allowed in found if allowed is MARK_KINDS} >= {"step", "call", "trace", "setting", "exception", "end"}


def test_what_keras_calls_its_loops_are_phases():
    from vramline.frameworks import batches

    assert set(batches.PHASES.values()) <= set(_vramline.PHASES)


def test_every_word_is_written_and_read(tmp_path):
    recorder = _vramline.Recorder(tmp_path, "node-1-1")
    for kind in MARK_KINDS:
        recorder.mark(kind, None, None, None, None, None, None, None, [])
    for state in _vramline.TRACE_STATES:
        recorder.mark("trace", "for people", None, None, None, None, None, None, [], (state, None, None, None))
    for number, reason in enumerate(_vramline.WINDOW_REASONS):
        recorder.mark("trace", None, None, None, None, None, None, None, [], (None, number, reason, "logs"))
    for phase in PHASES:
        recorder.mark("mark", None, phase, "api", None, None, None, None, [])
    recorder.inventory([(None, "w", role, None, None, 1, None, None, None, None, None, None) for role in _vramline.ROLES])
    recorder.close()
    run = vramline.load(tmp_path)
    count = len(MARK_KINDS)
    assert tuple(run.marks.kind[:count]) == MARK_KINDS
    assert [state for state in run.marks.trace_state if state is not None] == list(_vramline.TRACE_STATES)
    assert [reason for reason in run.marks.opened_for if reason is not None] == list(_vramline.WINDOW_REASONS)
    assert [phase for phase in run.marks.phase if phase is not None] == list(PHASES)
    assert tuple(run.inventory.role) == _vramline.ROLES


def test_a_process_of_an_earlier_version_is_joined():
    """Two processes of one job may have run different versions: what one lacks is null."""
    newer = {"time_ns": numpy.array([1]), "new_ns": numpy.array([5]), "trace_state": ["begun"], "process": ["a"]}
    older = {"time_ns": numpy.array([2]), "process": ["b"]}
    for tables in ([newer, older], [older, newer]):
        joined = importlib.import_module("vramline.reading.load")._joined(tables)
        assert sorted(joined.time_ns) == [1, 2]
        assert set(joined.trace_state) == {"begun", None}
        assert joined.new_ns.compressed().tolist() == [5] and len(joined.new_ns) == 2
