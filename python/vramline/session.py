"""The files of this process in a recording. Whatever fails here costs one warning and that part of the data, never the job."""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from vramline import _vramline, counters
from vramline.adapter import Counters
from vramline.words import How, MarkKind, Phase, TraceState, WindowReason

# By folder: a program that records into one name several times goes on with the same files.
_sessions: dict[str, Session] = {}


def warn(text: str) -> None:
    """One line on standard error; a closed one is no reason to fail."""
    try:
        print(f"vramline: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


class Session:
    """Writes marks, samples and inventories of this process into a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.failures = 0
        self._facts: dict[str, Any] = {}
        self._recorder: Any = None
        self._name = ""
        self._pace: float | None = None

    @property
    def name(self) -> str:
        """What this process is called in the names of its files."""
        if not self._name:
            self._name = _vramline.process_name()
        return self._name

    def _open(self) -> Any:
        self._recorder = _vramline.Recorder(self.folder, self.name)
        self._write_facts()
        if self._pace:
            self._recorder.start_sampling(self._pace, counters.read_all)
        return self._recorder

    def attempt(self, write: Callable[[], object]) -> None:
        """Writes; says once where that fails."""
        try:
            write()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Something was not written: the first time that is said."""
        self.failures += 1
        if self.failures == 1:
            warn(f"the recording has gaps: {error}")

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
        read: list[Counters] | None = None,
        trace_state: TraceState | None = None,
        window: int | None = None,
        opened_for: WindowReason | None = None,
        path: str | None = None,
    ) -> bool:
        """Writes a mark that ends now. It is on its way to the disk when this returns. True where a peak that is watched has risen."""
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
        """Writes a step that ends now, with the counters of this moment. True where a peak that is watched has risen."""
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
        """Has the next marks tell, once, when the framework's peak rises by more than a twentieth over what it is now."""
        if self._recorder is not None:
            self.attempt(self._recorder.watch_peaks)

    def inventory(self, variables: Sequence[tuple]) -> None:
        """Writes variables down: (owner, name, role, shape, dtype, bytes, device, address, model, layer, source)."""
        if variables:
            self.attempt(lambda: (self._recorder or self._open()).inventory(variables))

    def owners(self, rows: Sequence[tuple]) -> None:
        """Writes down whose ops are: (kind, name, time, model, layer, variable, role, source, begin, end, address, function)."""
        if rows:
            self.attempt(lambda: (self._recorder or self._open()).owners(rows))

    def sample(self, pace: float) -> None:
        """Has counters read in the background, every `pace` seconds."""
        self._pace = pace
        self.attempt(lambda: self._recorder.start_sampling(pace, counters.read_all) if self._recorder else self._open())

    def note(self, **facts: Any) -> None:
        """Adds facts about this process."""
        self._facts |= facts
        if self._recorder is not None:
            self.attempt(self._write_facts)

    def _write_facts(self) -> None:
        text = json.dumps(facts_of_process() | self._facts, indent=1, default=str)
        path = self.folder / f"process-{self.name}.json"
        temporary = path.with_name(f".{path.name}")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)

    def close(self) -> None:
        """Writes what is left. A later mark goes on."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self.attempt(recorder.close)
            self.attempt(self._write_facts)

    def after_fork(self) -> None:
        """In a forked child: files of its own, made when it has something to write."""
        if self._recorder is not None:
            self._recorder.abandon()
        self._recorder, self._name, self._facts = None, "", {"forked_from": self._name}


def session(folder: pathlib.Path) -> Session:
    """The session of this process in a folder."""
    folder = _resolved(folder)
    return _sessions.setdefault(str(folder), Session(folder))


def known(folder: pathlib.Path) -> bool:
    """Whether this process has recorded into a folder before."""
    return str(_resolved(folder)) in _sessions


def _resolved(folder: pathlib.Path) -> pathlib.Path:
    try:
        return folder.resolve()
    except OSError:  # The current folder has been deleted.
        return folder


def facts_of_process() -> dict[str, Any]:
    """What a reader should know of this process. Nothing of it is secret: see `environment` in the core."""
    versions = {}
    for framework in ("tensorflow", "keras", "tf_keras", "jax", "torch", "numpy"):
        version = getattr(sys.modules.get(framework), "__version__", None)
        if isinstance(version, str):
            versions[framework] = version
    return {
        "kind": "vramline-process",
        "schema": _vramline.SCHEMA,
        "vramline": _vramline.__version__,
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "python": sys.version.split()[0],
        "frameworks": versions,
        "backend": _keras_backend(),
        "rank": rank(),
        "clocks": {"realtime_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
        "environment": _vramline.environment(),
    }


def _keras_backend() -> str | None:
    config = getattr(sys.modules.get("keras"), "config", None)
    try:
        return config.backend() if config else None
    except Exception:
        return None


def rank() -> int | None:
    """Which part of a larger job this process is."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        told = os.environ.get(name, "")
        if told.isdigit():
            return int(told)
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
        if isinstance(task.get("index"), int):
            return task["index"]
    except (ValueError, AttributeError):
        pass
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    number = getattr(state, "process_id", None)
    return number if isinstance(number, int) and getattr(state, "client", None) is not None else None


def _after_fork() -> None:
    _vramline.after_fork(True)
    for each in _sessions.values():
        each.after_fork()


def _at_exit() -> None:
    for each in _sessions.values():
        each.close()


os.register_at_fork(
    before=_vramline.before_fork, after_in_parent=lambda: _vramline.after_fork(False), after_in_child=_after_fork
)
atexit.register(_at_exit)
