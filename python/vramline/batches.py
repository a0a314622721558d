"""What Keras tells its callbacks, as recordings have it: the phase, and which batches one execution ran."""

from __future__ import annotations

from typing import Any

from vramline.words import Phase

# What Keras calls its loops, and what they are called in recordings.
PHASES: dict[str, Phase] = {"train": "train", "test": "validation", "predict": "predict"}


def last_of(batch: Any, kind: str, callbacks: Any, in_fit: bool) -> int:
    """The number of the last batch that was run, of what Keras tells its callbacks at the end of an execution.

    With `steps_per_execution` Keras 3 counts the last execution of an epoch as a full one even where fewer batches were left.

    Args:
        batch: The number that Keras told.
        kind: train, test or predict.
        callbacks: The callback, or the list of them: it has the parameters of the run.
        in_fit: Whether a fit is going on: then the parameters are the training's, not the validation's.
    """
    if kind == "test" and in_fit:
        model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        steps = getattr(getattr(model, "_eval_epoch_iterator", None), "num_batches", None)
    else:
        steps = (getattr(callbacks, "params", None) or {}).get("steps")
    last = int(batch)
    return min(last, steps - 1) if isinstance(steps, int) and steps > 0 else last
