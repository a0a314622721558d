"""The page of ten million events: how long it takes to write, how large it is, how smoothly it pans.

    python benches/page.py [--trace FILE] [--events N] [--write docs/proof/benchmarks.md]

A real trace (benches/out/double.xplane.pb, or one that benches/make_trace.py makes) is repeated, its lines shifted in time, until it
has N memory events. The page is made from a warm file, best of five. Frames are those of headless Chromium: the window is moved at
every one, and the time from each to the next is counted.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
SECTION = """
## The page of ten million events

`benches/page.py` measures this: it repeats a real trace with shifted times, writes the page, opens it in a browser and pans it.

"""
BEGIN, END = "<!-- page:begin -->", "<!-- page:end -->"


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def encoded(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """The fields of a message: number, and where the whole field and its content lie."""
    at = 0
    while at < len(data):
        begin = at
        key, at = varint(data, at)
        if key & 7 == 0:
            content = at
            _, at = varint(data, at)
        elif key & 7 == 2:
            length, content = varint(data, at)
            at = content + length
        else:
            content, at = at, at + (8 if key & 7 == 1 else 4)
        yield key >> 3, begin, content, at


def shifted(line, by):
    """A line (XLine) that begins so many nanoseconds later."""
    for number, _, content, end in fields(line):
        if number == 3:
            stamp, _ = varint(line, content)
            return bytes(line[:content]) + encoded(stamp + by), line[end:]
        if number == 4:
            break
    return bytes(line[:0]), line


def repeated(source, target, times, period):
    """Writes the trace `source` with the lines of its host so many times, one after the other."""
    import mmap

    with open(source, "rb") as file, open(target, "wb") as out:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for number, begin, content, end in fields(data):
            plane = data[content:end]
            name = next((bytes(plane[c:e]) for n, _, c, e in fields(plane) if n == 2), b"")
            if number != 1 or name != b"/host:CPU":
                out.write(data[begin:end])
                continue
            parts = []
            for n, b, c, e in fields(plane):
                if n != 3:
                    parts.append((plane[b:e],))
                    continue
                for copy in range(times):
                    head, rest = shifted(plane[c:e], copy * period)
                    parts.append((b"\x1a" + encoded(len(head) + len(rest)), head, rest))
            out.write(b"\x0a" + encoded(sum(len(piece) for part in parts for piece in part)))
            for part in parts:
                for piece in part:
                    out.write(piece)


PAN = """async () => {
  const { clock, picture } = window.vramline;
  const frames = [];
  const whole = picture.end - picture.begin;
  for (const share of [0.5, 0.1, 0.01]) {
    clock.set(picture.begin, picture.begin + whole * share);
    await new Promise(done => setTimeout(done, 300));
    let before = await new Promise(done => requestAnimationFrame(done));
    for (let i = 0; i < 120; i++) {
      clock.set(clock.from + (clock.to - clock.from) * 0.02, clock.to + (clock.to - clock.from) * 0.02);
      const now = await new Promise(done => requestAnimationFrame(done));
      frames.push(now - before);
      before = now;
    }
  }
  return frames;
}"""


def frames(page_file):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        began = time.perf_counter()
        page.goto(Path(page_file).as_uri())
        page.wait_for_selector("#notes")
        opened = time.perf_counter() - began
        page.locator("#timeline").scroll_into_view_if_needed()
        taken = page.evaluate(PAN)
        version = browser.version
        browser.close()
    return opened, sorted(taken), version


def measured(binary, trace, page_file):
    def once():
        began = time.perf_counter()
        subprocess.run([binary, "report", trace, "--html", page_file], check=True, capture_output=True)
        return time.perf_counter() - began

    once()
    return min(once() for _ in range(5)), os.path.getsize(page_file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=Path, default=OUT / "double.xplane.pb")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--scratch", type=Path, help="where the large trace is made")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    binary = os.environ.get("VRAMLINE_BIN") or HERE.parent / "target" / "release" / "vramline"
    if not args.trace.exists():
        OUT.mkdir(exist_ok=True)
        subprocess.run([sys.executable, HERE / "make_trace.py", args.trace, "--megabytes", "420"], check=True)
    told = subprocess.run([binary, "report", args.trace, "--json", "--top", "1"], check=True, capture_output=True)
    report = json.loads(told.stdout)
    events = sum((pool["allocs"] or 0) + (pool["frees"] or 0) for pool in report["pools"])
    begins = [step["begin_ns"] for step in report["steps"]]
    period = max(begins) - min(begins) + 500_000_000
    rows = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        large = Path(scratch) / "large.xplane.pb"
        for times in (1, max(1, -(-args.events // events))):
            trace = args.trace if times == 1 else large
            if times > 1:
                repeated(args.trace, large, times, period)
            page_file = Path(scratch) / f"{times}.html"
            seconds, size = measured(binary, trace, page_file)
            opened, taken, version = frames(page_file)
            rows.append(
                f"| {events * times:,} | {os.path.getsize(trace) / 1e6:,.0f} MB | {seconds:.2f} s | {size / 1e6:.2f} MB | {opened:.2f} s | "
                f"{statistics.median(taken):.1f} ms | {taken[int(len(taken) * 0.99)]:.1f} ms | {taken[-1]:.1f} ms |"
            )
            print(rows[-1], flush=True)
    table = "\n".join(
        [
            "| memory events | trace | page written in | page | opened in | frame, median | 99 % | longest |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    about = (
        f"Chromium {version}, headless, without a GPU, {os.cpu_count()} cores; 360 frames of panning, at half, "
        "a tenth and a hundredth of the time."
    )
    text = f"{BEGIN}\n{table}\n\n{about}\n{END}"
    if args.write:
        before = args.write.read_text()
        if BEGIN in before:
            args.write.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: text, before, flags=re.S))
        else:
            args.write.write_text(before + SECTION + text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
