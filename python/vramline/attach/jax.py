"""Hooks on JAX: the trace, the arguments of compiled programs, and a memory limit.

The steps of a plain JAX loop are found later, in the trace. Its programs have the paths of their arguments, but its blocks have only
addresses. JAX runs a program for the first time from Python, and later without it: the first time, the hook notes which address each
parameter has.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach import ending
from vramline.attach.driver import total_memory
from vramline.attach.moments import Moments
from vramline.attach.quiet import quietly
from vramline.attach.requests import Answer, Requests
from vramline.attach.settings import RunOptions
from vramline.attach.steps import Steps
from vramline.attach.window import write_whole
from vramline.recording.session import warn

_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"

# Devices whose arrays are in no pool that a trace shows.
_WITHOUT_POOL = frozenset({"cpu"})
# Calls of one program whose arguments are noted. Some programs always run from Python.
_MOST_CALLS = 2
# Arguments that are noted in all.
_MOST_ARGUMENTS = 200_000


def hook(jax: ModuleType, steps: Steps, options: RunOptions, requests: Requests) -> None:
    """Installs the hooks on a JAX that has just been imported."""
    if options.limit is not None:
        _set_limit(options.limit, steps)
    _hook_profiler(steps)
    quietly(_hook_arguments)(steps)
    moments = Moments(steps)
    requests.add("jax", lambda: _asked(moments))
    ending.at_exit_of(steps)


def _asked(moments: Moments) -> Answer:
    """Answers `vramline snapshot` with JAX's profile of live arrays."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_default_backend", None) is None:
        return Answer("counters", reason="JAX has not opened a device in this process")
    profiler = sys.modules.get("jax.profiler")
    if profiler is None:
        return Answer("counters", reason="JAX has no profiler here")

    def save(folder: pathlib.Path) -> None:
        write_whole(folder / f"{os.uname().nodename}.memory.prof", profiler.device_memory_profile())

    number, why = moments.take("request", "snapshot: requested by vramline snapshot", save)
    return Answer("taken", number) if number is not None else Answer("failed", reason=why)


def _set_limit(limit: int, steps: Steps) -> None:
    """Sets the limit as a fraction of the device's memory, which JAX reads when it opens the device."""
    total = total_memory()
    if total is None:
        steps.job.mark("setting", "--limit is not applied to JAX: the total memory of the device is unknown")
        return
    if _FRACTION in os.environ:
        warn(f"--limit is not applied to JAX, because {_FRACTION} is set; unset it to use --limit")
        return
    # JAX stores the fraction as a 32-bit float: six digits, rounded down, stay below the limit.
    os.environ[_FRACTION] = f"{int(limit / total * 1e6) / 1e6:.6f}"
    steps.job.mark("setting", f"{_FRACTION}={os.environ[_FRACTION]}: {limit} of {total} bytes")


def _hook_profiler(steps: Steps) -> None:
    """Starts the trace when JAX has opened its backends: the library that allocates on a GPU is loaded only then."""
    window = steps.window

    def start(_: pathlib.Path) -> Callable[[pathlib.Path], None]:
        from jax._src.lib import _profiler

        options = _profiler.ProfileOptions()
        options.host_tracer_level = 2
        options.python_tracer_level = 0
        ours = _profiler.ProfilerSession(options)
        window.keep(ours)

        def save(folder: pathlib.Path) -> None:
            data = ours.stop()
            write_whole(folder / f"{os.uname().nodename}.xplane.pb", data)

        return save

    bridge: Any = sys.modules["jax._src.xla_bridge"]
    backends = bridge.backends

    @functools.wraps(backends)
    def opened() -> Any:
        found = backends()
        if bridge.backends is opened and getattr(bridge, "_default_backend", None) is not None:
            bridge.backends = backends
            window.open("jax", start)
        return found

    if getattr(bridge, "_default_backend", None) is None:
        bridge.backends = opened
    else:
        window.open("jax", start)
    for module in (sys.modules.get("jax._src.profiler"), sys.modules.get("jax.profiler")):
        for name in ("start_trace", "start_server"):
            theirs = getattr(module, name, None)
            if callable(theirs):
                setattr(module, name, _making_way(theirs, steps))


def _making_way(theirs: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def start(*args: Any, **kwargs: Any) -> Any:
        steps.window.close("the program starts its own profiler", wait=True)
        return theirs(*args, **kwargs)

    return start


def _hook_arguments(steps: Steps) -> None:
    """Wraps the method that runs a program from Python, if this version of JAX has it: it runs once for each compiled program."""
    module = sys.modules.get("jax._src.interpreters.pxla")
    replicated = getattr(module, "ExecuteReplicated", None)
    execute = vars(replicated).get("__call__") if replicated is not None else None
    if replicated is None or execute is None:
        return
    note = quietly(_Arguments(steps).note)

    @functools.wraps(execute)
    def executed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if steps.window.is_open:
            note(self, args)
        return execute(self, *args, **kwargs)

    replicated.__call__ = executed


class _Arguments:
    """The addresses of the arguments of compiled programs. It keeps no array."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._calls: dict[int, int] = {}
        self._left = _MOST_ARGUMENTS

    def note(self, program: Any, args: tuple[Any, ...]) -> None:
        """Writes the addresses that are passed to a program, by the numbers of its parameters."""
        executable = program.xla_executable
        calls = self._calls.get(id(executable), 0)
        if calls >= _MOST_CALLS or self._left < len(args) or executable.local_devices()[0].platform in _WITHOUT_POOL:
            return
        self._calls[id(executable)] = calls + 1
        # JAX drops arguments that the program does not use; tokens of ordered effects come first.
        kept = getattr(program, "kept_var_idx", None)
        first = len(getattr(program, "ordered_effects", None) or ())
        passed = [arg for place, arg in enumerate(args) if kept is None or place in kept]
        now = time.monotonic_ns()
        rows = [
            ("argument", program.name, now, None, None, ("", number), "unknown", None, None, None, address, None)
            for number, arg in enumerate(passed, first)
            for address in _addresses(arg)
        ]
        self._left -= len(rows)
        self._steps.job.owners(rows)


def _addresses(arg: Any) -> list[int]:
    """Returns the address of an array on each device of this process; none for a value that is not on a device yet."""
    # A key of jax.random wraps an array.
    arg = getattr(arg, "_base_array", arg)
    if not hasattr(arg, "unsafe_buffer_pointer") or arg.is_deleted():
        return []
    if len(arg.devices()) == 1:
        return [arg.unsafe_buffer_pointer()]
    return [shard.data.unsafe_buffer_pointer() for shard in arg.addressable_shards]
