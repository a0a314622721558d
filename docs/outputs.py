"""Runs the commands that README.md and docs/ show, and writes their output below them.

    python docs/outputs.py             run the commands, and rewrite the outputs that changed
    python docs/outputs.py --trains    also those that train a model: needs TensorFlow and the package, takes minutes
    python docs/outputs.py --check     change nothing; print a diff and exit with 1 if an output is out of date

`make docs` and `make proof` call it. The tool is $VRAMLINE_BIN, else target/release/vramline.

A command with its output is a fenced block. Its info string says how it is run:

    ```console           run and compared by the tests
    ```console trains    trains a model: run with --trains only, because sizes and times differ from run to run
    ```console gpu       needs a GPU: never run here, shown as it was captured

The first line is the command, `$ vramline ...`; a line that ends with a backslash goes on in the next. What follows is its output,
standard error included. Commands run in a temporary folder that has the repository's `docs`, `examples` and `fixtures` in it. All
commands of a page share the folder, so that one can read what another has recorded.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```console(?P<marks>[^\n]*)\n(?P<command>\$ vramline (?:[^\n]*\\\n)*[^\n]*\n)(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)
# What TensorFlow's C++ library logs before a program can tell it not to.
LOG = re.compile(r"[IWEF]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] |WARNING: All log messages before absl::")
# Usage, a bug, or a command that cannot be run. A gate that says no (3, 4) is a result, and so is a job that fails (1).
FAILED = {2, 101, 126, 127}
SECONDS = 600


class Changed(NamedTuple):
    """A page with its outputs as they should be."""

    path: Path
    before: str
    after: str


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def environment():
    """That of the caller, without settings that change what is printed."""
    binary = Path(os.environ.get("VRAMLINE_BIN") or ROOT / "target/release/vramline").absolute()
    if not os.access(binary, os.X_OK):
        sys.exit(f"error: {binary} is not there\nhint: run cargo build --release, or set VRAMLINE_BIN")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "VRAMLINE_"))}
    path = os.pathsep.join([str(binary.parent), str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def output_of(command, folder):
    """What a command prints, as the page shows it."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.removeprefix("$ ")],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if done.returncode in FAILED:
        sys.exit(f"error: exit code {done.returncode} of {command}{done.stdout}")
    lines = [line.rstrip() for line in done.stdout.splitlines() if not LOG.match(line)]
    return "".join(f"{line}\n" for line in lines).strip("\n") + "\n"


def renewed(path, trains):
    """The page with the output of each command that is run now."""
    before = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("docs", "examples", "fixtures"):
            Path(folder, name).symlink_to(ROOT / name)

        def block(found):
            marks = found["marks"].split()
            unknown = set(marks) - {"trains", "gpu"}
            if unknown:
                sys.exit(f"error: {path}: unknown mark {', '.join(sorted(unknown))} of a console block")
            if "gpu" in marks or ("trains" in marks and not trains):
                return found[0]
            return f"```console{found['marks']}\n{found['command']}{output_of(found['command'], folder)}```"

        return Changed(path, before, BLOCK.sub(block, before))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if an output is out of date")
    parser.add_argument("--trains", action="store_true", help="also run the commands that train a model")
    parser.add_argument("pages", nargs="*", type=Path, help="only these pages")
    options = parser.parse_args()
    stale = 0
    for path in [page.resolve() for page in options.pages] or pages():
        page = renewed(path, options.trains)
        if page.before == page.after:
            continue
        stale += 1
        name = str(path.relative_to(ROOT))
        if options.check:
            sys.stdout.writelines(difflib.unified_diff(page.before.splitlines(True), page.after.splitlines(True), name, f"{name}, as it should be"))
        else:
            path.write_text(page.after, encoding="utf-8")
            print(f"rewrote {name}")
    if options.check and stale:
        sys.exit(f"error: {stale} pages show outputs that are out of date\nhint: make docs")


if __name__ == "__main__":
    main()
