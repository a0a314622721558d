"""The magics of notebooks, `%%vramline` and `%vramline`. `%load_ext vramline` loads them."""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from vramline import _vramline, command
from vramline.notebooks import cell, page, tracing
from vramline.reading import info
from vramline.reading.watching import watch
from vramline.shown import Sheet, size_text

try:
    # A `;` at the end of a cell then suppresses its value, as in any other cell.
    from IPython.core.magic import output_can_be_silenced
except ImportError:  # Before IPython 8.9.

    def output_can_be_silenced(magic: Any) -> Any:
        return magic


# After an exception outside of a measured cell, less than this is not worth a message.
_LEAST_KEPT = 1 << 20
_MOST_ROWS = 8
_TOP_SECONDS = 1.0


@magics_class
class VramlineMagics(Magics):
    """The magics of Vramline."""

    @magic_arguments()
    @argument("--label", help="A name for the cell, printed in the first line.")
    @argument("--device", help='Measure only this device, such as "GPU:0". By default, every device in use.')
    @argument("--no-reset", action="store_true", help="Do not reset the framework's peak. The cell's peak is then known only if it is a new one.")
    @argument("--trace", action="store_true", help="Trace the cell, and show what held its peak by role and op. The cell runs slower.")
    @argument("--page", action="store_true", help="Trace the cell, and show the whole report page.")
    @argument("--height", type=int, default=720, help="Height of the page in pixels.")
    @argument("--save", metavar="NAME", help="Keep the figures in this variable.")
    @argument("words", nargs="*", help="Without a cell: top, page, held or free, with its arguments.")
    @line_cell_magic
    @output_can_be_silenced
    def vramline(self, line: str, body: str | None = None) -> Any:
        """Show what a cell does to the memory of a device.

        %%vramline as the first line of a cell shows its peak, what grew, what stays, and which variables hold it.

        Lines:
          %vramline top [SECONDS]    devices and this notebook's memory on them, once or for some seconds
          %vramline page PATH...     the report page of a recording, trace, snapshot or log; of several: their comparison
          %vramline held             which variables hold the memory now
          %vramline free             free what the traceback of the last exception holds
        """
        told = parse_argstring(self.vramline, line)
        if body is not None:
            if told.words:
                raise UsageError(f"%%vramline: expected options only, found {told.words[0]!r}; name the cell with --label")
            return self._cell(body, told)
        verb, *words = told.words or [""]
        known = {"top": self._top, "page": self._page, "held": self._held, "free": self._free}
        if verb not in known:
            raise UsageError("%vramline: expected top, page, held or free; to measure a cell, begin it with %%vramline (see %vramline?)")
        known[verb](words, told)
        return None

    def _cell(self, body: str, told: Any) -> Any:
        label = told.label or "cell"
        measuring = cell.Measuring(label, told.device, not told.no_reset)
        run = self._compiled(body)
        measuring.begin(cell.roots_of(self.shell))
        with self._traced(label, told) as traced:
            try:
                result = run()
            except BaseException as error:
                traced()
                self._show(measuring, told)
                for kept in cell.kept_by(error, cell.roots_of(self.shell)):
                    display(kept.sheet())
                _told_errors.append(id(error))
                raise
            traced()
        self._show(measuring, told)
        return result

    def _show(self, measuring: cell.Measuring, told: Any) -> None:
        figures = measuring.end(cell.roots_of(self.shell))
        if told.save:
            self.shell.user_ns[told.save] = figures
        display(figures)

    def _compiled(self, body: str) -> Any:
        """Compiles a cell so that its lines are in tracebacks. The value of its last line is the value of the cell, as in any other."""
        shell = self.shell
        source = shell.transform_cell(body)
        name = shell.compile.cache(source, shell.execution_count, raw_code=body)
        try:
            tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            statements = shell.compile(tree, name, "exec")
            value = shell.compile(ast.Expression(last.value), name, "eval") if isinstance(last, ast.Expr) else None
        except SyntaxError as error:
            if "await" in str(error.msg):
                raise UsageError("%%vramline cannot measure a cell with `await`: use `with vramline.watch():` inside the cell") from None
            raise

        def run() -> Any:
            exec(statements, shell.user_ns)
            return None if value is None else eval(value, shell.user_ns)

        return run

    @contextlib.contextmanager
    def _traced(self, label: str, told: Any) -> Iterator[Any]:
        """Traces the cell if it was asked for. The function that it gives ends the trace and shows the answer."""
        if not (told.trace or told.page):
            yield lambda: None
            return
        with tempfile.TemporaryDirectory(prefix="vramline-cell-") as folder:
            trace: tracing.Trace | None = None
            try:
                trace = tracing.Trace(pathlib.Path(folder))
            except tracing.CannotTrace as error:
                display(Sheet(f"{label}: not traced: {error}"))

            def done() -> None:
                if trace is not None:
                    self._show_trace(label, trace, told)

            yield done

    def _show_trace(self, label: str, trace: tracing.Trace, told: Any) -> None:
        try:
            path = trace.stop()
            display(_of_report(label, json.loads(_vramline.report_json(path))))
            if told.page:
                shown = page.page([path], told.height)
                shown.name = label
                display(shown)
        except Exception as error:
            display(Sheet(f"{label}: the trace cannot be shown: {error}"))

    def _top(self, words: list[str], told: Any) -> None:
        seconds = _number(words)
        until = time.monotonic() + seconds
        shown = display(_Top.now(), display_id=True)
        try:
            while shown is not None and time.monotonic() < until:
                time.sleep(min(_TOP_SECONDS, max(until - time.monotonic(), 0)))
                shown.update(_Top.now())
        except KeyboardInterrupt:
            # The last figures stay.
            return

    def _page(self, words: list[str], told: Any) -> None:
        if not words:
            raise UsageError("%vramline page: expected a path, such as: %vramline page run.vram")
        try:
            display(page.page(words, told.height))
        except (ValueError, command.NotFound) as error:
            raise UsageError(str(error)) from None

    def _held(self, words: list[str], told: Any) -> None:
        for sheet in cell.held_now(cell.roots_of(self.shell), told.device):
            display(sheet)

    def _free(self, words: list[str], told: Any) -> None:
        error = _last_error()
        if error is None:
            display(Sheet("There is no traceback to free: no cell has raised an exception"))
            return
        kept = cell.kept_by(error, cell.roots_of(self.shell))
        with watch(reset=False) as freed:
            for each in cell.causes(error):
                traceback.clear_frames(each.__traceback__)
            gc.collect()
        change = freed.change("current")
        size = sum(each.bytes for each in kept) if change is None else max(-change, 0)
        how = "" if change is not None else " of tensors and arrays"
        display(Sheet(f"Freed {size_text(size)} ({size:,} bytes){how} that the traceback of {type(error).__name__} held"))


class _Top:
    """The devices, and what runs on them."""

    def __init__(self, sheet: Sheet, text: str) -> None:
        self._sheet, self._text = sheet, text

    @classmethod
    def now(cls) -> _Top:
        columns = ("device", "used by", "in use", "peak", "pool", "limit", "this process", "all processes", "total")
        rows = []
        for device in info.devices():
            told = info.memory_info(device)
            limit = "built-in" if told.limit_by == "built-in" else size_text(told.limit)
            total = told.host_total if device.startswith("CPU") else told.driver_total
            sizes = (told.driver_used, total) if not device.startswith("CPU") else (_used(told), total)
            rows.append(
                (str(device), told.framework or "not used here", size_text(told.current), size_text(told.peak), size_text(told.pool), limit,
                 size_text(told.process), *map(size_text, sizes))
            )  # fmt: skip
        title = f"Memory of this notebook, {time.strftime('%H:%M:%S')}"
        return cls(Sheet(title if rows else f"{title}: no GPU, and no framework has used a device yet", columns, rows), _of_machine())

    def __repr__(self) -> str:
        return f"{self._sheet}\n\n{self._text}"

    def _repr_html_(self) -> str:
        import html

        return f"{self._sheet._repr_html_()}<details><summary>All processes and recorded jobs</summary><pre>{html.escape(self._text)}</pre></details>"


def _used(told: info.MemoryInfo) -> int | None:
    return None if told.host_total is None or told.host_available is None else told.host_total - told.host_available


def _of_machine() -> str:
    """Returns what `vramline top` shows of the whole machine."""
    try:
        done = subprocess.run([command.path(), "top", "--once"], capture_output=True, text=True, timeout=20, check=False)
        return (done.stdout or done.stderr).strip()
    except (OSError, subprocess.SubprocessError, command.NotFound) as error:
        return f"`vramline top` is not available: {error}"


def _number(words: list[str]) -> float:
    try:
        seconds = float(words[0]) if words else 0.0
    except ValueError:
        raise UsageError(f"%vramline top: expected a number of seconds, found {words[0]!r}") from None
    if not 0 <= seconds < 1e6:
        raise UsageError(f"%vramline top: expected a number of seconds, found {words[0]!r}")
    return seconds


def _of_report(label: str, report: dict[str, Any]) -> Sheet:
    """Returns what held the peak of a traced cell."""
    pools = [pool for pool in report["pools"] if pool["at_peak"]]
    if not pools:
        reasons = [warning["text"] for warning in report["warnings"][:2]]
        return Sheet(f"{label}: the trace has no allocations", notes=reasons)
    pool = max(pools, key=lambda each: each["peak_bytes"])
    at_peak = pool["at_peak"]
    rows = [("", role, size_text(size)) for role, size in sorted(at_peak["by_role"].items(), key=lambda item: -item[1]) if size]
    for name, key in (("rounding", "slack_bytes"), ("in use before the cell", "before_recording_bytes")):
        if at_peak[key]:
            rows.append(("", name, size_text(at_peak[key])))
    for row in at_peak["rows"][:_MOST_ROWS]:
        what = " ".join(filter(None, (row["op"] or row["source"], f"{row['dtype']}{row['shape']}" if row["shape"] else "")))
        rows.append((row["layer"] or row["role"], what, size_text(row["bytes"])))
    return Sheet(f"{label}: what held the traced peak of {size_text(pool['peak_bytes'])} on {pool['device']}", ("layer or role", "what", "size"), rows)


# Exceptions that were reported with their cell.
_told_errors: list[int] = []


def _last_error() -> BaseException | None:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _after_cell(result: Any) -> None:
    """Says what the traceback of an exception keeps, for cells that are not measured."""
    error = result.error_in_exec
    if error is None or id(error) in _told_errors:
        _told_errors.clear()
        return
    shell = _shells[-1] if _shells else None
    if shell is None or not ({"tensorflow", "jax", "torch"} & sys.modules.keys()):
        return
    for kept in cell.kept_by(error, cell.roots_of(shell)):
        if kept.bytes >= _LEAST_KEPT:
            display(kept.sheet())


_shells: list[Any] = []


def load(shell: Any) -> None:
    """Adds the magics to a shell of IPython."""
    if shell not in _shells:
        shell.register_magics(VramlineMagics)
        shell.events.register("post_run_cell", _after_cell)
        _shells.append(shell)


def unload(shell: Any) -> None:
    """Stops reporting on exceptions. IPython keeps the names of magics."""
    if shell in _shells:
        shell.events.unregister("post_run_cell", _after_cell)
        _shells.remove(shell)
