"""The script of the tutorials: a small image classifier in Keras, trained on random images.

    python docs/tutorials/train.py --batch-size 64

It needs Keras 3 and TensorFlow, no GPU and no download, and takes a few seconds.
"""

import argparse

import keras
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=32, help="filters of the first convolution")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--leak", action="store_true", help="keep a tensor after every step")
options = parser.parse_args()

keras.utils.set_random_seed(1)
# With one thread, ops run one after the other, so the peak is the same in every run.
tf.config.threading.set_inter_op_parallelism_threads(1)

images = tf.random.stateless_normal((options.batch_size, 32, 32, 3), seed=(1, 1))
labels = tf.random.stateless_uniform((options.batch_size,), seed=(1, 2), maxval=10, dtype=tf.int32)
data = tf.data.Dataset.from_tensors((images, labels)).repeat(options.steps)

model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(options.width, 3, activation="relu", name="first"),
        keras.layers.Conv2D(64, 3, activation="relu", name="second"),
        keras.layers.MaxPooling2D(name="pool"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(64, activation="relu", name="hidden"),
        keras.layers.Dense(10, name="scores"),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class KeepFeatures(keras.callbacks.Callback):
    """A bug that many scripts have: results are appended to a list, and nothing ever removes them."""

    def __init__(self):
        super().__init__()
        self.features = []

    def on_train_batch_end(self, batch, logs=None):
        self.features.append(self.model.get_layer("first")(images[:32]))


model.fit(data, shuffle=False, verbose=2, callbacks=[KeepFeatures()] if options.leak else [])
