"""A Keras callback that stores the peak at the beginning of an epoch, at chosen batches and at its end; then a bar plot.

    python 06_keras_callback.py [FOLDER]

The plot is written to FOLDER if one is given and matplotlib is installed.
"""

import sys
from pathlib import Path

import keras
import tensorflow as tf

BATCH = 64
BATCHES = 25
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

keras.utils.set_random_seed(1)
# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


class MemoryCallback(keras.callbacks.Callback):
    """Stores the device's peak, in bytes, under a label."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches
        self.labels = []
        self.memory_usage = []

    def note(self, label):
        try:
            peak = tf.config.experimental.get_memory_info(DEVICE)["peak"]
        except ValueError:
            return
        self.labels.append(label)
        self.memory_usage.append(peak)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.note(f"epoch {epoch} begin")

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 in self.batches:
            self.note(f"epoch {self.epoch} batch {batch + 1}")

    def on_epoch_end(self, epoch, logs=None):
        self.note(f"epoch {epoch} end")


def plot(labels, sizes, folder):
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    axes.bar(labels, [size / 2**20 for size in sizes])
    axes.set_ylabel("peak, MiB")
    axes.tick_params(axis="x", rotation=60)
    figure.savefig(Path(folder) / "peaks.png")
    print("plot: peaks.png")


model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = tf.random.stateless_normal((BATCH, 32, 32, 3), seed=(1, 1))
y = tf.random.stateless_uniform((BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)
# The same batch is repeated, so the input pipeline holds the same memory at every step.
data = tf.data.Dataset.from_tensors((x, y)).repeat(BATCHES)

callback = MemoryCallback(batches=[5, 10, 25])
model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
for label, size in zip(callback.labels, callback.memory_usage):
    print(f"{label:18} {size / 2**20:4.0f} MiB")
if not callback.labels:
    print(f"{DEVICE}: memory figures are not available")
elif len(sys.argv) > 1:
    plot(callback.labels, callback.memory_usage, sys.argv[1])
else:
    print("no plot: no folder given")
