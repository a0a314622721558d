"""The table of a model against Keras' own counts, and its activations against shapes written out by hand."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest

import vramline.keras
from vramline.shown import size_text

layers = keras.layers
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(autouse=True)
def float32():
    yield
    keras.config.set_dtype_policy("float32")


def small():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name="small",
    )


def compiled(model, optimizer="adam"):
    model.compile(optimizer, LOSS)
    model.optimizer.build(model.trainable_variables)
    return model


def assert_adds_up(told, model):
    """What Keras itself counts."""
    assert told.count == model.count_params() == sum(row.count for row in told.rows)
    assert told.parameter_bytes == sum(variable.numpy().nbytes for variable in model.weights)
    assert told.gradient_bytes == sum(variable.numpy().nbytes for variable in model.trainable_variables)
    if told.optimizer_bytes is not None:
        assert told.optimizer_bytes == sum(variable.numpy().nbytes for variable in model.optimizer.variables)


def by_name(told):
    return {row.name: row for row in told.rows}


def test_every_figure_of_a_small_model(capsys):
    model = compiled(small())
    told = vramline.keras.summary(model, batch_size=5)
    assert_adds_up(told, model)
    conv, norm, flat, dense = told.rows
    assert [row.activation_bytes for row in told.rows] == [5 * 8 * 8 * 4 * 4] * 3 + [5 * 10 * 4]
    assert (conv.count, conv.parameter_bytes, conv.gradient_bytes) == (112, 448, 448)
    # Mean and variance are not trained.
    assert (norm.count, norm.parameter_bytes, norm.gradient_bytes) == (16, 64, 32)
    assert (flat.count, flat.optimizer_bytes) == (0, 0)
    assert dense.optimizer_bytes == 2 * dense.gradient_bytes == 2 * (256 * 10 + 10) * 4
    # The count of steps and the learning rate belong to no layer.
    assert told.optimizer_bytes == sum(row.optimizer_bytes for row in told.rows) + 8 + 4
    assert told.sum_bytes == told.parameter_bytes + told.gradient_bytes + told.optimizer_bytes + told.activation_bytes
    assert told.peak_bytes is None
    printed = capsys.readouterr().out
    assert printed.strip() == str(told)
    assert "not a peak" in printed
    assert "<table>" in told._repr_html_()


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adagrad", "adafactor", "lion", "nadam", "ftrl"])
def test_slots_of_other_optimizers(optimizer):
    model = compiled(small(), optimizer)
    told = vramline.keras.summary(model, show=False)
    assert_adds_up(told, model)
    own = sum(v.numpy().nbytes for v in model.optimizer.variables if v.shape == ())
    if optimizer != "adafactor":
        assert sum(row.optimizer_bytes for row in told.rows) == told.optimizer_bytes - own


def test_models_in_models_and_shared_layers():
    inner = small()
    one, other = keras.Input((8, 8, 3)), keras.Input((8, 8, 3))
    joined = inner(one) + inner(other)
    shared = layers.Dense(10, name="shared")
    model = keras.Model([one, other], shared(shared(joined)))
    told = vramline.keras.summary(compiled(model), batch_size=3, show=False)
    assert_adds_up(told, model)
    rows = by_name(told)
    assert rows["small"].depth == 0 and rows["small"].count == 0
    # Twice each, and their parameters once.
    assert rows[inner.layers[0].name].depth == 1
    assert rows[inner.layers[0].name].activation_bytes == 2 * 3 * 8 * 8 * 4 * 4
    assert rows["shared"].activation_bytes == 2 * 3 * 10 * 4
    assert rows["shared"].count == 110
    added = [row for row in told.rows if row.kind == "Add"]
    assert [row.activation_bytes for row in added] == [3 * 10 * 4]


def test_a_sequence_that_grew_counts_each_layer_once():
    model = keras.Sequential([keras.Input((4,))])
    for _ in range(3):
        model.add(layers.Dense(4))
    told = vramline.keras.summary(compiled(model), batch_size=2, show=False)
    assert [row.activation_bytes for row in told.rows] == [2 * 4 * 4] * 3


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    model = compiled(small())
    told = vramline.keras.summary(model, batch_size=5, show=False)
    assert_adds_up(told, model)
    # Weights stay in full precision, outputs are halved.
    assert told.rows[0].parameter_bytes == 448
    assert told.rows[0].activation_bytes == 5 * 8 * 8 * 4 * 2
    assert "float16" in told.rows[0].output


def test_what_is_not_known_is_none_with_a_reason():
    unknown = keras.Sequential([keras.Input((None, 3)), layers.Dense(4)])
    told = vramline.keras.summary(unknown, batch_size=2, show=False)
    assert told.rows[0].activation_bytes is told.activation_bytes is told.sum_bytes is told.optimizer_bytes is None
    assert any("[?,?,4]" in reason for reason in told.reasons)
    assert any("not compiled" in reason for reason in told.reasons)
    assert told.parameter_bytes == 64

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4)
            self.scale = self.add_weight(shape=(7,), name="scale")

        def call(self, inputs):
            return self.dense(inputs) * self.scale[0]

    model = Own()
    with pytest.raises(ValueError, match="no weights yet"):
        vramline.keras.summary(model)
    model(keras.ops.zeros((1, 3)))
    model.compile("adam", LOSS)
    told = vramline.keras.summary(model, show=False)
    assert_adds_up(told, model)
    assert [(row.kind, row.count) for row in told.rows] == [("Dense", 16), ("Own", 7)]
    assert told.rows[0].activation_bytes is None and "not a graph of layers" in told.rows[0].reason
    assert any("not built" in reason for reason in told.reasons)
    with pytest.raises(ValueError, match="rows of data"):
        vramline.keras.summary(model, predict=True, show=False)


def test_batches_that_are_none():
    model = compiled(small())
    for wrong in (-3, 0, "64", 2.5, 64.0, True, None):
        with pytest.raises(ValueError, match="batch_size: expected a whole number of samples"):
            vramline.keras.summary(model, batch_size=wrong, show=False)
    told = vramline.keras.summary(model, batch_size=np.int64(5), show=False)
    assert told.activation_bytes == 3 * 5 * 8 * 8 * 4 * 4 + 5 * 10 * 4


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (30 << 20, "30 MiB"),
        (999 << 10, "999 KiB"),
        (1014 << 10, "1014 KiB"),
        ((1 << 20) - 513, "1023 KiB"),
        ((1 << 20) - 512, "1 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (-1014 << 10, "-1014 KiB"),
        (1500 << 30, "1500 GiB"),
        (None, "?"),
    ],
)
def test_sizes_have_no_exponents(size, text):
    assert size_text(size) == text


def test_a_predicted_peak(binary, monkeypatch):
    monkeypatch.setenv("VRAMLINE_BIN", str(binary))
    x, y = np.zeros((20, 8, 8, 3), "float32"), np.zeros(20, "int32")
    model = compiled(small())
    told = vramline.keras.summary(model, batch_size=64, predict=True, x=x, y=y, show=False)
    assert told.peak_low_bytes <= told.peak_bytes <= told.peak_high_bytes
    assert told.plan["predictions"][0]["batch"] == 64
    assert "predicted peak" in str(told)
    assert int(model.optimizer.iterations) == 0
