"""The options of `vramline run`, as the processes of the job read them from the environment."""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The options of `vramline run` for a process of the job. The command line has the defaults; here a missing option is off."""

    trace: str = "off"
    """auto, off, steps=N or all"""
    trace_seconds: float = 0.0
    rate: float = 0.0
    """Samples per second; 0 for none."""
    step_peaks: bool = False
    limit: int | None = None
    """The most bytes that a pool may reserve."""
    until_oom: str = "off"
    """Whether PyTorch's allocator records where live blocks were requested after the trace: auto, on or off."""
    stops_with_trace: bool = False
    """Whether the process ends after its trace."""
    stop_after: int | None = None
    """The number of training steps after which the process ends."""

    @property
    def stops(self) -> bool:
        """Whether the process ends before the program does."""
        return self.stops_with_trace or self.stop_after is not None


def options() -> RunOptions:
    """Reads the options from the environment. An option that cannot be read is off."""

    def number(name: str) -> float:
        try:
            return float(os.environ[name])
        except (KeyError, ValueError):
            return 0.0

    limit = os.environ.get("VRAMLINE_LIMIT", "")
    stop = os.environ.get("VRAMLINE_STOP", "")
    return RunOptions(
        trace=os.environ.get("VRAMLINE_TRACE", "off"),
        trace_seconds=number("VRAMLINE_TRACE_SECONDS"),
        rate=number("VRAMLINE_RATE"),
        step_peaks=os.environ.get("VRAMLINE_STEP_PEAKS") == "1",
        limit=int(limit) if limit.isdigit() else None,
        until_oom=os.environ.get("VRAMLINE_UNTIL_OOM", "off"),
        stops_with_trace=stop == "trace",
        stop_after=int(stop) if stop.isdigit() else None,
    )
