"""A bounded trace: from before the first allocation through a few steps.

The profiler keeps its events in memory until it is stopped, so the window has ends: a number of steps, seconds, and memory. How much
it holds nobody tells: what the process has grown by since the first step ended is the most that it can be. The window also ends
when the program starts a profiler of its own (there can be only one), and when the program ends in whatever way lets us
know. Writing happens in a thread, beside the training.
"""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from vramline import _vramline
from vramline.attach.settings import Asked
from vramline.session import Session, warn

# The first step builds the graph and the optimizer's slots; the others show how it goes on.
_AUTO_STEPS = 5
# Reading data and building the model come before the first step and cost few events.
_BEFORE_STEPS = 5
# What the events may hold, as a share of the memory that is free when the window opens, and at most.
_MEMORY_SHARE = 0.25
_MOST_MEMORY = 2 << 30
# At the end of the program a large trace needs its time.
_PATIENCE = 120.0


class Window:
    """The trace of this process. Open between `open` and `close`."""

    def __init__(self, job: Session, asked: Asked) -> None:
        self._job = job
        self._mode = asked.trace
        self._seconds = asked.trace_seconds
        self._most = _AUTO_STEPS
        if asked.trace.startswith("steps="):
            self._most = max(int(asked.trace[len("steps=") :] or 0), 1)
        self._steps = 0
        self._first_step: float | None = None
        self._resident_then = 0
        self._grown = 0
        self._most_grown = _MOST_MEMORY
        self._save: Callable[[pathlib.Path], None] | None = None
        self._stop: Callable[[], None] | None = None
        self._opened = 0.0
        self._writer: threading.Thread | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._kept: list[Any] = []
        self.is_open = False

    @property
    def folder(self) -> pathlib.Path:
        """Where the profiler writes."""
        return self._job.folder / f"trace-{self._job.name}"

    def open(self, framework: str, start: Callable[[pathlib.Path], Callable[[pathlib.Path], None]]) -> None:
        """Starts a profiler. `start` gives the function that stops it and saves; one window a process."""
        if self._mode == "off" or self.is_open or self._save is not None:
            return
        try:
            # Where nothing can be written, nothing need be traced.
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save = start(self.folder)
        except Exception as error:
            self._job.mark("trace", f"{framework}: not traced: {error}", trace_state="failed")
            warn(f"no trace of {framework}: {error}")
            return
        self.is_open = True
        self._opened = time.monotonic()
        self._most_grown = min(int(available_bytes() * _MEMORY_SHARE) or _MOST_MEMORY, _MOST_MEMORY)
        self._job.mark("trace", f"{framework}: begins", trace_state="begun")
        if self._mode != "all":
            self._wait(self._seconds * _BEFORE_STEPS)

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Has something done at once when the window closes, in the thread that closes it; what is saved comes after."""
        self._stop = stop

    def keep(self, profiler: Any) -> None:
        """Holds a profiler for as long as the process lives: its end must not come by accident."""
        self._kept.append(profiler)

    def stepped(self) -> bool:
        """A training step has ended. True when it was the last one to trace."""
        self._steps += 1
        resident = _vramline.resident_bytes() or 0
        if self._first_step is None:
            self._first_step = time.monotonic()
            self._resident_then = resident
            if self._mode != "all":
                self._wait(self._seconds)
        self._grown = max(resident - self._resident_then, 0)
        return self._is_large or (self._mode != "all" and self._steps >= self._most)

    @property
    def is_over(self) -> bool:
        """Whether it was open once."""
        return self._save is not None and not self.is_open

    @property
    def _is_large(self) -> bool:
        return self._grown > self._most_grown

    @property
    def why_now(self) -> str:
        """Why the step that ended is the last one."""
        if self._is_large:
            return f"its events may hold {self._grown / 1e6:.0f} MB by now, more than a quarter of what was free or {_MOST_MEMORY >> 30} GiB"
        return "its steps are over"

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self.close, ("its time is over",))
        self._timer.daemon = True
        self._timer.start()

    def close(self, why: str, wait: bool = False) -> None:
        """Stops the profiler and saves. Waits for that only where nothing comes after."""
        with self._lock:
            was_open, self.is_open = self.is_open, False
            if was_open:
                # Where the trace ends; a reader goes by this mark.
                self._job.mark("trace", f"stops: {why}", trace_state="stopped")
                if self._timer is not None:
                    self._timer.cancel()
                try:
                    if self._stop is not None:
                        self._stop()
                finally:  # Ctrl-C in between costs no trace.
                    self._writer = threading.Thread(target=self._write, name="vramline-trace", daemon=True)
                    try:
                        self._writer.start()
                    except RuntimeError:  # No threads any more: the interpreter is about to end.
                        self._writer = None
                        self._write()
        if wait and self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(_PATIENCE)

    def _write(self) -> None:
        begin = time.monotonic()
        try:
            assert self._save is not None
            self._save(self.folder)
        except Exception as error:
            self._job.mark("trace", f"lost: {error}", trace_state="lost")
            warn(f"the trace could not be written: {error}")
            return
        end = time.monotonic()
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        traced = begin - self._opened
        overshoot = ""
        if self._mode != "all" and self._first_step is not None and begin - self._first_step > self._seconds + 1.0:
            overshoot = f"; {begin - self._first_step - self._seconds:.1f} s longer than asked for"
        rate = f", {size / self._steps / 1e6:.1f} MB a step" if self._steps else ""
        self._job.mark(
            "trace",
            f"written: {self._steps} steps in {traced:.1f} s, {size / 1e6:.1f} MB{rate},"
            f" in {end - begin:.1f} s, after at most {self._grown / 1e6:.1f} MB of memory{overshoot}",
            trace_state="written",
        )

    def abandon(self) -> None:
        """In a forked child: the profiler belongs to the parent, and must not even be destroyed here."""
        if self.is_open:
            import ctypes

            for profiler in self._kept:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(profiler))
        self.is_open, self._save, self._timer, self._writer = False, None, None, None
        self._mode, self._lock = "off", threading.Lock()


def available_bytes() -> int:
    """Memory of the machine that is free or can be freed; 0 where nobody tells."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 0


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    os.replace(temporary, path)
