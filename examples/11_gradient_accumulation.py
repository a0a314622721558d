"""Gradient accumulation in a custom loop: a batch in four parts, one update of the weights.

    python 11_gradient_accumulation.py

The activations of a part are freed before the next part begins, so only one part is in memory at a time. The sums of the
gradients are kept in between: one value for each weight.
"""

import gc

import keras
import tensorflow as tf

BATCH = 128
PARTS = 4
STEPS = 3
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def train(parts):
    """Trains with each batch in parts. Returns the last loss."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sums = [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in model.trainable_variables]

    @tf.function
    def accumulate(x, y):
        with tf.GradientTape() as tape:
            # The mean over the batch is the mean of the parts' means.
            loss = loss_of(y, model(x, training=True)) / parts
        for total, gradient in zip(sums, tape.gradient(loss, model.trainable_variables)):
            total.assign_add(gradient)
        return loss

    @tf.function
    def update():
        optimizer.apply_gradients(zip([total.read_value() for total in sums], model.trainable_variables))
        for total in sums:
            total.assign(tf.zeros_like(total))

    x = tf.random.stateless_normal((BATCH, 32, 32, 3), seed=(1, 1))
    y = tf.random.stateless_uniform((BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)
    for _ in range(STEPS):
        losses = [float(accumulate(*part)) for part in zip(tf.split(x, parts), tf.split(y, parts))]
        update()
    return sum(losses)


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


for parts in (1, PARTS):
    reset()
    loss = train(parts)
    print(f"{BATCH} images in {parts} part(s): peak {peak()}, loss {loss:.3f}")
