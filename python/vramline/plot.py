"""Plots with matplotlib, which is imported when the first one is asked for. Each returns its axes and shows nothing by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def _axes(ax: Optional[Axes]) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed\nhint: pip install matplotlib") from error
    return pyplot.subplots()[1]


def _unit(sizes: Iterable[Optional[int]]) -> tuple[int, str]:
    """The unit in which the largest figure is read best."""
    largest = max((abs(size) for size in sizes if size is not None), default=0)
    return next(((factor, name) for factor, name in _UNITS if largest >= factor), _UNITS[-1])


def _scaled(sizes: Sequence[Optional[int]], factor: int) -> list[float]:
    """A figure that is not known is a gap."""
    return [float("nan") if size is None else size / factor for size in sizes]


def size_text(size: Optional[int]) -> str:
    """A size as people read it, `?` where it is not known."""
    if size is None:
        return "?"
    factor, name = _unit([size])
    if factor == 1:
        return f"{size} B"
    # 1023.6 would be shown as 1024, which is one of the next unit.
    if abs(size) / factor >= 1023.5 and factor < _UNITS[0][0]:
        factor, name = next((larger, unit) for larger, unit in reversed(_UNITS) if larger > factor)
    value = size / factor
    return f"{value:.0f} {name}" if abs(value) >= 999.5 else f"{value:.3g} {name}"


def _shorten(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def steps(report: dict[str, Any], pool: Optional[str] = None, ax: Optional[Axes] = None) -> Axes:
    """Memory over the steps of a run: the peak of each, and what was in use at its end."""
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
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    if series:
        axes.legend()
    return axes


def bars(labels: Sequence[str], sizes: Sequence[Optional[int]], ax: Optional[Axes] = None) -> Axes:
    """One bar for each label."""
    axes = _axes(ax)
    factor, unit = _unit(sizes)
    axes.barh(range(len(labels)), _scaled(sizes, factor))
    axes.set_yticks(range(len(labels)), [_shorten(label) for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    return axes


def compared(report: dict[str, Any], by: str, top: int, ax: Optional[Axes] = None) -> Axes:
    """A comparison: bars side by side, or lines over the steps."""
    rows = [row for row in report["rows"] if row["by"] == by]
    axes = _axes(ax)
    if by == "step":
        factor, unit = _unit(size for row in rows for size in row["bytes"])
        for number, run in enumerate(report["runs"]):
            axes.plot(range(len(rows)), _scaled([row["bytes"][number] for row in rows], factor), ".-", label=run)
        axes.set_xlabel("step")
        axes.set_ylabel(unit)
    else:
        rows = [row for row in rows if any(row["bytes"])][:top]
        factor, unit = _unit(size for row in rows for size in row["bytes"])
        height = 0.8 / max(len(report["runs"]), 1)
        for number, run in enumerate(report["runs"]):
            places = [place + number * height for place in range(len(rows))]
            axes.barh(places, _scaled([row["bytes"][number] for row in rows], factor), height, label=run)
        middle = (len(report["runs"]) - 1) * height / 2
        axes.set_yticks([place + middle for place in range(len(rows))], [_shorten(row["what"]) for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
    if report["runs"]:
        axes.legend()
    axes.set_title(f"memory by {by}")
    return axes


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook. Names come from files: everything is escaped."""
    import html

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    return f"<div><p>{html.escape(title)}</p><table>{head}<tbody>{body}</tbody></table></div>"
