"""Vramline: what holds a GPU's memory while a model trains.

    import vramline

    info = vramline.memory_info("GPU:0")          # .current .peak .limit ..., None where unknown
    with vramline.record("run.vram") as rec:      # any loop, any framework
        for step, batch in enumerate(data):
            with rec.step(step):
                ...

No framework is imported by importing this package, and none is set to work by asking it: figures are there once the program
itself has used a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from vramline._vramline import __version__
from vramline.comparison import Comparison, compare
from vramline.info import Device, MemoryInfo, devices, memory_info, reset_peak
from vramline.ledger import Ledger
from vramline.load import Columns, Run, load
from vramline.recorder import Recording, record
from vramline.watching import Watch, watch

if TYPE_CHECKING:
    from vramline import keras

__all__ = [
    "Columns",
    "Comparison",
    "Device",
    "Ledger",
    "MemoryInfo",
    "Recording",
    "Run",
    "Watch",
    "__version__",
    "compare",
    "devices",
    "keras",
    "load",
    "memory_info",
    "record",
    "reset_peak",
    "watch",
]


def __getattr__(name: str) -> object:
    # Keras is imported by whoever asks for its callback, not by us.
    if name == "keras":
        return importlib.import_module("vramline.keras")
    raise AttributeError(f"module 'vramline' has no attribute '{name}'")
