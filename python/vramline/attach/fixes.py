"""Applies the fixes of `vramline verify --fix` to a job without changing its code.

Only defaults are changed: a dtype policy, an accumulation or a compilation that the program chose itself stays. These are the only
hooks that change what a job does, and they are installed only if the user requested them.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

_POLICY = "mixed_bfloat16"


def requested() -> dict[str, str]:
    """Returns the requested fixes by name, each with its number, or an empty text if it has none."""
    told = os.environ.get("VRAMLINE_FIX", "")
    return dict(part.partition("=")[::2] for part in told.split(",") if part)


def hook(keras: ModuleType) -> list[str]:
    """Applies the fixes to a Keras that has just been imported. Returns what was applied."""
    wanted = requested()
    done = []
    if "mixed-precision" in wanted:
        keras.mixed_precision.set_global_policy(_POLICY)
        done.append(f"mixed-precision: {_POLICY}")
    if "accumulate" in wanted:
        times = int(wanted["accumulate"])
        _default(_optimizer(keras), "__init__", "gradient_accumulation_steps", times)
        done.append(f"accumulate: {times}")
    if "compile" in wanted:
        _default(keras.Model, "compile", "jit_compile", True)
        done.append("compile: jit_compile")
    return done


def _optimizer(keras: ModuleType) -> type:
    """Returns the base class whose `__init__` every optimizer calls."""
    optimizer = keras.optimizers.Optimizer
    owners = [owner for owner in optimizer.__mro__ if "__init__" in owner.__dict__ and "Optimizer" in owner.__name__]
    return next((owner for owner in owners if owner.__name__ == "BaseOptimizer"), owners[-1])


def _default(owner: type, method: str, argument: str, value: Any) -> None:
    """Changes the default of an argument: the value is used if the caller did not pass one."""
    call = getattr(owner, method)

    @functools.wraps(call)
    def with_default(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get(argument) in (None, "auto"):
            kwargs[argument] = value
        return call(self, *args, **kwargs)

    setattr(owner, method, with_default)
