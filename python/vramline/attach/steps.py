"""The steps of a process: every hook that finds one reports it here.

Sources are Keras, custom loops and PyTorch's optimizers. One place reads the counters, ends the trace after the right number of steps, and
writes the variables when they may have changed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from vramline.attach.owners import Owners
from vramline.attach.settings import RunOptions
from vramline.attach.variables import Variables
from vramline.attach.window import Window
from vramline.frameworks import counters
from vramline.recording.session import Session
from vramline.words import How, MarkKind, Phase, WindowReason

# The most calls of one function that is not a training step, and the most retraces, that are written.
_MOST_CALLS = 10_000
# The phases for which a window is opened, and the word for the reason.
_OPENED_FOR: dict[Phase, WindowReason] = {"train": "fit", "validation": "validation", "predict": "predict"}
# A retrace opens another window only if the inputs are larger than at the last such window by this factor.
_GROWN = 1.25
# The number of steps of a window at whose beginning the variables are written, which takes up to 0.1 ms per variable. In a graph of
# Keras the names of the ops say which variable is assigned. An eager step, or a graph of the program itself, may give each
# variable a new value in a block that another op requested: then more steps are needed.
_LISTED_STEPS = 2
_LISTED_OWN_STEPS = 8
# The same for PyTorch, which gives every step's gradients other blocks.
_LISTED_UPDATES = 16
# Variables of the program itself count only from this size on.
_WORTH_LISTING = 1 << 10
_MOST_EACH_STEP = 2_000
_MOST_UPDATED = 20_000
# The most inventories of a process; the last one is always taken.
_MOST_INVENTORIES = 64
# At the end of a phase, an inventory is taken only if the bytes in use have changed by more than this.
_CHANGE = 1 << 20


class Steps:
    """The steps of this process."""

    def __init__(self, job: Session, window: Window, options: RunOptions) -> None:
        self.job = job
        self.window = window
        self._resets = options.step_peaks
        self._options = options
        self._trained = 0
        self.variables = Variables()
        self.owners = Owners(self.variables)
        self._taken = 0
        # The window for which the variables were last written, and at how many of its steps.
        self._listed_window = self._listed_steps = 0
        # Whether the program has variables that belong neither to a model nor to an optimizer.
        self._has_own = False
        self._in_use_then: list[int | None] = []
        self._calls: dict[str, int] = {}
        self._number = 0
        self._retraces = 0
        self._phases: set[str] = set()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        # By function: the number of input elements when a window was last opened for a retrace.
        self._largest: dict[str, int] = {}
        self.local = _Local()
        self.rose: Callable[[], None] = lambda: None
        """Called after a step in which the peak has risen, if no window opens for it."""
        self.on_exception: Callable[[BaseException], None] = lambda _: None
        """Called with the exception that ends the program."""

    def begin(self, is_eager: bool = False, lists: bool = True) -> int:
        """Notes that a step begins, and returns the time. An eager step runs its ops one by one, without a graph.

        Args:
            is_eager: Whether the step is eager.
            lists: Whether to write the variables, if the window is open.
        """
        if self.window.is_open:
            if lists:
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
        """Writes a step that ends now, and opens or closes the trace window if needed."""
        self.owners.is_in_step = False
        if step is None:
            step = self._number
            self._number += 1
        has_risen = self.job.step(label, phase, how, step, batches, epoch, begin)
        if self.window.is_open:
            self._counted_for_window(phase)
        elif has_risen:
            if not self.window.reopen("rise") and not self.window.wanted:
                self.rose()
        elif self.window.wanted:
            self.window.reopen()
        if phase == "train":
            self._trained += 1
            if self._is_last:
                self._stop()

    @property
    def _is_last(self) -> bool:
        """Whether the training step that has just ended is the last one of a probe."""
        most = self._options.stop_after
        return self._trained >= most if most is not None else self._options.stops_with_trace and self.window.is_over

    def _stop(self) -> None:
        """Ends a probe at once. The rest of the program must not run: it might save a model that is not trained."""
        self.finish("the probe is complete")
        self.job.mark("end", "stopped", read=counters.read_all())
        self.job.close()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(0)

    def end_own_update(self) -> None:
        """Ends a step of an eager loop that updates its variables without an optimizer: at the next tape, or at the end of the program."""
        local = self.local
        if local.boundary is not None and local.has_own_update:
            begin, local.boundary, local.has_own_update = local.boundary, None, False
            self.end("train", "inferred", begin)

    def call(self, name: str, trains: bool, begin: int) -> None:
        """Writes a call of a compiled function that is not a whole training step."""
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
        """Notes that a fit, an evaluation or a prediction begins. Traces it if this process has not done it before."""
        is_new = phase not in self._phases
        self._phases.add(phase)
        # Training another model is traced again. For evaluations and predictions the first is enough: a later one that needs more
        # memory raises the peak, which opens a window too.
        if phase == "train" and model is not None:
            is_new = model not in self._models
            self._models.add(model)
        reason = _OPENED_FOR.get(phase)
        if is_new and reason is not None and not self.window.is_open:
            self.window.reopen(reason, until=phase)

    def retraced(self, name: str, elements: int | None, before: int | None) -> None:
        """Writes that a compiled function is traced again.

        Args:
            name: The name of the function.
            elements: The number of elements of its inputs now; None if it is not fixed.
            before: The largest number of elements in earlier traces of the function.
        """
        self._retraces += 1
        if self._retraces <= _MOST_CALLS:
            self.job.mark("retrace", name, how="inferred", read=counters.read_all())
        if self.window.is_open or (elements is not None and before is not None and elements <= before):
            return
        # Larger inputs may raise the peak, and the next call is the first with them.
        traced = self._largest.get(name)
        if traced is None or (elements or 0) >= traced * _GROWN:
            self._largest[name] = elements or 0
            self.window.reopen("retrace")

    def span(
        self, kind: MarkKind, label: str | None, phase: Phase, begin: int | None, epoch: int | None, how: How = "keras"
    ) -> None:
        """Writes an epoch or a phase that ends now."""
        read = counters.read_all()
        self.job.mark(kind, label, phase, how, None, None, epoch, begin, read)
        ends_window = kind == "phase" and self.window.ends_with(phase)
        if ends_window or (kind == "phase" and _differ([each.current for each in read], self._in_use_then)):
            self.take_inventory()
        if ends_window:
            self.window.close(f"the {phase} phase ended")

    def list_updated(self) -> None:
        """Writes the variables right after an optimizer of PyTorch has updated them: the gradients still exist, and every step has new ones."""
        if self.window.is_open:
            self._list_for_window(_LISTED_UPDATES)

    def _list_for_window(self, most: int) -> None:
        if self.window.number != self._listed_window:
            self._listed_window, self._listed_steps = self.window.number, 0
        if self._listed_steps < most:
            self._listed_steps += 1
            self.take_inventory()

    @property
    def is_counted(self) -> bool:
        """Whether the variables were written at least once."""
        return self._taken > 0

    def take_inventory(self, is_last: bool = False) -> None:
        """Writes the variables as they are now."""
        if self._taken >= _MOST_INVENTORIES and not is_last:
            return
        self._taken += 1
        self._in_use_then = [each.current for each in counters.read_all()]
        self.job.attempt(self._write_inventory)

    def _write_inventory(self) -> None:
        listed = self.variables.listed()
        if len(listed.rows) > (_MOST_UPDATED if listed.has_gradients else _MOST_EACH_STEP):
            self._listed_steps = max(_LISTED_OWN_STEPS, _LISTED_UPDATES)
        self._has_own = any(row.source and row.bytes >= _WORTH_LISTING for row in listed.rows)
        self.job.inventory(listed.rows)
        self.job.owners(self.owners.rows(listed))

    def finish(self, why: str) -> None:
        """Ends the last step, writes the variables and the trace, and waits for the trace. No window opens afterwards."""
        self.end_own_update()
        if self.window.is_open:
            self.take_inventory(is_last=True)
        self.window.end(why)

    def after_fork(self) -> None:
        """Gives up the trace in a forked child: it belongs to the parent."""
        self.window.abandon()


class _Local(threading.local):
    """What a thread is executing."""

    def __init__(self) -> None:
        # Whether the thread is inside a batch of Keras (a reference to its list of callbacks), a call such as `train_on_batch`, a
        # compiled function, or an update by an optimizer.
        self.batch_of: Callable[[], Any] | None = None
        self.in_single = False
        self.depth = 0
        self.in_update = False
        # What was seen while the outermost compiled function ran.
        self.saw_update = False
        self.saw_gradient = False
        # The trainers of other packages that run, such as Lightning's: they count the steps.
        self.trainers = 0
        # When the current eager step began: at the first tape after the last update.
        self.boundary: int | None = None
        # Whether a trained variable was assigned since then without an optimizer.
        self.has_own_update = False

    @property
    def in_keras(self) -> bool:
        """Whether the thread is inside a batch of Keras."""
        return self.in_single or (self.batch_of is not None and self.batch_of() is not None)


def _differ(now: list[int | None], then: list[int | None]) -> bool:
    """Returns whether the bytes in use of a device have changed by more than `_CHANGE`."""
    return len(now) != len(then) or any(abs((a or 0) - (b or 0)) > _CHANGE for a, b in zip(now, then, strict=True))
