"""Trains a small dense model on one thread, so that each run asks for the same; one layer is as wide as the argument says."""

import sys

import keras
import numpy as np
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
keras.utils.set_random_seed(3)
width = int(sys.argv[1])
inputs = keras.Input((64,))
hidden = keras.layers.Dense(400, "relu", name="first")(inputs)
hidden = keras.layers.Dense(width, "relu", name="changed")(hidden)
hidden = keras.layers.Dense(400, "relu", name="last")(hidden)
model = keras.Model(inputs, keras.layers.Dense(4, name="head")(hidden), name="model")
model.compile("sgd", "mse")
random = np.random.default_rng(3)
x, y = random.random((2048, 64), np.float32), random.random((2048, 4), np.float32)
for _ in range(4):
    model.train_on_batch(x, y)
