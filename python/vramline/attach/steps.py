"""Steps as they happen: who tells of one, what is read then, and what follows.

One process has one of these. Every source of steps (Keras, a custom loop, PyTorch's optimizers) reports here, so that the
counters are read in one place, the trace ends after the right number, and the variables are written down when something has
become of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from vramline import counters
from vramline.attach.owners import Owners
from vramline.attach.variables import Variables
from vramline.attach.window import Window
from vramline.session import Session
from vramline.words import How, MarkKind, Phase, WindowReason

# Calls of one function that is no training step, and functions that are traced again, at most.
_MOST_CALLS = 10_000
# The phases that a window is opened for.
_OPENED_FOR: dict[Phase, WindowReason] = {"train": "fit", "validation": "validation", "predict": "predict"}
# How much larger the inputs of a function must be than those that a window was opened for, so that another is.
_GROWN = 1.25
# At the beginning of so many steps of a window the variables are written down, which takes up to 0.1 ms each. What a graph of Keras
# assigns to is known by the names of its ops. A step that runs without a graph may give each a new value, and so may a graph of the
# program's own: an op may leave what is assigned in a block that another op asked for.
_LISTED_STEPS = 2
_LISTED_OWN_STEPS = 8
# A variable of the program's own that is worth it.
_WORTH_LISTING = 1 << 10
_MOST_EACH_STEP = 2_000
# Inventories of a process, at most; the last is always taken.
_MOST_INVENTORIES = 64
# The bytes in use must have changed by as much for another at the end of a phase.
_CHANGE = 1 << 20


class Steps:
    """The steps of this process."""

    def __init__(self, job: Session, window: Window, resets: bool, stops: bool = False) -> None:
        self.job = job
        self.window = window
        self._resets = resets
        self._stops = stops
        self.variables = Variables()
        self.owners = Owners(self.variables)
        self._taken = 0
        # Of which window, and at how many of its steps the variables were written down.
        self._listed_window = self._listed_steps = 0
        # Whether the program has variables that are neither a model's nor an optimizer's.
        self._has_own = False
        self._in_use_then: list[int | None] = []
        self._calls: dict[str, int] = {}
        self._number = 0
        self._retraces = 0
        self._phases: set[str] = set()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        # By function: for how many elements it was traced when a window was opened for that.
        self._largest: dict[str, int] = {}
        self.local = _Local()

    def begin(self, is_eager: bool = False) -> int:
        """A step begins: when. An eager one runs its ops one by one."""
        if self.window.is_open:
            self._list_for_window(_LISTED_OWN_STEPS if is_eager or self._has_own else _LISTED_STEPS)
            self.owners.is_in_step = True
        if self._resets:
            counters.reset_all()
        return time.monotonic_ns()

    def end(
        self,
        phase: Phase,
        how: How,
        begin: int | None,
        step: int | None = None,
        batches: int = 1,
        epoch: int | None = None,
        label: str | None = None,
    ) -> None:
        """A step has ended."""
        self.owners.is_in_step = False
        if step is None:
            step = self._number
            self._number += 1
        has_risen = self.job.step(label, phase, how, step, batches, epoch, begin)
        if self.window.is_open:
            self._counted_for_window(phase)
        elif has_risen:
            self.window.reopen("rise")
        elif self.window.wanted:
            self.window.reopen()
        if self._stops and phase == "train" and self.window.is_over:
            self._stop()

    def _stop(self) -> None:
        """Ends a probe. Nothing after its last step is to run: what the program would save now is no trained model."""
        self.finish("the probe is over")
        self.job.mark("end", "stopped", read=counters.read_all())
        self.job.close()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(0)

    def end_own_update(self) -> None:
        """A tape begins, or the program ends: what an eager loop has updated by itself since the last was a step."""
        local = self.local
        if local.boundary is not None and local.has_own_update:
            begin, local.boundary, local.has_own_update = local.boundary, None, False
            self.end("train", "inferred", begin)

    def call(self, name: str, trains: bool, begin: int) -> None:
        """A compiled function has been called that is no whole training step."""
        self.owners.is_in_step = False
        count = self._calls.get(name, 0)
        self._calls[name] = count + 1
        if count >= _MOST_CALLS:
            return
        phase: Phase = "train" if trains else "other"
        has_risen = self.job.mark("call", name, phase, "inferred", count, 1, None, begin, counters.read_all())
        if self.window.is_later:
            self._counted_for_window("other")
        elif has_risen and not self.window.is_open:
            self.window.reopen("rise")

    def _counted_for_window(self, phase: Phase) -> None:
        if self.window.stepped(phase == "train"):
            self.take_inventory()
            self.window.close(self.window.why_now)

    def begins(self, phase: Phase, model: Any) -> None:
        """A fit, an evaluation or a prediction begins. What this process has not done before is traced."""
        is_new = phase not in self._phases
        self._phases.add(phase)
        # Another model is another training. Of evaluations and predictions the first is enough: what grows later, grows the peak.
        if phase == "train" and model is not None:
            is_new = model not in self._models
            self._models.add(model)
        reason = _OPENED_FOR.get(phase)
        if is_new and reason is not None and not self.window.is_open:
            self.window.reopen(reason, until=phase)

    def retraced(self, name: str, elements: int | None, before: int | None) -> None:
        """A compiled function is being traced again.

        Args:
            name: The function.
            elements: How many elements its inputs have now; None where that is not fixed.
            before: How many they had at most when it was traced before.
        """
        self._retraces += 1
        if self._retraces <= _MOST_CALLS:
            self.job.mark("retrace", name, how="inferred", read=counters.read_all())
        if self.window.is_open or (elements is not None and before is not None and elements <= before):
            return
        # Larger inputs may make a higher peak, and the call that is to come is the first with them.
        traced = self._largest.get(name)
        if traced is None or (elements or 0) >= traced * _GROWN:
            self._largest[name] = elements or 0
            self.window.reopen("retrace")

    def span(self, kind: MarkKind, label: str | None, phase: Phase, begin: int | None, epoch: int | None) -> None:
        """An epoch or a phase has ended."""
        read = counters.read_all()
        self.job.mark(kind, label, phase, "keras", None, None, epoch, begin, read)
        ends_window = kind == "phase" and self.window.ends_with(phase)
        if ends_window or (kind == "phase" and _differ([each.current for each in read], self._in_use_then)):
            self.take_inventory()
        if ends_window:
            self.window.close("what it was opened for is over")

    def _list_for_window(self, most: int) -> None:
        if self.window.number != self._listed_window:
            self._listed_window, self._listed_steps = self.window.number, 0
        if self._listed_steps < most:
            self._listed_steps += 1
            self.take_inventory()

    @property
    def is_counted(self) -> bool:
        """Whether the variables were written down at all."""
        return self._taken > 0

    def take_inventory(self, is_last: bool = False) -> None:
        """Writes the variables down, as they are now."""
        if self._taken >= _MOST_INVENTORIES and not is_last:
            return
        self._taken += 1
        self._in_use_then = [each.current for each in counters.read_all()]
        self.job.attempt(self._write_inventory)

    def _write_inventory(self) -> None:
        listed = self.variables.listed()
        if len(listed.rows) > _MOST_EACH_STEP:
            self._listed_steps = _LISTED_OWN_STEPS
        self._has_own = any(row.source and row.bytes >= _WORTH_LISTING for row in listed.rows)
        self.job.inventory(listed.rows)
        self.job.owners(self.owners.rows(listed))

    def finish(self, why: str) -> None:
        """Nothing comes after: waits until the trace is written, and the variables that it is about."""
        self.end_own_update()
        if self.window.is_open:
            self.take_inventory(is_last=True)
        self.window.end(why)

    def after_fork(self) -> None:
        """In a forked child the trace is the parent's."""
        self.window.abandon()


class _Local(threading.local):
    """Where a thread is."""

    def __init__(self) -> None:
        # Inside a batch that this list of callbacks was told of, a call such as `train_on_batch`, a compiled function, or an
        # optimizer's update.
        self.batch_of: Callable[[], Any] | None = None
        self.in_single = False
        self.depth = 0
        self.in_update = False
        # What was seen while the outermost compiled function was being run.
        self.saw_update = False
        self.saw_gradient = False
        # Where the eager step that is going on began: at the first tape since the last update.
        self.boundary: int | None = None
        # Whether what is trained was assigned to since, by no optimizer.
        self.has_own_update = False

    @property
    def in_keras(self) -> bool:
        """Inside a batch of Keras."""
        return self.in_single or (self.batch_of is not None and self.batch_of() is not None)


def _differ(now: list[int | None], then: list[int | None]) -> bool:
    """Whether the bytes in use have changed by more than a little."""
    return len(now) != len(then) or any(abs((a or 0) - (b or 0)) > _CHANGE for a, b in zip(now, then, strict=True))
