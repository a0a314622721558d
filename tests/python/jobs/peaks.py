"""Reads the peak at the end of every step; by itself it also resets it at each step's beginning.

python peaks.py FACTS [--reset]
"""

import sys

import keras
import small
import tensorflow as tf

small.one_thread()
resets = "--reset" in sys.argv
facts = {"keras": [], "function": [], "eager": []}


class Peaks(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if resets:
            small.reset()

    on_test_batch_begin = on_predict_batch_begin = on_train_batch_begin

    def on_train_batch_end(self, batch, logs=None):
        facts["keras"].append(small.info())

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


model = small.compiled()
model.fit(small.data(3), epochs=2, validation_data=small.data(2), verbose=0, callbacks=[Peaks()])
model.evaluate(small.data(2), verbose=0, callbacks=[Peaks()])
model.predict(small.data(2), verbose=0, callbacks=[Peaks()])

# More than any step holds, and gone before the next one.
tf.ones(1 << 20).numpy()

loss, optimizer, network = small.loss(), keras.optimizers.SGD(), small.network()


def gradients_of(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, network(x, training=True))
    return tape.gradient(value, network.trainable_variables)


@tf.function
def train(x, y):
    optimizer.apply_gradients(zip(gradients_of(x, y), network.trainable_variables))


for x, y in small.data(3):
    if resets:
        small.reset()
    train(x, y)
    facts["function"].append(small.info())

for x, y in small.data(3):
    # An eager step begins with its tape and ends with its update.
    if resets:
        small.reset()
    gradients = gradients_of(x, y)
    optimizer.apply_gradients(zip(gradients, network.trainable_variables))
    facts["eager"].append(small.info())

small.write(sys.argv[1], facts)
