"""Programs whose memory grows, or seems to, each in its own way: `grows.py CASE`. Prints what TensorFlow itself counts after each step."""

import sys

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
counted = []


def count():
    counted.append(tf.config.experimental.get_memory_info("CPU:0")["current"])


class Count(keras.callbacks.Callback):
    """Reads TensorFlow's counter where the recorder reads it."""

    def on_train_batch_end(self, batch, logs=None):
        count()


def net(width, name):
    layers = [keras.Input((64,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu"), keras.layers.Dense(1)]
    return keras.Sequential(layers, name=name)


def models():
    """One more model in a list with each fit."""
    x, y = np.random.rand(384, 64).astype("float32"), np.random.rand(384, 1).astype("float32")
    kept = []
    for _ in range(4):
        model = net(512, "net512")
        model.compile("adam", "mse")
        model.fit(x, y, batch_size=64, verbose=0, callbacks=[Count()])
        kept.append(model)


def same_model():
    """The same model, fitted again and again: nothing grows."""
    x, y = np.random.rand(384, 64).astype("float32"), np.random.rand(384, 1).astype("float32")
    model = net(512, "net512")
    model.compile("adam", "mse")
    for _ in range(5):
        model.fit(x, y, batch_size=64, verbose=0, callbacks=[Count()])


def variables():
    """A variable more with each step."""
    model, optimizer = net(64, "net64"), keras.optimizers.SGD()
    x, y = tf.random.normal((32, 64)), tf.random.normal((32, 1))
    kept = []
    for _ in range(40):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        kept.append(tf.Variable(tf.fill((65536,), loss), name="moving_average"))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        count()


def retraces():
    """A function that is traced anew for every second batch; its graph holds a table."""
    model, optimizer = net(64, "net64"), keras.optimizers.SGD()
    table = np.random.rand(1024, 64).astype("float32")

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            near = tf.matmul(x, tf.constant(table), transpose_b=True)
            loss = tf.reduce_mean(model(x) ** 2) + tf.reduce_mean(near)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for step in range(32):
        train(tf.zeros((8 + step // 2, 64)))
        count()


def lengths(of):
    """Sequences of as many steps as `of` says for each batch."""
    layers = [keras.Input((None, 64)), keras.layers.Conv1D(256, 5, padding="same", activation="relu"), keras.layers.Dense(64)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")

    def batches():
        for length in of:
            x = np.random.rand(16, length, 64).astype("float32")
            yield x, x

    shape = tf.TensorSpec((16, None, 64))
    data = tf.data.Dataset.from_generator(batches, output_signature=(shape, shape))
    model.fit(data, verbose=0, callbacks=[Count()])


def longer():
    """A longer sequence with every step."""
    lengths(range(64, 64 + 36 * 24, 24))


def ragged():
    """Sequences of any length."""
    lengths(np.random.default_rng(7).permutation(36) * 24 + 64)


{case.__name__: case for case in (models, same_model, variables, retraces, longer, ragged)}[sys.argv[1]]()
print(*counted)
