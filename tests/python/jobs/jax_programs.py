"""Compiles functions with JAX and writes down what JAX says of their memory.

python jax_programs.py FOLDER
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

folder = Path(sys.argv[1])
os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_proto"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp


def mlp_loss(params, x):
    for number, (w, b) in enumerate(params):
        with jax.named_scope(f"dense_{number}"):
            x = jax.nn.relu(x @ w + b)
    return (x**2).mean()


@jax.jit
def mlp_step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(mlp_loss)(params, x))


@partial(jax.jit, donate_argnums=0)
def donated_step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(mlp_loss)(params, x))


def conv_loss(kernels, x):
    for kernel in kernels:
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x)
    return (x**2).mean()


@jax.jit
def conv_step(kernels, x):
    loss, gradients = jax.value_and_grad(conv_loss)(kernels, x)
    return loss, jax.tree.map(lambda k, g: k - 0.1 * g, kernels, gradients)


@jax.jit
def attention(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8.0)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


@jax.jit
def scan_loss(w, x):
    def loss(w):
        def cell(carry, _):
            carry = jnp.tanh(carry @ w)
            return carry, carry.sum()

        return jax.lax.scan(cell, x, None, length=16)[1].sum()

    return jax.grad(loss)(w)


@jax.jit
def remat_loss(params, x):
    return jax.grad(jax.checkpoint(mlp_loss))(params, x)


@jax.jit
def no_temporaries(x):
    return x * 2.0


def layers(width, count):
    return [(jnp.ones((width, width)) / width, jnp.zeros((width,))) for _ in range(count)]


CALLS = {
    "mlp_step": (mlp_step, (layers(256, 4), jnp.ones((64, 256)))),
    "donated_step": (donated_step, (layers(192, 3), jnp.ones((48, 192)))),
    "conv_step": (conv_step, ([jnp.ones((3, 3, 3, 8)), jnp.ones((3, 3, 8, 16))], jnp.ones((4, 32, 32, 3)))),
    "attention": (attention, tuple(jnp.ones((2, 64, 4, 32)) for _ in range(3))),
    "scan_loss": (scan_loss, (jnp.ones((64, 64)) / 64, jnp.ones((16, 64)))),
    "remat_loss": (remat_loss, (layers(128, 4), jnp.ones((32, 128)))),
    "no_temporaries": (no_temporaries, (jnp.ones((1000,)),)),
}

facts = {"jax": jax.__version__, "functions": {}}
for name, (function, arguments) in CALLS.items():
    analysis = function.lower(*arguments).compile().memory_analysis()
    facts["functions"][name] = {
        kind: getattr(analysis, f"{kind}_size_in_bytes") for kind in ("temp", "argument", "output", "alias")
    }

kept = jnp.arange(1_000_003, dtype=jnp.float32).block_until_ready()
facts["kept_bytes"] = kept.nbytes
jax.profiler.save_device_memory_profile(str(folder / "memory.prof"))
(folder / "facts.json").write_text(json.dumps(facts))
