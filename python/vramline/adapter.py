"""What every framework's adapter tells, in one form.

An adapter is a module with `NAME`, `is_used()`, `devices()`, `read(device)` and `reset(device)`. It never imports its
framework and never sets a device or backend to work: in TensorFlow that would make later settings of the program fail.
"""

from __future__ import annotations

from typing import NamedTuple


class Counters(NamedTuple):
    """What a framework says about one device; None where it does not say, with the reason."""

    device: str
    current: int | None = None
    peak: int | None = None
    peak_since_ns: int | None = None
    pool: int | None = None
    limit: int | None = None
    reason: str | None = None


class NotResettable(RuntimeError):
    """The framework cannot reset its peak."""


# By framework and device: when the peak was last reset through us, on the monotonic clock.
_resets: dict[str, dict[str, int]] = {}


def resets(framework: str) -> dict[str, int]:
    """By device: when the peak of a framework was last reset through us."""
    return _resets.setdefault(framework, {})
