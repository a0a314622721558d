"""Who holds which byte of a device: lines that add up, each with its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from vramline.shown import table


class Line(NamedTuple):
    """A line of a ledger. It is the sum of the lines that are part of it."""

    line: str
    """What it is, as in `device total`, `this job`, `pool`, `in use`."""
    detail: str
    bytes: int | None
    """None where nobody tells; negative where something is taken off again."""
    source: str
    """Who told: driver; host, the kernel of host memory; framework, trace, replay, derived or estimated."""
    reason: str
    part_of: int | None
    depth: int


class Ledger:
    """The memory of a device at one moment."""

    def __init__(self, device: str, lines: list[Line]) -> None:
        self.device = device
        self.lines = lines

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __getitem__(self, line: str) -> int | None:
        """The bytes of a line by its name, of all such lines together; None where nobody tells."""
        found = [each.bytes for each in self.lines if each.line == line]
        if not found:
            raise KeyError(line)
        return None if None in found else sum(bytes_ for bytes_ in found if bytes_ is not None)

    @property
    def adds_up(self) -> bool:
        """Whether every known line is the sum of its known parts. Always, or it is our mistake."""
        for place, line in enumerate(self.lines):
            parts = [part.bytes for part in self.lines if part.part_of == place and part.bytes is not None]
            if line.bytes is not None and parts and sum(parts) != line.bytes:
                return False
        return True

    def _repr_html_(self) -> str:
        rows = [
            ["\u2003" * line.depth + line.line, "not known" if line.bytes is None else f"{line.bytes:,}", line.source,
             line.reason if line.bytes is None else line.detail]
            for line in self.lines
        ]
        return table(f"The ledger of {self.device}", ["line", "bytes", "source", ""], rows)

    def __str__(self) -> str:
        rows = [f"the ledger of {self.device}"]
        for line in self.lines:
            told = "not known" if line.bytes is None else f"{line.bytes:,}"
            about = line.reason if line.bytes is None else line.detail
            name = "  " * line.depth + line.line + (f" ({about})" if about else "")
            rows.append(f"  {told:>18}  {name}  [{line.source}]")
        return "\n".join(rows)


def parse(text: str) -> list[Ledger]:
    """The ledgers of a JSON list: of lines, or of lists of them."""
    told = json.loads(text)
    lists = told if told and isinstance(told[0], list) else [told]
    return [Ledger(lines[0]["device"], [_line(each) for each in lines]) for lines in lists if lines]


def _line(told: dict) -> Line:
    return Line(**{name: told[name] for name in Line._fields})
