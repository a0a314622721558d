"""The report page of a recording or another file, made by the `vramline` binary, and shown inside a notebook."""

from __future__ import annotations

import html
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence

from vramline import command

_HEIGHT = 720


class Page:
    """A report page. A notebook shows it in a frame that needs no network, also when it is exported to HTML.

    Attributes:
        text: The page, as HTML.
        name: What the page is about.
        height: The height of the frame in pixels.
    """

    def __init__(self, text: str, name: str, height: int = _HEIGHT) -> None:
        self.text, self.name, self.height = text, name, height

    def __repr__(self) -> str:
        return f"Report page of {self.name} ({len(self.text) / 1e6:.1f} MB); a notebook shows it"

    def _repr_html_(self) -> str:
        # Without `allow-same-origin` the page cannot reach the notebook.
        return (
            f'<div><iframe srcdoc="{html.escape(self.text)}" sandbox="allow-scripts" title="Vramline: {html.escape(self.name)}" '
            f'style="width:100%;height:{self.height}px;border:1px solid #8888"></iframe></div>'
        )


def page(paths: Sequence[str | os.PathLike[str]], height: int = _HEIGHT) -> Page:
    """Makes the report page of one file or recording, or the page that compares several.

    Raises:
        ValueError: If a path cannot be read, with the message and the hint of `vramline report`.
    """
    names = [str(path) for path in paths]
    with tempfile.TemporaryDirectory(prefix="vramline-page-") as folder:
        file = pathlib.Path(folder) / "page.html"
        verb = "report" if len(names) == 1 else "diff"
        # After `--`, a name that begins with a dash is a path.
        done = subprocess.run([command.path(), verb, "--html", str(file), "--", *names], capture_output=True, text=True, check=False)
        if not file.exists():
            raise ValueError(done.stderr.strip().removeprefix("error: "))
        return Page(file.read_text(encoding="utf-8"), ", ".join(names), height)
