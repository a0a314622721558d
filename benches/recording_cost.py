"""What a recording costs a training job: a step, the traced steps, and the start of a process.

    python benches/recording_cost.py [--write docs/proof/cost.md]

Needs the package installed and TensorFlow; on a machine without a GPU its pool allocator on the CPU stands in. Rules: the two sides
of each comparison alternate in blocks, so that a busy machine disturbs both; figures are medians with the range between the
quartiles. Nothing is asserted.
"""

import argparse
import datetime
import importlib.metadata as metadata
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

BINARY = os.environ.get("VRAMLINE_BIN", "vramline")
BLOCKS = 40

# One process: steps of about 5 ms, in blocks with and without the recorder, in turns.
STEPS = """
import json, statistics, sys, tempfile, time
import tensorflow as tf
import vramline

x = tf.random.normal((700, 700))
BLOCK, BLOCKS = 20, int(sys.argv[1])

def work():
    # Busy for a fixed time: what a step does is not what is measured.
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end:
        pass

def bare(count):
    begin = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begin) / count

def recorded(rec, count):
    begin = time.perf_counter()
    for step in range(count):
        with rec.step(step):
            work()
    return (time.perf_counter() - begin) / count

def empty(rec, count):
    begin = time.perf_counter()
    for step in range(count):
        with rec.step(step):
            pass
    return (time.perf_counter() - begin) / count

resets = sys.argv[2] == "resets"
with tempfile.TemporaryDirectory() as folder, vramline.record(folder + "/x.vram", step_peaks=resets) as rec:
    tf.matmul(x, x)
    recorded(rec, 20), bare(20)
    pairs = [(bare(BLOCK), recorded(rec, BLOCK)) for _ in range(BLOCKS)]
    alone = [empty(rec, 500) for _ in range(BLOCKS)]
print(json.dumps({"differences": [b - a for a, b in pairs], "bare": [a for a, _ in pairs], "alone": alone}))
"""

# One process: a small Keras model; prints the time of each step after the first.
FIT = """
import json, time
import keras, numpy as np

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = np.random.rand(6400, 256).astype("float32"), np.random.randint(0, 10, 6400)
times = []

class Clock(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.begin = time.perf_counter()
    def on_train_batch_end(self, batch, logs=None):
        times.append(time.perf_counter() - self.begin)

model.fit(x, y, batch_size=64, epochs=1, verbose=0, callbacks=[Clock()])
print(json.dumps(times[10:]))
"""


# The same model in one process under `run`: epochs with and without the hooks on Keras' callbacks, in turns.
HOOKS = """
import json, sys, time
import keras, numpy as np

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = np.random.rand(1600, 256).astype("float32"), np.random.randint(0, 10, 1600)
lists = keras.callbacks.CallbackList
heard = {name: lists.__dict__[name] for name in ("on_train_batch_begin", "on_train_batch_end")}

def fit(is_heard):
    for name, method in heard.items():
        setattr(lists, name, method if is_heard else method.__wrapped__)
    begin = time.perf_counter()
    model.fit(x, y, batch_size=64, epochs=1, verbose=0)
    return (time.perf_counter() - begin) / 25

fit(True), fit(False)
print(json.dumps([(fit(False), fit(True)) for _ in range(int(sys.argv[1]))]))
"""


def spread(values, scale, unit):
    """The median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * scale:.1f} {unit} ({low * scale:.1f} to {high * scale:.1f})"


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout


def step_cost():
    rows = []
    cases = {"keeps": "counters read, a mark on disk, as under `run`", "resets": "the peak reset too, as with `--step-peaks`"}
    for case, what in cases.items():
        told = json.loads(output([sys.executable, "-c", STEPS, str(BLOCKS), case]).splitlines()[-1])
        share = statistics.median(told["differences"]) / statistics.median(told["bare"])
        rows += [
            f"| a recorded step by itself: {what} | {spread(told['alone'], 1e6, 'µs')} | 25 µs |",
            f"| the same around steps of 5 ms, against bare ones in turns | {spread(told['differences'], 1e6, 'µs')}, {share:.2%} | 0.5 % |",
        ]
    return rows


def run(*options):
    with tempfile.TemporaryDirectory() as folder:
        command = [BINARY, "run", "--no-report", "-o", f"{folder}/x.vram", *options, "--", sys.executable, "-c", FIT]
        return json.loads(output(command).splitlines()[-1])


def hook_cost():
    with tempfile.TemporaryDirectory() as folder:
        job = [sys.executable, "-c", HOOKS, str(4 * BLOCKS)]
        command = [BINARY, "run", "--no-report", "--trace", "off", "-o", f"{folder}/x.vram", "--", *job]
        pairs = json.loads(output(command).splitlines()[-1])
    bare = statistics.median(bare for bare, _ in pairs)
    added = [heard - bare for bare, heard in pairs]
    share = statistics.median(added) / bare
    what = f"what `run` adds to a step of a small Keras model ({bare * 1e3:.1f} ms)"
    return [f"| {what}, epochs with and without it in turns | {spread(added, 1e6, 'µs')}, {share:.2%} | 25 µs |"]


def window_cost():
    bare, hooked, traced = [], [], []
    for _ in range(5):
        bare += json.loads(output([sys.executable, "-c", FIT]).splitlines()[-1])
        hooked += run("--trace", "off")
        traced += run("--trace", "steps=1000")

    def ratio(values):
        return statistics.median(values) / statistics.median(bare)

    return [
        f"| a step of a small Keras model, bare | {spread(bare, 1e3, 'ms')} | |",
        f"| under `run --trace off` | {spread(hooked, 1e3, 'ms')}, {ratio(hooked):.3f} times | |",
        f"| under `run` while it is traced | {spread(traced, 1e3, 'ms')}, {ratio(traced):.3f} times | |",
    ]


def start_cost():
    """Whole processes, in turns: wall time, and processor time, which a busy machine disturbs less."""

    def timed(command):
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, code, turns in (("`import tensorflow`", "import tensorflow", 40), ("a Python without a framework", "pass", 25)):
            job = [sys.executable, "-c", code]
            under = [BINARY, "run", "--no-report", "-o", f"{folder}/x.vram", "--", *job]
            timed(job), timed(under)
            pairs = [(timed(job), timed(under)) for _ in range(turns)]
            for which, kind in enumerate(("", ", in processor time")):
                added = [b[which] - a[which] for a, b in pairs]
                base = statistics.median(a[which] for a, _ in pairs)
                rows.append(f"| what `run` adds to {name} ({base:.2f} s){kind} | {spread(added, 1e3, 'ms')} | 50 ms |")
    version = [timed([BINARY, "--version"])[0] for _ in range(50)]
    rows.append(f"| `vramline --version` | {spread(version, 1e3, 'ms')} | 10 ms |")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    lines = [
        f"vramline {metadata.version('vramline')}, TensorFlow {metadata.version('tensorflow-cpu')}, Keras {metadata.version('keras')},"
        f" Python {platform.python_version()}; {os.cpu_count()} cores, {platform.machine()}; {datetime.date.today()}",
        "",
        "| what | median (quartiles) | bar |",
        "|---|---|---|",
        *step_cost(),
        *hook_cost(),
        *window_cost(),
        *start_cost(),
    ]
    print("\n".join(lines))
    if args.write:
        head = (
            "# What a recording costs\n\n`make proof` writes this page with `benches/recording_cost.py`, which describes the method.\n\n"
            "Between steps of 5 ms caches may be cold, so recording a step can cost more there than by itself.\n\n"
        )
        args.write.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
