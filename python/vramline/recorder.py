"""`vramline.record`: steps and marks of any loop, written to a folder."""

from __future__ import annotations

import os
import pathlib
import tempfile
from types import TracebackType

from vramline import _vramline, counters, session
from vramline.adapter import Counters
from vramline.shown import size_text
from vramline.words import MarkKind, Phase


class Recording(_vramline.Steps):
    """A recording that is being made: `step` measures one step of a loop. Leaving it, or the end of the program, closes it."""

    def __init__(self, path: pathlib.Path, print_every: int, resets: bool, phase: Phase, pace: float) -> None:
        self.path = path
        """The folder. It has another name than asked for where that was taken."""
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
        """Notes the memory at this moment, under a name such as "before optimizer"."""
        read = counters.read_all()
        number = self._count if self._now is None else self._now
        if self._print_every and self._count % self._print_every == 0:
            print(_line(f"step {number}, {label}", read, self._last), flush=True)
        self._last = read
        self._session.mark("mark", label, self._phase, "api", number, None, None, None, read)
        self._to_job("mark", label, number, None, None, read)

    def _end_step(self, number: int | None, begin: int) -> None:
        """What becomes of a step that is more than a mark."""
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
        """Under `vramline run` the job's own recording gets the steps too."""
        if _attached is not None and _attached is not self._session:
            _attached.mark(kind, label, self._phase, "api", number, batches, None, begin, read)

    def close(self) -> None:
        """Writes what is left."""
        self._session.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._session.mark("exception", f"{type(error).__name__}: {error}"[:4000], read=counters.read_all())
        self.close()


# The session of `vramline run`, where this process runs under it.
_attached: session.Session | None = None


def attached() -> session.Session | None:
    """The recording of the job that this process belongs to."""
    return _attached


def attach(to: session.Session) -> None:
    """Makes a session the job's own."""
    global _attached
    _attached = to


def _line(what: str, read: list[Counters], before: list[Counters]) -> str:
    parts = []
    for now in read:
        if now.current is None or now.peak is None:
            parts.append(f"{now.device} not known")
            continue
        earlier = next((then.current for then in before if then.device == now.device), None)
        more = None if earlier is None else now.current - earlier
        change = "" if more is None else f" ({'-' if more < 0 else '+'}{size_text(abs(more))})"
        parts.append(f"{now.device} {size_text(now.current)} in use{change}, peak {size_text(now.peak)}")
    return f"{what}: " + ("; ".join(parts) or "no device in use yet")


def folder_for(path: str | os.PathLike[str]) -> pathlib.Path:
    """A folder for a recording: a new one, or this process's own of that name. Never fails the job."""
    wanted = pathlib.Path(path)
    if wanted.suffix != ".vram":
        wanted = wanted.with_name(wanted.name + ".vram")
    if session.known(wanted) and wanted.is_dir():
        return wanted
    try:
        created, is_renamed = _vramline.create_folder(wanted)
    except OSError as error:
        session.warn(f"'{wanted}' cannot be made ({error})")
        try:
            created, is_renamed = pathlib.Path(tempfile.mkdtemp(prefix="vramline-", suffix=".vram")), True
        except OSError:
            # Nowhere to write: every attempt will fail, and cost nothing but that.
            return wanted
    if is_renamed:
        session.warn(f"recording to '{created}'")
    return pathlib.Path(created)


def record(
    path: str | os.PathLike[str] = "run.vram",
    *,
    print_every: int = 0,
    step_peaks: bool = True,
    phase: Phase = "train",
    rate: float = 0.0,
) -> Recording:
    """Records a loop: `with vramline.record("run.vram") as rec:`, then `rec.step(i)` and `rec.mark("...")`.

    Args:
        path: The folder to make; another name where that one is taken.
        print_every: Print a line at every so many steps, and at the marks within them.
        step_peaks: Reset the framework's peak at the beginning of each step, so that each step's peak is its own. A program
            that reads the peak of the whole run itself wants False.
        phase: train, validation, predict or other.
        rate: Samples a second in the background; 0 is none.
    """
    return Recording(folder_for(path), print_every, step_peaks, phase, 1.0 / rate if rate > 0 else 0.0)
