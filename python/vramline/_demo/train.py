"""The training script of `vramline demo`: a small model with the framework that is installed."""

from __future__ import annotations

import importlib.util
import os
import sys


def with_keras() -> None:
    """Trains a small convolutional network on random data for two epochs, with validation."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras
    import numpy as np

    keras.utils.set_random_seed(7)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(7)
    x = random.random((512, 32, 32, 3), dtype=np.float32)
    y = random.integers(0, 10, 512)
    model.fit(x, y, batch_size=64, epochs=2, verbose=2, validation_data=(x[:128], y[:128]))


def with_torch() -> None:
    """Trains a small network on random data."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        x = torch.randn(256, 1024, device=device)
        y = torch.randint(0, 10, (256,), device=device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"20 steps on {device}, loss {loss.item():.3f}")


def with_jax() -> None:
    """Trains a small network on random data."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(7)
    weights = [jax.random.normal(key, (1024, 4096)) * 0.02, jax.random.normal(key, (4096, 10)) * 0.02]

    def loss(weights: list, x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x**2).mean()

    @jax.jit
    def train(weights: list, x: jax.Array) -> list:
        return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, x))]

    for _ in range(20):
        weights = train(weights, jax.random.normal(key, (256, 1024)))
    print(f"20 steps on {jax.devices()[0].platform}")


def main() -> int:
    """Trains with the first framework that is installed."""
    there = {name for name in ("tensorflow", "keras", "torch", "jax") if importlib.util.find_spec(name)}
    if {"tensorflow", "keras"} <= there:
        with_keras()
    elif "torch" in there:
        with_torch()
    elif "jax" in there:
        with_jax()
    else:
        print("error: this Python has no TensorFlow, PyTorch or JAX\nhint: pip install tensorflow-cpu", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
