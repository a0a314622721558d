"""The examples: scripts as people have them, which must behave the same alone and under `vramline run`.

Each example is run twice at once, bare and recorded. What it prints and how it ends must be the same; on stderr, where
frameworks log and scripts print times, only what cannot be the same may differ. The memory figures on stdout are
TensorFlow's own counts, so a recorder that allocates, resets a count or keeps a tensor alive shows here. TensorFlow chooses
the order of ops by their measured time, even with one thread: on a busy machine a run can have another peak. Such a pair of
runs is made again.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import REPOSITORY, job_environment

import vramline

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
SECONDS = 150
ATTEMPTS = 4

# A line of a framework's C++ log: time and thread are in it, and with the profiler on there are more of them.
LOG = re.compile(r"[IWEF]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] |WARNING: All log messages before absl::")
# Times, and the driver's figures, which other processes change.
MEASURED = re.compile(r"\d+(\.\d+)? (ms|s|MiB)\b")


def run(command, folder):
    environment = job_environment(TF_CPU_ALLOCATOR_USE_BFC="1")
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def told(stderr):
    """What the script itself said on stderr, with what differs from run to run taken out."""
    lines = (line for line in stderr.splitlines() if not line.startswith("vramline: ") and not LOG.match(line))
    return [MEASURED.sub(r"# \2", line) for line in lines]


def test_there_are_twelve():
    assert [path.name[:3] for path in EXAMPLES] == [f"{number:02}_" for number in range(1, 13)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_the_same_alone_and_recorded(example, binary, tmp_path):
    script = [sys.executable, example]
    outputs_alone, outputs_recorded = set(), set()
    for attempt in range(ATTEMPTS):
        recording = tmp_path / f"example-{attempt}.vram"
        recorder = [binary, "run", "--no-report", "-o", recording, "--"]
        folders = [tmp_path / f"{name}-{attempt}" for name in ("alone", "recorded")]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor() as both:
            alone, recorded = both.map(run, [script, recorder + script], folders)

        assert alone.returncode == 0, alone.stderr
        assert alone.stdout
        assert recorded.returncode == alone.returncode, recorded.stderr
        assert told(recorded.stderr) == told(alone.stderr)
        # Neither run leaves anything where it ran; the second did record.
        assert [list(folder.iterdir()) for folder in folders] == [[], []]
        assert (recording / "run.json").is_file()
        outputs_alone.add(alone.stdout)
        outputs_recorded.add(recorded.stdout)
        if outputs_alone & outputs_recorded:
            break
    assert outputs_alone & outputs_recorded, recorded.stdout
    check_ledgers(recording)


def check_ledgers(recording):
    """At every mark the ledger adds up, and what is known of the machine and the pool is in it. No example grows."""
    run = vramline.load(recording)
    assert [finding for finding in run.report["findings"] if finding["rule"] in ("leak", "staircase", "growing-inputs")] == []
    if not run.marks.rows:
        return
    pools = 0
    for ledger in run.ledgers(*run.marks.time_ns):
        assert ledger.adds_up, ledger
        assert ledger["device total"] > 0
        assert {line.source for line in ledger} <= {"host", "framework", "trace", "replay", "derived", "estimated"}
        pools += any(line.line == "pool" and line.bytes for line in ledger)
    # The examples that profile themselves take the profiler away from us: then nobody tells what the pool took.
    assert pools or any("profiler" in label for label in run.marks.label if label), run.marks.label


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_knows_nothing_of_the_tool(example):
    assert "vramline" not in example.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("page", ["docs/how-to/recipes.md", "examples/README.md"])
def test_every_example_is_on_the_page(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if path.name not in text] == []


def test_links_to_recipes_lead_somewhere():
    """The anchor of a heading is its text in small letters, without punctuation, with dashes for spaces."""
    recipes = (REPOSITORY / "docs/how-to/recipes.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", recipes, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = re.findall(r"recipes\.md#([\w-]+)", (REPOSITORY / "examples/README.md").read_text(encoding="utf-8"))
    assert len(links) == len(EXAMPLES)
    assert set(links) <= anchors
