"""What the adapters of the frameworks have in common.

An adapter is a module with `NAME`, `is_used()`, `devices()`, `read(device)`, `ordinal(device)`, `limit(device)` and `reset(device)`. It never
imports its framework and never initialises a device or backend: in TensorFlow, later settings of the program would fail then.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from vramline.words import LimitSetter


class Counters(NamedTuple):
    """What a framework reports about one device, in bytes; None with a reason for what it does not report."""

    device: str
    current: int | None = None
    peak: int | None = None
    peak_since_ns: int | None = None
    pool: int | None = None
    limit: int | None = None
    reason: str | None = None


class Limit(NamedTuple):
    """The most that the pool of a device may reserve, and who set the limit; or why the limit is unknown."""

    bytes: int | None = None
    by: LimitSetter | None = None
    why: str | None = None


def requested_limit() -> int | None:
    """Returns the value of `vramline run --limit` in bytes; None if there is none."""
    told = os.environ.get("VRAMLINE_LIMIT", "")
    return int(told) if told.isdigit() else None


class NotResettable(RuntimeError):
    """Raised if the framework cannot reset its peak."""


# By framework and device: when Vramline last reset the peak, in nanoseconds of the monotonic clock.
_resets: dict[str, dict[str, int]] = {}


def resets(framework: str) -> dict[str, int]:
    """Returns when Vramline last reset the peak of each device of a framework. The caller may update it."""
    return _resets.setdefault(framework, {})
