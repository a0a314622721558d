"""Runs out of memory in one of several ways: `ooms.py SITUATION`. The pool's limit is set by whoever starts it."""

import sys
import threading

import tensorflow as tf

MIB = 1 << 20


def block(size):
    """A tensor of so many bytes, given or not."""
    return tf.zeros([size], tf.uint8)


def fails(size):
    try:
        block(size)
    except tf.errors.ResourceExhaustedError as error:
        print("failed:", error, file=sys.stderr, flush=True)
        return True
    return False


def exhausted():
    """Blocks as large as the pieces that the pool takes: nothing is left over in any."""
    held = [block(2 * MIB), *(block(16 * MIB) for _ in range(3))]
    assert fails(48 * MIB)
    return held


def fragmented():
    """Every other block is freed: half of the pool is free, and no two neighbours."""
    held = [block(MIB) for _ in range(56)]
    del held[::2]
    assert fails(16 * MIB)
    return held


def slack():
    """Blocks a little larger than half of what is left are handed out whole."""
    held = []
    sizes = [20_000_000, 24_000_000, 16_000_000]
    for turn in range(100):
        try:
            held.append(block(sizes[turn % 3]))
        except tf.errors.ResourceExhaustedError as error:
            print("failed:", error, file=sys.stderr, flush=True)
            return held
    raise AssertionError("the pool is too large")


def several():
    """Three failures of one pool; something is freed in between."""
    held = [block(4 * MIB) for _ in range(10)]
    assert fails(40 * MIB)
    del held[3:5]
    assert fails(33 * MIB)
    assert fails(33 * MIB)
    return held


def model():
    """In the training step of a small network."""
    network = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    network.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = tf.zeros([256, 28, 28, 1]), tf.zeros([256], tf.int32)
    try:
        network.fit(images, labels, batch_size=256, verbose=0)
    except tf.errors.ResourceExhaustedError as error:
        print("failed:", error, file=sys.stderr, flush=True)
        return network
    raise AssertionError("the pool is too large")


def threads():
    """Four threads want memory at once, and three fail."""
    held, lock = [], threading.Lock()

    def take(size):
        for _ in range(40):
            try:
                tensor = block(size)
            except tf.errors.ResourceExhaustedError as error:
                print("failed:", error, file=sys.stderr, flush=True)
                return
            with lock:
                held.append(tensor)

    all_threads = [threading.Thread(target=take, args=((3 + i) * MIB + 1000 * i,)) for i in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    return held


if __name__ == "__main__":
    kept = {f.__name__: f for f in (exhausted, fragmented, slack, several, model, threads)}[sys.argv[1]]()
    print("done", flush=True)
