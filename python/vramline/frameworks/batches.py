"""Translates what Keras passes to its callbacks: loops to phases, and executions to batch numbers."""

from __future__ import annotations

from typing import Any

from vramline.words import Phase

# The loops of Keras, and their phases in recordings.
PHASES: dict[str, Phase] = {"train": "train", "test": "validation", "predict": "predict"}


def last_of(batch: Any, kind: str, callbacks: Any, in_fit: bool) -> int:
    """Returns the number of the last batch of an execution.

    With `steps_per_execution`, Keras 3 counts the last execution of an epoch as a full one, even if fewer batches were left.

    Args:
        batch: The batch number that Keras passes to its callbacks at the end of the execution.
        kind: "train", "test" or "predict".
        callbacks: The callback, or the list of callbacks. It has the parameters of the run.
        in_fit: Whether a fit is running: its parameters are those of the training, not of the validation.
    """
    if kind == "test" and in_fit:
        model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        steps = getattr(getattr(model, "_eval_epoch_iterator", None), "num_batches", None)
    else:
        steps = (getattr(callbacks, "params", None) or {}).get("steps")
    last = int(batch)
    return min(last, steps - 1) if isinstance(steps, int) and steps > 0 else last
