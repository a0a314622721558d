"""Trains a model whose memory is in its activations, at a batch of 256, and writes down how that went.

    python within.py direct|within|wrong|recorded|reset|custom|build SEED FACTS [LIMIT]

`direct` is Keras' own `fit`; `within` is `fit_within`; `wrong` gives it a plan that promises too much; `recorded` records
and validates in small batches; in `reset` a callback takes much for a moment and another resets the peak then; `custom` has a layer that no other
process knows, and `build` tells how it is made.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

# As a probe imports it, its own arguments stand there.
how = sys.argv[1] if __name__ == "__main__" else "build"
BATCH, EPOCHS, ROWS = 256, 4, 1024


class Tanh(keras.layers.Layer):
    def call(self, inputs):
        return keras.ops.tanh(inputs)


def build():
    layers = keras.layers
    rate = keras.optimizers.schedules.ExponentialDecay(3e-3, decay_steps=4, decay_rate=0.8)
    model = keras.Sequential([keras.Input((48,)), layers.Dense(6000)])
    for _ in range(4):
        model.add(Tanh() if how in ("custom", "build") else layers.Activation("tanh"))
        model.add(layers.Rescaling(0.9))
    model.add(layers.Dense(10))
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Takes(keras.callbacks.Callback):
    seen = None

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            tf.zeros((60 << 18,)).numpy()
            self.seen = tf.config.experimental.get_memory_info("CPU:0")["peak"]


class Resets(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        tf.config.experimental.reset_memory_stats("CPU:0")


if __name__ == "__main__":
    seed, path = int(sys.argv[2]), sys.argv[3]
    keras.utils.set_random_seed(seed)
    model = build()
    random = np.random.default_rng(3)
    # What is to be learned does not depend on the seed.
    x = random.standard_normal((ROWS + 77, 48)).astype("float32")
    y = (x @ random.standard_normal((48, 10))).argmax(axis=1)
    facts = {"failed": None}
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "shuffle": False, "validation_data": (x[:100], y[:100])}
    try:
        if how == "direct":
            history = model.fit(x, y, verbose=0, **settings)
        else:
            import vramline.keras

            limit = sys.argv[4]
            plan = None
            if how in ("wrong", "recorded", "reset"):
                largest = BATCH if how == "wrong" else 64
                sure = {"sure": largest, "likely": largest}
                plan = {"kind": "plan", "limit_bytes": 30 << 20, "largest_batch": sure}
                plan |= {"predictions": [], "certain": True, "warnings": [], "verdict": ""}
            if how == "recorded":
                settings |= {"record": path.replace(".json", ".vram"), "validation_batch_size": 4}
            takes = Takes()
            if how == "reset":
                settings["callbacks"] = [takes, Resets()]
            told = build if how == "build" else None
            settings["confirm"] = 1
            history = vramline.keras.fit_within(model, x, y, limit=limit, plan=plan, build=told, verbose=2, **settings)
            facts["within"] = {name: value for name, value in vars(history.within).items() if name != "plan"}
            facts["seen"] = takes.seen
        facts["history"] = history.history
    except (tf.errors.ResourceExhaustedError, MemoryError, RuntimeError) as error:
        facts["failed"] = type(error).__name__
        facts["text"] = str(error)[:1000]
    facts["iterations"] = int(model.optimizer.iterations)
    facts["states"] = len(model.optimizer.variables)
    facts["memory"] = tf.config.experimental.get_memory_info("CPU:0")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(facts, file)
