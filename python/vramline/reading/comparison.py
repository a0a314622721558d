"""`vramline.compare`: compares runs as `vramline diff` does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal

from vramline import _vramline, shown
from vramline.reading import plot
from vramline.reading.load import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Source = str | os.PathLike[str] | Run


class Comparison:
    """Runs compared with the first of them. `vramline.compare` returns it; print it for a table.

    Attributes:
        report: The comparison as a dict, as `vramline diff --json` prints it.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    @property
    def runs(self) -> list[str]:
        """The names of the runs, in the order of every list in `rows`."""
        return self.report["runs"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict per compared item, with `what`, `by`, `bytes` (one number per run), `delta_bytes` and more."""
        return self.report["rows"]

    @property
    def verdict(self) -> str:
        """The result in words: one sentence per run."""
        return self.report["headline"]

    def plot(
        self,
        by: Literal["device", "role", "op", "layer", "step"] = "role",
        top: int = 12,
        ax: Axes | None = None,
    ) -> Axes:
        """Plots the runs with matplotlib as bars side by side, or as lines over the steps, and returns the axes.

        Args:
            by: What each group of bars is: "device", "role", "op" or "layer". "step" plots lines over the steps.
            top: The largest number of groups. Of ops and layers, those that changed most are shown.
            ax: The axes to draw into. By default, new ones.
        """
        if by not in ("device", "role", "op", "layer", "step"):
            raise ValueError(f'by: expected "device", "role", "op", "layer" or "step", found {by!r}')
        return plot.compared(self.report, by, top, ax)

    def _lines(self, most: int = 10) -> list[list[str]]:
        kept = []
        for by in ("device", "role", "op"):
            own = [row for row in self.rows if row["by"] == by and any(row["bytes"])]
            kept += own if by != "op" else own[:most]
        return [
            [row["by"], *map(shown.size_text, row["bytes"]), _change(row["delta_bytes"]), row["what"]] for row in kept
        ]

    def __str__(self) -> str:
        lines = [["by", *self.runs, "change", "what"], *self._lines()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]) - 1)]
        table = ("  ".join([*map(str.rjust, line, widths), line[-1]]) for line in lines)
        return "\n".join([self.verdict, "", *table])

    def __repr__(self) -> str:
        return f"<vramline.Comparison of {', '.join(self.runs)}>"

    def _repr_html_(self) -> str:
        return shown.table(self.verdict, ["by", *self.runs, "change", "what"], self._lines())


def _change(delta: int | None) -> str:
    if delta is None:
        return "?"
    return ("+" if delta > 0 else "-" if delta < 0 else "") + shown.size_text(abs(delta))


def compare(runs: Sequence[Source | Sequence[Source]]) -> Comparison:
    """Compares two or more runs with the first of them.

        print(vramline.compare(["before.vram", "after.vram"]))

    Args:
        runs: A list of recordings, or of any files that `vramline report` reads: paths or `Run` objects. An inner list holds the
            repeats of one run: their median is compared, and `spread_bytes` in `rows` says by how much they differ.

    Returns:
        A `Comparison`.

    Raises:
        OSError: If a file cannot be read.
        TypeError: If `runs` is a single run, or not a list of runs.
        ValueError: If there are fewer than two runs.
    """
    # A string is a sequence of letters and a dictionary one of its keys, so both need a check of their own.
    if isinstance(runs, (str, bytes, os.PathLike, Run)):
        raise TypeError(
            f"runs: expected a list of two or more runs, found only {runs!r}\n"
            'hint: vramline.compare(["before.vram", "after.vram"])'
        )
    if isinstance(runs, (Mapping, Set)) or not isinstance(runs, Iterable):
        raise TypeError(
            f"runs: expected a list of two or more runs, found a {type(runs).__name__}\n"
            "hint: runs are named after their files, and the others are compared with the first; "
            "for a dictionary use vramline.compare(list(runs.values()))"
        )

    def path_of(source: Source) -> str | os.PathLike[str]:
        if not isinstance(source, (str, os.PathLike, Run)):
            raise TypeError(f"runs: expected a path, a Run or a list of repeats, found {source!r}")
        return source.path if isinstance(source, Run) else source

    def paths_of(side: Source | Sequence[Source]) -> list[str | os.PathLike[str]]:
        if isinstance(side, (str, bytes, os.PathLike, Run, Mapping)) or not isinstance(side, Iterable):
            return [path_of(side)]
        return [path_of(source) for source in side]

    sides = [paths_of(side) for side in runs]
    if len(sides) < 2 or not all(sides):
        raise ValueError("runs: expected two or more runs, each a path, a Run or a list of repeats")
    return Comparison(json.loads(_vramline.diff_json(sides)))
