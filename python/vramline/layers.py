"""The layers of Keras models: what each is called inside its model, and which variables are its own. Any Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

# A model that is deeper contains itself.
_DEEPEST = 64
# Lists of a layer's own variables: Keras 3, then Keras 2.
_OWN = ("_trainable_variables", "_non_trainable_variables", "_trainable_weights", "_non_trainable_weights")


class Place(NamedTuple):
    """A layer: the outermost model that it is in, and its path inside; empty for the model itself."""

    model: str | None
    layer: str


def is_layer(value: Any) -> bool:
    """Whether something is a layer or model of Keras."""
    return hasattr(value, "_flatten_layers") and hasattr(value, "name")


def is_model(value: Any) -> bool:
    """Whether a layer is a model, which has layers that a user can list."""
    return hasattr(value, "layers") and hasattr(value, "fit")


def places(roots: Iterable[Any]) -> dict[int, Place]:
    """Where each layer of these models and layers is, by its identity. What is inside another of them is told there."""
    trees = [(root, list(_below(root))) for root in roots]
    inside = {id(layer) for root, tree in trees for layer, _ in tree if layer is not root}
    found: dict[int, Place] = {}
    for root, tree in trees:
        if id(root) in inside:
            continue
        model = root.name if is_model(root) else None
        for layer, path in tree:
            names = path if model else (root.name, *path)
            # A layer that is shared is told where it was found first.
            found.setdefault(id(layer), Place(model, "/".join(names)))
    return found


def _below(root: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """A layer and everything in it, each with the names on the way."""
    seen: set[int] = set()
    # The outer ones first: a layer that a model lists is the model's, and not that of a layer which uses it too.
    level: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    for _ in range(_DEEPEST):
        inner: list[tuple[Any, tuple[str, ...]]] = []
        for layer, path in level:
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            yield layer, path
            children = layer._flatten_layers(include_self=False, recursive=False)
            inner += [(child, (*path, child.name)) for child in children if is_layer(child)]
        level = inner


def variables(roots: Iterable[Any]) -> dict[int, Place]:
    """The layer of each variable of these models, by the variable's identity."""
    roots = list(roots)
    where = places(roots)
    found: dict[int, Place] = {}
    for root in roots:
        for layer, _ in _below(root):
            place = where.get(id(layer))
            if place is None:
                continue
            own = [variable for name in _OWN for variable in getattr(layer, name, None) or []]
            own += [seed.state for seed in getattr(layer, "_seed_generators", None) or [] if hasattr(seed, "state")]
            for variable in own:
                found.setdefault(id(variable), place)
    return found
