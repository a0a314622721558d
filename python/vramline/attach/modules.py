"""Whose memory PyTorch allocates while the trace is on: the path of the module that runs, in the forward and in the backward pass.

Hooks on all modules keep the path of the running module for each thread, and give it to PyTorch's allocator, which writes it to the
entries of its history. Older allocators take no text: for them, the times between which each module ran are noted. The backward pass runs
in threads of its own. There a hook on the autograd node of a module's output says whose backward pass begins, and a hook on the node of
its input says that it is over. PyTorch's own backward hooks of modules are not used: they add nodes to the graph and take half a step.

Nothing here changes a value: every hook returns None. The hooks do not exist while `torch.compile` traces or runs a compiled function,
so that what it compiles, and the conditions under which it compiles again, stay the same.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from types import ModuleType
from typing import Any

from vramline.attach.quiet import quietly
from vramline.frameworks.module_names import ModuleNames, Scope

# What the metadata of an entry begins with, then `forward` or `backward`, the name of the root module and the path below it.
PREFIX = "vramline"
# The most tensors of an output or of the arguments that are looked at, and how deep they are looked for.
_MOST_TENSORS = 16
_DEEPEST = 3
# The most inputs that are noted.
_MOST_INPUTS = 4_000
_MOST_BETWEEN = 256
# The most spans of time in which modules ran that are noted, and how many are written at a time.
_MOST_SPANS = 400_000
_SPANS_AT_ONCE = 8_192
# Longer paths are cut.
_LONGEST = 300
# The key in the metadata of an autograd node that has a hook of ours.
_MARK = "vramline"

Before = Callable[[Any], None]
"""A hook on an autograd node."""

Inputs = Callable[[list[tuple[str, str | None, Any]]], None]
"""Takes arguments of a root module: the name of each, the name of the root, and the tensor."""


Spans = Callable[[list[tuple[int, int, str]]], None]
"""Takes the times that modules ran: begin and end in nanoseconds of the monotonic clock, and the text that the allocator would have got."""


class _Local(threading.local):
    """What a thread is executing."""

    def __init__(self) -> None:
        # The modules that run, outermost first: their identity, what held before they began, and their names.
        self.stack: list[tuple[int, str, Before | None, Scope]] = []
        self.metadata = ""
        # Since when, if times are noted.
        self.since = 0
        # The hook for the backward pass of the module that runs.
        self.before: Before | None = None
        self.is_backward = False


class ModuleHooks:
    """The hooks on the modules of this process. They exist between `begin` and `end`."""

    def __init__(self, torch: ModuleType, names: ModuleNames, inputs: Inputs, spans: Spans) -> None:
        self._torch = torch
        self._names = names
        self._inputs = inputs
        self._write_spans = spans
        # The spans that are not written yet; None if the allocator takes texts.
        self._spans: list[tuple[int, int, str]] | None = None
        self._span_count = 0
        self._module = sys.modules["torch.nn.modules.module"]
        memory = torch.cuda.memory
        self._tell = getattr(torch._C, "_cuda_setMemoryMetadata", None) or getattr(memory, "_set_memory_metadata", None)
        self._local = _Local()
        self._is_on = self._is_refused = False
        # The threads that run a compiled function, and the frame that called the compiler first.
        self._compiled: dict[int, int] = {}
        # The hooks, with their places in PyTorch's tables.
        self._installed: list[tuple[Any, int, Any]] = []
        # The text and the hook for the backward pass of each module.
        self._texts: dict[Scope, tuple[str, Before]] = {}
        c = torch._C
        self._is_tracing = (c._get_tracing_state, getattr(getattr(c, "_functorch", None), "peek_interpreter_stack", lambda: None))
        self._count_modes = getattr(c, "_len_torch_dispatch_stack", int)
        self._handles: tuple[Any, Any] | None = None
        self._has_any: Any = None
        self._noted = 0
        self._make_way_for_theirs(memory)

    @property
    def is_on(self) -> bool:
        """Whether the hooks are there."""
        return self._is_on

    def begin(self) -> None:
        """Installs the hooks."""
        if self._is_on or self._is_refused:
            return
        supports = getattr(self._torch._C, "_cuda_memoryMetadataSupported", None)
        if supports is not None and not supports():
            self._tell = None
        if self._tell is None:
            self._spans = []
        module = self._module
        leave = quietly(self._leave)
        try:
            after = module.register_module_forward_hook(leave, with_kwargs=True, always_call=True)
        except TypeError:  # An older version.
            after = module.register_module_forward_hook(leave)
        try:
            before = module.register_module_forward_pre_hook(quietly(self._enter))
        except BaseException:
            after.remove()
            raise
        self._handles = (before, after)
        tables = (module._global_forward_pre_hooks, module._global_forward_hooks)
        self._installed = [(table, handle.id, table[handle.id]) for table, handle in zip(tables, self._handles, strict=True)]
        self._has_any = getattr(module, "_has_any_global_hook", None)
        if self._has_any is not None:
            module._has_any_global_hook = self._has_other_hook  # type: ignore[attr-defined]
        self._is_on = True

    def end(self) -> None:
        """Removes the hooks. Those on autograd nodes stay with their graph, and do nothing."""
        if not self._is_on:
            return
        self._is_on = False
        if self._handles is not None:
            for handle in self._handles:
                handle.remove()
                # PyTorch leaves this one behind.
                getattr(self._module, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)
        self._handles, self._installed = None, []
        if getattr(self._module, "_has_any_global_hook", None) == self._has_other_hook:
            self._module._has_any_global_hook = self._has_any  # type: ignore[attr-defined]
        self._set("")
        spans, self._spans = self._spans, None
        if spans:
            self._write_spans(spans)
        self._texts.clear()

    def abandon(self) -> None:
        """Removes the hooks in a forked child."""
        self._tell = self._spans = None
        self._local = _Local()
        self.end()

    def stepped(self) -> None:
        """Forgets what may have been left behind in this thread: an optimizer runs outside of modules."""
        local = self._local
        if self._compiled.pop(threading.get_ident(), None) is not None and self._is_on and not self._compiled:
            for table, key, hook in self._installed:
                table[key] = hook
        if local.stack:
            local.stack.clear()
            local.before = None
            self._set("")

    # --- The program's own metadata ---

    def _make_way_for_theirs(self, memory: Any) -> None:
        """Says nothing more if the program sets the metadata itself: there is only one."""
        tell = getattr(memory, "_set_memory_metadata", None)
        if tell is None:
            return

        def theirs(*args: Any, **kwargs: Any) -> Any:
            self._tell = self._spans = None
            return tell(*args, **kwargs)

        memory._set_memory_metadata = theirs

    # --- Compiled functions ---

    def watch_compiled(self, eval_frame: ModuleType) -> None:
        """Takes the hooks away while a compiled function runs. `torch._dynamo.eval_frame` has just been imported."""
        skip = getattr(eval_frame, "skip_code", None)
        if skip is None:
            # An unknown version: the hooks stay away once the program uses the compiler.
            self._is_refused = True
            self.end()
            return
        # Some versions have two names for the same function, or two functions.
        for name in ("set_eval_frame", "_maybe_set_eval_frame"):
            switch = getattr(eval_frame, name, None)
            if switch is not None:
                watched = self._watched(switch)
                # The compiler must not compile this function, which it would see at the end of a compiled one.
                skip(watched.__code__)
                setattr(eval_frame, name, watched)

    def _watched(self, switch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        outermost, identify, frame_of = self._compiled, threading.get_ident, sys._getframe

        # It calls no other function of Python: the compiler would look at that.
        def watched(callback: Any) -> Any:
            try:
                if self._is_on or outermost:
                    thread = identify()
                    frame = id(frame_of(1))
                    # What runs inside, compiled or not, also switches the compiler: the function that was first switches it off.
                    if callback is not None and thread not in outermost:
                        outermost[thread] = frame
                    elif callback is None and outermost.get(thread) == frame:
                        del outermost[thread]
                    for table, key, hook in self._installed:
                        if outermost or not self._is_on:
                            table.pop(key, None)
                        elif key not in table:
                            table[key] = hook
            except Exception:
                pass
            return switch(callback)

        return watched

    def _has_other_hook(self) -> bool:
        """Answers for PyTorch whether the program has global hooks: ours do not count, so PyTorch does not warn of them."""
        module, keys = self._module, {key for _, key, _ in self._installed}
        tables = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")
        return any(key not in keys for table in tables for key in getattr(module, table, ()))

    # --- The forward pass ---

    def _enter(self, module: Any, args: Any) -> None:
        local = self._local
        stack = local.stack
        scope = self._names.scope(module, stack[-1][3] if stack else None)
        text, before = self._texts.get(scope) or self._make_texts(scope)
        # What leads here in the backward pass belongs to the caller.
        if local.before is not None and args:
            self._own(args, local.before)
        stack.append((id(module), local.metadata, local.before, scope))
        local.before = before
        self._set(text)

    def _make_texts(self, scope: Scope) -> tuple[str, Before]:
        forward, backward = (f"{PREFIX}:{part}:{scope[0]}:{scope[1]}"[:_LONGEST] for part in ("forward", "backward"))

        def before(_: Any) -> None:
            if self._is_on:
                quietly(self._backward)(backward)

        return self._texts.setdefault(scope, (forward, before))

    def _leave(self, module: Any, args: Any, *rest: Any) -> None:
        # After an exception PyTorch passes no keyword arguments, and older versions never do.
        kwargs, result = rest if len(rest) == 2 else ({}, rest[0])
        local = self._local
        stack = local.stack
        # The hooks may have been absent when a module began or ended: go back to the one that ends here.
        at = len(stack) - 1
        while at >= 0 and stack[at][0] != id(module):
            at -= 1
        if at < 0:
            return
        _, metadata, outer, scope = stack[at]
        del stack[at:]
        local.before = outer
        try:
            if result is not None:
                self._own(result, (self._texts.get(scope) or self._make_texts(scope))[1])
                if not stack and not local.is_backward:
                    self._note_inputs(scope[0] or None, args, kwargs)
        finally:
            self._set(metadata)

    def _set(self, metadata: str) -> None:
        local = self._local
        if self._spans is not None:
            self._note_span(local)
        local.metadata = metadata
        if self._tell is not None:
            try:
                self._tell(metadata)
            except Exception:  # This allocator takes no text: try no more.
                self._tell = None

    def _note_span(self, local: _Local) -> None:
        now, spans = time.monotonic_ns(), self._spans
        if local.metadata and spans is not None and self._span_count < _MOST_SPANS:
            self._span_count += 1
            spans.append((local.since, now, local.metadata))
            if len(spans) >= _SPANS_AT_ONCE:
                self._spans = []
                self._write_spans(spans)
        local.since = now

    def _note_inputs(self, root: str | None, args: Any, kwargs: Any) -> None:
        if self._noted >= _MOST_INPUTS:
            return
        found: list[tuple[str, str | None, Any]] = []
        for number, value in enumerate(args):
            found += [(f"argument {number}", root, tensor) for tensor in self._tensors(value)]
        for name, value in (kwargs or {}).items():
            found += [(str(name), root, tensor) for tensor in self._tensors(value)]
        # A result of another module is an activation.
        found = [each for each in found[:_MOST_BETWEEN] if each[2].grad_fn is None and not each[2].requires_grad]
        if found:
            self._noted += len(found)
            self._inputs(found)

    def _tensors(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """Returns the first tensors of a value."""
        if isinstance(value, self._torch.Tensor):
            yield value
        elif depth < _DEEPEST and isinstance(value, (tuple, list)):
            for each in value[:_MOST_TENSORS]:
                yield from self._tensors(each, depth + 1)
        elif depth < _DEEPEST and isinstance(value, dict):
            for each in list(value.values())[:_MOST_TENSORS]:
                yield from self._tensors(each, depth + 1)

    # --- The backward pass ---

    def _own(self, value: Any, before: Before) -> None:
        """Says whose the backward pass is from the nodes of these tensors on, unless it is known."""
        if (self._tell is None and self._spans is None) or not self._may_own():
            return
        # Most modules have one argument and one result.
        one = value[0] if type(value) is tuple and len(value) == 1 else value
        tensors = (one,) if isinstance(one, self._torch.Tensor) else islice(self._tensors(value), _MOST_TENSORS)
        for tensor in tensors:
            node = tensor.grad_fn
            if node is not None:
                # Nodes have a dictionary for notes, which lives as long as they do.
                notes = node.metadata
                if _MARK not in notes:
                    notes[_MARK] = True
                    node.register_prehook(before)

    def _may_own(self) -> bool:
        """Whether nodes may get hooks: not while PyTorch traces, transforms or compiles."""
        if not self._torch.is_grad_enabled() or self._count_modes() > 0 or any(ask() is not None for ask in self._is_tracing):
            return False
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        return not (compiled is not None and getattr(compiled, "compiled_autograd_enabled", False))

    def _backward(self, text: str) -> None:
        local = self._local
        if not local.is_backward:
            local.is_backward = True
            after = local.metadata
            self._torch.autograd.Variable._execution_engine.queue_callback(lambda: quietly(self._backward_ended)(after))
        self._set(text)

    def _backward_ended(self, metadata: str) -> None:
        """Ends the backward pass in the thread that finished it, which is the one that ran its last node."""
        local = self._local
        if local.is_backward:
            local.is_backward = False
            self._set(metadata if self._is_on else "")
