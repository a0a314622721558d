"""Profiles itself: TensorBoard's callback first, then start and stop by hand.

python profiles.py LOGDIR
"""

import sys

import keras
import small
import tensorflow as tf

logdir = sys.argv[1]
model = small.compiled()
board = keras.callbacks.TensorBoard(f"{logdir}/board", profile_batch=(3, 5))
model.fit(small.data(8), verbose=0, callbacks=[board])
tf.profiler.experimental.start(f"{logdir}/hand")
model.fit(small.data(4), verbose=0)
tf.profiler.experimental.stop()
with tf.profiler.experimental.Profile(f"{logdir}/with"):
    model.fit(small.data(2), verbose=0)
