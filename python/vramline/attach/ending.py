"""Writes the end of a process to the recording: an exception, SIGTERM, or a normal exit."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from vramline import _vramline
from vramline.attach.steps import Steps
from vramline.frameworks import counters
from vramline.recording.session import Session, causes

# Seconds to write the trace after SIGTERM, which a SIGKILL usually follows some seconds later.
_PATIENCE = 8.0
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def watch(job: Session, steps: Steps) -> None:
    """Installs hooks that write the trace and a final mark, however the process ends."""
    owner = os.getpid()

    ended: list[bool] = []
    told: list[BaseException | None] = [None]

    def tell(error: BaseException) -> None:
        if told[0] is error:
            return
        told[0] = error
        # The cause of the last error may be the one that PyTorch raised.
        for each in (error, *causes(error)):
            steps.on_exception(each)
        job.exception(error, counters.read_all())

    def at_exit() -> None:
        # The program may have replaced our excepthook; Python keeps the last exception here.
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and os.getpid() == owner:
            tell(error)
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
            tell(error)
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
