"""The texts of out-of-memory errors that TensorFlow raises, caught by the program or not.

TensorFlow's dump of its pool tells neither the request nor the op; the text of the error does. A program that catches the error and goes
on with less leaves no other trace of it.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

from vramline.session import Session

# A program that fails all the time tells the same each time.
_MOST_TEXTS = 64
_MOST_TEXT = 1 << 16
_SIGN = "OOM when allocating"


def hook(error: type[Exception], job: Session) -> None:
    """Has the text of each error of this type kept as it is raised. Nothing is done before that."""
    make = error.__init__
    lock = threading.Lock()
    written = 0

    def note(raised: Any) -> None:
        nonlocal written
        text = str(raised.message)
        if _SIGN not in text:
            return
        # Keras raises it again, with more words around the same text.
        handled = sys.exc_info()[1]
        if handled is not raised and isinstance(handled, error) and str(getattr(handled, "message", "")) in text:
            return
        with lock:
            written += 1
            if written > _MOST_TEXTS:
                return
            path = job.folder / f"raised-{job.name}.{time.time_ns() // 1000}"
        job.attempt(lambda: path.write_text(text[:_MOST_TEXT], encoding="utf-8", errors="replace"))

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            note(self)
        except Exception:
            pass

    error.__init__ = init  # type: ignore[method-assign]
