"""The adapter for JAX.

For a GPU, JAX reports the bytes in use, the peak, the size of the pool and its limit. For a CPU it reports nothing. It cannot reset
the peak.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from vramline.frameworks.adapter import Counters, Limit, NotResettable, requested_limit

NAME = "jax"
_PLATFORMS = {"cuda": "GPU", "gpu": "GPU", "rocm": "GPU", "tpu": "TPU", "cpu": "CPU"}


def _backends() -> dict[str, Any]:
    bridge = sys.modules.get("jax._src.xla_bridge")
    # JAX opens its backends one after the other, the CPU first, under a lock. Until all are open, none counts as used.
    lock = getattr(bridge, "_backend_lock", None)
    if getattr(bridge, "_default_backend", None) is None or getattr(lock, "locked", bool)():
        return {}
    return getattr(bridge, "_backends", None) or {}


def is_used() -> bool:
    """Returns whether the program has made JAX open its backends. Reading counters earlier would open them."""
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
    """Returns the accelerators, or the CPU if there are none."""
    return list(_local())


def read(device: str) -> Counters:
    """Returns the counters of a device."""
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


def name_of(device: Any) -> str:
    """Returns the name of one of JAX's devices, such as "GPU:0". Accelerators are numbered in this process."""
    platform = _PLATFORMS.get(device.platform, device.platform.upper())
    local: list[Any] = next((known for backend in _backends().values() if device in (known := backend.local_devices())), [])
    return f"{platform}:{local.index(device) if device in local else device.id}"


def live_bytes(device: str) -> int:
    """Returns the bytes of all arrays on a device, as JAX lists them."""
    return sum(size for array in sys.modules["jax"].live_arrays() for name, size in parts_of(array) if name == device)


def parts_of(array: Any) -> list[tuple[str, int]]:
    """Returns the devices of this process that hold an array, and how many bytes each holds. Reads and creates no array."""
    if array.is_deleted():
        return []
    size = array.dtype.itemsize * math.prod(array.sharding.shard_shape(array.shape))
    return [(name_of(device), size) for device in array.sharding.addressable_devices]


def ordinal(device: str) -> int:
    """Returns CUDA's number of a device."""
    number = getattr(_local().get(device), "local_hardware_id", None)
    return int(device.partition(":")[2]) if number is None else int(number)


def limit(device: str) -> Limit:
    """Returns the most that the pool of a device may reserve, or why it is unknown."""
    read_now = read(device)
    if read_now.limit is None:
        return Limit(why=read_now.reason or "this version of JAX does not report a limit")
    return Limit(read_now.limit, "framework" if requested_limit() is None else "run")


def reset(device: str) -> None:
    """Raises NotResettable: JAX cannot reset its peak."""
    raise NotResettable("JAX cannot reset its peak: it counts from the start of the process")
