"""The command `vramline`, which the wheel brings along, for what only the command does: reading a log, writing a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class NotFound(RuntimeError):
    """Raised if the command `vramline` was not found."""


def path() -> str:
    """Returns the path of the command.

    Raises:
        NotFound: If there is none.
    """
    # Imported late, here and below: this module is loaded in every job, and rarely used.
    import shutil
    import sysconfig

    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(__file__).parents[1] / "bin"]
    told = os.environ.get("VRAMLINE_BIN")
    places = ([told] if told else []) + [str(folder / "vramline") for folder in folders]
    found = next((place for place in places if os.access(place, os.X_OK)), None) or shutil.which("vramline")
    if found is None:
        raise NotFound("the command `vramline` was not found\nhint: pip install vramline, or set VRAMLINE_BIN to its path")
    return found


def output(*arguments: str | os.PathLike[str], text: str = "", patience: float | None = None) -> str:
    """Runs the command with a text as its input, for at most `patience` seconds, and returns what it prints.

    Raises:
        NotFound: If the command was not found.
        subprocess.SubprocessError: If it takes longer.
        RuntimeError: If it fails, with what it says.
    """
    import subprocess

    done = subprocess.run(
        [path(), *arguments], input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=patience, check=False
    )
    if done.returncode:
        raise RuntimeError(f"`vramline {arguments[0]}` failed:\n{done.stderr.strip()}")
    return done.stdout
