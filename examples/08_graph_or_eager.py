"""The same training step in eager mode and as a @tf.function, warmed up and then called in a loop.

    python 08_graph_or_eager.py

Memory goes to stdout, times to stderr.
"""

import gc
import sys
import time

import keras
import tensorflow as tf

STEPS = 8
BATCH = 64
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def training_step():
    """A new model, and the function that trains it on a batch."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(2)]
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers, *head])
    optimizer = keras.optimizers.SGD(0.01)
    # Variables cannot be created while a graph is traced, so the optimizer creates its own here.
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def reset():
    gc.collect()
    try:
        tf.config.experimental.reset_memory_stats(DEVICE)
    except ValueError:
        pass


def peak():
    try:
        return f"{tf.config.experimental.get_memory_info(DEVICE)['peak'] / 2**20:.0f} MiB"
    except ValueError:
        return "not available"


def measure(label, step, x, y):
    reset()
    step(x, y)  # The graph is traced at the first call.
    print(f"{label:6} warm-up: peak {peak()}")
    reset()
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step(x, y)
    loss = float(loss)  # Waits until the device has finished.
    milliseconds = (time.perf_counter() - begin) / STEPS * 1000
    print(f"{label:6} {STEPS} steps: peak {peak()}, loss {loss:.3f}")
    print(f"{label:6} {milliseconds:.1f} ms a step", file=sys.stderr)


x = tf.random.stateless_normal((BATCH, 32, 32, 3), seed=(1, 1))
y = tf.random.stateless_uniform((BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)
measure("eager", training_step(), x, y)
measure("graph", tf.function(training_step()), x, y)
