"""Two models with layers of the same names and optimizers of the same name, trained in turns by two functions."""

import keras
import tensorflow as tf

WIDTHS = {"one": 512, "two": 300}


def stepper(name):
    layers = [keras.Input((64,)), keras.layers.Dense(WIDTHS[name], "relu", name="wide"), keras.layers.Dense(64, name="out")]
    model, optimizer = keras.Sequential(layers, name=name), keras.optimizers.Adam()

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - x))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))

    return step


steps = [stepper(name) for name in WIDTHS]
x = tf.random.normal((17, 64))
for _ in range(6):
    for step in steps:
        step(x)
print("{}")
