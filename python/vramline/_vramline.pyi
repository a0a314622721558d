"""What the core offers to Python; `crates/vramline-py` makes it."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from vramline.words import How, MarkKind, Phase, TraceState, WindowReason

__version__: str
SCHEMA: int
"""The version of what recordings hold."""
MARK_KINDS: tuple[str, ...]
"""The words of recordings: `vramline.words` has them as types."""
PHASES: tuple[str, ...]
HOWS: tuple[str, ...]
ROLES: tuple[str, ...]
TRACE_STATES: tuple[str, ...]
WINDOW_REASONS: tuple[str, ...]

class Watched:
    """A function that is looked at: calls it, then `after` with when it began and what it was given. It leaves no frame in a traceback."""

    def __init__(self, call: Callable[..., Any], after: Callable[[int, tuple[Any, ...]], None]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Recorder:
    """Writes what one process does into a recording. A forked child must make its own."""

    def __init__(self, folder: str | os.PathLike[str], process: str) -> None: ...
    def mark(
        self,
        kind: MarkKind,
        label: str | None,
        phase: Phase | None,
        how: How | None,
        step: int | None,
        batches: int | None,
        epoch: int | None,
        begin_ns: int | None,
        counters: Sequence[tuple[Any, ...]],
        trace: tuple[TraceState | None, int | None, WindowReason | None, str | None] = ...,
    ) -> bool: ...
    def step(
        self,
        plan: Plan,
        label: str | None,
        phase: Phase,
        how: How,
        step: int,
        batches: int,
        epoch: int | None,
        begin_ns: int | None,
    ) -> bool | None: ...
    def watch_peaks(self) -> None: ...
    def inventory(self, variables: Sequence[tuple[Any, ...]]) -> None: ...
    def owners(self, rows: Sequence[tuple[Any, ...]]) -> None: ...
    def start_sampling(self, pace: float, read: Callable[[], Sequence[tuple[Any, ...]]]) -> bool: ...
    def stop_sampling(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

class Plan:
    """The calls that tell the counters of a program which uses one framework."""

    def __init__(
        self,
        guard: tuple[Any, str, Any],
        ask: Callable[[Any, str], dict[str, int]],
        forget: Callable[[Any, str], object],
        devices: Sequence[str],
        resets: dict[str, int],
    ) -> None: ...
    def read(self) -> list[tuple[Any, ...]] | None: ...
    def reset(self) -> bool: ...

class Steps:
    """Counts steps and writes them."""

    _session: Any
    _count: int
    _now: int | None

    def __init__(self, *args: Any, **options: Any) -> None: ...
    def _prepare(self, session: Any, counters: Any, phase: Phase, resets: bool, is_plain: bool) -> None: ...
    def step(self, number: int | None = None) -> Step: ...

class Step:
    """One step: measured from entering to leaving it."""

    def __enter__(self) -> Step: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

class PlanDocument:
    """What `vramline plan --json` wrote, read again."""

    headline: str
    variable: str
    framework: str | None
    limit: int | None
    certain: bool
    sure: int | None
    likely: int | None
    predictions: list[PlannedBatch]
    doubts: list[str]
    json: str
    """The text itself."""

    def __init__(self, text: str) -> None: ...

class PlannedBatch:
    """What a plan says of one batch; sizes in bytes."""

    batch: int
    peak: int
    low: int
    high: int
    minimum: int | None
    fits: bool | None

def parse_size(text: str) -> int: ...
def is_recording(path: str | os.PathLike[str]) -> bool: ...
def create_folder(path: str | os.PathLike[str]) -> tuple[pathlib.Path, bool]: ...
def process_name() -> str: ...
def environment() -> dict[str, str]: ...
def report_json(path: str | os.PathLike[str]) -> str: ...
def diff_json(sides: Sequence[Sequence[str | os.PathLike[str]]]) -> str: ...
def ledgers_json(path: str | os.PathLike[str], times: list[int]) -> str: ...
def ledger_json(
    device: str,
    total: int | None,
    reserved: int | None,
    free: int | None,
    process: int | None,
    why_process: str,
    pool: int | None,
    why_pool: str,
    current: int | None,
    why_current: str,
) -> str: ...
def read_stream(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]: ...
def resident_bytes() -> int | None: ...
def driver_json(script: str | None = None) -> str: ...
def driver_visible(
    ordinal: int, list: str | None = None, order: str | None = None, script: str | None = None
) -> tuple[str | None, bool]: ...
def driver_memory(
    uuid: str, script: str | None = None
) -> tuple[list[int | None], str | None, str | None]: ...
def host_memory() -> tuple[int, int] | None: ...
def before_terminate(call: Callable[[], object], patience: float) -> bool: ...
def before_fork() -> None: ...
def after_fork(is_child: bool) -> None: ...
