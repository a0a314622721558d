"""Keras models of different build, trained as people train them: kinds.py NAME. Afterwards the model tells what it is made of.

The last line is JSON: for each layer the bytes of its own variables and of its slots in the optimizers, and the sizes of everything that
went in and came out of it.
"""

import json
import sys
from collections import Counter, defaultdict

import keras
import numpy as np
import tensorflow as tf
from keras import layers

RANDOM = np.random.default_rng(7)


def noise(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def sequential():
    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            layers.Conv2D(16, 3, activation="relu", padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu", padding="same"),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(noise(96, 64, 64, 3), RANDOM.integers(0, 10, 96), batch_size=16, verbose=0)
    return model, [(model, noise(16, 64, 64, 3))]


def two_inputs():
    image, table = keras.Input((32, 32, 3), name="image"), keras.Input((40,), name="table")
    x = layers.Conv2D(24, 3, padding="same", name="stem")(image)
    y = layers.Conv2D(24, 3, padding="same", name="res_a")(x)
    y = layers.ReLU(name="act")(y)
    y = layers.Conv2D(24, 3, padding="same", name="res_b")(y)
    x = layers.Add(name="join")([x, y])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    t = layers.Dense(256, activation="relu", name="table_in")(table)
    x = layers.Concatenate(name="both")([x, t])
    model = keras.Model([image, table], layers.Dense(1, name="out")(x))
    model.compile(keras.optimizers.RMSprop(), "mse")
    model.fit([noise(128, 32, 32, 3), noise(128, 40)], noise(128, 1), batch_size=32, epochs=2, verbose=0)
    return model, [(model, [noise(32, 32, 32, 3), noise(32, 40)])]


class Block(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization()
        self.up, self.down = layers.Dense(4 * width, activation="relu"), layers.Dense(width)

    def call(self, x):
        return x + self.down(self.up(self.norm(x)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(5000, 64)
        self.blocks = [Block(64) for _ in range(3)]
        self.head = layers.Dense(5000)

    def call(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def subclassed(batches=4):
    """Nothing of the model is there before its first step."""
    model = Subclassed()
    model.compile(keras.optimizers.AdamW(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = RANDOM.integers(0, 5000, (8 * batches, 64))
    model.fit(ids, ids, batch_size=8, verbose=0)
    return model, [(model, ids[:8])]


def first_step():
    """The step that builds the model is the only one, and so has the peak."""
    return subclassed(batches=1)


def encoder(name):
    into = keras.Input((128,))
    x = layers.Dense(512, activation="relu", name="wide")(into)
    return keras.Model(into, layers.Dense(64, name="narrow")(x), name=name)


def nested():
    into = keras.Input((128,))
    x = layers.Concatenate()([encoder("left")(into), encoder("right")(into)])
    x = keras.Sequential([layers.Dense(300, activation="relu"), layers.Dense(128)], name="decoder")(x)
    model = keras.Model(into, x, name="auto")
    model.compile("adam", "mse")
    x = noise(512, 128)
    model.fit(x, x, batch_size=128, epochs=2, verbose=0)
    return model, [(model, x[:128])]


def shared():
    one, two = keras.Input((200,)), keras.Input((200,))
    tower, norm = layers.Dense(400, activation="tanh", name="tower"), layers.LayerNormalization(name="norm")
    x = layers.Subtract(name="distance")([norm(tower(one)), norm(tower(two))])
    model = keras.Model([one, two], layers.Dense(1, name="score")(x))
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    model.fit([noise(512, 200), noise(512, 200)], noise(512, 1), batch_size=128, epochs=2, verbose=0)
    return model, [(model, [noise(128, 200), noise(128, 200)])]


def recurrent():
    model = keras.Sequential(
        [
            keras.Input((20,), dtype="int32"),
            layers.Embedding(2000, 64),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.GRU(48),
            layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    ids = RANDOM.integers(0, 2000, (128, 20))
    model.fit(ids, noise(128, 1), batch_size=32, epochs=2, verbose=0)
    return model, [(model, ids[:32])]


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(700, activation="relu"), layers.Dense(100)

    def call(self, x):
        return self.second(self.first(x))

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def own_step():
    model = OwnStep()
    model.compile(keras.optimizers.Adam())
    model.fit(noise(512, 100), noise(512, 100), batch_size=128, epochs=2, verbose=0)
    return model, [(model, noise(128, 100))]


class TwoOptimizers(keras.Model):
    def __init__(self):
        super().__init__()
        self.make = keras.Sequential([layers.Dense(256, activation="relu"), layers.Dense(784)], name="make")
        self.judge = keras.Sequential([layers.Dense(300, activation="relu"), layers.Dense(1)], name="judge")

    def compile(self, of_make, of_judge):
        super().compile()
        self.of_make, self.of_judge = of_make, of_judge

    def call(self, x):
        return self.judge(self.make(x))

    def train_step(self, real):
        seed = tf.random.normal((tf.shape(real)[0], 64))
        for part, optimizer, sign in ((self.judge, self.of_judge, 1), (self.make, self.of_make, -1)):
            with tf.GradientTape() as tape:
                loss = sign * tf.reduce_mean(self.judge(tf.concat([self.make(seed), real], 0)))
            gradients = tape.gradient(loss, part.trainable_variables)
            optimizer.apply_gradients(zip(gradients, part.trainable_variables, strict=True))
        return {"loss": loss}


def two_optimizers():
    model = TwoOptimizers()
    model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.RMSprop(1e-3))
    model.fit(noise(512, 784), batch_size=128, epochs=2, verbose=0)
    return model, [(model, noise(128, 64)), (model.judge, noise(256, 784))]


class Tower(keras.Model):
    def __init__(self):
        super().__init__()
        self.wide = [layers.Dense(500, activation="relu") for _ in range(3)]
        self.norm, self.out = layers.LayerNormalization(), layers.Dense(40)

    def call(self, x):
        for layer in self.wide:
            x = layer(x)
        return self.out(self.norm(x))


def descend(model, optimizer, x, y):
    """A step of a loop of one's own."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))


def loop(step=descend, steps=6):
    """A loop without a graph. Its first step builds the model."""
    model = Tower()
    model.of_loop = keras.optimizers.Adam(1e-3)
    x, y = tf.constant(noise(256, 300)), tf.constant(noise(256, 40))
    for _ in range(steps):
        step(model, model.of_loop, x, y)
    return model, [(model, x)]


def first_tape():
    """Only the first step of that loop."""
    return loop(steps=1)


def compiled_loop():
    """The same loop, compiled."""
    return loop(tf.function(descend))


KINDS = [sequential, two_inputs, subclassed, nested, shared, recurrent, own_step, two_optimizers]
# Those whose model is built in the first step of a loop of one's own, or whose peak is in the step that builds it.
LATE = [first_step, loop, first_tape, compiled_loop]


def size(value):
    return int(np.prod(value.shape)) * tf.as_dtype(value.dtype).size


def tree(model):
    """Every layer with its path."""
    todo, seen = [(model, ())], set()
    while todo:
        layer, path = todo.pop(0)
        if id(layer) not in seen:
            seen.add(id(layer))
            yield layer, "/".join(path) or model.name
            todo += [(inner, (*path, inner.name)) for inner in layer._layers]


def truth(model, calls):
    """What the objects themselves say."""
    peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    paths = {id(layer): path for layer, path in tree(model)}
    own, of_variable, begin_as_zeros = Counter(), {}, set()
    for layer, path in tree(model):
        for variable in [*layer._trainable_variables, *layer._non_trainable_variables]:
            own[path] += size(variable)
            of_variable[id(variable)] = path
            if variable.name in ("bias", "beta", "moving_mean"):
                begin_as_zeros.add(tuple(variable.shape))
    slots, shapes = Counter(), {}
    optimizers = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    for optimizer in {id(each): each for each in optimizers}.values():
        weights = optimizer._trainable_variables
        for variable in optimizer.variables:
            # The lists of slots are in the order of the weights.
            for slots_of_kind in vars(optimizer).values():
                if isinstance(slots_of_kind, list) and len(slots_of_kind) == len(weights):
                    for weight, slot in zip(weights, slots_of_kind, strict=True):
                        if slot is variable and slot is not weight:
                            slots[of_variable[id(weight)]] += size(slot)
                            shapes[tuple(slot.shape)] = size(slot)
    passed = defaultdict(set)
    call = keras.layers.Layer.__call__

    def taped(self, *args, **kwargs):
        result = call(self, *args, **kwargs)
        path = paths.get(id(self))
        values = tf.nest.flatten([args, kwargs, result])
        passed[path].update(size(value) for value in values if tf.is_tensor(value))
        return result

    keras.layers.Layer.__call__ = taped
    for each, taken in calls:
        # Traced and not run: a call would need memory, and be in the recording.
        tf.function(lambda each=each, taken=taken: each(taken, training=True)).get_concrete_function()
    keras.layers.Layer.__call__ = call
    return {
        "model": model.name,
        "peak": peak,
        "layers": sorted(paths.values()),
        "own": own,
        "slots": slots,
        # Those of one shape share a value as long as it is the first. They share it with parameters that begin as zeros, too.
        "least_slots": sum(bytes for shape, bytes in shapes.items() if shape not in begin_as_zeros),
        "scalars": sum(size(variable) for variable in model.variables) - sum(own.values()),
        "passed": {path: sorted(sizes) for path, sizes in passed.items() if path},
    }


if __name__ == "__main__":
    kind = next(kind for kind in [*KINDS, *LATE] if kind.__name__ == sys.argv[1])
    print(json.dumps(truth(*kind())))
