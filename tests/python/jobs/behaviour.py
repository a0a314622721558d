"""Prints what a program can see of the world around it, and ends by an exception. It must print the same under a recorder.

python behaviour.py [WORD ...]
"""

import os
import signal
import sys
import threading

print("arguments", sys.argv[1:], "name", __name__)
print("path", sys.path)
print("sitecustomize", getattr(sys.modules.get("sitecustomize"), "WHOSE", None))
print("hooks", sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__, sys.flags)
print("signals", [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)])

import tensorflow as tf

# All of these fail once TensorFlow has been initialised.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_visible_devices([cpu])
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import keras
import small

small.one_thread()
print("threads", tf.config.threading.get_inter_op_parallelism_threads())
print("logical devices", [device.name for device in tf.config.list_logical_devices()])
print("signal", signal.getsignal(signal.SIGTERM))

# Op by op every byte is the same in every run.
x = tf.ones(1 << 20)
print("peak", small.info())
small.reset()
del x
print("peak after a reset", small.info())
y = tf.ones(1 << 19) + 1.0
print("peak of the next", small.info())
small.reset()
del y

class Peaks(keras.callbacks.Callback):
    """A peak of each epoch, as people measure it."""

    def on_epoch_begin(self, epoch, logs=None):
        small.reset()

    def on_epoch_end(self, epoch, logs=None):
        # Slack differs a little from run to run, so that the figure itself cannot be printed.
        print("epoch", epoch, 0 < small.info()["peak"] < 2 << 20, "loss", repr(logs["loss"]))


def train(model, **options):
    peaks = Peaks()
    callbacks = keras.callbacks.CallbackList([peaks], add_history=True, model=model, epochs=2, steps=3, verbose=0)
    history = model.fit(small.data(3), epochs=2, verbose=0, callbacks=callbacks, **options)
    print("callbacks", [type(callback).__name__ for callback in callbacks.callbacks], callbacks.params)
    print("history", history.history, history.params)
    plain = [peaks]
    model.evaluate(small.data(2), verbose=0, callbacks=plain)
    print("list", plain == [peaks])


train(small.compiled(), validation_data=small.data(2))

@tf.function
def step(x):
    return tf.reduce_sum(x * 2.0)


print("function", type(step), step(tf.ones(3)).numpy(), step.experimental_get_tracing_count())

with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    mirrored = small.compiled()
print("mirrored", mirrored.fit(small.data(3), epochs=2, verbose=0).history)


def on_terminate(number, frame):
    print("told to end", number, frame.f_code.co_name)


signal.signal(signal.SIGTERM, on_terminate)
os.kill(os.getpid(), signal.SIGTERM)
print("signal", signal.getsignal(signal.SIGTERM) is on_terminate)


def hook(kind, error, trace):
    frames = []
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    print("hook", kind.__name__, error, frames)


sys.excepthook = hook
sys.stdout.flush()
raise ValueError("the end")
