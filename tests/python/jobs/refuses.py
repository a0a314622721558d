"""Meets the limit of its pool in one of several ways: `refuses.py SITUATION`.

caught: fails, and goes on with less. waits: a thread waits until another frees memory. last: dies at its largest request, the last
one. step: dies in the middle of a training step. reraised: fails, and raises an error of its own.
"""

import sys
import threading
import time

import tensorflow as tf

MIB = 1 << 20


def block(size):
    return tf.zeros([size], tf.uint8)


def caught():
    held = [block(4 * MIB) for _ in range(4)]
    sizes = []
    for size in (96 * MIB, 80 * MIB, 8 * MIB):
        try:
            held.append(block(size))
        except tf.errors.ResourceExhaustedError:
            sizes.append(size)
    assert len(sizes) == 2 and len(held) == 5
    return held


def waits():
    held = [block(40 * MIB)]
    asking = threading.Event()
    served = []

    def ask():
        # What making a tensor needs besides is there already.
        asking.set()
        served.append(block(50 * MIB))

    thread = threading.Thread(target=ask)
    thread.start()
    asking.wait()
    # Long enough to be refused at first, on a busy machine too, and far less than TensorFlow waits.
    time.sleep(3)
    held.clear()
    thread.join()
    assert len(served) == 1
    return served


def last():
    held = [tf.random.normal([512, 512]) for _ in range(5)]
    for _ in range(4):
        held[0] = tf.nn.relu(tf.matmul(held[0], held[1]))
    held.append(block(20 * MIB))
    between = [block(3 * MIB) for _ in range(4)]
    del between[::2]
    held.append(block(70 * MIB))
    return held, between


def step():
    import keras
    import numpy as np

    layers = [keras.layers.Dense(1024, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((256,)), *layers, keras.layers.Dense(10)])
    model.compile("adam", "mse")
    model.fit(np.zeros((8192, 256), "float32"), np.zeros((8192, 10), "float32"), batch_size=2048, verbose=0)


def reraised():
    try:
        block(512 * MIB)
    except tf.errors.ResourceExhaustedError as error:
        raise RuntimeError("the model is too large") from error


if __name__ == "__main__":
    kept = {f.__name__: f for f in (caught, waits, last, step, reraised)}[sys.argv[1]]()
    print("done", flush=True)
