"""Trains in every way a Keras user does, one after the other, in one process.

    python situations.py FACTS [keras|tf_keras]

FACTS is a JSON file: for each section when it began and ended on the monotonic clock, and at the end of each step the bytes
in use as the script itself read them there. Which steps there must be is for the test to know.
"""

import contextlib
import importlib
import json
import sys
import time

import numpy as np
import tensorflow as tf

keras = importlib.import_module(sys.argv[2] if len(sys.argv) > 2 else "keras")
BATCH = 8
facts = {"sections": {}}
reads = []


def read():
    reads.append(tf.config.experimental.get_memory_info("CPU:0")["current"])


class Reader(keras.callbacks.Callback):
    """Reads where a callback of the user's would."""

    def on_train_batch_end(self, batch, logs=None):
        read()

    def on_test_batch_end(self, batch, logs=None):
        read()

    def on_predict_batch_end(self, batch, logs=None):
        read()


@contextlib.contextmanager
def section(name):
    reads.clear()
    begin = time.monotonic_ns()
    yield
    facts["sections"][name] = {"begin_ns": begin, "end_ns": time.monotonic_ns(), "current": list(reads)}


def data(batches):
    """Batches without a thread that prepares the next one, which TensorFlow adds where it may: what is in use at a step's end
    must not be a matter of luck."""
    x = np.ones((BATCH * batches, 20), np.float32)
    y = np.zeros(BATCH * batches, np.int64)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)


def layers():
    return [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)]


def compiled(model=None, **options):
    model = model or keras.Sequential([keras.Input((20,)), *layers()])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


class Custom(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = layers()

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class Interrupted(Exception):
    pass


def three_then(last):
    for _ in range(3):
        yield np.ones((BATCH, 20), np.float32), np.zeros(BATCH, np.int64)
    if last is not None:
        raise last


quiet = {"verbose": 0, "callbacks": [Reader()]}
model = compiled()
with section("fit"):
    model.fit(data(3), epochs=2, **quiet)
with section("validation"):
    model.fit(data(2), epochs=3, validation_data=data(2), validation_freq=2, **quiet)
with section("evaluate"):
    model.evaluate(data(3), **quiet)
with section("predict"):
    model.predict(data(3), **quiet)
with section("several fits"):
    model.fit(data(2), epochs=1, **quiet)
    model.fit(data(2), initial_epoch=2, epochs=4, **quiet)
with section("another model"):
    compiled().fit(data(2), **quiet)
with section("train_step"):
    compiled(Custom()).fit(data(3), **quiet)
with section("run_eagerly"):
    compiled(run_eagerly=True).fit(data(3), **quiet)
with section("run_eagerly, train_step"):
    compiled(Custom(), run_eagerly=True).fit(data(3), **quiet)
with section("steps_per_execution"):
    compiled(steps_per_execution=4).fit(data(10), epochs=2, validation_data=data(6), **quiet)
with section("early stopping"):
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=0)
    model.fit(data(2), epochs=5, verbose=0, callbacks=[Reader(), stopping])
with section("on_batch"):
    x, y = next(iter(data(1)))
    x, y = x.numpy(), y.numpy()
    for _ in range(3):
        model.train_on_batch(x, y)
        read()
    for _ in range(2):
        model.test_on_batch(x, y)
        read()
    model.predict_on_batch(x)
    read()
with section("unknown length"):
    model.fit(three_then(None), **quiet)
with section("inside a callback"):
    ask = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: model.predict(data(2), **quiet))
    model.fit(data(2), epochs=2, verbose=0, callbacks=[Reader(), ask])
with section("an exception in the data"):
    try:
        model.fit(three_then(Interrupted("no more")), verbose=0)
    except Exception as error:
        facts["caught"] = type(error).__name__

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model = keras.Sequential([keras.Input((20,)), *layers()])
optimizer = keras.optimizers.Adam()


def gradients_of(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    return tape.gradient(value, model.trainable_variables)


def update(x, y):
    optimizer.apply_gradients(zip(gradients_of(x, y), model.trainable_variables))


with section("an eager loop"):
    for x, y in data(4):
        gradients = gradients_of(x, y)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        read()

train = tf.function(update)
with section("a loop with tf.function"):
    for x, y in data(4):
        train(x, y)
        read()

sums = [tf.Variable(tf.zeros_like(variable)) for variable in model.trainable_variables]


@tf.function
def accumulate(x, y):
    for total, gradient in zip(sums, gradients_of(x, y)):
        total.assign_add(gradient)


@tf.function
def apply():
    optimizer.apply_gradients(zip([total / 2.0 for total in sums], model.trainable_variables))
    for total in sums:
        total.assign(tf.zeros_like(total))


with section("accumulation"):
    for number, (x, y) in enumerate(data(6)):
        accumulate(x, y)
        if number % 2 == 1:
            apply()
            read()

square = tf.function(lambda x: x @ x)
with section("functions"):
    for _ in range(3):
        square(tf.ones((16, 16)))

facts |= tf.config.experimental.get_memory_info("CPU:0")
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(facts, file)
