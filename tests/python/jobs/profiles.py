"""Profiles itself: by hand, or by TensorBoard's callback.

python profiles.py hand|board LOGDIR
"""

import sys

import keras
import small
import tensorflow as tf

how, logdir = sys.argv[1:]
model = small.compiled()
if how == "board":
    board = keras.callbacks.TensorBoard(logdir, profile_batch=(3, 5))
    model.fit(small.data(8), verbose=0, callbacks=[board])
else:
    model.fit(small.data(2), verbose=0)
    tf.profiler.experimental.start(f"{logdir}/hand")
    model.fit(small.data(4), verbose=0)
    tf.profiler.experimental.stop()
    with tf.profiler.experimental.Profile(f"{logdir}/with"):
        model.fit(small.data(3), verbose=0)
