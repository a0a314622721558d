"""Reaches its highest peak after the first steps, in one of several ways, and writes down what TensorFlow counted.

python phases.py CASE FACTS
"""

import os
import sys

import keras
import numpy as np
import small
import tensorflow as tf

case, path = sys.argv[1:]
small.one_thread()
facts = {}


def dense(width, layers=3):
    inner = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((50,)), *inner, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(1e-3), small.loss())
    return model


def rows(count, batches=1):
    x, y = np.ones((count, 50), np.float32), np.zeros(count, np.int64)
    return tf.data.Dataset.from_tensors((x, y)).repeat(batches)


def note(name):
    facts[name] = small.info()


def second_fit():
    small.compiled().fit(small.data(8), verbose=0)
    note("before")
    dense(700).fit(rows(256, 6), epochs=2, verbose=0)


def validation():
    small.compiled().fit(small.data(8), validation_data=rows(20_000, 2), epochs=2, verbose=0)


def predict():
    model = small.compiled()
    model.fit(small.data(8), verbose=0)
    note("before")
    model.predict(np.ones((30_000, 50), np.float32), batch_size=30_000, verbose=0)


def sequence():
    layers = [keras.layers.Conv1D(32, 3, padding="same", activation="relu"), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((None, 16)), *layers, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(1e-3), small.loss())
    for length in [64] * 7 + [128] * 3 + [2048] * 3 + [256]:
        model.train_on_batch(np.ones((small.BATCH, length, 16), np.float32), np.zeros(small.BATCH, np.int64))


def loop(sizes):
    weights = tf.Variable(tf.ones((256, 256)))
    optimizer = keras.optimizers.SGD(1e-6)

    @tf.function(input_signature=[tf.TensorSpec((None, 256))])
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.relu(x @ weights) @ weights)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])

    for size in sizes:
        step(tf.ones((size, 256)))
    return step


def rise():
    loop([64] * 9 + [4096] * 5)


def one_rise():
    """A single large step: whoever looks at the next one does not see it."""
    loop([64] * 9 + [8192] + [64] * 5)


def fork():
    """Forks while a later window is open, and fails while another is."""
    step = loop([64] * 8)
    step(tf.ones((2048, 256)))
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    [step(tf.ones((2048, 256))) for _ in range(4)]
    step(tf.ones((8192, 256)))
    small.write(path, facts | {"end": small.info()})
    raise RuntimeError("as the test wants it")


{
    "fit": second_fit,
    "validation": validation,
    "predict": predict,
    "sequence": sequence,
    "rise": rise,
    "one rise": one_rise,
    "fork": fork,
}[case]()
note("end")
small.write(path, facts)
