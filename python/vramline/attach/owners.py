"""Whose the ops of a TensorFlow program are: the layer, the variable, the line of code.

Three things are noted, each where it is certain. Keras opens a scope for every layer that it calls: while a graph is traced, the
scope is the layer's, under whatever name TensorFlow gave it. When a graph has been traced, its ops show which variable each update
assigns to. And an op that runs by itself runs for the line, and the layer, that the program's own thread is in: that is looked at while
a trace window is open, and at no other time.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from vramline import layers
from vramline.attach.quiet import quietly
from vramline.attach.variables import Variables
from vramline.inventory import Inventory

Row = tuple[
    str, str, int, str | None, str | None, str | None, str, str | None, int | None, int | None
]
"""kind, name, time, model, layer, variable, role, source, begin, end"""

# What is noted at most: of graphs and of ops that run by themselves.
_MOST_SCOPES = 20_000
_MOST_OPS = 50_000
_MOST_LINES = 10_000
_MOST_SPANS = 50_000
# Ops of one graph that are looked at, at most: a look costs about two microseconds.
_MOST_OF_GRAPH = 100_000
# Packages that TensorFlow calls through.
_BESIDE = ("wrapt", "numpy", "six", "absl", "opt_einsum")
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Ops that give a variable another value.
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
# Ops that hold no memory of their own, or whose line says nothing.
_SILENT = frozenset({"Placeholder", "Const", "NoOp", "Identity", "IdentityN", "ReadVariableOp", "Shape", "VarHandleOp"})


class Owners:
    """What is known of whose ops are."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._local = _Local()
        self._scopes: dict[tuple[str, int], tuple[int, weakref.ref[Any], tuple[str, ...]]] = {}
        self._first_scopes: set[str] = set()
        # By op: when it was learned, the variable it works for, and the line.
        self._ops: dict[tuple[str, int], tuple[int, weakref.ref[Any]]] = {}
        self._lines: dict[tuple[str, str], int] = {}
        self._spans: list[list[Any]] = []
        self._is_broken = False
        self._told: set[Row] = set()
        self._main = threading.main_thread().ident
        self._programs: dict[CodeType, str | None] = {}
        self._of_frameworks: tuple[str, ...] = (_HERE, "<frozen")
        self._stop: Callable[[], None] | None = None

    def hook(self, tensorflow: Any) -> None:
        """Hears of graphs and variables of a TensorFlow that has just been imported."""
        from tensorflow.python.framework import func_graph, ops
        from tensorflow.python.ops import resource_variable_ops

        home = os.path.dirname(os.path.abspath(tensorflow.__file__))
        beside = (os.path.join(os.path.dirname(home), name) for name in _BESIDE)
        self._of_frameworks += (home, *beside)
        trace = func_graph.func_graph_from_py_func

        @functools.wraps(trace)
        def traced(*args: Any, **kwargs: Any) -> Any:
            graph = trace(*args, **kwargs)
            self._graph_is_there(graph)
            return graph

        func_graph.func_graph_from_py_func = traced
        variable = resource_variable_ops.BaseResourceVariable
        make = variable.__init__

        @functools.wraps(make)
        def made(this: Any, *args: Any, **kwargs: Any) -> None:
            make(this, *args, **kwargs)
            self._variable_is_there(this)

        variable.__init__ = made
        self._is_eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        self._graph = ops.get_default_graph

    def hook_keras(self, keras: Any) -> None:
        """Hears of the layers that a Keras on TensorFlow calls."""
        self._of_frameworks += (os.path.dirname(os.path.abspath(keras.__file__)),)
        core = sys.modules.get(f"{keras.__name__}.src.backend.tensorflow.core")
        scope = getattr(core, "name_scope", None)
        if scope is None:
            return
        enter, leave = scope.__enter__, scope.__exit__

        @functools.wraps(enter)
        def entered(this: Any) -> Any:
            result = enter(this)
            if this._pop_on_exit:
                self._layer_begins(this.caller)
            return result

        @functools.wraps(leave)
        def left(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this._pop_on_exit:
                self._layer_ends(this.caller)
            return leave(this, *args, **kwargs)

        scope.__enter__, scope.__exit__ = entered, left

    def begin(self) -> None:
        """A trace window is open: ops that run by themselves are looked at until `end`."""
        wrapped: Any = sys.modules["tensorflow.python.pywrap_tfe"]
        execute = wrapped.TFE_Py_FastPathExecute
        if self._stop is not None:
            return

        def looked_at(*args: Any) -> Any:
            begin = time.monotonic_ns()
            try:
                return execute(*args)
            finally:
                self._op_ran(begin, sys._getframe(1))

        def stop() -> None:
            if wrapped.TFE_Py_FastPathExecute is looked_at:
                wrapped.TFE_Py_FastPathExecute = execute

        wrapped.TFE_Py_FastPathExecute = looked_at
        self._stop = stop

    def end(self) -> None:
        """The window is closed."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    @quietly
    def _variable_is_there(self, variable: Any) -> None:
        if not variable._in_graph_mode:
            self._variables.made(variable, self._line(sys._getframe()))

    @quietly
    def _layer_begins(self, layer: Any) -> None:
        if not layers.is_layer(layer):
            return
        stack = self._local.layers
        stack.append(layer)
        if len(stack) == 1:
            self._variables.has_model(layer)
        if self._is_eager() or len(self._scopes) >= _MOST_SCOPES:
            return
        name = self._graph().get_name_scope()
        if name and (name, id(layer)) not in self._scopes:
            names = tuple(each.name for each in stack)
            self._scopes[name, id(layer)] = (time.monotonic_ns(), weakref.ref(layer), names)
            self._first_scopes.add(name.partition("/")[0])

    @quietly
    def _layer_ends(self, layer: Any) -> None:
        stack = self._local.layers
        if stack and stack[-1] is layer:
            stack.pop()

    @quietly
    def _graph_is_there(self, graph: Any) -> None:
        """Which variable each update of a graph assigns to, and which lines its other ops come from."""
        now = time.monotonic_ns()
        owner = {id(inner): self._variables.of_handle(outer) for outer, inner in graph.captures}
        ops = graph.get_operations()[:_MOST_OF_GRAPH]
        of_variables: set[str] = set()
        for op in ops:
            if op.type.startswith(_UPDATES) and len(op.inputs):
                variable = owner.get(id(op.inputs[0]))
                if variable is not None:
                    self._note_update(op, variable, now, of_variables)
        for op in ops:
            if op.type not in _SILENT and op.name not in of_variables and len(self._lines) < _MOST_LINES:
                self._note_line(op, now)

    def _note_update(self, update: Any, variable: Any, now: int, noted: set[str]) -> None:
        """An update and the ops of its own scope that lead to it: arithmetic of an optimizer, for this variable."""
        scope = update.name.rpartition("/")[0]
        self._note_op(update.name, variable, now)
        noted.add(update.name)
        todo = [tensor.op for tensor in list(update.inputs)[1:]]
        # Outside of a scope the arithmetic is the program's; only what is assigned is the variable's.
        depth = 10_000 if scope else 1
        while todo and depth:
            depth -= 1
            op = todo.pop()
            # Of what leads to several updates the first has it.
            if op.name not in noted and op.name.rpartition("/")[0] == scope and op.type not in _SILENT:
                noted.add(op.name)
                self._note_op(op.name, variable, now)
                todo += [tensor.op for tensor in op.inputs]

    def _note_op(self, name: str, variable: Any, now: int) -> None:
        if len(self._ops) < _MOST_OPS:
            self._ops[name, id(variable)] = (now, weakref.ref(variable))

    def _note_line(self, op: Any, now: int) -> None:
        name = op.name
        first = name.removeprefix("gradient_tape/").partition("/")[0]
        if first in self._first_scopes:
            return
        for frame in reversed(op.traceback):
            if not frame.filename.startswith(self._of_frameworks):
                line = f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
                self._lines.setdefault((name, line), now)
                return

    def function_begins(self) -> None:
        """A function of the program is called: what was run by itself before is over."""
        if self._spans:
            self._is_broken = True

    @quietly
    def _op_ran(self, begin: int, frame: FrameType) -> None:
        end = time.monotonic_ns()
        if threading.get_ident() != self._main or len(self._spans) >= _MOST_SPANS:
            return
        stack = self._local.layers
        layer = stack[-1] if stack else None
        line = self._line(frame)
        last = self._spans[-1] if self._spans else None
        is_broken, self._is_broken = self._is_broken, False
        if last is not None and not is_broken and last[2] == line and (last[3]() if last[3] else None) is layer:
            last[1] = end
        elif line or layer is not None:
            names = tuple(each.name for each in stack)
            self._spans.append([begin, end, line, weakref.ref(layer) if layer is not None else None, names])

    def _line(self, frame: FrameType | None) -> str | None:
        """Function and line of the program's own that a frame is in or was called from."""
        while frame is not None:
            code = frame.f_code
            if code not in self._programs:
                is_theirs = code.co_filename.startswith(self._of_frameworks)
                self._programs[code] = None if is_theirs else os.path.basename(code.co_filename)
            file = self._programs[code]
            if file is not None:
                return f"{file}:{frame.f_lineno} {code.co_name}"
            frame = frame.f_back
        return None

    def rows(self, listed: Inventory) -> list[Row]:
        """What was noted and not told yet, or has changed since: what it says of layers and variables holds now."""
        where = layers.places(self._variables.models())
        found = [*self._scope_rows(where), *self._op_rows(listed), *self._span_rows(where)]
        self._spans = []
        new = [row for row in found if row not in self._told]
        self._told.update(row for row in new if row[0] != "span")
        return new

    def _scope_rows(self, where: dict[int, layers.Place]) -> Iterator[Row]:
        for (name, _), (learned, reference, names) in list(self._scopes.items()):
            model, layer = _place(reference, names, where)
            yield ("scope", name, learned, model, layer, None, "unknown", None, None, None)

    def _op_rows(self, listed: Inventory) -> Iterator[Row]:
        for (name, _), (learned, reference) in list(self._ops.items()):
            row = listed.by_value.get(id(reference()))
            if row is not None:
                yield ("op", name, learned, row.model, row.layer, row.name, row.role, None, None, None)
        for (name, line), learned in list(self._lines.items()):
            yield ("op", name, learned, None, None, None, "unknown", line, None, None)

    def _span_rows(self, where: dict[int, layers.Place]) -> Iterator[Row]:
        for begin, end, line, reference, names in self._spans:
            model, layer = _place(reference, names, where) if reference is not None else (None, None)
            yield ("span", "", end, model, layer, None, "unknown", line, begin, end)


class _Local(threading.local):
    """Where a thread is."""

    def __init__(self) -> None:
        self.layers: list[Any] = []


def _place(
    reference: weakref.ref[Any], names: tuple[str, ...], where: dict[int, layers.Place]
) -> tuple[str | None, str | None]:
    """The model and path of a layer; of one that no model lists, the names of those that called it."""
    place = where.get(id(reference()))
    return place if place is not None else (None, "/".join(names))
