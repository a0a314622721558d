"""Which variables a model and its optimizer own, with their bytes and where they lie."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from vramline.counters import shape_text
from vramline.words import Role

Row = tuple[str | None, str, Role, str | None, str | None, int, str | None, int | None]


def of_keras(model: Any, optimizer: Any = None) -> list[Row]:
    """The variables of a Keras model and its optimizer, of any Keras and backend."""
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    rows: list[Row] = []
    seen: set[int] = set()
    owner = getattr(model, "name", None) if model is not None else None
    weights = getattr(model, "weights", None) or []
    _add(rows, seen, weights, owner, "parameters")
    # Seeds and metrics are variables too, but neither parameters nor the optimizer's.
    _add_states(rows, seen, optimizer)
    _add(rows, seen, getattr(model, "variables", None) or [], owner, "unknown")
    return rows


def of_variables(variables: Iterable[Any], optimizer: Any) -> list[Row]:
    """Variables that an optimizer was given, without a model that is known, and its own."""
    rows: list[Row] = []
    seen: set[int] = set()
    _add(rows, seen, variables, None, "parameters")
    _add_states(rows, seen, optimizer)
    return rows


def of_torch(optimizer: Any) -> list[Row]:
    """The parameters that a PyTorch optimizer was given, their gradients left out, and its state."""
    rows: list[Row] = []
    owner = type(optimizer).__name__
    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            rows.append(_torch_row(None, f"parameter {number}", "parameters", parameter))
            for name, state in optimizer.state.get(parameter, {}).items():
                if hasattr(state, "data_ptr"):
                    rows.append(_torch_row(owner, f"parameter {number} {name}", "optimizer", state))
            number += 1
    return rows


def _add_states(rows: list[Row], seen: set[int], optimizer: Any) -> None:
    states = getattr(optimizer, "variables", None)
    # A list in Keras 3, a function in some optimizers of Keras 2.
    states = states() if callable(states) else states
    _add(rows, seen, states or [], getattr(optimizer, "name", None), "optimizer")


def _torch_row(owner: str | None, name: str, role: Role, tensor: Any) -> Row:
    device = f"GPU:{tensor.device.index or 0}" if tensor.device.type == "cuda" else "CPU:0"
    size = tensor.numel() * tensor.element_size()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return (owner, name, role, shape_text(tensor.shape), dtype, size, device, tensor.data_ptr() or None)


def _add(rows: list[Row], seen: set[int], variables: Iterable[Any], owner: str | None, role: Role) -> None:
    for variable in variables:
        if id(variable) in seen:
            continue
        seen.add(id(variable))
        name = getattr(variable, "path", "") or getattr(variable, "name", "")
        # Keras 3 wraps the framework's variable.
        value = getattr(variable, "_value", None)
        value = variable if value is None or callable(value) else value
        rows.extend(_row(owner, name, role, each) for each in _replicas(value))


def _replicas(value: Any) -> list[Any]:
    """A variable of `tf.distribute` has a value on every device."""
    values = getattr(value, "values", None)
    return list(values) if isinstance(values, tuple) else [value]


def _row(owner: str | None, name: str, role: Role, value: Any) -> Row:
    dtype = getattr(value.dtype, "name", None) or str(value.dtype).removeprefix("torch.")
    shape = shape_text(value.shape)
    device, address = None, None
    if hasattr(value, "data_ptr"):
        return _torch_row(owner, name, role, value)
    if hasattr(value, "read_value"):
        from vramline import tensorflow

        device = str(value.device).split("device:")[-1] or None
        try:
            address = tensorflow.address(value)
        except Exception:  # A place is an extra; its absence is a null.
            address = None
    elif hasattr(value, "unsafe_buffer_pointer"):
        try:
            address = value.unsafe_buffer_pointer()
        except Exception:  # Sharded arrays have several.
            address = None
    size = getattr(value, "nbytes", None)
    if not isinstance(size, int):
        count = 1
        for extent in value.shape:
            count *= int(extent)
        size = count * _bytes_of(value.dtype, dtype)
    return (owner, name, role, shape, dtype, int(size), device, address)


def _bytes_of(dtype: Any, name: str) -> int:
    size = getattr(dtype, "size", None)
    if isinstance(size, int):
        return size
    numpy = sys.modules.get("numpy")
    return int(numpy.dtype(name).itemsize) if numpy else 4
