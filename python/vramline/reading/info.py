"""`vramline.memory_info`, `devices` and `reset_peak`: the memory of a device now."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from vramline import _vramline
from vramline.frameworks import counters, driver
from vramline.reading.ledger import Ledger, parse
from vramline.words import LimitSetter

_OF_DRIVER = ("driver_used", "driver_total", "driver_free", "driver_reserved")
_NO_KERNEL = "the kernel does not report it: /proc cannot be read here"
_NO_DRIVER_ANSWER = "the driver does not report it"


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """The memory of a device at one moment, in bytes.

    A value that is unknown is None; `why(field)` gives the reason. The framework reports `current`, `peak`, `limit` and `pool`,
    the driver reports `driver_*` and `process`, and the kernel reports `host_*`.

    Attributes:
        device: The name of the device, such as "GPU:0"; empty if none was requested and none is in use.
        framework: "tensorflow", "jax" or "torch"; None if no framework has used the device.
        current: Bytes in use now, as the framework's allocator counts them: rounding included.
        peak: The highest number of bytes in use since the program started, or since `reset_peak`.
        limit: The most that the pool may reserve. `limit_by` says who set it.
        limit_by: Who set the limit. "built-in" is TensorFlow's default of 64 GiB for its CPU pool: it says nothing about this
            machine's memory.
        pool: Bytes that the framework's pool has reserved from the driver, in use or cached. TensorFlow does not report it.
        driver_used: Bytes in use on the whole device, by all processes.
        driver_total: Total memory of the device.
        driver_free: Free memory of the device.
        driver_reserved: Memory that the driver keeps for itself.
        process: Bytes that this process holds on the device according to the driver: pools, CUDA context and libraries. On the
            CPU, the resident set of the process.
        host_total: Total memory of the machine.
        host_available: Host memory that programs can still allocate without swapping.
        host_resident: Host memory that this process holds (its resident set).
        reasons: The reason for each field that may be None; `why` looks it up.
    """

    device: str
    framework: str | None
    current: int | None
    peak: int | None
    limit: int | None
    limit_by: LimitSetter | None
    pool: int | None
    driver_used: int | None
    driver_total: int | None
    driver_free: int | None
    driver_reserved: int | None
    process: int | None
    host_total: int | None
    host_available: int | None
    host_resident: int | None
    reasons: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def ledger(self) -> Ledger:
        """Returns a `Ledger` that divides the device's memory among the driver, processes and pools. Its lines add up."""
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
        """Returns why a field is None, or None if the field has a value. Example: `info.why("limit")`."""
        if getattr(self, field) is not None:
            return None
        return self.reasons.get(field, "the framework does not report it")


def _find(device: str | None, framework: str | None) -> tuple[ModuleType, str]:
    used = [adapter for adapter in counters.adapters() if framework in (None, adapter.NAME)]
    for adapter in used:
        for name in adapter.devices():
            if device is None or device.upper() == name.upper():
                return adapter, name
    known = [name for adapter in used for name in adapter.devices()]
    raise LookupError(
        f"no device {device or ''} in use{f' by {framework}' if framework else ''}; devices in use: {', '.join(known)}"
        if known
        else "no framework has used a device yet; call this after the program has created its first tensor"
    )


class Device(str):
    """The name of a device, such as "GPU:0", with what the driver reports about it.

    A `Device` is a string, so it can be passed to `memory_info`, `watch` or `tf.device`. A value that is unknown is None;
    `why(field)` gives the reason. All values of a CPU except `process` are None, because it has no driver.

    Attributes:
        model: The product name, such as "NVIDIA H200".
        capability: The CUDA compute capability, such as (9, 0).
        uuid: The UUID of the GPU.
        pci_bus_id: The PCI bus ID.
        driver_version: The version of the driver.
        driver_total: Total memory, in bytes.
        driver_reserved: Bytes that the driver keeps for itself.
        driver_free: Free bytes.
        driver_used: Bytes in use, by all processes.
        process: Bytes that this process holds on the device.
        reasons: The reason for each field that may be None; `why` looks it up.
    """

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
        """Returns why a field is None, or None if the field has a value."""
        return None if getattr(self, field) is not None else self.reasons.get(field, _NO_DRIVER_ANSWER)


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
        device.reasons.setdefault(field, told.why or facts.get("error") or _NO_DRIVER_ANSWER)
    return device


def _take(into: Any, told: driver.Figures) -> dict[str, str]:
    """Copies the driver's figures into an object, and returns the reasons for those that are unknown."""
    into.driver_total, into.driver_reserved, into.driver_free, into.driver_used = told[:4]
    into.process = told.process
    return _reasons(told)


def _reasons(told: driver.Figures) -> dict[str, str]:
    reasons = dict.fromkeys(_OF_DRIVER, told.why or _NO_DRIVER_ANSWER)
    reasons |= dict.fromkeys(("host_total", "host_available", "host_resident"), _NO_KERNEL)
    return reasons | {"process": told.why_process or _NO_DRIVER_ANSWER}


def devices() -> list[Device]:
    """Lists the GPUs that this program can see, and every other device that a framework has used here.

    Initialises no device. Each entry is a string such as "GPU:0" with the driver's figures as attributes.

        for device in vramline.devices():
            print(device, device.model, device.driver_free)
    """
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
    except Exception:  # With an unknown version of a framework, this figure is missing, but the job continues.
        return None


def memory_info(device: str | None = None, *, framework: str | None = None) -> MemoryInfo:
    """Returns the memory of a device now.

        info = vramline.memory_info("GPU:0")
        print(info.current, info.peak, info.why("limit"))

    Before the program has used the device, only the figures of the driver and of the host are known. Vramline does not ask the
    framework then, because that would initialise the device, and later settings such as memory growth would fail.

    Args:
        device: The name of a device, such as "GPU:0" or "CPU:0". By default, the first device that a framework uses.
        framework: "tensorflow", "jax" or "torch", if several of them use the device. By default, the first in that order.

    Returns:
        A `MemoryInfo`: sizes in bytes, None where a size is unknown.
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
        reasons["pool"] = read.reason or "TensorFlow does not report the size of its pool"
    if limit.why:
        reasons |= dict.fromkeys(("limit", "limit_by"), limit.why)
    return MemoryInfo(
        name, adapter.NAME, read.current, read.peak, limit.bytes, limit.by, read.pool, told.used, told.total, told.free,
        told.reserved, told.process, *host, reasons,
    )


def reset_peak(device: str | None = None, *, framework: str | None = None) -> None:
    """Resets the peak of a device to what is in use now.

    Afterwards `memory_info(...).peak`, and the framework's own peak, count from this moment. Does nothing if the program has not
    used any device yet.

    Args:
        device: The name of a device, such as "GPU:0". By default, the first device that a framework uses.
        framework: "tensorflow" or "torch", if several frameworks use the device.

    Raises:
        LookupError: If no framework uses this device, but some use other devices.
        RuntimeError: If the framework cannot reset its peak (JAX).
    """
    if counters.adapters():
        counters.reset(*_find(device, framework))
