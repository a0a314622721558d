"""Makes docs/images/notebook.png: a cell with `%%vramline`, run by JupyterLab in a browser.

    make screenshots

needs JupyterLab, Playwright, a Chromium and TensorFlow; `make screenshots` installs them.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGE = REPOSITORY / "docs" / "images" / "notebook.png"
WIDTH, HEIGHT = 1180, 900
# An image in a guide is looked at, not waited for.
LARGEST = 250_000
CELLS = [
    "%load_ext vramline\nimport keras, numpy as np, tensorflow as tf",
    "images = tf.random.normal((2048, 32, 32, 3))\nlabels = tf.random.uniform((2048,), 0, 10, tf.int32)\n"
    "model = keras.Sequential([keras.layers.Input((32, 32, 3)), keras.layers.Conv2D(64, 3), keras.layers.ReLU(),\n"
    "                          keras.layers.Flatten(), keras.layers.Dense(64), keras.layers.Dense(10)])\n"
    "model.compile('adam', keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
    "%%vramline --label fit\nmodel.fit(images, labels, batch_size=256, verbose=0)\nfeatures = model(images)",
    "def evaluate(batch):\n    hidden = tf.concat([batch] * 4, 0)\n    raise ValueError('labels are missing')\n\nevaluate(images)",
]


def main():
    if shutil.which("jupyter-lab", path=Path(sys.executable).parent) is None:
        sys.exit("JupyterLab is not installed: pip install jupyterlab")
    with tempfile.TemporaryDirectory() as folder:
        write_notebook(Path(folder) / "memory.ipynb")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        token = secrets.token_hex(16)
        settings = {"JUPYTER_CONFIG_DIR": folder, "JUPYTERLAB_SETTINGS_DIR": f"{folder}/settings", "JUPYTERLAB_WORKSPACES_DIR": f"{folder}/workspaces"}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CPU_ALLOCATOR_USE_BFC": "1", "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={folder}",
                   f"--IdentityProvider.token={token}", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]  # fmt: skip
        server = subprocess.Popen(command, cwd=folder, env=os.environ | settings | quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{port}/api?token={token}", server)
            photograph(f"http://127.0.0.1:{port}/lab/tree/memory.ipynb?token={token}")
        finally:
            server.terminate()
            server.wait(timeout=30)
    size = IMAGE.stat().st_size
    print(f"{IMAGE.relative_to(REPOSITORY)}: {size} bytes")
    if size > LARGEST:
        sys.exit(f"{IMAGE} is too large for a guide")


def write_notebook(path):
    cells = [
        {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for number, source in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")


def wait_for(address, server):
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if server.poll() is not None:
            sys.exit("JupyterLab did not start")
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit("JupyterLab does not answer")


def run_all(page):
    """Runs all cells. What is asked for before the kernel listens is lost without a word, so this asks until a cell runs."""
    for _ in range(20):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        for _ in range(20):
            if page.locator(".jp-CodeCell .jp-InputPrompt").first.inner_text().strip("[]: "):
                return
            page.wait_for_timeout(500)
    sys.exit("JupyterLab runs no cell")


def photograph(address):
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce")
        page.set_default_timeout(240_000)
        page.goto(address)
        page.locator(".jp-Notebook .jp-CodeCell").nth(len(CELLS) - 1).wait_for()
        # Idle: a kernel is there.
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for()
        run_all(page)
        measured = page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-output table")
        measured.first.wait_for()
        kept = page.get_by_text("The traceback of ValueError holds")
        kept.first.wait_for()
        assert "in use" in measured.first.inner_text() and "model" in measured.first.inner_text()
        # What is not the notebook is put away.
        page.keyboard.press("Control+b")
        page.add_style_tag(content=".jp-SideBar, #jp-bottom-panel, .jp-Toolbar, .lm-TabBar, #jp-top-panel, [class*=Toastify] { visibility: hidden }")
        page.wait_for_timeout(1000)
        first = page.locator(".jp-CodeCell").nth(2)
        first.scroll_into_view_if_needed()
        # Without the frame of the selected cell below it.
        box = first.bounding_box()
        page.screenshot(path=IMAGE, clip=box | {"height": box["height"] - 8})
        browser.close()


if __name__ == "__main__":
    main()
