"""Hooks that never raise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def quietly(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a hook so that its exceptions do not reach the program."""

    @functools.wraps(call)
    def hook(*args: Any) -> Any:
        try:
            return call(*args)
        except Exception:
            return None

    return hook
