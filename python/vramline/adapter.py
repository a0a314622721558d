"""What every framework's adapter tells, in one form.

An adapter is a module with `NAME`, `is_used()`, `devices()`, `read(device)`, `limit(device)` and `reset(device)`. It never imports its
framework and never sets a device or backend to work: in TensorFlow that would make later settings of the program fail.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from vramline.words import LimitSetter


class Counters(NamedTuple):
    """What a framework says about one device; None where it does not say, with the reason."""

    device: str
    current: int | None = None
    peak: int | None = None
    peak_since_ns: int | None = None
    pool: int | None = None
    limit: int | None = None
    reason: str | None = None


class Limit(NamedTuple):
    """The most that a device's pool may take, and who set that; or why it is not known."""

    bytes: int | None = None
    by: LimitSetter | None = None
    why: str | None = None


def asked_limit() -> int | None:
    """What `vramline run --limit` asked for, where this process runs under it."""
    told = os.environ.get("VRAMLINE_LIMIT", "")
    return int(told) if told.isdigit() else None


class NotResettable(RuntimeError):
    """The framework cannot reset its peak."""


# By framework and device: when the peak was last reset through us, on the monotonic clock.
_resets: dict[str, dict[str, int]] = {}


def resets(framework: str) -> dict[str, int]:
    """By device: when the peak of a framework was last reset through us."""
    return _resets.setdefault(framework, {})
