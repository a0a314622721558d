"""Calls a function after a module has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vramline.recording.session import warn

_waiting: dict[str, Callable[[ModuleType], None]] = {}


def after(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls `call` with the module after its import, or now if it is imported already. An exception becomes a warning."""
    if name in sys.modules and not getattr(getattr(sys.modules[name], "__spec__", None), "_initializing", False):
        _call(call, sys.modules[name])
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting[name] = call


def _call(call: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        call(module)
    except Exception as error:
        warn(f"the recording of {module.__name__} {getattr(module, '__version__', '')} is incomplete: a hook failed: {error}")


class _Finder:
    """Returns what the other finders find, and adds a call after the module has been executed."""

    def __init__(self) -> None:
        self._is_asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _waiting or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = None
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    break
        finally:
            self._is_asking = False
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            call = _waiting.pop(name, None)
            if call is not None:
                _call(call, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # This loader cannot be changed: the framework runs without hooks.
            pass
        return spec
