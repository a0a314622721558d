"""Writes the end of a process to the recording: an exception, SIGTERM, or a normal exit."""

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

# Seconds to write the trace after SIGTERM, which a SIGKILL usually follows some seconds later.
_PATIENCE = 8.0
_MOST_TEXT = 1 << 20
_MOST_BEFORE = 8
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def watch(job: Session, steps: Steps) -> None:
    """Installs hooks that write the trace and a final mark, however the process ends."""
    owner = os.getpid()

    ended: list[bool] = []
    told: list[BaseException | None] = [None]

    def tell(kind: type[BaseException], error: BaseException) -> None:
        if told[0] is error:
            return
        told[0] = error
        # The cause of the last error may be the one that PyTorch raised.
        for each in (error, *_before(error)):
            steps.on_exception(each)
        text = f"{kind.__name__}: {error}"
        job.mark("exception", text[:4000], read=counters.read_all())
        path = job.folder / f"exception-{job.name}.txt"
        text += "".join(f"\n\nearlier error: {type(each).__name__}: {each}" for each in _before(error))
        job.attempt(lambda: path.write_text(text[:_MOST_TEXT], encoding="utf-8", errors="replace"))

    def at_exit() -> None:
        # The program may have replaced our excepthook; Python keeps the last exception here.
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
    """Calls a function at the end of a process that multiprocessing forked: `atexit` handlers do not run there."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        # A negative priority runs after the program's own finalizers.
        util.Finalize(None, call, exitpriority=-100)


def at_exit_of(steps: Steps) -> None:
    """Registers the exit handler again after a framework was imported, so that the profiler stops before the framework's own handlers run.

    In a forked child the window is closed, so the handler does nothing.
    """
    atexit.register(steps.finish, "the program ended")


def _before(error: BaseException) -> list[BaseException]:
    """Returns the causes of an error: memory may have run out before the program raised its own error."""
    chain = [error]
    while len(chain) < _MOST_BEFORE:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or any(before is known for known in chain):
            break
        chain.append(before)
    return chain[1:]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of our hooks."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    at = trace
    while at is not None and at.tb_next is not None:
        if at.tb_next.tb_frame.f_code.co_filename.startswith(_HERE):
            at.tb_next = at.tb_next.tb_next
        else:
            at = at.tb_next
    return trace
