"""`vramline run` traces PyTorch: a stand-in hands out snapshots that a real one took on an H200, since there is no GPU here."""

import json
import subprocess
import sys
import textwrap

import pytest
from conftest import REPOSITORY, job_environment
from test_crash import TORCH

FIXTURES = REPOSITORY / "fixtures"

# As much of PyTorch as the trace touches. CUDA is initialised when the program says so, and what waits for that is done then.
STAND_IN = {
    **TORCH,
    "__init__.py": "from torch import _C, cuda, optim\n__version__ = '2.11.0'\n",
    "cuda/__init__.py": """
        from torch.cuda import memory
        is_up, waiting = False, []
        is_initialized = lambda: is_up
        device_count = lambda: 1
        reset_peak_memory_stats = lambda number: None
        def _lazy_call(call, **_):
            call() if is_up else waiting.append(call)
        def init():
            global is_up
            for call in waiting:
                call()
            is_up = True
    """,
    "cuda/memory.py": """
        import gzip, os, pickle
        calls = []
        def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=0):
            calls.append(enabled)
        def _snapshot():
            calls.append("snapshot")
            with gzip.open(os.environ["SNAPSHOT"]) as file:
                return pickle.load(file)
    """,
}
del STAND_IN["cuda.py"]


@pytest.fixture
def recorded(binary, tmp_path):
    """A function: runs a script with the stand-in under `vramline run`, and gives what it printed."""
    for name, text in STAND_IN.items():
        path = tmp_path / "stand_in" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def run(script, snapshot, folder, *options):
        source = FIXTURES / "plan" / f"{snapshot}.pickle.gz"
        assert source.exists()
        environment = job_environment(tmp_path / "stand_in", SNAPSHOT=str(source))
        command = [binary, "run", "--no-report", "-o", str(tmp_path / folder), *options, "--", sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


# Printed when all is over: the trace is written beside the training.
TRAINS = """
    import atexit
    atexit.register(lambda: print(torch.cuda.memory.calls))
    import torch
    torch.cuda.init()
    for _ in range(9):
        torch.optim.step()
"""


def report(binary, path):
    done = subprocess.run([binary, "report", path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def snapshots(case="gpt-adam"):
    truths = [json.loads(line) for line in (FIXTURES / "plan/truths.jsonl").read_text().splitlines()]
    return {row["batch"]: row for row in truths if row["kind"] == "snapshot" and row["case"] == case}


def test_the_full_history_is_on_for_the_window_only(binary, recorded, tmp_path):
    printed = recorded(TRAINS, "gpt-adam-4", "job.vram", "--trace", "steps=3")
    assert printed.strip() == "['all', 'snapshot', None, 'state']"
    (file,) = (tmp_path / "job.vram").glob("trace-*/*.snapshot.pickle")
    assert not list(file.parent.glob("*.part"))
    document = report(binary, tmp_path / "job.vram")
    (pool,) = [pool for pool in document["pools"] if pool["from_start"]]
    assert pool["peak_bytes"] == snapshots()[4]["allocated_bytes"]
    assert document["source"]["framework"] == "pytorch"


OWN = "torch.cuda.memory._record_memory_history(enabled='state')"


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        (TRAINS.replace("    for", f"    {OWN}\n    for"), ["all", "snapshot", None, "state"]),
        # Before CUDA is there, where everybody puts it: ours does not begin.
        (TRAINS.replace("    torch.cuda.init()", f"    {OWN}\n    torch.cuda.init()"), ["state"]),
        # In another thread: ours is not switched off after theirs is on.
        (TRAINS.replace("    for", f"    import threading\n    own = threading.Thread(target=lambda: {OWN})\n    own.start(); own.join()\n    for"), None),
    ],
)  # fmt: skip
def test_a_program_with_a_history_of_its_own_gets_it(recorded, tmp_path, script, calls):
    printed = recorded(script, "gpt-adam-4", "job.vram", "--trace", "steps=3").strip()
    assert printed == str(calls) if calls else printed.endswith("'state']")


def test_a_program_that_only_infers_ends_the_window_too(recorded, tmp_path):
    """Time ends the window, in a thread of its own."""
    script = TRAINS.replace("    for _ in range(9):\n        torch.optim.step()\n", "    import time\n    time.sleep(8)\n")
    assert "sleep" in script
    printed = recorded(script, "gpt-adam-4", "job.vram", "--trace-seconds", "1")
    assert printed.strip() == "['all', 'snapshot', None, 'state']"
    assert list((tmp_path / "job.vram").glob("trace-*/*.snapshot.pickle"))


def test_a_snapshot_that_fails_costs_the_trace_only(recorded, tmp_path):
    script = TRAINS.replace("    torch.cuda.init()", "    def none(): raise RuntimeError('no')\n    torch.cuda.memory._snapshot = none\n    torch.cuda.init()")
    printed = recorded(script, "gpt-adam-4", "job.vram", "--trace", "steps=3")
    assert printed.strip() == "['all', None, 'state']"
    assert not list((tmp_path / "job.vram").glob("trace-*/*"))


@pytest.mark.parametrize("script", [TRAINS.replace("    torch.cuda.init()\n", ""), TRAINS])
def test_without_a_gpu_or_a_wish_there_is_none(recorded, tmp_path, script):
    options = ("--trace", "off") if "init" in script else ()
    assert recorded(script, "gpt-adam-4", "job.vram", *options).strip() == "[]"
    assert not list((tmp_path / "job.vram").glob("trace-*/*"))


def test_recordings_are_probes(binary, recorded, tmp_path):
    """What a plan says from recordings is what it says from the snapshots in them."""
    batches = (2, 4, 8)
    for batch in batches:
        recorded(TRAINS, f"gpt-adam-{batch}", f"{batch}.vram", "--trace", "steps=3", "--stop")
    told = []
    for path in (lambda batch: tmp_path / f"{batch}.vram", lambda batch: FIXTURES / "plan" / f"gpt-adam-{batch}.pickle.gz"):
        probes = [word for batch in batches for word in ("--probe", f"{batch}={path(batch)}")]
        done = subprocess.run([binary, "plan", *probes, "--batch", "64", "--json"], capture_output=True, text=True, check=True)
        (prediction,) = json.loads(done.stdout)["predictions"]
        told.append({name: value for name, value in prediction.items() if name.endswith("_bytes")})
    assert told[0] == told[1]
    truths = [json.loads(line) for line in (FIXTURES / "plan/truths.jsonl").read_text().splitlines()]
    (real,) = [row for row in truths if (row["kind"], row["case"], row["batch"]) == ("free", "gpt-adam", 64)]
    assert abs(told[0]["peak_bytes"] / real["allocated_bytes"] - 1) < 0.01
