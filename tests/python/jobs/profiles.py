"""Profiles itself: by hand, by TensorBoard's callback, or in every way that needs no package beside TensorFlow.

python profiles.py hand|board|both LOGDIR
"""

import sys

import keras
import small
import tensorflow as tf

how, logdir = sys.argv[1:]
profiler = tf.profiler.experimental


class Profiling(keras.callbacks.Callback):
    """What TensorBoard's callback does: it warms the profiler up when it is made, and profiles batches of a fit."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last
        profiler.start("")
        profiler.stop(save=False)

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.first:
            profiler.start(f"{logdir}/callback")

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.last:
            profiler.stop()


model = small.compiled()
if how == "board":
    board = keras.callbacks.TensorBoard(logdir, profile_batch=(3, 5))
    model.fit(small.data(8), verbose=0, callbacks=[board])
else:
    model.fit(small.data(2), verbose=0)
    profiler.start(f"{logdir}/hand")
    model.fit(small.data(4), verbose=0)
    profiler.stop()
    with profiler.Profile(f"{logdir}/with"):
        model.fit(small.data(3), verbose=0)
if how == "both":
    small.compiled().fit(small.data(8), verbose=0, callbacks=[Profiling(2, 4)])
    profiler.start(f"{logdir}/level", profiler.ProfilerOptions(host_tracer_level=0))
    model.fit(small.data(2), verbose=0)
    profiler.stop()
