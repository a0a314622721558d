"""Fixes that are tried on a job without a change to its code: what `vramline verify --fix` asks for.

Only what the program left at its default is changed; a policy, an accumulation or a compilation that it chose itself stays. These are
the only hooks that change what a job does, and they are put on only where the user asked for that.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

_POLICY = "mixed_bfloat16"


def asked() -> dict[str, str]:
    """The fixes by name, each with its number where it has one."""
    told = os.environ.get("VRAMLINE_FIX", "")
    return dict(part.partition("=")[::2] for part in told.split(",") if part)


def hook(keras: ModuleType) -> list[str]:
    """Puts them on a Keras that has just been imported; says which."""
    wanted = asked()
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
    """The class that every optimizer's `__init__` ends in."""
    optimizer = keras.optimizers.Optimizer
    owners = [owner for owner in optimizer.__mro__ if "__init__" in owner.__dict__ and "Optimizer" in owner.__name__]
    return next((owner for owner in owners if owner.__name__ == "BaseOptimizer"), owners[-1])


def _default(owner: type, method: str, argument: str, value: Any) -> None:
    """Gives an argument that the caller left out another value."""
    call = getattr(owner, method)

    @functools.wraps(call)
    def with_default(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get(argument) in (None, "auto"):
            kwargs[argument] = value
        return call(self, *args, **kwargs)

    setattr(owner, method, with_default)
