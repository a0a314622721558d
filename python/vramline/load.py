"""A recording, read back as columns."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from vramline import _vramline, plot, shown
from vramline.ledger import Ledger, parse

if TYPE_CHECKING:
    import numpy
    from matplotlib.axes import Axes


class Columns(Mapping[str, Any]):
    """Columns of equal length by name: NumPy arrays of whole numbers (masked where a value is not known), lists of text."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns there are."""
        return len(self._columns)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values()), []))

    def where(self, **values: object) -> Columns:
        """The rows in which each named column has the value."""
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
        # A process that ran an earlier version lacks the columns that were added since.
        parts = [table[name] if name in table else _nulls(len(table["process"]), is_text) for table in tables]
        if isinstance(parts[0], list):
            columns[name] = [entry for part in parts for entry in part]
        else:
            columns[name] = parts[0] if len(parts) == 1 else numpy.ma.concatenate(parts)
    return Columns(columns)


class Run:
    """A recording. Streams are read when they are asked for; `process` names whose row it is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        if _vramline.is_recording(self.path):
            newer = self._newer()
            if newer is not None:
                warnings.warn(
                    f"'{newer}' is newer than '{self.path}': its name was taken when it was recorded", stacklevel=3
                )
            return
        if self.path.is_dir():
            inside = sorted(entry for entry in self.path.iterdir() if _vramline.is_recording(entry))
            hint = f"load one that it holds, such as '{inside[0]}'" if inside else "`vramline run` and `vramline.record` make recordings"
            raise ValueError(f"'{self.path}' is a folder, and no recording\nhint: {hint}")
        if not self.path.exists():
            raise FileNotFoundError(f"no recording at '{self.path}'")
        raise NotADirectoryError(
            f"'{self.path}' is a file, and a recording is a folder (NAME.vram)\n"
            f"hint: traces, snapshots, logs and dumps are read by `vramline report {shlex.quote(str(self.path))}`, "
            "with --json for programs, and by vramline.compare"
        )

    def _newer(self) -> pathlib.Path | None:
        """The newest recording that would have had this name, had it not been taken."""
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
        """Everything the program did, a row for each device."""
        return self._stream("marks")

    @property
    def steps(self) -> Columns:
        """The steps among the marks."""
        marks = self.marks
        return marks.where(kind="step") if marks.rows else marks

    @property
    def samples(self) -> Columns:
        """Counters read in the background."""
        return self._stream("samples")

    @property
    def inventory(self) -> Columns:
        """The variables of models and optimizers."""
        return self._stream("inventory")

    @property
    def report(self) -> dict[str, Any]:
        """The report, as `vramline report --json` prints it."""
        return json.loads(_vramline.report_json(self.path))

    def ledgers(self, *times_ns: int) -> list[Ledger]:
        """Who held which byte at moments of the monotonic clock, as in `marks.time_ns`: a ledger for each moment and device."""
        return parse(_vramline.ledgers_json(self.path, [int(time) for time in times_ns]))

    def plot(
        self, what: Literal["steps", "labels"] = "steps", pool: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draws memory with matplotlib: over the steps, or as one bar for each mark that the program set.

        Args:
            what: "steps" or "labels".
            pool: Of steps only pools whose name contains this.
            ax: Where to draw; new axes by default.
        """
        if what == "steps":
            return plot.steps(self.report, pool, ax)
        if what != "labels":
            raise ValueError(f'what: expected "steps" or "labels", found {what!r}')
        marks = [mark for mark in self.report["marks"] if mark["kind"] == "mark"]
        several = len({mark["device"] for mark in marks}) > 1
        labels = [f"{mark['label']}, {mark['device']}" if several else mark["label"] for mark in marks]
        return plot.bars(labels, [mark["current_bytes"] for mark in marks], ax)

    def _repr_html_(self) -> str:
        rows = [
            [pool["name"], pool["device"], *(shown.size_text(pool[f"{name}_bytes"]) for name in ("peak", "lifetime_peak", "limit"))]
            for pool in self.report["pools"]
        ]
        for row, pool in zip(rows, self.report["pools"], strict=True):
            # Nobody set it, and no memory backs it.
            row[-1] += " (built-in)" if pool["limit_by"] == "built-in" else ""
        return shown.table(str(self.path), ["pool", "device", "peak", "ever", "limit"], rows)

    def __repr__(self) -> str:
        return f"vramline.load({str(self.path)!r})"


def load(path: str | os.PathLike[str]) -> Run:
    """Opens a recording, of a finished run or of one that is still going.

    Raises:
        FileNotFoundError: If there is none.
        NotADirectoryError: If it is a file of another kind, such as a trace or a snapshot.
        ValueError: If it is a folder of another kind.
    """
    return Run(path)
