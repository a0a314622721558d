"""The layers of Keras models: their paths inside the model, and their variables. Works with every version of Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# A model that is nested deeper than this is assumed to contain itself.
_DEEPEST = 64
# Attributes that list a layer's own variables: of Keras 3, then of Keras 2.
_OWN = ("_trainable_variables", "_non_trainable_variables", "_trainable_weights", "_non_trainable_weights")


class Place(NamedTuple):
    """The place of a layer: the outermost model that contains it, and its path inside; empty for the model itself."""

    model: str | None
    layer: str


def is_layer(value: Any) -> bool:
    """Returns whether a value is a layer or model of Keras."""
    return hasattr(value, "_flatten_layers") and hasattr(value, "name")


def is_model(value: Any) -> bool:
    """Returns whether a layer is a model: it lists its layers and can be fitted."""
    return hasattr(value, "layers") and hasattr(value, "fit")


def places(roots: Iterable[Any], labels: Mapping[int, str] | None = None) -> dict[int, Place]:
    """Returns the place of each layer in these models and layers, by identity.

    A root that is part of another root is placed inside that one.

    Args:
        roots: The models and layers.
        labels: Names to use for models instead of their own, by identity.
    """
    labels = labels or {}
    trees = [(root, list(_below(root))) for root in roots]
    inside = {id(layer) for root, tree in trees for layer, _ in tree if layer is not root}
    found: dict[int, Place] = {}
    for root, tree in trees:
        if id(root) in inside:
            continue
        model = labels.get(id(root), root.name) if is_model(root) else None
        for layer, path in tree:
            names = path if model else (root.name, *path)
            # A shared layer keeps the first place found.
            found.setdefault(id(layer), Place(model, "/".join(names)))
    return found


def _below(root: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yields a layer and all layers inside it, each with the names along its path."""
    seen: set[int] = set()
    # Breadth first: a layer that the model lists belongs to the model, even if another layer uses it too.
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


def variables(roots: Iterable[Any], labels: Mapping[int, str] | None = None) -> dict[int, Place]:
    """Returns the layer of each variable of these models, by the identity of the variable."""
    roots = list(roots)
    where = places(roots, labels)
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
