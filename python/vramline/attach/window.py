"""Trace windows: one from before the first allocation through the first steps, and a few short ones later.

The profiler keeps its events in memory until it stops, so a window is bounded by steps, seconds and memory. The profiler does not report
how much memory its events use; the growth of the process since the end of the first step is an upper bound. A window also
ends when the program starts its own profiler (there can be only one), and when the program ends, unless it is killed. A thread writes the
trace while the training continues.

With `--trace auto`, TensorFlow is traced again for a few steps when the program does something new, and when the peak of the process has
risen. Otherwise a report could explain only the first steps. All later windows share one budget.
"""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from vramline import _vramline
from vramline.attach.settings import RunOptions
from vramline.frameworks import counters
from vramline.recording.session import Session, warn
from vramline.words import WindowReason

# The first step builds the graph and the optimizer's variables; the others are typical steps.
_AUTO_STEPS = 5
# Before the first step a window may last this many times longer: reading data and building the model cause few events.
_BEFORE_STEPS = 5
# The most memory for events: as a share of the memory that is free when the window opens, and in bytes.
_MEMORY_SHARE = 0.25
_MOST_MEMORY = 2 << 30
# Seconds to wait for the trace to be written at the end of the program.
_PATIENCE = 120.0

# The budget of `--trace auto`: the number of windows; the number of those that were not opened by a rise of the peak; steps per later
# window; seconds of all later windows together, as a multiple of `--trace-seconds`; and bytes of all traces.
_MOST_WINDOWS = 8
_MOST_UNPROVOKED = 5
_LATER_STEPS = 3
_LATER_SHARE = 2
_MOST_BYTES = 256 << 20
# A window can open only after the trace before it is written. Seconds to wait for that, each time; a trace of a few steps takes a tenth
# of it.
_PATIENCE_BETWEEN = 1.0
# The most profiles of the program itself that are noted.
_MOST_OF_PROGRAM = 16


class Window:
    """The trace windows of this process, one after the other. One is open between `open` or `reopen` and `close`."""

    def __init__(self, job: Session, options: RunOptions) -> None:
        self._job = job
        self._mode = options.trace
        self._seconds = options.trace_seconds
        self._first_most = _AUTO_STEPS
        if options.trace.startswith("steps="):
            self._first_most = max(int(options.trace[len("steps=") :] or 0), 1)
        self._start: Callable[[pathlib.Path], Callable[[pathlib.Path], None]] | None = None
        self._framework = ""
        # Whether more windows may open: the profiler can start again, and the mode is `auto`.
        self._is_again = options.trace == "auto" and not options.stops
        self._left = self._seconds * _LATER_SHARE
        self._written = 0
        self._opened_windows = self._unprovoked = 0
        # The number of the open or last window, and the last number in use, which the program's own profiles share.
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
        # The reason for a window that has to wait, because the trace before it is still being written.
        self.wanted: WindowReason | None = None
        self.is_open = False
        self.is_ended = False
        """Whether the program has ended, or is about to."""

    def next_number(self) -> int:
        """Returns a number for a moment, which share their numbers with the windows. 1 is the first window, even if there is none."""
        self._numbers = max(self._numbers, 1) + 1
        return self._numbers

    @property
    def number(self) -> int:
        """The number of the open window, or of the last one."""
        return self._number

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the open or last window. The first has no number, because earlier versions of Vramline read only that one."""
        later = f".{self._number}" if self._number > 1 else ""
        return self._job.folder / f"trace-{self._job.name}{later}"

    def open(
        self,
        framework: str,
        start: Callable[[pathlib.Path], Callable[[pathlib.Path], None]],
        again: bool = False,
    ) -> None:
        """Starts the profiler in the first window.

        Args:
            framework: The name of the framework.
            start: Starts the profiler, and returns the function that stops it and saves the trace.
            again: Whether `start` may be called again for later windows.
        """
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
            # Create the folder first: if it cannot be written, tracing is useless.
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save = self._start(self.folder)
        except Exception as error:
            text = f"{self._framework}: trace failed to start: {error}"
            self._job.mark("trace", text, trace_state="failed", window=self._number, opened_for=reason)
            if not number:
                warn(f"{self._framework} is not traced, the recording has only counters: {error}")
            return False
        self.is_open = True
        self._opened_windows += 1
        self._opened = time.monotonic()
        self._most_grown = min(int(available_bytes() * _MEMORY_SHARE) or _MOST_MEMORY, _MOST_MEMORY)
        self._job.mark(
            "trace", f"{self._framework}: trace started", trace_state="begun", window=self._number, opened_for=reason
        )
        return True

    @property
    def may_reopen(self) -> bool:
        """Whether the budget allows another window, and neither we nor the program trace now."""
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
        """Whether a window is open that is not the first."""
        return self.is_open and self._number > 1

    def reopen(self, reason: WindowReason | None = None, until: str | None = None) -> bool:
        """Opens another window. If the trace before it is not written yet, sets `wanted`, and a later call opens it.

        Args:
            reason: Why the window opens; None to open the one that had to wait.
            until: The phase whose end also ends the window.

        Returns:
            Whether a window has been opened.
        """
        is_late, reason = reason is None, reason or self.wanted
        if reason is None or not self.may_reopen:
            self.wanted = None
            return False
        # What somebody asked for, or a rise, is no guess.
        is_rise = reason in ("rise", "request")
        if not is_rise and self._unprovoked >= _MOST_UNPROVOKED - 1:
            self.wanted = None
            return False
        writer = self._writer
        if writer is not None and writer.is_alive() and writer is not threading.current_thread():
            # Wait a little: what the window should show may not happen again.
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
                # The first window saw no step, because the program started its own profiler: use its length here.
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
        """Sets a function to call when the window closes, in the thread that closes it and before the trace is saved."""
        self._stop = stop

    def keep(self, profiler: Any) -> None:
        """Keeps a profiler alive until the process ends, so that it is not destroyed at a bad moment."""
        self._kept.append(profiler)

    def stepped(self, trains: bool = True) -> bool:
        """Counts a step that has ended. Returns whether it was the last one to trace. The first window counts training steps only."""
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
        """Returns whether the open window ends with this phase."""
        return self.is_open and self._until == phase

    @property
    def is_over(self) -> bool:
        """Whether a window was open and is closed now."""
        return self._save is not None and not self.is_open

    @property
    def _is_large(self) -> bool:
        return self._grown > self._most_grown

    @property
    def why_now(self) -> str:
        """Why the step that has just ended is the last one of the window."""
        if self._is_large:
            return f"its events may use up to {self._grown / 1e6:.0f} MB of host memory, more than its limit of {self._most_grown / 1e6:.0f} MB"
        return "step limit reached"

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._time_is_over, (self._number,))
        self._timer.daemon = True
        self._timer.start()

    def _time_is_over(self, number: int) -> None:
        if number == self._number:
            self.close("time limit reached")

    def close(self, why: str, wait: bool = False) -> None:
        """Stops the profiler, and saves the trace in a thread.

        Args:
            why: The reason, for the recording.
            wait: Wait until the trace is saved.
        """
        with self._lock:
            was_open, self.is_open = self.is_open, False
            if was_open:
                # Readers take this mark as the end of the trace. A later rise of the peak is measured against its counters.
                self._job.mark(
                    "trace", f"trace stopped: {why}", read=_read_all(), trace_state="stopped", window=self._number
                )
                if self._timer is not None:
                    self._timer.cancel()
                if self._number > 1:
                    self._left -= time.monotonic() - self._opened
                try:
                    if self._stop is not None:
                        self._stop()
                finally:  # Save the trace even if Ctrl-C arrives here.
                    self._writer = threading.Thread(target=self._write, name="vramline-trace", daemon=True)
                    try:
                        self._writer.start()
                    except RuntimeError:  # The interpreter is about to end and starts no more threads.
                        self._writer = None
                        self._write()
                if self.may_reopen:
                    self._job.watch_peaks()
        if wait and self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(_PATIENCE)

    def end(self, why: str) -> None:
        """Closes the window and waits for its trace. No window opens afterwards."""
        self._is_again, self.wanted, self.is_ended = False, None, True
        self.close(why, wait=True)

    def _write(self) -> None:
        begin = time.monotonic()
        number = self._number
        try:
            assert self._save is not None
            self._save(self.folder)
        except Exception as error:
            self._job.mark("trace", f"trace lost: {error}", trace_state="lost", window=number)
            warn(f"the trace could not be written, the recording has only counters for its steps: {error}")
            return
        end = time.monotonic()
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        self._written += size
        traced = begin - self._opened
        overshoot = ""
        if self._mode != "all" and self._first_step is not None and begin - self._first_step > self._seconds + 1.0:
            overshoot = f"; {begin - self._first_step - self._seconds:.1f} s longer than requested"
        rate = f" ({size / self._steps / 1e6:.1f} MB per step)" if self._steps else ""
        steps = "1 step" if self._steps == 1 else f"{self._steps} steps"
        self._job.mark(
            "trace",
            f"trace written: {steps} in {traced:.1f} s{overshoot}; {size / 1e6:.1f} MB{rate}, written in {end - begin:.1f} s;"
            f" at most {self._grown / 1e6:.1f} MB of host memory",
            trace_state="written",
            window=number,
        )

    def abandon(self) -> None:
        """Gives up the window in a forked child: the profiler belongs to the parent, and must not even be destroyed here."""
        if self.is_open:
            import ctypes

            for profiler in self._kept:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(profiler))
        self.is_open, self._save, self._timer, self._writer = False, None, None, None
        self._mode, self._lock = "off", threading.Lock()
        self._is_again, self.wanted = False, None

    # --- The program's own profiler ---

    def make_way(self) -> None:
        """Closes the window, because the program starts its own profiler or a profiler server. No window opens until that has stopped."""
        self._is_programs = True
        self.close("the program starts its own profiler", wait=True)

    def program_ended(self) -> None:
        """Notes that the program's own profiler has stopped."""
        self._is_programs = False
        if self.may_reopen:
            self._job.watch_peaks()

    def program_began(self, place: str) -> int | None:
        """Notes that the program's own profiler has started, and where it will write.

        Returns:
            The number of the profile; None if it is not noted, because there are too many or the place is unknown.
        """
        if not place or self._programs >= _MOST_OF_PROGRAM:
            return None
        self._programs += 1
        self._numbers += 1
        self._job.mark(
            "trace",
            "the program's own profiler started",
            trace_state="begun",
            window=self._numbers,
            opened_for="program",
            path=place,
        )
        return self._numbers


def _read_all() -> list[Any]:
    try:
        return counters.read_all()
    except Exception:  # The framework may be shutting down.
        return []


def available_bytes() -> int:
    """Returns the host memory that is free or can be freed; 0 if it is unknown."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 0


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Writes a file atomically: completely or not at all."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    os.replace(temporary, path)
