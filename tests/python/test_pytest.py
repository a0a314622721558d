"""The pytest plugin, under real TensorFlow: figures, limits, baselines, xdist; and that it is nothing where nobody uses it."""

import json
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import REPOSITORY, job_environment

MIB = 1 << 20
# Figures are TensorFlow's own, which each test prints.
TESTS = """
import json
import pytest
import tensorflow as tf

def told(name):
    print(name, json.dumps(tf.config.experimental.get_memory_info("CPU:0")))

@pytest.fixture(scope="module")
def shared():
    return tf.ones((1024, 1024))

@pytest.fixture
def own():
    return tf.ones((2048, 1024))

def test_small(shared):
    shared + 1
    told("small")

@pytest.mark.vram_limit("1GiB")
def test_within(shared, own):
    shared + 1
    told("within")

@pytest.mark.vram_limit("18MiB")
def test_over(shared, own):
    more = tf.concat([shared, own], 0)
    told("over")

def test_fixture(vram, shared):
    before = vram.current
    with vram.watch("block") as block:
        x = shared + 1
    assert block.change("current") == vram.current - before >= 4 << 20
    assert vram.peak == tf.config.experimental.get_memory_info("CPU:0")["peak"]
    told("fixture")

def test_computed(vram, shared):
    vram.limit(vram.current + (6 << 20))
    shared + 1
    x = tf.concat([shared, shared], 0)

def test_fails_itself(shared):
    assert shared is None
"""
GROWS = TESTS.replace("shared + 1\n    told(\"small\")", "x = tf.concat([shared] * 4, 0)\n    told(\"small\")")


class Ran:
    """What a run of pytest printed, and how it ended."""

    def __init__(self, folder, *options, text=TESTS, binary=None, timeout=400, cache=False):
        (folder / "test_job.py").write_text(text, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        environment = job_environment(TF_CPU_ALLOCATOR_USE_BFC="1", **({"VRAMLINE_BIN": str(binary)} if binary else {}))
        environment.pop("PYTEST_XDIST_WORKER", None)
        without = [] if cache else ["-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "-rA", *without, *plugin(), *options]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
        self.code, self.text = done.returncode, done.stdout + done.stderr

    def row(self, test):
        """The figures of a test in the table."""
        (line,) = (line for line in self.text.splitlines() if re.match(rf"  \S+::{test} ", line))
        return line.split()

    def framework(self, name):
        return json.loads(re.search(rf"^{name} (\{{.*\}})$", self.text, re.MULTILINE)[1])


def plugin():
    """Where the package is on the path only, its plugin is given by name."""
    from importlib.metadata import entry_points

    is_installed = any(point.value == "vramline_pytest" for point in entry_points(group="pytest11"))
    return [] if is_installed else ["-p", "vramline_pytest"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory, binary):
    folder = tmp_path_factory.mktemp("measured")
    return folder, Ran(folder, "--vram", "--vram-baseline", "vram.json", "--vram-update", binary=binary)


def size(text, unit):
    return round(float(text) * {"B": 1, "KiB": 1 << 10, "MiB": MIB}[unit])


def test_the_table_has_the_peaks_of_tensorflow(measured):
    folder, ran = measured
    baselines = json.loads((folder / "vram.json").read_text(encoding="utf-8"))["tests"]
    for name in ("small", "within"):
        peak = ran.framework(name)["peak"]
        told = baselines[f"test_job.py::test_{name}"]["CPU:0"]
        assert told["peak_bytes"] == peak
        shown = ran.row(f"test_{name}")
        assert shown[1:3] == ["CPU:0", "TensorFlow"] and abs(size(*shown[3:5]) - peak) <= peak / 100
    # The fixture of the test is no part of its own peak.
    assert 4 * MIB <= baselines["test_job.py::test_within"]["CPU:0"]["own_bytes"] < 8 * MIB
    # A test that failed has no baseline.
    assert "test_job.py::test_over" not in baselines and "test_job.py::test_fails_itself" not in baselines


def test_a_limit_that_is_exceeded_shows_who_held_the_memory(measured):
    _, ran = measured
    assert ran.code == 1 and "3 failed, 3 passed" in ran.text.splitlines()[-1]
    message = ran.text.partition("_ test_over _")[2].partition("_ test_")[0]
    peak = ran.framework("over")["peak"]
    assert f"({peak:,} bytes) on CPU:0" in message and "more than the limit of 18MiB" in message
    for part in ("before the test", "its fixtures", "the test function"):
        assert part in message
    assert re.search(r"fixture own +EagerTensor float32\[2048,1024\] +8 MiB", message)
    assert re.search(r"fixture shared +EagerTensor float32\[1024,1024\] +4 MiB", message)
    # The second run, traced: what was concatenated is in it, and nothing of other tests.
    assert "What held the peak, from a second run in a process of its own:" in message
    assert re.search(r"12\.0 MiB .*Concat", message), message


def test_limits_may_be_computed(measured):
    _, ran = measured
    message = ran.text.partition("_ test_computed _")[2].partition("_ test_")[0]
    assert "more than the limit of" in message


def test_a_failure_of_the_test_itself_stays(measured):
    _, ran = measured
    message = ran.text.partition("_ test_fails_itself _")[2].partition("=====")[0]
    assert "assert shared is None" in message and "limit" not in message


# What the test needs depends on an option of its own, which it says together with its process.
OPTION = """
import logging
import os
import pytest
import tensorflow as tf

@pytest.mark.vram_limit("1MiB")
def test_rows(request, tmp_path):
    (tmp_path / "process").write_text(str(os.getpid()))
    logging.getLogger().warning(f"process {os.getpid()}")
    x = tf.ones((request.config.getoption("--rows"), 1024, 256)) + 1

def test_other_rows():
    raise AssertionError("not selected by --lf")
"""
CONFTEST = "def pytest_addoption(parser): parser.addoption('--rows', type=int, default=1)"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_the_second_run_has_the_options_of_the_first(tmp_path, binary, workers):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_rows.py").write_text(OPTION, encoding="utf-8")
    failed = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    failed.parent.mkdir(parents=True)
    failed.write_text('{"tests/test_rows.py::test_rows": true}', encoding="utf-8")
    given = ["--basetemp", "own", "--log-file", "own.log", "--rows", "3", "--lf", "-k", "rows", "--", "tests"]
    ran = Ran(tmp_path, *workers, *given, text="", cache=True)
    assert ran.code == 1 and "1 failed" in ran.text.splitlines()[-1], ran.text
    shown = ran.text.partition("What held the peak, from a second run in a process of its own:")[2]
    assert "Fill  float32[3," in shown, ran.text
    # What the first run writes is its own.
    (process,) = {path.read_text(encoding="utf-8") for path in (tmp_path / "own").rglob("process")}
    assert f"process {process}" in ran.text
    if not workers:
        assert f"process {process}" in (tmp_path / "own.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def workers(measured):
    folder, _ = measured
    options = ["-n", "2", "--vram", "--vram-baseline", "vram.json", "--vram-explain", "off", "-k", "small or within or fixture"]
    return folder, Ran(folder, *options, text=GROWS)


def test_workers_report_to_the_table(workers):
    _, ran = workers
    rows = {name: ran.row(f"test_{name}") for name in ("small", "within", "fixture")}
    assert {row[-1] for row in rows.values()} <= {"gw0", "gw1"}
    peak = ran.framework("within")["peak"]
    assert abs(size(*rows["within"][3:5]) - peak) <= peak / 100


def test_a_peak_that_grew_fails_and_the_others_pass(workers):
    _, ran = workers
    assert ran.code == 1 and "1 failed, 2 passed" in ran.text.splitlines()[-1]
    assert re.search(r"The test's own peak on CPU:0 grew from \S+ MiB to \S+ MiB \(\+[\d,]+ bytes\) \(\+\d+\.\d%\); --vram-tolerance allows 2%", ran.text)
    assert "--vram-update" in ran.text and "To see what held the peak: vramline run --trace all" in ran.text


def small(folder, *options, text, code=0):
    (folder / "test_it.py").write_text(textwrap.dedent(text), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = job_environment()
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_unused_it_imports_nothing(tmp_path):
    text = """
        import sys
        def test_it():
            assert "vramline_pytest" in sys.modules
            assert not [name for name in sys.modules if name == "vramline" or name.startswith("vramline.")]
    """
    assert "1 passed" in small(tmp_path, *plugin(), "-W", "error", text=text)


def test_it_can_be_switched_off(tmp_path):
    assert "1 passed" in small(tmp_path, "-p", "no:vramline", "-W", "error", text="def test_it(): pass")


def test_no_framework_is_a_warning_that_can_be_an_error(tmp_path):
    text = """
        import pytest
        @pytest.mark.vram_limit("1GiB")
        def test_it(vram):
            assert (vram.current, vram.peak, vram.peaks) == (None, None, [])
    """
    told = small(tmp_path, *plugin(), "--vram", text=text)
    assert "vram_limit('1GiB') was not checked: the test used no device" in told and "No test used a device" in told
    told = small(tmp_path, *plugin(), "-W", "error::vramline.testing.VramNotMeasured", text=text, code=1)
    assert "VramNotMeasured" in told


def test_jax_says_that_it_cannot_reset(tmp_path):
    text = """
        import pytest
        import vramline.frameworks.jax as adapter
        from vramline.frameworks.adapter import Counters, Limit
        from vramline.frameworks import counters
        # Real JAX counts on GPUs only: its adapter, with the figures of one.
        figures = {"now": Counters("GPU:0", 100, 900, None, 1000, 2000)}

        class Adapter:
            NAME = "jax"
            is_used = staticmethod(lambda: True)
            devices = staticmethod(lambda: ["GPU:0"])
            read = staticmethod(lambda device: figures["now"])
            ordinal = staticmethod(lambda device: 0)
            limit = staticmethod(lambda device: Limit(why="none"))
            reset = staticmethod(adapter.reset)
        counters.adapters = lambda: [Adapter]

        @pytest.mark.vram_limit(950)
        def test_below():
            pass

        @pytest.mark.vram_limit(500)
        def test_unknown():
            pass

        @pytest.mark.vram_limit(950)
        def test_risen():
            figures["now"] = Counters("GPU:0", 100, 1000, None, 1000, 2000)
    """
    told = small(tmp_path, *plugin(), "--vram", "--vram-explain", "off", text=text, code=1)
    assert "1 failed, 2 passed" in told
    assert "at most 900 bytes, the peak before the block, which was not reset: JAX cannot reset its peak" in told
    assert re.search(r"test_below +GPU:0 JAX +at most 900 B", told) and re.search(r"test_risen +GPU:0 JAX +1000 B", told)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vram-update"], "--vram-update needs --vram-baseline FILE"),
        (["--vram-baseline", "none.json"], "none.json does not exist; write it with --vram-update"),
        (["--vram-baseline", "test_it.py"], "is not a file of baselines"),
        (["--vram-baseline", "wrong.json"], "expected whole numbers of bytes"),
        (["--vram", "--vram-tolerance", "lots"], "--vram-tolerance: expected a share such as 2% or a size such as 64MiB, found 'lots'"),
    ],
)
def test_wrong_options_say_what_is_right(tmp_path, options, said):
    wrong = {"kind": "vramline-pytest-baseline", "tests": {"test_it.py::test_it": {"GPU:0": {"peak_bytes": 1, "own_bytes": "1"}}}}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong), encoding="utf-8")
    assert said in small(tmp_path, *plugin(), *options, text="def test_it(): pass", code=4)


def test_wrong_sizes_say_what_is_right(tmp_path):
    text = "import pytest\n@pytest.mark.vram_limit('much')\ndef test_it(): pass"
    told = small(tmp_path, *plugin(), text=text, code=4)
    assert "vram_limit: expected bytes or a size such as '2GiB', found 'much'" in told


def test_the_plugin_is_named_in_the_package():
    assert '[project.entry-points.pytest11]\nvramline = "vramline_pytest"\n' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
