"""Keeps the texts of TensorFlow's out-of-memory errors, also of those that the program catches.

TensorFlow's dump of its pool contains neither the request nor the op; the text of the error does. If a program catches the error and
continues with a smaller batch, this text is the only record of it.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

from vramline.recording.session import Session

# A program that fails again and again raises the same text: keep this many.
_MOST_TEXTS = 64
_MOST_TEXT = 1 << 16
_SIGN = "OOM when allocating"


def hook(error: type[Exception], job: Session) -> None:
    """Writes the text of each error of this type to the recording when it is created."""
    make = error.__init__
    lock = threading.Lock()
    written = 0

    def note(raised: Any) -> None:
        nonlocal written
        text = str(raised.message)
        if _SIGN not in text:
            return
        # Keras raises the error again with a longer text that contains the first: keep only the first.
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
