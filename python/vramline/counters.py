"""The counters of every framework that the program uses, read through the adapters."""

from __future__ import annotations

import importlib
import os
import sys
import time
from types import ModuleType

from vramline import _vramline
from vramline.adapter import Counters, resets
from vramline.adapter import NotResettable as NotResettable  # Whoever resets a peak catches it here.

_loaded: dict[str, ModuleType] = {}

# Frameworks in the order in which one is chosen where several are in use.
_ADAPTERS = {"tensorflow": "vramline.tensorflow", "jax": "vramline.jax", "torch": "vramline.torch"}

# Frameworks that were in use when this process was forked. Their threads are not here, and their locks may be held for ever.
_left_behind: set[str] = set()


def _after_fork() -> None:
    global plan
    plan = None
    _left_behind.update(
        framework for framework, name in _ADAPTERS.items() if name in sys.modules and sys.modules[name].is_used()
    )


os.register_at_fork(after_in_child=_after_fork)


def adapters() -> list[ModuleType]:
    """The adapters of the frameworks that the program has used."""
    # This and what follows happen at every step: few calls, nothing looked up twice.
    used = []
    for framework in _ADAPTERS:
        if framework in sys.modules and framework not in _left_behind:
            adapter = _loaded.get(framework) or _load(framework)
            if adapter.is_used():
                used.append(adapter)
    return used


def _load(framework: str) -> ModuleType:
    # Not from `sys.modules`: there it stands while another thread is still importing it.
    adapter = _loaded[framework] = importlib.import_module(_ADAPTERS[framework])
    return adapter


# The one framework in use, asked in as few calls as there can be: this happens at every step, in code that lies cold. It
# tells so many times, then all frameworks are looked at again.
plan: _vramline.Plan | None = None


def read_all() -> list[Counters]:
    """The counters of every device of every framework in use. Never raises."""
    planned = plan.read() if plan is not None else None
    return _read_all() if planned is None else [Counters(*read) for read in planned]


def _read_all() -> list[Counters]:
    global plan
    used = adapters()
    plan = used[0].plan() if len(used) == 1 and hasattr(used[0], "plan") else None
    found: list[Counters] = []
    for adapter in used:
        try:
            found += map(adapter.read, adapter.devices())
        except Exception as error:  # An unknown version of a framework costs its figures, not the job.
            found.append(Counters(adapter.NAME, reason=f"{adapter.NAME}: {error}"))
    return found


def reset_all() -> None:
    """Resets the peak of every device that can. Never raises."""
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
        NotResettable: If the framework has no way to do so.
    """
    adapter.reset(device)
    resets(adapter.NAME)[device] = time.monotonic_ns()


def shape_text(shape: object) -> str:
    """A shape as it is written in recordings: [3,3,64]."""
    return "[" + ",".join(str(int(size)) for size in shape) + "]"  # type: ignore[attr-defined]
