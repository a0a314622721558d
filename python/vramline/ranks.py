"""The highest peak of all ranks of a distributed training, without a collective call.

A collective call would wait for every rank, and could block the training. Each rank writes its peak to the key-value store that
`torch.distributed` was started with, and the first rank reads what is there.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


class Highest(NamedTuple):
    """The highest peak, in bytes, and the rank that has it."""

    peak: int
    rank: int


class Ranks:
    """This rank among the others. Does nothing in a training with one process."""

    def __init__(self) -> None:
        self._is_broken = False

    def exchange(self, peak: int | None) -> Highest | None:
        """Tells the others this rank's peak. Returns the highest that is known now; None in other ranks than the first."""
        if self._is_broken:
            return None
        try:
            return self._exchange(peak)
        except Exception:  # The store of an unknown version, or one that is gone: this figure is missing from now on.
            self._is_broken = True
            return None

    def _exchange(self, peak: int | None) -> Highest | None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
            return None
        store = distributed.distributed_c10d._get_default_store()
        rank = distributed.get_rank()
        if rank:
            if peak is not None:
                store.set(_key(rank), str(peak))
            return None
        found = [Highest(peak, 0)] if peak is not None else []
        # `get` would wait for a key that is not there.
        others = [other for other in range(1, distributed.get_world_size()) if store.check([_key(other)])]
        found += [Highest(int(_text(store.get(_key(other)))), other) for other in others]
        return max(found, key=lambda each: each.peak, default=None)


def _key(rank: int) -> str:
    return f"vramline/peak/{rank}"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
