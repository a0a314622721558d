"""What the callbacks for Keras, Hugging Face and Lightning share: measuring the parts of a training, and the figures for the user.

It knows no trainer. A callback tells it when a part (a batch, an epoch, a validation) begins and ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal

from vramline import shown
from vramline.frameworks import counters
from vramline.frameworks.adapter import Counters
from vramline.reading import plot
from vramline.recording import recorder, session
from vramline.words import How, MarkKind, Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIB = 1 << 30
# By unit: its kind of mark in a recording. All other units are phases.
_KINDS: dict[str, MarkKind] = {"batch": "step", "step": "step", "epoch": "epoch"}


class OfObject:
    """A method that a trainer calls before any other.

    If it is called on the class, the user passed `MemoryCallback` instead of `MemoryCallback()`: say so, because Python's own
    message would only name a missing argument.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, owner: Any, kind: type) -> Callable[..., Any]:
        if owner is None:
            raise TypeError(f"callbacks: expected an object, found the class {kind.__name__}\nhint: callbacks=[{kind.__name__}()]")
        return self._method.__get__(owner, kind)


def numbers(name: str, unit: str, given: Any) -> Literal["all"] | frozenset[int] | None:
    """Returns the value of an argument that selects batches or steps."""
    if given is None or given == "all":
        return given
    if isinstance(given, str) or not isinstance(given, Iterable):
        where = f" {unit} 5 of every epoch" if unit == "batch" else f" {unit} 5"
        raise ValueError(
            f'{name}: expected "all", a list of {unit} numbers or None, found {given!r}\n'
            f"hint: {name}=[5] measures{where}, {name}=range(0, 1000, 5) every fifth {unit}"
        )
    return frozenset(int(number) for number in given)


def raise_peaks(peaks: dict[str, int | None], *kept: dict[str, int | None]) -> None:
    """Raises the peaks of devices that are kept to these."""
    for device, peak in peaks.items():
        for highest in kept:
            known = highest.get(device)
            if known is None or (peak is not None and peak > known):
                highest[device] = peak


class Measurements:
    """Measures units, which may contain each other, and keeps what it measured.

    A unit has its own peak: the framework's peak is reset when one begins, and the peak of a unit is the highest of its parts. Where
    the peak is not reset, the peak of a unit is known only if it is the highest so far.
    """

    # How Vramline learned of the units, the unit that is numbered, and units whose peaks are not of the training around them.
    _how: How = "keras"
    _numbered = "batch"
    _apart: tuple[str, ...] = ()

    def __init__(self, print_stats: bool, devices: str | Collection[str] | None, logs: bool, resets: bool = True) -> None:
        super().__init__()
        self.history: list[dict[str, Any]] = []
        self._print = print_stats
        wanted = [devices] if isinstance(devices, str) else devices
        self._devices = None if wanted is None else {device.upper() for device in wanted}
        self._is_checked = False
        self._logs = logs
        self._resets = resets
        self._recording: recorder.Recording | None = None
        self._epoch: int | None = None
        # Open units, outermost first: the unit, when it began, and the highest peak of each device in it so far, without those of units
        # that are open inside it.
        self._open: list[tuple[str, int, dict[str, int | None]]] = []
        # The last peak of each device, where it is not reset.
        self._last_peaks: dict[str, int] = {}
        # By device: the highest peak since a subclass has emptied this, without units apart.
        self._highest: dict[str, int | None] = {}

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
        return [None if row["peak_bytes"] is None else row["peak_bytes"] / GIB for row in self._first()]

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

    def _read(self) -> list[Counters]:
        reads = counters.read_all()
        # Each call that a step saves counts: its code is not in the processor's caches.
        return reads if self._devices is None and len(reads) == 1 else self._chosen(reads)

    def _chosen(self, reads: list[Counters]) -> list[Counters]:
        """Returns the counters of the devices to measure."""
        return [read for read in reads if self._devices is None or read.device.upper() in self._devices]

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

    # Each step runs the next functions, so they make few calls.

    def _note(self) -> list[Counters]:
        """Reads the counters, adds the peaks since the last reading to the innermost open unit, and returns the counters."""
        reads = self._read()
        peaks: dict[str, int | None] = {}
        for read in reads:
            peak = read.peak
            if peak is not None and (read.peak_since_ns is None or not self._resets):
                # The peak was not reset by this callback: if it has not risen, it may come from an earlier unit.
                risen = peak > self._last_peaks.get(read.device, -1)
                self._last_peaks[read.device] = peak
                peak = peak if risen else None
            peaks[read.device] = peak
        if not self._open:
            raise_peaks(peaks, self._highest)
        elif self._open[-1][0] in self._apart:
            raise_peaks(peaks, self._open[-1][2])
        else:
            raise_peaks(peaks, self._open[-1][2], self._highest)
        return reads

    def _reset(self) -> None:
        if self._resets:
            counters.reset_all()

    def _begin(self, unit: str) -> None:
        if not self._is_checked:
            self._check()
        self._note()
        self._reset()
        # The unit has no peaks yet: the first reading after the reset sets them.
        self._open.append((unit, time.monotonic_ns(), {}))

    def _is_open(self, unit: str) -> bool:
        # A loop, which takes a third of the time of a generator.
        for name, _, _ in self._open:  # noqa: SIM110
            if name == unit:
                return True
        return False

    def _is_innermost(self, unit: str) -> bool:
        return bool(self._open) and self._open[-1][0] == unit

    def _close_innermost(self) -> tuple[str, int, dict[str, int | None]]:
        """Closes the innermost unit, adds its peaks to the one around it, and returns it."""
        unit = self._open.pop()
        if self._open:
            raise_peaks(unit[2], self._open[-1][2])
        return unit

    def _end(self, unit: str, label: str, phase: Phase, number: int | None, batches: int = 1) -> dict[str, dict[str, Any]]:
        """Ends a unit and returns its measurements by device. Units inside it that an exception left open end with it."""
        reads = self._note()
        begin: int | None = None
        peaks: dict[str, int | None] = {}
        while self._open:
            name, begin, peaks = self._close_innermost()
            if name == unit:
                break
        figures: dict[str, dict[str, Any]] = {}
        for read in reads or [Counters("", reason="no device in use")]:
            row = self._row(label, phase, number, read, peaks.get(read.device))
            self.history.append(row)
            figures[read.device] = row
        if self._print:
            print(self._line(label, figures), flush=True)
        if self._recording is not None:
            kind = _KINDS.get(unit, "phase")
            # With the peak of the unit, where it is known.
            told = [
                read if peaks.get(read.device) is None else (read.device, read.current, peaks[read.device], begin, *read[4:])
                for read in reads
            ]
            step, count = (number, batches) if kind == "step" else (None, None)
            text = label if kind == "phase" else None
            self._recording._session.mark(kind, text, phase, self._how, step, count, self._epoch, begin, told)
        return figures

    def _row(self, label: str, phase: Phase, number: int | None, read: Counters, peak: int | None) -> dict[str, Any]:
        return {
            "label": label,
            "phase": phase,
            "epoch": self._epoch,
            self._numbered: number,
            "device": read.device,
            "current_bytes": read.current,
            "peak_bytes": peak,
            "reserved_bytes": read.pool,
            "time": time.time(),
        }

    def _begin_epoch(self, epoch: int) -> None:
        """Begins an epoch, counted from 0, and measures its first moment."""
        self._epoch = epoch
        self._begin("epoch")
        self.history += [self._row(f"Epoch {epoch + 1} begin", "train", None, read, read.current) for read in self._read()]

    def _line(self, label: str, figures: dict[str, dict[str, Any]]) -> str:
        parts = []
        for device, row in figures.items():
            peak, current = row["peak_bytes"], row["current_bytes"]
            told = ("unknown" if size is None else shown.size_text(size) for size in (peak, current))
            parts.append("{} peak {}, in use {}".format(device or "no device", *told))
        return f"{label}: " + "; ".join(parts)

    def _by_name(self, figures: dict[str, dict[str, Any]], names: Iterable[str], units: dict[str, int]) -> dict[str, float]:
        """Returns the figures that are known under the names that they have in logs, such as `vram_peak_gib`.

        Those of other devices than the first have the device's name at the end: `vram_peak_gib_gpu1`.
        """
        named: dict[str, float] = {}
        for place, (device, row) in enumerate(figures.items()):
            behind = "" if place == 0 else "_" + device.lower().replace(":", "")
            for name in names:
                value = row[f"{name}_bytes"]
                if value is not None:
                    named |= {f"vram_{name}_{unit}{behind}": value / size for unit, size in units.items()}
        return named
