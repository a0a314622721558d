"""Small scripts in `jobs/`, each run once in a process of its own as a user would run it, and what they left behind.

A job writes down what it counted itself; the tests compare that with the recording. Jobs take seconds, so one serves many tests: a test
names its jobs by a mark, and those of all chosen tests of its file are started when the first is needed, a few at a time.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
from conftest import assert_adds_up, job_environment

import vramline as package

JOBS = Path(__file__).parent / "jobs"
SECONDS = 200
AT_ONCE = 2
POOL = "bfc_cpu_allocator_for_gpu"
# TensorFlow 2.15 with Keras 2, as in `make older`.
IS_OLDER = importlib.metadata.version("keras").startswith("2.")
DEVICE = "CPU:0"
MIB = 1 << 20
GIB = 1 << 30

# A line of a framework's C++ log: time and thread are in it, and with the profiler on there are more of them.
LOG = re.compile(r"[IWEF]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] |WARNING: All log messages before absl::")


@dataclass(frozen=True)
class Job:
    """How a job is run. `FACTS` and `FOLDER` stand for a file and a folder of its own."""

    command: list
    options: list = field(default_factory=list)
    is_recorded: bool = True
    paths: tuple = ()
    lean: bool = True
    environment: dict = field(default_factory=dict)


class Ended:
    """A job that has ended."""

    def __init__(self, binary, folder, done):
        self._binary = binary
        self.folder = folder
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.recording = folder / "job.vram"

    @cached_property
    def facts(self):
        """What the job wrote down."""
        assert self.code == 0, self.err
        return json.loads((self.folder / "facts.json").read_text(encoding="utf-8"))

    @cached_property
    def report(self):
        return self.report_on(self.recording)

    def report_on(self, path):
        command = [self._binary, "report", path, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert_adds_up(document)
        # None of these programs grows.
        assert [finding for finding in document["findings"] if finding["rule"] in ("leak", "staircase", "growing-inputs")] == []
        return document

    @cached_property
    def pool(self):
        (pool,) = self.report["pools"]
        return pool

    @cached_property
    def marks(self):
        """Every mark of the recording as a dict, in order."""
        return rows(package.load(self.recording).marks)

    def labels(self, kind):
        return [mark["label"] for mark in self.marks if mark["kind"] == kind]

    def files(self, pattern):
        return sorted(path.relative_to(self.recording).as_posix() for path in self.recording.glob(pattern))

    def said(self):
        """What the job said on standard error, without the log of TensorFlow and without us."""
        lines = self.err.splitlines()
        return [line for line in lines if not LOG.match(line) and not line.startswith("vramline: ")]


def rows(columns):
    """Columns as dicts; None where a value is not known."""
    import numpy

    lists = {
        name: column if isinstance(column, list) else numpy.ma.asarray(column).tolist() for name, column in columns.items()
    }
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def python(*words, **options):
    return Job([sys.executable, *words], **options)


def script(name, *words, **options):
    return python(JOBS / f"{name}.py", *words, **options)


OWN_SITE = (JOBS / "own_site",)
SQUARE = "import tensorflow as tf; f = tf.function(lambda x: x @ x); [f(tf.ones((64, 64))) for _ in range(3)]"
MODELS = ["cnn_adam", "mlp_momentum", "transformer_adamw", "batchnorm_rmsprop", "mlp_mixed", "lstm_adam", "tape_adam"]

# The longest first: the others run beside it.
ALL = {
    "situations": script("situations", "FACTS", options=["--trace", "all"]),
    "situations, tf_keras": script("situations", "FACTS", "tf_keras"),
    "out of memory": script("exhausts", options=["--limit", "40MiB"]),
    "out of memory, alone": script("exhausts", is_recorded=False, environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "40"}),
    "children": script("children", "FACTS"),
    "behaviour": script("behaviour", "a", "b c", paths=OWN_SITE),
    "behaviour, alone": script("behaviour", "a", "b c", paths=OWN_SITE, is_recorded=False),
    "fails": script("fails", "callback"),
    "fails, alone": script("fails", "callback", is_recorded=False),
    "fails in a function": script("fails", "function"),
    "fails in a function, alone": script("fails", "function", is_recorded=False),
    "profiles by hand": script("profiles", "hand", "FOLDER"),
    "profiles by TensorBoard": script("profiles", "board", "FOLDER"),
    "own peaks": script("peaks", "FACTS", "--reset", options=["--trace", "all"]),
    "step peaks": script("peaks", "FACTS", options=["--step-peaks", "--trace", "off", "--rate", "0"]),
    "two steps traced": script("peaks", "FACTS", options=["--trace", "steps=2"]),
    "-c": python("-c", SQUARE),
    "-m": python("-m", "accumulates", paths=(JOBS,)),
    "-I": python("-I", "-c", "print('done')"),
    "-E": python("-E", "-c", "print('done')"),
    "-S": python("-S", "-c", "print('done')"),
    "callback": script("callback", "FACTS", "FOLDER", options=["--trace", "all"]),
    "api": script("api", "FACTS", "FOLDER", is_recorded=False, environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "2000"}),
    "jax": script("jax_backend", "FACTS", lean=False),
    **{f"model {name}": script("model", name, "FACTS") for name in MODELS},
}


def run(binary, folder, job):
    places = {"FACTS": folder / "facts.json", "FOLDER": folder / "work"}
    places["FOLDER"].mkdir()
    command = [places.get(word, word) for word in job.command]
    environment = job_environment(*job.paths, lean=job.lean, **job.environment)
    if job.is_recorded:
        command = [binary, "run", "--no-report", "-o", folder / "job.vram", *job.options, "--", *command]
    else:
        environment["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    return Ended(binary, folder, done)


@contextmanager
def started(names, binary, folder):
    """Jobs by name, started or waiting to be."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {}
        for number, (name, job) in enumerate(ALL.items()):
            if name in names:
                (place := folder / str(number)).mkdir()
                jobs[name] = pool.submit(run, binary, place, job)
        yield jobs
        pool.shutdown(cancel_futures=True)


def uses(*names):
    return pytest.mark.job(*names)


def within(marks, section):
    return [mark for mark in marks if section["begin_ns"] <= mark["time_ns"] <= section["end_ns"]]
