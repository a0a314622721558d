"""Trains with Keras. Every name that is the program's own contains the word "kestrel", so that a test can look for it."""

import os

os.environ |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}

import keras
import numpy as np


def kestrel_model():
    layers = [keras.Input((8,)), keras.layers.Dense(64, "relu", name="kestrel_layer"), keras.layers.Dense(1, name="kestrel_head")]
    return keras.Sequential(layers, name="kestrel_model")


model = kestrel_model()
model.compile("adam", "mse")
model.fit(np.ones((256, 8), "float32"), np.ones((256, 1), "float32"), epochs=2, verbose=0)
