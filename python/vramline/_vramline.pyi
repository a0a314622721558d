"""The compiled library: the part of the Rust core that the Python package uses. `crates/vramline-py` builds it."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from vramline.words import How, MarkKind, Phase, TraceState, WindowReason

__version__: str
SCHEMA: int
"""The version of the format of recordings."""
MARK_KINDS: tuple[str, ...]
"""The words of recordings, here and below: `vramline.words` has them as types."""
PHASES: tuple[str, ...]
HOWS: tuple[str, ...]
ROLES: tuple[str, ...]
TRACE_STATES: tuple[str, ...]
WINDOW_REASONS: tuple[str, ...]

class Watched:
    """Calls a function, then `after` with the time when the call began, its arguments and its result. Adds no frame to a traceback."""

    def __init__(self, call: Callable[..., Any], after: Callable[[int, tuple[Any, ...], Any], None]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Recorder:
    """Writes the events of one process to a recording. A forked child needs its own."""

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
    ) -> bool:
        """Writes a mark that ends now. Returns whether the peak has risen since `watch_peaks`."""
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
    ) -> bool | None:
        """Writes a step that ends now, with the counters that the plan reads.

        Returns whether the peak has risen since `watch_peaks`; None if the plan is no longer valid, and nothing was written.
        """
    def watch_peaks(self) -> None:
        """Makes the first mark return True whose peak is more than a twentieth above the highest so far."""
    def inventory(self, variables: Sequence[tuple[Any, ...]]) -> None:
        """Writes variables."""
    def owners(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Writes owners of ops."""
    def start_sampling(
        self, pace: float, read: Callable[[], Sequence[tuple[Any, ...]]], on_request: Callable[[], None] | None = None
    ) -> bool:
        """Samples every `pace` seconds in a thread. Returns whether the thread could be started."""
    def stop_sampling(self) -> None:
        """Stops the sampling thread."""
    def close(self) -> None:
        """Stops the sampling thread, and waits a short time until everything is on disk."""
    def abandon(self) -> None:
        """Gives up the recorder in a forked child, without touching the threads of the parent."""

class Plan:
    """A prepared way to read and reset the counters of a program that uses one framework.

    Args:
        guard: The plan is valid while this object has this value in this attribute.
        ask: Returns the figures of a device as dicts.
        forget: Resets the peak of a device.
        devices: Each device with the arguments of `ask` and `forget`.
        resets: By device: when its peak was reset. The plan updates it.
        current: The keys that lead to the bytes in use, from the outermost dict inwards.
        peak: The same to the peak.
        pool: The same to the size of the pool; None if the framework does not report it.
    """

    def __init__(
        self,
        guard: tuple[Any, str, Any],
        ask: Callable[..., Any],
        forget: Callable[..., object],
        devices: Sequence[tuple[str, tuple[Any, ...]]],
        resets: dict[str, int],
        current: Sequence[str],
        peak: Sequence[str],
        pool: Sequence[str] | None = None,
    ) -> None: ...
    def read(self) -> list[tuple[Any, ...]] | None:
        """Returns the counters of every device; None if the plan is no longer valid."""
    def reset(self) -> bool:
        """Resets the peak of every device. Returns False if the plan is no longer valid."""

class Steps:
    """Base class of `vramline.Recording`: counts steps and writes them."""

    _session: Any
    _count: int
    _now: int | None

    def __init__(self, *args: Any, **options: Any) -> None: ...
    def _prepare(self, session: Any, counters: Any, phase: Phase, resets: bool, is_plain: bool) -> None: ...
    def step(self, number: int | None = None) -> Step:
        """Measures one step of a loop: `with rec.step(number): ...`.

        The step has its own peak, unless `step_peaks=False`. Without a number, steps are counted from 0.
        """

class Step:
    """One step of a loop, measured from the beginning to the end of its `with` block."""

    def __enter__(self) -> Step: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

class PlanDocument:
    """A plan, read from the output of `vramline plan --json`. Sizes are in bytes."""

    headline: str
    variable: str
    framework: str | None
    limit: int | None
    certain: bool
    sure: int | None
    """The largest batch size that always fits."""
    expected: int | None
    """The largest batch size that is expected to fit always, also beyond what is called sure without a run."""
    likely: int | None
    """The largest batch size that fits in some runs."""
    confirmed: int | None
    """The batch size that real runs under the limit have confirmed."""
    passes: int
    """The number of these runs."""
    predictions: list[PlannedBatch]
    doubts: list[str]
    """Warnings: why the plan may be wrong."""
    json: str
    """The JSON text that was read."""

    def __init__(self, text: str) -> None: ...

class PlannedBatch:
    """The prediction of a plan for one batch size. Sizes are in bytes."""

    batch: int
    peak: int
    low: int
    high: int
    minimum: int | None
    fits: bool | None

def parse_size(text: str) -> int:
    """Converts a size such as "8GiB" to bytes."""

def is_recording(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a recording."""

def create_folder(path: str | os.PathLike[str]) -> tuple[pathlib.Path, bool]:
    """Creates the folder of a recording. Returns its path, and whether it has another name because the requested one was taken."""

def process_name() -> str:
    """Returns the name of this process in the names of its files."""

def environment() -> dict[str, str]:
    """Returns the environment variables that a recording may contain."""

def identity_json(framework: tuple[str, int, int | None] | None = None) -> str:
    """Returns which part of which job this process is, as JSON. `framework` is `jax` or `torch-distributed`, a rank and a number of processes."""

def dataset_schema() -> tuple[int, list[tuple[str, list[tuple[str, str, bool]]]]]:
    """Returns the version of a dataset's tables, and each table with its columns: name, kind, whether it may be null."""

def dataset_queries() -> tuple[str, list[tuple[str, str, str]]]:
    """Returns the views that questions about a dataset need, and each question: name, question, SQL."""

def dataset_rows(path: str | os.PathLike[str], allocations: bool) -> tuple[str, list[tuple[str, bytes]]]:
    """Returns the key of a recording or file in a dataset, and its rows: the name of a table and an Arrow stream, several times."""

def report_json(path: str | os.PathLike[str]) -> str:
    """Returns the report on a path, as `vramline report --json` prints it."""

def diff_json(sides: Sequence[Sequence[str | os.PathLike[str]]]) -> str:
    """Returns the comparison of runs, each with its repeats, as `vramline diff --json` prints it."""

def ledgers_json(path: str | os.PathLike[str], times: list[int]) -> str:
    """Returns the ledgers of a recording as JSON, one list of lines per moment (monotonic clock, ns) and device."""

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
) -> str:
    """Returns the ledger of a device now as JSON, from the figures of the driver and of the framework for this process."""

def read_stream(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """Returns the columns of a file of a recording, and the number of bytes of an incomplete message at its end."""

def resident_bytes() -> int | None:
    """Returns the host memory that this process holds; None if it is unknown."""

def driver_json(script: str | None = None) -> str:
    """Returns facts about the driver and its devices as JSON."""

def driver_visible(
    ordinal: int, list: str | None = None, order: str | None = None, script: str | None = None
) -> tuple[str | None, bool]:
    """Returns the UUID of the device that has CUDA's number `ordinal` according to the environment, and whether that is certain."""

def driver_memory(uuid: str, script: str | None = None) -> tuple[list[int | None], str | None, str | None]:
    """Returns [total, reserved, free, used, this process] of a device in bytes, and why the first four and the last are unknown."""

def host_memory() -> tuple[int, int] | None:
    """Returns the total and the available host memory in bytes; None if they are unknown."""

def before_terminate(call: Callable[[], object], patience: float) -> bool:
    """Calls a function on SIGTERM, for at most `patience` seconds. Returns False if the program has its own handler."""

def before_fork() -> None:
    """Waits until no thread reads counters. To call before a fork."""

def after_fork(is_child: bool) -> None:
    """Allows reading counters again. To call after a fork, in parent and child."""
