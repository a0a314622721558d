"""Thirty programs without a leak, each another model, under `vramline run`: the rules for growth must be silent.

    python benches/clean_runs.py [--workers N]

Each trains 40 steps, more than the rule needs to speak. Prints a line for each; exits with 1 where one was called a leak, or was too short
to be.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

BINARY = os.environ.get("VRAMLINE_BIN", "vramline")
STEPS = 40
BODIES = {
    "dense": "(64,)|L.Dense(256, 'relu')|L.Dense(128)",
    "wide": "(64,)|L.Dense(2048, 'relu')|L.Dropout(0.5)",
    "convolution": "(24, 24, 3)|L.Conv2D(16, 3, activation='relu')|L.MaxPooling2D()|L.Flatten()",
    "normalized": "(24, 24, 3)|L.Conv2D(8, 3)|L.BatchNormalization()|L.GlobalAveragePooling2D()",
    "recurrent": "(12, 8)|L.LSTM(32)",
    "sequence": "(16, 8)|L.Conv1D(32, 3)|L.LayerNormalization()|L.GlobalMaxPooling1D()",
}
OPTIMIZERS = ["adam", "sgd", "rmsprop", "adamw", "adagrad"]
JOB = """
import sys, keras, numpy as np
L = keras.layers
shape, *layers = sys.argv[1].split("|")
shape = eval(shape)
model = keras.Sequential([keras.Input(shape), *[eval(layer) for layer in layers], L.Dense(10)])
model.compile(sys.argv[2], keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
count = int(sys.argv[3]) * 16
model.fit(np.random.rand(count, *shape).astype("float32"), np.random.randint(0, 10, count), batch_size=16, verbose=0)
"""


def clean(case):
    (name, body), optimizer = case
    with tempfile.TemporaryDirectory() as folder:
        job = [sys.executable, "-c", JOB, body, optimizer, str(STEPS)]
        run = [BINARY, "run", "--no-report", "-o", f"{folder}/x.vram", "--", *job]
        subprocess.run(run, check=True, capture_output=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"})
        told = subprocess.run([BINARY, "report", "--json", f"{folder}/x.vram"], check=True, capture_output=True, text=True)
    report = json.loads(told.stdout)
    steps = sum(step["phase"] == "train" and step["current_bytes"] is not None for step in report["steps"])
    return name, optimizer, steps, [each["text"] for each in report["findings"] if each["rule"] in ("leak", "staircase", "growing-inputs")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    with ThreadPoolExecutor(parser.parse_args().workers) as threads:
        done = list(threads.map(clean, itertools.product(BODIES.items(), OPTIMIZERS)))
    for name, optimizer, steps, leaks in done:
        print(name, optimizer, steps, "steps", leaks or "no leak")
    wrong = [each for each in done if each[3] or each[2] < STEPS]
    print(f"{len(done)} runs, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
