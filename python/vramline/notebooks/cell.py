"""The memory of a cell of a notebook: its peak, what grew, what stays and which names hold it; and what an exception keeps alive."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vramline.frameworks import counters, jax
from vramline.notebooks import held
from vramline.notebooks.held import Held
from vramline.reading.info import MemoryInfo, memory_info
from vramline.reading.watching import FRAMEWORK_NAMES, Watch, watch
from vramline.shown import Sheet, change_text, size_text

_MOST_ROWS = 12
# What a notebook puts beside the names of the user: `_`, `_3`, `_i`, `_oh`.
_OF_OUTPUT = re.compile(r"_+|_i*\d*|_[iod]h")
_MOST_CAUSES = 16


class DeviceMemory(NamedTuple):
    """The memory of one device around a cell, in bytes; None with a reason for what is unknown.

    Attributes:
        device: The name of the device, such as "GPU:0".
        framework: "tensorflow", "jax" or "torch".
        before: In use when the cell began.
        after: In use when it ended.
        peak: The most in use inside the cell.
        why: Why the peak, or all three, are unknown.
        held_before: What the names of the notebook held when the cell began.
        held: The same at its end.
        listed: For JAX on a device that it does not count: the bytes of all arrays, as JAX lists them.
    """

    device: str
    framework: str
    before: int | None
    after: int | None
    peak: int | None
    why: str | None
    held_before: Held
    held: Held
    listed: int | None

    @property
    def change(self) -> int | None:
        """By how many bytes the memory in use changed."""
        return None if self.before is None or self.after is None else self.after - self.before

    def sheet(self, label: str) -> Sheet:
        """Returns the figures as sentences and a table."""
        return Sheet(f"{label}: {self._sentence()}", ("held by", "what", "size", "change", "freed by del"), self.rows(), self.notes())

    def _sentence(self) -> str:
        name = FRAMEWORK_NAMES[self.framework]
        if self.after is None:
            what = "arrays that JAX lists" if self.listed is not None else "tensors that names of this notebook hold"
            why = (self.why or "the framework does not count them").rstrip(".")
            return f"{why}. On {self.device}, the {what} take {size_text(self.listed if self.listed is not None else self.held.bytes)}"
        peak = "peak unknown" if self.peak is None else f"peak {size_text(self.peak)} ({self.peak:,} bytes)"
        stays = "nothing stays" if not self.change else f"{size_text(self.change)} stay" if self.change > 0 else f"{size_text(-self.change)} freed"
        return f"{peak} on {self.device} ({name}); {stays}: {size_text(self.before)} in use before, {size_text(self.after)} after"

    def rows(self) -> list[tuple[str, ...]]:
        before = {holder.name: holder.bytes for holder in self.held_before.holders}
        holders = sorted(self.held.holders, key=lambda holder: max(holder.bytes, holder.only), reverse=True)
        rows: list[tuple[str, ...]] = [
            (holder.name, holder.type, size_text(holder.bytes), change_text(holder.bytes - before.get(holder.name, 0)), size_text(holder.only))
            for holder in holders[:_MOST_ROWS]
        ]
        rest, then = holders[_MOST_ROWS:], sum(before.get(holder.name, 0) for holder in holders[_MOST_ROWS:])
        if rest:
            size = sum(holder.bytes for holder in rest)
            rows.append((f"{len(rest)} more names", "", size_text(size), change_text(size - then), size_text(sum(each.only for each in rest))))
        gone = [name for name in before if name not in {holder.name for holder in self.held.holders}]
        rows += [(name, "holds nothing now", "0 B", change_text(-before[name]), "") for name in gone[:_MOST_ROWS] if before[name]]
        whole = self.after if self.after is not None else self.listed
        if whole is None:
            return rows
        others = whole - self.held.bytes
        change = None if self.before is None or self.after is None else self._change_of_others()
        if others:
            rows.append(("no name", self._others(others), size_text(others), "" if change is None else change_text(change), ""))
        title = "in use" if self.after is not None else "all arrays that JAX lists"
        rows.append((title, "", size_text(whole), "" if self.change is None else change_text(self.change), ""))
        return rows

    def _change_of_others(self) -> int:
        """By how many bytes the memory changed that no name holds."""
        return ((self.after or 0) - self.held.bytes) - ((self.before or 0) - self.held_before.bytes)

    def _others(self, size: int) -> str:
        if size < 0:
            return "held outside of the pool"
        if self.framework == "torch":
            return "rounding, saved for a backward pass, workspaces, other modules"
        return "rounding, caches of the framework, other modules"

    def notes(self) -> list[str]:
        notes = []
        if self.after is not None and self.peak is None and self.why:
            notes.append(f"The peak of the cell is unknown: {self.why}.")
        outputs = [holder for holder in self.held.holders if holder.name.startswith("Out[")]
        if outputs:
            size = size_text(sum(holder.bytes for holder in outputs))
            notes.append(f"Outputs of cells hold {size}. `%reset -f out` frees them; end a cell with `;` and its output is not kept.")
        if not self.held.is_complete:
            notes.append("Not all objects were searched, because there are too many: some memory without a name may have one.")
        return notes


class CellMemory:
    """The memory of a cell, for each device in use. `%%vramline --save NAME` keeps it.

    Attributes:
        label: The name of the cell.
        devices: A list of `DeviceMemory`.
    """

    def __init__(self, label: str, devices: list[DeviceMemory]) -> None:
        self.label, self.devices = label, devices

    def sheets(self) -> list[Sheet]:
        """Returns the figures of each device."""
        if self.devices:
            return [device.sheet(self.label) for device in self.devices]
        return [Sheet(f"{self.label}: no framework has used a device yet")]

    def __repr__(self) -> str:
        return "\n".join(map(str, self.sheets()))

    def _repr_html_(self) -> str:
        return "".join(sheet._repr_html_() for sheet in self.sheets())


def in_use(device: str | None = None) -> list[tuple[str, str]]:
    """Returns the devices that frameworks have used here, each with its framework; with `device`, only that one."""
    found = [(name, adapter.NAME) for adapter in counters.adapters() for name in adapter.devices()]
    # PyTorch does not count the memory of a CPU, so its adapter does not have it.
    if "torch" in sys.modules and not any(framework == "torch" for _, framework in found):
        found.append(("CPU:0", "torch"))
    return [pair for pair in found if device in (None, pair[0])]


def held_now(roots: Mapping[str, Any], device: str | None = None) -> list[Sheet]:
    """Returns a table for each device: what names hold, and what nobody holds."""
    sheets = []
    for name, framework in in_use(device):
        now = _device_memory(name, framework, None, roots)
        if now.after is None and not now.held.bytes and not now.listed:
            continue
        size = now.after if now.after is not None else now.listed if now.listed is not None else now.held.bytes
        columns = ("held by", "what", "size", "freed by del")
        rows = [(*row[:3], row[4]) for row in now.rows()]
        sheets.append(Sheet(f"{size_text(size)} ({size:,} bytes) in use on {name} ({FRAMEWORK_NAMES[framework]})", columns, rows, now.notes()))
    return sheets or [Sheet("No framework has used a device yet")]


class Measuring:
    """Measures a cell: between `begin` and `end`."""

    def __init__(self, label: str, device: str | None, reset: bool) -> None:
        self._label, self._device, self._resets = label or "cell", device, reset
        self._watches: list[tuple[Watch, Held]] = []

    def begin(self, roots: Mapping[str, Any]) -> None:
        """Reads what is in use, and resets the peaks."""
        # The search makes no tensors; it is done first all the same, so that nothing of it can be in the figures.
        before = [(name, framework, held.held(roots, name, framework)) for name, framework in in_use(self._device)]
        for name, framework, holds in before:
            self._watches.append((watch(self._label, name, framework=framework, reset=self._resets).__enter__(), holds))

    def end(self, roots: Mapping[str, Any]) -> CellMemory:
        """Reads what is in use now, and searches what holds it."""
        for watched, _ in self._watches:
            watched.__exit__(None, None, None)
        devices, known = [], set()
        for watched, before in self._watches:
            if watched.after is not None and watched.after.framework is not None:
                known.add((watched.after.device, watched.after.framework))
                devices.append(_device_memory(watched.after.device, watched.after.framework, watched, roots, before))
        # What was first used in this cell held nothing before.
        new = [pair for pair in in_use(self._device) if pair not in known]
        devices += [_device_memory(*pair, None, roots, Held([], 0, True)) for pair in new]
        return CellMemory(self._label, [each for each in devices if each.after is not None or each.held.bytes or each.listed])


def uncounted(info: MemoryInfo, framework: str) -> str | None:
    """Returns why a framework does not count the memory of a device; None if it does."""
    if framework == "torch" and info.device.startswith("CPU"):
        return "PyTorch does not count the memory of a CPU"
    return info.why("current")


def _device_memory(name: str, framework: str, watched: Watch | None, roots: Mapping[str, Any], before: Held | None = None) -> DeviceMemory:
    """Reads a device. Without a watch, it was first used after the cell began: its peak is the peak of the cell."""
    info = memory_info(name, framework=framework) if watched is None or watched.after is None else watched.after
    peak, was, why = info.peak, None if info.current is None else 0, uncounted(info, framework)
    if watched is not None:
        peak, was, why = watched.peak, watched.before.current if watched.before else None, why or watched.why_peak
    listed = jax.live_bytes(name) if framework == "jax" and info.current is None else None
    now = held.held(roots, name, framework)
    return DeviceMemory(name, framework, was, info.current, peak, why, before or now, now, listed)


def roots_of(shell: Any) -> dict[str, Any]:
    """Returns the objects of a notebook by name: variables, then outputs of cells that are kept."""
    hidden = getattr(shell, "user_ns_hidden", {})
    names = {
        name: value
        for name, value in list(shell.user_ns.items())
        if not _OF_OUTPUT.fullmatch(name) and name not in ("In", "Out") and not (name in hidden and hidden[name] is value)
    }
    outputs = shell.user_ns.get("_oh", {})
    names |= {f"Out[{number}]": value for number, value in list(outputs.items())}
    return names


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that it was raised from or during: each keeps a traceback of its own."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MOST_CAUSES:
        this = waiting.pop()
        if id(this) not in seen:
            seen.add(id(this))
            yield this
            waiting += [each for each in (this.__cause__, this.__context__) if each is not None]


def frames_of(error: BaseException) -> Iterator[types.FrameType]:
    """Yields the frames that an exception keeps alive."""
    for each in causes(error):
        trace = each.__traceback__
        while trace is not None:
            yield trace.tb_frame
            trace = trace.tb_next


def _locals(frame: types.FrameType) -> dict[str, Any]:
    """Returns the local variables of a function's frame, and keeps none of them alive."""
    if not frame.f_code.co_flags & 1:  # CO_OPTIMIZED: a function. The locals of a module or class are a namespace.
        return {}
    told = frame.f_locals
    found = dict(told)
    if isinstance(told, dict):
        # Up to Python 3.12 this is a copy, which the frame would keep.
        told.clear()
    return found


class Kept(NamedTuple):
    """What only the traceback of an exception holds on a device.

    Attributes:
        device: The name of the device.
        error: The type of the exception.
        rows: Function, variable, what it is, and bytes; they add up to `bytes`.
        bytes: Bytes that are freed when the frames are cleared.
        has_causes: Whether other exceptions belong to this one.
    """

    device: str
    error: str
    rows: list[tuple[str, str, int]]
    bytes: int
    has_causes: bool

    def sheet(self) -> Sheet:
        """Returns the figures as sentences and a table."""
        plain = "" if self.has_causes else ", or `import sys, traceback; traceback.clear_frames(sys.last_traceback)`"
        rows = [(name, what, size_text(size)) for name, what, size in self.rows[:_MOST_ROWS]]
        if len(self.rows) > _MOST_ROWS:
            rows.append((f"{len(self.rows) - _MOST_ROWS} more", "", size_text(sum(size for *_, size in self.rows[_MOST_ROWS:]))))
        notes = [f"To free them: `%vramline free`{plain}. Afterwards `%debug` shows no variables."]
        title = f"The traceback of {self.error} holds {size_text(self.bytes)} ({self.bytes:,} bytes) on {self.device} that no name holds"
        return Sheet(title, ("variable", "what", "size"), rows, notes)


def kept_by(error: BaseException, roots: Mapping[str, Any]) -> list[Kept]:
    """Finds what only the traceback of an exception holds, on each device."""
    named: dict[str, Any] = dict(roots)
    local: dict[str, Any] = {}
    for frame in frames_of(error):
        module = str(frame.f_globals.get("__name__"))
        # What a module of the user holds does not go away with the traceback.
        if module != "__main__" and f"module {module}" not in named and module.partition(".")[0] in sys.modules:
            named[f"module {module}"] = [value for value in list(frame.f_globals.values()) if not isinstance(value, types.ModuleType)]
        for name, value in _locals(frame).items():
            local.setdefault(f"{name} in {frame.f_code.co_name}()", []).append(value)
    roots_then_local = named | {name: values[0] if len(values) == 1 else values for name, values in local.items()}
    kept = []
    for device in _devices_of(local):
        found = held.held(roots_then_local, device)
        rows = [(holder.name, holder.type, holder.bytes) for holder in found.holders if holder.name in local and holder.bytes]
        rows.sort(key=lambda row: row[-1], reverse=True)
        if rows:
            has_causes = any(each is not error and each.__traceback__ for each in causes(error))
            kept.append(Kept(device, type(error).__name__, rows, sum(size for *_, size in rows), has_causes))
    return kept


def _devices_of(local: Mapping[str, Any]) -> list[str]:
    return sorted({block.device for block in held.blocks_of(local.values())})
