"""What the jobs share: a small model, and data that no thread prepares ahead, so that every figure comes out the same."""

import json

import keras
import numpy as np
import tensorflow as tf

BATCH = 8


def data(batches):
    random = np.random.default_rng(3)
    x, y = random.standard_normal((BATCH, 50), dtype=np.float32), random.integers(0, 4, BATCH)
    # The same batch again: cutting batches out of a table takes memory in an order that differs from run to run.
    return tf.data.Dataset.from_tensors((x, y)).repeat(batches)


def network():
    layers = [keras.layers.Dense(200, activation="relu"), keras.layers.Dense(100), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input((50,)), *layers])


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(**options):
    model = network()
    model.compile(keras.optimizers.Adam(1e-3), loss(), **options)
    return model


def one_thread():
    """With one thread every allocation comes in the same order in every run."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    keras.utils.set_random_seed(7)


def info():
    return tf.config.experimental.get_memory_info("CPU:0")


def reset():
    tf.config.experimental.reset_memory_stats("CPU:0")


def write(path, facts):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(facts, file)
