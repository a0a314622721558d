"""The highest peak of all ranks of a distributed training, without a collective call.

A collective call would wait for every rank, and could block the training. Each rank writes its peak to the key-value store that
`torch.distributed` was started with, and the first rank reads what is there.
"""

from __future__ import annotations

import itertools
import sys
from typing import NamedTuple


class Highest(NamedTuple):
    """The highest peak, in bytes, and the rank that has it."""

    peak: int
    rank: int


# Trainings of this process. Every rank counts the same ones.
_trainings = itertools.count()


class Ranks:
    """This rank among the others, in one training. Does nothing in a training with one process."""

    def __init__(self) -> None:
        self._training = next(_trainings)
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
        # The only way to the store is private; an error is caught above.
        store = distributed.distributed_c10d._get_default_store()
        rank = distributed.get_rank()
        if rank:
            if peak is not None:
                store.set(self._key(rank), str(peak))
            return None
        found = [Highest(peak, 0)] if peak is not None else []
        others = range(1, distributed.get_world_size())
        keys = [self._key(other) for other in others]
        # In two calls once every rank has written; the store waits for a key that is not there.
        if store.has_extended_api() and store.check(keys):
            found += [Highest(int(value), other) for other, value in zip(others, store.multi_get(keys))]
        else:
            found += [Highest(int(store.get(key)), other) for other, key in zip(others, keys) if store.check([key])]
        return max(found, key=lambda each: each.peak, default=None)

    def _key(self, rank: int) -> str:
        return f"vramline/training-{self._training}/peak/{rank}"
