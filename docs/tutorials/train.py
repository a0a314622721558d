"""The script of the tutorials: a small image classifier in Keras, trained on random images.

    python docs/tutorials/train.py --batch-size 64

It needs Keras 3 and TensorFlow, no GPU and no download, and takes a few seconds.
"""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=32, help="filters of the first convolution")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--leak", action="store_true", help="keep a tensor after every step")
options = parser.parse_args()

keras.utils.set_random_seed(1)
images = np.random.rand(512, 32, 32, 3).astype("float32")
labels = np.random.randint(0, 10, 512)

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


model.fit(
    images,
    labels,
    batch_size=options.batch_size,
    epochs=options.epochs,
    verbose=2,
    callbacks=[KeepFeatures()] if options.leak else [],
)
