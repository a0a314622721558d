"""Bounded traces: one from before the first allocation through a few steps, and a few short ones of what comes later.

The profiler keeps its events in memory until it is stopped, so a window has ends: a number of steps, seconds, and memory. How much
it holds nobody tells: what the process has grown by since the first step ended is the most that it can be. A window also ends
when the program starts a profiler of its own (there can be only one), and when the program ends in whatever way lets us
know. Writing happens in a thread, beside the training.

With `--trace auto` TensorFlow is traced again, for a few steps, when the program does what it has not done before, and when the
peak of the process has risen: else a report could explain only the first steps. All later windows share one budget.
"""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from vramline import _vramline, counters
from vramline.attach.settings import Asked
from vramline.session import Session, warn
from vramline.words import WindowReason

# The first step builds the graph and the optimizer's slots; the others show how it goes on.
_AUTO_STEPS = 5
# Reading data and building the model come before the first step and cost few events.
_BEFORE_STEPS = 5
# What the events may hold, as a share of the memory that is free when the window opens, and at most.
_MEMORY_SHARE = 0.25
_MOST_MEMORY = 2 << 30
# At the end of the program a large trace needs its time.
_PATIENCE = 120.0

# The budget of `--trace auto`: windows in all; those of them that a rise of the peak need not have opened; steps of a later one;
# how often the seconds of a trace all later ones may last together; and the bytes that all may write.
_MOST_WINDOWS = 8
_MOST_UNPROVOKED = 5
_LATER_STEPS = 3
_LATER_SHARE = 2
_MOST_BYTES = 256 << 20
# Before another window can be opened the one before must be written; that is waited for, at most so many seconds each time. A few
# steps take a tenth of that.
_PATIENCE_BETWEEN = 1.0
# Profiles of the program's own that are noted, at most.
_MOST_OF_PROGRAM = 16


class Window:
    """The traces of this process. Open between `open` or `reopen` and `close`."""

    def __init__(self, job: Session, asked: Asked) -> None:
        self._job = job
        self._mode = asked.trace
        self._seconds = asked.trace_seconds
        self._first_most = _AUTO_STEPS
        if asked.trace.startswith("steps="):
            self._first_most = max(int(asked.trace[len("steps=") :] or 0), 1)
        self._start: Callable[[pathlib.Path], Callable[[pathlib.Path], None]] | None = None
        self._framework = ""
        # Whether the profiler can be started again, and whether this was asked for.
        self._is_again = asked.trace == "auto" and not asked.stop
        self._left = self._seconds * _LATER_SHARE
        self._written = 0
        self._opened_windows = self._unprovoked = 0
        # The number of the window that is open or was last; of the program's own profiles too.
        self._number = self._numbers = 0
        self._programs = 0
        self._is_programs = False
        self._until: str | None = None
        self._steps = 0
        self._most = self._first_most
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
        # Why a window is to be opened that could not be yet, because the one before is being written.
        self.wanted: WindowReason | None = None
        self.is_open = False

    @property
    def number(self) -> int:
        """The number of the window that is open or was last."""
        return self._number

    @property
    def folder(self) -> pathlib.Path:
        """Where the profiler writes: a folder for each window. Earlier versions of Vramline know that of the first only."""
        later = f".{self._number}" if self._number > 1 else ""
        return self._job.folder / f"trace-{self._job.name}{later}"

    def open(
        self,
        framework: str,
        start: Callable[[pathlib.Path], Callable[[pathlib.Path], None]],
        again: bool = False,
    ) -> None:
        """Starts a profiler. `start` gives the function that stops it and saves; with `again` it may be called for later windows."""
        if self._mode == "off" or self.is_open or self._save is not None:
            return
        self._framework, self._start = framework, start
        self._is_again = self._is_again and again
        if not self._begin("start"):
            self._is_again = False
        elif self._mode != "all":
            self._wait(self._seconds * _BEFORE_STEPS)

    def _begin(self, reason: WindowReason) -> bool:
        number, self._numbers = self._number, self._numbers + 1
        self._number = self._numbers
        try:
            assert self._start is not None
            # Where nothing can be written, nothing need be traced.
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save = self._start(self.folder)
        except Exception as error:
            text = f"{self._framework}: not traced: {error}"
            self._job.mark("trace", text, trace_state="failed", window=self._number, opened_for=reason)
            if not number:
                warn(f"no trace of {self._framework}: {error}")
            return False
        self.is_open = True
        self._opened_windows += 1
        self._opened = time.monotonic()
        self._most_grown = min(int(available_bytes() * _MEMORY_SHARE) or _MOST_MEMORY, _MOST_MEMORY)
        self._job.mark(
            "trace", f"{self._framework}: begins", trace_state="begun", window=self._number, opened_for=reason
        )
        return True

    @property
    def may_reopen(self) -> bool:
        """Whether the budget leaves room for another window, and nobody else traces."""
        return (
            self._is_again
            and not self.is_open
            and not self._is_programs
            and self._opened_windows < _MOST_WINDOWS
            and self._left > 0
            and self._written < _MOST_BYTES
        )

    @property
    def is_later(self) -> bool:
        """Whether the window that is open is not the first."""
        return self.is_open and self._number > 1

    def reopen(self, reason: WindowReason | None = None, until: str | None = None) -> bool:
        """Opens another window, or has one opened as soon as that of before is written.

        Args:
            reason: Why; None for the window that had to wait.
            until: The phase whose end also ends it.
        """
        is_late, reason = reason is None, reason or self.wanted
        if reason is None or not self.may_reopen:
            self.wanted = None
            return False
        is_rise = reason == "rise"
        if not is_rise and self._unprovoked >= _MOST_UNPROVOKED - 1:
            self.wanted = None
            return False
        writer = self._writer
        if writer is not None and writer.is_alive() and writer is not threading.current_thread():
            # What is to be seen may not come again.
            writer.join(0 if is_late else _PATIENCE_BETWEEN)
            if writer.is_alive():
                self.wanted = reason
                return False
        with self._lock:
            self.wanted = None
            if self.is_open or not self._is_again:
                return False
            self._steps, self._most, self._until = 0, _LATER_STEPS, until
            if self._opened_windows == 1 and not self._first_step:
                # The first one saw no step: the program's own profiler came in between.
                self._most = self._first_most
            self._first_step, self._grown = None, 0
            self._resident_then = _vramline.resident_bytes() or 0
            if not self._begin(reason):
                self._is_again = False
                return False
            self._unprovoked += not is_rise
            self._wait(min(self._seconds, self._left))
        return True

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Has something done at once when the window closes, in the thread that closes it; what is saved comes after."""
        self._stop = stop

    def keep(self, profiler: Any) -> None:
        """Holds a profiler for as long as the process lives: its end must not come by accident."""
        self._kept.append(profiler)

    def stepped(self, trains: bool = True) -> bool:
        """A step has ended. True when it was the last one to trace. The first window is about those that train."""
        if self._number == 1 and not trains:
            return False
        self._steps += 1
        resident = _vramline.resident_bytes() or 0
        if self._first_step is None:
            self._first_step = time.monotonic()
            if self._number == 1:
                self._resident_then = resident
                if self._mode != "all":
                    self._wait(self._seconds)
        self._grown = max(resident - self._resident_then, 0)
        return self._is_large or (self._mode != "all" and self._steps >= self._most)

    def ends_with(self, phase: str) -> bool:
        """Whether the window was opened for a phase that has ended now."""
        return self.is_open and self._until == phase

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
        self._timer = threading.Timer(seconds, self._time_is_over, (self._number,))
        self._timer.daemon = True
        self._timer.start()

    def _time_is_over(self, number: int) -> None:
        if number == self._number:
            self.close("its time is over")

    def close(self, why: str, wait: bool = False) -> None:
        """Stops the profiler and saves. Waits for that only where nothing comes after."""
        with self._lock:
            was_open, self.is_open = self.is_open, False
            if was_open:
                # Where the trace ends; a reader goes by this mark. Its counters are what a later rise is a rise over.
                self._job.mark(
                    "trace", f"stops: {why}", read=_read_all(), trace_state="stopped", window=self._number
                )
                if self._timer is not None:
                    self._timer.cancel()
                if self._number > 1:
                    self._left -= time.monotonic() - self._opened
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
                if self.may_reopen:
                    self._job.watch_peaks()
        if wait and self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(_PATIENCE)

    def end(self, why: str) -> None:
        """Nothing comes after: no window is opened any more."""
        self._is_again, self.wanted = False, None
        self.close(why, wait=True)

    def _write(self) -> None:
        begin = time.monotonic()
        number = self._number
        try:
            assert self._save is not None
            self._save(self.folder)
        except Exception as error:
            self._job.mark("trace", f"lost: {error}", trace_state="lost", window=number)
            warn(f"the trace could not be written: {error}")
            return
        end = time.monotonic()
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        self._written += size
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
            window=number,
        )

    def abandon(self) -> None:
        """In a forked child: the profiler belongs to the parent, and must not even be destroyed here."""
        if self.is_open:
            import ctypes

            for profiler in self._kept:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(profiler))
        self.is_open, self._save, self._timer, self._writer = False, None, None, None
        self._mode, self._lock = "off", threading.Lock()
        self._is_again, self.wanted = False, None

    # --- The program's own profiler ---

    def make_way(self) -> None:
        """The program starts a profiler of its own, or lets others profile it: until that has stopped, none of ours is opened."""
        self._is_programs = True
        self.close("the program starts a profiler of its own", wait=True)

    def program_ended(self) -> None:
        """The program's own profiler has stopped."""
        self._is_programs = False
        if self.may_reopen:
            self._job.watch_peaks()

    def program_began(self, place: str) -> int | None:
        """Notes that the program's own profiler runs, and where it will write. None where that is not noted any more."""
        if not place or self._programs >= _MOST_OF_PROGRAM:
            return None
        self._programs += 1
        self._numbers += 1
        self._job.mark(
            "trace",
            "the program's own profiler begins",
            trace_state="begun",
            window=self._numbers,
            opened_for="program",
            path=place,
        )
        return self._numbers


def _read_all() -> list[Any]:
    try:
        return counters.read_all()
    except Exception:  # The framework may be on its way out.
        return []


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
