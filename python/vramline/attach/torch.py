"""Hooks on PyTorch: a step is what ends with an optimizer's update; when CUDA is initialised a memory limit is set and the trace begins.

The trace is the history that PyTorch's allocator keeps itself, saved as a snapshot. It is on for the window's steps only.
"""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
import threading
from types import ModuleType
from typing import Any, Callable, Optional

from vramline import inventory
from vramline.attach import ending
from vramline.attach.settings import Asked
from vramline.attach.steps import Steps, quietly

# Events that the allocator keeps: a ring, so that a program with more of them loses its first.
_MOST_EVENTS = 4_000_000


def hook(torch: ModuleType, steps: Steps, asked: Asked) -> None:
    """Puts the hooks on a PyTorch that has just been imported."""
    if asked.limit is not None:
        limit = asked.limit
        torch.cuda._lazy_call(lambda: _set_limit(torch, limit, steps))
    # After the limit: what allocates first is the program.
    history: Optional[_History] = None
    try:
        history = _History(torch, steps)
        torch.cuda._lazy_call(quietly(history.begin))
        ending.at_exit_of(steps)
    except AttributeError:  # A PyTorch that keeps no history.
        pass
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @quietly
    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        local = steps.local
        if local.in_keras:
            return
        steps.owns(optimizer, lambda: inventory.of_torch(optimizer))
        steps.end("train", "inferred", local.boundary)
        if not steps.window.is_open:
            steps.take_inventory()
        # A loop shows where a step ends; the next begins there.
        local.boundary = steps.begin()
        if history is not None:
            history.switch_off()

    register_optimizer_step_post_hook(stepped)


class _History:
    """The history that PyTorch's allocator keeps. There is one: a program that records its own gets it."""

    def __init__(self, torch: ModuleType, steps: Steps) -> None:
        self._memory = torch.cuda.memory
        self._record = self._memory._record_memory_history
        self._window = steps.window
        self._thread = 0
        self._taken: Any = None
        self._is_on = False

    def begin(self) -> None:
        """Opens the window. CUDA is being initialised, and nothing is allocated yet."""
        self._window.open("torch", self._start)
        if self._window.is_open:
            record = self._record

            @functools.wraps(record)
            def theirs(*args: Any, **kwargs: Any) -> Any:
                self._window.close("the program records a history of its own", wait=True)
                return record(*args, **kwargs)

            self._memory._record_memory_history = theirs

    def _start(self, _: pathlib.Path) -> Callable[[pathlib.Path], None]:
        self._thread = threading.get_ident()
        self._record(enabled="all", context="alloc", stacks="python", max_entries=_MOST_EVENTS)
        self._is_on = True
        self._window.on_stop(quietly(self._stop))
        return self._save

    def _stop(self) -> None:
        # First the picture: switching off throws the history away.
        self._taken = self._memory._snapshot()
        self.switch_off()

    def switch_off(self) -> None:
        """Once the window is over. PyTorch wants that from the thread that switched it on: if that is not at hand, at its next step."""
        if self._is_on and self._window.is_over and threading.get_ident() == self._thread:
            self._is_on = False
            self._record(enabled=None)

    def _save(self, folder: pathlib.Path) -> None:
        taken, self._taken = self._taken, None
        if taken is None:
            raise RuntimeError("PyTorch gave no snapshot")
        path = folder / f"{os.uname().nodename}.snapshot.pickle"
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            pickle.dump(taken, file)
        os.replace(part, path)


def _set_limit(torch: ModuleType, limit: int, steps: Steps) -> None:
    for number in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(number).total_memory
        if limit < total:
            torch.cuda.set_per_process_memory_fraction(limit / total, number)
            steps.job.mark("setting", f"limit of GPU:{number}: {limit} of {total} bytes")
