"""Counters of JAX.

JAX tells the bytes in use, the peak, the pool and its limit of a GPU, and nothing of a CPU. It cannot reset the peak.
"""

from __future__ import annotations

import sys
from typing import Any

from vramline.adapter import Counters, Limit, NotResettable, asked_limit

NAME = "jax"
_PLATFORMS = {"cuda": "GPU", "gpu": "GPU", "rocm": "GPU", "tpu": "TPU", "cpu": "CPU"}


def _backends() -> dict[str, Any]:
    bridge = sys.modules.get("jax._src.xla_bridge")
    # Backends are opened one after the other, the CPU first, under a lock: until then nothing is in use.
    lock = getattr(bridge, "_backend_lock", None)
    if getattr(bridge, "_default_backend", None) is None or getattr(lock, "locked", bool)():
        return {}
    return getattr(bridge, "_backends", None) or {}


def is_used() -> bool:
    """Whether the program has made JAX open a backend. Asking earlier would do so for it."""
    return bool(_backends())


def _local() -> dict[str, Any]:
    found = {}
    for backend in _backends().values():
        for number, device in enumerate(backend.local_devices()):
            found[f"{_PLATFORMS.get(device.platform, device.platform.upper())}:{number}"] = device
    if any(not name.startswith("CPU") for name in found):
        found = {name: device for name, device in found.items() if not name.startswith("CPU")}
    else:
        # Virtual CPU devices share one memory.
        found = dict(list(found.items())[:1])
    return found


def devices() -> list[str]:
    """Accelerators where there are any, else the CPU."""
    return list(_local())


def read(device: str) -> Counters:
    """The counters of a device."""
    told = _local()[device].memory_stats()
    if not told:
        return Counters(device, reason=f"JAX keeps no memory statistics of a {device.partition(':')[0]}")
    return Counters(
        device,
        told.get("bytes_in_use"),
        told.get("peak_bytes_in_use"),
        None,
        told.get("pool_bytes"),
        told.get("bytes_limit"),
    )


def ordinal(device: str) -> int:
    """CUDA's number of a device."""
    number = getattr(_local().get(device), "local_hardware_id", None)
    return int(device.partition(":")[2]) if number is None else int(number)


def limit(device: str) -> Limit:
    """The most that the device's pool may take, or why that is not known."""
    read_now = read(device)
    if read_now.limit is None:
        return Limit(why=read_now.reason or "this version of JAX tells no limit")
    return Limit(read_now.limit, "framework" if asked_limit() is None else "run")


def reset(device: str) -> None:
    """JAX has no way to reset its peak."""
    raise NotResettable("JAX cannot reset its peak: it counts from the start of the process")
