"""The adapter for TensorFlow.

TensorFlow reports the bytes in use and the peak of a device, both as its pool counts them: blocks, rounding included. It reports neither
the size of the pool nor its limit. The limit is known if the program configured a logical device with one, or from the environment
variable of the CPU pool. Without that variable the CPU pool has a built-in limit that says nothing about the machine's memory.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from vramline import _vramline
from vramline.frameworks.adapter import Counters, Limit, requested_limit, resets

NAME = "tensorflow"
_MIB = 1 << 20
# TensorFlow's default limit of its CPU pool, on every machine.
_CPU_LIMIT_MIB = 65536

# What every step needs, looked up once, and again after the program has reset its context.
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
    """Returns whether the program has initialised TensorFlow's devices. Reading counters earlier would initialise them."""
    context = _context()
    return context is not None and context._initialized


def devices() -> list[str]:
    """Returns the GPUs, or the CPU if there are none. Logical CPUs share one pool: only the first is listed."""
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
    """Returns the counters of one of the devices."""
    try:
        told = _ask(_handle, device)
    except Exception as error:
        return Counters(device, reason=f"TensorFlow does not count the memory of this device: {error}{_switch(device)}")
    return Counters(device, told["current"], told["peak"], _reset_at.get(device))


def _switch(device: str) -> str:
    """Returns which setting would make TensorFlow count the memory."""
    if not device.startswith("CPU:") or os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        return ""
    return "; set TF_CPU_ALLOCATOR_USE_BFC=1 before TensorFlow starts to use a CPU pool that counts"


def plan() -> _vramline.Plan:
    """Prepares reading the counters with one call per device. Valid until the program resets its context."""
    known = [(device, (_handle, device)) for device in devices()]
    guard = (_context(), "_context_handle", _handle)
    return _vramline.Plan(guard, _ask, _forget, known, _reset_at, ("current",), ("peak",))


def _placed(kind: str, number: int) -> tuple[Any, Any]:
    """Returns the physical device of a logical one, and the configuration of the logical one."""
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
    """Returns CUDA's number of a device. Several logical devices of TensorFlow may share one GPU, and some GPUs may be hidden."""
    kind, _, number = device.partition(":")
    physical, _ = _placed(kind, int(number))
    told = getattr(physical, "name", "").rpartition(":")[2]
    return int(told) if told.isdigit() else int(number)


def limit(device: str) -> Limit:
    """Returns the most that the pool of a device may reserve, or why it is unknown."""
    kind, _, number = device.partition(":")
    asked = requested_limit()
    if kind == "CPU":
        told = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB")
        if told is None:
            return Limit(_CPU_LIMIT_MIB * _MIB, "built-in")
        if not told.isdigit():
            return Limit(why="TF_CPU_BFC_MEM_LIMIT_IN_MB is not a number")
        return Limit(int(told) * _MIB, "run" if asked is not None and asked // _MIB == int(told) else "environment")
    _, logical = _placed(kind, int(number))
    mebibytes = getattr(logical, "memory_limit", None)
    if mebibytes:
        is_ours = asked is not None and asked // _MIB == int(mebibytes)
        return Limit(int(mebibytes) * _MIB, "run" if is_ours else "logical-device")
    return Limit(why="TensorFlow reports a limit only for a logical device that was configured with one")


def reset(device: str) -> None:
    """Resets the peak of a device to what is in use now."""
    _forget(_handle, device)


def address(tensor: Any) -> int | None:
    """Returns the address of an eager tensor. The value is shared for a moment; nothing is copied or kept."""
    value = tensor.read_value() if hasattr(tensor, "read_value") else tensor
    if value.device.endswith("CPU:0"):
        import numpy

        return int(numpy.asarray(memoryview(value)).__array_interface__["data"][0])
    # On a GPU, DLPack provides the address: it is the first field of the managed tensor.
    import ctypes

    tf = sys.modules["tensorflow"]
    capsule = tf.experimental.dlpack.to_dlpack(value)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = pointer(capsule, b"dltensor")
    return ctypes.c_uint64.from_address(managed).value if managed else None
