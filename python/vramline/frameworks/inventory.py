"""The variables of a program: of models, of optimizers, and the program's own, with their sizes and addresses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from vramline.frameworks import layers
from vramline.frameworks.counters import shape_text
from vramline.frameworks.module_names import ModuleNames
from vramline.words import Role


class Row(NamedTuple):
    """A variable, as a recording stores it."""

    owner: str | None
    name: str
    role: Role
    shape: str | None
    dtype: str | None
    bytes: int
    device: str | None
    address: int | None
    model: str | None = None
    layer: str | None = None
    source: str | None = None
    number: int | None = None


class Inventory:
    """The variables of a program. Each is listed once, with the first owner that has it."""

    def __init__(
        self,
        models: Iterable[Any] = (),
        number_of: Callable[[Any], int | None] = lambda _: None,
        labels: Mapping[int, str] | None = None,
    ) -> None:
        self.rows: list[Row] = []
        self.by_value: dict[int, Row] = {}
        """Rows by the identity of the framework's own variable."""
        self.has_gradients = False
        """Whether gradients are listed."""
        self._layers = layers.variables(models, labels)
        self._number_of = number_of

    def add_model(self, model: Any, optimizer: Any = None) -> None:
        """Adds the variables of a Keras model and of its optimizer, for every version and backend of Keras."""
        optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        owner = getattr(model, "name", None)
        self.add(getattr(model, "weights", None) or [], "parameters", owner)
        self.add_optimizer(optimizer)
        # Seeds and metrics are variables too, but belong neither to the parameters nor to the optimizer.
        self.add(getattr(model, "variables", None) or [], "state", owner)

    def add_optimizer(self, optimizer: Any, weights: Iterable[Any] = ()) -> None:
        """Adds the weights that a Keras optimizer updates, and its own variables."""
        self.add(weights, "parameters")
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        trained = list(getattr(inner, "_trainable_variables", None) or weights)
        states = getattr(optimizer, "variables", None)
        # `variables` is a list in Keras 3, and a method in some optimizers of Keras 2.
        states = list((states() if callable(states) else states) or [])
        of_slot = slots(states, trained)
        for state in states:
            weight = of_slot.get(id(state))
            if weight is not None and id(weight) in self._layers:
                self._layers.setdefault(id(state), self._layers[id(weight)])
        self.add(states, "optimizer", getattr(optimizer, "name", None))

    def add(self, variables: Iterable[Any], role: Role, owner: str | None = None, source: str | None = None) -> None:
        """Adds variables, unless they are listed already."""
        for variable in variables:
            value = value_of(variable)
            if id(value) in self.by_value:
                continue
            name = getattr(variable, "path", "") or getattr(variable, "name", "")
            place = self._layers.get(id(variable))
            for each in _replicas(value):
                row = _row(owner, name, role, each)._replace(source=source, number=self._number_of(each))
                if place is not None:
                    row = row._replace(model=place.model, layer=place.layer)
                self.by_value[id(value)] = row
                self.rows.append(row)


def of_keras(model: Any) -> list[Row]:
    """Returns the variables of a Keras model and its optimizer."""
    inventory = Inventory([model])
    inventory.add_model(model)
    return inventory.rows


def of_torch(optimizer: Any, names: ModuleNames | None = None) -> list[Row]:
    """Returns the parameters of a PyTorch optimizer, their gradients, and its state. `names` has the names of parameters."""
    known = names.of_parameters() if names is not None else {}
    owner = type(optimizer).__name__
    parts: list[_Part] = []
    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            model, layer, name = known.get(id(parameter), (None, None, f"parameter {number}"))
            parts += _of_parameter(owner, model, layer, name, parameter)
            # A copy: another thread may be training.
            for key, state in list(optimizer.state.get(parameter, {}).items()):
                if hasattr(state, "data_ptr"):
                    parts.append(_Part(owner, model, layer, f"{name} {key}", "optimizer", state))
            number += 1
    return _torch_rows(parts)


def of_torch_training(model: Any, optimizers: Iterable[Any]) -> list[Row]:
    """Returns the variables of a PyTorch module and of the optimizers that train it."""
    names = ModuleNames()
    names.scope(model, None)
    # accelerate wraps optimizers.
    trained = [row for each in optimizers for row in of_torch(getattr(each, "optimizer", each), names)]
    return trained or of_modules(names)


def of_modules(names: ModuleNames) -> list[Row]:
    """Returns the parameters of PyTorch's root modules, their gradients, and the buffers. They have no owner: no optimizer trains them."""
    parts: list[_Part] = []
    for tensor, model, layer, name, is_parameter in names.tensors():
        if is_parameter:
            parts += _of_parameter(None, model, layer, name, tensor)
        else:
            parts.append(_Part(None, model, layer, name, "state", tensor))
    return _torch_rows(parts)


def of_input(name: str, tensor: Any) -> Row:
    """Returns an argument of a PyTorch module."""
    return _torch_row(None, name, "inputs", tensor)


class _Part(NamedTuple):
    """A tensor of PyTorch, with what a row says of it."""

    owner: str | None
    model: str | None
    layer: str | None
    name: str
    role: Role
    tensor: Any


def _of_parameter(owner: str | None, model: str | None, layer: str | None, name: str, parameter: Any) -> list[_Part]:
    parts = [_Part(owner, model, layer, name, "parameters", parameter)]
    gradient = getattr(parameter, "grad", None)
    if gradient is not None:
        parts.append(_Part(owner, model, layer, f"{name}.grad", "gradients", gradient))
    return parts


def _torch_rows(parts: list[_Part]) -> list[Row]:
    """Returns a row for each block: several tensors may be views of one, such as the gradients in a bucket of DistributedDataParallel."""
    blocks: dict[tuple[Any, ...], list[tuple[_Part, Row]]] = {}
    for number, part in enumerate(parts):
        try:
            row = _torch_row(part.owner, part.name, part.role, part.tensor)
        except Exception:  # A tensor without memory of its own, such as a sparse one.
            continue
        key: tuple[Any, ...] = (row.device, row.address, part.role) if row.address else (number,)
        blocks.setdefault(key, []).append((part, row._replace(model=part.model, layer=part.layer)))
    rows: list[Row] = []
    for listed in blocks.values():
        (_, row), more = listed[0], listed[1:]
        # The same tensor under two names is one.
        others = {id(part.tensor): other for part, other in more if part.tensor is not listed[0][0].tensor}
        if others:
            layer = _shared_path([part.layer for part, _ in listed])
            size = row.bytes + sum(other.bytes for other in others.values())
            row = row._replace(name=f"{row.name} and {len(others)} more", bytes=size, shape=None, layer=layer)
        rows.append(row)
    return rows


def _shared_path(paths: list[str | None]) -> str | None:
    """Returns the module that contains all of these modules."""
    if any(path is None for path in paths):
        return None
    parts = [(path or "").split(".") for path in paths]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)


def slots(states: Iterable[Any], weights: Iterable[Any]) -> dict[int, Any]:
    """Returns the weight of each slot of an optimizer, by the identity of the slot.

    Keras names a slot after the path of its weight and its purpose: `dense_kernel_momentum`.
    """
    by_prefix: dict[str, list[Any]] = {}
    for weight in weights:
        path = getattr(weight, "path", "") or str(getattr(weight, "name", "")).partition(":")[0]
        by_prefix.setdefault(path.replace("/", "_"), []).append(weight)
    found: dict[int, Any] = {}
    # Several weights with the same name have slots with the same name, in the same order.
    turns: dict[str, int] = {}
    for state in states:
        path = getattr(state, "path", "") or str(getattr(state, "name", "")).partition(":")[0]
        name = path.rpartition("/")[2]
        cut = name.rfind("_")
        while cut > 0 and name[:cut] not in by_prefix:
            cut = name.rfind("_", 0, cut)
        if cut > 0:
            of_name = by_prefix[name[:cut]]
            turn = turns[path] = turns.get(path, -1) + 1
            found[id(state)] = of_name[min(turn, len(of_name) - 1)]
    return found


def value_of(variable: Any) -> Any:
    """Returns the framework's own variable, which Keras 3 wraps."""
    value = getattr(variable, "_value", None)
    return variable if value is None or callable(value) else value


def _torch_row(owner: str | None, name: str, role: Role, tensor: Any) -> Row:
    # Of a distributed tensor, this process has a part.
    tensor = getattr(tensor, "_local_tensor", tensor)
    device = f"GPU:{tensor.device.index or 0}" if tensor.device.type == "cuda" else "CPU:0"
    size = tensor.numel() * tensor.element_size()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Row(owner, name, role, shape_text(tensor.shape), dtype, size, device, _block_of(tensor))


def _block_of(tensor: Any) -> int | None:
    """Returns where the memory of a tensor begins: of a view, where the tensor begins that it is a part of."""
    storage = getattr(tensor, "untyped_storage", None)
    return (storage().data_ptr() if storage is not None else tensor.data_ptr()) or None


def _replicas(value: Any) -> list[Any]:
    """Returns the values of a variable: `tf.distribute` keeps one on every device."""
    values = getattr(value, "values", None)
    return list(values) if isinstance(values, tuple) else [value]


def _row(owner: str | None, name: str, role: Role, value: Any) -> Row:
    dtype = getattr(value.dtype, "name", None) or str(value.dtype).removeprefix("torch.")
    shape = shape_text(value.shape)
    device, address = None, None
    if hasattr(value, "data_ptr"):
        return _torch_row(owner, name, role, value)
    if hasattr(value, "read_value"):
        from vramline.frameworks import tensorflow

        device = str(value.device).split("device:")[-1] or None
        try:
            address = tensorflow.address(value)
        except Exception:  # The address is optional.
            address = None
    elif hasattr(value, "unsafe_buffer_pointer"):
        try:
            address = value.unsafe_buffer_pointer()
        except Exception:  # A sharded array has no single address.
            address = None
    size = getattr(value, "nbytes", None)
    if not isinstance(size, int):
        count = 1
        for extent in value.shape:
            count *= int(extent)
        size = count * _bytes_of(value.dtype, dtype)
    return Row(owner, name, role, shape, dtype, int(size), device, address)


def _bytes_of(dtype: Any, name: str) -> int:
    size = getattr(dtype, "size", None)
    if isinstance(size, int):
        return size
    numpy = sys.modules.get("numpy")
    return int(numpy.dtype(name).itemsize) if numpy else 4
