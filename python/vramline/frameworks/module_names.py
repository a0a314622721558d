"""The names of PyTorch's modules and tensors, from the modules that the program calls.

A root is a module that the program calls itself, and that is no part of another one. Its parts are named as PyTorch names them:
`layers.3.mlp.up_proj`. Wrappers such as `DistributedDataParallel` do not show in a name.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

# The attribute in which a wrapper has its module, by the wrapper's class.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OptimizedModule": "_orig_mod",
}
_WRAPPED = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
_MOST_ROOTS = 64
_MOST_KNOWN = 200_000
# A module that its root did not have when it was listed may be new: list the root again, but not without end.
_MOST_LISTINGS = 64

Scope = tuple[str, str]
"""The name of the root, empty for one without parameters, and the path below it."""


class ModuleNames:
    """The names of the modules of this process. Only weak references are kept."""

    def __init__(self) -> None:
        self._roots: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._scopes: dict[int, tuple[weakref.ref[Any], Scope]] = {}
        self._listings = 0

    def scope(self, module: Any, parent: Scope | None) -> Scope:
        """Returns the name of a module that is called, by the program or by the module `parent`."""
        known = self._scopes.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        kind = type(_unwrapped(module)).__name__
        if parent is None:
            return self._add_root(module)
        if self._listings < _MOST_LISTINGS:
            self._listings += 1
            for root in self.roots():
                self._list(root[0], root[1])
            known = self._scopes.get(id(module))
            if known is not None and known[0]() is module:
                return known[1]
        return self._keep(module, (parent[0], f"{parent[1]}.{kind}" if parent[1] else kind))

    def roots(self) -> list[tuple[Any, str]]:
        """Returns the root modules that still exist, with their names."""
        roots = [(reference(), name) for reference, name in list(self._roots.values())]
        return [(root, name) for root, name in roots if root is not None]

    def tensors(self) -> Iterator[tuple[Any, str, str, str, bool]]:
        """Returns parameters and buffers of the roots: each with the root's name, its module's path, its full name, and whether it is a
        parameter. One that several modules share has the first name."""
        seen: set[int] = set()
        for root, name in self.roots():
            for path, module in root.named_modules():
                path = _path(path, root)
                for kind, own in (("p", module._parameters), ("b", module._buffers)):
                    for own_name, tensor in list(own.items()):
                        if tensor is None or id(tensor) in seen:
                            continue
                        seen.add(id(tensor))
                        yield tensor, name, path, f"{path}.{own_name}" if path else own_name, kind == "p"

    def of_parameters(self) -> dict[int, tuple[str, str, str]]:
        """Returns the root's name, the module's path and the full name of each parameter, by its identity."""
        return {id(tensor): (root, path, name) for tensor, root, path, name, is_parameter in self.tensors() if is_parameter}

    def _add_root(self, module: Any) -> Scope:
        inner = _unwrapped(module)
        kind = type(inner).__name__
        if next(module.parameters(), None) is None and next(module.buffers(), None) is None:
            # A loss, an activation function: no model.
            return self._keep(module, ("", kind))
        inside = {id(each) for each in module.modules()}
        # The wrappers around a root may be gone before it is.
        outer, module = module, inner
        for key in [key for key, (reference, _) in self._roots.items() if key in inside or reference() is None]:
            del self._roots[key]
        if len(self._roots) >= _MOST_ROOTS:
            return self._keep(outer, (kind, ""))
        taken = {name for _, name in self._roots.values()}
        name, number = kind, 2
        while name in taken:
            name, number = f"{kind} {number}", number + 1
        key = id(module)
        self._roots[key] = (weakref.ref(module, lambda _: self._roots.pop(key, None)), name)
        self._list(module, name)
        return self._keep(outer, (name, ""))

    def _list(self, root: Any, name: str) -> None:
        for path, module in root.named_modules():
            self._keep(module, (name, _path(path, root)))

    def _keep(self, module: Any, scope: Scope) -> Scope:
        if len(self._scopes) >= _MOST_KNOWN:
            self._scopes.clear()
        key = id(module)
        self._scopes[key] = (weakref.ref(module), scope)
        return scope


def _unwrapped(module: Any) -> Any:
    for _ in range(8):
        attribute = _WRAPPERS.get(type(module).__name__)
        inner = getattr(module, attribute, None) if attribute else None
        if inner is None:
            break
        module = inner
    return module


def _path(path: str, root: Any) -> str:
    """Returns a path without the parts that only wrap another module."""
    parts = path.split(".") if path else []
    module = root
    while parts and _WRAPPERS.get(type(module).__name__) == parts[0]:
        module = getattr(module, parts.pop(0), None)
    return ".".join(part for part in parts if part not in _WRAPPED)
