"""Trains one model of a family from the first allocation on, with TensorFlow's profiler around all of it.

    python families.py FAMILY LOGDIR [--batch N] [--steps N] [--no-trace]

It is run as a process of its own, under the pool allocator and with the limit that the environment sets. What the
allocator was asked for is in the trace; nothing is judged here. Exit code 9 is out of memory.
"""

import argparse
import os
import sys

import numpy as np
import tensorflow as tf

OUT_OF_MEMORY = 9
random = np.random.default_rng(11)


def images(batch, side, channels=3):
    return random.standard_normal((batch, side, side, channels), dtype=np.float32)


def labels(batch, classes=10):
    return random.integers(0, classes, batch)


def compiled(keras, model, optimizer="adam"):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return model


def dense(keras, batch, steps):
    layers = keras.layers
    hidden = [layers.Dense(n, activation="relu") for n in (400, 300, 200)]
    model = compiled(keras, keras.Sequential([keras.Input((500,)), *hidden, layers.Dense(10)]))
    x = random.standard_normal((batch * steps, 500), dtype=np.float32)
    model.fit(x, labels(batch * steps), batch_size=batch, verbose=0)


def convolutional(keras, batch, steps):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 3)),
            layers.Conv2D(24, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(48, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    compiled(keras, model).fit(images(batch * steps, 28), labels(batch * steps), batch_size=batch, verbose=0)


def unet(keras, batch, steps):
    layers = keras.layers
    inputs = x = keras.Input((32, 32, 3))
    kept = []
    for filters in (8, 16):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((16, 8), reversed(kept)):
        x = layers.UpSampling2D()(x)
        x = layers.Concatenate()([x, skip])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Conv2D(1, 1)(x))
    model.compile("adam", "mse")
    data = images(batch * steps, 32)
    model.fit(data, data[..., :1], batch_size=batch, verbose=0)


def recurrent(keras, batch, steps):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((12, 20)), layers.LSTM(40, return_sequences=True), layers.GRU(24), layers.Dense(10)]
    )
    x = random.standard_normal((batch * steps, 12, 20), dtype=np.float32)
    compiled(keras, model, "rmsprop").fit(x, labels(batch * steps), batch_size=batch, verbose=0)


def attention(keras, batch, steps):
    layers = keras.layers
    tokens = keras.Input((24,), dtype="int32")
    x = layers.Embedding(400, 48)(tokens)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 12, dropout=0.1)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(48)(layers.Dense(120, activation="gelu")(x)))
    model = keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
    x = random.integers(0, 400, (batch * steps, 24), dtype=np.int32)
    compiled(keras, model).fit(x, labels(batch * steps), batch_size=batch, verbose=0)


def ragged(keras, batch, steps):
    """Batches of other lengths each time: the sizes of all requests keep changing."""
    layers = keras.layers
    model = keras.Sequential(
        [layers.Embedding(300, 32), layers.Conv1D(48, 3, padding="same", activation="relu"), layers.GlobalMaxPooling1D(), layers.Dense(10)]
    )
    compiled(keras, model)

    def batches():
        for length in random.integers(10, 120, steps):
            yield random.integers(0, 300, (batch, int(length)), dtype=np.int32), labels(batch)

    signature = (tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int64))
    model.fit(tf.data.Dataset.from_generator(batches, output_signature=signature), verbose=0)


def eager(keras, batch, steps):
    """A loop of its own, nothing compiled."""
    layers = keras.layers
    model = keras.Sequential([keras.Input((200,)), layers.Dense(150, activation="relu"), layers.Dense(10)])
    optimizer = keras.optimizers.Adam()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for _ in range(steps):
        x, y = tf.random.normal((batch, 200)), tf.constant(labels(batch))
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))


def two_models(keras, batch, steps):
    dense(keras, batch, steps)
    keras.backend.clear_session()
    convolutional(keras, batch, steps)


FAMILIES = {
    build.__name__: build
    for build in (dense, convolutional, unet, recurrent, attention, ragged, eager, two_models)
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("logdir")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--no-trace", action="store_true")
    asked = parser.parse_args()
    # More threads than cores: ops of one step overtake each other.
    tf.config.threading.set_inter_op_parallelism_threads(8)
    if not asked.no_trace:
        options = tf.profiler.experimental.ProfilerOptions(2, 0, 0)
        tf.profiler.experimental.start(asked.logdir, options)
    import keras

    keras.utils.set_random_seed(7)
    try:
        FAMILIES[asked.family](keras, asked.batch, asked.steps)
    except (tf.errors.ResourceExhaustedError, MemoryError):
        # Interpreters take their time to end, and the answer is known.
        sys.stdout.flush()
        os._exit(OUT_OF_MEMORY)
    if not asked.no_trace:
        tf.profiler.experimental.stop()


if __name__ == "__main__":
    main()
