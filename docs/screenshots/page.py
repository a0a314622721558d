"""Makes docs/images/page.png and page-dark.png: the report page of the demo, as a browser shows it.

    make screenshots

needs Playwright, a Chromium and TensorFlow; `make test` installs them. $VRAMLINE_BIN is the tool, else the installed one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "docs" / "images"
WIDTH = 1120
# An image in a README is looked at, not waited for.
LARGEST = 250_000


def main():
    binary = os.environ.get("VRAMLINE_BIN") or REPOSITORY / ".venv" / "bin" / "vramline"
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        recording, file = Path(folder) / "demo.vram", Path(folder) / "demo.html"
        subprocess.run([binary, "demo", "-o", recording, "--python", sys.executable], check=True, capture_output=True, cwd=folder)
        subprocess.run([binary, "report", recording, "--html", file], check=True, capture_output=True)
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, scheme in (("page", "light"), ("page-dark", "dark")):
            page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme, device_scale_factor=1, reduced_motion="reduce")
            page.goto(file.as_uri())
            page.wait_for_selector("#notes")
            # What one sees first, and the two pictures; the tables between them are long and say little at this size.
            page.evaluate(
                """() => {
                const unseen = '#job, #timeline .held, #ledger details, #ledger .hint, #timeline > .hint, #map .hint, .ask, .missing';
                for (const one of document.querySelectorAll(unseen)) one.hidden = true;
                for (const one of document.querySelectorAll('section')) one.style.marginBottom = '1.6rem';
                document.body.style.paddingTop = '1.6rem';
                // The steps, and the pool of the ledger: without a GPU it is a small part of the process.
                const { clock, picture } = vramline, span = picture.end - picture.begin;
                clock.set(picture.high[clock.chosen] - 0.16 * span, picture.end);
                for (const piece of document.querySelectorAll('#ledger .piece')) {
                  if (piece.getAttribute('aria-label').startsWith('pool bfc')) { piece.click(); break; }
                }
            }"""
            )
            page.wait_for_function("() => !vramline.clock.isMoving")
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            last = page.locator("#map").bounding_box() or page.locator("#timeline").bounding_box()
            image = IMAGES / f"{name}.png"
            page.screenshot(path=image, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + 16})
            page.close()
            size = image.stat().st_size
            print(f"{image.relative_to(REPOSITORY)}: {size} bytes")
            if size > LARGEST:
                sys.exit(f"{image} is too large for a README")
        browser.close()


if __name__ == "__main__":
    main()
