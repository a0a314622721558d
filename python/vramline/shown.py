"""Sizes and tables formatted for terminals, plots and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The first columns of a sheet are text.
_TEXT_COLUMNS = 2
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


def change_text(size: int | None) -> str:
    """Formats a change with its sign and unit, such as "+1.5 MiB"; "?" if it is unknown."""
    return "?" if size is None else f"{'-' if size < 0 else '+'}{size_text(abs(size))}" if size else "0 B"


class Sheet:
    """Sentences and a table, for a notebook and for a terminal.

    Attributes:
        title: The first line.
        columns: The titles of the columns. From the third on they are numbers.
        rows: The cells of each row.
        notes: Sentences below the table.
    """

    def __init__(
        self, title: str, columns: Sequence[str] = (), rows: Sequence[Sequence[object]] = (), notes: Sequence[str] = ()
    ) -> None:
        self.title, self.columns, self.rows, self.notes = title, columns, rows, notes

    def __str__(self) -> str:
        lines = [self.title]
        head = [self.columns] if any(self.columns) else []
        cells = [[str(cell) for cell in row] for row in (*head, *self.rows)] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            shown = (
                cell.ljust(width) if number < _TEXT_COLUMNS else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  " + "  ".join(shown).rstrip())
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        def cell(tag: str, number: int, value: object) -> str:
            side = "left" if number < _TEXT_COLUMNS else "right"
            # A long description may be wrapped; names and numbers are read as a whole.
            wrap = "normal" if number == _TEXT_COLUMNS - 1 else "nowrap"
            return f'<{tag} style="text-align:{side};white-space:{wrap}">{html.escape(str(value))}</{tag}>'

        def line(tag: str, row: Sequence[object]) -> str:
            return f"<tr>{''.join(cell(tag, number, value) for number, value in enumerate(row))}</tr>"

        body = "".join(line("td", row) for row in self.rows)
        inner = f"<table><thead>{line('th', self.columns)}</thead><tbody>{body}</tbody></table>" if self.rows else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<div><p><b>{html.escape(self.title)}</b></p>{inner}{notes}</div>"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns an HTML table for a notebook. All text is escaped, because names come from files."""
    import html

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    return f"<div><p>{html.escape(title)}</p><table>{head}<tbody>{body}</tbody></table></div>"
