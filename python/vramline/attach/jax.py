"""Hooks on JAX: the trace, and a memory limit. The steps of a plain JAX loop are found later, in the trace."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach import ending
from vramline.attach.driver import total_memory
from vramline.attach.moments import Moments
from vramline.attach.requests import Answer, Requests
from vramline.attach.settings import RunOptions
from vramline.attach.steps import Steps
from vramline.attach.window import write_whole
from vramline.session import warn

_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def hook(jax: ModuleType, steps: Steps, options: RunOptions, requests: Requests) -> None:
    """Installs the hooks on a JAX that has just been imported."""
    if options.limit is not None:
        _set_limit(options.limit, steps)
    _hook_profiler(steps)
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
