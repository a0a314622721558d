"""Profiles that the program makes with TensorFlow's own profiler: notes their folder, start and end. The files stay in place."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from vramline.attach.quiet import quietly
from vramline.attach.window import Window
from vramline.frameworks import counters
from vramline.recording.session import Session


class OwnProfile:
    """One profile of the program, from its start until it is written or lost."""

    def __init__(self, job: Session, window: Window, logdir: Any) -> None:
        self._job, self._window = job, window
        self._place, self._is_over, self._has_stopped = "", False, False
        self._number: int | None = None
        self._pid = os.getpid()
        quietly(self._begin)(logdir)

    def _begin(self, logdir: Any) -> None:
        place = os.fsdecode(logdir) if logdir else ""
        # An absolute path, because the program may change its working folder. A place such as gs://bucket is not a path.
        self._place = place if not place or "://" in place else os.path.abspath(place)
        self._number = self._window.program_began(self._place)

    def stops(self) -> None:
        """Notes the end of the profile, just before the profiler stops."""
        self._before = set(_runs(self._place)) if self._number else set()
        self._tell_stopped()

    def written(self) -> None:
        """Notes that the profile is on disk."""
        quietly(self._tell_written)()
        self._end()

    def lost(self, why: str) -> None:
        """Notes that the profile will not be written."""
        if self._is_over or os.getpid() != self._pid:
            return
        if self._number:
            self._tell_stopped()
            self._job.mark("trace", f"the program's own profile is lost: {why}", trace_state="lost", window=self._number, opened_for="program")
        self._end()

    def _tell_stopped(self) -> None:
        if self._number and not self._has_stopped:
            self._has_stopped = True
            self._job.mark(
                "trace",
                "the program's own profiler stopped",
                read=counters.read_all(),
                trace_state="stopped",
                window=self._number,
                opened_for="program",
            )

    def _tell_written(self) -> None:
        if not self._number:
            return
        # TensorFlow creates a folder per run inside the program's folder; two runs within a second share one.
        runs = _runs(self._place)
        new = [run for run in runs if run not in self._before] or runs
        place = str(max(new, key=lambda run: run.stat().st_mtime_ns)) if new else self._place
        self._job.mark(
            "trace",
            "the program's own profile is written",
            trace_state="written",
            window=self._number,
            opened_for="program",
            path=place,
        )

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._window.program_ended()


def _runs(place: str) -> list[pathlib.Path]:
    try:
        return [run for run in pathlib.Path(place, "plugins", "profile").iterdir() if run.is_dir()]
    except OSError:
        return []
