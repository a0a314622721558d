"""Hooks on trainers of PyTorch, which count the steps themselves: Hugging Face's `Trainer`, Lightning, and `generate`.

The hooks wrap functions that these packages call at each event anyway. They add no callback, so a script finds only its own.
A step is what the trainer counts as one: with gradient accumulation, several batches; and also a step whose update a gradient scaler
skipped. Evaluation and generation are phases of their own.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from vramline.attach import imports
from vramline.attach.quiet import quietly
from vramline.attach.steps import Steps
from vramline.words import How, Phase

_HOW: How = "trainer"
_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
# Lightning's name of a stage, in the names of its events.
_STAGES: dict[str, Phase] = {"validation": "validation", "test": "validation", "predict": "predict"}


def hook(steps: Steps) -> None:
    """Installs the hooks when the packages are imported."""
    trainers = _Trainers(steps)
    imports.after("transformers.trainer", trainers.hook_transformers)
    imports.after("transformers.trainer_callback", trainers.hook_events)
    imports.after("transformers.generation.utils", trainers.hook_generate)
    for package in _LIGHTNING:
        imports.after(f"{package}.trainer.call", trainers.hook_lightning)


class _Local(threading.local):
    """What a thread's trainer is doing."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        # When the current step, the current step of an evaluation and the current epoch began.
        self.begin: int | None = None
        self.begin_other: int | None = None
        self.begin_epoch: int | None = None
        self.batches = 0
        self.others = 0
        # Of Lightning: when the fit and the stage began, the steps so far, and its count of updates after the last of them.
        self.begin_fit: int | None = None
        self.begin_stage: int | None = None
        self.steps = 0
        self.updates = 0


class _Trainers:
    """The steps and phases that trainers report."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._local = _Local()

    # --- What all share ---

    @contextmanager
    def _phase(self, phase: Phase, label: str) -> Iterator[None]:
        """A phase, from the call of a trainer's method until it returns or raises. One inside another of its kind is a part of that."""
        local = self._local
        if local.phases and (local.phases[-1] != "train" or phase == "train"):
            yield
            return
        begin = time.monotonic_ns()
        if phase == "train":
            local.begin, local.batches = None, 0
        else:
            local.begin_other, local.others = begin, 0
        local.phases.append(phase)
        self._steps.local.trainers += 1
        try:
            yield
        finally:
            self._steps.local.trainers -= 1
            local.phases.pop()
            quietly(self._steps.span)("phase", label, phase, begin, None, _HOW)

    def _step_begins(self) -> None:
        if self._local.begin is None:
            self._local.begin = self._steps.begin(lists=False)

    def _step_ends(self, number: int, epoch: int | None) -> None:
        local = self._local
        begin, local.begin = local.begin, None
        batches, local.batches = local.batches + 1, 0
        self._steps.end("train", _HOW, begin, number, batches, epoch)

    def _other_ends(self, phase: Phase) -> None:
        local = self._local
        self._steps.end(phase, _HOW, local.begin_other, local.others)
        local.begin_other = time.monotonic_ns()
        local.others += 1

    def _wrap_phase(self, owner: type, name: str, phase: Phase) -> None:
        method = owner.__dict__.get(name)
        if method is None:
            return

        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._phase(phase, name):
                return method(*args, **kwargs)

        setattr(owner, name, wrapped)

    # --- transformers ---

    def hook_transformers(self, module: ModuleType) -> None:
        """Hooks on Hugging Face's `Trainer`."""
        phases: dict[str, Phase] = {"train": "train", "evaluate": "validation", "predict": "predict"}
        for name, phase in phases.items():
            self._wrap_phase(module.Trainer, name, phase)

    def hook_generate(self, module: ModuleType) -> None:
        """Hooks on text generation."""
        self._wrap_phase(module.GenerationMixin, "generate", "predict")

    def hook_events(self, module: ModuleType) -> None:
        """Hooks on the events of Hugging Face's `Trainer`."""
        handler = module.CallbackHandler
        _before(handler, "on_step_begin", lambda _: self._step_begins())
        _before(handler, "on_substep_end", lambda _: self._substep_ended())
        _before(handler, "on_step_end", lambda state: self._step_ends(state.global_step - 1, _epoch(state)))
        _before(handler, "on_epoch_begin", lambda _: self._epoch_began())
        _before(handler, "on_epoch_end", lambda state: self._epoch_ended(_epoch(state)))
        _before(handler, "on_prediction_step", lambda _: self._predicted())

    def _substep_ended(self) -> None:
        self._local.batches += 1

    def _epoch_began(self) -> None:
        self._local.begin_epoch = time.monotonic_ns()

    def _epoch_ended(self, epoch: int | None) -> None:
        self._steps.span("epoch", None, "train", self._local.begin_epoch, epoch, _HOW)

    def _predicted(self) -> None:
        if self._local.phases and self._local.phases[-1] != "train":
            self._other_ends(self._local.phases[-1])

    # --- Lightning ---

    def hook_lightning(self, module: ModuleType) -> None:
        """Hooks on the events of Lightning's `Trainer`."""
        tell, run = module._call_callback_hooks, module._call_and_handle_interrupt

        @functools.wraps(tell)
        def told(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
            quietly(self._lightning)(trainer, hook_name)
            return tell(trainer, hook_name, *args, **kwargs)

        @functools.wraps(run)
        def ran(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            # Whatever ends it, the steps are no longer the trainer's afterwards.
            self._steps.local.trainers += 1
            try:
                return run(trainer, *args, **kwargs)
            finally:
                self._steps.local.trainers -= 1
                self._local.phases.clear()

        module._call_callback_hooks = told  # type: ignore[attr-defined]
        module._call_and_handle_interrupt = ran  # type: ignore[attr-defined]

    def _lightning(self, trainer: Any, event: str) -> None:
        local = self._local
        if event == "on_train_start":
            local.phases.append("train")
            local.begin_fit = time.monotonic_ns()
            local.begin, local.batches, local.steps, local.updates = None, 0, 0, trainer.global_step
        elif event == "on_train_end":
            local.phases.clear()
            self._steps.span("phase", "fit", "train", local.begin_fit, None, _HOW)
        elif event == "on_train_batch_start":
            self._step_begins()
        elif event == "on_train_batch_end":
            # With accumulated gradients, or no optimizer that steps, a batch ends without an update.
            if trainer.global_step == local.updates:
                local.batches += 1
                return
            local.updates = trainer.global_step
            number, local.steps = local.steps, local.steps + 1
            self._step_ends(number, trainer.current_epoch)
        elif event == "on_train_epoch_start":
            self._epoch_began()
        elif event == "on_train_epoch_end":
            if local.begin_epoch is not None:
                self._epoch_ended(trainer.current_epoch)
            # Lightning reports it twice.
            local.begin_epoch = None
        else:
            self._lightning_stage(event)

    def _lightning_stage(self, event: str) -> None:
        """An event of an evaluation or a prediction."""
        local = self._local
        stage, _, what = event.removeprefix("on_").partition("_")
        phase = _STAGES.get(stage)
        if phase is None:
            return
        if what == "start":
            local.phases.append(phase)
            local.begin_stage = local.begin_other = time.monotonic_ns()
            local.others = 0
        elif what == "batch_start":
            local.begin_other = time.monotonic_ns()
        elif what == "batch_end":
            self._other_ends(phase)
        elif what == "end":
            if local.phases and local.phases[-1] == phase:
                local.phases.pop()
            self._steps.span("phase", "validate" if stage == "validation" else stage, phase, local.begin_stage, None, _HOW)


def _before(handler: type, name: str, call: Callable[[Any], None]) -> None:
    """Calls a function with the trainer's state before an event is passed on."""
    method = handler.__dict__.get(name)
    if method is None:
        return

    @functools.wraps(method)
    def heard(self: Any, args: Any, state: Any, *rest: Any, **kwargs: Any) -> Any:
        quietly(call)(state)
        return method(self, args, state, *rest, **kwargs)

    setattr(handler, name, heard)


def _epoch(state: Any) -> int | None:
    """Returns the number of the epoch that a step has just ended in: `state.epoch` is a fraction, and whole at its end."""
    epoch = getattr(state, "epoch", None)
    return max(math.ceil(epoch - 1e-6) - 1, 0) if isinstance(epoch, (int, float)) else None
