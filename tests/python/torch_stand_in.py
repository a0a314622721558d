"""A stand-in for PyTorch on a GPU, for tests without one: an allocator whose history and snapshots have the shape of PyTorch's, modules with
hooks, a backward pass in a thread without Python frames, and memory that runs out.
"""

import textwrap

STAND_IN = {
    "__init__.py": """
        __version__ = "2.11.0"
        from torch import _C, cuda
        from torch._C import OutOfMemoryError
        class Tensor:
            is_leaf = True
            requires_grad = False
            def __init__(self, size, grad_fn=None, frames=()):
                self.size, self.grad_fn, self.grad = size, grad_fn, None
                self.shape, self.dtype = (size // 4,), "torch.float32"
                self.address = _C.allocate(size, frames)
                self.device = type("device", (), {"type": "cuda", "index": 0})
            numel = lambda self: self.size // 4
            element_size = lambda self: 4
            data_ptr = lambda self: self.address
            def free(self):
                _C.free(self.address)
        is_grad_enabled = lambda: True
        from torch import autograd, nn, optim
    """,
    "_C.py": """
        import os, threading, time
        local = threading.local()
        # Live blocks, and where each was requested while the history was on.
        entries, live, places = [], {}, {}
        base = 0x7f0000000000
        SIZE = 1 << 26
        LIMIT = int(os.environ.get("STAND_IN_LIMIT", SIZE))
        top = base
        # None, "state" (live blocks only) or "all".
        history, has_context = None, False
        calls, observers, allocated, highest = [], [], 0, 0
        class OutOfMemoryError(RuntimeError):
            pass
        def listed(frames):
            return [{"name": name, "filename": file, "line": line} for name, file, line in frames]
        def entry(action, address, size, frames=(), key="addr"):
            if history:
                metadata = getattr(local, "metadata", "")
                if history == "state":
                    entries.clear()
                entries.append({"action": action, key: address, "size": size, "stream": 0, "time_us": time.time_ns() // 1000,
                    "compile_context": "N/A", "user_metadata": metadata, "frames": listed(frames)})
                time.sleep(2e-5)
        def rounded(size):
            return (size + 511) // 512 * 512
        def free_address(size):
            global top
            if top + rounded(size) <= base + SIZE:
                address, top = top, top + rounded(size)
                return address
            at = base
            for address in sorted(live):
                if address - at >= rounded(size):
                    break
                at = address + rounded(live[address])
            return at
        def allocate(size, frames):
            global allocated, highest
            in_use = sum(map(rounded, live.values()))
            if in_use + rounded(size) > LIMIT:
                free = LIMIT - in_use
                entry("oom", free, size, frames, "device_free")
                for observer in observers:
                    observer(0, size, LIMIT, free)
                mib = lambda size: f"{size / (1 << 20):.2f} MiB"
                raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {mib(size)}. GPU 0 has a total capacity of {mib(LIMIT)} of "
                    f"which {mib(free)} is free. Including non-PyTorch memory, this process has {mib(in_use)} memory in use. Of the "
                    f"allocated memory {mib(in_use)} is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.")
            address = free_address(size)
            live[address] = size
            allocated, highest = allocated + 1, max(highest, in_use + rounded(size))
            if history and has_context:
                places[address] = listed(frames)
            entry("alloc", address, size, frames)
            return address
        def _cuda_attach_out_of_memory_observer(observer):
            observers.append(observer)
        def free(address):
            size = live.pop(address)
            places.pop(address, None)
            entry("free_requested", address, size)
            entry("free_completed", address, size)
        def _cuda_setMemoryMetadata(text):
            local.metadata = text
        _get_tracing_state = lambda: None
        def _cuda_memoryStats(number):
            count = {"all": {"current": sum(map(rounded, live.values())), "peak": highest}}
            return {"allocated_bytes": count, "reserved_bytes": count, "allocation": {"all": {"allocated": allocated}}}
    """,
    "pinning.py": """
        # Imported by programs that pin memory: older versions of PyTorch do not count it.
        from torch import _C
        count = {"current": 3 << 20, "peak": 4 << 20}
        _C._cuda_hostMemoryStats = lambda: {"active_bytes": count, "allocated_bytes": {"current": 8 << 20, "peak": 8 << 20}}
    """,
    "autograd.py": """
        class Node:
            def __init__(self):
                self.metadata, self.hooks = {}, []
            def register_prehook(self, hook):
                self.hooks.append(hook)
            def run(self):
                for hook in self.hooks:
                    assert hook(()) is None
        class Variable:
            class _execution_engine:
                waiting = []
                @staticmethod
                def queue_callback(call):
                    Variable._execution_engine.waiting.append(call)
    """,
    "cuda/__init__.py": """
        from torch.cuda import memory
        _initialized, waiting = False, []
        is_initialized = lambda: _initialized
        device_count = lambda: 1
        reset_peak_memory_stats = lambda number: None
        def _lazy_call(call, **_):
            call() if _initialized else waiting.append(call)
        def init():
            global _initialized
            for call in waiting:
                call()
            _initialized = True
    """,
    "cuda/memory.py": """
        from torch import _C
        SIZE = _C.SIZE
        def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=0):
            _C.calls.append(enabled)
            _C.history, _C.has_context = enabled, context is not None
            if enabled == "all":
                _C.entry("segment_alloc", _C.base, SIZE)
            elif not enabled:
                _C.entries.clear()
        def _snapshot():
            _C.calls.append("snapshot")
            blocks, at = [], _C.base
            def block(address, size, requested, state):
                blocks.append({"address": address, "size": size, "requested_size": requested, "state": state,
                    "frames": _C.places.get(address, []) if requested else []})
            for address, size in sorted(_C.live.items()):
                if address > at:
                    block(at, address - at, 0, "inactive")
                at = address + (size + 511) // 512 * 512
                block(address, at - address, size, "active_allocated")
            block(at, _C.base + SIZE - at, 0, "inactive")
            active = sum(each["size"] for each in blocks if each["state"] != "inactive")
            segment = {"device": 0, "address": _C.base, "total_size": SIZE, "allocated_size": active, "active_size": active,
                "requested_size": sum(_C.live.values()), "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [], "blocks": blocks}
            return {"segments": [segment], "device_traces": [list(_C.entries)], "allocator_settings": {}, "external_annotations": []}
    """,
    "nn/__init__.py": "from torch.nn.modules.module import Module\n",
    "nn/modules/__init__.py": "from torch.nn.modules import module\n",
    "nn/modules/module.py": """
        import itertools
        _global_forward_pre_hooks, _global_forward_hooks, _global_forward_hooks_with_kwargs = {}, {}, {}
        numbers = itertools.count()
        class Handle:
            def __init__(self, table, hook):
                self.table, self.id = table, next(numbers)
                table[self.id] = hook
            def remove(self):
                self.table.pop(self.id, None)
        def register_module_forward_pre_hook(hook):
            return Handle(_global_forward_pre_hooks, hook)
        def register_module_forward_hook(hook, with_kwargs=False, always_call=False):
            return Handle(_global_forward_hooks, hook)
        class Module:
            def __init__(self):
                self._parameters, self._buffers, self._modules = {}, {}, {}
            def __setattr__(self, name, value):
                if isinstance(value, Module):
                    self._modules[name] = value
                object.__setattr__(self, name, value)
            def named_modules(self, prefix=""):
                yield prefix, self
                for name, module in self._modules.items():
                    yield from module.named_modules(f"{prefix}.{name}" if prefix else name)
            def modules(self):
                return (module for _, module in self.named_modules())
            def parameters(self):
                return (each for module in self.modules() for each in module._parameters.values())
            def buffers(self):
                return (each for module in self.modules() for each in module._buffers.values())
            def __call__(self, *args, **kwargs):
                for hook in list(_global_forward_pre_hooks.values()):
                    assert hook(self, args) is None
                result = self.forward(*args, **kwargs)
                for hook in list(_global_forward_hooks.values()):
                    assert hook(self, args, kwargs, result) is None
                return result
    """,
    "optim/__init__.py": "",
    "optim/optimizer.py": """
        import torch
        hooks = []
        register_optimizer_step_post_hook = hooks.append
        class Optimizer:
            def __init__(self, parameters):
                self.param_groups, self.state = [{"params": list(parameters)}], {}
            def step(self):
                frames = [("adam", "/v/site-packages/torch/optim/adam.py", 9), ("main", "/me/train.py", 50)]
                for parameter in self.param_groups[0]["params"]:
                    if parameter not in self.state:
                        self.state[parameter] = {"exp_avg": torch.Tensor(parameter.size, frames=frames)}
                for hook in hooks:
                    hook(self, (), {})
    """,
}


def install(folder):
    """Writes the stand-in to a folder. Returns the path to import it from."""
    for name, text in STAND_IN.items():
        path = folder / "stand_in" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder / "stand_in"
