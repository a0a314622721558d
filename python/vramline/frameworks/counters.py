"""Reads and resets the counters of every framework that the program uses, through the adapters."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from types import ModuleType

from vramline import _vramline
from vramline.frameworks.adapter import Counters, resets
from vramline.frameworks.adapter import NotResettable as NotResettable  # Part of the interface of `reset`.

_loaded: dict[str, ModuleType] = {}

# Frameworks by precedence, for programs that use several.
_ADAPTERS = {"tensorflow": "vramline.frameworks.tensorflow", "jax": "vramline.frameworks.jax", "torch": "vramline.frameworks.torch"}

# Frameworks that were in use when this process was forked. They are not asked: their threads do not exist in the child, and their
# locks may stay locked for ever.
_left_behind: set[str] = set()


def _after_fork() -> None:
    global plan
    plan = None
    _left_behind.update(
        framework for framework, name in _ADAPTERS.items() if name in sys.modules and sys.modules[name].is_used()
    )


os.register_at_fork(after_in_child=_after_fork)


def adapters() -> list[ModuleType]:
    """Returns the adapters of the frameworks that the program has used."""
    # This runs at every step, so it makes few calls and looks nothing up twice.
    used = []
    for framework in _ADAPTERS:
        if framework in sys.modules and framework not in _left_behind:
            adapter = _loaded.get(framework) or _load(framework)
            if adapter.is_used():
                used.append(adapter)
    return used


def used() -> list[str]:
    """Returns the names of the frameworks that the program has used. Never raises."""
    try:
        return [adapter.NAME for adapter in adapters()]
    except Exception:  # An unknown version of a framework.
        return []


def _load(framework: str) -> ModuleType:
    # Not from `sys.modules`, which also holds a module that another thread is still importing.
    adapter = _loaded[framework] = importlib.import_module(_ADAPTERS[framework])
    return adapter


# Makes counters of a tuple without a frame of Python, unlike `Counters(*read)`.
_from_tuple = functools.partial(tuple.__new__, Counters)

# Reads the counters in as few calls as possible, if only one framework is in use: this runs at every step, in code that is not in the
# CPU's caches. After a number of reads it returns None, and all frameworks are checked again.
plan: _vramline.Plan | None = None


def read_all() -> list[Counters]:
    """Returns the counters of every device of every framework in use. Never raises."""
    planned = plan.read() if plan is not None else None
    return _read_all() if planned is None else list(map(_from_tuple, planned))


def _read_all() -> list[Counters]:
    global plan
    used = adapters()
    plan = used[0].plan() if len(used) == 1 and hasattr(used[0], "plan") else None
    found: list[Counters] = []
    for adapter in used:
        try:
            found += map(adapter.read, adapter.devices())
        except Exception as error:  # With an unknown version of a framework, its figures are missing, but the job continues.
            found.append(Counters(adapter.NAME, reason=f"{adapter.NAME}: {error}"))
    return found


def read_sampled() -> list[Counters]:
    """Returns the same, and counters that are too slow for every step: pinned host memory. Never raises."""
    found = read_all()
    for adapter in adapters():
        try:
            found += adapter.pinned() if hasattr(adapter, "pinned") else []
        except Exception:  # As in read_all.
            continue
    return found


def reset_all() -> None:
    """Resets the peak of every device whose framework can do so. Never raises."""
    if plan is not None and plan.reset():
        return
    for adapter in adapters():
        try:
            for device in adapter.devices():
                reset(adapter, device)
        except Exception:  # As in read_all.
            continue


def reset(adapter: ModuleType, device: str) -> None:
    """Resets the peak of a device.

    Raises:
        NotResettable: If the framework cannot reset its peak.
    """
    adapter.reset(device)
    resets(adapter.NAME)[device] = time.monotonic_ns()


def shape_text(shape: object) -> str:
    """Formats a shape as in recordings: [3,3,64]."""
    return "[" + ",".join(str(int(size)) for size in shape) + "]"  # type: ignore[attr-defined]
