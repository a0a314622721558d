"""What `vramline run` was asked for, as it reaches the processes of the job."""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options that concern a process. `vramline run` has their defaults; what it did not say is not done."""

    trace: str = "off"
    """auto, off, steps=N or all"""
    trace_seconds: float = 0.0
    rate: float = 0.0
    """Samples a second; 0 for none."""
    step_peaks: bool = False
    limit: int | None = None
    """Bytes that a pool may take."""
    stop: bool = False
    """Whether the process ends when its trace is over."""


def asked() -> Asked:
    """The options, from the environment. What cannot be read is as if it had not been said."""

    def number(name: str) -> float:
        try:
            return float(os.environ[name])
        except (KeyError, ValueError):
            return 0.0

    limit = os.environ.get("VRAMLINE_LIMIT", "")
    return Asked(
        trace=os.environ.get("VRAMLINE_TRACE", "off"),
        trace_seconds=number("VRAMLINE_TRACE_SECONDS"),
        rate=number("VRAMLINE_RATE"),
        step_peaks=os.environ.get("VRAMLINE_STEP_PEAKS") == "1",
        limit=int(limit) if limit.isdigit() else None,
        stop=os.environ.get("VRAMLINE_STOP") == "1",
    )
