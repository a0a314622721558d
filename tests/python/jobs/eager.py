"""Two models with the same names, trained by a loop without a graph that adds up gradients, in steps that the program announces itself.

The last line is JSON: the peak that TensorFlow counted, the number of steps, and the bytes of each model's kernels.
"""

import json

import keras
import tensorflow as tf

import vramline

STEPS, WIDTHS = 6, {"net": 1500, "net (2)": 700}


def net(width):
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(width, "relu", name="wide"), keras.layers.Dense(64, name="out")], name="net")


models = [net(width) for width in WIDTHS.values()]
optimizers = [keras.optimizers.SGD(0.01, momentum=0.9) for _ in models]
x = tf.random.normal((400, 64))
with vramline.record("own.vram", step_peaks=False) as rec:
    for number in range(STEPS):
        with rec.step(number):
            for model, optimizer in zip(models, optimizers, strict=True):
                sums = None
                for part in (x[:200], x[200:]):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.square(model(part, training=True) - part))
                    gradients = tape.gradient(loss, model.trainable_variables)
                    sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
                optimizer.apply_gradients(zip(sums, model.trainable_variables, strict=True))

kernels = {f"{name}/{layer}": 4 * 64 * width for name, width in WIDTHS.items() for layer in ("wide", "out")}
peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
print(json.dumps({"peak": peak, "steps": STEPS, "kernels": kernels, "data": 4 * 400 * 64}))
