"""Trains one of the models on which the answers of `vramline plan` are tested, for a few steps, at any batch size.

    python further.py MODEL --batch N [--steps N]

The models were chosen before a plan was made of any of them, and nothing in the planner is fitted to them: benches/sure.py compares what
`plan` calls sure with real runs of them. Some have kernels whose scratch memory depends on the size (convolutions over three dimensions or
with large filters, attention, sorting), some have many branches, so that threads order their ops differently each time.

The last line is JSON, as that of planned.py. Exit code 9 is out of memory.
"""

import argparse
import json
import os
import sys

import numpy as np

OUT_OF_MEMORY = 9
STEPS = 4
# Rows of the data set, which repeats.
ROWS = 256


def noise(random, *shape):
    return random.standard_normal(shape, dtype=np.float32)


def classified(keras, model, optimizer):
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def volume_unet(keras, random):
    """Segments volumes: convolutions over three dimensions, with skips."""
    layers = keras.layers
    inputs = x = keras.Input((12, 20, 20, 2))
    x = skip = layers.Conv3D(10, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling3D()(x)
    x = layers.Conv3D(20, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling3D()(x)
    x = layers.Conv3D(10, 3, padding="same", activation="relu")(layers.Concatenate()([x, skip]))
    model = keras.Model(inputs, layers.Conv3D(1, 1)(x))
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    x = noise(random, ROWS, 12, 20, 20, 2)
    return model, x, x[..., :1].copy()


def large_filters(keras, random):
    """Filters of 11 and 7 pixels: their matrix of patches is large."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((56, 56, 3)),
            layers.Conv2D(20, 11, 2, padding="same", activation="relu"),
            layers.Conv2D(24, 7, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(40, 5, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(15),
        ]
    )
    return classified(keras, model, keras.optimizers.SGD(0.01, 0.9)), noise(random, ROWS, 56, 56, 3), random.integers(0, 15, ROWS)


def long_attention(keras, random):
    """Attention over 160 places: most of the memory grows with their square."""
    layers = keras.layers
    inputs = x = keras.Input((160, 24))
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(3, 8)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(24)(layers.Dense(64, activation="relu")(x)))
    model = keras.Model(inputs, layers.Dense(9)(x[:, 0]))
    return classified(keras, model, keras.optimizers.AdamW(1e-3)), noise(random, ROWS, 160, 24), random.integers(0, 9, ROWS)


def conv_lstm(keras, random):
    """Predicts frames: a recurrent layer of convolutions."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 24, 24, 2)),
            layers.ConvLSTM2D(8, 3, padding="same", return_sequences=True),
            layers.ConvLSTM2D(6, 3, padding="same"),
            layers.Conv2D(1, 3, padding="same"),
        ]
    )
    model.compile(keras.optimizers.RMSprop(1e-3), "mse")
    return model, noise(random, ROWS, 6, 24, 24, 2), noise(random, ROWS, 24, 24, 1)


def wavenet(keras, random):
    """Gated convolutions over a long signal, ever further apart."""
    layers = keras.layers
    inputs = keras.Input((384, 4))
    x, kept = layers.Conv1D(20, 2, padding="causal")(inputs), []
    for distance in (1, 2, 4, 8):
        tanh = layers.Conv1D(20, 2, padding="causal", dilation_rate=distance, activation="tanh")(x)
        gate = layers.Conv1D(20, 2, padding="causal", dilation_rate=distance, activation="sigmoid")(x)
        made = layers.Multiply()([tanh, gate])
        kept.append(layers.Conv1D(20, 1)(made))
        x = x + layers.Conv1D(20, 1)(made)
    x = layers.ReLU()(layers.Add()(kept))
    model = keras.Model(inputs, layers.Conv1D(4, 1)(x))
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    x = noise(random, ROWS, 384, 4)
    return model, x, x.copy()


def squeeze(keras, random):
    """Blocks with squeeze and excitation."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(24, 3, padding="same")(inputs)
    for width, stride in ((24, 1), (40, 2), (64, 2)):
        short = layers.Conv2D(width, 1, stride)(x)
        y = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(width, 3, stride, padding="same")(x)))
        y = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(y))
        weights = layers.Dense(width, activation="sigmoid")(layers.Dense(8, activation="relu")(layers.GlobalAveragePooling2D()(y)))
        x = layers.ReLU()(short + y * layers.Reshape((1, 1, width))(weights))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalMaxPooling2D()(x)))
    return classified(keras, model, keras.optimizers.SGD(0.05, 0.9, nesterov=True)), noise(random, ROWS, 32, 32, 3), random.integers(0, 10, ROWS)


def inception(keras, random):
    """Many branches side by side: threads order them differently each time."""
    layers = keras.layers
    inputs = keras.Input((28, 28, 3))
    x = layers.Conv2D(24, 3, padding="same", activation="relu")(inputs)
    for _ in range(3):
        one = layers.Conv2D(16, 1, activation="relu")(x)
        three = layers.Conv2D(24, 3, padding="same", activation="relu")(layers.Conv2D(12, 1, activation="relu")(x))
        five = layers.Conv2D(12, 5, padding="same", activation="relu")(layers.Conv2D(8, 1, activation="relu")(x))
        pooled = layers.Conv2D(12, 1, activation="relu")(layers.MaxPooling2D(3, 1, padding="same")(x))
        x = layers.Concatenate()([one, three, five, pooled])
    model = keras.Model(inputs, layers.Dense(30)(layers.GlobalAveragePooling2D()(x)))
    return classified(keras, model, keras.optimizers.Adam(1e-3)), noise(random, ROWS, 28, 28, 3), random.integers(0, 30, ROWS)


def tabular(keras, random):
    """Categories and figures of a table: embeddings, crosses, wide layers."""
    layers = keras.layers
    categories, figures = keras.Input((12,), dtype="int32"), keras.Input((20,))
    first = x = layers.Concatenate()([layers.Flatten()(layers.Embedding(4000, 16)(categories)), figures])
    for _ in range(3):
        x = first * layers.Dense(212)(x) + x
    deep = layers.Dense(256, activation="relu")(layers.Dense(384, activation="relu")(first))
    model = keras.Model([categories, figures], layers.Dense(1)(layers.Concatenate()([x, deep])))
    model.compile(keras.optimizers.Adagrad(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    x = (random.integers(0, 4000, (ROWS, 12), dtype=np.int32), noise(random, ROWS, 20))
    return model, x, random.integers(0, 2, (ROWS, 1)).astype(np.float32)


def graph(keras, random):
    """Messages along the edges of graphs of 48 nodes, given as matrices."""
    layers = keras.layers
    nodes, edges = keras.Input((48, 16)), keras.Input((48, 48))
    x = layers.Dense(48)(nodes)
    for _ in range(4):
        x = layers.LayerNormalization()(x + layers.Dense(48, activation="gelu")(keras.ops.matmul(edges, layers.Dense(48)(x))))
    model = keras.Model([nodes, edges], layers.Dense(6)(keras.ops.max(x, axis=1)))
    x = (noise(random, ROWS, 48, 16), (random.random((ROWS, 48, 48)) < 0.1).astype(np.float32))
    return classified(keras, model, keras.optimizers.RMSprop(1e-3)), x, random.integers(0, 6, ROWS)


def pooled_by_rank(keras, random):
    """Keeps the largest values of each channel: sorting."""
    layers, ops = keras.layers, keras.ops
    inputs = keras.Input((256, 8))
    x = layers.Dense(32, activation="relu")(inputs)
    x = ops.transpose(ops.top_k(ops.transpose(x, (0, 2, 1)), 64)[0], (0, 2, 1))
    x = layers.Dense(48, activation="relu")(x)
    x = ops.sort(x, axis=1)[:, -16:]
    model = keras.Model(inputs, layers.Dense(5)(layers.Flatten()(x)))
    return classified(keras, model, keras.optimizers.Adam(1e-3)), noise(random, ROWS, 256, 8), random.integers(0, 5, ROWS)


def upscale(keras, random):
    """Enlarges images: transposed convolutions."""
    layers = keras.layers
    inputs = keras.Input((20, 20, 3))
    x = layers.Conv2D(24, 5, padding="same", activation="relu")(inputs)
    for _ in range(3):
        x = x + layers.Conv2D(24, 3, padding="same")(layers.PReLU(shared_axes=[1, 2])(x))
    x = layers.Conv2DTranspose(16, 4, 2, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x))
    model.compile(keras.optimizers.Adam(1e-3), "mae")
    return model, noise(random, ROWS, 20, 20, 3), noise(random, ROWS, 40, 40, 3)


def triplets(keras, random):
    """Learns distances: the same network three times in a step, in a loop of its own."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64),
        ]
    )
    return model, tuple(noise(random, ROWS, 28, 28, 1) for _ in range(3)), None


def train_triplets(tf, keras, model, data, steps):
    optimizer = keras.optimizers.Adam(1e-3)

    @tf.function
    def step(anchor, near, far):
        with tf.GradientTape() as tape:
            first, second, third = (tf.math.l2_normalize(model(x, training=True), 1) for x in (anchor, near, far))
            closer = tf.reduce_sum((first - second) ** 2, 1) - tf.reduce_sum((first - third) ** 2, 1)
            loss = tf.reduce_mean(tf.nn.relu(closer + 0.5))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for batch in data.take(steps):
        step(*batch)


def points(keras, random):
    """Classifies clouds of points: the same layers for every point, then the largest of each channel."""
    layers = keras.layers
    inputs = keras.Input((192, 3))
    x = layers.Dense(40, activation="relu")(inputs)
    whole = layers.GlobalMaxPooling1D()(layers.Dense(64)(x))
    x = layers.Concatenate()([x, layers.Dense(40)(layers.RepeatVector(192)(whole))])
    x = layers.BatchNormalization()(layers.Dense(96, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(8)(layers.GlobalMaxPooling1D()(x)))
    return classified(keras, model, keras.optimizers.Nadam(1e-3)), noise(random, ROWS, 192, 3), random.integers(0, 8, ROWS)


def gru_tagger(keras, random):
    """Names each word of a sentence: recurrent layers in both directions."""
    layers = keras.layers
    inputs = keras.Input((24,), dtype="int32")
    x = layers.Embedding(3000, 48)(inputs)
    for _ in range(2):
        x = layers.Bidirectional(layers.GRU(32, return_sequences=True))(x)
    model = keras.Model(inputs, layers.Dense(17)(x))
    return classified(keras, model, keras.optimizers.Adam(1e-3)), random.integers(0, 3000, (ROWS, 24), dtype=np.int32), random.integers(0, 17, (ROWS, 24))


def separable_text(keras, random):
    """Convolutions over words, each channel on its own, at several widths."""
    layers = keras.layers
    inputs = keras.Input((120,), dtype="int32")
    x = layers.SpatialDropout1D(0.1)(layers.Embedding(5000, 40)(inputs))
    found = [layers.GlobalMaxPooling1D()(layers.SeparableConv1D(56, width, padding="same", activation="relu")(x)) for width in (3, 5, 9)]
    model = keras.Model(inputs, layers.Dense(12)(layers.Dropout(0.3)(layers.Concatenate()(found))))
    return classified(keras, model, keras.optimizers.Adamax(1e-3)), random.integers(0, 5000, (ROWS, 120), dtype=np.int32), random.integers(0, 12, ROWS)


def variational(keras, random):
    """Draws from what it learns: an autoencoder with noise and a loss of its own."""
    layers, ops = keras.layers, keras.ops

    class Drawn(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seed = keras.random.SeedGenerator(5)

        def call(self, told):
            mean, spread = told
            self.add_loss(0.01 * ops.mean(ops.exp(spread) + mean**2 - spread - 1))
            return mean + ops.exp(spread / 2) * keras.random.normal(ops.shape(mean), seed=self.seed)

    inputs = keras.Input((32, 32, 1))
    x = layers.Conv2D(16, 3, 2, padding="same", activation="elu")(inputs)
    x = layers.Flatten()(layers.Conv2D(24, 3, 2, padding="same", activation="elu")(x))
    x = Drawn()([layers.Dense(24)(x), layers.Dense(24)(x)])
    x = layers.Reshape((8, 8, 24))(layers.Dense(8 * 8 * 24, activation="elu")(x))
    x = layers.Conv2DTranspose(16, 3, 2, padding="same", activation="elu")(x)
    model = keras.Model(inputs, layers.Conv2DTranspose(1, 3, 2, padding="same")(x))
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    x = noise(random, ROWS, 32, 32, 1)
    return model, x, x.copy()


def pyramid(keras, random):
    """Finds things at three scales: two outputs for each of them."""
    layers = keras.layers
    inputs = x = keras.Input((48, 48, 3))
    levels = []
    for width in (16, 32, 48):
        x = layers.ReLU()(layers.GroupNormalization(8)(layers.Conv2D(width, 3, 2, padding="same")(x)))
        levels.append(layers.Conv2D(24, 1)(x))
    wide = [levels[-1]]
    for level in reversed(levels[:-1]):
        wide.append(level + layers.UpSampling2D()(wide[-1]))
    head, boxes = layers.Conv2D(24, 3, padding="same", activation="relu"), layers.Conv2D(4, 1)
    found = [layers.GlobalAveragePooling2D()(boxes(head(level))) for level in wide]
    model = keras.Model(inputs, layers.Concatenate()(found))
    model.compile(keras.optimizers.SGD(0.01, 0.9), "huber")
    return model, noise(random, ROWS, 48, 48, 3), noise(random, ROWS, 12)


def mixer(keras, random):
    """Patches that are mixed by dense layers, across places and across channels."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = layers.Reshape((64, 40))(layers.Conv2D(40, 4, 4)(inputs))
    for _ in range(3):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(64)(layers.Dense(32, activation="gelu")(y))
        x = x + layers.Permute((2, 1))(y)
        x = x + layers.Dense(40)(layers.Dense(120, activation="gelu")(layers.LayerNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(20)(layers.GlobalAveragePooling1D()(x)))
    return classified(keras, model, keras.optimizers.Lion(1e-4)), noise(random, ROWS, 32, 32, 3), random.integers(0, 20, ROWS)


def clips(keras, random):
    """Classifies short films: convolutions over time and space."""
    layers = keras.layers
    inputs = x = keras.Input((8, 24, 24, 1))
    for width in (12, 20):
        x = layers.Conv3D(width, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling3D((1, 2, 2))(layers.ReLU()(layers.BatchNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(6)(layers.GlobalAveragePooling3D()(x)))
    return classified(keras, model, keras.optimizers.SGD(0.02, 0.9)), noise(random, ROWS, 8, 24, 24, 1), random.integers(0, 6, ROWS)


def memory(keras, random):
    """A few places ask many: cross attention, written out with einsum."""
    layers, ops = keras.layers, keras.ops
    inputs = keras.Input((128, 20))
    keys, values = layers.Dense(32)(inputs), layers.Dense(32)(inputs)
    x = layers.Dense(32)(inputs[:, ::8])
    for _ in range(2):
        weights = ops.softmax(ops.einsum("bqc,bkc->bqk", layers.Dense(32)(x), keys) / 32**0.5)
        x = layers.LayerNormalization()(x + layers.Dense(32)(ops.einsum("bqk,bkc->bqc", weights, values)))
        x = x + layers.Dense(32)(layers.Dense(128, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(x)))
    model.compile(keras.optimizers.AdamW(1e-3), "mse")
    return model, noise(random, ROWS, 128, 20), noise(random, ROWS, 1)


# The planner was changed for what was seen on the first eight. The others were not looked at before that.
BUILDERS = (
    large_filters, long_attention, wavenet, squeeze, tabular, graph, pooled_by_rank, triplets,
)  # fmt: skip
UNSEEN = (
    volume_unet, conv_lstm, inception, upscale, points, gru_tagger, separable_text, variational, pyramid, mixer, clips, memory,
)  # fmt: skip
MODELS = {build.__name__: build for build in (*BUILDERS, *UNSEEN)}


def train(model, batch, steps):
    """The peak of the pool in bytes; None for a training that ran out of memory."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(7)
    built, x, y = MODELS[model](keras, np.random.default_rng(11))
    data = tf.data.Dataset.from_tensor_slices(x if y is None else (x, y)).repeat().batch(batch, drop_remainder=True)
    try:
        if y is None:
            train_triplets(tf, keras, built, data, steps)
        else:
            built.fit(data, steps_per_epoch=steps, verbose=0)
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return None
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    peak = train(asked.model, asked.batch, asked.steps)
    print(json.dumps({"model": asked.model, "batch": asked.batch, "peak_bytes": peak}), flush=True)
    if peak is None:
        sys.stdout.flush()
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
