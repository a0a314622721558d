"""`vramline.keras.MemoryCallback`: a Keras callback that measures memory.

It works with Keras 3 on any backend, Keras 2 and tf_keras. It moves itself to the front of the list of callbacks, so that every other
callback finds its values in `logs`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal

from vramline import batches as executions
from vramline import counters, inventory, plot, recorder, session, shown
from vramline.adapter import Counters
from vramline.words import MarkKind, Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GIB = 1 << 30
_MIB = 1 << 20
_LABELS = {"train": "Training", "test": "Validation", "predict": "Prediction"}
# By unit: its kind of mark in a recording. All other units are phases.
_KINDS: dict[str, MarkKind] = {"batch": "step", "epoch": "epoch"}


def _base() -> type:
    """Returns the `Callback` class of the Keras that the program uses."""
    for name in ("keras", "tf_keras"):
        callbacks = getattr(sys.modules.get(name), "callbacks", None)
        if callbacks is not None:
            return callbacks.Callback
    import keras

    return keras.callbacks.Callback


class _OfObject:
    """A method that Keras calls before any other.

    If it is called on the class, the user passed `MemoryCallback` instead of `MemoryCallback()`: say so, because Python's own
    message would only name a missing argument.
    """

    def __init__(self, method: Callable[..., None]) -> None:
        self._method = method

    def __get__(self, owner: Any, kind: type) -> Callable[..., None]:
        if owner is None:
            raise TypeError(f"callbacks: expected an object, found the class {kind.__name__}\nhint: callbacks=[{kind.__name__}()]")
        return self._method.__get__(owner, kind)


def _batches(given: Any) -> Literal["all"] | frozenset[int] | None:
    if given is None or given == "all":
        return given
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f'batches: expected "all", a list of batch numbers or None, found {given!r}\n'
            "hint: batches=[5] measures batch 5 of every epoch, batches=range(0, 1000, 5) every fifth batch"
        )
    return frozenset(int(batch) for batch in given)


class MemoryCallback(_base()):  # type: ignore[misc]  # Its base is known only when the program runs.
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
        history: A list of measurements. Each is a dict with label, phase, epoch, batch, device, current_bytes, peak_bytes and time
            (seconds since 1970). A size is None if it is unknown.
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
        super().__init__()
        self.batches = _batches(batches)
        self.history: list[dict[str, Any]] = []
        self._print = print_stats
        wanted = [devices] if isinstance(devices, str) else devices
        self._devices = None if wanted is None else {device.upper() for device in wanted}
        self._is_checked = False
        self._logs = logs
        self._recording = None if record is None else recorder.record(record, step_peaks=False)
        self._epoch: int | None = None
        self._first_batch = 0
        self._in_fit = False
        self._is_counted = False
        # Open units, outermost first: the unit, when it began, and the highest peak of each device in it so far.
        self._open: list[tuple[str, int, dict[str, int | None]]] = []
        # The highest peak of each device so far, for frameworks that cannot reset their peak.
        self._highest: dict[str, int] = {}
        self._validation: dict[str, int | None] = {}

    @property
    def path(self) -> str | None:
        """The folder of the recording; None if nothing is recorded."""
        return None if self._recording is None else str(self._recording.path)

    @property
    def labels(self) -> list[str]:
        """The labels of the first device's measurements."""
        return [row["label"] for row in self._first()]

    @property
    def memory_usage(self) -> list[float | None]:
        """The peaks of the first device's measurements in GiB; None where a peak is unknown."""
        return [None if row["peak_bytes"] is None else row["peak_bytes"] / _GIB for row in self._first()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plots the peaks of the first device with matplotlib, one bar per label, and returns the axes.

        Args:
            ax: The axes to draw into. By default, new ones.
        """
        return plot.bars(self.labels, [row["peak_bytes"] for row in self._first()], "peak memory", ax)

    def _repr_html_(self) -> str:
        rows = [
            [row["label"], row["device"], shown.size_text(row["peak_bytes"]), shown.size_text(row["current_bytes"])]
            for row in self.history
        ]
        return shown.table("Memory measured by MemoryCallback", ["label", "device", "peak", "in use"], rows)

    def _first(self) -> list[dict[str, Any]]:
        first = self.history[0]["device"] if self.history else None
        return [row for row in self.history if row["device"] == first]

    # Measuring.

    def _read(self) -> list[Counters]:
        return [read for read in counters.read_all() if self._devices is None or read.device.upper() in self._devices]

    def _check(self) -> None:
        """Warns once about devices that cannot be measured. Otherwise the user would see it only in an empty table at the end."""
        found = counters.read_all()
        if self._is_checked or not found:
            return
        self._is_checked = True
        known = [read.device for read in found]
        missing = sorted((self._devices or set()) - {device.upper() for device in known})
        if missing:
            session.warn(f"MemoryCallback: no device {', '.join(missing)} is in use; devices in use: {', '.join(known)}")
        for read in self._read():
            if read.current is None:
                session.warn(f"MemoryCallback: {read.device} is not measured: {read.reason or 'the framework does not report its memory'}")

    def _note(self, reads: list[Counters]) -> None:
        """Adds peaks to every open unit."""
        for read in reads:
            peak = read.peak
            if peak is not None and read.peak_since_ns is None:
                # The peak was never reset: if it has not risen, it may come from an earlier unit.
                risen = peak > self._highest.get(read.device, -1)
                self._highest[read.device] = max(peak, self._highest.get(read.device, 0))
                peak = peak if risen else None
            for _, _, peaks in self._open:
                known = peaks.get(read.device)
                peaks[read.device] = peak if known is None else max(known, peak or 0)

    def _begin(self, unit: str) -> None:
        if not self._is_checked:
            self._check()
        self._note(self._read())
        counters.reset_all()
        # The unit has no peaks yet: the first reading after the reset sets them.
        self._open.append((unit, time.monotonic_ns(), {}))

    def _end(self, unit: str, label: str, phase: Phase, batch: int | None, batches: int = 1) -> dict[str, Any]:
        """Ends a unit and returns its measurements by device. Units inside it that an exception left open end with it."""
        reads = self._read()
        self._note(reads)
        begin: int | None = None
        peaks: dict[str, int | None] = {}
        while self._open:
            name, begin, peaks = self._open.pop()
            if name == unit:
                break
        figures: dict[str, Any] = {}
        for read in reads or [Counters("", reason="no device in use")]:
            row = {
                "label": label,
                "phase": phase,
                "epoch": self._epoch,
                "batch": batch,
                "device": read.device,
                "current_bytes": read.current,
                "peak_bytes": peaks.get(read.device),
                "time": time.time(),
            }
            self.history.append(row)
            figures[read.device] = row
        if self._print:
            print(self._line(label, figures), flush=True)
        if self._recording is not None:
            kind = _KINDS.get(unit, "phase")
            told = [
                read._replace(peak=peaks.get(read.device), peak_since_ns=begin)
                if peaks.get(read.device) is not None
                else read
                for read in reads
            ]
            number = None if kind != "step" else batch
            count = batches if kind == "step" else None
            text = label if kind == "phase" else None
            self._recording._session.mark(kind, text, phase, "keras", number, count, self._epoch, begin, told)
        return figures

    def _line(self, label: str, figures: dict[str, Any]) -> str:
        parts = []
        for device, row in figures.items():
            peak, current = row["peak_bytes"], row["current_bytes"]
            told = ("unknown" if size is None else shown.size_text(size) for size in (peak, current))
            parts.append("{} peak {}, in use {}".format(device or "no device", *told))
        return f"{label}: " + "; ".join(parts)

    def _tell(self, logs: dict[str, Any] | None, figures: dict[str, Any]) -> None:
        if logs is None or not self._logs:
            return
        for number, (device, row) in enumerate(figures.items()):
            behind = "" if number == 0 else "_" + device.lower().replace(":", "")
            for name in ("peak", "current"):
                value = row[f"{name}_bytes"]
                if value is not None:
                    logs[f"vram_{name}_gib{behind}"] = value / _GIB
                    logs[f"vram_{name}_mib{behind}"] = value / _MIB

    # Hooks that Keras calls.

    @_OfObject
    def set_params(self, params: dict[str, Any] | None) -> None:
        # Keras calls this first in every fit, evaluation and prediction. An earlier one that an exception ended left units open.
        super().set_params(params)
        self._in_fit, self._epoch = False, None
        self._open.clear()
        self._step_forward(sys._getframe(1).f_locals.get("self"))

    @_OfObject
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
        self._epoch = int(epoch)
        self._validation = {}
        self._begin("epoch")
        for read in self._read():
            self.history.append(
                {
                    "label": f"Epoch {epoch + 1} begin",
                    "phase": "train",
                    "epoch": self._epoch,
                    "batch": None,
                    "device": read.device,
                    "current_bytes": read.current,
                    "peak_bytes": read.current,
                    "time": time.time(),
                }
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        figures = self._end("epoch", f"Epoch {epoch + 1} end", "train", None)
        self._tell(logs, figures)
        validated = next(iter(self._validation.values()), None)
        if logs is not None and self._logs and validated is not None:
            logs["val_vram_peak_gib"] = validated / _GIB
            logs["val_vram_peak_mib"] = validated / _MIB
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
            self._note(self._read())
            if self._open and self._open[-1][0] == "batch":
                self._open.pop()
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
