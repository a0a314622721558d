"""The adapter for PyTorch: the counters of its caching allocator on CUDA. PyTorch does not count CPU memory."""

from __future__ import annotations

import sys
from typing import Any

from vramline import _vramline
from vramline.frameworks.adapter import Counters, Limit, requested_limit, resets

NAME = "torch"
_reset_at = resets(NAME)


def _torch() -> Any:
    return sys.modules["torch"]


def is_used() -> bool:
    """Returns whether the program has initialised CUDA. Reading counters earlier would initialise it."""
    cuda = getattr(_torch(), "cuda", None)
    # While torch is being imported, some of its modules do not exist yet.
    return bool(cuda and getattr(cuda, "is_initialized", bool)())


def devices() -> list[str]:
    """Returns the GPUs that the program may use."""
    return [f"GPU:{number}" for number in range(_torch().cuda.device_count())]


def read(device: str) -> Counters:
    """Returns the counters of a device."""
    number = int(device.partition(":")[2])
    # The public function is slower: it flattens about a hundred figures of this nested dict.
    ask = getattr(_torch()._C, "_cuda_memoryStats", None)
    told = ask(number) if ask else _torch().cuda.memory_stats_as_nested_dict(number)
    allocated, reserved = told["allocated_bytes"]["all"], told["reserved_bytes"]["all"]
    return Counters(device, allocated["current"], allocated["peak"], _reset_at.get(device), reserved["current"])


def plan() -> _vramline.Plan | None:
    """Prepares reading the counters with one call per device; None for a version of PyTorch without these calls. CUDA must be in use."""
    cuda, calls = _torch().cuda, _torch()._C
    ask = getattr(calls, "_cuda_memoryStats", None)
    if ask is None or getattr(cuda, "_initialized", None) is not True:
        return None
    # The public function converts its argument to a number, and calls this one.
    forget = getattr(calls, "_cuda_resetPeakMemoryStats", None) or cuda.reset_peak_memory_stats
    known = [(device, (ordinal(device),)) for device in devices()]
    allocated = ("allocated_bytes", "all")
    keys = ((*allocated, "current"), (*allocated, "peak"), ("reserved_bytes", "all", "current"))
    return _vramline.Plan((cuda, "_initialized", True), ask, forget, known, _reset_at, *keys)


def pinned() -> list[Counters]:
    """Returns the counters of pinned host memory; nothing if this version of PyTorch does not count it. CUDA must be in use."""
    ask = getattr(_torch()._C, "_cuda_hostMemoryStats", None)
    told = ask() if ask is not None else None
    if not told or "active_bytes" not in told or "allocated_bytes" not in told:
        return []
    active, owned = told["active_bytes"], told["allocated_bytes"]
    if not owned["peak"]:
        # The program has pinned nothing.
        return []
    # Peaks are a best effort of PyTorch: a sum over sizes, which may have been reached at different times.
    return [Counters("HOST:pinned", active["current"], active["peak"], None, owned["current"])]


def ordinal(device: str) -> int:
    """Returns CUDA's number of a device."""
    return int(device.partition(":")[2])


def limit(device: str) -> Limit:
    """Returns the most that the pool of a device may reserve, or why it is unknown."""
    number = int(device.partition(":")[2])
    ask = getattr(_torch().cuda, "get_per_process_memory_fraction", None)
    if ask is None:
        return Limit(why="this version of PyTorch does not report the memory fraction")
    fraction = ask(number)
    total = _torch().cuda.get_device_properties(number).total_memory
    if fraction >= 1.0:
        return Limit(why="no limit was set: PyTorch's pool may use all memory of the device")
    return Limit(int(total * fraction), "framework" if requested_limit() is None else "run")


def reset(device: str) -> None:
    """Resets the peak of a device to what is in use now."""
    _torch().cuda.reset_peak_memory_stats(int(device.partition(":")[2]))
