"""A note on an out-of-memory error: why memory ran out, and what to do. The error itself stays as it is.

The verdict is that of `vramline oom`, which reads the text of the error.
"""

from __future__ import annotations

import json
import sys

from vramline import command
from vramline.recording import session

_TYPES = ("OutOfMemoryError", "ResourceExhaustedError")
_SIGNS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "RESOURCE_EXHAUSTED")
_MOST_TEXT = 1 << 20
_MOST_ADVICE = 3
# Seconds for the verdict. The job has failed already, and must end.
_PATIENCE = 10.0
# On the first line, so that nobody adds a second note.
_TITLE = "Vramline:"


def _is_out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ in _TYPES or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS))


def explain(error: BaseException, facts: list[str]) -> None:
    """Adds a note with the verdict and these facts to an error, if memory has run out. Never raises.

    Before Python 3.11, which prints notes, the note goes to standard error too.
    """
    try:
        cause = next((each for each in (error, *session.causes(error)) if _is_out_of_memory(each)), None)
        notes = getattr(error, "__notes__", [])
        if cause is None or any(str(note).startswith(_TITLE) for note in notes):
            return
        note = f"{_TITLE} " + "\n  ".join(_lines(cause, facts))
        if sys.version_info >= (3, 11):
            error.add_note(note)
        else:
            setattr(error, "__notes__", [*notes, note])  # noqa: B010
            session.warn(note.removeprefix(_TITLE).strip())
    except Exception as failure:  # Whatever it is, the program shall see its own error.
        session.warn(f"the out-of-memory error could not be explained: {failure}")


def _lines(error: BaseException, facts: list[str]) -> list[str]:
    """Returns the lines of the note."""
    text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
    try:
        document = json.loads(command.output("oom", "--json", "-", text=text, patience=_PATIENCE))
        failures = document["failures"]
    except Exception as failure:
        return ["memory ran out", *facts, f"The verdict is missing: {str(failure).splitlines()[0]}"]
    if not failures:
        return ["memory ran out", *facts]
    advice = [f"{number}. {each['text']}" for number, each in enumerate(failures[0]["advice"][:_MOST_ADVICE], 1)]
    return [failures[0]["headline"], *facts, *(["What to do:", *advice] if advice else [])]
