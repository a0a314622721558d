"""The files of this process in a recording.

An error here loses part of the data and prints one warning. It never stops the job.
"""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from vramline import _vramline
from vramline.frameworks import counters
from vramline.frameworks.adapter import Counters
from vramline.words import How, MarkKind, Phase, TraceState, WindowReason

# What a connected framework said last. It disconnects before the last facts are written.
_connected: tuple[str, int, int | None] | None = None

# By folder: a program that records to the same name several times continues with the same files.
_sessions: dict[str, Session] = {}


_MOST_LABEL = 4000
_MOST_TEXT = 1 << 20
_MOST_CAUSES = 7


def causes(error: BaseException) -> list[BaseException]:
    """Returns the errors that led to an error, the latest first."""
    chain = [error]
    while len(chain) <= _MOST_CAUSES:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or any(before is known for known in chain):
            break
        chain.append(before)
    return chain[1:]


def warn(text: str) -> None:
    """Prints one line to standard error; does nothing if standard error is closed."""
    try:
        print(f"vramline: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


class Session:
    """Writes marks, samples and inventories of this process to a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.failures = 0
        self._facts: dict[str, Any] = {}
        self._recorder: Any = None
        self._name = ""
        self._pace: float | None = None
        self._is_connected = False
        self._writing = threading.Lock()
        self.on_request: Callable[[], None] | None = None
        """Called in the sampling thread when somebody requests a snapshot of the job."""

    @property
    def name(self) -> str:
        """The name of this process in the names of its files."""
        if not self._name:
            self._name = _vramline.process_name()
        return self._name

    def open(self) -> None:
        """Creates the files of this process now, so that the first mark does not wait for that."""
        if self._recorder is None:
            self.attempt(self._open)

    def _open(self) -> Any:
        self._recorder = _vramline.Recorder(self.folder, self.name)
        self._write_facts()
        if self._pace:
            self._recorder.start_sampling(self._pace, self._read_sampled, self.on_request)
        return self._recorder

    def _read_sampled(self) -> list[Counters]:
        """Reads the counters, in the sampling thread. Writes the rank as soon as only the framework knows it: the process may be killed."""
        if not self._is_connected and _framework_rank() is not None:
            self._is_connected = True
            self.attempt(self._write_facts)
        return counters.read_sampled()

    def attempt(self, write: Callable[[], object]) -> None:
        """Calls a function that writes. Reports an exception as `failed` does."""
        try:
            write()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Counts a failed write. Warns the first time."""
        self.failures += 1
        if self.failures == 1:
            warn(f"the recording '{self.folder}' is incomplete: {error}")

    def mark(
        self,
        kind: MarkKind,
        label: str | None = None,
        phase: Phase | None = None,
        how: How | None = None,
        step: int | None = None,
        batches: int | None = None,
        epoch: int | None = None,
        begin_ns: int | None = None,
        read: Sequence[tuple[Any, ...]] | None = None,
        trace_state: TraceState | None = None,
        window: int | None = None,
        opened_for: WindowReason | None = None,
        path: str | None = None,
    ) -> bool:
        """Writes a mark that ends now. Returns whether the peak has risen since `watch_peaks`.

        The mark is on its way to the disk when this returns.
        """
        try:
            recorder = self._recorder or self._open()
            trace = (trace_state, window, opened_for, path)
            return recorder.mark(kind, label, phase, how, step, batches, epoch, begin_ns, read or [], trace)
        except Exception as error:
            self.failed(error)
            return False

    def step(
        self,
        label: str | None,
        phase: Phase,
        how: How,
        step: int,
        batches: int,
        epoch: int | None,
        begin_ns: int | None,
    ) -> bool:
        """Writes a step that ends now, with the counters of this moment. Returns whether the peak has risen since `watch_peaks`."""
        recorder, plan = self._recorder, counters.plan
        try:
            if recorder and plan:
                told = recorder.step(plan, label, phase, how, step, batches, epoch, begin_ns)
                if told is not None:
                    return told
        except Exception as error:
            self.failed(error)
            return False
        return self.mark("step", label, phase, how, step, batches, epoch, begin_ns, counters.read_all())

    def watch_peaks(self) -> None:
        """Makes the first mark return True whose peak is more than a twentieth higher than the peak is now."""
        if self._recorder is not None:
            self.attempt(self._recorder.watch_peaks)

    def inventory(self, variables: Sequence[tuple]) -> None:
        """Writes variables: (owner, name, role, shape, dtype, bytes, device, address, model, layer, source, number)."""
        if variables:
            self.attempt(lambda: (self._recorder or self._open()).inventory(variables))

    def owners(self, rows: Sequence[tuple]) -> None:
        """Writes owners of ops: (kind, name, time, model, layer, (variable, its number), role, source, begin, end, address, function)."""
        if rows:
            self.attempt(lambda: (self._recorder or self._open()).owners(rows))

    def sample(self, pace: float) -> None:
        """Samples the counters in a background thread, every `pace` seconds."""
        self._pace = pace
        self.attempt(
            lambda: self._recorder.start_sampling(pace, self._read_sampled, self.on_request) if self._recorder else self._open()
        )

    def exception(self, error: BaseException, read: list[Counters] | None = None) -> None:
        """Writes an error that ended a program or a part of it, with its causes: memory may have run out before the program's own error."""
        text = f"{type(error).__name__}: {error}"
        self.mark("exception", text[:_MOST_LABEL], read=read)
        path = self.folder / f"exception-{self.name}.txt"
        text += "".join(f"\n\nearlier error: {type(each).__name__}: {each}" for each in causes(error))
        self.attempt(lambda: path.write_text(text[:_MOST_TEXT], encoding="utf-8", errors="replace"))

    def note(self, **facts: Any) -> None:
        """Adds facts about this process to its file."""
        self._facts |= facts
        if self._recorder is not None:
            self.attempt(self._write_facts)

    def _write_facts(self) -> None:
        with self._writing:
            text = json.dumps(facts_of_process() | self._facts, indent=1, default=str)
            path = self.folder / f"process-{self.name}.json"
            temporary = path.with_name(f".{path.name}")
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(path)

    def close(self) -> None:
        """Writes what is left and closes the files. A later mark opens them again."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self.attempt(recorder.close)
            self.attempt(self._write_facts)

    def after_fork(self) -> None:
        """Gives a forked child its own files, which are created when it first writes."""
        if self._recorder is not None:
            self._recorder.abandon()
        self._recorder, self._name, self._facts = None, "", {"forked_from": self._name}
        # A thread of the parent may have held it.
        self._writing = threading.Lock()


def session(folder: pathlib.Path) -> Session:
    """Returns the session of this process for a folder."""
    folder = _resolved(folder)
    return _sessions.setdefault(str(folder), Session(folder))


def known(folder: pathlib.Path) -> bool:
    """Returns whether this process has already recorded to a folder."""
    return str(_resolved(folder)) in _sessions


def latest() -> pathlib.Path | None:
    """Returns the folder that this process has recorded to last; None if there is none."""
    return next(reversed([each.folder for each in _sessions.values() if each.folder.is_dir()]), None)


def _resolved(folder: pathlib.Path) -> pathlib.Path:
    try:
        return folder.resolve()
    except OSError:  # The current folder has been deleted.
        return folder


def facts_of_process() -> dict[str, Any]:
    """Returns facts about this process for readers of the recording. They contain no secrets: see `environment` in the core."""
    versions = {}
    for framework in ("tensorflow", "keras", "tf_keras", "jax", "torch", "numpy"):
        version = getattr(sys.modules.get(framework), "__version__", None)
        if isinstance(version, str):
            versions[framework] = version
    told = identity()
    return {
        "kind": "vramline-process",
        "schema": _vramline.SCHEMA,
        "vramline": _vramline.__version__,
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "python": sys.version.split()[0],
        "frameworks": versions,
        "used": counters.used(),
        "backend": _keras_backend(),
        "rank": told["rank"],
        "identity": told,
        "clocks": {"realtime_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
        "environment": _vramline.environment(),
    }


def _keras_backend() -> str | None:
    config = getattr(sys.modules.get("keras"), "config", None)
    try:
        return config.backend() if config else None
    except Exception:
        return None


def identity() -> dict[str, Any]:
    """Returns which part of which job this process is: what launchers tell, and what a connected framework knows."""
    global _connected
    _connected = _framework_rank() or _connected
    told: dict[str, Any] = json.loads(_vramline.identity_json(_connected))
    return told


def _framework_rank() -> tuple[str, int, int | None] | None:
    """Returns the name of a connected framework, its rank and the number of processes. Never connects or initialises anything."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is not None:
        rank, size = getattr(state, "process_id", None), getattr(state, "num_processes", None)
        if isinstance(rank, int) and rank >= 0:
            return "jax", rank, size if isinstance(size, int) and size > 0 else None
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return "torch-distributed", distributed.get_rank(), distributed.get_world_size()
    except Exception:  # A build without it, or a version with other functions.
        pass
    return None


def _after_fork() -> None:
    global _connected
    _vramline.after_fork(True)
    _connected = None
    for each in _sessions.values():
        each.after_fork()


def _at_exit() -> None:
    for each in _sessions.values():
        each.close()


os.register_at_fork(
    before=_vramline.before_fork, after_in_parent=lambda: _vramline.after_fork(False), after_in_child=_after_fork
)
atexit.register(_at_exit)
