"""Hooks on Keras, of every version and backend: they find steps, epochs and phases.

The hooks wrap the methods of `CallbackList`. They add no callback, so Keras works as before and a script finds only its own callbacks in
the list.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach.quiet import quietly
from vramline.attach.steps import Steps
from vramline.frameworks import batches

_LABELS = {"train": "fit", "test": "evaluate", "predict": "predict"}


class _State:
    """The progress of a fit, evaluation or prediction."""

    def __init__(self) -> None:
        self.begin: dict[str, int | None] = {}
        self.first_batch = 0
        self.epoch: int | None = None


def _state(callbacks: Any) -> _State:
    state = callbacks.__dict__.get("_vramline_state")
    if state is None:
        state = callbacks.__dict__["_vramline_state"] = _State()
    return state


def hook(keras: ModuleType, steps: Steps) -> None:
    """Installs the hooks on a Keras that has just been imported."""
    lists = _callback_list(keras)
    for kind in batches.PHASES:
        _hear(lists, f"on_{kind}_begin", before=_phase_begins(kind, steps))
        _hear(lists, f"on_{kind}_end", after=_phase_ends(kind, steps))
        _hear(lists, f"on_{kind}_batch_begin", after=_batch_begins(kind, steps))
        _hear(lists, f"on_{kind}_batch_end", before=_batch_ends(kind, steps))
    _hear(lists, "on_epoch_begin", before=_epoch_begins)
    _hear(lists, "on_epoch_end", before=_epoch_ends(steps))
    model = keras.Model
    for kind in batches.PHASES:
        _wrap_single(model, f"{kind}_on_batch", kind, steps)
    _hook_optimizers(keras, steps)
    steps.owners.hook_keras(keras)


def _callback_list(keras: ModuleType) -> type:
    found = getattr(getattr(keras, "callbacks", None), "CallbackList", None)
    # Right after the import, the public name may not exist yet: use the module that defines the class.
    if found is None:
        found = sys.modules[f"{keras.__name__}.src.callbacks"].CallbackList
    return found


def _hear(lists: type, name: str, before: Any = None, after: Any = None) -> None:
    method = lists.__dict__.get(name)
    if method is None:
        return

    @functools.wraps(method)
    def heard(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else None
        if before is not None:
            before(self, first)
        result = method(self, *args, **kwargs)
        if after is not None:
            after(self, first)
        return result

    setattr(lists, name, heard)


def _phase_begins(kind: str, steps: Steps) -> Callable[..., None]:
    @quietly
    def begins(callbacks: Any, _: Any) -> None:
        _state(callbacks).begin[kind] = time.monotonic_ns()
        steps.local.batch_of = None
        model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        if model is not None:
            steps.variables.has_model(model)
        steps.begins(batches.PHASES[kind], model)

    return begins


def _phase_ends(kind: str, steps: Steps) -> Callable[..., None]:
    @quietly
    def ends(callbacks: Any, _: Any) -> None:
        state = _state(callbacks)
        steps.local.batch_of = None
        epoch = state.epoch if kind == "test" else None
        steps.span("phase", _LABELS[kind], batches.PHASES[kind], state.begin.pop(kind, None), epoch)

    return ends


@quietly
def _epoch_begins(callbacks: Any, epoch: Any) -> None:
    state = _state(callbacks)
    state.epoch, state.begin["epoch"] = int(epoch), time.monotonic_ns()


def _epoch_ends(steps: Steps) -> Callable[..., None]:
    @quietly
    def ends(callbacks: Any, epoch: Any) -> None:
        # With data of unknown length, the last batch of an epoch begins, but does not end.
        steps.local.batch_of = None
        steps.span("epoch", None, "train", _state(callbacks).begin.get("epoch"), int(epoch))

    return ends


def _batch_begins(kind: str, steps: Steps) -> Callable[..., None]:
    @quietly
    def begins(callbacks: Any, batch: Any) -> None:
        state = _state(callbacks)
        state.first_batch = int(batch)
        # Keras does not call a hook if an exception ends the batch. The list of callbacks is freed then, and the reference with it.
        steps.local.batch_of = weakref.ref(callbacks)
        state.begin["batch"] = steps.begin(steps.window.is_open and _is_eager_model(callbacks))

    return begins


def _is_eager_model(callbacks: Any) -> bool:
    model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
    return bool(getattr(model, "run_eagerly", False))


def _batch_ends(kind: str, steps: Steps) -> Callable[..., None]:
    phase = batches.PHASES[kind]

    @quietly
    def ends(callbacks: Any, batch: Any) -> None:
        state = _state(callbacks)
        steps.local.batch_of = None
        # With several batches per execution, Keras passes the number of the first, then of the last.
        last = max(batches.last_of(batch, kind, callbacks, "train" in state.begin), state.first_batch)
        epoch = None if kind == "predict" else state.epoch
        steps.end(phase, "keras", state.begin.get("batch"), last, last - state.first_batch + 1, epoch)

    return ends


def _wrap_single(model: type, name: str, kind: str, steps: Steps) -> None:
    """Wraps `train_on_batch` and similar methods, which call no callbacks."""
    owner = next((base for base in model.__mro__ if name in base.__dict__), None)
    if owner is None:
        return
    method = owner.__dict__[name]
    if getattr(method, "_vramline", False):
        return
    counts = {"step": 0}

    @functools.wraps(method)
    def on_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if steps.local.in_keras:
            return method(self, *args, **kwargs)
        steps.variables.has_model(self)
        steps.local.in_single = True
        begin = steps.begin()
        try:
            return method(self, *args, **kwargs)
        finally:
            steps.local.in_single = False
            steps.end(batches.PHASES[kind], "keras", begin, counts["step"])
            counts["step"] += 1

    on_batch._vramline = True  # type: ignore[attr-defined]
    setattr(owner, name, on_batch)


def _hook_optimizers(keras: ModuleType, steps: Steps) -> None:
    """Wraps the updates of optimizers: outside of fit, they are the steps of custom loops."""
    optimizer = keras.optimizers.Optimizer
    # In Keras 3 every update calls `apply`; Keras 2 has only `apply_gradients`.
    name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
    wrapped = set()
    candidates = [optimizer]
    legacy = getattr(getattr(keras.optimizers, "legacy", None), "Optimizer", None)
    if isinstance(legacy, type):
        candidates.append(legacy)
    for candidate in candidates:
        owners = [base for base in candidate.__mro__ if name in base.__dict__]
        for owner in [*owners, *(sub for sub in _subclasses(candidate) if name in sub.__dict__)]:
            if owner not in wrapped:
                wrapped.add(owner)
                _wrap_update(owner, name, steps)


def _subclasses(kind: type) -> list[type]:
    found: list[type] = []
    sub: type
    for sub in kind.__subclasses__():
        found += [sub, *_subclasses(sub)]
    return found


def _wrap_update(owner: type, name: str, steps: Steps) -> None:
    method = owner.__dict__[name]

    @functools.wraps(method)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        local = steps.local
        # An optimizer may call another one, and an update inside fit belongs to its batch.
        if local.in_update or local.in_keras:
            steps.variables.has_optimizer(self, ())
            return method(self, *args, **kwargs)
        local.in_update = True
        told: list[Any] = []
        if name == "apply_gradients" and args:
            # Pairs of gradient and variable, often in an iterator that can be read only once. Keras 2 has the variables nowhere else.
            pairs = list(args[0])
            args, told = (pairs, *args[1:]), [pair[1] for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
        entered = time.monotonic_ns()
        try:
            return method(self, *args, **kwargs)
        finally:
            local.in_update = False
            steps.variables.has_optimizer(self, told)
            if local.depth:
                local.saw_update = True
            elif _is_eager():
                begin, local.boundary, local.has_own_update = local.boundary or entered, None, False
                steps.end("train", "inferred", begin)

    # Tells TensorFlow's AutoGraph not to convert this function.
    update.autograph_info__ = {}  # type: ignore[attr-defined]
    setattr(owner, name, update)


def _is_eager() -> bool:
    context = sys.modules.get("tensorflow.python.eager.context")
    return context is None or bool(context.executing_eagerly())
