"""`vramline.keras.summary`: the parameters, gradients, optimizer variables and activations of a Keras model, per layer, in exact bytes.

Activations are the outputs of the layers at a batch size, computed from symbolic shapes. The sum is not a peak: it does not know which
tensors live at the same time, and includes neither workspaces nor copies. With `predict=True` the planner predicts the peak from
runs of the model at small batch sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vramline import shown
from vramline.planning.within import samples_of
from vramline.shown import size_text

# Bytes per element of types that NumPy does not know. Elements smaller than a byte are stored as one byte.
_SIZES = {"bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int4": 1, "uint4": 1}

# Models that are nested deeper than this are assumed to contain themselves.
_DEEPEST = 32

NO_PEAK = "a sum, not a peak; to predict the peak use summary(model, predict=True, x=..., y=...)"


@dataclass(frozen=True)
class Row:
    """A layer of a `Summary`. A number of bytes is None if it is unknown; `reason` says why.

    Attributes:
        name: The name of the layer.
        kind: The class of the layer, such as "Dense".
        depth: 0 for layers of the model itself, 1 for layers of a model inside it, and so on.
        output: Shape and dtype of the output at the batch size, as far as they are known.
        count: Number of parameters that no earlier row counts.
        parameter_bytes: Bytes of these parameters.
        gradient_bytes: One gradient per trainable variable.
        optimizer_bytes: Variables of the optimizer for this layer; None if the optimizer is not built.
        activation_bytes: Outputs at the batch size, of all uses of the layer.
        shared: True if an earlier row counts some variables of this layer.
        reason: Why a number is unknown.
    """

    name: str
    kind: str
    depth: int
    output: str
    count: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int | None
    activation_bytes: int | None
    shared: bool
    reason: str | None = None


@dataclass(frozen=True)
class Summary:
    """The memory of a model per layer, and in total. `vramline.keras.summary` returns it; print it for a table.

    A sum is None if the number of one row is unknown.

    Attributes:
        name: The name of the model.
        batch_size: Samples per batch that activations are computed for.
        rows: One `Row` per layer.
        count: Number of parameters.
        parameter_bytes: Bytes of all parameters.
        gradient_bytes: One gradient per trainable variable.
        optimizer_bytes: All variables of the optimizer, also those that belong to no layer.
        activation_bytes: Outputs of all layers at the batch size.
        peak_bytes: The predicted peak; None without `predict`.
        peak_low_bytes: Lower bound of the predicted peak.
        peak_high_bytes: Upper bound of the predicted peak.
        reasons: Why numbers are unknown.
        plan: The plan behind the predicted peak, as `vramline plan --json` prints it; None without `predict`.
    """

    name: str
    batch_size: int
    rows: list[Row]
    count: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int | None
    activation_bytes: int | None
    peak_bytes: int | None = None
    peak_low_bytes: int | None = None
    peak_high_bytes: int | None = None
    reasons: list[str] = field(default_factory=list)
    plan: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def sum_bytes(self) -> int | None:
        """Sum of parameters, gradients, optimizer and activations. It is not a peak."""
        parts = [self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes, self.activation_bytes]
        return None if None in parts else sum(part for part in parts if part is not None)

    _TITLES = ("layer", "output", "parameters", "bytes", "gradients", "optimizer", "activations")

    def _cells(self) -> list[list[str]]:
        rows = [
            [
                f"{'  ' * row.depth}{row.name} ({row.kind})",
                row.output,
                f"{row.count:,}",
                *map(size_text, (row.parameter_bytes, row.gradient_bytes, row.optimizer_bytes, row.activation_bytes)),
            ]
            for row in self.rows
        ]
        sums = (self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes, self.activation_bytes)
        return [*rows, ["total", "", f"{self.count:,}", *map(size_text, sums)]]

    def _notes(self) -> list[str]:
        notes = []
        if self.sum_bytes is not None:
            notes.append(f"sum of parameters, gradients, optimizer and activations: {size_text(self.sum_bytes)} ({NO_PEAK})")
        if self.peak_bytes is not None:
            between = f"{size_text(self.peak_low_bytes)} to {size_text(self.peak_high_bytes)}"
            notes.append(f"predicted peak: {size_text(self.peak_bytes)} ({between})")
        return notes + [f"unknown (?): {reason}" for reason in self.reasons]

    def __str__(self) -> str:
        cells = [list(self._TITLES), *self._cells()]
        widths = [max(len(row[at]) for row in cells) for at in range(len(self._TITLES))]
        lines = [
            "  ".join(cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths)))
            for row in cells
        ]
        rule = "-" * max(map(len, lines))
        head = f"{self.name}, batch size {self.batch_size}"
        return "\n".join([head, lines[0], rule, *lines[1:-1], rule, lines[-1], "", *self._notes()]).rstrip()

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{_escaped(note)}</p>" for note in self._notes())
        return shown.table(f"{self.name}, batch size {self.batch_size}", list(self._TITLES), self._cells()) + notes


def summary(
    model: Any,
    batch_size: int = 32,
    *,
    predict: bool = False,
    x: Any = None,
    y: Any = None,
    show: bool = True,
    **planning: Any,
) -> Summary:
    """Prints the memory of a Keras 3 model per layer: parameters, gradients, optimizer and activations.

        vramline.keras.summary(model, batch_size=64)

    Parameters that layers share are counted once, in the first row that has them. Gradients are one per trainable variable. The
    variables of the optimizer are unknown until it is built, which happens in the first training step.

    Args:
        model: A built model: one that has weights.
        batch_size: Samples per batch, for the activations.
        predict: Also predict the peak memory. Vramline runs the compiled model at a few small batch sizes in separate processes. Needs
            x, and y for most losses.
        x, y: Training data as for `fit`; a few rows are enough.
        show: Print the table.
        **planning: `build` and `probes`, as for `fit_within`.

    Returns:
        A `Summary`.

    Raises:
        ValueError: If the model is not built, `batch_size` is invalid, or `predict` needs data.
    """
    batch_size = samples_of(batch_size)
    if not getattr(model, "built", False):
        raise ValueError("the model has no weights yet\nhint: start the model with keras.Input, or call it once")
    optimizer = getattr(model, "optimizer", None)
    states = _states(optimizer)
    seen: set[int] = set()
    reasons: list[str] = []
    rows = []
    for use in _uses(model, 0, 1):
        row = _row(use, batch_size, states, seen)
        rows.append(row)
        if row.reason is not None and f"{row.name}: {row.reason}" not in reasons:
            reasons.append(f"{row.name}: {row.reason}")
    rest = [variable for variable in model.weights if id(variable) not in seen]
    if rest:
        rows.append(_own(model, rest, states, seen))
    activations = [row.activation_bytes for row in rows]
    optimizer_bytes = None
    if optimizer is None:
        reasons.append("optimizer: the model is not compiled")
    elif not optimizer.built:
        reasons.append("optimizer: not built before the first step; call model.optimizer.build(model.trainable_variables)")
    else:
        optimizer_bytes = sum(_bytes_of(variable) for variable in optimizer.variables)
    told: dict[str, Any] = {}
    if predict:
        told = _predicted(model, batch_size, x, y, planning)
    made = Summary(
        name=model.name,
        batch_size=batch_size,
        rows=rows,
        count=sum(row.count for row in rows),
        parameter_bytes=sum(row.parameter_bytes for row in rows),
        gradient_bytes=sum(row.gradient_bytes for row in rows),
        optimizer_bytes=optimizer_bytes,
        activation_bytes=None if None in activations else sum(size for size in activations if size is not None),
        reasons=reasons,
        **told,
    )
    if show:
        print(made)
    return made


@dataclass(frozen=True)
class _Use:
    """A layer, or an operation without weights, as a model uses it."""

    layer: Any
    depth: int
    outputs: list[Any] | None
    """The symbolic outputs of all its uses in its model; None if the model is not a graph of layers."""
    times: int | None
    """How many times its model itself is used; None if unknown."""


def _uses(model: Any, depth: int, times: int | None) -> Iterator[_Use]:
    """Yields the layers and operations of a model in order. An inner model comes before its own layers."""
    import keras

    graph = getattr(model, "_functional", None) or model
    by_depth = getattr(graph, "_nodes_by_depth", None)
    nodes: dict[int, list[Any]] = {}
    for node in (node for nodes_of_depth in (by_depth or {}).values() for node in nodes_of_depth):
        nodes.setdefault(id(node.operation), []).append(node)
    # Operations of a functional model, such as additions, are not layers, but they have outputs too.
    parts = graph.operations if by_depth is not None and graph is model else model.layers
    for part in parts:
        own = nodes.get(id(part), []) if by_depth is not None else None
        outputs = None if own is None else [each for node in own for each in keras.tree.flatten(node.output_tensors)]
        yield _Use(part, depth, outputs, times)
        if getattr(part, "layers", None) and depth < _DEEPEST:
            yield from _uses(part, depth + 1, None if own is None or times is None else times * len(own))


def _row(use: _Use, batch: int, states: dict[int, int] | None, seen: set[int]) -> Row:
    layer = use.layer
    is_model = bool(getattr(layer, "layers", None))
    # The layers of an inner model have rows of their own; only the remaining weights belong to the model's row.
    inner = {id(weight) for each in layer.layers for weight in each.weights} if is_model else set()
    weights = [weight for weight in getattr(layer, "weights", []) if id(weight) not in inner]
    new = [weight for weight in weights if id(weight) not in seen]
    seen.update(map(id, new))
    output, activation, reason = ("", 0, None) if is_model else _outputs(use, batch)
    return Row(
        name=layer.name,
        kind=type(layer).__name__,
        depth=use.depth,
        output=output,
        activation_bytes=activation,
        shared=len(new) < len(weights),
        reason=reason,
        **_sums(new, states),
    )


def _own(model: Any, weights: list[Any], states: dict[int, int] | None, seen: set[int]) -> Row:
    """Returns a row for variables of the model that belong to none of its layers."""
    seen.update(map(id, weights))
    kind = type(model).__name__
    return Row(model.name, kind, 0, "", activation_bytes=0, shared=False, **_sums(weights, states))


def _sums(weights: list[Any], states: dict[int, int] | None) -> dict[str, Any]:
    return {
        "count": sum(math.prod(weight.shape) for weight in weights),
        "parameter_bytes": sum(map(_bytes_of, weights)),
        "gradient_bytes": sum(_bytes_of(weight) for weight in weights if weight.trainable),
        "optimizer_bytes": None if states is None else sum(states.get(id(weight), 0) for weight in weights),
    }


def _states(optimizer: Any) -> dict[int, int] | None:
    """Returns the bytes that the optimizer holds for each trained variable, by identity. None if the optimizer is not built yet."""
    if optimizer is None or not optimizer.built:
        return None
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    held: dict[int, int] = {}
    for value in vars(inner).values():
        # A slot is a list with one variable, or None, per trained variable, in the same order.
        if isinstance(value, list) and len(value) == len(inner._trainable_variables) and value is not inner._trainable_variables:
            for trained, state in zip(inner._trainable_variables, value):
                if any(state is variable for variable in inner._variables):
                    held[id(trained)] = held.get(id(trained), 0) + _bytes_of(state)
    return held


def _outputs(use: _Use, batch: int) -> tuple[str, int | None, str | None]:
    """Returns the outputs of a layer at a batch size, over all its uses: a text, the bytes, and the reason if they are unknown."""
    import keras

    if use.outputs is None or use.times is None:
        return "?", None, "its model is not a graph of layers, so its shapes are unknown until it runs"
    total, texts = 0, []
    for tensor in use.outputs:
        shape = tuple(tensor.shape)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        at_batch = (batch, *shape[1:]) if shape and shape[0] is None else shape
        texts.append(f"{_shape(at_batch)} {dtype}")
        if None in at_batch:
            return "; ".join(texts), None, f"its shape {_shape(shape)} has an unknown dimension"
        total += math.prod(at_batch) * _size_of(dtype)
    uses = len(use.outputs) * use.times
    text = "; ".join(dict.fromkeys(texts)) + (f" x{uses}" if uses > 1 and len(set(texts)) == 1 else "")
    return text, total * use.times, None


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def _bytes_of(variable: Any) -> int:
    return int(math.prod(variable.shape)) * _size_of(variable.dtype)


def _size_of(dtype: str) -> int:
    import numpy as np

    if dtype in _SIZES:
        return _SIZES[dtype]
    return 2 if dtype == "bfloat16" else int(np.dtype(dtype).itemsize)


def _escaped(text: str) -> str:
    import html

    return html.escape(text)


def _predicted(model: Any, batch: int, x: Any, y: Any, planning: dict[str, Any]) -> dict[str, Any]:
    from vramline.planning import within

    if x is None:
        raise ValueError("predict: needs some rows of data\nhint: summary(model, batch_size, predict=True, x=x, y=y)")
    unknown = set(planning) - {"build", "probes"}
    if unknown:
        raise TypeError(f"summary() got unexpected arguments: {', '.join(sorted(unknown))}")
    plan = within.predicted(model, (x,) if y is None else (x, y), batch, **planning)
    at = plan["predictions"][0]
    return {
        "peak_bytes": at["peak_bytes"],
        "peak_low_bytes": at["low_bytes"],
        "peak_high_bytes": at["high_bytes"],
        "plan": plan,
    }
