"""Hooks on TensorFlow: the trace, the steps of custom loops, and the memory limit."""

from __future__ import annotations

import functools
import pathlib
import sys
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach import ending, keras, own_profile, owners, quiet, raised
from vramline.attach.quiet import quietly
from vramline.attach.requests import Answer, Requests
from vramline.attach.settings import RunOptions
from vramline.attach.steps import Steps
from vramline.recording.session import warn

_MIB = 1 << 20
# The most variables of one call of `GradientTape.gradient` that are noted.
_MOST_SOURCES = 20_000


def hook(tensorflow: ModuleType, steps: Steps, options: RunOptions, requests: Requests) -> None:
    """Installs the hooks on a TensorFlow that has just been imported."""
    if options.limit is not None:
        _hook_limit(sys.modules["tensorflow.python.eager.context"].Context, options.limit, steps)
    steps.owners.hook(tensorflow)
    _hook_profiler(steps)
    _hook_functions(steps)
    _hook_tracing(steps)
    _hide()
    raised.hook(tensorflow.errors.ResourceExhaustedError, steps.job)
    requests.add("tensorflow", lambda: _asked(steps))
    ending.at_exit_of(steps)


def _asked(steps: Steps) -> Answer:
    """Answers `vramline snapshot` with a trace of the next steps: TensorFlow tells what its pool holds only in a trace."""
    window = steps.window
    if window.is_open:
        return Answer("opened", window.number, "a trace was open already")
    if window.reopen("request"):
        return Answer("opened", window.number)
    return Answer("counters", reason="no trace can be opened: the budget of --trace auto is spent, or the program traces itself")


def _hook_profiler(steps: Steps) -> None:
    from tensorflow.python.profiler.internal import _pywrap_profiler as profiler

    session = profiler.ProfilerSession
    window, job = steps.window, steps.job

    def start(folder: pathlib.Path) -> Callable[[pathlib.Path], None]:
        ours = session()
        ours.start(str(folder), {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0})
        window.keep(ours)
        steps.owners.begin()
        window.on_stop(steps.owners.end)
        return lambda _: ours.export_to_tb()

    class ProfilerSession(session):  # type: ignore[misc, valid-type]
        """A profiler session of the program. TensorFlow allows only one: ours stops, and the profile of this one is noted."""

        def start(self, *args: Any) -> Any:
            window.make_way()
            try:
                result = super().start(*args)
            except BaseException:
                window.program_ended()
                raise
            _began(self, own_profile.OwnProfile(job, window, args[0] if args else ""))
            return result

        def export_to_tb(self) -> Any:
            own = getattr(self, "_vramline", None)
            quietly(steps.take_inventory)()
            if own is not None:
                own.stops()
            try:
                result = super().export_to_tb()
            except BaseException:
                if own is not None:
                    own.lost("TensorFlow could not write it")
                raise
            if own is not None:
                own.written()
            return result

        def stop(self) -> Any:
            own = getattr(self, "_vramline", None)
            if own is not None:
                own.stops()
            try:
                return super().stop()
            finally:
                if own is not None:
                    own.lost("the program stopped it without writing it")

    @quietly
    def _began(profiler: Any, own: own_profile.OwnProfile) -> None:
        profiler._vramline = own
        # If the program never saves the profile, the session is only freed.
        weakref.finalize(profiler, own.lost, "the program did not save it").atexit = False

    serve = profiler.start_server

    @functools.wraps(serve)
    def start_server(*args: Any) -> Any:
        # From now on a client may start a profile at any time.
        window.make_way()
        return serve(*args)

    window.open("tensorflow", start, again=True)
    profiler.ProfilerSession = ProfilerSession
    profiler.start_server = start_server


def _hook_functions(steps: Steps) -> None:
    """Notes calls of the outermost compiled function outside of Keras, gradients, and tapes."""
    from tensorflow.python.eager import backprop, context
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    function = polymorphic_function.Function
    call = function.__call__

    @functools.wraps(call)
    def outermost(self: Any, *args: Any, **kwargs: Any) -> Any:
        local = steps.local
        if not context.executing_eagerly():
            return call(self, *args, **kwargs)
        if local.in_keras or local.depth:
            return steps.owners.calls(self, call, args, kwargs)
        local.depth, local.saw_update, local.saw_gradient = 1, False, False
        begin = steps.begin()
        steps.owners.function_begins()
        try:
            return steps.owners.calls(self, call, args, kwargs)
        finally:
            local.depth = 0
            # What a function does is seen only in calls that trace it, so it is remembered on the function.
            updates = local.saw_update or getattr(self, "_vramline_updates", False)
            trains = local.saw_gradient or updates or getattr(self, "_vramline_trains", False)
            self._vramline_updates, self._vramline_trains = updates, trains
            name = getattr(self, "_name", None) or "function"
            if updates:
                steps.end("train", "inferred", begin, label=name)
            else:
                steps.call(name, trains, begin)

    function.__call__ = outermost

    gradient = backprop.GradientTape.gradient

    @functools.wraps(gradient)
    def seen(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps.local.saw_gradient = True
        _note_sources(steps, args[1] if len(args) > 1 else kwargs.get("sources"))
        return steps.owners.gradient(gradient, (self, *args), kwargs)

    seen.autograph_info__ = {}  # type: ignore[attr-defined]
    backprop.GradientTape.gradient = seen

    enter = backprop.GradientTape.__enter__

    @functools.wraps(enter)
    def begins(self: Any) -> Any:
        local = steps.local
        if not local.depth and not local.in_keras and context.executing_eagerly():
            steps.end_own_update()
            if local.boundary is None:
                local.boundary = steps.begin(is_eager=True)
        return enter(self)

    backprop.GradientTape.__enter__ = begins
    _hook_assignments(steps)


def _hook_assignments(steps: Steps) -> None:
    """Notes assignments to trained variables: a loop without an optimizer updates them itself, and its step lasts until the next tape."""
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable

    def hear(owner: type, name: str) -> None:
        assign = owner.__dict__[name]

        @functools.wraps(assign)
        def heard(self: Any, *args: Any, **kwargs: Any) -> Any:
            local = steps.local
            if local.boundary is not None and not local.in_update and steps.variables.is_trained(self):
                local.has_own_update = True
            return assign(self, *args, **kwargs)

        # Tells AutoGraph not to convert this function.
        heard.autograph_info__ = {}  # type: ignore[attr-defined]
        setattr(owner, name, heard)

    for owner in (BaseResourceVariable, ResourceVariable):
        for name in ("assign", "assign_sub", "assign_add"):
            if name in owner.__dict__:
                hear(owner, name)


@quietly
def _note_sources(steps: Steps, sources: Any) -> None:
    """Notes the variables of a gradient as trained. They may be nested in lists, tuples and dicts."""
    todo, found = [sources], list[Any]()
    while todo and len(found) < _MOST_SOURCES:
        each = todo.pop()
        if isinstance(each, dict):
            todo += each.values()
        elif isinstance(each, (list, tuple)):
            todo += each
        else:
            found.append(each)
    steps.variables.trains(found)


def _hook_tracing(steps: Steps) -> None:
    """Notes functions that are traced again for other shapes or types. Calls that trace nothing are not touched."""
    from tensorflow.python.eager.polymorphic_function import tracing_compilation
    from tensorflow.python.framework import ops

    create = getattr(tracing_compilation, "_create_concrete_function", None)
    if create is None:  # TensorFlow before 2.15.
        return

    @functools.wraps(create)
    def created(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
        # A function inside another one is traced as part of it.
        if not ops.inside_function():
            _traced(steps, function_type, tracing_options)
        return create(function_type, type_context, func_graph, tracing_options)

    tracing_compilation._create_concrete_function = created


@quietly
def _traced(steps: Steps, function_type: Any, options: Any) -> None:
    known = getattr(options.function_cache, "_primary", None) or {}
    taken = _taken(function_type)
    # A function that creates variables is traced twice for the same arguments.
    if known and taken not in [_taken(other) for _, other in known]:
        counts = [_elements(_taken(other)) for _, other in known]
        largest = None if None in counts else max(filter(None, counts), default=0)
        steps.retraced(str(options.name), _elements(taken), largest)


def _elements(types: Any) -> int | None:
    """Returns the number of elements of all tensors in the arguments; None if a dimension is unknown."""
    total = 0
    for each in types:
        inner: Any = ()
        if isinstance(each, list | tuple):
            inner = each
        elif isinstance(each, dict):
            inner = each.values()
        elif hasattr(each, "element_spec"):  # Keras passes iterators.
            inner = [each.element_spec]
        elif hasattr(each, "components"):
            inner = each.components
        elif hasattr(each, "shape"):
            count = each.shape.num_elements()
        else:
            continue
        if inner:
            count = _elements(inner)
        if count is None:
            return None
        total += count
    return total


def _taken(function_type: Any) -> list[Any]:
    """Returns the types of a function's arguments."""
    return [parameter.type_constraint for parameter in function_type.parameters.values()]


def _hide() -> None:
    """Removes our frames from the call stacks that TensorFlow stores for every op of a graph and prints in its errors."""
    from tensorflow.python.util import tf_stack

    stacks = getattr(tf_stack, "_source_filter_stacks", None)
    sentinel = getattr(tf_stack, "SentinelFilter", None)
    if stacks is None or sentinel is None:
        return
    here = frozenset({__file__, keras.__file__, owners.__file__, quiet.__file__})
    # This is the lowest filter of every thread; the filters above it inherit what it filters.
    sentinel.get_filtered_filenames = lambda self: here

    def bottom() -> list[Any]:
        lowest = sentinel()
        lowest.update()
        return [lowest]

    stacks.default_factory = bottom
    for stack in list(stacks.values()):
        for each in stack:
            each.update()


def _hook_limit(context: type, limit: int, steps: Steps) -> None:
    """Applies a memory limit to every GPU just before TensorFlow initialises, unless the program has configured the GPU itself."""
    initialise = context.ensure_initialized  # type: ignore[attr-defined]
    grow = context.set_memory_growth  # type: ignore[attr-defined]

    @functools.wraps(initialise)
    def ensure_initialized(self: Any) -> Any:
        if not self._initialized:
            context.ensure_initialized = initialise  # type: ignore[attr-defined]
            try:
                _limit_gpus(self, limit, steps)
            except Exception as error:
                _say(steps, f"--limit could not be applied to all GPUs: {error}")
        return initialise(self)

    @functools.wraps(grow)
    def set_memory_growth(self: Any, device: Any, enable: bool) -> Any:
        if not enable or getattr(device, "device_type", "GPU") != "GPU":
            return grow(self, device, enable)
        text = f"set_memory_growth for {getattr(device, 'name', device)} is ignored: TensorFlow cannot combine it with --limit"
        _say(steps, text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None

    context.ensure_initialized = ensure_initialized  # type: ignore[attr-defined]
    context.set_memory_growth = set_memory_growth  # type: ignore[attr-defined]


def _limit_gpus(context: Any, limit: int, steps: Steps) -> None:
    from tensorflow.python.eager.context import LogicalDeviceConfiguration

    for gpu in context.list_physical_devices("GPU"):
        if context.get_logical_device_configuration(gpu):
            _say(steps, f"--limit is not applied to {gpu.name}, because the program configures its logical devices itself")
            continue
        context.set_logical_device_configuration(gpu, [LogicalDeviceConfiguration(memory_limit=limit // _MIB)])
        steps.job.mark("setting", f"limit of {gpu.name}: {limit // _MIB} MiB")


def _say(steps: Steps, text: str) -> None:
    steps.job.mark("setting", text)
    warn(text)
