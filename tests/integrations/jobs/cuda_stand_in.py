"""Stands in for the counters of `torch.cuda` next to real PyTorch on the CPU, for tests of callbacks without a GPU.

A model of the tests holds bytes here while it runs. `seen` keeps what was in use at each of these moments, which no reset changes: the truth
that figures are compared with. It shows that callbacks read and reset at the right moments. It says nothing on PyTorch's own allocator:
`tests/gpu/trainers.py` compares with that, on a machine with a GPU.
"""

import contextlib

import torch

MIB = 1 << 20
RESERVED = 64 * MIB

current = peak = resets = 0
seen = []
"""(what ran, bytes in use at its highest), in order."""


def _stats(number):
    assert number == 0
    return {
        "allocated_bytes": {"all": {"current": current, "peak": peak}},
        "reserved_bytes": {"all": {"current": RESERVED, "peak": RESERVED}},
    }


def reset(number=0):
    global peak, resets
    peak, resets = current, resets + 1


def allocate(size):
    global current, peak
    current += size
    peak = max(peak, current)


@contextlib.contextmanager
def held(what, size):
    """Holds some bytes while a block runs."""
    allocate(size)
    seen.append((what, current))
    try:
        yield
    finally:
        allocate(-size)


def install():
    torch.cuda._initialized = True
    torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: 1
    torch._C._cuda_memoryStats = _stats
    torch.cuda.reset_peak_memory_stats = torch._C._cuda_resetPeakMemoryStats = reset
    torch.cuda.max_memory_allocated = lambda device=None: peak
    # Optimizers ask the device, if there seems to be one, whether a graph is being captured.
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, name):
            setattr(torch.optim.Optimizer, name, lambda optimizer: None)
    allocate(5 * MIB)
