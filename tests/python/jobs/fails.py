"""Fails in the middle of its first epoch, or in the function it compiled; nobody catches it.

python fails.py callback|function
"""

import sys

import keras
import small
import tensorflow as tf


class Failing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            raise RuntimeError("enough is enough")


@tf.function
def check(x):
    tf.debugging.assert_less(x, 3.0)
    return x


if sys.argv[1] == "callback":
    small.compiled().fit(small.data(6), epochs=2, verbose=0, callbacks=[Failing()])
else:
    for number in range(9):
        check(tf.constant(float(number)))
