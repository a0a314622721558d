"""The pytest plugin: measures tests, checks limits and baselines, and shows who held the memory. `vramline_pytest` loads it.

Peaks are reset at the beginning of each measured test, because whoever runs pytest asked for it. Workers of pytest-xdist measure; their
controller prints the table and writes the baselines.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

from vramline import _vramline, command
from vramline.notebooks import cell, held
from vramline.reading.watching import FRAMEWORK_NAMES, Watch, watch
from vramline.shown import Sheet, size_text

# Tests that run once more in one process of pytest, and the seconds that each may take.
_MOST_EXPLAINED = 3
_EXPLAIN_SECONDS = 600
_MOST_HOLDERS = 6
_FORMAT = "vramline-pytest-baseline"


class VramNotMeasured(UserWarning):
    """A limit or baseline could not be checked. `-W error::vramline.testing.VramNotMeasured` makes it a failure."""


class DevicePeak(NamedTuple):
    """The memory of a test on one device, in bytes; None if unknown.

    Attributes:
        device: The name of the device.
        framework: The framework that reports the figures.
        before: In use before the fixtures of the test were made.
        start: In use when the test function began.
        end: In use when it ended.
        peak: The most in use while it ran.
        at_most: If the framework cannot reset its peak: the peak of the process, which the peak of the test cannot exceed.
        why: Why the peak is unknown.
    """

    device: str
    framework: str
    before: int | None
    start: int | None
    end: int | None
    peak: int | None
    at_most: int | None
    why: str | None

    @property
    def own(self) -> int | None:
        """What the test function added, at its peak."""
        return None if self.peak is None or self.start is None else self.peak - self.start


class _Test:
    """A test while it runs."""

    def __init__(self) -> None:
        # Cycles that earlier tests left would count for this one, or not, depending on when they are collected.
        gc.collect()
        self._before = {pair: _current(*pair) for pair in cell.in_use()}
        self._watches: list[Watch] = []
        self.limits: list[tuple[str, int, str | None]] = []
        self.peaks: list[DevicePeak] = []

    def begin(self) -> None:
        """The test function begins."""
        for device, framework in cell.in_use():
            self._watches.append(watch("test", device, framework=framework).__enter__())

    def end(self) -> None:
        """The test function has ended."""
        for watched in self._watches:
            watched.__exit__(None, None, None)
        self.peaks = self.now()

    def now(self) -> list[DevicePeak]:
        """Returns the peaks so far."""
        known: dict[tuple[str, str], Watch] = {}
        for watched in self._watches:
            if watched.before is not None and watched.before.framework is not None:
                known[watched.before.device, watched.before.framework] = watched
        return [self._peak(device, framework, known.get((device, framework))) for device, framework in cell.in_use()]

    def _peak(self, device: str, framework: str, watched: Watch | None) -> DevicePeak:
        if watched is None:
            # First used in the test: the peak of the process is the peak of the test.
            info = cell.memory_info(device, framework=framework)
            start = None if info.current is None else 0
            return DevicePeak(device, framework, start, start, info.current, info.peak, None, cell.uncounted(info, framework))
        is_running = watched.after is None
        info = cell.memory_info(device, framework=framework) if watched.after is None else watched.after
        peak = info.peak if is_running and watched.is_reset else watched.peak
        why = None if peak is not None else cell.uncounted(info, framework) or watched.why_peak
        before = self._before.get((device, framework), 0)
        start = watched.before.current if watched.before is not None else None
        return DevicePeak(device, framework, before, start, info.current, peak, None if peak is not None else info.peak, why)


def _current(device: str, framework: str) -> int | None:
    return cell.memory_info(device, framework=framework).current


class Vram:
    """The memory of the devices that a test uses. The fixture `vram` returns it."""

    def __init__(self, test: _Test) -> None:
        self._test = test

    @classmethod
    def of(cls, item: pytest.Item) -> Vram:
        """Returns that of a test."""
        test = item.stash.get(_TEST, None)
        if test is None:
            raise pytest.UsageError("the fixture 'vram' must be an argument of the test or of its fixtures: getfixturevalue() comes too late for it")
        return cls(test)

    @property
    def current(self) -> int | None:
        """Bytes in use now on the first device; None if none is in use, or it is not counted."""
        return next((peak.end for peak in self._test.now()), None)

    @property
    def peak(self) -> int | None:
        """The most bytes in use on the first device since the test function began; None if unknown."""
        return next((peak.peak for peak in self._test.now()), None)

    @property
    def peaks(self) -> list[DevicePeak]:
        """The figures of every device so far."""
        return self._test.now()

    def limit(self, size: int | str, device: str | None = None) -> None:
        """Sets a limit as the marker `vram_limit` does, for limits that are computed."""
        self._test.limits.append((str(size), _bytes(size), device))

    def watch(self, label: str = "", device: str | None = None) -> Watch:
        """Measures a block of the test: `vramline.watch`."""
        return watch(label, device)


_TEST = pytest.StashKey[_Test]()


def _bytes(size: int | str) -> int:
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    try:
        return _vramline.parse_size(str(size))
    except ValueError:
        raise ValueError(f"vram_limit: expected bytes or a size such as '2GiB', found {size!r}") from None


def _limits(item: pytest.Item) -> list[tuple[str, int, str | None]]:
    """Returns the limits of a test's markers: as written, in bytes, and the device."""
    limits = []
    for marker in item.iter_markers("vram_limit"):
        if len(marker.args) != 1 or marker.kwargs.keys() - {"device"}:
            raise ValueError("vram_limit: expected a size and an optional device, such as vram_limit('2GiB', device='GPU:0')")
        limits.append((str(marker.args[0]), _bytes(marker.args[0]), marker.kwargs.get("device")))
    return limits


def check(items: list[pytest.Item]) -> None:
    """Refuses tests whose limit cannot be read, before any test runs."""
    for item in items:
        try:
            _limits(item)
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None


class Measures:
    """The hooks that measure tests, and those that show what was measured."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        options = config.option
        self._is_table, self._is_update, self._explains = options.vram, options.vram_update, options.vram_explain == "auto"
        self._file = pathlib.Path(config.invocation_params.dir, options.vram_baseline) if options.vram_baseline else None
        self._share, self._more = _tolerance(options.vram_tolerance)
        self._allowed = options.vram_tolerance
        self._is_worker = hasattr(config, "workerinput")
        self._explained = 0
        self._baselines = self._read()
        # By test: what its process measured.
        self._measured: dict[str, dict[str, Any]] = {}

    def _read(self) -> dict[str, dict[str, dict[str, int]]]:
        if self._file is None:
            return {}
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            if told["kind"] != _FORMAT:
                raise KeyError("kind")
            return {test: {device: _figures(known) for device, known in devices.items()} for test, devices in told["tests"].items()}
        except FileNotFoundError:
            if self._is_update:
                return {}
            raise pytest.UsageError(f"--vram-baseline: {self._file} does not exist; write it with --vram-update") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise pytest.UsageError(f"--vram-baseline: {self._file} is not a file of baselines: {error!r}") from None

    def _is_measured(self, item: pytest.Item) -> bool:
        is_asked = item.get_closest_marker("vram_limit") is not None or "vram" in getattr(item, "fixturenames", ())
        return is_asked or self._is_table or self._file is not None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Reads what is in use before the fixtures of a test are made."""
        if self._is_measured(item):
            item.stash[_TEST] = test = _Test()
            test.limits += _limits(item)
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measures the test function, and checks its limits when it has passed."""
        test = item.stash.get(_TEST, None)
        if test is None:
            return (yield)
        test.begin()
        try:
            result = yield
        finally:
            test.end()
        failures = self._over_limit(item, test) + self._over_baseline(item, test)
        if failures:
            pytest.fail("\n\n".join([*failures, *self._holders(item, test), *self._second_run(item)]), pytrace=False)
        return result

    def _over_limit(self, item: pytest.Item, test: _Test) -> list[str]:
        failures = []
        for text, limit, device in test.limits:
            peaks = [peak for peak in test.peaks if device in (None, peak.device)]
            if not peaks:
                _warn(item, f"vram_limit({text!r}) was not checked: the test used no {device or 'device'}")
            for peak in peaks:
                if peak.peak is None and peak.at_most is not None and peak.at_most <= limit:
                    continue
                if peak.peak is None:
                    _warn(item, f"vram_limit({text!r}) was not checked on {peak.device}: {peak.why}")
                elif peak.peak > limit:
                    more = f"{size_text(peak.peak - limit)} more than the limit of {text}"
                    failures.append(f"The test needs {size_text(peak.peak)} ({peak.peak:,} bytes) on {peak.device}, {more}\n{_parts(peak)}")
        return failures

    def _over_baseline(self, item: pytest.Item, test: _Test) -> list[str]:
        if self._file is None or self._is_update:
            return []
        known, failures = self._baselines.get(item.nodeid, {}), []
        for peak in test.peaks:
            base = known.get(peak.device, {}).get("own_bytes")
            if base is None:
                continue
            if peak.own is None:
                _warn(item, f"the baseline was not checked on {peak.device}: {peak.why}")
            elif peak.own > base + max(base * self._share, self._more):
                share = f" (+{(peak.own - base) / base:.1%})" if base else ""
                failures.append(
                    f"The test's own peak on {peak.device} grew from {size_text(base)} to {size_text(peak.own)} ({peak.own - base:+,} bytes){share}; "
                    f"--vram-tolerance allows {self._allowed}. If that is intended, run again with --vram-update\n{_parts(peak)}"
                )
        return failures

    @staticmethod
    def _holders(item: pytest.Item, test: _Test) -> list[str]:
        """Says what fixtures and the module of the test hold at its end."""
        roots = {f"fixture {name}": value for name, value in getattr(item, "funcargs", {}).items() if name not in ("request", "vram")}
        module = getattr(item, "module", None)
        roots |= {f"global {name}": value for name, value in list(vars(module).items() if module is not None else ()) if not name.startswith("__")}
        sheets = []
        for peak in test.peaks:
            holders = sorted(held.held(roots, peak.device, peak.framework).holders, key=lambda holder: -holder.bytes)
            rows = [(holder.name, holder.type, size_text(holder.bytes)) for holder in holders[:_MOST_HOLDERS] if holder.bytes]
            if rows:
                sheets.append(str(Sheet(f"Held on {peak.device} when the test ended", ("held by", "what", "size"), rows)))
        return sheets

    def _second_run(self, item: pytest.Item) -> list[str]:
        """Runs a test once more under a recording, and returns what held its peak."""
        by_hand = f"vramline run --trace all -- python -m pytest '{item.nodeid}'"
        if not self._explains or self._explained >= _MOST_EXPLAINED:
            return [f"To see what held the peak: {by_hand}"]
        self._explained += 1
        try:
            with tempfile.TemporaryDirectory(prefix="vramline-pytest-") as folder:
                return [self._report(item, pathlib.Path(folder) / "test.vram")]
        except (OSError, subprocess.SubprocessError, command.NotFound) as error:
            return [f"The second run, which would show what held the peak, failed: {error}\nTo see it: {by_hand}"]

    def _report(self, item: pytest.Item, recording: pathlib.Path) -> str:
        binary, config = command.path(), self._config
        given = getattr(config, "workerinput", {}).get("vramline_args", config.invocation_params.args)
        pytest_again = [sys.executable, "-m", "pytest", f"--vram-again={item.nodeid}", *map(str, given)]
        done = subprocess.run(
            [binary, "run", "--no-report", "--trace", "all", "-o", str(recording), "--", *pytest_again],
            cwd=config.invocation_params.dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_EXPLAIN_SECONDS, check=False,
        )  # fmt: skip
        if not recording.is_dir():
            return f"A second run showed nothing: {done.stderr.strip()[-500:]}"
        shown = subprocess.run([binary, "report", str(recording)], capture_output=True, text=True, timeout=_EXPLAIN_SECONDS, check=False)
        answer = shown.stdout.partition("\nNext ")[0].strip() or shown.stderr.strip()
        return "What held the peak, from a second run in a process of its own:\n" + "\n".join(f"  {line}".rstrip() for line in answer.splitlines()[1:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Puts the figures into the report of a test, which travels from a worker of xdist to its controller."""
        report = yield
        test = item.stash.get(_TEST, None)
        if test is not None and report.when == "call":
            report.vramline = {"process": _process(), "peaks": [peak._asdict() | {"own": peak.own} for peak in test.peaks]}
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the figures of a test."""
        told = getattr(report, "vramline", None)
        if told is not None:
            self._measured[report.nodeid] = told | {"outcome": report.outcome}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Writes the baselines."""
        if self._file is None or not self._is_update or self._is_worker:
            return
        tests = dict(self._baselines)
        for test, told in self._measured.items():
            known = {peak["device"]: {"peak_bytes": peak["peak"], "own_bytes": peak["own"]} for peak in told["peaks"] if peak["own"] is not None}
            if known and told["outcome"] == "passed":
                tests[test] = tests.get(test, {}) | known
        part = self._file.with_name(self._file.name + ".part")
        part.write_text(json.dumps({"kind": _FORMAT, "tests": dict(sorted(tests.items()))}, indent=1) + "\n", encoding="utf-8")
        part.replace(self._file)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the table of `--vram`, and what happened to the baselines."""
        if self._is_table:
            terminalreporter.section("memory by test")
            terminalreporter.write_line(str(self._table()))
        if self._file is not None:
            passed = sum(told["outcome"] == "passed" for told in self._measured.values())
            new = sum(bool(told["peaks"]) and test not in self._baselines for test, told in self._measured.items())
            if self._is_update:
                terminalreporter.write_line(f"vramline: wrote the baselines of {passed} passed tests to {self._file}")
            elif new:
                terminalreporter.write_line(f"vramline: {new} measured tests have no baseline in {self._file}; add them with --vram-update")

    def _table(self) -> Sheet:
        rows: list[tuple[str, ...]] = []
        order = sorted(self._measured.items(), key=lambda item: -max((peak["peak"] or 0 for peak in item[1]["peaks"]), default=0))
        for test, told in order:
            for peak in told["peaks"]:
                shown = size_text(peak["peak"]) if peak["peak"] is not None else f"at most {size_text(peak['at_most'])}" if peak["at_most"] else "?"
                left = None if peak["end"] is None or peak["before"] is None else peak["end"] - peak["before"]
                rows.append((test, f"{peak['device']} {FRAMEWORK_NAMES[peak['framework']]}", shown, size_text(peak["own"]), size_text(left), told["process"]))
        whys = sorted({f"{peak['device']}: {peak['why']}" for told in self._measured.values() for peak in told["peaks"] if peak["why"]})
        if not rows:
            return Sheet("No test used a device that a framework counts.")
        return Sheet("Peak: all that is in use. Own: what the test function adds. Left: what test and fixtures leave at the end.",
                     ("test", "device", "peak", "own", "left", "process"), rows, whys)  # fmt: skip


def _figures(known: dict[str, Any]) -> dict[str, int]:
    """Returns the figures of a device in a file of baselines.

    Raises:
        TypeError: If a figure is no whole number.
    """
    figures = {name: known[name] for name in ("peak_bytes", "own_bytes")}
    if not all(type(size) is int for size in figures.values()):
        raise TypeError(f"expected whole numbers of bytes, found {figures}")
    return figures


def _parts(peak: DevicePeak) -> str:
    """Returns what a peak consists of. The parts add up."""
    if peak.peak is None or peak.start is None or peak.before is None:
        return ""
    rows = [
        ("before the test", "earlier tests and shared fixtures", size_text(peak.before)),
        ("its fixtures", "", size_text(peak.start - peak.before)),
        ("the test function", "at its peak", size_text(peak.peak - peak.start)),
    ]
    return str(Sheet("Of that:", ("", "", ""), rows))


def _process() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER") or str(os.getpid())


def _tolerance(text: str) -> tuple[float, int]:
    """Returns the share and the bytes by which a peak may grow."""
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
            if 0 <= share < 1e6:
                return share, 0
        else:
            return 0.0, _vramline.parse_size(text)
    except ValueError:
        pass
    raise pytest.UsageError(f"--vram-tolerance: expected a share such as 2% or a size such as 64MiB, found {text!r}")


def _warn(item: pytest.Item, text: str) -> None:
    warnings.warn(VramNotMeasured(f"{item.nodeid}: {text}"), stacklevel=2)
