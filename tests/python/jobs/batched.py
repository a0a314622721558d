"""Trains a small convolutional network at a batch size that the command line says: what a user would hand to `vramline plan`.

    python batched.py BATCH [--ends FILE] [--shuffled]

With --ends a file is written after training: a probe must never come that far. With --shuffled single samples are shuffled, in the pool.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("batch", type=int)
parser.add_argument("--ends")
parser.add_argument("--shuffled", action="store_true")
asked = parser.parse_args()

# Few, and a small model: next to what a batch takes, what it holds anyway is little.
SAMPLES = 700

keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential(
    [
        keras.Input((24, 24, 3)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(16, activation="relu"),
        layers.Dense(10),
    ]
)
# Op by op: an executor with threads orders them differently each time, and what that does to a plan is measured in benches/accuracy.py.
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-3), loss, run_eagerly=True)
random = np.random.default_rng(2)
x, y = random.standard_normal((SAMPLES, 24, 24, 3), dtype=np.float32), random.integers(0, 10, SAMPLES)
if asked.shuffled:
    data = tf.data.Dataset.from_tensor_slices((x[:512], y[:512])).shuffle(64).batch(asked.batch, drop_remainder=True)
    model.fit(data, steps_per_epoch=12, verbose=0)
    raise SystemExit
# One batch at a time, made when it is asked for: with threads that prepare the next ones, how many lie in the pool at the peak depends on
# how busy the machine is.
steps = min(12, SAMPLES // asked.batch)
samples, labels = tf.constant(x), tf.constant(y)
data = tf.data.Dataset.range(steps).map(lambda step: tuple(whole[step * asked.batch : (step + 1) * asked.batch] for whole in (samples, labels)))
options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
options.autotune.enabled = False
model.fit(data.with_options(options), epochs=1, verbose=0)
if asked.ends:
    open(asked.ends, "w", encoding="utf-8").close()
