"""Answers `vramline snapshot`: takes a snapshot of this process when a request file appears in the recording.

The sampling thread notices the file. A thread of its own answers, so that neither sampling nor the program waits.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from vramline.attach.window import write_whole
from vramline.frameworks import counters
from vramline.recording.session import Session, identity

# The name of the request, which the command line writes. Its content is small.
_REQUEST = "request.json"
_MOST_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a framework did when it was asked for a snapshot."""

    state: Literal["taken", "opened", "counters", "failed"]
    """`taken`: a snapshot is in the recording. `opened`: a trace window is open now. `counters`: only counters could be read."""
    number: int | None = None
    """The number of the snapshot or window."""
    reason: str | None = None
    """Why there are only counters, or why it failed."""


class Requests:
    """The requests that this process answers. Each framework adds the function that takes its snapshot."""

    def __init__(self, job: Session) -> None:
        self._job = job
        self._askers: dict[str, Callable[[], Answer]] = {}
        self._last: Any = None
        # A request from before this process began is not for it.
        self._began = time.time_ns()

    def add(self, framework: str, ask: Callable[[], Answer]) -> None:
        """Sets the function that takes the snapshot of a framework."""
        self._askers[framework] = ask

    def after_fork(self) -> None:
        """Forgets the frameworks in a forked child: they belong to the parent."""
        self._askers.clear()
        self._began = time.time_ns()

    def noticed(self) -> None:
        """Starts to answer. The sampling thread calls this when the request file is new."""
        threading.Thread(target=self._answer, name="vramline-snapshot", daemon=True).start()

    def _answer(self) -> None:
        try:
            request = _read(self._job.folder / _REQUEST)
            number, asked_at = request.get("request"), request.get("time_ns")
            if number == self._last or not isinstance(asked_at, int) or asked_at < self._began:
                return
            self._last = number
            begin = time.monotonic()
            frameworks = {name: dataclasses.asdict(_asked(ask)) for name, ask in list(self._askers.items())}
            answer = {
                "kind": "vramline-answer",
                "request": number,
                "pid": os.getpid(),
                "rank": identity()["rank"],
                "frameworks": frameworks,
                "seconds": round(time.monotonic() - begin, 3),
                "counters": [each._asdict() for each in counters.read_sampled()],
            }
            text = json.dumps(answer, default=str) + "\n"
            write_whole(self._job.folder / f"answer-{self._job.name}.json", text.encode())
        except Exception as error:
            self._job.failed(error)


def _asked(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except Exception as error:
        return Answer("failed", reason=str(error) or type(error).__name__)


def _read(path: pathlib.Path) -> dict[str, Any]:
    with path.open("rb") as file:
        found = json.loads(file.read(_MOST_BYTES))
    return found if isinstance(found, dict) else {}
