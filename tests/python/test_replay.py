"""The simulator against TensorFlow itself: every address and size of traces made here, and its dump when memory runs out.

Nothing is tolerated: one address that differs fails the test. `models/families.py` trains one model in a process of its
own; `models/random_tensors.py` makes and drops tensors until the pool is exhausted.
"""

import itertools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xplane_truth
from conftest import job_environment

MODELS = Path(__file__).parent / "models"
POOL = "bfc_cpu_allocator_for_gpu"
MIB = 1 << 20

# Each family with a limit of its own in MiB: growth meets the limit early, late and never.
FAMILIES = {
    "dense": 48,
    "convolutional": 2000,
    "unet": 400,
    "recurrent": 100,
    "attention": 150,
    "ragged": 77,
    "eager": 33,
    "two_models": 300,
}
# Programs by seed, each with its limit in MiB.
PROGRAMS = {1: 40, 2: 64, 3: 17, 4: 101}
# The prefixes of a log line: TensorFlow's own and absl's.
PREFIX = re.compile(r"^(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF] \S+\] |[IWEF]\d{4} [\d:.]+\s+\d+ \S+\] )")


def environment(limit):
    return job_environment(
        TF_CPP_MIN_LOG_LEVEL="0", TF_CPU_ALLOCATOR_USE_BFC="1", TF_CPU_BFC_MEM_LIMIT_IN_MB=str(limit)
    )


def python(limit, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment(limit), capture_output=True, text=True, timeout=300, check=False
    )


def trace_of(logdir):
    (trace,) = logdir.glob("plugins/profile/*/*.xplane.pb")
    return trace


@pytest.fixture(scope="session")
def replayed(binary):
    """A function: `vramline replay PATH --json [ARGUMENTS]`, parsed, with what must hold in any."""

    def replay(path, *arguments, code=0):
        command = [binary, "replay", path, "--json", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        document = json.loads(done.stdout)
        for pool in document["pools"]:
            assert pool["load_requested_bytes"] <= pool["load_rounded_bytes"] <= pool["packing_bound_bytes"]
            assert pool["peak_bytes"] <= pool["pool_bytes"]
            assert max(point["in_use_bytes"] for point in pool["curve"]) == pool["peak_bytes"]
            peak = pool["at_peak"]
            assert peak["requested_bytes"] + peak["slack_bytes"] == peak["in_use_bytes"] == pool["peak_bytes"]
        return document

    return replay


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Every family, trained: name to log directory. Two at a time."""
    logdirs = {name: tmp_path_factory.mktemp(name) for name in FAMILIES}

    def train(name):
        steps = 12 if name == "ragged" else 4
        return python(FAMILIES[name], MODELS / "families.py", name, logdirs[name], "--steps", steps)

    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(FAMILIES, pool.map(train, FAMILIES)):
            assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
    return logdirs


@pytest.mark.parametrize("name", FAMILIES)
def test_every_address(trained, replayed, name):
    document = replayed(trace_of(trained[name]), "--pool", POOL, "--gate", "exact")
    (pool,) = document["pools"]
    assert pool["exact"], pool["first_mismatch"]
    assert pool["allocs"] > 300
    assert pool["address_matches"] == pool["size_matches"] == pool["allocs"]
    assert pool["limit_bytes"] == FAMILIES[name] * MIB
    assert sum(growth["got_bytes"] for growth in pool["growths"]) == pool["pool_bytes"] <= pool["limit_bytes"]
    assert pool["model"] == "bfc-classic"


def test_shape_churn_is_named(trained, replayed):
    """Lengths that change each time are what made the ragged model's pool grow."""
    (pool,) = replayed(trace_of(trained["ragged"]), "--pool", POOL)["pools"]
    assert "shape-churn" in {cause["cause"] for cause in pool["causes"]}


def test_the_peak_is_tensorflows_own(trained, replayed, vramline):
    for name in ("attention", "two_models"):
        (pool,) = replayed(trace_of(trained[name]), "--pool", POOL)["pools"]
        (reported,) = vramline(trace_of(trained[name]), "--pool", POOL)["pools"]
        assert pool["peak_bytes"] == reported["peak_bytes"] == reported["lifetime_peak_bytes"]


class Exhausted:
    """A program that ran out of memory: its trace, what it asked for, and what TensorFlow said."""

    def __init__(self, trace, facts, stderr):
        self.trace = trace
        self.facts = facts
        lines = [PREFIX.sub("", line) for line in stderr.splitlines()]
        begins = next(i for i, line in enumerate(lines) if "ran out of memory trying to allocate" in line)
        ends = next(i for i in range(begins, len(lines)) if re.fullmatch(r"[*x_]{100}", lines[i]))
        self.dump = lines[begins : ends + 1]
        self.op = re.search(r"requested by op (.*)$", self.dump[0])[1]


@pytest.fixture(scope="session")
def exhausted(tmp_path_factory):
    """Every program, run until memory is exhausted. They mostly wait, so all at once."""
    folders = {seed: tmp_path_factory.mktemp(f"program{seed}") for seed in PROGRAMS}

    def run(seed):
        facts = folders[seed] / "facts.json"
        done = python(PROGRAMS[seed], MODELS / "random_tensors.py", seed, folders[seed] / "log", facts)
        assert done.returncode == 0, done.stderr[-3000:]
        facts = json.loads(facts.read_text(encoding="utf-8"))
        return Exhausted(trace_of(folders[seed] / "log"), facts, done.stderr)

    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        return dict(zip(PROGRAMS, pool.map(run, PROGRAMS)))


@pytest.mark.parametrize("seed", PROGRAMS)
def test_random_programs_until_memory_is_exhausted(exhausted, replayed, seed):
    run = exhausted[seed]
    (pool,) = replayed(run.trace, "--pool", POOL, "--gate", "exact")["pools"]
    assert pool["exact"], pool["first_mismatch"]
    assert pool["allocs"] > run.facts["made"]
    # The failed request waits ten seconds, and nothing else happens meanwhile.
    before = last_before_the_wait(run.trace)
    arguments = ["--pool", POOL, "--ask", run.facts["asked"], "--at", f"{before}ns", "--op", run.op]
    asked = replayed(run.trace, *arguments)["asked"]
    assert asked["after_ns"] == before
    assert not asked["fits"], "TensorFlow failed at this request, the simulator did not"
    assert asked["dump"] == run.dump
    # One granule less than the largest hole, which the dump shows, has room.
    largest = max((int(size) for size in re.findall(r"Free  at \w+ of size (\d+)", "\n".join(run.dump))), default=0)
    if largest:
        assert replayed(run.trace, *arguments[:2], "--ask", largest, *arguments[4:])["asked"]["fits"]


def last_before_the_wait(trace):
    """The time of the last memory event before the longest pause, read with TensorFlow's own schema."""
    events = xplane_truth.read(trace)[POOL].events
    times = sorted(event.time_ps // 1000 for event in events)
    pause, before = max((later - earlier, earlier) for earlier, later in itertools.pairwise(times))
    assert pause > 9e9
    return before


def test_what_if_tells_what_happens(trained, replayed, tmp_path):
    """Well above the smallest limit that fits training passes, and with less than is ever asked for at once it does not."""
    name = "convolutional"
    document = replayed(trace_of(trained[name]), "--pool", POOL, "--find", "limit")
    (pool,) = document["pools"]
    edge = document["what_if"][0]["limit_bytes"]
    limits = [int(edge * 1.4) // MIB, int(pool["load_rounded_bytes"] * 0.6) // MIB]
    settings = [word for limit in limits for word in ("--what-if", f"limit={limit}MiB")]
    predicted = [row["fits"] for row in replayed(trace_of(trained[name]), "--pool", POOL, *settings)["what_if"]]
    assert predicted == [True, False]
    with ThreadPoolExecutor(2) as threads:
        ran = list(threads.map(lambda limit: python(limit, MODELS / "families.py", name, "-", "--no-trace"), limits))
    fits, fails = ran
    assert fits.returncode == 0, fits.stderr[-1000:]
    # oneDNN's convolution may crash once it was refused memory, before the exception reaches Python: the refusal is what counts.
    assert fails.returncode != 0 and "OOM when allocating" in fails.stderr, fails.stderr[-1000:]
