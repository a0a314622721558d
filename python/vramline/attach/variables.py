"""All variables of this process: of models, of optimizers, and the program's own.

Only weak references are kept, so nothing stays alive longer. The role of a variable follows from its owner, a model or an optimizer
of Keras. A variable without an owner is a parameter if the program computes its gradient, and state otherwise.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from vramline.frameworks import inventory, layers
from vramline.frameworks.inventory import Inventory, Row

# If a program has more, the list is incomplete.
_MOST_VARIABLES = 20_000
_MOST_OWNERS = 256


class Variables:
    """The variables of this process."""

    def __init__(self) -> None:
        # By identity: the variable, the line that created it, and its number.
        self._made: dict[int, tuple[weakref.ref[Any], str | None, int]] = {}
        self._numbers = 0
        self._handles: dict[int, weakref.ref[Any]] = {}
        self._models: dict[int, weakref.ref[Any]] = {}
        # By the identity of a model: its name, with a number if a model of that name existed already.
        self._labels: dict[int, str] = {}
        self._optimizers: dict[int, tuple[weakref.ref[Any], list[weakref.ref[Any]]]] = {}
        self._trained: dict[int, weakref.ref[Any]] = {}
        self._others: dict[int, tuple[weakref.ref[Any], Callable[[Any], list[Row]]]] = {}
        self._rest: Callable[[], list[Row]] = list

    def made(self, variable: Any, source: str | None) -> None:
        """Notes a new variable of TensorFlow."""
        key, handle = id(variable), id(variable.handle)
        # An assignment returns another variable object with the same handle: it is not a new variable.
        if handle in self._handles or len(self._made) >= _MOST_VARIABLES:
            return

        def gone(_: Any) -> None:
            self._made.pop(key, None)
            self._handles.pop(handle, None)

        reference = weakref.ref(variable, gone)
        self._numbers += 1
        self._made[key] = (reference, source, self._numbers)
        self._handles[handle] = reference

    def of_handle(self, handle: Any) -> Any:
        """Returns the variable of a handle; None if it is unknown."""
        reference = self._handles.get(id(handle))
        return reference() if reference is not None else None

    def number_of(self, variable: Any) -> int | None:
        """Returns the number of a variable: variables that the program does not name have all the same name."""
        made = self._made.get(id(variable))
        return made[2] if made is not None else None

    def has_model(self, model: Any) -> bool:
        """Notes a Keras model that is used. Returns whether it is new."""
        if id(model) in self._models or len(self._models) >= _MOST_OWNERS:
            return False
        key = id(model)

        def gone(_: Any) -> None:
            self._models.pop(key, None)
            self._labels.pop(key, None)

        self._models[key] = weakref.ref(model, gone)
        if layers.is_model(model):
            label, number = model.name, 1
            while label in self._labels.values():
                number += 1
                label = f"{model.name} ({number})"
            self._labels[key] = label
        return True

    def labels(self) -> dict[int, str]:
        """Returns the names of the models, by identity. Models with the same name have a number too, such as `net (2)`."""
        return self._labels

    def models(self) -> list[Any]:
        """Returns the models and layers that the program called directly and that still exist."""
        return _alive(list(self._models.values()))

    def has_optimizer(self, optimizer: Any, weights: Iterable[Any]) -> None:
        """Notes a Keras optimizer and the weights that it updates. Weights that the optimizer lists itself may be left out."""
        if id(optimizer) not in self._optimizers and len(self._optimizers) < _MOST_OWNERS:
            key = id(optimizer)
            told = [weakref.ref(weight) for weight in weights]
            self._optimizers[key] = (weakref.ref(optimizer, lambda _: self._optimizers.pop(key, None)), told)

    def trains(self, sources: Iterable[Any]) -> None:
        """Notes variables as trained, because the program computes their gradients."""
        for source in sources:
            value = inventory.value_of(source)
            key = id(value)
            if key in self._made and key not in self._trained:
                self._trained[key] = weakref.ref(value, functools.partial(self._forget_trained, key))

    def is_trained(self, variable: Any) -> bool:
        """Returns whether the program computes gradients of a variable."""
        return id(variable) in self._trained

    def _forget_trained(self, key: int, _: Any) -> None:
        self._trained.pop(key, None)

    def has_other(self, owner: Any, rows: Callable[[Any], list[Row]]) -> None:
        """Notes an owner of variables in another framework, and the function that lists them."""
        if id(owner) not in self._others and len(self._others) < _MOST_OWNERS:
            key = id(owner)
            self._others[key] = (weakref.ref(owner, lambda _: self._others.pop(key, None)), rows)

    def has_rest(self, rows: Callable[[], list[Row]]) -> None:
        """Sets the function that lists variables of another framework, some of which may belong to an owner."""
        self._rest = rows

    def listed(self) -> Inventory:
        """Returns all variables as they are now."""
        models = self.models()
        listed = Inventory(models, self.number_of, self._labels)
        # Models with an optimizer first: a model inside another one has none.
        for model in sorted(models, key=lambda model: getattr(model, "optimizer", None) is None):
            listed.add_model(model)
        for reference, told in list(self._optimizers.values()):
            optimizer = reference()
            if optimizer is not None:
                inner = getattr(optimizer, "inner_optimizer", optimizer)
                weights = getattr(inner, "_trainable_variables", None) or _alive(told)
                listed.add_optimizer(optimizer, weights)
        for key, (reference, source, _) in list(self._made.items()):
            variable = reference()
            if variable is not None:
                listed.add([variable], "parameters" if key in self._trained else "state", source=source)
        # Several owners may list the same variable: keep the row of the first.
        others = [(reference(), rows) for reference, rows in list(self._others.values())]
        found: dict[tuple[Any, ...], Row] = {}
        for row in [row for owner, rows in others if owner is not None for row in rows(owner)] + self._rest():
            found.setdefault((row.role, row.device, row.address) if row.address else (row.role, row.name), row)
        listed.rows += found.values()
        listed.has_gradients = any(row.role == "gradients" for row in found.values())
        return listed


def _alive(references: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [value for reference in references if (value := reference()) is not None]
