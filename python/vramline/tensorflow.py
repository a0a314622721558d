"""Counters of TensorFlow.

TensorFlow tells the bytes in use and the peak of a device, both as the pool counts: chunks, with slack. It tells neither
the pool's size nor its limit; the limit is known where a logical device was configured, or from the CPU pool's variable. Without
that variable the pool on the CPU has a built-in default, which no memory backs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from vramline import _vramline
from vramline.adapter import Counters, Limit, asked_limit, resets

NAME = "tensorflow"
_MIB = 1 << 20
# TensorFlow's built-in default for its pool on the CPU, whatever memory the machine has.
_CPU_LIMIT_MIB = 65536

# What is asked at every step, looked up once; anew where the program has reset its context.
_module: Any = None
_handle: Any = None
_devices: list[str] = []
_ask: Any = None
_forget: Any = None
_reset_at = resets(NAME)


def _context() -> Any:
    global _module
    if _module is None:
        _module = sys.modules.get("tensorflow.python.eager.context")
    return getattr(_module, "_context", None)


def is_used() -> bool:
    """Whether the program has made TensorFlow use its devices. Asking earlier would do so for it."""
    context = _context()
    return context is not None and context._initialized


def devices() -> list[str]:
    """GPUs where there are any, else the CPU. Logical CPUs share one pool: the first stands for all."""
    global _handle, _devices, _ask, _forget
    context = _context()
    if context._context_handle is not _handle:
        logical = [device.name for device in context._logical_devices or []]
        short = [name.split("device:")[-1] for name in logical]
        gpus = [name for name in short if name.startswith("GPU:")]
        _devices = gpus or [name for name in short if name.startswith("CPU:")][:1]
        wrapped = sys.modules["tensorflow.python.pywrap_tfe"]
        _ask, _forget = wrapped.TFE_GetMemoryInfo, wrapped.TFE_ResetMemoryStats
        _handle = context._context_handle
    return _devices


def read(device: str) -> Counters:
    """The counters of one of the devices."""
    try:
        told = _ask(_handle, device)
    except Exception as error:
        return Counters(device, reason=f"TensorFlow does not count this device's memory: {error}{_switch(device)}")
    return Counters(device, told["current"], told["peak"], _reset_at.get(device))


def _switch(device: str) -> str:
    """What would let TensorFlow count."""
    if not device.startswith("CPU:") or os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        return ""
    return "; TF_CPU_ALLOCATOR_USE_BFC=1, set before TensorFlow starts, gives the CPU a pool that is counted"


def plan() -> _vramline.Plan:
    """All that a step asks, in one call a device. It holds until the program resets its context."""
    known = list(devices())
    return _vramline.Plan((_context(), "_context_handle", _handle), _ask, _forget, known, _reset_at)


def _placed(kind: str, number: int) -> tuple[Any, Any]:
    """The physical device of a logical one, and how it was configured."""
    context, at = _context(), 0
    visible = getattr(context, "_visible_device_list", None)
    for physical in context._physical_devices or []:
        if physical.device_type != kind or (visible and physical not in visible):
            continue
        for logical in context._virtual_device_map.get(physical) or [None]:
            if at == number:
                return physical, logical
            at += 1
    return None, None


def ordinal(device: str) -> int:
    """CUDA's number of a device: TensorFlow's logical ones may share one, and some may be hidden."""
    kind, _, number = device.partition(":")
    physical, _ = _placed(kind, int(number))
    told = getattr(physical, "name", "").rpartition(":")[2]
    return int(told) if told.isdigit() else int(number)


def limit(device: str) -> Limit:
    """The most that the device's pool may take, or why that is not known."""
    kind, _, number = device.partition(":")
    asked = asked_limit()
    if kind == "CPU":
        told = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB")
        if told is None:
            return Limit(_CPU_LIMIT_MIB * _MIB, "built-in")
        if not told.isdigit():
            return Limit(why="TF_CPU_BFC_MEM_LIMIT_IN_MB is no number")
        return Limit(int(told) * _MIB, "run" if asked is not None and asked // _MIB == int(told) else "environment")
    _, logical = _placed(kind, int(number))
    mebibytes = getattr(logical, "memory_limit", None)
    if mebibytes:
        is_ours = asked is not None and asked // _MIB == int(mebibytes)
        return Limit(int(mebibytes) * _MIB, "run" if is_ours else "logical-device")
    return Limit(why="TensorFlow tells a limit only where a logical device with one was configured")


def reset(device: str) -> None:
    """Resets the peak to what is in use now."""
    _forget(_handle, device)


def address(tensor: Any) -> int | None:
    """Where an eager tensor lies. The value is shared for a moment; nothing is copied or kept."""
    value = tensor.read_value() if hasattr(tensor, "read_value") else tensor
    if value.device.endswith("CPU:0"):
        import numpy

        return int(numpy.asarray(memoryview(value)).__array_interface__["data"][0])
    # On a device DLPack tells the address: the first field of the managed tensor.
    import ctypes

    tf = sys.modules["tensorflow"]
    capsule = tf.experimental.dlpack.to_dlpack(value)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = pointer(capsule, b"dltensor")
    return ctypes.c_uint64.from_address(managed).value if managed else None
