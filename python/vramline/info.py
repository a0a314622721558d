"""One moment: what a device's memory looks like now, and before and after a block of code."""

from __future__ import annotations

import dataclasses
from types import ModuleType, TracebackType
from typing import Optional

from vramline import _vramline, counters

_NO_DRIVER = "the driver is not asked yet: this version reads the framework's figures only"


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """Bytes of a device as its framework counts them. What is not known is None; `why` says why."""

    device: str
    framework: Optional[str]
    current: Optional[int]
    """In use now: chunks of the pool, slack included."""
    peak: Optional[int]
    """The most that was in use since the program began or `reset_peak` was called."""
    limit: Optional[int]
    """The most that the pool may take from the driver."""
    pool: Optional[int]
    """Taken from the driver, in use or not."""
    driver_used: Optional[int]
    """In use on the whole device, by the driver's count."""
    driver_total: Optional[int]
    """The device's memory."""
    host_resident: Optional[int]
    """Host memory that this process holds."""
    reasons: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def why(self, field: str) -> Optional[str]:
        """Why a field is None; None where it is not."""
        if getattr(self, field) is not None:
            return None
        return self.reasons.get(field, "the framework does not tell")


def _find(device: Optional[str], framework: Optional[str]) -> tuple[ModuleType, str]:
    used = [adapter for adapter in counters.adapters() if framework in (None, adapter.NAME)]
    for adapter in used:
        for name in adapter.devices():
            if device is None or device.upper() == name.upper():
                return adapter, name
    known = [name for adapter in used for name in adapter.devices()]
    raise LookupError(
        f"no device {device or ''} in use{f' by {framework}' if framework else ''}; known now: {', '.join(known)}"
        if known
        else "no framework has used a device yet: ask after the first tensor was made there"
    )


def devices() -> list[str]:
    """The devices of the frameworks that this program has used, as in `GPU:0`."""
    found: list[str] = []
    for adapter in counters.adapters():
        found.extend(name for name in adapter.devices() if name not in found)
    return found


def memory_info(device: Optional[str] = None, *, framework: Optional[str] = None) -> MemoryInfo:
    """The memory of a device now: of the first one in use, unless told which.

    Before the program has used the device every figure is None: asking a framework would initialise it, and later settings
    such as memory growth would fail.
    """
    resident = _vramline.resident_bytes()
    reasons = {"driver_used": _NO_DRIVER, "driver_total": _NO_DRIVER}
    try:
        adapter, name = _find(device, framework)
    except LookupError as error:
        reasons |= dict.fromkeys(("current", "peak", "limit", "pool"), str(error))
        return MemoryInfo(device or "", framework, None, None, None, None, None, None, resident, reasons)
    read = adapter.read(name)
    limit, no_limit = (read.limit, None) if read.limit is not None else adapter.limit(name)
    if read.reason:
        reasons |= dict.fromkeys(("current", "peak"), read.reason)
    if read.pool is None:
        reasons["pool"] = read.reason or "TensorFlow does not tell what its pool took from the driver"
    if no_limit:
        reasons["limit"] = no_limit
    return MemoryInfo(
        name, adapter.NAME, read.current, read.peak, limit, read.pool, None, None, resident, reasons
    )


def reset_peak(device: Optional[str] = None, *, framework: Optional[str] = None) -> None:
    """Resets the peak of a device, so that what follows is measured on its own.

    Raises:
        LookupError: If no framework has used the device yet.
        NotResettable: If the framework cannot do so (JAX).
    """
    counters.reset(*_find(device, framework))


class Watch:
    """The memory before and after a block of code. Printing it tells what the block changed."""

    def __init__(self, label: str, device: Optional[str], framework: Optional[str]) -> None:
        self.label = label
        self._asked = (device, framework)
        self.before: Optional[MemoryInfo] = None
        self.after: Optional[MemoryInfo] = None

    def __enter__(self) -> Watch:
        device, framework = self._asked
        self.before = memory_info(device, framework=framework)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        device, framework = self._asked
        self.after = memory_info(device, framework=framework)

    def change(self, field: str) -> Optional[int]:
        """By how many bytes a figure changed; None where one of the two is not known."""
        before, after = (getattr(info, field, None) for info in (self.before, self.after))
        return None if before is None or after is None else after - before

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.label}: not over yet"
        lines = [f"{self.label} ({self.after.device or 'no device'})"]
        names = {"current": "in use", "peak": "peak", "pool": "taken by the pool", "host_resident": "host memory"}
        for field, title in names.items():
            change = self.change(field)
            if change is None:
                lines.append(f"  {title}: not known ({self.after.why(field) or self.before.why(field)})")
            else:
                lines.append(f"  {title}: {getattr(self.after, field):,} bytes ({change:+,})")
        current, pool = self.change("current"), self.change("pool")
        if current is not None and current < 0:
            back = "not known here" if pool is None else f"{max(-pool, 0):,} bytes"
            lines.append(f"  given back to the pool: {-current:,} bytes; by the pool to the driver: {back}")
        return "\n".join(lines)


def watch(label: str = "", device: Optional[str] = None, *, framework: Optional[str] = None) -> Watch:
    """Measures before and after a block: `with vramline.watch("delete x") as w: del x`, then `print(w)`."""
    return Watch(label, device, framework)
