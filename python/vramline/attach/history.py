"""The memory history of PyTorch's allocator: complete while the trace window is open, and afterwards in its cheapest form.

After the window the allocator keeps only where each live block was requested. When an allocation fails, PyTorch calls an observer before
it raises its exception: the observer writes a snapshot. There is only one history. If the program records its own, ours stops.
"""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramline.attach.modules import ModuleHooks
from vramline.attach.moments import Moments
from vramline.attach.quiet import quietly
from vramline.attach.requests import Answer
from vramline.attach.settings import RunOptions
from vramline.attach.steps import Steps
from vramline.attach.window import available_bytes

# The most events that the allocator keeps, in a ring: a program with more events loses the oldest. An event takes this much memory,
# including its copy in Python.
_MOST_EVENTS = 500_000
_EVENT_BYTES = 3000
# After the window: the share of the time that call stacks may take, how long allocations are counted to estimate it, and how often a
# call stack is gathered to measure what one takes.
_MOST_SHARE = 0.01
_COUNTED_SECONDS = 3.0
_GATHERED = 64
# What a call stack costs in all, as a multiple of gathering it: it is also kept, and freed with its block. ResNet-50 on an H200 took 11 %
# longer with about 1,000 stacks a step.
_WHOLE_COST = 4
# Call stacks that were dropped come back if the peak rises to this share of what the process can have: memory may run out soon.
_NEAR_LIMIT = 0.7
# A rise of the peak is written only if the run has become this many times longer since the last one.
_LONGER = 1.5
# Seconds after the import of PyTorch in which the peak rises anyway, because the program builds its model.
_FIRST_RISE = 5.0


class History:
    """The memory history of this process, from the initialisation of CUDA to its end."""

    def __init__(self, torch: ModuleType, steps: Steps, modules: ModuleHooks | None, options: RunOptions) -> None:
        self._modules = modules
        self._torch = torch
        self._memory = torch.cuda.memory
        self._record = record = self._memory._record_memory_history
        self._is_enabled = getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)
        self._steps = steps
        self._window = steps.window
        self._moments = Moments(steps)
        # What goes on after the window: `auto` follows the trace.
        self._until_oom = options.until_oom
        if options.stops or (options.until_oom == "auto" and options.trace == "off"):
            self._until_oom = "off"
        # The thread that switched the history on, and the thread that trains.
        self._thread = self._trains = 0
        self._taken: Any = None
        # Whether the window's history is on, whether what follows it is on, and whether the program has its own.
        self._is_on = self._is_kept = self._is_theirs = False
        # Whether call stacks were dropped, because they cost too much.
        self._is_bare = False
        # When to estimate what the history costs, and the time and count of allocations at the beginning.
        self._judged_at: float | None = None
        self._counted_from = (0.0, 0)
        self._begun = time.monotonic()
        self._rose_at = 0.0
        self._has_missed_failure = False

        @functools.wraps(record)
        def theirs(*args: Any, **kwargs: Any) -> Any:
            quietly(self._make_way)()
            return record(*args, **kwargs)

        self._memory._record_memory_history = theirs
        os.register_at_fork(after_in_child=quietly(self._abandon))

    def begin(self) -> None:
        """Opens the window. CUDA is being initialised, so nothing is allocated yet."""
        # A version whose observer fails has a trace nevertheless.
        quietly(self._watch_failures)()
        if not self._is_theirs and not self._is_enabled():
            self._window.open("torch", self._start)
            if not self._is_on and self._until_oom == "on":
                self._keep()

    def _abandon(self) -> None:
        """Gives up the history in a forked child, which has no devices."""
        self._is_on = self._is_kept = False
        self._until_oom, self._is_theirs = "off", True

    def _make_way(self) -> None:
        self._is_theirs = True
        if self._is_on:
            self._window.close("the program records its own memory history")
        self._is_on = self._is_kept = False

    # --- The window ---

    def _start(self, _: pathlib.Path) -> Callable[[pathlib.Path], None]:
        self._thread = threading.get_ident()
        most = min(_MOST_EVENTS, max(available_bytes() // 4 // _EVENT_BYTES, 10_000))
        self._record(enabled="all", context="alloc", stacks="python", max_entries=most)
        self._is_on = True
        self._window.on_stop(quietly(self._stop))
        if self._modules is not None:
            quietly(self._modules.begin)()
        return self._save_window

    def _stop(self) -> None:
        if self._modules is not None:
            quietly(self._modules.end)()
        # Take the snapshot first: switching off discards the history.
        try:
            self._taken = self._memory._snapshot()
        finally:
            # PyTorch warns if another thread switches the history off than switched it on. If that thread trains, it does so after its
            # next step.
            if self._trains != self._thread or threading.get_ident() == self._thread:
                self._switch_off()

    def stepped(self) -> None:
        """Notes the end of a step, and changes the history if the window has closed meanwhile."""
        self._trains = threading.get_ident()
        if self._is_on and self._window.is_over and self._trains == self._thread:
            self._switch_off()
        elif self._judged_at is not None and time.monotonic() >= self._judged_at:
            quietly(self._judge)()

    def _switch_off(self) -> None:
        if self._is_on:
            self._is_on = False
            self._record(enabled=None)
            # Not at the end of the program, and not for the program's own history.
            if not self._window.is_ended and not self._is_theirs:
                quietly(self._keep)()

    def _save_window(self, folder: pathlib.Path) -> None:
        taken, self._taken = self._taken, None
        if taken is None:
            raise RuntimeError("PyTorch returned no snapshot")
        _write(taken, folder)

    # --- After the window ---

    def _keep(self) -> None:
        """Records where each live block is requested, from now on."""
        if self._until_oom == "off":
            return
        self._record(enabled="state", context="state", stacks="python", max_entries=1)
        self._is_kept = True
        self._thread = threading.get_ident()
        self._steps.rose = quietly(self._rose)
        self._steps.job.watch_peaks()
        if self._until_oom == "auto":
            self._counted_from = (time.monotonic(), self._allocations())
            self._judged_at = self._counted_from[0] + _COUNTED_SECONDS

    def _allocations(self) -> int:
        """Returns how many blocks were allocated on all devices so far."""
        torch, ask = self._torch, self._torch._C._cuda_memoryStats
        return sum(ask(number)["allocation"]["all"]["allocated"] for number in range(torch.cuda.device_count()))

    def _judge(self) -> None:
        """Estimates what the call stacks cost, and drops them if that is too much."""
        self._judged_at = None
        (begun, before), now = self._counted_from, time.monotonic()
        count = self._allocations() - before
        seconds = _WHOLE_COST * _seconds_of_a_stack(self._torch)
        share = count * seconds / (now - begun)
        costs = f"{count / (now - begun):.0f} allocations a second, {seconds * 1e6:.1f} µs each, {share:.2%} of the time"
        if share > _MOST_SHARE and self._is_kept:
            self._record(enabled="state", context=None, stacks="python", max_entries=1)
            self._is_bare = True
            self._steps.job.mark("setting", f"until memory runs out, blocks are recorded without call stacks: {costs}")
        else:
            self._steps.job.mark("setting", f"until memory runs out, blocks are recorded with call stacks: {costs}")

    def _rose(self) -> None:
        """Writes a snapshot, because the peak has risen: the process may be killed, and then nothing else shows what it held."""
        if self._is_bare and self._is_kept and self._is_near_limit():
            self._is_bare = False
            self._record(enabled="state", context="state", stacks="python", max_entries=1)
            self._steps.job.mark("setting", f"call stacks are recorded again: the peak has reached {_NEAR_LIMIT:.0%} of the memory")
        now = time.monotonic() - self._begun
        if now >= max(self._rose_at * _LONGER, _FIRST_RISE) and self._is_kept and self._moments.may_take("rise"):
            self._rose_at = now
            self._moments.take("rise", "snapshot: the peak has risen", self._save_now)
        self._steps.job.watch_peaks()

    def _is_near_limit(self) -> bool:
        """Returns whether the peak on any device is near what this process can have there: its limit, or what is free."""
        torch = self._torch
        share_of = getattr(self._memory, "get_per_process_memory_fraction", lambda _: 1.0)
        for number in range(torch.cuda.device_count()):
            peak = torch.cuda.max_memory_allocated(number)
            if peak:
                free, total = torch.cuda.mem_get_info(number)
                room = min(share_of(number) * total, torch.cuda.memory_reserved(number) + free)
                if peak >= _NEAR_LIMIT * room:
                    return True
        return False

    # --- When memory runs out ---

    def _watch_failures(self) -> None:
        self._steps.on_exception = quietly(self.failed)
        attach = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None or self._until_oom == "off":
            return

        # PyTorch has released the allocator's locks when it calls this, and raises its own exception afterwards.
        def ran_out(device: int, requested: int, total: int, free: int) -> None:
            quietly(self._ran_out)(device, requested, total, free)

        attach(ran_out)

    def _ran_out(self, device: int, requested: int, total: int, free: int) -> None:
        what = f"out of memory on GPU:{device}: {requested} bytes requested, {free} of {total} bytes free"
        self._write_failure(what)

    def _write_failure(self, what: str) -> None:
        self._has_missed_failure = not self._moments.may_take("oom")
        if self._has_missed_failure:
            return
        if self._is_on or self._is_theirs:
            # The trace has this moment, or the program's own history has it: only the variables are missing.
            self._moments.note(what)
            return
        number, _ = self._moments.take("oom", what, self._save_now)
        self._has_missed_failure = number is None

    def failed(self, error: BaseException) -> None:
        """Notes the exception that ends the program. If it is a failed allocation that the observer did not write, writes it now."""
        if type(error).__name__ != "OutOfMemoryError" or self._until_oom == "off" or not self._torch.cuda.is_initialized():
            return
        has_observer = hasattr(self._torch._C, "_cuda_attach_out_of_memory_observer")
        if has_observer and not self._has_missed_failure:
            return
        self._has_missed_failure = False
        if not self._is_on and not self._is_theirs:
            self._moments.take("oom", "out of memory: after the exception", self._save_now)

    # --- When somebody asks ---

    def asked(self) -> Answer:
        """Answers `vramline snapshot`."""
        if not self._torch.cuda.is_initialized():
            return Answer("counters", reason="PyTorch has not initialised CUDA in this process")
        if self._is_on:
            return Answer("counters", reason="the trace is still open: it will show this moment")
        if self._is_theirs:
            return Answer("counters", reason="the program records its own memory history")
        number, why = self._moments.take("request", "snapshot: requested by vramline snapshot", self._save_now)
        return Answer("taken", number) if number is not None else Answer("failed", reason=why)

    def _save_now(self, folder: pathlib.Path) -> None:
        _write(self._memory._snapshot(), folder)


def _seconds_of_a_stack(torch: ModuleType) -> float:
    """Measures how long PyTorch takes to gather a call stack of Python, in the thread that trains."""
    gather = getattr(getattr(torch._C, "_profiler", None), "gather_traceback", None)
    if gather is None:
        # An upper bound: gathering 40 frames took 0.42 µs on an AMD EPYC.
        return 1e-6
    begin = time.perf_counter()
    for _ in range(_GATHERED):
        gather(True, False, False)
    return (time.perf_counter() - begin) / _GATHERED


def _write(taken: Any, folder: pathlib.Path) -> None:
    """Writes a snapshot to a folder, completely or not at all."""
    path = folder / f"{os.uname().nodename}.snapshot.pickle"
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            pickle.dump(taken, file)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
