"""What people try when memory is short: mixed precision, a smaller model, and changes to the input pipeline.

    python 12_make_it_fit.py

It prints the peak of a few training steps for each variant, and then what a pipeline with `cache` and `prefetch` holds.
"""

import gc
import time

import keras
import tensorflow as tf

BATCH = 64
BATCHES = 8
GPUS = tf.config.list_physical_devices("GPU")
DEVICE = "GPU:0" if GPUS else "CPU:0"
# GPUs are fast with float16; CPUs support bfloat16.
MIXED = "mixed_float16" if GPUS else "mixed_bfloat16"

# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def memory(key):
    """Bytes on the device, `current` or `peak`, or None if TensorFlow does not count them."""
    try:
        return tf.config.experimental.get_memory_info(DEVICE)[key]
    except ValueError:
        return None


def peak_of(data, filters=32, policy="float32"):
    """The peak of a short training."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    keras.mixed_precision.set_global_policy(policy)
    gc.collect()
    if memory("peak") is not None:
        tf.config.experimental.reset_memory_stats(DEVICE)
    conv = [keras.layers.Conv2D(filters, 3, activation="relu") for _ in range(2)]
    # The loss needs full precision.
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, dtype="float32")]
    model = keras.Sequential([keras.Input((32, 32, 3)), *conv, *head])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data, shuffle=False, verbose=0)
    return memory("peak")


def held_by(finish):
    """What a pipeline holds after one epoch, when it waits for the second batch of the next."""
    gc.collect()
    before = memory("current")
    batch = tf.data.Dataset.range(BATCHES).map(lambda number: tf.fill((BATCH, 64, 64, 4), tf.cast(number, tf.float32)))
    data = finish(batch)
    for one in data:
        pass
    del one
    iterator = iter(data)
    next(iterator)
    time.sleep(0.5)  # Gives `prefetch` time to fill its buffer.
    return None if before is None else memory("current") - before


def show(label, size):
    print(f"{label:20} {'not available' if size is None else f'{size / 2**20:.0f} MiB'}")


# All variants see the same repeated batch, so the input holds the same memory at every step.
x = tf.random.stateless_normal((BATCH, 32, 32, 3), seed=(1, 1))
y = tf.random.stateless_uniform((BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)
steps = tf.data.Dataset.from_tensors((x, y)).repeat(4)
show("plain", peak_of(steps))
show(MIXED, peak_of(steps, policy=MIXED))
show("a quarter of filters", peak_of(steps, filters=8))
# On a GPU these are 0: batches wait in host memory, which is not counted for the device.
show("pipeline, plain", held_by(lambda data: data))
show("pipeline, prefetch 3", held_by(lambda data: data.prefetch(3)))
show("pipeline, cache", held_by(lambda data: data.cache()))
