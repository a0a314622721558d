"""The last words of a process: an exception, SIGTERM, or the plain end."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from vramline import _vramline, counters
from vramline.attach.steps import Steps
from vramline.session import Session

# SIGTERM usually comes with a SIGKILL some seconds behind it.
_PATIENCE = 8.0
_MOST_TEXT = 1 << 20
_MOST_BEFORE = 8
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def watch(job: Session, steps: Steps) -> None:
    """Has the trace written whenever the process gets a chance to."""
    owner = os.getpid()

    ended: list[bool] = []
    told: list[BaseException | None] = [None]

    def tell(kind: type[BaseException], error: BaseException) -> None:
        if told[0] is error:
            return
        told[0] = error
        text = f"{kind.__name__}: {error}"
        job.mark("exception", text[:4000], read=counters.read_all())
        path = job.folder / f"exception-{job.name}.txt"
        text += "".join(f"\n\nbefore it {type(each).__name__}: {each}" for each in _before(error))
        job.attempt(lambda: path.write_text(text[:_MOST_TEXT], encoding="utf-8", errors="replace"))

    def at_exit() -> None:
        # A hook of the program's own took the place of ours; Python has kept what it was called with.
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and os.getpid() == owner:
            tell(type(error), error)
        if os.getpid() == owner and not ended:
            ended.append(True)
            steps.finish("the program ended")
            steps.take_inventory(is_last=True)
            job.mark("end", "exit", read=counters.read_all())
            job.close()

    def at_terminate() -> None:
        job.mark("end", "SIGTERM", read=counters.read_all())
        steps.finish("the process was terminated")
        job.close()

    before = sys.excepthook

    def at_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            tell(kind, error)
        except Exception:
            pass
        return before(kind, error, _without_us(trace))

    sys.excepthook = at_exception
    atexit.register(at_exit)
    _at_end_of_worker(at_exit)
    _vramline.before_terminate(at_terminate, _PATIENCE)


def _at_end_of_worker(call: Callable[[], None]) -> None:
    """A process that multiprocessing forked ends without the interpreter's last rites; multiprocessing has rites of its own."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        # A negative number: after the program's own.
        util.Finalize(None, call, exitpriority=-100)


def at_exit_of(steps: Steps) -> None:
    """Registered again when a framework has been imported: its own last handlers must find the profiler stopped."""
    # In a forked child the window is closed, and there is nothing to wait for.
    atexit.register(steps.finish, "the program ended")


def _before(error: BaseException) -> list[BaseException]:
    """The errors that led to one: memory may have run out before the program raised an error of its own."""
    chain = [error]
    while len(chain) < _MOST_BEFORE:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or any(before is known for known in chain):
            break
        chain.append(before)
    return chain[1:]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    """The traceback as it would be without our hooks in the calls."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    at = trace
    while at is not None and at.tb_next is not None:
        if at.tb_next.tb_frame.f_code.co_filename.startswith(_HERE):
            at.tb_next = at.tb_next.tb_next
        else:
            at = at.tb_next
    return trace
