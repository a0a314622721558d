"""`vramline.watch`: the memory before and after a block of code, and the most that was in use inside it."""

from __future__ import annotations

import os
from types import TracebackType

from vramline import counters, recorder, shown
from vramline.adapter import resets
from vramline.info import MemoryInfo, memory_info, reset_peak

_NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}

# What would give the bytes of a pool back to the driver, by framework.
_RETURNS = {
    "torch": "torch.cuda.empty_cache(), as far as whole segments are free, or the end of the process",
    "jax": "the end of the process; XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps no pool, and is slow",
    "tensorflow": "the end of the process; on a GPU TF_GPU_ALLOCATOR=cuda_malloc_async keeps less",
}

# Watches that are open, outermost first: one that resets the peak tells the others what it was.
_open: list[Watch] = []


class Watch:
    """The memory before and after a block of code, and its peak. Printing it tells what the block changed."""

    def __init__(self, label: str, device: str | None, framework: str | None, reset: bool) -> None:
        self.label = label
        self._asked = (device, framework)
        self._resets = reset
        # The highest peak that was told since the block began, and the reset that the framework's peak counts from.
        self._seen: int | None = None
        self._since: int | None = None
        self._no_reset = "reset=False was asked for"
        self._is_other_reset = False
        self.before: MemoryInfo | None = None
        self.after: MemoryInfo | None = None

    def _last_reset(self) -> int | None:
        info = self.before
        return resets(info.framework).get(info.device) if info and info.framework else None

    def __enter__(self) -> Watch:
        device, framework = self._asked
        self.before = memory_info(device, framework=framework)
        self._seen, self._since, self._is_other_reset = None, None, False
        self._mark("begins")
        if self._resets:
            self._reset(self.before)
        _open.append(self)
        return self

    def _reset(self, info: MemoryInfo) -> None:
        if info.peak is None:
            return
        others = [each for each in _open if each.before and each.before.device in ("", info.device)]
        for other in others:
            other._note(info.peak)
        try:
            reset_peak(info.device, framework=info.framework)
        except (LookupError, counters.NotResettable) as error:
            self._no_reset = str(error)
            return
        self._since = self._last_reset()
        for other in others:
            other._since = self._since if other._since is not None else None

    def _note(self, peak: int) -> None:
        """Takes in what the framework says at the end of the block, or before somebody resets it inside."""
        before = self.before.peak if self.before else None
        if self._since is None:
            # Never reset: a peak that is no higher than before the block says nothing of it.
            is_own = before is None or peak > before
        else:
            is_own = self._since == self._last_reset()
            self._is_other_reset = self._is_other_reset or not is_own
        if is_own:
            self._seen = max(self._seen or 0, peak)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device, framework = self._asked
        if self in _open:
            _open.remove(self)
        self.after = memory_info(device, framework=framework)
        if self.after.peak is not None:
            self._note(self.after.peak)
        self._mark("ends")

    def _mark(self, what: str) -> None:
        """Under `vramline run` the job's recording keeps what is read here: a reset must not hide an earlier peak from it."""
        job = recorder.attached()
        if job is not None:
            job.mark("mark", f"{self.label or 'watch'} {what}", how="api", read=counters.read_all())

    @property
    def peak(self) -> int | None:
        """The most that was in use inside the block; None where it is not known, and `why_peak` says why."""
        return None if self.after is None or self._is_other_reset else self._seen

    @property
    def why_peak(self) -> str | None:
        """Why the peak of the block is not known; None where it is."""
        if self.before is None or self.after is None:
            return "the block is not over yet"
        if self.peak is not None:
            return None
        if self.after.peak is None:
            return self.after.why("peak")
        if self._is_other_reset:
            return "the peak was reset inside the block"
        return f"no more than before the block, {self.before.peak:,} bytes; {self._no_reset}"

    def change(self, field: str) -> int | None:
        """By how many bytes a figure changed; None where one of the two is not known."""
        before, after = (getattr(info, field, None) for info in (self.before, self.after))
        return None if before is None or after is None else after - before

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.label}: not over yet"
        is_host = self.after.device.startswith("CPU")
        lines = [f"{self.label} ({self.after.device or 'no device'})", self._line("in use", "current")]
        peak = "not known" if self.peak is None else f"{self.peak:,} bytes"
        lines.append(f"  peak inside the block: {peak}" + (f" ({self.why_peak})" if self.peak is None else ""))
        lines.append(self._line("taken by the pool", "pool"))
        if not is_host:
            # There it is the same as the host's memory.
            lines.append(self._line("held by this process, as the driver counts", "process"))
        lines.append(self._line("host memory of this process", "host_resident"))
        return "\n".join(lines + self._went_back("the system" if is_host else "the driver"))

    def _line(self, title: str, field: str) -> str:
        change = self.change(field)
        if change is None or self.before is None or self.after is None:
            why = (self.after and self.after.why(field)) or (self.before and self.before.why(field))
            return f"  {title}: not known ({why})"
        return f"  {title}: {getattr(self.after, field):,} bytes ({change:+,})"

    def _went_back(self, owner: str) -> list[str]:
        """Where the bytes went that the block has freed."""
        current, pool = self.change("current"), self.change("pool")
        if current is None or current >= 0 or self.after is None:
            return []
        framework = self.after.framework or ""
        name = _NAMES.get(framework, "the framework")
        lines = [f"  given back to the pool: {-current:,} bytes; {name} reuses them for this process's next tensors"]
        is_async = os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async" and owner == "the driver"
        if pool is not None:
            lines.append(f"  given back to {owner}: {max(-pool, 0):,} bytes")
        elif framework == "tensorflow" and not is_async:
            lines.append(f"  given back to {owner}: nothing; TensorFlow's pool keeps what it took")
        else:
            lines.append(f"  given back to {owner}: not known ({self.after.why('pool')})")
        if pool is None or -pool < -current:
            ways = _RETURNS.get(framework) if owner == "the driver" else None
            lines.append(f"  what would return them: {ways or 'the end of the process'}")
        return lines

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        rows = [line.strip().partition(": ")[::2] for line in lines]
        return shown.table(title, ["what", "bytes, and by how much they changed"], rows)


def watch(label: str = "", device: str | None = None, *, framework: str | None = None, reset: bool = True) -> Watch:
    """Measures before and after a block, and its peak: `with vramline.watch("delete x") as w: del x`, then `print(w)`.

    Args:
        label: What to call it.
        device: Which device, such as "GPU:0"; the first one in use by default.
        framework: Which framework, where several use the device.
        reset: Reset the framework's peak when the block begins, so that `w.peak` is the block's own. From then on the framework's own
            peak, such as that of `get_memory_info`, counts from there too. A program that reads the peak of the whole run itself wants
            False: then `w.peak` is known only where the block goes higher than the program did before.
    """
    return Watch(label, device, framework, reset)
