"""Where the command `vramline` is. The wheel installs it beside the package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def path() -> str:
    """The path of the command, for other processes to start."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(__file__).parents[1] / "bin"]
    told = os.environ.get("VRAMLINE_BIN")
    places = ([told] if told else []) + [str(folder / "vramline") for folder in folders]
    found = next((place for place in places if os.access(place, os.X_OK)), None) or shutil.which("vramline")
    if found is None:
        raise FileNotFoundError("the command `vramline` was not found\nhint: pip install vramline, or set VRAMLINE_BIN to its path")
    return found
