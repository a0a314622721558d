"""Makes a large trace with real TensorFlow: a Keras model trained on the CPU with the pool allocator on.

    python benches/make_trace.py OUT.xplane.pb [--steps N] [--megabytes M]

Trains until the trace would be about M megabytes (the size of a step's events is measured first), then copies the
trace to OUT. The model is a small transformer: ordinary ops, with names and shapes as long as users' own.
"""

import argparse
import glob
import os
import shutil
import tempfile

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "4000")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf


def build():
    inputs = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(1000, 32)(inputs)
    for _ in range(4):
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(4, 8)(y, y)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(64, activation="gelu")(y)
        x = keras.layers.Add()([x, keras.layers.Dense(32)(y)])
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    return model


def profile(model, data, steps, folder):
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
    tf.profiler.experimental.start(folder, options)
    model.fit(data.take(steps), verbose=0)
    tf.profiler.experimental.stop()
    return max(glob.glob(folder + "/plugins/profile/*/*.xplane.pb"), key=os.path.getmtime)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=0, help="train exactly this many steps")
    parser.add_argument("--megabytes", type=int, default=210)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    x = rng.integers(0, 1000, (4096, 16), dtype=np.int32)
    y = rng.integers(0, 10, 4096)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).repeat()
    model = build()
    model.fit(data.take(2), verbose=0)
    steps = args.steps
    with tempfile.TemporaryDirectory() as scratch:
        if not steps:
            small = os.path.getsize(profile(model, data, 20, scratch + "/a"))
            large = os.path.getsize(profile(model, data, 60, scratch + "/b"))
            steps = int(args.megabytes * 1e6 / ((large - small) / 40))
        trace = profile(model, data, steps, scratch + "/c")
        shutil.move(trace, args.out)
    print(f"{args.out}: {steps} steps, {os.path.getsize(args.out):,} bytes")


if __name__ == "__main__":
    main()
