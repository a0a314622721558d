"""Jobs of many ranks: the report, the page with its map of ranks in a real browser, and comparisons rank by rank.

The recordings are written here as processes write them; `benches/ranks.py` makes larger ones from a real recording.
"""

import json
import subprocess

import pytest
from test_page import browser, keep, open_page  # noqa: F401  (fixtures)

pyarrow = pytest.importorskip("pyarrow")

MIB = 1 << 20
SECOND = 1_000_000_000
STEPS = 24
RANKS = 1024
OUTLIER = 517
MARKS = [("mark", "int64"), ("kind", "string"), ("label", "string"), ("phase", "string"), ("how", "string"), ("step", "int64"), ("batches", "int64"),
         ("epoch", "int64"), ("begin_ns", "int64"), ("time_ns", "int64"), ("wall_ns", "int64"), ("device", "string"), ("current_bytes", "int64"),
         ("peak_bytes", "int64"), ("peak_since_ns", "int64")]  # fmt: skip
SCHEMA = pyarrow.schema(MARKS, metadata={"vramline.stream": "marks", "vramline.version": "1"})


def mib(rank, step):
    """Two stages of a pipeline, and one rank that grows."""
    more = 400 + 10 * step if rank == OUTLIER else 0
    return (3000 if rank < RANKS // 2 else 2000) + more


def write_job(folder, ranks, peak=mib, hosts=8):
    folder.mkdir()
    for rank in ranks:
        host, offset = f"node-{rank // hosts}", (rank // hosts) * 777 * SECOND
        name = f"{host}-{1000 + rank}-{5000 + rank}"
        rows = []
        for step in range(STEPS):
            begin = step * SECOND + offset + 10_000_000
            end = (step + 1) * SECOND + offset + rank % 7 * 1000
            figures = {"device": "GPU:0", "current_bytes": peak(rank, step) * MIB // 2, "peak_bytes": peak(rank, step) * MIB, "peak_since_ns": begin}
            rows.append({"mark": step, "kind": "step", "phase": "train", "how": "api", "step": step, "begin_ns": begin, "time_ns": end,
                         "wall_ns": 1_790_000_000 * SECOND + end - offset} | figures)  # fmt: skip
        table = pyarrow.Table.from_pylist(rows, schema=SCHEMA)
        with open(folder / f"marks-{name}.arrows", "wb") as file, pyarrow.ipc.new_stream(file, SCHEMA) as out:
            out.write_table(table)
        identity = {"host": host, "boot_id": host, "rank": rank, "local_rank": rank % hosts, "node_rank": rank // hosts, "world_size": len(ranks)}
        facts = {"kind": "vramline-process", "schema": 1, "vramline": "0.2.0", "python": "3.12.0", "frameworks": {"torch": "2.11.0"}, "rank": rank}
        (folder / f"process-{name}.json").write_text(json.dumps(facts | {"identity": identity}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("ranks") / "large.vram", range(RANKS))


def first_screen(binary, path, *arguments):
    return subprocess.run([binary, "report", path, *arguments], capture_output=True, text=True, check=True).stdout


def test_the_first_screen_answers_for_the_job(binary, large):
    text = first_screen(binary, large)
    lines = text.splitlines()
    assert len(lines) <= 32 and max(map(len, lines)) <= 100
    assert "Peaks of 1,024 ranks: 3.55 GiB on rank 517" not in text
    assert "2 groups with like peaks" in text and "Rank 517 holds" in text and "1,024 ranks on 128 hosts" in text
    # One rank alone is an ordinary report.
    alone = first_screen(binary, large, "--rank", str(OUTLIER))
    assert "1,024 ranks" not in alone and "2.57 GiB" in alone
    wrong = subprocess.run([binary, "report", large, "--rank", "4000"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "has no rank 4000: it has ranks 0-1023" in wrong.stderr and "hint:" in wrong.stderr


def test_the_json_has_every_rank(vramline, large):
    told = vramline(large)["ranks"]
    assert [rank["rank"] for rank in told["ranks"]] == list(range(RANKS))
    assert all(rank["peak_bytes"] == mib(rank["rank"], STEPS - 1) * MIB for rank in told["ranks"])
    assert (told["grouping"], [group["highest_bytes"] // MIB for group in told["groups"]]) == ("regular", [3000, 2000])
    assert [(one["rank"], one["difference_bytes"]) for one in told["outliers"]] == [(OUTLIER, 630 * MIB)]
    # Ends of one step differ by less than what is stated for hosts at least.
    assert max(host["residual_ns"] for host in told["hosts"]) == 100_000
    assert len(vramline(large, "--host", "node-3")["ranks"]["ranks"]) == 8


def pixel(page, row, column):
    """The colour of a cell of the map."""
    return page.evaluate(
        """([row, column, rows, columns]) => {
        const plot = document.querySelector('#ranks canvas'), scale = devicePixelRatio, copy = document.createElement('canvas');
        [copy.width, copy.height] = [plot.width, plot.height];
        const g = copy.getContext('2d', { willReadFrequently: true }), y0 = 8, y1 = plot.clientHeight - 24, x1 = plot.clientWidth - 12;
        // The names of ranks are on the left.
        const x0 = 70;
        g.drawImage(plot, 0, 0);
        const x = x0 + (column + 0.5) * (x1 - x0) / columns, y = y0 + (row + 0.5) * (y1 - y0) / rows;
        return [...g.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data]; }""",
        [row, column, RANKS, STEPS],
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_draws_every_rank(scheme, open_page, large):  # noqa: F811
    page = open_page(large, color_scheme=scheme)
    keep(page, f"ranks_{scheme}")
    low, high, outlier = pixel(page, 900, 12), pixel(page, 100, 12), pixel(page, OUTLIER, 23)
    assert len({tuple(low), tuple(high), tuple(outlier)}) == 3
    assert pixel(page, 960, 3) == low and pixel(page, 30, 20) == high
    plot = page.locator("#ranks canvas").first
    assert "1,024 ranks" in plot.get_attribute("aria-label")
    plot.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("PageDown")
    said = page.locator("#cell").inner_text()
    assert said == "Rank 128 on node-16, step 3: peak 2.93 GiB"
    page.keyboard.press("Home")
    assert "step 0:" in page.locator("#cell").inner_text()
    page.fill("#rank-number", str(OUTLIER))
    page.keyboard.press("Tab")
    assert page.locator("#rank h3").inner_text() == f"Rank {OUTLIER}"
    assert "It holds 630 MiB more than rank" in page.locator("#rank").inner_text()
    assert f"Rank {OUTLIER} on node-64, step 0: peak 2.34 GiB" in page.locator("#cell").inner_text()
    page.locator("#ranks canvas").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#rank h3").inner_text() == f"Rank {OUTLIER + 1}"
    # By peak the ranks of the first stage come first.
    page.select_option("#rank-order", "peak")
    assert pixel(page, 100, 12) == high
    assert page.locator("#ranks figure").count() >= 4


def test_the_map_is_usable_where_it_is_narrow(open_page, large):  # noqa: F811
    page = open_page(large, width=400, height=800)
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    box = page.locator("#ranks canvas").first.bounding_box()
    assert box["width"] > 300
    page.locator("#ranks canvas").first.click(position={"x": box["width"] - 30, "y": 40})
    assert page.locator("#rank h3").inner_text().startswith("Rank ")
    keep(page, "ranks_narrow")


def test_a_job_of_few_ranks_is_listed(binary, open_page, tmp_path):  # noqa: F811
    few = write_job(tmp_path / "few.vram", range(4), lambda rank, step: 900 if rank == 2 else 500, hosts=2)
    text = first_screen(binary, few)
    assert "Rank 2 holds 400 MiB more than rank 0" in text
    row = next(line.split() for line in text.splitlines() if line.split()[:2] == ["2", "node-1"])
    assert "+400" in row
    page = open_page(few)
    assert page.locator("#rank h3").inner_text() == "Rank 2"
    assert page.locator("#ranks tbody tr").count() >= 4


def test_two_jobs_are_compared_rank_by_rank(binary, tmp_path):
    before = write_job(tmp_path / "before.vram", range(8), lambda rank, step: 500)
    after = write_job(tmp_path / "after.vram", range(8), lambda rank, step: 600 if rank == 5 else 500)
    command = [binary, "diff", before, after, "--fail-over", "2%"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "rank 5 of after.vram: 600 MiB, 100 MiB (20.0 %) more" in done.stdout
    assert len(done.stdout.splitlines()) <= 32
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=False).stdout)
    assert told["ranks"][0] == {"rank": 5, "peak_bytes": [500 * MIB, 600 * MIB], "deltas_bytes": [0, 100 * MIB]}
    assert len(told["ranks"]) == 8 and [alarm["rank"] for alarm in told["alarms"] if "rank" in alarm] == [5]
