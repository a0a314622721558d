"""Plans for JAX on a real GPU, from the command line as users have it, against real runs.

    python tests/gpu/jax_plan.py OUT

Needs vramline and JAX with CUDA; no network; about two minutes. Two models that are in no other script, a decoder and a residual
convolutional net, both with Adam, and both ways in which JAX takes memory: a pool that reserves its share of the device at once, and one
that grows. `vramline plan` makes its probes by running this script, and compiles at the target. The growing pools are planned under a limit,
too. The truth is a run without vramline: the peak and the pool by `memory_stats()`, the process by NVML. All four run at the same time.

OUT gets `jax_plan.jsonl`, a row for each figure of each plan, and `probes.tar.gz`, the probes of one model in both ways.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

STEPS = 4
BATCHES = (3, 5, 7)
TARGETS = {"decoder": 40, "residual": 48}
# Several preallocated pools have to fit the device together.
MODES = {
    "preallocated": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".20"},
    "growing": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
LIMIT = 6 << 30
DEADLINE = 170


def decoder(batch):
    """A language model with rotary positions and gated feed-forward layers: parameters, loss, and a batch."""
    import jax
    import jax.numpy as jnp

    length, words, width, heads, layers = 192, 3000, 320, 5, 5
    keys = iter(jax.random.split(jax.random.key(1), 2 + 7 * layers))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

    def block():
        parts = {name: dense(width, width) for name in ("q", "k", "v", "o")}
        return parts | {"gate": dense(width, 3 * width), "up": dense(width, 3 * width), "down": dense(3 * width, width), "one": jnp.ones(width)}

    params = {"words": dense(words, width), "blocks": [block() for _ in range(layers)], "head": dense(width, words)}
    angles = jnp.outer(jnp.arange(length), 1e4 ** -jnp.linspace(0, 1, width // heads // 2))

    def rotated(x):
        first, second = jnp.split(x, 2, -1)
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)

    def loss(params, tokens):
        x = params["words"][tokens[:, :-1]]
        mask = jnp.tril(jnp.ones((length, length), bool))
        for each in params["blocks"]:
            y = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * each["one"]
            q, k, v = ((y @ each[name]).reshape(*y.shape[:2], heads, -1) for name in ("q", "k", "v"))
            scores = jnp.einsum("bqhd,bkhd->bhqk", rotated(q), rotated(k)) * (width // heads) ** -0.5
            mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)
            x = x + mixed.reshape(x.shape) @ each["o"]
            x = x + (jax.nn.silu(x @ each["gate"]) * (x @ each["up"])) @ each["down"]
        told = jax.nn.log_softmax(x @ params["head"])
        return -jnp.take_along_axis(told, tokens[:, 1:, None], -1).mean()

    return params, loss, jax.random.randint(jax.random.key(2), (batch, length + 1), 0, words)


def residual(batch):
    """A convolutional net with residual blocks and group norms."""
    import jax
    import jax.numpy as jnp

    widths, count = (24, 48, 96), 2
    keys = iter(jax.random.split(jax.random.key(3), 64))

    def kernel(size, inputs, outputs):
        return jax.random.normal(next(keys), (size, size, inputs, outputs)) * (size * size * inputs) ** -0.5

    stages, inputs = [], 24
    for width in widths:
        blocks = []
        for number in range(count):
            blocks.append({"a": kernel(3, inputs if number == 0 else width, width), "b": kernel(3, width, width)})
            if number == 0:
                blocks[-1]["short"] = kernel(1, inputs, width)
        stages.append(blocks)
        inputs = width
    params = {"first": kernel(5, 3, 24), "stages": stages, "head": jax.random.normal(next(keys), (widths[-1], 40)) * 0.1}

    def convolved(x, w, stride=1):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normed(x, groups=8):
        y = x.reshape(*x.shape[:3], groups, -1)
        y = (y - y.mean((1, 2, 4), keepdims=True)) * jax.lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)
        return y.reshape(x.shape)

    def loss(params, data):
        x, labels = data
        x = jax.nn.relu(normed(convolved(x, params["first"], 2)))
        for number, stage in enumerate(params["stages"]):
            for at, each in enumerate(stage):
                stride = 2 if number and not at else 1
                y = normed(convolved(jax.nn.relu(normed(convolved(x, each["a"], stride))), each["b"]))
                x = jax.nn.relu(y + (convolved(x, each["short"], stride) if "short" in each else x))
        told = jax.nn.log_softmax(x.mean((1, 2)) @ params["head"])
        return -jnp.take_along_axis(told, labels[:, None], -1).mean()

    key = jax.random.key(4)
    return params, loss, (jax.random.normal(key, (batch, 96, 96, 3)), jax.random.randint(key, (batch,), 0, 40))


def train(model, batch, told):
    """An ordinary script: nothing in it knows of vramline."""
    import jax
    import jax.numpy as jnp

    params, loss_of, data = globals()[model](batch)
    state = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)

    @jax.jit
    def train_step(params, state, data):
        loss, gradients = jax.value_and_grad(loss_of)(params, data)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], gradients)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state[1], gradients)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return params, (first, second), loss

    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, state, loss = train_step(params, state, data)
            jax.block_until_ready(loss)
    if told:
        from plan_probes import nvml_figures

        figures = jax.local_devices()[0].memory_stats() | nvml_figures() | {"jax": jax.__version__}
        pathlib.Path(told).write_text(json.dumps(figures), encoding="utf-8")


def command(model, batch):
    return [sys.executable, __file__, "train", model, str(batch)]


def plan(folder, model, environment, *more):
    words = ["--batches", ",".join(map(str, BATCHES)), "--repeats", "1", "--trace-steps", "3", "--steps", str(STEPS), "-o", str(folder)]
    done = subprocess.run(
        ["vramline", "plan", *words, "--json", *more, "--", *command(model, "{batch}")],
        env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3, 4), f"exit {done.returncode}: {done.stderr[-3000:]}"
    return json.loads(done.stdout)


def compared(out, model, mode):
    """The rows of one model in one mode."""
    target, environment = TARGETS[model], os.environ | MODES[mode] | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    truth = out / f"truth-{model}-{mode}.json"
    subprocess.run([*command(model, target), str(truth)], env=environment, check=True, timeout=DEADLINE)
    real = json.loads(truth.read_text(encoding="utf-8"))
    begin, folder = time.monotonic(), out / f"probes-{model}-{mode}"
    told = plan(folder, model, environment, "--batch", str(target))
    (said,) = told["predictions"]
    about = {"model": model, "mode": mode, "batch": target, "seconds": round(time.monotonic() - begin, 1), "jax": real["jax"]}
    about |= {"codes": [each["code"] for each in told["warnings"]], "bytes_limit": real["bytes_limit"]}
    pairs = {
        "peak": (said["peak_bytes"], said["low_bytes"], said["high_bytes"], real["peak_bytes_in_use"]),
        "pool": (said["pool_bytes"], said["pool_low_bytes"], said["pool_high_bytes"], real["peak_pool_bytes"]),
        "process": (said["process_bytes"], None, None, real["process_bytes"]),
    }
    rows = [about | dict(zip(("figure", "predicted", "low", "high", "measured"), (name, *pair))) for name, pair in pairs.items()]
    fixes = {fix["name"]: fix["pool_bytes"] for fix in told["fixes"]}
    largest = max([said["pool_high_bytes"], *(size for size in fixes.values() if size is not None)])
    rows.append(about | {"figure": "largest pool told", "predicted": largest, "measured": real["bytes_limit"], "low": 0, "high": real["bytes_limit"]})
    if mode == "growing":
        begin = time.monotonic()
        told = plan(folder, model, environment, "--limit", str(LIMIT))
        about |= {"seconds": round(time.monotonic() - begin, 1), "codes": [each["code"] for each in told["warnings"]]}
        rows.append(about | {"figure": "largest batch", "limit": LIMIT, "said": told["largest_batch"], "confirmation": told["confirmation"]})
    return rows


def printed(row):
    begin = f"{row['model']:9} {row['mode']:13} {row['batch']:4} "
    if row["figure"] == "largest batch":
        tried = row["confirmation"]
        return f"{begin} largest in {row['limit'] >> 20} MiB: {row['said']['text']} Confirmed: {tried['confirmed']}. {tried['text']}"
    predicted, measured = row["predicted"], row["measured"]
    if predicted is None or measured is None:
        return f"{begin} {row['figure']:18} {predicted} and {measured}"
    end = "" if row["low"] is None or row["low"] <= measured <= row["high"] else "   outside the range"
    return f"{begin} {row['figure']:18} {predicted:15,} {measured:15,} {predicted / measured - 1:+8.2%}{end}"


def tried(out, model, mode):
    """One that fails does not keep the others from being tried: a GPU is rare."""
    try:
        return compared(out, model, mode), None
    except Exception as error:
        return [], f"{model} {mode}: {type(error).__name__}: {error}"


def main():
    if sys.argv[1] == "train":
        return train(sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    pairs = [(model, mode) for model in TARGETS for mode in MODES]
    with ThreadPoolExecutor(len(pairs)) as pool:
        found = list(pool.map(lambda pair: tried(out, *pair), pairs))
    rows = [row for rows, _ in found for row in rows]
    (out / "jax_plan.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print("model     mode          batch figure                   predicted        measured      off")
    print("\n".join(map(printed, rows)))
    with tarfile.open(out / "probes.tar.gz", "w:gz") as packed:
        for folder in sorted(out.glob("probes-residual-*/probe-*.vram")):
            packed.add(folder, f"{folder.parent.name[7:]}-{folder.name.split('-')[1]}.vram")
    wrong = [error for _, error in found if error]
    print("\n".join(wrong))
    return 1 if wrong else None


if __name__ == "__main__":
    sys.exit(main())
