"""Divides the memory of a device among driver, processes and pools. The lines add up, and each names its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from vramline.shown import table


class Line(NamedTuple):
    """A line of a ledger. Its bytes are the sum of the lines that are part of it.

    Attributes:
        line: What the line counts, such as "device total", "this job", "pool" or "in use".
        detail: More about the line, such as the name of a pool; may be empty.
        bytes: The number of bytes; None if it is unknown, negative for a correction.
        source: Where the number comes from: "driver", "host" (the kernel), "framework", "trace", "replay", "derived" or
            "estimated".
        reason: Why the number is unknown; empty if it is known.
        part_of: The index of the line that this one is part of; None if it is part of no other.
        depth: The level of the line: 0 for the outermost.
    """

    line: str
    detail: str
    bytes: int | None
    source: str
    reason: str
    part_of: int | None
    depth: int


class Ledger:
    """The memory of a device at one moment, divided into lines that add up. Print it for a table.

    `MemoryInfo.ledger` and `Run.ledgers` return it.

    Attributes:
        device: The name of the device, such as "GPU:0".
        lines: A list of `Line`.
    """

    def __init__(self, device: str, lines: list[Line]) -> None:
        self.device = device
        self.lines = lines

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __getitem__(self, line: str) -> int | None:
        """Returns the bytes of all lines with this name, such as `ledger["pool"]`; None if one of them is unknown."""
        found = [each.bytes for each in self.lines if each.line == line]
        if not found:
            raise KeyError(line)
        return None if None in found else sum(bytes_ for bytes_ in found if bytes_ is not None)

    @property
    def adds_up(self) -> bool:
        """Whether every known line is the sum of its known parts. False would be a bug in Vramline."""
        for place, line in enumerate(self.lines):
            parts = [part.bytes for part in self.lines if part.part_of == place and part.bytes is not None]
            if line.bytes is not None and parts and sum(parts) != line.bytes:
                return False
        return True

    def _repr_html_(self) -> str:
        rows = [
            ["\u2003" * line.depth + line.line, "unknown" if line.bytes is None else f"{line.bytes:,}", line.source,
             line.reason if line.bytes is None else line.detail]
            for line in self.lines
        ]
        return table(f"Memory of {self.device}", ["line", "bytes", "source", "detail"], rows)

    def __str__(self) -> str:
        rows = [f"memory of {self.device}, in bytes"]
        for line in self.lines:
            told = "unknown" if line.bytes is None else f"{line.bytes:,}"
            about = line.reason if line.bytes is None else line.detail
            name = "  " * line.depth + line.line + (f" ({about})" if about else "")
            rows.append(f"  {told:>18}  {name}  [{line.source}]")
        return "\n".join(rows)


def parse(text: str) -> list[Ledger]:
    """Reads ledgers from JSON: a list of lines, or a list of such lists."""
    told = json.loads(text)
    lists = told if told and isinstance(told[0], list) else [told]
    return [Ledger(lines[0]["device"], [_line(each) for each in lines]) for lines in lists if lines]


def _line(told: dict) -> Line:
    return Line(**{name: told[name] for name in Line._fields})
