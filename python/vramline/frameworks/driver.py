"""The memory of devices according to the driver, and the memory of the host according to the kernel.

The driver's library is loaded on first use. No CUDA context is created.

Frameworks number only the devices that CUDA shows them; the driver numbers all devices. The UUID of a device connects the two. It comes
from CUDA if the program has initialised CUDA, otherwise from the environment variables.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from vramline import _vramline

_NO_DRIVER = "a CPU has no driver: see host_total, host_available and host_resident of memory_info"


class Figures(NamedTuple):
    """Bytes of a device as the driver reports them; None with a reason for what it does not report."""

    total: int | None = None
    reserved: int | None = None
    free: int | None = None
    used: int | None = None
    process: int | None = None
    why: str | None = None
    why_process: str | None = None
    uuid: str | None = None


class HostFigures(NamedTuple):
    """Bytes of host memory as the kernel reports them; None for what it does not report."""

    total: int | None = None
    available: int | None = None
    resident: int | None = None


def host() -> HostFigures:
    """Returns the host's memory, and what this process holds of it."""
    whole, available = _vramline.host_memory() or (None, None)
    return HostFigures(whole, available, _vramline.resident_bytes())


def _script() -> str | None:
    # For tests: the file that a fake driver replays.
    return os.environ.get("VRAMLINE_FAKE_DRIVER") or None


def facts() -> dict[str, Any]:
    """Returns facts about the driver (`library`) and all its devices (`devices`); `error` and `hint` if there is no driver."""
    return json.loads(_vramline.driver_json(_script()))


def _asked_of_cuda(ordinal: int) -> str | None:
    """Returns the end of a device's UUID, from the CUDA library that the program has loaded and initialised; None if it has not."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or ask(uuid, device):
            return None
    except (OSError, AttributeError):
        return None
    digits = bytes(uuid).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uuid_of(ordinal: int) -> str | None:
    """Returns the UUID of the device that has CUDA's number `ordinal` in this process."""
    told = None if _script() else _asked_of_cuda(ordinal)
    if told is not None:
        return told
    environment = os.environ
    uuid, _ = _vramline.driver_visible(
        ordinal, environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER"), _script()
    )
    return uuid


def figures(device: str, ordinal: int | None = None) -> Figures:
    """Returns the driver's figures of a device such as "GPU:0". Never raises.

    A CPU has no driver: there only `process` is known, from the kernel.
    """
    kind, _, number = device.partition(":")
    if kind.upper() == "CPU":
        return Figures(process=host().resident, why=_NO_DRIVER, why_process="the kernel does not report it")
    if kind.upper() != "GPU" or not (number.isdigit() or ordinal is not None):
        no_driver = f"Vramline has no driver interface for {device}"
        return Figures(why=no_driver, why_process=no_driver)
    uuid = uuid_of(int(number) if ordinal is None else ordinal)
    if uuid is None:
        error = facts().get("error")
        why = error or f"CUDA shows no {device} to this process; check CUDA_VISIBLE_DEVICES"
        return Figures(why=why, why_process=why)
    (total, reserved, free, used, process), why, why_process = _vramline.driver_memory(uuid, _script())
    return Figures(total, reserved, free, used, process, why, why_process, uuid)
