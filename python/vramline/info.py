"""One moment: what a device's memory looks like now."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from vramline import _vramline, counters, driver
from vramline.ledger import Ledger, parse
from vramline.words import LimitSetter

_OF_DRIVER = ("driver_used", "driver_total", "driver_free", "driver_reserved")
_NO_KERNEL = "the kernel does not tell: /proc is not to be read here"


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """Bytes of a device as its framework counts them. What is not known is None; `why` says why."""

    device: str
    framework: str | None
    current: int | None
    """In use now: chunks of the pool, slack included."""
    peak: int | None
    """The most that was in use since the program began or `reset_peak` was called."""
    limit: int | None
    """The most that the pool may take; `limit_by` says who set that."""
    limit_by: LimitSetter | None
    """Who set the limit. "built-in" is TensorFlow's default for its pool on the CPU: 64 GiB, which no memory backs, so nothing is to be
    measured against it."""
    pool: int | None
    """Taken from the driver, in use or not."""
    driver_used: int | None
    """In use on the whole device, by the driver's count."""
    driver_total: int | None
    """The device's memory."""
    driver_free: int | None
    """Not taken, by the driver's count."""
    driver_reserved: int | None
    """Kept by the driver."""
    process: int | None
    """What this process holds on the device, by the driver's count: its pools, the CUDA context and libraries. On the CPU its resident
    set, by the kernel's count: its pools, and the program's own memory."""
    host_total: int | None
    """The machine's own memory, by the kernel's count."""
    host_available: int | None
    """What of it can be had without swapping."""
    host_resident: int | None
    """What of it this process holds."""
    reasons: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def ledger(self) -> Ledger:
        """Who holds which byte of the device: it adds up, and what remains has a line of its own."""
        is_host = self.device.startswith("CPU")
        document = _vramline.ledger_json(
            self.device,
            self.host_total if is_host else self.driver_total,
            self.driver_reserved,
            self.host_available if is_host else self.driver_free,
            self.process,
            self.why("process") or "",
            self.pool,
            self.why("pool") or "",
            self.current,
            self.why("current") or "",
        )
        return parse(document)[0]

    def why(self, field: str) -> str | None:
        """Why a field is None; None where it is not."""
        if getattr(self, field) is not None:
            return None
        return self.reasons.get(field, "the framework does not tell")


def _find(device: str | None, framework: str | None) -> tuple[ModuleType, str]:
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


class Device(str):
    """The name of a device, as in `GPU:0`, with what the driver says of it. What is not known is None; a CPU has no driver."""

    model: str | None
    capability: tuple[int, int] | None
    uuid: str | None
    pci_bus_id: str | None
    driver_version: str | None
    driver_total: int | None
    driver_reserved: int | None
    driver_free: int | None
    driver_used: int | None
    process: int | None
    reasons: dict[str, str]

    def why(self, field: str) -> str | None:
        """Why a field is None; None where it is not."""
        return None if getattr(self, field) is not None else self.reasons.get(field, "the driver does not tell")


def _device(name: str, ordinal: int | None, facts: dict[str, Any]) -> Device:
    device, told = Device(name), driver.figures(name, ordinal)
    fitting = (each for each in facts["devices"] if told.uuid and each["uuid"].endswith(told.uuid))
    known: dict[str, Any] = next(fitting, {})
    capability = known.get("capability")
    device.model, device.uuid, device.pci_bus_id = known.get("name"), known.get("uuid"), known.get("pci_bus_id")
    device.capability = tuple(capability) if capability else None
    device.driver_version = facts.get("library", {}).get("driver_version")
    device.reasons = _take(device, told)
    for field in ("model", "uuid", "pci_bus_id", "capability", "driver_version"):
        device.reasons.setdefault(field, told.why or facts.get("error") or "the driver does not tell")
    return device


def _take(into: Any, told: driver.Figures) -> dict[str, str]:
    """Puts the driver's figures there, and gives the reasons for those that are not known."""
    into.driver_total, into.driver_reserved, into.driver_free, into.driver_used = told[:4]
    into.process = told.process
    return _reasons(told)


def _reasons(told: driver.Figures) -> dict[str, str]:
    reasons = dict.fromkeys(_OF_DRIVER, told.why or "the driver does not tell")
    reasons |= dict.fromkeys(("host_total", "host_available", "host_resident"), _NO_KERNEL)
    return reasons | {"process": told.why_process or "the driver does not tell"}


def devices() -> list[Device]:
    """The GPUs that CUDA shows to this program, and whatever else a framework has used here, as in `GPU:0`."""
    facts = driver.facts()
    found: dict[str, Device] = {}
    for adapter in counters.adapters():
        for name in adapter.devices():
            if name not in found:
                found[name] = _device(name, _ordinal(adapter, name), facts)
    for number in range(len(facts["devices"])):
        name = f"GPU:{number}"
        if name not in found and driver.uuid_of(number) is not None:
            found[name] = _device(name, number, facts)
    return list(found.values())


def _ordinal(adapter: ModuleType, name: str) -> int | None:
    if not name.startswith("GPU:"):
        return None
    try:
        return adapter.ordinal(name)
    except Exception:  # An unknown version of a framework costs this figure, not the job.
        return None


def memory_info(device: str | None = None, *, framework: str | None = None) -> MemoryInfo:
    """The memory of a device now: of the first one in use, unless told which.

    Before the program has used the device only the driver's figures are there: asking a framework would initialise it, and
    later settings such as memory growth would fail.
    """
    host = driver.host()
    try:
        adapter, name = _find(device, framework)
    except LookupError as error:
        told = driver.figures(device) if device else driver.Figures(why=str(error), why_process=str(error))
        reasons = _reasons(told) | dict.fromkeys(("current", "peak", "limit", "limit_by", "pool"), str(error))
        return MemoryInfo(
            device or "", framework, None, None, None, None, None, told.used, told.total, told.free, told.reserved, told.process,
            *host, reasons,
        )
    told = driver.figures(name, _ordinal(adapter, name))
    reasons = _reasons(told)
    read = adapter.read(name)
    limit = adapter.limit(name)
    if read.reason:
        reasons |= dict.fromkeys(("current", "peak"), read.reason)
    if read.pool is None:
        reasons["pool"] = read.reason or "TensorFlow does not tell what its pool took"
    if limit.why:
        reasons |= dict.fromkeys(("limit", "limit_by"), limit.why)
    return MemoryInfo(
        name, adapter.NAME, read.current, read.peak, limit.bytes, limit.by, read.pool, told.used, told.total, told.free,
        told.reserved, told.process, *host, reasons,
    )


def reset_peak(device: str | None = None, *, framework: str | None = None) -> None:
    """Resets the peak of a device, so that what follows is measured on its own.

    Before a program has used any device there is no peak, and nothing to do.

    Raises:
        LookupError: If no framework uses the device, and some use others.
        NotResettable: If the framework cannot do so (JAX).
    """
    if counters.adapters():
        counters.reset(*_find(device, framework))
