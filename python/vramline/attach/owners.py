"""Finds the owners of the ops of a TensorFlow program: layer, variable, and line of code.

Vramline notes three facts, each where it is certain:

- Keras opens a name scope for every layer that it calls. While a graph is traced, the scope belongs to the layer, under the name that
  TensorFlow gave it.
- After a graph has been traced, its ops show which variable each update assigns to.
- An eager op belongs to the line of code, and to the layer, that the main thread is in. Eager ops are watched only while a trace
  window is open. An op of a gradient belongs to the layer whose op it differentiates, and one of an update to the layer of its variable.
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
from typing import Any, NamedTuple

from vramline import _vramline
from vramline.attach.quiet import quietly
from vramline.attach.variables import Variables
from vramline.frameworks import layers, tensorflow
from vramline.frameworks.inventory import Inventory, value_of

Row = tuple[
    str,
    str,
    int,
    str | None,
    str | None,
    tuple[str, int | None] | None,
    str,
    str | None,
    int | None,
    int | None,
    int | None,
    int | None,
]
"""kind, name, time, model, layer, variable with its number, role, source, begin, end, address, function"""

# The most that is noted: of graphs and of eager ops.
_MOST_SCOPES = 20_000
_MOST_OPS = 50_000
_MOST_LINES = 10_000
_MOST_SPANS = 50_000
_MOST_CALLS = 10_000
# Reading the address of a variable takes about 0.1 ms.
_MOST_VALUES = 2_000
# The most ops of one graph that are examined, which takes 9 microseconds each.
_MOST_OF_GRAPH = 100_000
# Packages that appear in call stacks between TensorFlow and the program.
_HELPERS = ("wrapt", "numpy", "six", "absl", "opt_einsum")
_GENERATED = "__autograph_generated_file"
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Prefixes of ops that assign to a variable.
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
# The name of spans that compute gradients.
_GRADIENTS = "gradient_tape"
# The method of an optimizer of Keras that updates one variable.
_UPDATE = "update_step"
# Ops that hold no memory of their own, or whose line of code is of no interest.
_SILENT = frozenset({"Placeholder", "Const", "NoOp", "Identity", "IdentityN", "ReadVariableOp", "Shape", "VarHandleOp"})


class Owners:
    """What is known about the owners of ops."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._local = _Local()
        # By scope, layer and traced function.
        self._scopes: dict[tuple[str, int, int | None], tuple[int, weakref.ref[Any], tuple[str, ...]]] = {}
        self._first_scopes: set[str] = set()
        # By op, variable and function, then by op, line and function: when that was learned.
        self._ops: dict[tuple[str, int, int | None], tuple[int, weakref.ref[Any]]] = {}
        self._lines: dict[tuple[str, str, int | None], int] = {}
        self._spans: list[_Span] = []
        # By the number of a tensor, by op and the number of an input, and by scope: the layer whose eager op it is.
        self._layer_of: dict[Any, _InLayer] = {}
        # Variables that a step created: when, and at which address.
        self._values: list[tuple[int, weakref.ref[Any], int]] = []
        # Calls of compiled functions: begin, end and number of the function.
        self._calls: list[tuple[int, int, int]] = []
        self._functions = 0
        self.is_in_step = False
        """Whether a step is running. Variables are listed when a step begins, so those that it creates are noted separately."""
        # Whether the next op begins a new span.
        self._is_over = False
        self._told: set[Row] = set()
        self._main = threading.main_thread().ident
        self._programs: dict[CodeType, str | None] = {}
        self._of_frameworks: tuple[str, ...] = (_HERE, "<frozen")
        self._stop: Callable[[], None] | None = None

    def hook(self, framework: Any) -> None:
        """Installs hooks for new graphs and variables on a TensorFlow that has just been imported."""
        from tensorflow.python.eager import backprop, record
        from tensorflow.python.framework import func_graph, ops
        from tensorflow.python.ops import resource_variable_ops

        home = os.path.dirname(os.path.abspath(framework.__file__))
        helpers = (os.path.join(os.path.dirname(home), name) for name in _HELPERS)
        self._of_frameworks += (home, *helpers)
        trace = func_graph.func_graph_from_py_func

        @functools.wraps(trace)
        def traced(*args: Any, **kwargs: Any) -> Any:
            graph = trace(*args, **kwargs)
            self._graph_created(graph)
            return graph

        func_graph.func_graph_from_py_func = traced
        variable = resource_variable_ops.BaseResourceVariable
        make = variable.__init__

        @functools.wraps(make)
        def made(this: Any, *args: Any, **kwargs: Any) -> None:
            make(this, *args, **kwargs)
            self._variable_created(this)

        variable.__init__ = made
        self._hook_first_values()
        self._differentiate = getattr(getattr(backprop, "_gradient_function", None), "__code__", None)
        self._without_tape = record.stop_recording
        self._is_eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        self._graph = ops.get_default_graph
        self._name_scope = ops.get_name_scope

    def _hook_first_values(self) -> None:
        """Installs hooks for variables that a function creates while it is traced: they get their first values later than others."""
        from tensorflow.python.eager.polymorphic_function import polymorphic_function

        unlifted = polymorphic_function.UnliftedInitializerVariable
        make = unlifted.__init__

        @functools.wraps(make)
        def made(this: Any, *args: Any, **kwargs: Any) -> None:
            make(this, *args, **kwargs)
            self._values_created([this])

        unlifted.__init__ = made
        self._unlifted = unlifted
        function = polymorphic_function.Function
        initialize = getattr(function, "_initialize_uninitialized_variables", None)
        if initialize is None:
            return

        @functools.wraps(initialize)
        def initialized(this: Any, initializers: Any) -> Any:
            result = initialize(this, initializers)
            self._values_created([variable for variable, _ in initializers])
            return result

        function._initialize_uninitialized_variables = initialized

    def hook_keras(self, keras: Any) -> None:
        """Installs hooks for the layers that Keras calls on the TensorFlow backend."""
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
        """Watches eager ops until `end`. Called when a trace window opens."""
        if self._stop is not None:
            return
        # TensorFlow uses the second for arguments that the first does not support, such as variables of Keras.
        # The place of the op's name among the arguments differs.
        stops = [self._watch_ops("TFE_Py_FastPathExecute", 1), self._watch_ops("TFE_Py_Execute", 2)]

        def stop() -> None:
            for each in stops:
                each()

        self._stop = stop

    def _watch_ops(self, name: str, place: int) -> Callable[[], None]:
        """Watches the ops that run through a function of TensorFlow. Returns a function that stops it."""
        wrapped: Any = sys.modules["tensorflow.python.pywrap_tfe"]
        execute = getattr(wrapped, name)

        def ran(begin: int, args: tuple[Any, ...], result: Any) -> None:
            # `Watched` adds no Python frame, so the caller of this function is the caller of TensorFlow's function.
            self._op_ran(begin, sys._getframe(1), args[place] if len(args) > place else None, args[3:], result)

        watched = _vramline.Watched(execute, ran)

        def stop() -> None:
            if getattr(wrapped, name) is watched:
                setattr(wrapped, name, execute)

        setattr(wrapped, name, watched)
        return stop

    def end(self) -> None:
        """Stops watching eager ops. Called when the window closes."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        self._layer_of.clear()

    def gradient(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls a function of a tape that computes gradients, and notes that the thread does so."""
        local = self._local
        before, local.in_gradient = local.in_gradient, True
        try:
            return call(*args, **kwargs)
        finally:
            local.in_gradient = before

    def calls(self, function: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls a compiled function of the program and notes its number: ops with the same name in two functions are different ops."""
        local = self._local
        if local.function is not None:
            return call(function, *args, **kwargs)
        number = function.__dict__.get("_vramline_number")
        if number is None:
            self._functions += 1
            number = function._vramline_number = self._functions
        local.function, begin = number, time.monotonic_ns()
        try:
            return call(function, *args, **kwargs)
        finally:
            local.function = None
            if self._stop is not None and len(self._calls) < _MOST_CALLS and threading.get_ident() == self._main:
                self._calls.append((begin, time.monotonic_ns(), number))

    @quietly
    def _variable_created(self, variable: Any) -> None:
        if not variable._in_graph_mode:
            self._variables.made(variable, self._line(sys._getframe()))
            if not isinstance(variable, self._unlifted):
                self._values_created([variable])

    @quietly
    def _values_created(self, variables: list[Any]) -> None:
        """Notes the addresses of first values. The step may replace the values before the variables are listed again."""
        if not self.is_in_step or self._stop is None or not self._is_eager():
            return
        for variable in variables[: max(_MOST_VALUES - len(self._values), 0)]:
            # The program's gradient tapes must not record this read.
            with self._without_tape():
                address = tensorflow.address(variable)
            if address is not None:
                self._values.append((time.monotonic_ns(), weakref.ref(variable), address))

    @quietly
    def _layer_begins(self, layer: Any) -> None:
        if not layers.is_layer(layer):
            return
        stack = self._local.layers
        stack.append(layer)
        self._local.in_layer = None
        if len(stack) == 1:
            self._variables.has_model(layer)
        if self._is_eager():
            if self._stop is not None:
                self._layer_of[self._name_scope()] = self._local.in_layer = _in_layer(stack)
            return
        if len(self._scopes) >= _MOST_SCOPES:
            return
        name = self._graph().get_name_scope()
        key = (name, id(layer), self._local.function)
        if name and key not in self._scopes:
            names = tuple(each.name for each in stack)
            self._scopes[key] = (time.monotonic_ns(), weakref.ref(layer), names)
            self._first_scopes.add(name.partition("/")[0])

    @quietly
    def _layer_ends(self, layer: Any) -> None:
        stack = self._local.layers
        self._local.in_layer = None
        if stack and stack[-1] is layer:
            stack.pop()

    @quietly
    def _graph_created(self, graph: Any) -> None:
        """Notes which variable each update of a graph assigns to, and which lines its other ops come from."""
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
        """Notes an update and the ops in its scope that lead to it: the optimizer's arithmetic for this variable."""
        scope = update.name.rpartition("/")[0]
        self._note_op(update.name, variable, now)
        noted.add(update.name)
        todo = [tensor.op for tensor in list(update.inputs)[1:]]
        # Without a scope the arithmetic belongs to the program; only the assigned value belongs to the variable.
        depth = 10_000 if scope else 1
        while todo and depth:
            depth -= 1
            op = todo.pop()
            # An op that leads to several updates belongs to the first of them.
            if op.name not in noted and op.name.rpartition("/")[0] == scope and op.type not in _SILENT:
                noted.add(op.name)
                self._note_op(op.name, variable, now)
                todo += [tensor.op for tensor in op.inputs]

    def _note_op(self, name: str, variable: Any, now: int) -> None:
        if len(self._ops) < _MOST_OPS:
            self._ops[name, id(variable), self._local.function] = (now, weakref.ref(variable))

    def _note_line(self, op: Any, now: int) -> None:
        name = op.name
        first = name.removeprefix("gradient_tape/").partition("/")[0]
        if first in self._first_scopes:
            return
        for frame in reversed(op.traceback):
            if not frame.filename.startswith(self._of_frameworks):
                line = f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
                self._lines.setdefault((name, line, self._local.function), now)
                return

    def function_begins(self) -> None:
        """Ends the current span of eager ops, because the program calls a compiled function."""
        self._is_over = True

    @quietly
    def _op_ran(self, begin: int, frame: FrameType, op: Any, inputs: Any, result: Any) -> None:
        end = time.monotonic_ns()
        if threading.get_ident() != self._main or len(self._spans) >= _MOST_SPANS:
            return
        name = op.decode() if isinstance(op, bytes) else str(op)
        # A call of a graph: its ops have names of their own.
        if name.startswith("__") or name.endswith("PartitionedCall"):
            return
        local = self._local
        special: list[FrameType] = []
        line = self._line(frame, special)
        owner: _InLayer | None = None
        if local.in_gradient:
            owner = self._differentiated(special)
        elif local.layers:
            owner = local.in_layer = local.in_layer or _in_layer(local.layers)
            self._note_tensors(name, inputs, result, owner)
        elif special:
            owner = _updated(special)
        last = self._spans[-1] if self._spans else None
        is_over, self._is_over = self._is_over, False
        if last is not None and not is_over and last.is_same(line, owner, local.in_gradient):
            last.end = end
        elif line or owner is not None:
            self._spans.append(_Span(begin, end, line, owner, local.in_gradient))

    def _note_tensors(self, op: str, inputs: Any, result: Any, owner: _InLayer) -> None:
        """Notes the layer of an op by the tensors that it takes and creates. Its gradient gets some of them, but no name."""
        if len(self._layer_of) >= _MOST_SPANS:
            # Steps that are over need no gradients.
            self._layer_of.clear()
        for tensor in _tensors(inputs):
            self._layer_of[op, tensor] = owner
        for tensor in _tensors((result,)):
            self._layer_of[tensor] = owner

    def _differentiated(self, special: list[FrameType]) -> _InLayer | None:
        """Returns the layer of the op whose gradient is computed."""
        frame = next((frame for frame in special if frame.f_code is self._differentiate), None)
        if frame is None:
            return None
        told = frame.f_locals
        scope = told.get("forward_pass_name_scope")
        if scope in self._layer_of:
            return self._layer_of[scope]
        for tensor in _tensors(told.get("outputs")):
            if tensor in self._layer_of:
                return self._layer_of[tensor]
        # Weights are last among the inputs, and no other layer has read them into the same tensor.
        for tensor in reversed(list(_tensors(told.get("inputs")))):
            if (told.get("op_name"), tensor) in self._layer_of:
                return self._layer_of[told.get("op_name"), tensor]
        return None

    def _line(self, frame: FrameType | None, special: list[FrameType] | None = None) -> str | None:
        """Returns the innermost function and line of the program's own code in a call stack.

        Args:
            frame: The innermost frame.
            special: Gets the frames on the way that compute the gradient of one op, or update one variable.
        """
        while frame is not None:
            code = frame.f_code
            if code not in self._programs:
                name = os.path.basename(code.co_filename)
                # Lines of code that AutoGraph generated are not the program's; the call of that code is.
                is_theirs = code.co_filename.startswith(self._of_frameworks) or name.startswith(_GENERATED)
                self._programs[code] = None if is_theirs else name
            file = self._programs[code]
            if file is not None:
                return f"{file}:{frame.f_lineno} {code.co_name}"
            if special is not None and (code is self._differentiate or code.co_name == _UPDATE):
                special.append(frame)
            frame = frame.f_back
        return None

    def rows(self, listed: Inventory) -> list[Row]:
        """Returns rows that are new or have changed since the last call, with the layers and variables as they are now."""
        where = layers.places(self._variables.models(), self._variables.labels())
        lasting = [*self._scope_rows(where), *self._op_rows(listed)]
        new = [row for row in lasting if row not in self._told]
        self._told.update(new)
        new += [*self._span_rows(where, listed), *self._value_rows(listed), *self._call_rows()]
        self._spans, self._values, self._calls = [], [], []
        return new

    def _scope_rows(self, where: dict[int, layers.Place]) -> Iterator[Row]:
        for (name, _, function), (learned, reference, names) in list(self._scopes.items()):
            model, layer = _place(reference, names, where)
            yield ("scope", name, learned, model, layer, None, "unknown", None, None, None, None, function)

    def _op_rows(self, listed: Inventory) -> Iterator[Row]:
        for (name, _, function), (learned, reference) in list(self._ops.items()):
            row = listed.by_value.get(id(reference()))
            if row is not None:
                variable = (row.name, row.number)
                yield ("op", name, learned, row.model, row.layer, variable, row.role, None, None, None, None, function)
        for (name, line, function), learned in list(self._lines.items()):
            yield ("op", name, learned, None, None, None, "unknown", line, None, None, None, function)

    def _span_rows(self, where: dict[int, layers.Place], listed: Inventory) -> Iterator[Row]:
        for span in self._spans:
            model, layer = None, None
            if span.owner is not None and span.owner.names is not None:
                model, layer = _place(span.owner.reference, span.owner.names, where)
            elif span.owner is not None:
                variable = listed.by_value.get(id(span.owner.reference()))
                model, layer = (variable.model, variable.layer) if variable is not None else (None, None)
            name = _GRADIENTS if span.is_gradient else ""
            yield ("span", name, span.end, model, layer, None, "unknown", span.line, span.begin, span.end, None, None)

    def _value_rows(self, listed: Inventory) -> Iterator[Row]:
        for made, reference, address in self._values:
            row = listed.by_value.get(id(reference()))
            if row is not None:
                variable = (row.name, row.number)
                yield ("value", "", made, row.model, row.layer, variable, row.role, row.source, None, None, address, None)

    def _call_rows(self) -> Iterator[Row]:
        for begin, end, function in self._calls:
            yield ("call", "", end, None, None, None, "unknown", None, begin, end, None, function)


class _InLayer(NamedTuple):
    """A layer with the names of the layers that called it, outermost first; or a variable, without names."""

    reference: weakref.ref[Any]
    names: tuple[str, ...] | None


class _Span:
    """Eager ops that ran one after another for the same line and the same layer."""

    __slots__ = ("begin", "end", "is_gradient", "line", "owner")

    def __init__(self, begin: int, end: int, line: str | None, owner: _InLayer | None, is_gradient: bool) -> None:
        self.begin, self.end, self.line, self.owner, self.is_gradient = begin, end, line, owner, is_gradient

    def is_same(self, line: str | None, owner: _InLayer | None, is_gradient: bool) -> bool:
        """Returns whether another op belongs to this span."""
        ours, theirs = self.owner and self.owner.reference(), owner and owner.reference()
        return self.line == line and ours is theirs and self.is_gradient == is_gradient


def _in_layer(stack: list[Any]) -> _InLayer:
    """Returns the innermost layer that is running."""
    return _InLayer(weakref.ref(stack[-1]), tuple(each.name for each in stack))


def _updated(special: list[FrameType]) -> _InLayer | None:
    """Returns the variable that an optimizer updates."""
    variable = special[-1].f_locals.get("variable")
    return _InLayer(weakref.ref(value_of(variable)), None) if variable is not None else None


def _tensors(values: Any) -> Iterator[int]:
    """Yields the numbers of the eager tensors among values. A value may be a list of tensors."""
    for value in values if isinstance(values, (list, tuple)) else ():
        for each in value if isinstance(value, (list, tuple)) else (value,):
            number = getattr(each, "_id", None)
            if isinstance(number, int):
                yield number


class _Local(threading.local):
    """What a thread is executing."""

    def __init__(self) -> None:
        self.layers: list[Any] = []
        # The innermost of them, once an op needs it.
        self.in_layer: _InLayer | None = None
        # Whether it computes gradients with a tape.
        self.in_gradient = False
        # The number of the outermost compiled function that is running.
        self.function: int | None = None


def _place(
    reference: weakref.ref[Any], names: tuple[str, ...], where: dict[int, layers.Place]
) -> tuple[str | None, str | None]:
    """Returns the model and path of a layer. If no model lists it, the path consists of the layers that called it."""
    place = where.get(id(reference()))
    return place if place is not None else (None, "/".join(names))
