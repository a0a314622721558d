"""Trains with one batch size after the other, and measures time and memory.

    python 09_batch_sizes.py

Memory goes to stdout, times to stderr.
"""

import gc
import sys
import time

import keras
import tensorflow as tf

SIZES = [16, 32, 64, 128]
IMAGES = 256
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def build():
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def epoch_of(size):
    """The same batch repeated, so that the input holds the same memory at every step."""
    x = tf.random.stateless_normal((size, 32, 32, 3), seed=(1, 1))
    y = tf.random.stateless_uniform((size,), seed=(1, 2), maxval=10, dtype=tf.int32)
    return tf.data.Dataset.from_tensors((x, y)).repeat(IMAGES // size)


def train(data):
    """Trains one epoch. Returns its peak in bytes (None if TensorFlow does not count it) and its seconds."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    gc.collect()
    try:
        tf.config.experimental.reset_memory_stats(DEVICE)
    except ValueError:
        pass
    model = build()
    begin = time.perf_counter()
    model.fit(data, shuffle=False, verbose=0)
    seconds = time.perf_counter() - begin
    try:
        return tf.config.experimental.get_memory_info(DEVICE)["peak"], seconds
    except ValueError:
        return None, seconds


# The data of all sizes is created first, so that every size is measured with the same amount of data in memory.
epochs = {size: epoch_of(size) for size in SIZES}
print("batch  peak")
for size, data in epochs.items():
    try:
        peak, seconds = train(data)
    except tf.errors.ResourceExhaustedError:
        print(f"{size:5}  out of memory")
        break
    print(f"{size:5}  {'not available' if peak is None else f'{peak / 2**20:.0f} MiB'}")
    print(f"{size:5}  {seconds:.2f} s", file=sys.stderr)
