"""Makes docs/images/top.svg: `vramline top` while a small Keras model trains under `vramline run`, on the CPU stand-in.

    VRAMLINE_BIN=.venv/bin/vramline .venv/bin/python docs/screenshots/terminal.py

Everything in it is real: a job is trained, the tool runs on a pseudo-terminal, and the cells of its screen are drawn one by one.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "python"))

from screen import Screen

COLUMNS, LINES = 118, 34
WIDTH, HEIGHT, EDGE = 8.4, 18, 14
# The sixteen colours of terminals, as the emulator names them.
COLOURS = {
    "default": "#d8dee9",
    "cd0000": "#d5626b",
    "00cd00": "#8fbf6f",
    "cdcd00": "#e0b95f",
    "0000ee": "#6d9bd1",
    "5c5cff": "#6d9bd1",
    "cd00cd": "#b48ead",
    "00cdcd": "#6fb8c9",
    "7f7f7f": "#6b768c",
}
# Other spaces are taken together.
SPACE = "\u00a0"
GROUND = "#1d222b"

TRAIN = """
import os, time
import tensorflow as tf
import keras
from keras import layers

images = tf.random.normal((512, 32, 32, 3))
labels = tf.random.uniform((512,), maxval=10, dtype=tf.int32)
model = keras.Sequential([
    layers.Input((32, 32, 3)),
    layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
    layers.Conv2D(64, 3, activation="relu"), layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(10),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
while not os.path.exists("stop"):
    model.fit(images, labels, batch_size=64, epochs=1, verbose=0)
"""


def picture(screen):
    """The screen's cells as SVG: one run of signs of the same look is one text."""
    width, height = COLUMNS * WIDTH + 2 * EDGE, LINES * HEIGHT + 2 * EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        ' font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">',
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
    ]
    for line in range(LINES):
        column = 0
        while column < COLUMNS:
            cell = screen.buffer[line][column]
            look = (cell.fg, cell.bold, cell.reverse, cell.underscore)
            end, text = column, ""
            while end < COLUMNS:
                cell = screen.buffer[line][end]
                if (cell.fg, cell.bold, cell.reverse, cell.underscore) != look:
                    break
                text += cell.data or " "
                end += 1
            fore = COLOURS.get(look[0], f"#{look[0]}" if len(look[0]) == 6 else COLOURS["default"])
            x, y = EDGE + column * WIDTH, EDGE + line * HEIGHT
            if look[2]:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{(end - column) * WIDTH:.1f}" height="{HEIGHT}" fill="{fore}"/>')
                fore = GROUND
            if text.strip():
                more = ' font-weight="bold"' if look[1] else ""
                more += ' text-decoration="underline"' if look[3] else ""
                # Told its length, a text takes its cells whatever the font.
                parts.append(
                    f'<text x="{x:.1f}" y="{y + 14}" textLength="{(end - column) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
                    f' fill="{fore}"{more}>{escape(text).replace(" ", SPACE)}</text>'
                )
            column = end
    return "\n".join([*parts, "</svg>", ""])


def main():
    binary = os.environ.get("VRAMLINE_BIN") or REPOSITORY / ".venv" / "bin" / "vramline"
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "images" / "top.svg"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(TRAIN)
        command = [binary, "run", "-o", "train.vram", "--step-peaks", "--no-report", "--", sys.executable, "train.py"]
        job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Screen([str(binary), "top", "--rate", "4"], COLUMNS, LINES, cwd=folder) as screen:
                screen.until("train.py")
                # The first steps are traced; the trace tells roles when it is written.
                end = time.monotonic() + 15
                while time.monotonic() < end:
                    screen.read()
                screen.keys("\r")
                screen.until(lambda text: "at the peak of the traced steps" in text and "activations" in text)
                screen.until(lambda text: text.count(" train ") >= 12)
                screen.settle()
                output.parent.mkdir(parents=True, exist_ok=True)
                # Whose temporary folder it is concerns nobody; the line keeps its width.
                inside = f"{folder}/"
                drawn = picture(screen.emulated)
                assert inside in drawn
                output.write_text(re.sub(re.escape(inside) + r"(\S+)", lambda found: found[1] + "\u00a0" * len(inside), drawn))
                screen.keys("q")
                screen.wait()
        finally:
            (Path(folder) / "stop").touch()
            job.wait()
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
