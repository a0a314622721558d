"""Hooks that never get in the program's way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def quietly(call: Callable[..., Any]) -> Callable[..., Any]:
    """A hook whose failure is nobody's business but ours."""

    @functools.wraps(call)
    def hook(*args: Any) -> Any:
        try:
            return call(*args)
        except Exception:
            return None

    return hook
