"""Hooks on PyTorch: a step is what ends with an optimizer's update; when CUDA is initialised a memory limit is set and the trace begins.

The trace is the history that PyTorch's allocator keeps itself, saved as a snapshot. It is on for the window's steps only.
"""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
from types import ModuleType
from typing import Any, Callable

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
    if hasattr(torch.cuda, "_lazy_call"):
        torch.cuda._lazy_call(quietly(lambda: _trace(torch, steps)))
        ending.at_exit_of(steps)
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

    register_optimizer_step_post_hook(stepped)


def _trace(torch: ModuleType, steps: Steps) -> None:
    """Opens the window; CUDA is being initialised, and nothing is allocated yet."""
    memory = torch.cuda.memory
    record = memory._record_memory_history

    def start(_: pathlib.Path) -> Callable[[pathlib.Path], None]:
        record(enabled="all", context="alloc", stacks="python", max_entries=_MOST_EVENTS)

        def save(folder: pathlib.Path) -> None:
            # First the picture: switching off throws the history away.
            taken = memory._snapshot()
            record(enabled=None)
            path = folder / f"{os.uname().nodename}.snapshot.pickle"
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                pickle.dump(taken, file)
            os.replace(part, path)

        return save

    @functools.wraps(record)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        """The program's own. There is one history: ours makes way."""
        steps.window.close("the program records a history of its own", wait=True)
        return record(*args, **kwargs)

    steps.window.open("torch", start)
    if steps.window.is_open:
        memory._record_memory_history = theirs


def _set_limit(torch: ModuleType, limit: int, steps: Steps) -> None:
    for number in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(number).total_memory
        if limit < total:
            torch.cuda.set_per_process_memory_fraction(limit / total, number)
            steps.job.mark("setting", f"limit of GPU:{number}: {limit} of {total} bytes")
