"""Reads the total memory of a GPU from the driver, for `--limit`. It creates no CUDA context."""

from __future__ import annotations

import ctypes
import os


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def total_memory() -> int | None:
    """Returns the bytes of the first visible GPU; None if there is no GPU or no driver library."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "-1"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
        device, memory = ctypes.c_void_p(), _Memory()
        if first.lstrip("-").isdigit():
            found = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(first)), ctypes.byref(device))
        else:
            found = nvml.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(device))
        told = found or nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        nvml.nvmlShutdown()
        return None if told else int(memory.total)
    except (OSError, AttributeError):
        return None
