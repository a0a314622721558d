"""Plots with matplotlib, which is imported by the first plot. Each function returns its axes; it neither shows nor saves the figure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramline.shown import unit as _unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# By figure of a step: its label and its line style.
_FIGURES = {"peak": ("peak", ".-"), "in-use": ("in use at the end", ".:")}


def _axes(ax: Axes | None, least: float = 0) -> Axes:
    """Returns the given axes, or new ones that are at least this many inches wide."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed\nhint: pip install matplotlib") from error
    # The constrained layout leaves room for long names. A figure that the caller made keeps its own layout.
    width, height = pyplot.rcParams["figure.figsize"]
    return pyplot.subplots(layout="constrained", figsize=(max(width, least), height))[1]


def _scaled(sizes: Sequence[int | None], factor: int) -> list[float]:
    """Scales sizes to a unit. An unknown size becomes a gap in the plot."""
    return [float("nan") if size is None else size / factor for size in sizes]


def _shorten(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def _key(step: dict[str, Any]) -> tuple[Any, ...]:
    return step["phase"], step.get("epoch"), step["step"]


def _name_steps(axes: Axes, rows: Sequence[dict[str, Any]], most: int = 24) -> None:
    """Labels the x axis with step numbers. Where an epoch or a phase begins, the label has its name and a line before it."""
    names, starts = [], []
    before: dict[str, Any] | None = None
    for at, row in enumerate(rows):
        is_epoch = before is None or before.get("epoch") != row.get("epoch")
        is_start = before is None or is_epoch or before["phase"] != row["phase"]
        epoch = f"epoch {row['epoch']}, " if is_epoch and row.get("epoch") is not None else ""
        names.append(f"{epoch}{row['phase']} {row['step']}" if is_start else str(row["step"]))
        if is_start:
            starts.append(at)
        before = row
    # Keep only as many ticks as there is room for; those at the beginning of an epoch or a phase come first.
    apart = max(1, -(-len(rows) // most))
    kept: list[int] = []
    for at in (*starts, *range(0, len(rows), apart)):
        place = bisect.bisect(kept, at)
        if all(abs(at - other) >= apart for other in kept[max(place - 1, 0) : place + 1]):
            kept.insert(place, at)
    if len(starts) > 1:
        axes.set_xticks(kept, [names[at] for at in kept], rotation=45, ha="right", rotation_mode="anchor")
        # Draw lines only at ticks that are labelled: hundreds of lines would fill the plot.
        begins = [at - 0.5 for at in starts[1:] if at in kept]
        axes.vlines(begins, 0, 1, transform=axes.get_xaxis_transform(), colors="0.8", linewidth=0.8, zorder=0)
    else:
        axes.set_xticks(kept, [str(rows[at]["step"]) for at in kept])
    phase = f"{rows[0]['phase']} step" if len(starts) == 1 and rows[0]["phase"] != "other" else "step"
    axes.set_xlabel(phase)


def steps(report: dict[str, Any], pool: str | None = None, ax: Axes | None = None) -> Axes:
    """Plots the memory over the steps of a run: the peak of each step, and the memory in use at its end."""
    rows = report["steps"]
    pools = list(dict.fromkeys((row["pool"], row["pid"]) for row in rows if pool is None or pool in row["pool"]))
    axes = _axes(ax)
    series = [[row for row in rows if (row["pool"], row["pid"]) == one] for one in pools]
    factor, unit = _unit(row[name] for own in series for row in own for name in ("peak_bytes", "current_bytes"))
    for (name, pid), own in zip(pools, series):
        behind = f"{name} ({pid})" if len({other for other, _ in pools}) < len(pools) else name
        for field, words, style in (("peak_bytes", "peak", "."), ("current_bytes", "in use at the end", "-")):
            sizes = [row[field] for row in own]
            if any(size is not None for size in sizes):
                axes.plot(range(len(own)), _scaled(sizes, factor), style, label=f"{behind}, {words}")
    axes.set_xlabel("step")
    # Step labels fit only if all pools have the same steps.
    if series and all([_key(row) for row in own] == [_key(row) for row in series[0]] for own in series):
        _name_steps(axes, series[0])
    axes.set_ylabel(f"memory ({unit})")
    axes.set_ylim(bottom=0)
    if series:
        axes.legend()
    return axes


def bars(labels: Sequence[str], sizes: Sequence[int | None], what: str, ax: Axes | None = None) -> Axes:
    """Plots one bar per label. `what` names the sizes on the x axis."""
    axes = _axes(ax)
    factor, unit = _unit(sizes)
    axes.barh(range(len(labels)), _scaled(sizes, factor))
    axes.set_yticks(range(len(labels)), [_shorten(label) for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel(f"{what} ({unit})")
    return axes


def compared(report: dict[str, Any], by: str, top: int, ax: Axes | None = None) -> Axes:
    """Plots a comparison: bars side by side, or lines over the steps."""
    rows = [row for row in report["rows"] if row["by"] == by]
    if not rows:
        there = sorted({row["by"] for row in report["rows"]} - {"pool"})
        raise ValueError(
            f"by: the runs have no {by} in common to plot, expected {' or '.join(map(repr, there)) or 'runs that recorded memory'}\n"
            "hint: roles, ops and layers come from a trace: record with `vramline run`, without --trace off"
        )
    axes = _axes(ax, least=8)
    runs = [_shorten(run, 32) for run in report["runs"]]
    title = f"memory by {by}"
    if by == "step":
        # One line cannot show several pools: plot the first pool that has steps.
        pools = list(dict.fromkeys(row["pool"] for row in rows))
        rows = [row for row in rows if row["pool"] == pools[0]]
        factor, unit = _unit(size for row in rows for size in row["bytes"])
        figures = [figure for figure in _FIGURES if any(row["figure"] == figure for row in rows)]
        for number, run in enumerate(runs):
            for figure in figures:
                words, style = _FIGURES[figure]
                # Peaks and the memory in use at the end of a step are separate lines.
                own = [row["bytes"][number] if row["figure"] == figure else None for row in rows]
                label = f"{run}, {words}" if len(figures) > 1 else run
                axes.plot(range(len(rows)), _scaled(own, factor), style, color=f"C{number}", label=label)
        if rows:
            _name_steps(axes, rows)
        axes.set_ylabel(f"memory ({unit})")
        if len(figures) == 1:
            title = f"{title}: {_FIGURES[figures[0]][0]}"
        if len(pools) > 1:
            title = f"{title}, {_shorten(pools[0])}"
    else:
        rows = [row for row in rows if any(row["bytes"])][:top]
        factor, unit = _unit(size for row in rows for size in row["bytes"])
        height = 0.8 / max(len(runs), 1)
        for number, run in enumerate(runs):
            places = [place + number * height for place in range(len(rows))]
            axes.barh(places, _scaled([row["bytes"][number] for row in rows], factor), height, label=run)
        middle = (len(runs) - 1) * height / 2
        # If several pools hold the same role, each pool has its own bar.
        several = by != "device" and len({row["pool"] for row in rows}) > 1
        names = [f"{_shorten(row['what'], 24)}, {_shorten(row['pool'], 16)}" if several else _shorten(row["what"]) for row in rows]
        axes.set_yticks([place + middle for place in range(len(rows))], names)
        axes.invert_yaxis()
        axes.set_xlabel(f"memory ({unit})")
    if runs:
        axes.legend()
    axes.set_title(title)
    return axes
