"""Which objects of a program hold memory on a device: the tensors and arrays that Python can reach from named objects.

The walk follows references as Python's garbage collector does. It reads no values, makes no tensors and changes nothing. Memory that a
framework holds on its own is not found: what it saved for a backward pass, its workspaces, the rounding of its pool.
"""

from __future__ import annotations

import gc
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from vramline.frameworks import jax as jax_adapter
from vramline.frameworks import tensorflow as tensorflow_adapter
from vramline.frameworks.counters import shape_text

# A walk ends after this many objects or seconds, and says so.
_MOST_OBJECTS = 2_000_000
_MOST_SECONDS = 5.0
# Nothing behind these belongs to the object that leads to them, or nothing is behind them at all.
_OPAQUE = (
    types.ModuleType, type, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType,
    str, bytes, bytearray, int, float, complex, types.NoneType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
# The shell of a notebook leads to every cell and every output.
_SHELLS = ("IPython", "ipykernel", "traitlets", "zmq", "asyncio", "threading", "logging")


class Block(NamedTuple):
    """A tensor or array on a device. Several objects may share one: views, and variables that were not written to since."""

    device: str
    framework: str
    place: int
    bytes: int
    text: str


class Holder(NamedTuple):
    """A named object and the blocks that it holds.

    Attributes:
        name: The name, such as "model" or "Out[3]".
        type: The type of the object; for a single tensor also its element type and shape.
        bytes: Bytes of the blocks that no earlier holder has: over all holders they add up.
        only: Bytes that no other holder reaches. They are freed when this name goes away.
    """

    name: str
    type: str
    bytes: int
    only: int


class Held(NamedTuple):
    """What named objects hold on a device.

    Attributes:
        holders: Those that hold something, in the order of the names.
        bytes: Bytes of all blocks, each counted once.
        is_complete: Whether everything was searched.
    """

    holders: list[Holder]
    bytes: int
    is_complete: bool


_Sized = Callable[[Any], "list[Block]"]
# By type: how the memory of its objects is read; None for other objects.
_kinds: dict[type, _Sized | None] = {}


def _kind(of: type) -> _Sized | None:
    if of not in _kinds:
        _kinds[of] = _find_kind(of)
    return _kinds[of]


def _find_kind(of: type) -> _Sized | None:
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if isinstance(tensor, type) and issubclass(of, tensor):
        return _of_torch
    if of.__name__ == "ArrayImpl" and of.__module__.startswith(("jax", "jaxlib")):
        return _of_jax
    if of.__name__ == "EagerTensor" and of.__module__.startswith("tensorflow"):
        return _of_tensorflow
    variables = sys.modules.get("tensorflow.python.ops.resource_variable_ops")
    base = getattr(variables, "BaseResourceVariable", None)
    return _of_tensorflow if isinstance(base, type) and issubclass(of, base) else None


def _of_torch(tensor: Any) -> list[Block]:
    kind = tensor.device.type
    device = f"GPU:{tensor.device.index or 0}" if kind == "cuda" else f"{kind.upper()}:{tensor.device.index or 0}"
    storage = getattr(tensor, "untyped_storage", None)
    if storage is not None:
        place, size = storage().data_ptr(), storage().nbytes()
    else:
        place, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return [Block(device, "torch", place, size, _text(tensor.dtype, tensor.shape))] if place and size else []


def _of_jax(array: Any) -> list[Block]:
    parts = jax_adapter.parts_of(array)
    place = array.unsafe_buffer_pointer() if len(parts) == 1 and len(array.devices()) == 1 else id(array)
    return [Block(device, "jax", place, size, _text(array.dtype, array.shape)) for device, size in parts]


def _of_tensorflow(value: Any) -> list[Block]:
    size = value.dtype.size * (value.shape.num_elements() or 0)
    # Handles of variables have elements of this kind, and strings are on the host.
    if not size or value.dtype.name in ("resource", "variant", "string"):
        return []
    try:
        place = tensorflow_adapter.address(value) or id(value)
    except Exception:  # Some element types cannot be exported: then nothing is known of sharing.
        place = id(value)
    return [Block(str(value.device).split("device:")[-1], "tensorflow", place, size, _text(value.dtype, value.shape))]


def _text(dtype: Any, shape: Iterable[int]) -> str:
    return (getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")) + shape_text(shape)


class _Walk:
    """Follows references from one root after the other, until the budget is spent."""

    def __init__(self) -> None:
        self._left = _MOST_OBJECTS
        self._until = time.monotonic() + _MOST_SECONDS
        # By identity, while the objects are alive: a tensor is measured once.
        self._measured: dict[int, list[Block]] = {}
        self._kept: list[Any] = []
        self.is_complete = True

    def reach(self, roots: Iterable[Any]) -> set[Block]:
        """Returns the blocks that these objects lead to."""
        found: set[Block] = set()
        waiting, seen = list(roots), set[int]()
        while waiting:
            this = waiting.pop()
            if isinstance(this, _OPAQUE) or id(this) in seen:
                continue
            seen.add(id(this))
            self._left -= 1
            if self._left < 0 or (self._left % 4096 == 0 and time.monotonic() > self._until):
                self.is_complete = False
                break
            kind = _kind(type(this))
            if kind is not None:
                found.update(self._measure(kind, this))
            waiting += _behind(this, is_tensor=kind is not None)
        return found

    def _measure(self, kind: _Sized, this: Any) -> list[Block]:
        if id(this) not in self._measured:
            try:
                self._measured[id(this)] = kind(this)
            except Exception:  # A tensor without memory of its own, such as a sparse or a donated one.
                self._measured[id(this)] = []
            self._kept.append(this)
        return self._measured[id(this)]


def _behind(this: Any, is_tensor: bool) -> list[Any]:
    """Returns what an object refers to and owns."""
    of = type(this)
    if is_tensor:
        # Beyond its attributes, a tensor leads to its framework. PyTorch keeps gradients outside of Python.
        gradient = this.grad if hasattr(this, "is_leaf") and this.is_leaf else None
        return [*getattr(this, "__dict__", {}).values(), gradient]
    if of is types.FunctionType:
        return [this.__closure__, this.__defaults__, this.__kwdefaults__, this.__dict__]
    if str(of.__module__).partition(".")[0] in _SHELLS:
        return []
    # A namespace of a module belongs to no object.
    if of is dict and "__builtins__" in this:
        return []
    return gc.get_referents(this)


def blocks_of(roots: Iterable[Any]) -> set[Block]:
    """Returns the blocks that objects hold, on every device."""
    return _Walk().reach(roots)


def held(roots: Mapping[str, Any], device: str, framework: str | None = None) -> Held:
    """Finds what named objects hold on a device.

    Args:
        roots: The objects by name. A block that several of them reach counts for the first.
        device: The name of the device, such as "GPU:0".
        framework: Count only tensors of this framework.
    """
    walk = _Walk()
    reached = {
        name: {block for block in walk.reach([root]) if block.device == device and framework in (None, block.framework)}
        for name, root in roots.items()
    }
    owners: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], int] = {}
    for blocks in reached.values():
        for key, size in _whole(blocks).items():
            owners[key] = owners.get(key, 0) + 1
            sizes[key] = max(size, sizes.get(key, 0))
    holders, counted = [], set[tuple[str, int]]()
    for name, blocks in reached.items():
        mine = set(_whole(blocks))
        new = mine - counted
        counted |= new
        if mine:
            only = sum(sizes[key] for key in mine if owners[key] == 1)
            root = roots[name]
            text = next(iter(blocks)).text if _kind(type(root)) is not None and len(blocks) == 1 else ""
            holders.append(Holder(name, f"{type(root).__name__} {text}".strip(), sum(sizes[key] for key in new), only))
    return Held(holders, sum(sizes.values()), walk.is_complete)


def _whole(blocks: set[Block]) -> dict[tuple[str, int], int]:
    """Returns the size of each place: a view may be smaller than the block that it is part of."""
    sizes: dict[tuple[str, int], int] = {}
    for block in blocks:
        key = (block.framework, block.place)
        sizes[key] = max(block.bytes, sizes.get(key, 0))
    return sizes
