"""What the GPU proof runs: `python workloads.py NAME [SECONDS]`. Each fills memory as training does, holds, deletes, and ends.

The last line is JSON: what the process itself saw of its ledger while it held and after it let go.
"""

import gc
import json
import sys
import time

import vramline

HOLD = 2.5


def seen(label, device="GPU:0"):
    """The ledger of this process now, in short."""
    ledger = vramline.memory_info(device).ledger()
    assert ledger.adds_up, ledger
    told = {line.line: line.bytes for line in ledger if line.line != "other process"}
    return {"label": label, **told}


def torch_loop(model, batch, target, seconds):
    import torch

    optimizer = torch.optim.Adam(model.parameters())
    end = time.time() + seconds
    while time.time() < end:
        loss = torch.nn.functional.mse_loss(model(batch()), target())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


def torch_after(moments):
    """Everything is let go of; the cache goes back too."""
    import torch

    gc.collect()
    moments.append(seen("deleted"))
    with vramline.watch("empty_cache") as watch:
        torch.cuda.empty_cache()
    time.sleep(HOLD)
    moments.append(seen("cache emptied"))
    moments.append({"label": "watch", "text": str(watch)})
    return moments


def torch_eager(seconds):
    import torch

    def inner():
        model = torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 4096)).cuda()
        x = torch.randn(2048, 4096, device="cuda")
        torch_loop(model, lambda: x, lambda: x, seconds)
        time.sleep(HOLD)
        return [seen("full")]

    return torch_after(inner())


def torch_convolution(seconds):
    import torch

    def block(inputs, outputs):
        return [torch.nn.Conv2d(inputs, outputs, 3, padding=1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]

    def inner():
        layers = [*block(3, 64), *block(64, 128), *block(128, 128), torch.nn.Conv2d(128, 3, 3, padding=1)]
        model = torch.nn.Sequential(*layers).cuda()
        x = torch.randn(32, 3, 224, 224, device="cuda")
        torch_loop(model, lambda: x, lambda: x, seconds)
        time.sleep(HOLD)
        return [seen("full")]

    return torch_after(inner())


def torch_attention(seconds):
    import torch

    def inner():
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
        x = torch.randn(16, 512, 1024, device="cuda")
        torch_loop(model, lambda: x, lambda: x, seconds)
        time.sleep(HOLD)
        return [seen("full")]

    return torch_after(inner())


def torch_near_full(seconds):
    import torch

    free, _ = torch.cuda.mem_get_info()
    kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(free * 0.95) >> 30)]
    x = torch.randn(4096, 4096, device="cuda")
    end = time.time() + seconds
    while time.time() < end:
        x = (x @ x).clamp(-1, 1)
    torch.cuda.synchronize()
    time.sleep(HOLD)
    moments = [seen("full")]
    del kept, x
    return torch_after(moments)


def jax_after(moments):
    time.sleep(HOLD)
    moments.append(seen("full"))
    return moments


def jax_eager(seconds):
    import jax.numpy as jnp
    import numpy

    x = jnp.asarray(numpy.random.rand(4096, 4096).astype("float32"))
    end = time.time() + seconds
    while time.time() < end:
        x = jnp.tanh(x @ x) + x
        x.block_until_ready()
    moments = jax_after([])
    del x
    moments.append(seen("deleted"))
    return moments


def jax_train(apply, params, x, seconds):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(params, x):
        def loss(params):
            return jnp.mean((apply(params, x) - x) ** 2)

        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params))

    end = time.time() + seconds
    while time.time() < end:
        params = step(params, x)
        jax.block_until_ready(params)
    moments = jax_after([])
    del params, x
    moments.append(seen("deleted"))
    return moments


def jax_jitted(seconds):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    params = [jax.random.normal(key, (4096, 4096)) * 0.01 for _ in range(4)]

    def apply(params, x):
        for each in params:
            x = jnp.tanh(x @ each)
        return x

    return jax_train(apply, params, jnp.ones((2048, 4096)), seconds)


def jax_convolution(seconds):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    params = [jax.random.normal(key, shape) * 0.01 for shape in ((64, 3, 3, 3), (64, 64, 3, 3), (3, 64, 3, 3))]

    def apply(params, x):
        for each in params:
            x = jnp.tanh(jax.lax.conv(x, each, (1, 1), "SAME"))
        return x

    return jax_train(apply, params, jnp.ones((16, 3, 224, 224)), seconds)


def jax_attention(seconds):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    params = [jax.random.normal(key, (1024, 1024)) * 0.01 for _ in range(12)]

    def apply(params, x):
        for query, keys, value in zip(params[::3], params[1::3], params[2::3]):
            weights = jax.nn.softmax((x @ query) @ jnp.swapaxes(x @ keys, 1, 2) / 32.0)
            x = x + weights @ (x @ value)
        return x

    return jax_train(apply, params, jnp.ones((8, 1024, 1024)), seconds)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](float(sys.argv[2]) if len(sys.argv) > 2 else 3.0)))
