"""Vramline shows what holds a GPU's memory while a model trains.

Read the memory of a device now:

    import vramline

    info = vramline.memory_info("GPU:0")
    info.current, info.peak, info.limit           # bytes; None if unknown
    info.why("limit")                             # the reason for a None

Measure a block of code:

    with vramline.watch("delete x") as w:
        del x
    print(w)

Record a training loop of any framework, and read the recording later:

    with vramline.record("run.vram") as rec:
        for step, batch in enumerate(data):
            with rec.step(step):
                ...
    run = vramline.load("run.vram")
    run.plot()
    vramline.compare(["before.vram", "after.vram"]).plot()

Measure a Keras model, or train it within a memory limit:

    model.fit(x, y, callbacks=[vramline.keras.MemoryCallback()])
    vramline.keras.fit_within(model, x, y, batch_size=256, limit="8GiB")

Measure a training of Hugging Face's or Lightning's `Trainer`, and attach the report to its run in MLflow or Weights & Biases:

    trainer = Trainer(..., callbacks=[vramline.huggingface.MemoryCallback(record="run.vram")])
    trainer.train()
    vramline.log_report()

Ask across many jobs, with DuckDB or Spark:

    vramline.ask("waste", dataset="fleet").df()
    vramline.sql("SELECT script, max(peak_bytes) FROM jobs GROUP BY script", dataset="fleet")

Vramline works with TensorFlow, PyTorch, JAX and Keras. Importing it imports none of them and initialises no device.
A framework's numbers are available after the program itself has used a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from vramline._vramline import __version__
from vramline.fleet import ask, questions, sql
from vramline.reading.comparison import Comparison, compare
from vramline.reading.info import Device, MemoryInfo, devices, memory_info, reset_peak
from vramline.reading.ledger import Ledger
from vramline.reading.load import Columns, Run, load
from vramline.reading.watching import Watch, watch
from vramline.recording.recorder import Recording, record
from vramline.tracking import log_report

if TYPE_CHECKING:
    from vramline import huggingface, keras, lightning, spark

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
    "ask",
    "compare",
    "devices",
    "huggingface",
    "keras",
    "lightning",
    "load",
    "log_report",
    "memory_info",
    "questions",
    "record",
    "reset_peak",
    "spark",
    "sql",
    "watch",
]


def __getattr__(name: str) -> object:
    # They import their packages, or few programs need them, so they are loaded on first use only.
    if name in ("huggingface", "keras", "lightning", "spark"):
        return importlib.import_module(f"vramline.{name}")
    raise AttributeError(f"module 'vramline' has no attribute '{name}'")


def load_ipython_extension(shell: object) -> None:
    """Adds `%%vramline` and `%vramline` to a notebook: `%load_ext vramline`."""
    importlib.import_module("vramline.notebooks.magics").load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Undoes `load_ipython_extension`: `%unload_ext vramline`."""
    importlib.import_module("vramline.notebooks.magics").unload(shell)
