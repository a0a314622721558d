"""How the package is built: as maturin does it, with the binary `vramline` in the wheel's scripts.

One wheel carries the library that a training process loads and the program that starts it, so that the two always fit.
"""

import json
import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import (  # noqa: F401 The names that a build front end asks for.
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "python" / "build" / "wheel" / "scripts"
# Maturin wants it there for everything it does.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def _build_binary():
    command = ["cargo", "build", "--release", "--locked", "-p", "vramline-cli", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    binary = next(message["executable"] for message in messages if message.get("executable"))
    # Beside it first: a copy that was interrupted must not be packed.
    shutil.copy2(binary, SCRIPTS.parent / "vramline.new")
    os.replace(SCRIPTS.parent / "vramline.new", SCRIPTS / "vramline")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_binary()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_binary()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
