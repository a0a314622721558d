"""A custom training loop that prints memory every ten steps, before and after the optimizer step.

    python 02_custom_loop.py

The optimizer creates its state at its first step. From then on, Adam holds two more values for each weight.
"""

import keras
import tensorflow as tf

STEPS = 30
BATCH = 256
DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

keras.utils.set_random_seed(1)
# With one thread, ops run one after the other, so the peak is nearly always the same.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def memory():
    try:
        info = tf.config.experimental.get_memory_info(DEVICE)
    except ValueError:
        return "memory not available"
    return f"current {info['current'] / 2**20:5.0f} MiB, peak {info['peak'] / 2**20:5.0f} MiB"


x = tf.random.stateless_normal((4 * BATCH, 512), seed=(1, 1))
y = tf.random.stateless_uniform((4 * BATCH,), seed=(1, 2), maxval=10, dtype=tf.int32)

model = keras.Sequential(
    [
        keras.Input((512,)),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(10),
    ]
)
optimizer = keras.optimizers.Adam(1e-3)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

print(f"model built             {memory()}")
for step in range(STEPS):
    begin = step % 4 * BATCH
    with tf.GradientTape() as tape:
        loss = loss_of(y[begin : begin + BATCH], model(x[begin : begin + BATCH], training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    is_printed = step % 10 == 0
    if is_printed:
        print(f"step {step:2} before optimizer {memory()}")
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if is_printed:
        print(f"step {step:2} after optimizer  {memory()}, loss {float(loss):.3f}")
print(f"end                     {memory()}")
