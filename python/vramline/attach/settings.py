"""What `vramline run` was asked for, as it reaches the processes of the job."""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options that concern a process."""

    trace: str = "auto"
    """auto, off, steps=N or all"""
    trace_seconds: float = 60.0
    rate: float = 10.0
    step_peaks: bool = False
    limit: int | None = None
    """Bytes that a pool may take."""
    stop: bool = False
    """Whether the process ends when its trace is over."""


def asked() -> Asked:
    """The options, from the environment. What cannot be read is as if it had not been said."""

    def number(name: str, default: float) -> float:
        try:
            return float(os.environ[name])
        except (KeyError, ValueError):
            return default

    limit = os.environ.get("VRAMLINE_LIMIT", "")
    return Asked(
        trace=os.environ.get("VRAMLINE_TRACE", "auto"),
        trace_seconds=number("VRAMLINE_TRACE_SECONDS", 60.0),
        rate=number("VRAMLINE_RATE", 10.0),
        step_peaks=os.environ.get("VRAMLINE_STEP_PEAKS") == "1",
        limit=int(limit) if limit.isdigit() else None,
        stop=os.environ.get("VRAMLINE_STOP") == "1",
    )
