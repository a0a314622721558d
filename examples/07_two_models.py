"""Trains two models one after the other, resets the peak between them, and draws both as bars.

    python 07_two_models.py [FOLDER]

The chart is written to FOLDER if one is given and matplotlib is installed.
"""

import gc
import sys
from pathlib import Path

import keras
import tensorflow as tf

BATCH = 64
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def small():
    return [keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.GlobalAveragePooling2D()]


def large():
    return [
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
    ]


def peak_of(layers, data):
    """The peak of a short training in bytes, or None if TensorFlow does not count it."""
    keras.utils.set_random_seed(1)
    # Frees what the last model left behind, which would otherwise count for this one too.
    keras.backend.clear_session()
    gc.collect()
    try:
        tf.config.experimental.reset_memory_stats(DEVICE)
    except ValueError:
        pass
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers(), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data, shuffle=False, verbose=0)
    try:
        return tf.config.experimental.get_memory_info(DEVICE)["peak"]
    except ValueError:
        return None


def plot(peaks, folder):
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4, 4), layout="constrained")
    axes.bar(list(peaks), [peak / 2**20 for peak in peaks.values()])
    axes.set_ylabel("peak, MiB")
    figure.savefig(Path(folder) / "models.png")
    print("plot: models.png")


# Both models see the same repeated batch, so the input holds the same memory at every step.
x = tf.random.stateless_normal((BATCH, 32, 32, 3), seed=(1, 1))
y = tf.random.stateless_uniform((BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)
steps = tf.data.Dataset.from_tensors((x, y)).repeat(5)
peaks = {layers.__name__: peak_of(layers, steps) for layers in (small, large)}
for name, peak in peaks.items():
    print(f"{name:6} {'not available' if peak is None else f'{peak / 2**20:.0f} MiB'}")
if None in peaks.values():
    print("no plot: there are no figures")
elif len(sys.argv) > 1:
    plot(peaks, sys.argv[1])
else:
    print("no plot: no folder given")
