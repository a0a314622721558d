"""Jobs that are killed at random moments, and what must be left of them. For `test_crash.py` and `benches/kill_nine.py`."""

import json
import os
import signal
import subprocess
import sys
import time

# A safety net, not a measure: nothing here takes that long.
SECONDS = 120

# A loop of any framework: each step is announced when it has been recorded.
FAST = """
import itertools, sys, vramline
with vramline.record(sys.argv[1], rate=200.0) as rec:
    for number in itertools.count():
        with rec.step(number):
            rec.mark("within")
        print("step", number, flush=True)
"""

# Keras tells its callbacks of a batch when it is over. The second argument is the number of batches.
FIT = """
import os, sys
import keras, numpy as np, tensorflow as tf
print("pid", os.getpid(), flush=True)
class Announce(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("step", batch, flush=True)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
data = tf.data.Dataset.from_tensors((np.ones((8, 16), "float32"), np.ones((8, 1), "float32"))).repeat()
model.fit(data, steps_per_epoch=int(sys.argv[1]), epochs=1, verbose=0, callbacks=[Announce()])
print("done", flush=True)
"""


class Killed:
    """What a killed job announced, and where its recording is."""

    def __init__(self, announced, recording):
        self.announced = announced
        self.recording = recording
        self.torn = 0


def start(command, **options):
    """Starts a job. Its output is not read ahead: what follows a line is there for `end`."""
    return subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def line(job):
    """The next line of a job; empty at its end."""
    return job.stdout.readline().decode()


def end(job):
    """What a job has still to say on both streams, when everybody who could say something has ended."""
    output, errors = job.communicate(timeout=SECONDS)
    return output.decode(), errors.decode()


def announced_in(output):
    """The last step that a job announced in a whole line; -1 for none."""
    lines = output[: output.rfind("\n") + 1].splitlines()
    return max((int(line.split()[1]) for line in lines if line.startswith("step ")), default=-1)


def kill_fast(folder, chance):
    """Runs the fast job and kills it, at times while it starts."""
    recording = folder / "fast.vram"
    job = start([sys.executable, "-c", FAST, recording])
    begun = ""
    if chance.random() < 0.85:
        begun = line(job)
        time.sleep(chance.random() * 0.05)
    else:
        time.sleep(chance.random() * 0.3)
    job.kill()
    output, errors = end(job)
    assert job.returncode == -signal.SIGKILL, errors
    assert "vramline:" not in errors, errors
    return Killed(announced_in(begun + output), recording)


def kill_fit(folder, chance, binary):
    """Runs a fit of TensorFlow under `vramline run` and kills the training process."""
    recording = folder / "fit.vram"
    command = [binary, "run", "--no-report", "-o", recording, "--", sys.executable, "-c", FIT, "100000000"]
    job = start(command)
    pid = int(line(job).split()[1])
    begun = ""
    if chance.random() < 0.85:
        begun = line(job)
    time.sleep(chance.random())
    os.kill(pid, signal.SIGKILL)
    output, errors = end(job)
    assert job.returncode == 128 + signal.SIGKILL, errors
    return Killed(announced_in(begun + output), recording)


def read_whole(path):
    """A stream up to its last whole message, as docs/reference/recording.md shows; and whether something was torn off.

    Without a whole header there are no rows; an empty file was opened and never written.
    """
    import pyarrow

    if os.path.getsize(path) == 0:
        return None, False
    with open(path, "rb") as file:
        try:
            reader = pyarrow.ipc.open_stream(file)
        except (OSError, pyarrow.ArrowInvalid):
            return None, True
        batches, is_torn = [], False
        try:
            # One by one: what was read before a torn message stays.
            for batch in reader:
                batches.append(batch)  # noqa: PERF402
        except (OSError, pyarrow.ArrowInvalid):
            is_torn = True
        return pyarrow.Table.from_batches(batches, reader.schema), is_torn


def check(killed, binary):
    """Every announced step is in the recording, by the tool's reader and by others'."""
    import duckdb

    parts = list(killed.recording.glob("*-*")) if killed.recording.is_dir() else []
    if not parts and not (killed.recording / "run.json").exists():
        assert killed.announced < 0, "a step was announced, and there is no recording"
        return
    done = subprocess.run(
        [binary, "report", "--json", killed.recording], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    steps = [step["step"] for step in json.loads(done.stdout)["steps"] if step["phase"] == "train"]
    # One that was recorded but not announced any more may follow.
    assert steps == list(range(len(steps)))
    assert killed.announced < len(steps) <= killed.announced + 2, (killed.announced, len(steps))

    for path in killed.recording.glob("*.arrows"):
        rows, is_torn = read_whole(path)
        killed.torn += is_torn
        if rows is None:
            continue
        frame = rows.to_pandas()
        assert len(frame) == rows.num_rows
        ((counted,),) = duckdb.connect().sql("SELECT count(*) FROM rows").fetchall()
        assert counted == rows.num_rows
        if path.name.startswith("marks-"):
            told = duckdb.connect().sql("SELECT DISTINCT step FROM rows WHERE kind = 'step' ORDER BY step").fetchall()
            assert [step for (step,) in told] == steps
            assert sorted(set(frame[frame.kind == "step"].step)) == steps
