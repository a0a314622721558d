"""`vramline.record`: records the steps and marks of any training loop to a folder."""

from __future__ import annotations

import os
import pathlib
import tempfile
from types import TracebackType

from vramline import _vramline
from vramline.frameworks import counters
from vramline.frameworks.adapter import Counters
from vramline.recording import out_of_memory, session
from vramline.shown import size_text
from vramline.words import MarkKind, Phase


class Recording(_vramline.Steps):
    """A recording in progress. `vramline.record` returns it.

    `with rec.step(number):` measures one step of a loop, and `rec.mark(label)` notes the memory at one moment. The recording is
    closed at the end of the `with` block or of the program.

    Attributes:
        path: The folder of the recording. A number is appended to the name if the requested one was taken.
    """

    def __init__(self, path: pathlib.Path, print_every: int, resets: bool, phase: Phase, pace: float) -> None:
        self.path = path
        files = session.session(path)
        self._print_every = print_every
        self._phase = phase
        is_plain = not print_every and _attached in (None, files)
        self._prepare(files, counters, phase, resets, is_plain)
        self._last: list[Counters] = []
        if pace:
            files.sample(pace)

    def _reset(self) -> None:
        counters.reset_all()

    def mark(self, label: str) -> None:
        """Notes the memory at this moment under a label, such as "before optimizer"."""
        read = counters.read_all()
        number = self._count if self._now is None else self._now
        if self._print_every and self._count % self._print_every == 0:
            print(_line(f"step {number}, {label}", read, self._last), flush=True)
        self._last = read
        self._session.mark("mark", label, self._phase, "api", number, None, None, None, read)
        self._to_job("mark", label, number, None, None, read)

    def _end_step(self, number: int | None, begin: int) -> None:
        """Writes a step that the fast path in Rust leaves to Python, such as one that prints a line."""
        read = counters.read_all()
        if number is None:
            number = self._count
        self._session.mark("step", None, self._phase, "api", number, 1, None, begin, read)
        if _attached is not None:
            self._to_job("step", None, number, 1, begin, read)
        if self._print_every and self._count % self._print_every == 0:
            print(_line(f"step {number}", read, []), flush=True)
        self._last = read

    def _to_job(
        self,
        kind: MarkKind,
        label: str | None,
        number: int,
        batches: int | None,
        begin: int | None,
        read: list[Counters],
    ) -> None:
        """Writes the same to the job's own recording, if this process runs under `vramline run`."""
        if _attached is not None and _attached is not self._session:
            _attached.mark(kind, label, self._phase, "api", number, batches, None, begin, read)

    def close(self) -> None:
        """Writes everything to disk and closes the recording."""
        self._session.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            read = counters.read_all()
            self._session.exception(error, read)
            number = self._count if self._now is None else self._now
            out_of_memory.explain(error, [_line(f"step {number}", read, [])])
        self.close()


# The session of the job's recording, if this process runs under `vramline run`.
_attached: session.Session | None = None


def attached() -> session.Session | None:
    """Returns the session of the job's recording; None if this process does not run under `vramline run`."""
    return _attached


def attach(to: session.Session) -> None:
    """Sets the session of the job's recording."""
    global _attached
    _attached = to


def _line(what: str, read: list[Counters], before: list[Counters]) -> str:
    parts = []
    for now in read:
        if now.current is None or now.peak is None:
            parts.append(f"{now.device} unknown")
            continue
        earlier = next((then.current for then in before if then.device == now.device), None)
        more = None if earlier is None else now.current - earlier
        change = "" if more is None else f" ({'-' if more < 0 else '+'}{size_text(abs(more))})"
        parts.append(f"{now.device} {size_text(now.current)} in use{change}, peak {size_text(now.peak)}")
    return f"{what}: " + ("; ".join(parts) or "no device in use yet")


def folder_for(path: str | os.PathLike[str]) -> pathlib.Path:
    """Creates the folder of a recording, or returns the one that this process already uses under that name. Never raises."""
    wanted = pathlib.Path(path)
    if wanted.suffix != ".vram":
        wanted = wanted.with_name(wanted.name + ".vram")
    if session.known(wanted) and wanted.is_dir():
        return wanted
    try:
        created, is_renamed = _vramline.create_folder(wanted)
    except OSError as error:
        session.warn(f"cannot create the folder '{wanted}': {error}; trying a temporary folder")
        try:
            created, is_renamed = pathlib.Path(tempfile.mkdtemp(prefix="vramline-", suffix=".vram")), True
        except OSError:
            # There is no place to write to: every write will fail, with one warning in all, and the job continues.
            return wanted
    if is_renamed:
        session.warn(f"recording to '{created}' instead of '{wanted}'")
    return pathlib.Path(created)


def record(
    path: str | os.PathLike[str] = "run.vram",
    *,
    print_every: int = 0,
    step_peaks: bool = True,
    phase: Phase = "train",
    rate: float = 0.0,
) -> Recording:
    """Records the memory of a training loop to a folder.

        with vramline.record("run.vram", print_every=10) as rec:
            for step, batch in enumerate(data):
                with rec.step(step):
                    ...
                    rec.mark("before optimizer")
                    ...

    Read the recording with `vramline.load("run.vram")` or `vramline report run.vram`. An error while writing is reported once on
    standard error and does not stop the program.

    Args:
        path: The folder to create. If the name is taken, a number is appended; `rec.path` is the name in use.
        print_every: Print a line every this many steps, and at the marks inside those steps. 0 prints nothing.
        step_peaks: Reset the framework's peak at the beginning of each step, so that each step has its own peak. Use False in a
            program that reads the peak of the whole run.
        phase: What the loop does: "train", "validation", "predict" or "other".
        rate: Samples per second in a background thread. 0 takes no samples.

    Returns:
        A `Recording`, to use in a `with` statement.
    """
    return Recording(folder_for(path), print_every, step_peaks, phase, 1.0 / rate if rate > 0 else 0.0)
