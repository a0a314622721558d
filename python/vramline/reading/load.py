"""`vramline.load`: reads a recording as columns, as a report and as plots."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from vramline import _vramline, shown
from vramline.reading import plot
from vramline.reading.ledger import Ledger, parse

if TYPE_CHECKING:
    import numpy
    from matplotlib.axes import Axes


class Columns(Mapping[str, Any]):
    """A table as named columns of equal length.

    A column of numbers is a NumPy integer array, masked where a value is unknown. A column of text is a list, with None where a
    value is unknown. Read a column as `columns["peak_bytes"]` or `columns.peak_bytes`; `pandas.DataFrame(dict(columns))` takes all.
    """

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self._columns.values()), []))

    def where(self, **values: object) -> Columns:
        """Returns the rows in which every named column has the given value, such as `marks.where(kind="epoch")`."""
        import numpy

        keep = numpy.ones(self.rows, bool)
        for name, value in values.items():
            column = self._columns[name]
            keep &= numpy.array([entry == value for entry in column], bool) if isinstance(column, list) else (
                numpy.ma.filled(column == value, False)
            )
        at = numpy.flatnonzero(keep)
        return Columns(
            {
                name: [column[i] for i in at] if isinstance(column, list) else column[at]
                for name, column in self._columns.items()
            }
        )


def _integers(values: bytes, nulls: bytes) -> numpy.ndarray:
    import numpy

    numbers = numpy.frombuffer(values, numpy.int64)
    mask = numpy.frombuffer(nulls, numpy.bool_)
    return numpy.ma.MaskedArray(numbers, mask) if mask.any() else numbers


def _nulls(rows: int, is_text: bool) -> Any:
    import numpy

    return [None] * rows if is_text else numpy.ma.masked_all(rows, numpy.int64)


def _joined(tables: list[dict[str, Any]]) -> Columns:
    import numpy

    names = {name: isinstance(column, list) for table in tables for name, column in table.items()}
    columns: dict[str, Any] = {}
    for name, is_text in names.items():
        # A process that ran an earlier version of Vramline lacks the columns that were added since.
        parts = [table[name] if name in table else _nulls(len(table["process"]), is_text) for table in tables]
        if isinstance(parts[0], list):
            columns[name] = [entry for part in parts for entry in part]
        else:
            columns[name] = parts[0] if len(parts) == 1 else numpy.ma.concatenate(parts)
    return Columns(columns)


class Run:
    """A recording on disk. `vramline.load` returns it.

    Files are read on each access to a property. In every table the column `process` names the process that wrote the row, sizes
    are bytes, and times (`time_ns`) are nanoseconds of the monotonic clock.

    Attributes:
        path: The folder of the recording.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        if _vramline.is_recording(self.path):
            newer = self._newer()
            if newer is not None:
                warnings.warn(
                    f"'{newer}' is newer than '{self.path}', whose name was already taken when it was recorded", stacklevel=3
                )
            return
        if self.path.is_dir():
            inside = sorted(entry for entry in self.path.iterdir() if _vramline.is_recording(entry))
            hint = f"load a recording inside it, such as '{inside[0]}'" if inside else "make a recording with `vramline run` or `vramline.record`"
            raise ValueError(f"'{self.path}' is a folder, but not a recording\nhint: {hint}")
        if not self.path.exists():
            raise FileNotFoundError(f"no recording at '{self.path}'")
        raise NotADirectoryError(
            f"'{self.path}' is a file, but a recording is a folder (NAME.vram)\n"
            f"hint: read a trace, snapshot, log or dump with `vramline report {shlex.quote(str(self.path))}` (--json for programs) "
            "or with vramline.compare"
        )

    def _newer(self) -> pathlib.Path | None:
        """Returns the newest recording that got a number appended because this name was taken."""
        stem = self.path.name.removesuffix(".vram")
        numbered = re.compile(re.escape(stem) + r"-(\d+)\.vram")
        later = ((int(found[1]), entry) for entry in self.path.parent.iterdir() if (found := numbered.fullmatch(entry.name)))
        return max(later, default=(0, None))[1]

    def _stream(self, kind: str) -> Columns:
        tables = []
        for file in sorted(self.path.glob(f"{kind}-*.arrows")):
            columns, _ = _vramline.read_stream(file)
            if not columns:
                continue
            table = {
                name: column if isinstance(column, list) else _integers(*column) for name, column in columns.items()
            }
            rows = len(next(iter(table.values())))
            table["process"] = [file.name[len(kind) + 1 : -len(".arrows")]] * rows
            tables.append(table)
        return _joined(tables)

    @property
    def marks(self) -> Columns:
        """Everything that happened, in order: steps, epochs, phases, marks, traces. One row per event and device."""
        return self._stream("marks")

    @property
    def steps(self) -> Columns:
        """The rows of `marks` that are steps: of training, validation, prediction or other loops."""
        marks = self.marks
        return marks.where(kind="step") if marks.rows else marks

    @property
    def samples(self) -> Columns:
        """Memory counters that were sampled in the background."""
        return self._stream("samples")

    @property
    def inventory(self) -> Columns:
        """The variables of models and optimizers: name, role, shape, dtype and bytes."""
        return self._stream("inventory")

    @property
    def report(self) -> dict[str, Any]:
        """The report as a dict, as `vramline report --json` prints it."""
        return json.loads(_vramline.report_json(self.path))

    def ledgers(self, *times_ns: int) -> list[Ledger]:
        """Divides each device's memory among driver, processes and pools, at given moments.

        Args:
            times_ns: Moments of the monotonic clock in nanoseconds, such as values of `marks.time_ns`.

        Returns:
            One `Ledger` per moment and device.
        """
        return parse(_vramline.ledgers_json(self.path, [int(time) for time in times_ns]))

    def plot(
        self, what: Literal["steps", "labels"] = "steps", pool: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Plots the memory with matplotlib, and returns the axes.

        Args:
            what: "steps" plots the peak of each step, and the memory in use at its end. "labels" plots one bar per mark that the
                program set with `rec.mark`.
            pool: With "steps", plot only pools whose name contains this text.
            ax: The axes to draw into. By default, new ones.
        """
        if what == "steps":
            return plot.steps(self.report, pool, ax)
        if what != "labels":
            raise ValueError(f'what: expected "steps" or "labels", found {what!r}')
        marks = [mark for mark in self.report["marks"] if mark["kind"] == "mark"]
        several = len({mark["device"] for mark in marks}) > 1
        labels = [f"{mark['label']}, {mark['device']}" if several else mark["label"] for mark in marks]
        return plot.bars(labels, [mark["current_bytes"] for mark in marks], "memory in use", ax)

    def _repr_html_(self) -> str:
        rows = [
            [pool["name"], pool["device"], *(shown.size_text(pool[f"{name}_bytes"]) for name in ("peak", "lifetime_peak", "limit"))]
            for pool in self.report["pools"]
        ]
        for row, pool in zip(rows, self.report["pools"], strict=True):
            # TensorFlow's default, which says nothing about this machine's memory.
            row[-1] += " (built-in)" if pool["limit_by"] == "built-in" else ""
        return shown.table(str(self.path), ["pool", "device", "peak", "peak of the process", "limit"], rows)

    def __repr__(self) -> str:
        return f"vramline.load({str(self.path)!r})"


def load(path: str | os.PathLike[str]) -> Run:
    """Opens a recording of a run that has finished or is still running.

        run = vramline.load("run.vram")
        print(run.steps.peak_bytes.max())
        run.plot()

    Args:
        path: The folder of the recording, such as "run.vram".

    Returns:
        A `Run`.

    Raises:
        FileNotFoundError: If there is nothing at this path.
        NotADirectoryError: If it is a file, such as a trace or a snapshot.
        ValueError: If it is a folder, but not a recording.
    """
    return Run(path)
