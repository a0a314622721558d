"""`vramline.keras.MemoryCallback`: a Keras callback that measures memory.

It works with Keras 3 on any backend, Keras 2 and tf_keras. It moves itself to the front of the list of callbacks, so that every other
callback finds its values in `logs`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from typing import Any, Literal

from vramline.callbacks import measuring
from vramline.frameworks import batches as executions
from vramline.frameworks import inventory
from vramline.recording import recorder

_UNITS = {"gib": 1 << 30, "mib": 1 << 20}
_LABELS = {"train": "Training", "test": "Validation", "predict": "Prediction"}


def _base() -> type:
    """Returns the `Callback` class of the Keras that the program uses."""
    for name in ("keras", "tf_keras"):
        callbacks = getattr(sys.modules.get(name), "callbacks", None)
        if callbacks is not None:
            return callbacks.Callback
    import keras

    return keras.callbacks.Callback


class MemoryCallback(measuring.Measurements, _base()):  # type: ignore[misc]  # Its base is known only when the program runs.
    """A Keras callback that measures memory during `fit`, `evaluate` and `predict`.

        memory = MemoryCallback(batches=[0, 10], print_stats=True)
        model.fit(x, y, callbacks=[memory, CSVLogger("log.csv")])
        memory.plot()

    Every epoch, validation, prediction and selected batch has its own peak: the callback resets the framework's peak when one
    of them begins, and the peak of an epoch is the highest of its parts. JAX cannot reset its peak: there a peak is known only if it
    is the highest so far, and None otherwise.

    Args:
        batches: The batches to measure: "all", a collection of batch numbers (counted from 0 in every epoch), or None for none.
        record: A folder to record to, such as "run.vram". None does not record.
        print_stats: Print one line per measurement.
        devices: The devices to measure, such as "GPU:0" or ["GPU:0", "GPU:1"]. By default, all devices in use.
        logs: Add `vram_peak_gib`, `vram_current_gib`, and `val_vram_peak_gib` after validation to the logs of Keras, and the same in
            MiB (`..._mib`). The progress bar, History, CSVLogger and TensorBoard then show them. They are of the first device; for
            other devices the name is appended, as in `vram_peak_gib_gpu1`.

    Attributes:
        history: A list of measurements. Each is a dict with label, phase, epoch, batch, device, current_bytes, peak_bytes,
            reserved_bytes and time (seconds since 1970). A size is None if it is unknown.
        labels: The labels of the first device's measurements.
        memory_usage: The peaks of the first device's measurements in GiB; None where a peak is unknown.
        path: The folder of the recording, or None.
    """

    def __init__(
        self,
        batches: Literal["all"] | Collection[int] | None = None,
        record: str | os.PathLike[str] | None = None,
        print_stats: bool = False,
        devices: str | Collection[str] | None = None,
        logs: bool = True,
    ) -> None:
        self.batches = measuring.numbers("batches", "batch", batches)
        super().__init__(print_stats, devices, logs)
        self._recording = None if record is None else recorder.record(record, step_peaks=False)
        self._first_batch = 0
        self._in_fit = False
        self._is_counted = False
        self._validation: dict[str, int | None] = {}

    def _tell(self, logs: dict[str, Any] | None, figures: dict[str, dict[str, Any]]) -> None:
        if logs is not None and self._logs:
            logs.update(self._by_name(figures, ("peak", "current"), _UNITS))

    # Hooks that Keras calls.

    @measuring.OfObject
    def set_params(self, params: dict[str, Any] | None) -> None:
        # Keras calls this first in every fit, evaluation and prediction. An earlier one that an exception ended left units open.
        super().set_params(params)
        self._in_fit, self._epoch = False, None
        self._open.clear()
        self._step_forward(sys._getframe(1).f_locals.get("self"))

    @measuring.OfObject
    def set_model(self, model: Any) -> None:
        super().set_model(model)

    def _step_forward(self, callbacks: Any) -> None:
        """Moves this callback to the front, so that the others find its values in `logs`."""
        listed = getattr(callbacks, "callbacks", None)
        if isinstance(listed, list) and any(each is self for each in listed) and listed[0] is not self:
            # A new list, because Keras is iterating over this one.
            callbacks.callbacks = [self, *(each for each in listed if each is not self)]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._in_fit, self._epoch = True, None
        self._begin("train")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._epoch = None
        self._end("train", "Training", "train", None)
        self._in_fit = False
        self._count()
        if self._recording is not None:
            self._recording.close()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._validation = {}
        self._begin_epoch(int(epoch))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        figures = self._end("epoch", f"Epoch {epoch + 1} end", "train", None)
        self._tell(logs, figures)
        validated = next(iter(self._validation.values()), None)
        if logs is not None and self._logs and validated is not None:
            logs.update({f"val_vram_peak_{unit}": validated / size for unit, size in _UNITS.items()})
        if not self._is_counted:
            self._count()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._begin("test")

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        epoch = "" if self._epoch is None or not self._in_fit else f" of epoch {self._epoch + 1}"
        figures = self._end("test", f"Validation{epoch}", "validation", None)
        self._validation = {device: row["peak_bytes"] for device, row in figures.items()}
        if not self._in_fit:
            self._tell(logs, figures)

    def on_predict_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._begin("predict")

    def on_predict_end(self, logs: dict[str, Any] | None = None) -> None:
        self._end("predict", "Prediction", "predict", None)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batch_begin(batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batch_end("train", batch, logs)

    def on_test_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batch_begin(batch)

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batch_end("test", batch, logs)

    def on_predict_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batch_begin(batch)

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # For predictions, `logs` holds the outputs, to which nothing is added.
        self._batch_end("predict", batch, None)

    def _wanted(self, first: int, last: int) -> bool:
        if self.batches is None:
            return False
        return self.batches == "all" or any(batch in self.batches for batch in range(first, last + 1))

    def _batch_begin(self, batch: int) -> None:
        self._first_batch = int(batch)
        if self.batches is not None:
            self._begin("batch")

    def _batch_end(self, kind: str, batch: int, logs: dict[str, Any] | None) -> None:
        if self.batches is None:
            return
        first = self._first_batch
        last = max(executions.last_of(batch, kind, self, self._in_fit), first)
        if not self._wanted(first, last):
            self._note()
            if self._is_innermost("batch"):
                self._close_innermost()
            return
        number = f"{last}" if first == last else f"{first} to {last}"
        where = f"Epoch {self._epoch + 1}, " if self._epoch is not None and self._in_fit else ""
        label = f"{where}{_LABELS[kind].lower() + ' ' if kind != 'train' else ''}batch {number}"
        figures = self._end("batch", label[0].upper() + label[1:], executions.PHASES[kind], last, last - first + 1)
        if kind == "train" or not self._in_fit:
            self._tell(logs, figures)

    def _count(self) -> None:
        """Writes the variables of the model to the recording, once."""
        if self._recording is not None and not self._is_counted:
            self._is_counted = True
            session = self._recording._session
            session.attempt(lambda: session.inventory(inventory.of_keras(self.model)))

    # Keras 2 asks these methods whether to call the batch hooks at all.

    def _implements_train_batch_hooks(self) -> bool:
        return self.batches is not None

    def _implements_test_batch_hooks(self) -> bool:
        return self.batches is not None

    def _implements_predict_batch_hooks(self) -> bool:
        return self.batches is not None
