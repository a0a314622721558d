"""Sizes and tables formatted for terminals, plots and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def unit(sizes: Iterable[int | None]) -> tuple[int, str]:
    """Returns the unit to show these sizes in, chosen by the largest: its factor and its name."""
    largest = max((abs(size) for size in sizes if size is not None), default=0)
    return next(((factor, name) for factor, name in UNITS if largest >= factor), UNITS[-1])


def size_text(size: int | None) -> str:
    """Formats a size with its unit, such as "1.5 MiB"; "?" if it is unknown."""
    if size is None:
        return "?"
    factor, name = unit([size])
    if factor == 1:
        return f"{size} B"
    # 1023.6 KiB would be rounded to 1024 KiB: use the next larger unit, 1 MiB.
    if abs(size) / factor >= 1023.5 and factor < UNITS[0][0]:
        factor, name = next((larger, unit) for larger, unit in reversed(UNITS) if larger > factor)
    value = size / factor
    return f"{value:.0f} {name}" if abs(value) >= 999.5 else f"{value:.3g} {name}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns an HTML table for a notebook. All text is escaped, because names come from files."""
    import html

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    return f"<div><p>{html.escape(title)}</p><table>{head}<tbody>{body}</tbody></table></div>"
