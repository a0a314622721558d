"""Trains a model whose edge small probes do not show, at a batch size that the command line says.

    python edges.py MODEL BATCH [--fails-above N]

`dense`: threads wait for each other's memory near the limit. `volumes`: above some size TensorFlow's 3-D convolutions use another kernel,
with more scratch memory. `depthwise`: its convolutions make a small request for each sample. With --fails-above, larger batch sizes end
with an error that has nothing to do with memory.
"""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=("dense", "volumes", "depthwise"))
parser.add_argument("batch", type=int)
parser.add_argument("--fails-above", type=int)
asked = parser.parse_args()

STEPS = 12

keras.utils.set_random_seed(1)
layers = keras.layers


def dense():
    hidden = [layers.Dense(1024, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])


def volumes():
    convolutions = [layers.Conv3D(filters, 3, padding="same", activation="relu") for filters in (8, 16, 16)]
    return keras.Sequential([keras.Input((20, 20, 20, 2)), *convolutions, layers.GlobalAveragePooling3D(), layers.Dense(10)])


def depthwise():
    x = inputs = keras.Input((40, 40, 3))
    x = layers.Conv2D(12, 3, padding="same")(x)
    for filters in (12, 20):
        wide = layers.ReLU(6)(layers.Conv2D(4 * filters, 1)(x))
        wide = layers.ReLU(6)(layers.DepthwiseConv2D(3, padding="same")(wide))
        x = layers.Conv2D(filters, 1)(wide)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


if asked.fails_above is not None and asked.batch > asked.fails_above:
    raise SystemExit("the data set has no such batch")
model = {"dense": dense, "volumes": volumes, "depthwise": depthwise}[asked.model]()
model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
random = np.random.default_rng(2)
x = random.standard_normal((asked.batch, *model.input_shape[1:]), dtype=np.float32)
y = random.integers(0, 10, asked.batch)
for _ in range(STEPS):
    model.train_on_batch(x, y)
