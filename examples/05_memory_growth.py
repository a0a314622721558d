"""Turns memory growth on for every GPU, then trains a little.

    python 05_memory_growth.py

With growth, TensorFlow takes memory from the driver as needed instead of nearly all of it at first use. It must be set
before TensorFlow starts the GPUs.
"""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
# Thread settings, like growth, come after the import and before the first tensor.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)

gpus = tf.config.list_physical_devices("GPU")
DEVICE = "GPU:0" if gpus else "CPU:0"
try:
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    print(f"memory growth is on for {len(gpus)} GPUs" if gpus else "no GPU: there is no memory growth to set")
except RuntimeError as error:
    # Too late: something has already used a GPU.
    print(f"memory growth could not be set: {error}")

for gpu in gpus:
    print(f"{gpu.name}: growth {tf.config.experimental.get_memory_growth(gpu)}")

model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(4096, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
random = np.random.default_rng(1)
x = random.standard_normal((128, 256), dtype=np.float32)
history = model.fit(x, x.sum(axis=1), batch_size=32, epochs=2, verbose=0, shuffle=False)
print("loss per epoch:", ", ".join(f"{loss:.1f}" for loss in history.history["loss"]))

try:
    info = tf.config.experimental.get_memory_info(DEVICE)
    print(f"{DEVICE}: in use after training {info['current'] / 2**20:.0f} MiB")
except ValueError:
    print(f"{DEVICE}: memory figures are not available")

# Too late now: TensorFlow has started.
try:
    tf.config.threading.set_inter_op_parallelism_threads(2)
except RuntimeError as error:
    print(f"after the first tensor: {error}")
