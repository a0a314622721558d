"""Snapshots of single moments after the trace: when memory ran out, when the peak had risen, and when somebody asked.

A moment has a folder of its own beside the traces, `moment-ID.N`, with what the framework says of its pool. The variables are listed at the
same time, so that their addresses and those of the blocks belong together. What a process writes is bounded: of each kind of moment the
first few stay, and the last one replaces the one before it. The time that moments take is bounded too.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from vramline.attach.quiet import quietly
from vramline.attach.steps import Steps
from vramline.frameworks import counters
from vramline.words import WindowReason

# How many moments of a kind are kept. If there are more, the last replaces the one before it.
_KEPT: dict[WindowReason, int] = {"oom": 4, "rise": 6, "request": 16}
# This many failures are always written. Later ones, and rises, only while all moments together take less than this share of the time.
_ALWAYS = 2
_MOST_SHARE = 0.005

Save = Callable[[pathlib.Path], None]
"""Writes what the framework says of its pool to a folder."""


class Moments:
    """The moments of this process."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._job = steps.job
        self._begun = time.monotonic()
        self._spent = 0.0
        self._owner = os.getpid()
        self._taken: dict[WindowReason, list[pathlib.Path]] = {}
        self._noted = 0
        self._is_busy = threading.Lock()

    def may_take(self, reason: WindowReason) -> bool:
        """Returns whether another moment costs the program next to nothing."""
        if os.getpid() != self._owner:
            # A forked child has no devices.
            return False
        if reason == "request" or (reason == "oom" and len(self._taken.get(reason, ())) < _ALWAYS):
            return True
        return self._spent < _MOST_SHARE * (time.monotonic() - self._begun)

    def take(self, reason: WindowReason, what: str, save: Save) -> tuple[int | None, str | None]:
        """Writes a moment: the variables, the counters, and what `save` writes.

        Returns:
            The number of the moment; or None, and why there is none.
        """
        if not self._is_busy.acquire(blocking=False):
            return None, "another snapshot is being taken"
        begin = time.monotonic()
        try:
            return self._take(reason, what, save)
        finally:
            self._spent += time.monotonic() - begin
            self._is_busy.release()

    def note(self, what: str) -> None:
        """Writes the variables and the counters of a moment that the open trace shows."""
        self._noted += 1
        if self._noted <= _KEPT["oom"]:
            self._job.mark("mark", what, read=_read_all())
            quietly(self._steps.take_inventory)(True)

    def _take(self, reason: WindowReason, what: str, save: Save) -> tuple[int | None, str | None]:
        number = self._steps.window.next_number()
        folder = self._job.folder / f"moment-{self._job.name}.{number}"
        marks: dict[str, Any] = {"window": number, "opened_for": reason}
        self._job.mark("trace", what, trace_state="begun", **marks)
        quietly(self._steps.take_inventory)(True)
        begin = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save(folder)
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._job.mark("trace", f"snapshot lost: {error}", trace_state="lost", **marks)
            return None, str(error) or type(error).__name__
        seconds = time.monotonic() - begin
        self._job.mark("trace", "snapshot taken", read=_read_all(), trace_state="stopped", **marks)
        self._job.mark("trace", f"snapshot written in {seconds:.2f} s", trace_state="written", **marks)
        kept = self._taken.setdefault(reason, [])
        kept.append(folder)
        if len(kept) > _KEPT.get(reason, 1):
            shutil.rmtree(kept.pop(-2), ignore_errors=True)
        return number, None


def _read_all() -> list[Any]:
    try:
        return counters.read_sampled()
    except Exception:  # The framework may be shutting down.
        return []
