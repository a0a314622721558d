"""Hooks on PyTorch: steps, the trace, and the memory limit.

A step ends with an optimizer's update, unless a trainer counts the steps. When PyTorch initialises CUDA, the limit is set and the trace
begins. The trace is the memory history of PyTorch's allocator, saved as a snapshot. It is complete only during the steps of the window, and
the hooks on modules exist only then. `history` says what goes on afterwards.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach import ending, imports
from vramline.attach.history import History
from vramline.attach.modules import ModuleHooks
from vramline.attach.quiet import quietly
from vramline.attach.requests import Requests
from vramline.attach.settings import RunOptions
from vramline.attach.steps import Steps
from vramline.frameworks import inventory
from vramline.frameworks.module_names import ModuleNames


def hook(torch: ModuleType, steps: Steps, options: RunOptions, requests: Requests) -> None:
    """Installs the hooks on a PyTorch that has just been imported."""
    if options.limit is not None:
        limit = options.limit
        torch.cuda._lazy_call(lambda: _set_limit(torch, limit, steps))
    names = ModuleNames()
    steps.variables.has_rest(functools.partial(inventory.of_modules, names))
    rows_of = functools.partial(inventory.of_torch, names=names)
    modules = _module_hooks(torch, names, steps)
    # The history begins after the limit is set, and before the program's first allocation.
    history: History | None = None
    try:
        history = History(torch, steps, modules, options)
        requests.add("torch", history.asked)
        torch.cuda._lazy_call(quietly(history.begin))
        ending.at_exit_of(steps)
    except AttributeError:  # This version of PyTorch has no history.
        pass
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    # Note an optimizer when it is created: if the job fails in its first step, what it needs at least follows from its parameters.
    make = Optimizer.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        quietly(steps.variables.has_other)(self, rows_of)

    Optimizer.__init__ = init
    updates = _Updates(steps)

    @quietly
    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if steps.local.in_keras:
            return
        steps.variables.has_other(optimizer, rows_of)
        if modules is not None:
            modules.stepped()
        steps.list_updated()
        if not steps.window.is_open and not steps.is_counted:
            steps.take_inventory()
        updates.made(optimizer)
        if history is not None:
            history.stepped()

    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or bool

    # The compiler looks into this function if the program compiles its optimizer. It knows the answer to the question, so that nothing of
    # us is compiled. Such updates are not seen.
    def updated(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            stepped(optimizer, args, kwargs)

    register_optimizer_step_post_hook(updated)
    _hook_scaler(updates)


def _module_hooks(torch: ModuleType, names: ModuleNames, steps: Steps) -> ModuleHooks | None:
    """Returns the hooks on modules, which are not installed yet; None if this version of PyTorch has no place for them."""

    def note(found: list[tuple[str, str | None, Any]]) -> None:
        now = time.monotonic_ns()
        rows = []
        for name, root, tensor in found:
            row = inventory.of_input(name, tensor)
            if row.device != "CPU:0" and row.address:
                rows.append(("value", "", now, root, None, (name, None), "inputs", None, None, None, row.address, None))
        steps.job.owners(rows)

    def note_spans(found: list[tuple[int, int, str]]) -> None:
        rows = []
        for begin, end, text in found:
            _, part, root, path = text.split(":", 3)
            rows.append(("module", part, end, root or None, path, None, "unknown", None, begin, end, None, None))
        steps.job.owners(rows)

    try:
        hooks = ModuleHooks(torch, names, note, note_spans)
    except (AttributeError, KeyError):
        return None
    imports.after("torch._dynamo.eval_frame", hooks.watch_compiled)
    os.register_at_fork(after_in_child=quietly(hooks.abandon))
    return hooks


def _hook_scaler(updates: _Updates) -> None:
    """Wraps the step of a gradient scaler: if gradients overflow, it skips the optimizer's update, and the step counts nevertheless."""
    module = sys.modules.get("torch.amp.grad_scaler") or sys.modules.get("torch.cuda.amp.grad_scaler")
    scaler = getattr(module, "GradScaler", None)
    if scaler is None:
        return
    step = scaler.step

    @functools.wraps(step)
    def scaled(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = updates.count
        result = step(self, optimizer, *args, **kwargs)
        if updates.count == before:
            quietly(updates.made)(optimizer)
        return result

    scaler.step = scaled


class _Updates:
    """The updates by optimizers. If a program has several, the updates of one of them are its steps."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._lead: Callable[[], Any] | None = None
        # The optimizer that has updated its parameters since the lead's last update.
        self._other: Callable[[], Any] | None = None
        self.count = 0

    def made(self, optimizer: Any) -> None:
        """Notes an update. It ends a step, unless a trainer counts the steps."""
        self.count += 1
        for _ in range(0 if self._steps.local.trainers else self._steps_of(optimizer)):
            self._end()

    def _steps_of(self, optimizer: Any) -> int:
        lead = self._lead() if self._lead is not None else None
        other = self._other() if self._other is not None else None
        if lead is not None and optimizer is not lead and optimizer is not other:
            # In a step of two networks, such as a GAN, each has an optimizer.
            self._other = _reference(optimizer)
            return 0
        # Twice without the lead: a training of its own, and its first update was a step too.
        is_new = lead is not None and optimizer is other
        self._lead, self._other = _reference(optimizer), None
        return 2 if is_new else 1

    def _end(self) -> None:
        steps = self._steps
        steps.end("train", "inferred", steps.local.boundary)
        # Only the end of a step is visible: the next step begins there.
        steps.local.boundary = steps.begin(lists=False)


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _set_limit(torch: ModuleType, limit: int, steps: Steps) -> None:
    for number in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(number).total_memory
        if limit < total:
            torch.cuda.set_per_process_memory_fraction(limit / total, number)
            steps.job.mark("setting", f"limit of GPU:{number}: {limit} of {total} bytes")
