"""What Keras users call: a callback that measures memory, training inside a limit, and a model's layers in bytes.

    from vramline.keras import MemoryCallback

    model.fit(x, y, callbacks=[MemoryCallback()])
    vramline.keras.fit_within(model, x, y, batch_size=256, limit="8GiB")
    vramline.keras.summary(model, batch_size=64)

The callback works with Keras 3 on any backend, Keras 2 and tf_keras; the others need Keras 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramline.callback import MemoryCallback

if TYPE_CHECKING:
    from vramline.summary import summary
    from vramline.within import fit_within

__all__ = ["MemoryCallback", "fit_within", "summary"]


def __getattr__(name: str) -> object:
    # Loaded by whoever asks for it.
    if name == "fit_within":
        from vramline import within

        return within.fit_within
    if name == "summary":
        from vramline import summary as module

        return module.summary
    raise AttributeError(f"module 'vramline.keras' has no attribute '{name}'")
