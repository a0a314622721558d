"""Small training jobs on a GPU, each as a user would write it: `python jobs.py NAME`. The last line is JSON: what the framework says."""

import json
import sys

STEPS = 8


def torch_loop():
    import torch

    assert not torch.cuda.is_initialized(), "recording must not initialise CUDA"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        x, y = torch.randn(512, 1024, device="cuda"), torch.randint(0, 10, (512,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    state = sum(s.numel() * s.element_size() for each in optimizer.state.values() for s in each.values())
    fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda: None)()
    return {
        "current": torch.cuda.memory_allocated(),
        "peak": torch.cuda.max_memory_allocated(),
        "pool": torch.cuda.memory_reserved(),
        "parameters": parameters,
        "optimizer": state,
        "backend": torch.cuda.get_allocator_backend(),
        "fraction": fraction,
        "total": torch.cuda.get_device_properties(0).total_memory,
    }


def torch_too_much():
    import torch

    kept = []
    while True:
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))


def torch_none():
    import torch

    return {"available": torch.cuda.is_available()}


def torch_api():
    import torch

    import vramline

    assert vramline.memory_info("GPU:0").current is None and not torch.cuda.is_initialized()
    x = torch.ones(1 << 20, device="cuda")
    with vramline.record("api.vram") as rec:
        for step in range(3):
            with rec.step(step):
                y = x * 2
                rec.mark("doubled")
                del y
    with vramline.watch("delete") as watch:
        del x
    info = vramline.memory_info("GPU:0")
    steps = vramline.load(rec.path).steps
    return {
        "current": info.current,
        "pool": info.pool,
        "limit": [info.limit, info.why("limit")],
        "change": watch.change("current"),
        "watch": str(watch),
        "peaks": [int(peak) for peak in steps.peak_bytes],
    }


def jax_loop():
    import jax
    import jax.numpy as jnp

    assert not jax._src.xla_bridge._backends, "recording must not open a backend"
    key = jax.random.key(0)
    params = [jax.random.normal(key, (1024, 4096)) * 0.02, jax.random.normal(key, (4096, 10)) * 0.02]
    state = [jnp.zeros_like(p) for p in params]

    def loss(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    @jax.jit
    def step(params, state, x):
        gradients = jax.grad(loss)(params, x)
        state = [0.9 * s + g for s, g in zip(state, gradients)]
        return [p - 0.01 * s for p, s in zip(params, state)], state

    for _ in range(STEPS):
        params, state = step(params, state, jax.random.normal(key, (512, 1024)))
    jax.block_until_ready(params)
    return dict(jax.devices()[0].memory_stats())


def jax_own_profiler():
    import os
    import tempfile

    import jax
    import jax.numpy as jnp

    with tempfile.TemporaryDirectory() as folder:
        jnp.ones((1000, 1000)).sum().block_until_ready()
        with jax.profiler.trace(folder):
            jnp.ones((1000, 1000)).sum().block_until_ready()
        found = [name for _, _, names in os.walk(folder) for name in names if name.endswith(".xplane.pb")]
    return {"own_traces": len(found)}


def keras_fit():
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(1024, "relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.random.rand(256, 256).astype("float32"), np.random.randint(0, 10, 256)
    model.fit(x, y, batch_size=32, epochs=2, verbose=0, validation_data=(x[:64], y[:64]))
    model.predict(x[:32], verbose=0)
    figures = {"parameters": model.count_params() * 4, "backend": keras.config.backend()}
    if keras.config.backend() == "torch":
        import torch

        figures |= {"peak": torch.cuda.max_memory_allocated()}
    else:
        import jax

        figures |= {"peak": jax.devices()[0].memory_stats()["peak_bytes_in_use"]}
    return figures


def keras_callback():
    import keras
    import numpy as np

    from vramline.keras import MemoryCallback

    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(1024, "relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.random.rand(256, 256).astype("float32"), np.random.randint(0, 10, 256)
    callback = MemoryCallback(batches=[0, 3])
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0, callbacks=[callback])
    return {"labels": callback.labels, "usage": callback.memory_usage, "keys": sorted(history.history)}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
