"""What the driver says of a device, and what the kernel says of host memory.

The driver's library is loaded when it is first asked for; no CUDA context is made.

Frameworks count the devices that CUDA shows them, the driver counts all. A program that has used CUDA can be asked for the name
that a device has for ever; before that, the environment tells.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from vramline import _vramline

_NO_DRIVER = "host memory has no driver: host_total, host_available and host_resident tell of it"


class Figures(NamedTuple):
    """Bytes of a device by the driver's count; None where it does not tell, with the reason."""

    total: int | None = None
    reserved: int | None = None
    free: int | None = None
    used: int | None = None
    process: int | None = None
    why: str | None = None
    why_process: str | None = None
    uuid: str | None = None


class HostFigures(NamedTuple):
    """Bytes of the machine's own memory by the kernel's count; None where it does not tell."""

    total: int | None = None
    available: int | None = None
    resident: int | None = None


def host() -> HostFigures:
    """The machine's own memory, and what this process holds of it."""
    whole, available = _vramline.host_memory() or (None, None)
    return HostFigures(whole, available, _vramline.resident_bytes())


def _script() -> str | None:
    # For tests: a fake driver that plays this file.
    return os.environ.get("VRAMLINE_FAKE_DRIVER") or None


def facts() -> dict[str, Any]:
    """The driver and all of its devices: `library`, `devices`; `error` and `hint` where there is none."""
    return json.loads(_vramline.driver_json(_script()))


def _asked_of_cuda(ordinal: int) -> str | None:
    """The end of a device's uuid, from the CUDA library that the program has loaded and initialised."""
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
    """The uuid of the device that CUDA counts as `ordinal` in this process."""
    told = None if _script() else _asked_of_cuda(ordinal)
    if told is not None:
        return told
    environment = os.environ
    uuid, _ = _vramline.driver_visible(
        ordinal, environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER"), _script()
    )
    return uuid


def figures(device: str, ordinal: int | None = None) -> Figures:
    """The driver's figures of a device such as `GPU:0`. A CPU has none: there the process's own figure is the kernel's. Never raises."""
    kind, _, number = device.partition(":")
    if kind.upper() == "CPU":
        return Figures(process=host().resident, why=_NO_DRIVER, why_process="the kernel does not tell")
    if kind.upper() != "GPU" or not (number.isdigit() or ordinal is not None):
        return Figures(why=f"no driver is asked about {device}", why_process=f"no driver is asked about {device}")
    uuid = uuid_of(int(number) if ordinal is None else ordinal)
    if uuid is None:
        error = facts().get("error")
        why = error or f"CUDA shows no {device} here: see CUDA_VISIBLE_DEVICES"
        return Figures(why=why, why_process=why)
    (total, reserved, free, used, process), why, why_process = _vramline.driver_memory(uuid, _script())
    return Figures(total, reserved, free, used, process, why, why_process, uuid)
