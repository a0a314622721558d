"""The report page in a real browser: opens from disk, asks nobody, and says what the JSON says.

Pictures of every view are left in tests/python/artefacts, for people to look at.
"""

import base64
import hashlib
import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make test installs it")

REPOSITORY = Path(__file__).resolve().parents[2]
ARTEFACTS = Path(__file__).resolve().parent / "artefacts"

PAGES = {
    "tensorflow": "tf221_cpu_cnn_from_start.xplane.pb",
    "tensorflow_window": "tf221_cpu_mlp_window.xplane.pb",
    "tensorflow_recording": "tf221_cpu_keras.vram",
    "tensorflow_dump": "tf221_cpu_oom.memorydump.pb",
    "jax": "jax0112_h200_convolution.xplane.pb.gz",
    "jax_recording": "jax0112_h200_loop.vram",
    "jax_profile": "jax0112_h200.memory.prof",
    "jax_program": "jax0102_cpu_step.hlo.pb",
    "torch": "torch2110_h200_resnet50_b64.snapshot.pickle.gz",
    "torch_late": "torch/late.pickle.gz",
    "torch_out_of_memory": "torch/out_of_memory.pickle.gz",
    "torch_recording": "torch2110_h200_loop.vram",
}
FIXTURES = REPOSITORY / "fixtures"
READ = [*FIXTURES.glob("*.vram"), *FIXTURES.glob("*.xplane.pb*"), *FIXTURES.glob("*.log"), *FIXTURES.glob("*.hlo.pb"), *FIXTURES.glob("*.prof"),
        *FIXTURES.glob("*.memorydump.pb"), *FIXTURES.glob("*.pickle.gz"), *FIXTURES.glob("torch/*.pickle.gz")]  # fmt: skip
OTHERS = sorted(str(path.relative_to(FIXTURES)) for path in READ if str(path.relative_to(FIXTURES)) not in PAGES.values())


# Every text that stands on a canvas, with its box in pixels of the bitmap.
LISTEN = """(() => {
  const of = CanvasRenderingContext2D.prototype, { clearRect, fillText } = of;
  of.clearRect = function (...box) { this.canvas.told = []; clearRect.apply(this, box); };
  of.fillText = function (text, x, y) {
    const wide = this.measureText(text).width, from = x - wide * ({ right: 1, center: 0.5 }[this.textAlign] ?? 0);
    const corners = [[from, y - 4], [from + wide, y + 4]].map(([x, y]) => this.getTransform().transformPoint({ x, y }));
    const [left, right] = corners.map(at => at.x).sort((a, b) => a - b), [top, bottom] = corners.map(at => at.y).sort((a, b) => a - b);
    (this.canvas.told ??= []).push({ text, left, right, top, bottom });
    fillText.call(this, text, x, y);
  };
})()"""


@pytest.fixture(scope="module")
def browser():
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=flags)
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started (apt-get install chromium, or playwright install chromium): {error}")
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, binary, tmp_path):
    """A function: the page of a path, opened from disk in a window; whatever it complains of or asks for fails the test."""
    contexts, complaints = [], []

    def watch(page):
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith("file:") else None)

    def opened(path, width=1280, height=900, **options):
        file = Path(path)
        if file.suffix != ".html":
            file = tmp_path / f"{len(contexts)}.html"
            subprocess.run([binary, "report", path, "--html", file], check=True, capture_output=True)
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        contexts.append(context)
        context.add_init_script(LISTEN)
        page = context.new_page()
        watch(page)
        page.goto(file.as_uri())
        page.wait_for_selector("#notes")
        # Until everything that was asked for has been drawn.
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page

    yield opened
    assert complaints == []
    for context in contexts:
        context.close()


def keep(page, name):
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)


def told(page, section):
    """What stands on the first canvas of a section."""
    return page.evaluate("section => document.querySelector(`#${section} canvas`).told", section)


def figure(page, selector):
    return int(page.locator(f"{selector} data").first.get_attribute("value"))


@pytest.mark.parametrize("name", PAGES)
def test_page_says_what_the_json_says(name, open_page, vramline, fixtures):
    path = fixtures / PAGES[name]
    pool = vramline(path)["pools"][0]
    page = open_page(path)
    keep(page, name)
    assert figure(page, "#peak .figure") == pool["peak_bytes"]
    assert page.locator("#verdict p").first.inner_text()
    # A page without a title, a language or a level of headings cannot be listened to.
    assert page.locator("h1").count() == 1 and page.locator("html[lang=en]").count() == 1
    assert page.locator("canvas:not([aria-label]), input:not([aria-label]), button:empty").count() == 0
    if page.locator("#timeline").count() == 0:
        assert_held_says_what_the_json_says(page, pool)
        return
    if pool["at_peak"] is None or pool["allocs"] is None:
        return
    page.locator("#timeline button", has_text="Peak").click()
    assert_rows_add_up(page, pool["peak_bytes"])


@pytest.mark.parametrize("name", OTHERS)
def test_page_of_every_other_fixture(name, open_page, vramline, fixtures):
    pools = vramline(fixtures / name)["pools"]
    page = open_page(fixtures / name)
    assert page.locator("#verdict p").first.inner_text()
    if not pools:
        return
    assert page.locator("#peak .figure").count() == 1
    if pools[0]["peak_bytes"] is not None:
        assert figure(page, "#peak .figure") == pools[0]["peak_bytes"]
    if pools[0]["at_peak"] is not None and pools[0]["allocs"] and page.locator("#timeline").count():
        page.locator("#timeline button", has_text="Peak").click()
        assert_rows_add_up(page, pools[0]["peak_bytes"])
    if page.locator("#timeline").count() == 0:
        assert_held_says_what_the_json_says(page, pools[0])


def assert_held_says_what_the_json_says(page, pool):
    """Without a picture over time, the rows of the one moment that is known."""
    if pool["at_peak"] is None:
        assert page.locator("#held").count() == 0
        return
    rows, foot = held_rows(page, "#held")
    assert rows and sorted(rows, reverse=True) == sorted((row["bytes"] for row in pool["at_peak"]["rows"]), reverse=True)[: len(rows)]
    assert foot.pop() == pool["at_peak"]["in_use_bytes"] == sum(rows) + sum(foot)


@pytest.mark.parametrize("name", ["jax_profile", "jax_program", "tensorflow_dump"])
def test_every_pool_without_a_picture_has_its_rows(name, open_page, vramline, fixtures):
    pools = vramline(fixtures / PAGES[name])["pools"]
    page = open_page(fixtures / PAGES[name])
    for at, pool in enumerate(pools):
        if len(pools) > 1:
            page.locator("#pool").select_option(str(at))
        assert_held_says_what_the_json_says(page, pool)
        if pool["at_peak"]["unnamed_bytes"] == 0:
            assert "no name" not in page.locator("#held tbody").inner_text()


def test_everything_is_reached_by_keys(open_page, fixtures):
    """Tab goes through the page from top to bottom; whatever has the focus says what it is and shows it."""
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    sections, names = [], 0
    for _ in range(400):
        page.keyboard.press("Tab")
        told = page.evaluate(
            """() => { const e = document.activeElement; if (e === document.body) return null;
            return [e.closest('section')?.id ?? '', (e.getAttribute('aria-label') || e.textContent || '').trim(), getComputedStyle(e).outlineStyle]; }"""
        )
        if told is None:
            break
        assert told[1] and told[2] != "none", told
        names += 1
        if not sections or sections[-1] != told[0]:
            sections.append(told[0])
    order = page.evaluate("() => [...document.querySelectorAll('main > section[id]')].map(one => one.id)")
    reached = [one for one in sections if one]
    assert reached == [one for one in order if one in reached] and {"ledger", "timeline", "map", "tables"} <= set(reached)
    assert names > 20


def test_a_print_has_everything(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"], color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#timeline .buttons").is_hidden() and page.locator("#map .tools").is_hidden()
    assert page.locator("#timeline canvas").is_visible() and page.locator("#timeline .held table").is_visible()
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    keep(page, "printed")


# What each canvas is while the page is laid out for paper: the last to hear of a print looks at it.
LOOK = """() => matchMedia('print').addEventListener('change', event => {
  if (event.matches) window.printed = [...document.querySelectorAll('canvas')].map(one => {
    const pixels = new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width, one.height).data.buffer);
    const lowest = Math.floor(pixels.findLastIndex(pixel => pixel !== 0) / one.width);
    return { of: one.closest('section').id, wide: one.width, tall: one.height, box: [one.clientWidth, one.clientHeight], lowest, told: one.told };
  });
})"""


def assert_printed_whole(page, sections, file):
    page.evaluate(LOOK)
    page.pdf(path=file, print_background=True)
    printed = page.evaluate("() => window.printed")
    assert sections <= {one["of"] for one in printed}
    for one in printed:
        across, down = (one[side] / box for side, box in zip(("wide", "tall"), one["box"], strict=True))
        assert across == pytest.approx(down, rel=0.01), one
        # Names of steps or times stand below the plot.
        assert one["tall"] - 24 * down < one["lowest"] < one["tall"], one
        assert all(text["left"] >= 0 and text["right"] <= one["wide"] and text["bottom"] <= one["tall"] for text in one["told"]), one


def test_a_print_cuts_no_chart(open_page, open_diff, fixtures, tmp_path):
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    assert_printed_whole(page, {"timeline", "map", "steps"}, tmp_path / "page.pdf")
    page, _ = open_diff(*(fixtures / file for file in COMPARED["tensorflow"][0]))
    assert_printed_whole(page, {"curves", "steps"}, tmp_path / "page.pdf")


def test_a_print_has_what_is_behind_buttons(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    rows = page.locator("#timeline .held tbody tr")
    every = int(page.locator("#timeline .held .more").inner_text().split()[-1])
    few, closed = rows.count(), page.locator("details:not([open])").count()
    assert few < every and closed > 2
    # The page hears of it with its next frame.
    page.emulate_media(media="print")
    sync_api.expect(rows).to_have_count(every)
    assert page.locator("details:not([open])").count() == 0
    assert all(one.is_visible() for one in page.locator("summary").all())
    # A sum is not repeated on each sheet of a table.
    assert page.evaluate("() => getComputedStyle(document.querySelector('tfoot')).display") == "table-row-group"
    page.emulate_media(media="screen")
    sync_api.expect(rows).to_have_count(few)
    assert page.locator("details:not([open])").count() == closed
    # Words of other columns than the names are whole.
    page.set_viewport_size({"width": 720, "height": 1000})
    page.emulate_media(media="print")
    sync_api.expect(rows).to_have_count(every)
    heights = page.evaluate("() => [...document.querySelectorAll('#timeline .held tbody td:nth-child(5) > span')].map(one => one.getClientRects().length)")
    assert set(heights) == {1}
    page.emulate_media(media="screen")
    sync_api.expect(rows).to_have_count(few)
    # What was left out by a filter is said, as the field itself is not printed.
    page.locator("#timeline .held input").fill("gradients")
    found = page.locator("#timeline .held .tools .hint").inner_text()
    page.emulate_media(media="print")
    sync_api.expect(page.locator("#timeline .held")).to_contain_text(f"{found} with “gradients”")


def held_rows(page, table):
    """The bytes of every row of a table of what was held, and of those below its line."""
    while page.locator(f"{table} .more:visible").count():
        page.locator(f"{table} .more").click()
    cells = "rows => [...document.querySelectorAll(rows + ' tr td:first-child data')].map(d => Number(d.value))"
    return page.evaluate(cells, f"{table} tbody"), page.evaluate(cells, f"{table} tfoot")


def assert_rows_add_up(page, peak):
    rows, foot = held_rows(page, "#timeline .held")
    assert foot.pop() == peak
    assert sum(rows) + sum(foot) == peak


def test_any_moment_adds_up(open_page, fixtures):
    """Wherever one clicks, the rows are those of that moment, or of a kept one, which is said."""
    page = open_page(fixtures / PAGES["tensorflow"])
    box = page.locator("#timeline canvas").bounding_box()
    for share in (0.2, 0.45, 0.7, 0.93):
        page.locator("#timeline canvas").click(position={"x": box["width"] * share, "y": box["height"] / 2})
        at, total = page.evaluate("() => [vramline.clock.chosen, vramline.picture.total[vramline.clock.chosen]]")
        assert at >= 0
        # So few events are all in the page: no other moment stands for this one.
        assert page.locator("#timeline .held .note").count() == 0
        assert_rows_add_up(page, total)


def test_chart_goes_by_keys_and_wheel(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow"])
    window = lambda: page.evaluate("() => [vramline.clock.from, vramline.clock.to]")  # noqa: E731
    whole = window()
    page.locator("#timeline canvas").focus()
    page.keyboard.press("p")
    chosen = page.evaluate("() => vramline.clock.chosen")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => vramline.clock.chosen") > chosen
    page.keyboard.press("+")
    page.keyboard.press("+")
    closer = window()
    assert closer[1] - closer[0] < (whole[1] - whole[0]) / 2
    page.keyboard.press("Shift+ArrowLeft")
    assert window()[0] < closer[0]
    page.keyboard.press("0")
    assert window() == whole
    box = page.locator("#timeline canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.wheel(0, -400)
    page.wait_for_function("whole => vramline.clock.to - vramline.clock.from < whole", arg=whole[1] - whole[0])
    before = window()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 120, box["y"] + 100, steps=4)
    page.mouse.up()
    assert window()[0] < before[0]
    keep(page, "zoomed")


@pytest.mark.parametrize("name", ["torch2110_h200_keras.vram", "torch2110_h200_loop.vram", "jax0112_h200_loop.vram", "tf215_cpu_keras2.vram"])
def test_names_on_the_chart_lie_apart(name, open_page, vramline, fixtures):
    document = vramline(fixtures / name)
    page = open_page(fixtures / name)
    marks = {mark["label"][:28] for mark in document["marks"]}
    steps = {str(step["step"]) for step in document["steps"]}
    texts = told(page, "timeline")
    right = page.evaluate("() => document.querySelector('#timeline canvas').width") - 12
    assert all(text["right"] <= right for text in texts if text["text"] in marks | steps), texts
    named = [text for text in texts if text["text"] in marks]
    for at, one in enumerate(named):
        for other in named[:at]:
            apart = one["left"] >= other["right"] or one["right"] <= other["left"] or one["top"] >= other["bottom"] or one["bottom"] <= other["top"]
            assert apart, (one, other)
    if name == "torch2110_h200_keras.vram":
        # Those with the room for it are named.
        assert len(named) > 1


def test_an_axis_has_no_parts_of_bytes(open_page, binary, fixtures, tmp_path):
    """The steps of a pool that held nothing."""
    file = tmp_path / "nothing.html"
    subprocess.run([binary, "report", fixtures / PAGES["tensorflow_recording"], "--html", file], check=True, capture_output=True)
    before, data, after = re.fullmatch(r'(.*<script[^>]* id="data">)(.*?)(</script>.*)', file.read_text(), re.DOTALL).groups()
    data = json.loads(data)
    for step in data["report"]["steps"]:
        step["peak_bytes"] = step["current_bytes"] = 0
    file.write_text(before + json.dumps(data).replace("<", "\\u003c") + after)
    texts = [text["text"] for text in told(open_page(file), "steps")]
    assert texts[:2] == ["0", "1 B"] and [text for text in texts if text.endswith(" B")] == ["1 B"]


def test_a_reading_below_the_peak_is_not_called_the_peak(open_page, fixtures):
    flags = lambda page: [text["text"] for text in told(page, "timeline") if re.match("peak|highest", text["text"])]  # noqa: E731
    page = open_page(fixtures / "jax0112_h200_preallocated_pool.vram")
    assert page.locator("#peak .figure").inner_text() == "896 MiB"
    assert flags(page) == ["highest reading 800 MiB"]
    assert "highest reading 800 MiB" in (label := page.locator("#timeline canvas").get_attribute("aria-label")) and "peak" not in label
    assert page.locator("#timeline button", has_text="Peak").count() == 0
    page.locator("#timeline button", has_text="Highest").click()
    page = open_page(fixtures / PAGES["torch_recording"])
    assert flags(page) == ["peak 148 MiB"] and page.locator("#timeline button", has_text="Peak").count() == 1


def test_map_names_blocks_and_filters(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow"])
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    # The middle of the largest block, as it is drawn.
    x, y = page.evaluate(
        """() => {
        const { picture, clock } = vramline, b = picture.blocks, c = document.querySelector('#map canvas');
        let best = 0;
        for (let i = 1; i < b.count; i++) if (b.chunk[i] * (b.life[i] || 1e12) > b.chunk[best] * (b.life[best] || 1e12)) best = i;
        const end = b.life[best] > 0 ? b.born[best] + b.life[best] : picture.end;
        const x = 68 + ((b.born[best] + end) / 2 - clock.from) / (clock.to - clock.from) * (c.clientWidth - 80);
        for (let y = 10; y < c.clientHeight - 26; y += 2) {
          c.dispatchEvent(new PointerEvent('pointermove', { clientX: c.getBoundingClientRect().left + x, clientY: c.getBoundingClientRect().top + y }));
          if (!document.querySelector('.tip').hidden) return [x, y];
        }
        return [-1, -1];
    }"""
    )
    assert x > 0
    canvas.hover(position={"x": x, "y": y})
    tip = page.locator(".tip").inner_text()
    assert re.search(r"requested, .* allocated", tip) and ("held for" in tip or "not freed" in tip)
    keep(page, "map")
    page.locator("#map select").first.select_option("gradients")
    assert re.fullmatch(r"[\d,]+ of [\d,]+", page.locator("#map .tools .hint").inner_text())


def test_tables_sort_and_filter(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow"])
    held = page.locator("#timeline .held")
    held.locator("input").fill("conv2d")
    names = held.locator("tbody td.wide").all_inner_texts()
    assert names and all("conv2d" in name.lower() for name in names)
    held.locator("input").fill("")
    held.locator("th button", has_text="age").click()
    assert held.locator("th[aria-sort=descending]").inner_text().startswith("age")


def test_filter_and_order_stay_with_another_moment(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow"])
    held = page.locator("#timeline .held")
    held.locator("input").fill("conv2d")
    held.locator("th button", has_text="role").click()
    before = held.locator("h3").inner_text()
    box = page.locator("#timeline canvas").bounding_box()
    page.locator("#timeline canvas").click(position={"x": box["width"] * 0.8, "y": box["height"] / 2})
    assert held.locator("h3").inner_text() != before
    assert held.locator("input").input_value() == "conv2d"
    names = held.locator("tbody td.wide").all_inner_texts()
    assert names and all("conv2d" in name.lower() for name in names)
    assert held.locator("th[aria-sort=ascending]").inner_text().startswith("role")
    assert re.fullmatch(rf"{len(names)} of \d+ rows", held.locator(".tools .hint").inner_text())


def test_findings_and_parts_come_first(open_page, vramline, fixtures):
    """Under the verdict: why it failed, what to do, three numbers, what the peak is made of."""
    for name in (PAGES["torch"], PAGES["torch_out_of_memory"], "jax0112_h200_preallocated_pool.vram"):
        document = vramline(fixtures / name)
        page = open_page(fixtures / name)
        assert page.locator("#verdict p").all_inner_texts() == [document["headline"], *document["explanation"]]
        order = page.evaluate("() => [...document.querySelectorAll('main > section')].map(one => one.id || one.className)")
        top = [one for one in ("oom", "findings", "cards", "parts", "ledger") if one in order]
        assert order[: len(top)] == top and ("findings" in order) == bool(document["findings"])
        texts = page.locator("#findings article p").all_inner_texts()
        assert all(any(finding["text"][1:] in text for text in texts) for finding in document["findings"])
        held = document["pools"][0]["at_peak"]
        if held is None:
            assert "No trace" in page.locator("#parts .missing").inner_text()
            continue
        parts = page.locator("#parts td data").evaluate_all("all => all.map(one => Number(one.value))")
        known = [*held["by_role"].values(), held["slack_bytes"], held["before_recording_bytes"]]
        assert parts == sorted((part for part in known if part), reverse=True) and sum(parts) == held["in_use_bytes"]


def test_the_pool_is_drawn_above_what_is_in_use(open_page, vramline, fixtures):
    """A trace or a replay knows each growth of the pool; readings of a counter lag."""
    for name, source in (("jax_recording", "exact replay"), ("tensorflow_recording", "exact replay"), ("torch", "snapshot"), ("torch_late", "snapshot")):
        page = open_page(fixtures / PAGES[name])
        above = page.evaluate(
            """() => { const { picture } = vramline, line = picture.lines.find(one => one.name.startsWith('reserved'));
            const reserved = at => line.value.filter((_, i) => line.time[i] <= at && !(line.time[i + 1] < at)).reduce((a, b) => Math.max(a, b), 0);
            return [line.name, picture.total.every((total, i) => total <= reserved(picture.high[i]))]; }"""
        )
        assert above == [f"reserved by the pool ({source})", True], name
        assert above[0] in page.locator("#timeline .legend").inner_text()


def test_the_ledger_opens_on_the_process(open_page, vramline, fixtures):
    """What is free on the device is context: it is named, and does not set the scale."""
    ledger = vramline(fixtures / "jax0112_h200_preallocated_pool.vram")["ledger"]
    free, job = (next(line for line in ledger if line["line"] == kind) for kind in ("free", "this job"))
    assert free["bytes"] > job["bytes"]
    page = open_page(fixtures / "jax0112_h200_preallocated_pool.vram")
    first = page.locator("#ledger .piece").first
    assert first.get_attribute("aria-label").startswith(job["detail"])
    widths = [one.bounding_box()["width"] for one in (first, page.locator("#ledger .icicle"))]
    assert widths[0] > 0.98 * widths[1] - 10
    assert page.locator("#ledger .piece", has_text="free").count() == 0
    context = page.locator("#ledger .context data").evaluate_all("all => all.map(one => Number(one.value))")
    assert free["bytes"] in context and job["bytes"] in context


def test_every_chart_has_a_legend(open_page, open_diff, fixtures):
    pages = [open_page(fixtures / PAGES[name]) for name in ("tensorflow_recording", "jax_recording", "torch_recording")]
    for page in [*pages, open_diff(*(fixtures / file for file in COMPARED["three"][0]))[0]]:
        bare = page.evaluate("""() => [...document.querySelectorAll('canvas')].filter(one => {
            for (let at = one; at && at.tagName !== 'SECTION'; at = at.parentElement)
              for (let before = at.previousElementSibling; before; before = before.previousElementSibling)
                if (before.matches('.legend') || before.querySelector('.legend')) return false;
            return true; }).map(one => one.closest('section').id)""")
        assert page.locator("canvas").count() > 0 and bare == []
    named = pages[0].locator("#timeline .legend").inner_text()
    assert all(word in named for word in ("rounding", "reserved by the pool", "a step begins", "chosen moment", "peak"))
    assert "slack" not in pages[0].locator("body").inner_text()


def test_what_is_missing_says_what_to_record(open_page, fixtures):
    for name, sections in {"torch_recording": ("parts", "timeline"), "tensorflow_dump": ("ledger", "held"), "jax_program": ("ledger", "held")}.items():
        page = open_page(fixtures / PAGES[name])
        for section in sections:
            assert "vramline run -- " in page.locator(f"#{section} .missing code").first.inner_text(), (name, section)


def test_words_are_explained_by_keys(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    assert page.locator("#glossary[open]").count() == 0
    page.locator("#parts th a.term", has_text="rounding").focus()
    page.keyboard.press("Enter")
    entry = page.locator("#word-rounding")
    sync_api.expect(entry).to_be_in_viewport()
    assert page.locator("#glossary[open]").count() == 1 and "beyond the request" in entry.inner_text()
    for word in ("in use", "reserved", "cached", "context", "peak of the process", "fragmentation"):
        assert page.locator(f"#word-{word.replace(' ', '-')} dd").inner_text()


def test_ledger_opens(open_page, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    piece = page.locator("#ledger .piece", has_text="in use").first
    piece.click()
    assert page.locator("#ledger .back").inner_text().startswith("← in use")
    page.locator("#ledger .back").click()
    page.locator("#ledger summary").click()
    assert page.locator("#ledger table").inner_text().count("MiB") > 3
    keep(page, "ledger")


# How far texts stand out from what is behind them; 1 is not at all.
CONTRAST = """selector => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => numbers(colour).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = one => { const colour = getComputedStyle(one).backgroundColor; return numbers(colour)[3] === 0 ? behind(one.parentElement) : colour; };
  return [...document.querySelectorAll(selector)].map(one => {
    if ([one, ...one.querySelectorAll('*')].some(part => getComputedStyle(part).opacity !== '1')) return [one.className, 0];
    const both = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
    return [one.className, (both[0] + 0.05) / (both[1] + 0.05)];
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out(scheme, open_page, open_diff, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"], color_scheme=scheme)
    # Those of every other ledger too.
    parts = [
        *("parameters", "gradients", "optimizer", "activations", "inputs", "temporaries", "unknown"),
        *("slack", "before", "free", "reserved", "others", "whole"),
    ]
    page.evaluate("""parts => { for (const part of parts) {
      const piece = document.querySelector('.piece').cloneNode(true);
      piece.className = 'piece ' + part;
      document.querySelector('#ledger .icicle').append(piece);
    } }""", parts)  # fmt: skip
    compared, _ = open_diff(*(fixtures / file for file in COMPARED["tensorflow"][0]), color_scheme=scheme)
    for where, selector, least in [
        (page, ".piece", len(parts) + 5),
        (page, ".hint, summary, th", 10),
        (compared, ".fall", 3),
        (compared, ".rise", 3),
        (compared, ".hint", 3),
    ]:
        found = where.evaluate(CONTRAST, selector)
        assert len(found) >= least
        assert [(name, round(contrast, 2)) for name, contrast in found if contrast < 4.5] == [], selector


def test_why_memory_ran_out(open_page, fixtures):
    page = open_page(fixtures / PAGES["torch_out_of_memory"])
    assert page.locator("#oom article").count() >= 1
    assert "requested" in page.locator("#oom .figures").first.inner_text()


@pytest.mark.parametrize("name", ["tf221_cpu_oom.log", "tf221_cpu_oom.memorydump.pb", "jax0112_h200_too_large.log"])
def test_why_memory_ran_out_of_a_bare_log_or_dump(name, open_page, binary, fixtures):
    page = open_page(fixtures / name)
    keep(page, name.replace(".", "_"))
    told = subprocess.run([binary, "oom", fixtures / name, "--json"], check=True, capture_output=True, text=True)
    failure = json.loads(told.stdout)["failures"][0]
    first = page.locator("#oom article").first
    # The sentence is the terminal's own.
    assert failure["headline"].lower() in first.locator("h3").inner_text().lower()
    # A dump alone does not have the size of the request.
    figures = [
        failure["requested_bytes"] or failure["requested_low_bytes"],
        *(failure[f"{name}_bytes"] for name in ("in_use", "free", "largest_free", "limit", "short_by")),
    ]
    shown = first.locator(".figures dd data").evaluate_all("all => all.map(one => Number(one.value))")
    assert shown == [figure for figure in figures if figure is not None]
    assert first.locator(".strip").count() == min(40, len(failure["regions"]))


def test_the_pool_at_a_failure(open_page, fixtures, tmp_path):
    """A recording whose job ran out of memory, with TensorFlow's dump of the pool."""
    recording = tmp_path / "failed.vram"
    shutil.copytree(fixtures / PAGES["tensorflow_recording"], recording)
    process = next(recording.glob("process-*.json")).stem.removeprefix("process-")
    # A job that ended well went on without that block.
    manifest = json.loads((recording / "run.json").read_text())
    (recording / "run.json").write_text(json.dumps(manifest | {"exit": {"code": 1}}))
    shutil.copy(fixtures / "tf221_cpu_oom.memorydump.pb", recording / f"dump-{process}_bfc_cpu_allocator_for_gpu.1")
    page = open_page(recording)
    keep(page, "pool_at_failure")
    assert "Out of memory" in page.locator("#verdict p").first.inner_text()
    assert page.locator("#oom .strip i").count() > 10
    page.locator("#oom summary").first.click()
    assert page.locator("#oom tbody tr").count() > 0


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_recording", "torch_out_of_memory"])
def test_narrow_dark_and_printed(name, open_page, fixtures, tmp_path):
    page = open_page(fixtures / PAGES[name], width=400, height=800)
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    keep(page, f"{name}_narrow")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    dark_page = open_page(fixtures / PAGES[name], color_scheme="dark")
    assert dark_page.evaluate("() => getComputedStyle(document.body).backgroundColor") != light
    keep(dark_page, f"{name}_dark")
    printed = dark_page.pdf(path=tmp_path / "page.pdf", print_background=True)
    assert printed.startswith(b"%PDF")


def test_no_size_is_cut_where_it_is_narrow(open_page, open_diff, fixtures):
    page = open_page(fixtures / PAGES["tensorflow_recording"], width=400, height=800)
    compared, _ = open_diff(*(fixtures / file for file in COMPARED["tensorflow"][0]), width=400, height=800)
    for where, section in [(page, "timeline"), (page, "map"), (page, "steps"), (compared, "curves"), (compared, "steps")]:
        sizes = [text for text in told(where, section) if re.fullmatch(r"[\d.]+ [KMG]?i?B", text["text"])]
        assert sizes and all(text["left"] >= 0 for text in sizes), (section, sizes)
    # Times stand below each other on both.
    times = [{text["text"]: text["left"] for text in told(page, section) if text["text"].endswith(" s")} for section in ("timeline", "map")]
    assert times[0] and times[0] == times[1]


def test_a_fresh_recording(open_page, binary, vramline, tmp_path):
    """What a user does first: run a job, look at it."""
    pytest.importorskip("tensorflow")
    recording = tmp_path / "fresh.vram"
    subprocess.run([binary, "demo", "-o", recording, "--python", sys.executable], check=True, capture_output=True, cwd=tmp_path)
    pool = vramline(recording)["pools"][0]
    page = open_page(recording)
    keep(page, "fresh")
    assert figure(page, "#peak .figure") == pool["peak_bytes"]
    page.locator("#timeline button", has_text="Peak").click()
    assert_rows_add_up(page, pool["peak_bytes"])


TWO = """
import sys, time
import tensorflow as tf
held = [tf.ones((int(sys.argv[1]), 1024)) for _ in range(4)]
product = tf.function(lambda x: tf.reduce_sum(x @ tf.transpose(x)))
for _ in range(3):
    product(held[0])
    time.sleep(0.2)
"""


def test_each_process_has_its_own_numbers(open_page, binary, vramline, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "two.py").write_text(TWO, encoding="utf-8")
    recording = tmp_path / "two.vram"
    both = '"$0" two.py 128 & "$0" two.py 1024; wait'
    command = [binary, "run", "--no-report", "-o", recording, "--", "sh", "-c", both, sys.executable]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    report = vramline(recording)
    large, small = report["pools"]
    assert large["pid"] != small["pid"] and large["peak_bytes"] > 3 * small["peak_bytes"]
    # The ledger is of the moment at which the larger one held the most.
    in_use = [line["bytes"] for line in report["ledger"] if line["line"] == "in use" and line["source"] == "trace"]
    assert large["peak_bytes"] in in_use
    held = {line["detail"]: line["bytes"] for line in report["ledger"] if line["line"] == "this job"}
    page = open_page(recording)
    for place, pool in enumerate((large, small)):
        page.select_option("#pool", str(place))
        assert figure(page, "#peak .figure") == pool["peak_bytes"]
        assert figure(page, "#taken .figure") == held[f"process {pool['pid']}"] > pool["peak_bytes"]
        assert "the kernel reports" in page.locator("#taken").inner_text()
        # The pool's line is of this process: never below what is in use, and not far above.
        most = page.evaluate("() => Math.max(...vramline.picture.lines.find(line => line.name.startsWith('reserved')).value)")
        assert most == pool["replay"]["pool_bytes"]
    listed = subprocess.run([binary, "report", recording, "--full"], check=True, capture_output=True, text=True).stdout
    assert all(f"{pool['pid']}  {pool['name']}" in listed for pool in (large, small))


def test_a_run_goes_on_after_its_trace(open_page, vramline, fixtures):
    report = vramline(fixtures / PAGES["tensorflow_recording"])
    page = open_page(fixtures / PAGES["tensorflow_recording"])
    times = page.evaluate("() => ({ end: vramline.picture.end, run: [...vramline.picture.run.time] })")
    last = max(step["begin_ns"] for step in report["steps"])
    assert times["end"] < last < times["run"][-1]
    assert "highest reading" in page.locator("#run canvas").get_attribute("aria-label")
    # A trace without counters has nothing to add.
    assert open_page(fixtures / PAGES["tensorflow"]).locator("#run").count() == 0


@pytest.fixture
def open_diff(open_page, binary, tmp_path):
    """A function: the page of a comparison, and its JSON."""

    def opened(*arguments, **options):
        file = tmp_path / "diff.html"
        done = subprocess.run([binary, "diff", *arguments, "--html", file], capture_output=True, text=True, check=False)
        assert "open it in a browser" in done.stdout, done.stderr
        told = subprocess.run([binary, "diff", *arguments, "--json"], capture_output=True, text=True, check=False)
        assert told.returncode == done.returncode
        return open_page(file, **options), json.loads(told.stdout)

    return opened


COMPARED = {
    "tensorflow": (["tf221_cpu_cnn_from_start.xplane.pb", "tf221_cpu_keras.vram"], "fail"),
    "three": (["tf221_cpu_keras.vram", "tf221_cpu_keras.vram", "tf221_cpu_cnn_from_start.xplane.pb"], "pass"),
    "jax": (["jax0112_h200_from_start.xplane.pb", "jax0112_h200_convolution.xplane.pb.gz"], None),
    "nothing_in_common": (["tf221_cpu_keras.vram", "torch/late.pickle.gz"], "unknown"),
}


@pytest.mark.parametrize("name", COMPARED)
def test_comparison_says_what_the_json_says(name, open_diff, fixtures):
    files, gate = COMPARED[name]
    page, document = open_diff(*(fixtures / file for file in files), *(["--fail-over", "2%"] if gate else []))
    keep(page, f"diff_{name}")
    first = page.locator("#verdict p").first.inner_text()
    assert document["gate"] == (gate or "none")
    if gate:
        assert {"fail": "The gate fails", "pass": "The gate passes", "unknown": "The gate cannot decide"}[gate] in first
    assert document["headline"] in page.locator("#verdict").inner_text()
    pool = document["rows"][0]["pool"]
    rows = [row for row in document["rows"] if row["pool"] == pool]
    cards = page.evaluate("() => [...document.querySelectorAll('#peaks .figure')].map(f => f.querySelector('data')?.value ?? null)")
    assert [None if card is None else int(card) for card in cards] == rows[0]["bytes"]
    while page.locator("#rows .more:visible").count():
        page.locator("#rows .more").click()
    runs = len(document["runs"])
    told = page.evaluate(
        """runs => [...document.querySelectorAll('#rows tbody tr')].map(tr => [...tr.children].slice(1, 2 * runs)
        .map(td => td.querySelector('data')?.value ?? null))""",
        runs,
    )
    none = lambda value: None if value is None else str(value)  # noqa: E731
    assert told == [[none(value) for value in row["bytes"] + row["deltas_bytes"][1:]] for row in rows]
    assert page.locator("canvas:not([aria-label]), input:not([aria-label]), button:empty").count() == 0
    bars = page.locator("#roles .pair").count()
    assert bars == sum(1 for row in rows if row["by"] == "role" and any(row["bytes"]))
    if name == "tensorflow":
        assert page.locator("#curves canvas").count() == 1 and page.locator("#ops .pair").count() == 12
    if name == "three":
        steps = [row["figure"] for row in rows if row["by"] == "step"]
        peaks, ends = steps.count("peak"), steps.count("in-use")
        assert peaks and ends
        told = f"Peaks of {peaks} steps and memory in use at the end of {ends} steps of 3 runs"
        assert told in page.locator("#steps canvas").get_attribute("aria-label")
        assert "dashed: in use at its end" in page.locator("#steps").inner_text()


def test_comparison_narrow_dark_and_printed(open_diff, fixtures, tmp_path):
    files = [fixtures / file for file in COMPARED["tensorflow"][0]]
    page, _ = open_diff(*files, width=400, height=800)
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    keep(page, "diff_narrow")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    dark, _ = open_diff(*files, color_scheme="dark")
    assert dark.evaluate("() => getComputedStyle(document.body).backgroundColor") != light
    keep(dark, "diff_dark")
    assert dark.pdf(path=tmp_path / "page.pdf", print_background=True).startswith(b"%PDF")


def test_a_hostile_name_does_not_run(browser, binary, fixtures, tmp_path):
    """Names of files and labels of marks come from others. They are shown as they are, and nothing of them runs."""
    evil = tmp_path / "<img src=x onerror=alert(1)>&<script>alert(2)<"
    shutil.copytree(fixtures / PAGES["torch_recording"], evil)
    manifest = next(evil.glob("run.json"))
    told = json.loads(manifest.read_text())
    told["command"] = ["</script><script>document.title='owned'</script>", "<!--", "<svg onload=alert(3)>"]
    manifest.write_text(json.dumps(told))
    file = tmp_path / "evil.html"
    subprocess.run([binary, "report", evil, "--html", file], check=True, capture_output=True)
    page = browser.new_page()
    ran = []
    page.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: ran.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("#notes")
    assert ran == [] and "owned" not in page.title()
    assert page.locator("img, svg").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.locator("h1").inner_text()
    # What is not ours does not run even where it gets into the page.
    refused = page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); return window.ran; }"
    )
    assert refused is None
    page.close()


def test_a_dump_is_not_called_the_peak(open_page, vramline, tmp_path):
    """Of a snapshot without a history, the page speaks of the moment of the dump."""
    frames = [{"name": "main", "filename": "/me/train.py", "line": 3}]
    blocks = [
        {"address": 4096 + number * 2048, "size": 2048, "requested_size": 2000 - number, "state": state, "frames": frames}
        for number, state in enumerate(["active_allocated", "inactive", "active_allocated", "active_allocated"])
    ]
    segment = {"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "segment_type": "small", "blocks": blocks}
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    pool = vramline(path)["pools"][0]
    assert (pool["moment"], pool["peak_bytes"]) == ("dump", 3 * 2048)
    page = open_page(path)
    assert figure(page, "#peak .figure") == pool["peak_bytes"]
    assert_held_says_what_the_json_says(page, pool)
    assert "at the moment of the dump" in page.locator("#verdict p").first.inner_text()
    for selector in ("#peak h2", "#held h2", "#ledger h3", "#taken .hint"):
        text = page.locator(selector).first.inner_text()
        assert "dump" in text and "peak" not in text.lower(), (selector, text)


def test_script_is_the_one_of_its_source():
    """What is kept in crates/vramline-cli/web is what web/src gives, where Node is there to tell; the hashes are theirs in any case."""
    dist = REPOSITORY / "crates" / "vramline-cli" / "web"
    digest = lambda name: "sha256-" + base64.b64encode(hashlib.sha256((dist / name).read_bytes()).digest()).decode()  # noqa: E731
    assert (dist / "hashes.txt").read_text().split() == [digest("page.js"), digest("page.css")]
    if not shutil.which("node") or not (REPOSITORY / "web" / "node_modules" / "esbuild").is_dir():
        pytest.skip("without Node and web/node_modules (make web) the script cannot be built again")
    web = REPOSITORY / "web"
    made = web / "node_modules" / ".built"
    subprocess.run(["node", "build.mjs", str(made)], cwd=web, check=True, capture_output=True)
    for name in ("page.js", "page.css", "hashes.txt"):
        assert (made / name).read_bytes() == (dist / name).read_bytes(), f"{dist / name} is old: make web"
    subprocess.run(["npx", "tsc", "--noEmit"], cwd=web, check=True, capture_output=True)


def test_a_frame_of_a_notebook_shows_the_page(browser, binary, fixtures, tmp_path, monkeypatch):
    """As in a notebook that was exported to HTML: opened from disk, without a network."""
    from vramline.notebooks.page import page as page_of

    monkeypatch.setenv("VRAMLINE_BIN", str(binary))
    shown = page_of([fixtures / PAGES["tensorflow_recording"]])
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{shown._repr_html_()}</body>", encoding="utf-8")
    complaints = []
    context = browser.new_context(offline=True, viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith(("file:", "about:")) else None)
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("#notes").wait_for()
    assert "79.7 MiB" in frame.locator("#verdict").inner_text()
    assert frame.locator("canvas").count() > 1
    # The frame is of another origin: neither can reach into the other.
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "notebook_frame.png")
    context.close()
    assert complaints == []
