"""Trains one small model with TensorFlow's profiler on, and writes down what TensorFlow itself knows.

    python train.py MODEL LOGDIR FACTS [--host-tracer-level N] [--window]

It is run as a process of its own, because TensorFlow reads its allocator's settings once, and because only a fresh
process has nothing allocated when the profiler starts. LOGDIR gets the trace, FACTS a JSON file with the peak that
TensorFlow counted and with every variable of the model and of its optimizer. Nothing here judges anything: the tests
compare the facts with the report.

The models are small in time and large enough in bytes that parameters and slots are not lost in rounding. No two
parameters of different use share a shape where that can be had, so that a misplaced one shows in the sums.
"""

import argparse
import json

import numpy as np
import tensorflow as tf

BATCH = 32
STEPS = 6
DEVICE = "CPU:0"


def data(shape, classes):
    """STEPS whole batches of noise: the training needs numbers, not a success."""
    random = np.random.default_rng(7)
    x = random.standard_normal((BATCH * STEPS, *shape), dtype=np.float32)
    return x, random.integers(0, classes, BATCH * STEPS)


def cnn_adam(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 3)),
            layers.Conv2D(24, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(48, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    return model, keras.optimizers.Adam(1e-3), data((28, 28, 3), 10)


def mlp(keras):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((300,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def mlp_momentum(keras):
    return mlp(keras), keras.optimizers.SGD(0.01, momentum=0.9), data((300,), 10)


def mlp_sgd(keras):
    return mlp(keras), keras.optimizers.SGD(0.01), data((300,), 10)


def transformer_adamw(keras):
    layers = keras.layers
    tokens = keras.Input((24,), dtype="int32")
    x = layers.Embedding(500, 64)(tokens)
    attended = layers.MultiHeadAttention(num_heads=4, key_dim=16, dropout=0.1)(x, x)
    x = layers.LayerNormalization()(x + attended)
    hidden = layers.Dense(160, activation="gelu")(x)
    x = layers.LayerNormalization()(x + layers.Dense(64)(hidden))
    model = keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
    random = np.random.default_rng(7)
    x = random.integers(0, 500, (BATCH * STEPS, 24), dtype=np.int32)
    return model, keras.optimizers.AdamW(1e-3), (x, random.integers(0, 10, BATCH * STEPS))


def batchnorm_rmsprop(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((20, 20, 3)),
            layers.Conv2D(32, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(40, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    return model, keras.optimizers.RMSprop(1e-3), data((20, 20, 3), 10)


def lstm_adam(keras):
    layers = keras.layers
    model = keras.Sequential([keras.Input((16, 24)), layers.LSTM(48), layers.Dense(10)])
    return model, keras.optimizers.Adam(1e-3), data((16, 24), 10)


def tape_adam(keras):
    """Trained by a loop of its own, see `train_by_tape`."""
    return mlp(keras), keras.optimizers.Adam(1e-3), data((300,), 10)


MODELS = {
    build.__name__: build
    for build in (
        cnn_adam,
        mlp_momentum,
        mlp_sgd,
        transformer_adamw,
        batchnorm_rmsprop,
        lstm_adam,
        tape_adam,
    )
}


def train_by_fit(keras, model, optimizer, x, y, note):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if not model.compiled:
        model.compile(optimizer, loss)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: note())
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, callbacks=[callback])


def train_by_tape(keras, model, optimizer, x, y, note):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return value

    for begin in range(0, len(x), BATCH):
        train_step(tf.constant(x[begin : begin + BATCH]), tf.constant(y[begin : begin + BATCH]))
        note()


def tensors(of):
    """The variables that hold tensors of numbers; counters, rates, metrics and seeds are a handful of bytes."""
    return [variable for variable in of if len(variable.shape) > 0 and "float" in variable.dtype]


def address(variable):
    """Where the variable's value lies. Reading one shares the value; nothing is copied, and nothing is kept."""
    return np.asarray(memoryview(variable.value.read_value())).__array_interface__["data"][0]


def described(of):
    return [
        {
            "path": variable.path,
            "shape": list(variable.shape),
            "dtype": variable.dtype,
            "nbytes": int(np.prod(variable.shape, dtype=np.int64)) * np.dtype(variable.dtype).itemsize,
        }
        for variable in tensors(of)
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("logdir")
    parser.add_argument("facts")
    parser.add_argument("--host-tracer-level", type=int, default=2)
    parser.add_argument("--window", action="store_true", help="record only a second training, after a first one")
    asked = parser.parse_args()

    def start():
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=asked.host_tracer_level, python_tracer_level=0, device_tracer_level=0
        )
        tf.profiler.experimental.start(asked.logdir, options)

    # Neither importing Keras nor starting the profiler allocates; the first tensor of all belongs into the trace.
    if not asked.window:
        start()
    import keras

    keras.utils.set_random_seed(7)
    model, optimizer, (x, y) = MODELS[asked.model](keras)
    train = train_by_tape if asked.model.startswith("tape") else train_by_fit
    before = None
    if asked.window:
        train(keras, model, optimizer, x, y, lambda: None)
        tf.config.experimental.reset_memory_stats(DEVICE)
        before = tf.config.experimental.get_memory_info(DEVICE)
        start()

    addresses = []

    def note():
        lists = {"model": model.variables, "optimizer": optimizer.variables}
        addresses.append({whose: {v.path: address(v) for v in tensors(of)} for whose, of in lists.items()})

    note()
    train(keras, model, optimizer, x, y, note)
    after = tf.config.experimental.get_memory_info(DEVICE)
    tf.profiler.experimental.stop()
    facts = {
        "batches": STEPS,
        "before": before,
        "after": after,
        "model": described(model.variables),
        "optimizer": described(optimizer.variables),
        # Before the first step, and after each.
        "addresses": addresses,
    }
    with open(asked.facts, "w", encoding="utf-8") as file:
        json.dump(facts, file)


if __name__ == "__main__":
    main()
