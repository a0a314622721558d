"""Tools for Keras: a callback that measures memory, training within a memory limit, and a model summary in bytes.

    from vramline.keras import MemoryCallback, fit_within, summary

    model.fit(x, y, callbacks=[MemoryCallback()])
    fit_within(model, x, y, batch_size=256, limit="8GiB")
    summary(model, batch_size=64)

`MemoryCallback` works with Keras 3 on any backend, Keras 2 and tf_keras. `summary` needs Keras 3. `fit_within` needs Keras 3
on the TensorFlow backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramline.callbacks.keras import MemoryCallback

if TYPE_CHECKING:
    from vramline.planning.summary import summary
    from vramline.planning.within import fit_within

__all__ = ["MemoryCallback", "fit_within", "summary"]


def __getattr__(name: str) -> object:
    # Loaded on first use: the callback needs neither of these modules.
    if name == "fit_within":
        from vramline.planning import within

        return within.fit_within
    if name == "summary":
        from vramline.planning import summary as module

        return module.summary
    raise AttributeError(f"module 'vramline.keras' has no attribute '{name}'")
