"""`vramline.watch`: the memory before and after a block of code, and the peak inside it."""

from __future__ import annotations

import os
from types import TracebackType

from vramline import shown
from vramline.frameworks import counters
from vramline.frameworks.adapter import resets
from vramline.reading.info import MemoryInfo, memory_info, reset_peak
from vramline.recording import recorder

FRAMEWORK_NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}

# By framework: what gives the bytes of a pool back to the driver.
_RETURNS = {
    "torch": "call torch.cuda.empty_cache(), which returns segments that are completely free, or end the process",
    "jax": "end the process; XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps no pool, but is slow",
    "tensorflow": "end the process; with TF_GPU_ALLOCATOR=cuda_malloc_async TensorFlow keeps less",
}

# Open watches, outermost first. A watch that resets the peak passes the old value to the others first.
_open: list[Watch] = []


class Watch:
    """The memory before and after a block of code, and the peak inside it. `vramline.watch` returns it.

    Print it to see what the block changed. Attributes are None until the block has begun or ended.

    Attributes:
        label: The name of the block.
        before: A `MemoryInfo` from the beginning of the block.
        after: A `MemoryInfo` from the end of the block.
    """

    def __init__(self, label: str, device: str | None, framework: str | None, reset: bool) -> None:
        self.label = label
        self._asked = (device, framework)
        self._resets = reset
        # The highest peak seen since the block began, and the time of the reset that the framework's peak counts from.
        self._seen: int | None = None
        self._since: int | None = None
        self._no_reset = "reset=False"
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
        """Takes a peak into account that was read at the end of the block, or just before a reset inside the block."""
        before = self.before.peak if self.before else None
        if self._since is None:
            # The peak was not reset: if it is not higher than before the block, it may come from before the block.
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
        """Writes the counters to the job's recording under `vramline run`, so that a reset does not hide an earlier peak from it."""
        job = recorder.attached()
        if job is not None:
            job.mark("mark", f"{self.label or 'watch'} {what}", how="api", read=counters.read_all())

    @property
    def is_reset(self) -> bool:
        """Whether the framework's peak counts from the beginning of the block, and was not reset since."""
        return self._since is not None and self._since == self._last_reset()

    @property
    def peak(self) -> int | None:
        """The highest number of bytes in use inside the block; None if it is unknown, and `why_peak` gives the reason."""
        return None if self.after is None or self._is_other_reset else self._seen

    @property
    def why_peak(self) -> str | None:
        """The reason why `peak` is None, or None if the peak is known."""
        if self.before is None or self.after is None:
            return "the block has not ended yet"
        if self.peak is not None:
            return None
        if self.after.peak is None:
            return self.after.why("peak")
        if self._is_other_reset:
            return "the peak was reset inside the block"
        return f"at most {self.before.peak:,} bytes, the peak before the block, which was not reset: {self._no_reset}"

    def change(self, field: str) -> int | None:
        """Returns by how many bytes a field of `MemoryInfo` changed, such as "current"; None if it was unknown before or after."""
        before, after = (getattr(info, field, None) for info in (self.before, self.after))
        return None if before is None or after is None else after - before

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.label}: not finished yet"
        is_host = self.after.device.startswith("CPU")
        lines = [f"{self.label} ({self.after.device or 'no device'})", self._line("in use", "current")]
        peak = "unknown" if self.peak is None else f"{self.peak:,} bytes"
        lines.append(f"  peak inside the block: {peak}" + (f" ({self.why_peak})" if self.peak is None else ""))
        lines.append(self._line("reserved by the pool", "pool"))
        if not is_host:
            # On the CPU this is the same number as the host memory below.
            lines.append(self._line("held by this process, according to the driver", "process"))
        lines.append(self._line("host memory of this process", "host_resident"))
        return "\n".join(lines + self._went_back("the system" if is_host else "the driver"))

    def _line(self, title: str, field: str) -> str:
        change = self.change(field)
        if change is None or self.before is None or self.after is None:
            why = (self.after and self.after.why(field)) or (self.before and self.before.why(field))
            return f"  {title}: unknown ({why})"
        return f"  {title}: {getattr(self.after, field):,} bytes ({change:+,})"

    def _went_back(self, owner: str) -> list[str]:
        """Says where the bytes went that the block freed."""
        current, pool = self.change("current"), self.change("pool")
        if current is None or current >= 0 or self.after is None:
            return []
        framework = self.after.framework or ""
        name = FRAMEWORK_NAMES.get(framework, "the framework")
        lines = [f"  given back to the pool: {-current:,} bytes; {name} reuses them for this process's next tensors"]
        is_async = os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async" and owner == "the driver"
        if pool is not None:
            lines.append(f"  given back to {owner}: {max(-pool, 0):,} bytes")
        elif framework == "tensorflow" and not is_async:
            lines.append(f"  given back to {owner}: 0 bytes; TensorFlow's pool keeps the memory that it reserved")
        else:
            lines.append(f"  given back to {owner}: unknown ({self.after.why('pool')})")
        if pool is None or -pool < -current:
            ways = _RETURNS.get(framework) if owner == "the driver" else None
            lines.append(f"  to give them back to {owner}: {ways or 'end the process'}")
        return lines

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        rows = [line.strip().partition(": ")[::2] for line in lines]
        return shown.table(title, ["", "bytes (change)"], rows)


def watch(label: str = "", device: str | None = None, *, framework: str | None = None, reset: bool = True) -> Watch:
    """Measures the memory before and after a block of code, and the peak inside it.

        with vramline.watch("delete x") as w:
            del x
        print(w)                  # what changed, and whether the bytes went back to the pool or to the driver
        w.change("current")       # bytes; negative if the block freed memory

    Args:
        label: A name for the block, printed in the first line.
        device: The name of a device, such as "GPU:0". By default, the first device that a framework uses.
        framework: "tensorflow", "jax" or "torch", if several of them use the device.
        reset: Reset the framework's peak when the block begins, so that `w.peak` is the peak of the block alone. The framework's
            own peak, such as that of `get_memory_info`, then counts from there too. Use False in a program that reads the peak of
            the whole run; `w.peak` is then known only if the block exceeds the peak before it.

    Returns:
        A `Watch` with `before`, `after`, `peak` and `change(field)`, all in bytes.
    """
    return Watch(label, device, framework, reset)
