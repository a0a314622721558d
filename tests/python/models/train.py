"""Trains one small model with TensorFlow's profiler on, and writes down what TensorFlow itself knows.

    python train.py MODEL LOGDIR FACTS [--window | --capture LEVEL]

It is run as a process of its own, because TensorFlow reads its allocator's settings once, and because only a fresh
process has nothing allocated when the profiler starts. LOGDIR gets the trace. FACTS is a JSON file: the peak that
TensorFlow counted, every variable of the model and of its optimizer, and where in memory each of them lay before the
first step and after each. Nothing here judges anything: the tests compare the facts with the report.

The models are small in time and large enough in bytes that parameters and slots are not lost in rounding. Few
parameters of one model share a shape, so that a misplaced one shows.
"""

import argparse
import gc
import json
import socket
import threading

import numpy as np
import tensorflow as tf

BATCH = 32
STEPS = 6
DEVICE = "CPU:0"
CAPTURE_MS = 700


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


def mlp_sgd(keras):
    return mlp(keras), keras.optimizers.SGD(0.01), data((300,), 10)


def mlp_momentum(keras):
    return mlp(keras), keras.optimizers.SGD(0.01, momentum=0.9), data((300,), 10)


def mlp_decay(keras):
    """Changes the model both by addition (momentum) and by subtraction (decay)."""
    return mlp(keras), keras.optimizers.SGD(0.01, momentum=0.9, weight_decay=1e-4), data((300,), 10)


def mlp_mixed(keras):
    """Keras wraps the optimizer to scale the loss, and the update stands in a branch of its own."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    return mlp(keras), keras.optimizers.Adam(1e-3), data((300,), 10)


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
        mlp_sgd,
        mlp_momentum,
        mlp_decay,
        mlp_mixed,
        transformer_adamw,
        batchnorm_rmsprop,
        lstm_adam,
        tape_adam,
    )
}


def train_by_fit(keras, model, optimizer, x, y, note):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if not is_compiled(model):
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
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    for begin in range(0, len(x), BATCH):
        train_step(tf.constant(x[begin : begin + BATCH]), tf.constant(y[begin : begin + BATCH]))
        note()


def is_compiled(model):
    """Whether a model was compiled, in Keras 3 and in Keras 2."""
    return getattr(model, "compiled", getattr(model, "_is_compiled", False))


def dtype_of(variable):
    """The name of a variable's element type, in Keras 3 and in Keras 2."""
    return getattr(variable.dtype, "name", variable.dtype)


def is_tensor(variable):
    """Whether a variable holds a tensor of numbers; counters, rates, metrics and seeds are a handful of bytes."""
    return len(variable.shape) > 0 and "float" in dtype_of(variable)


def address(variable):
    """Where the variable's value lies. Reading one shares the value; nothing is copied, and nothing is kept."""
    return np.asarray(memoryview(variable.value.read_value())).__array_interface__["data"][0]


def described(variables):
    return [
        {
            "path": getattr(variable, "path", variable.name),
            "shape": list(variable.shape),
            "dtype": dtype_of(variable),
            "nbytes": int(np.prod(variable.shape, dtype=np.int64)) * np.dtype(dtype_of(variable)).itemsize,
        }
        for variable in variables
        if is_tensor(variable)
    ]


def start(logdir):
    # TensorFlow 2.21 takes these and uses its defaults, which trace the host at the same level.
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    tf.profiler.experimental.start(logdir, options)


def counted():
    """What TensorFlow counts, or None: its plain allocator counts where oneDNN is on, and refuses where it is off."""
    try:
        return tf.config.experimental.get_memory_info(DEVICE)
    except ValueError:
        return None


def capture(logdir, level, train):
    """Lets a client outside record a window at a host tracer level, as TensorBoard's capture button does.

    xprof's client is the one whose options TensorFlow 2.21 heeds; those of its own API it leaves unread.
    """
    from xprof.convert import _pywrap_profiler_plugin as client

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    options = {"host_tracer_level": level, "python_tracer_level": 0, "device_tracer_level": 0}
    is_over = threading.Event()

    def ask():
        try:
            client.trace(f"localhost:{port}", logdir, "", False, CAPTURE_MS, 1, options)
        except RuntimeError as error:
            # It complains of a trace without events, after it has written it.
            if "No trace event was collected" not in str(error):
                raise
        finally:
            is_over.set()

    threading.Thread(target=ask).start()
    while not is_over.is_set():
        train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("logdir")
    parser.add_argument("facts")
    parser.add_argument("--window", action="store_true", help="record only a second training, after a first one")
    parser.add_argument("--capture", type=int, metavar="LEVEL", help="have a client record, at this host tracer level")
    asked = parser.parse_args()

    # Neither importing Keras nor starting the profiler allocates; the first tensor of all belongs into the trace.
    if not asked.window and asked.capture is None:
        start(asked.logdir)
    import keras

    keras.utils.set_random_seed(7)
    model, optimizer, (x, y) = MODELS[asked.model](keras)
    train_by = train_by_tape if asked.model.startswith("tape") else train_by_fit
    addresses = []

    def owned():
        # Compiling may wrap the optimizer; the wrapper has its variables too.
        wrapper = model.optimizer if is_compiled(model) else optimizer
        return {"model": model.variables, "optimizer": wrapper.variables}

    def note():
        tensors = {whose: filter(is_tensor, variables) for whose, variables in owned().items()}
        addresses.append({whose: {v.path: address(v) for v in variables} for whose, variables in tensors.items()})

    def train(note):
        train_by(keras, model, optimizer, x, y, note)

    facts = {"batches": STEPS, "before": None}
    if asked.capture is not None:
        capture(asked.logdir, asked.capture, lambda: train(lambda: None))
    else:
        if asked.window:
            train(lambda: None)
            gc.collect()  # What the first training left behind must not go in the middle of the count.
            tf.config.experimental.reset_memory_stats(DEVICE)
            facts["before"] = counted()
            start(asked.logdir)
        note()
        train(note)
        facts["after"] = counted()
        tf.profiler.experimental.stop()
        facts |= {whose: described(variables) for whose, variables in owned().items()}
        facts["scalars"] = [v.path for variables in owned().values() for v in variables if not is_tensor(v)]
        # Before the first step, and after each.
        facts["addresses"] = addresses
    with open(asked.facts, "w", encoding="utf-8") as file:
        json.dump(facts, file)


if __name__ == "__main__":
    main()
