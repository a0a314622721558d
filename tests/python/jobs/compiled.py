"""Trains a small convolutional network whose step XLA compiles, at a batch size that the command line says.

    python compiled.py BATCH [--ends FILE]

With --ends a file is written after training: a probe must never come that far.
"""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("batch", type=int)
parser.add_argument("--ends")
asked = parser.parse_args()

keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(1e-3), loss, jit_compile=True)
random = np.random.default_rng(2)
x, y = random.standard_normal((1200, 32, 32, 3), dtype=np.float32), random.integers(0, 10, 1200)
model.fit(x, y, batch_size=asked.batch, steps_per_epoch=min(8, 1200 // asked.batch), epochs=1, verbose=0)
if asked.ends:
    open(asked.ends, "w", encoding="utf-8").close()
