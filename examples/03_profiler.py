"""Records two epochs with TensorFlow's profiler and lists what it wrote.

    python 03_profiler.py [LOGDIR]

Without LOGDIR the trace goes to a temporary folder, which is removed at the end.
"""

import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

BATCH = 64

keras.utils.set_random_seed(1)


def build():
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def profile(model, x, y, logdir):
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)  # The first epoch traces the graph and is not profiled.
    tf.profiler.experimental.start(logdir)
    try:
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    finally:
        tf.profiler.experimental.stop()


def main(logdir):
    random = np.random.default_rng(1)
    x = random.standard_normal((8 * BATCH, 28, 28, 1), dtype=np.float32)
    y = random.integers(0, 10, 8 * BATCH)
    profile(build(), x, y, logdir)
    # The folder is named after the time and the file after the host. Neither is printed.
    traces = list(Path(logdir).glob("plugins/profile/*/*.xplane.pb"))
    print(f"traces written: {len(traces)}")
    print(f"the newest holds something: {bool(traces) and max(traces).stat().st_size > 0}")
    print("view it: tensorboard --logdir LOGDIR, tab Profile")


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
