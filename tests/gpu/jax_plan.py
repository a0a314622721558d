"""Plans for JAX on a real GPU, from the command line as users have it, against real runs.

    python tests/gpu/jax_plan.py OUT [--group first|second|third]

Needs vramline and JAX with CUDA; no network; two to three minutes a group. Each group has two models that are in no other script: the first a
decoder and a residual convolutional net, both with Adam; the second and third, listed before anything of them ran, a vision transformer with
Lion and a gated recurrent net with Adam, and a denoiser with momentum and a search of two towers with Adam. Each runs in both ways in which
JAX takes memory: a pool that reserves its share of the device at once, and one that grows. `vramline plan` makes its probes by running this
script, and compiles at the target. The growing pools are planned under a limit, too. The truth is a run without vramline: the peak and the
pool by `memory_stats()`, the process by NVML. All four run at the same time.

OUT gets `jax_plan-GROUP.jsonl`, a row for each figure of each plan, and `probes-MODEL.tar.gz`: probes, compiled programs and truths, which
are what `benches/accuracy_jax.py` reads.
"""

import argparse
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
# The batch size that is planned, for each model of a group.
GROUPS = {
    "first": {"decoder": 40, "residual": 48},
    "second": {"vision": 44, "recurrent": 50},
    "third": {"denoiser": 52, "towers": 46},
}
# Several preallocated pools have to fit the device together.
MODES = {
    "preallocated": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".20"},
    "growing": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
LIMIT = 6 << 30
# Seconds for all of a group. What is not done then is left out.
DEADLINE = 175
BEGAN = time.monotonic()


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


def vision(batch):
    """A vision transformer: patches, learned places, a token for the class, and norms with scale and shift."""
    import jax
    import jax.numpy as jnp

    side, patch, width, heads, layers, kinds = 96, 8, 256, 4, 5, 60
    count = (side // patch) ** 2
    keys = iter(jax.random.split(jax.random.key(5), 4 + 4 * layers))

    def dense(rows, columns):
        return {"w": jax.random.normal(next(keys), (rows, columns)) * rows**-0.5, "b": jnp.zeros(columns)}

    def norm():
        return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}

    def block():
        parts = {"qkv": dense(width, 3 * width), "outer": dense(width, width), "wide": dense(width, 4 * width), "narrow": dense(4 * width, width)}
        return parts | {"first": norm(), "second": norm()}

    params = {"cut": dense(3 * patch * patch, width), "blocks": [block() for _ in range(layers)], "last": norm(), "head": dense(width, kinds)}
    params |= {"kind": jax.random.normal(next(keys), (1, 1, width)), "places": jax.random.normal(next(keys), (count + 1, width)) * 0.02}

    def through(x, part):
        return x @ part["w"] + part["b"]

    def normed(x, part):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * part["scale"] + part["shift"]

    def loss(params, data):
        x, labels = data
        x = x.reshape(-1, side // patch, patch, side // patch, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        x = through(x.reshape(-1, count, 3 * patch * patch), params["cut"])
        x = jnp.concatenate([jnp.broadcast_to(params["kind"], (x.shape[0], 1, width)), x], 1) + params["places"]
        for each in params["blocks"]:
            y = through(normed(x, each["first"]), each["qkv"])
            q, k, v = jnp.moveaxis(y.reshape(*y.shape[:2], 3, heads, width // heads), 2, 0)
            weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5)
            x = x + through(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape), each["outer"])
            x = x + through(jax.nn.gelu(through(normed(x, each["second"]), each["wide"])), each["narrow"])
        told = jax.nn.log_softmax(through(normed(x[:, 0], params["last"]), params["head"]))
        return -jnp.take_along_axis(told, labels[:, None], -1).mean()

    key = jax.random.key(6)
    return params, loss, (jax.random.normal(key, (batch, side, side, 3)), jax.random.randint(key, (batch,), 0, kinds))


def recurrent(batch):
    """A language model of three gated recurrent layers, each a scan over the words."""
    import jax
    import jax.numpy as jnp

    length, words, width, layers = 160, 2000, 320, 3
    keys = iter(jax.random.split(jax.random.key(7), 2 + 3 * layers))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

    def layer():
        return {"seen": dense(width, 3 * width), "gates": dense(width, 2 * width), "new": dense(width, width), "bias": jnp.zeros(3 * width)}

    params = {"words": dense(words, width), "layers": [layer() for _ in range(layers)], "head": dense(width, words)}

    def loss(params, tokens):
        x = params["words"][tokens[:, :-1]].swapaxes(0, 1)
        for each in params["layers"]:

            def step(state, seen, each=each):
                reset, update, new = jnp.split(seen, 3, -1)
                gates = state @ each["gates"]
                reset, update = jax.nn.sigmoid(reset + gates[:, :width]), jax.nn.sigmoid(update + gates[:, width:])
                state = update * state + (1 - update) * jnp.tanh(new + (reset * state) @ each["new"])
                return state, state

            x = x + jax.lax.scan(step, jnp.zeros(x.shape[1:]), x @ each["seen"] + each["bias"])[1]
        told = jax.nn.log_softmax(x @ params["head"])
        return -jnp.take_along_axis(told, tokens[:, 1:].swapaxes(0, 1)[..., None], -1).mean()

    return params, loss, jax.random.randint(jax.random.key(8), (batch, length + 1), 0, words)


def denoiser(batch):
    """A convolutional net that halves the picture twice and joins each size again on the way up."""
    import jax
    import jax.numpy as jnp

    widths = (20, 40, 80)
    keys = iter(jax.random.split(jax.random.key(9), 32))

    def kernel(size, inputs, outputs):
        return {"w": jax.random.normal(next(keys), (size, size, inputs, outputs)) * (size * size * inputs) ** -0.5, "b": jnp.zeros(outputs)}

    down = [[kernel(3, 3 if not at else widths[at - 1], width), kernel(3, width, width)] for at, width in enumerate(widths)]
    up = [[kernel(2, inputs, width), kernel(3, 2 * width, width)] for inputs, width in ((80, 40), (40, 20))]
    params = {"down": down, "up": up, "last": kernel(1, 20, 3)}

    def convolved(x, part):
        return jax.lax.conv_general_dilated(x, part["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + part["b"]

    def loss(params, data):
        clean, noise = data
        x, seen = clean + noise, []
        for at, (first, second) in enumerate(params["down"]):
            if at:
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            x = jax.nn.silu(convolved(jax.nn.silu(convolved(x, first)), second))
            seen.append(x)
        for (larger, joined), skip in zip(params["up"], seen[-2::-1]):
            x = jax.lax.conv_transpose(x, larger["w"], (2, 2), "SAME") + larger["b"]
            x = jax.nn.silu(convolved(jnp.concatenate([x, skip], -1), joined))
        return ((convolved(x, params["last"]) - noise) ** 2).mean()

    key = jax.random.key(10)
    return params, loss, (jax.random.normal(key, (batch, 128, 128, 3)), jax.random.normal(key, (batch, 128, 128, 3)) * 0.1)


def towers(batch):
    """A search: questions and texts share an embedding, each has a tower that weighs its words, and every pair of the batch has a score."""
    import jax
    import jax.numpy as jnp

    words, width, lengths, layers = 6000, 384, (24, 220), 3
    keys = iter(jax.random.split(jax.random.key(11), 32))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

    def tower():
        blocks = [{"wide": dense(width, 2 * width), "narrow": dense(2 * width, width)} for _ in range(layers)]
        return {"blocks": blocks, "weigh": dense(width, 1), "out": dense(width, 128)}

    params = {"words": dense(words, width), "question": tower(), "text": tower(), "scale": jnp.array(10.0)}

    def summed(tokens, table, part):
        x = table[tokens]
        for each in part["blocks"]:
            y = x - x.mean(-1, keepdims=True)
            y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
            x = x + jax.nn.gelu(y @ each["wide"]) @ each["narrow"]
        weights = jax.nn.softmax((x @ part["weigh"])[..., 0])
        out = jnp.einsum("bl,blw->bw", weights, x) @ part["out"]
        return out * jax.lax.rsqrt((out * out).sum(-1, keepdims=True) + 1e-6)

    def loss(params, data):
        first, second = (summed(tokens, params["words"], params[name]) for tokens, name in zip(data, ("question", "text")))
        scores = params["scale"] * first @ second.T
        return -(jnp.diag(jax.nn.log_softmax(scores)) + jnp.diag(jax.nn.log_softmax(scores.T))).mean()

    key = jax.random.key(12)
    return params, loss, tuple(jax.random.randint(key, (batch, length), 0, words) for length in lengths)


def adam(params, state, gradients):
    import jax
    import jax.numpy as jnp

    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state[1], gradients)
    params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return params, (first, second)


def lion(params, state, gradients):
    """Keeps one tensor for each weight, and decays the weights."""
    import jax
    import jax.numpy as jnp

    params = jax.tree.map(lambda p, m, g: p - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * p), params, state[0], gradients)
    return params, (jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, state[0], gradients),)


def momentum(params, state, gradients):
    import jax

    first = jax.tree.map(lambda m, g: 0.9 * m + g, state[0], gradients)
    return jax.tree.map(lambda p, m: p - 1e-3 * m, params, first), (first,)


# The optimizers other than Adam; each keeps one tensor for each weight, Adam two.
OPTIMIZERS = {"vision": lion, "denoiser": momentum}


def train(model, batch, told):
    """An ordinary script: nothing in it knows of vramline."""
    import jax
    import jax.numpy as jnp

    params, loss_of, data = globals()[model](batch)
    updated = OPTIMIZERS.get(model, adam)
    state = tuple(jax.tree.map(jnp.zeros_like, params) for _ in range(1 if model in OPTIMIZERS else 2))

    @jax.jit
    def train_step(params, state, data):
        loss, gradients = jax.value_and_grad(loss_of)(params, data)
        return *updated(params, state, gradients), loss

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


def left():
    """Seconds until the deadline of the group."""
    return max(1, BEGAN + DEADLINE - time.monotonic())


def plan(folder, model, environment, *more):
    words = ["--batches", ",".join(map(str, BATCHES)), "--repeats", "1", "--trace-steps", "3", "--steps", str(STEPS), "-o", str(folder)]
    done = subprocess.run(
        ["vramline", "plan", *words, "--json", *more, "--", *command(model, "{batch}")],
        env=environment, capture_output=True, text=True, timeout=left(), check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3, 4), f"exit {done.returncode}: {done.stderr[-3000:]}"
    return json.loads(done.stdout)


def compared(out, model, mode, target, rows):
    """Adds the rows of one model in one mode."""
    environment = os.environ | MODES[mode] | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    truth = out / f"truth-{model}-{mode}.json"
    subprocess.run([*command(model, target), str(truth)], env=environment, check=True, timeout=left())
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
    rows += [about | dict(zip(("figure", "predicted", "low", "high", "measured"), (name, *pair))) for name, pair in pairs.items()]
    fixes = {fix["name"]: fix["pool_bytes"] for fix in told["fixes"]}
    largest = max([said["pool_high_bytes"], *(size for size in fixes.values() if size is not None)])
    rows.append(about | {"figure": "largest pool told", "predicted": largest, "measured": real["bytes_limit"], "low": 0, "high": real["bytes_limit"]})
    if mode == "growing":
        begin = time.monotonic()
        told = plan(folder, model, environment, "--limit", str(LIMIT))
        about |= {"seconds": round(time.monotonic() - begin, 1), "codes": [each["code"] for each in told["warnings"]]}
        rows.append(about | {"figure": "largest batch", "limit": LIMIT, "said": told["largest_batch"], "confirmation": told["confirmation"]})


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


def tried(out, model, mode, target):
    """One that fails does not keep the others from being tried: a GPU is rare."""
    rows = []
    try:
        compared(out, model, mode, target, rows)
    except Exception as error:
        return rows, f"{model} {mode}: {type(error).__name__}: {error}"
    return rows, None


def main():
    if sys.argv[1] == "train":
        return train(sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--group", choices=GROUPS, default="first")
    asked = parser.parse_args()
    out, targets = asked.out.resolve(), GROUPS[asked.group]
    out.mkdir(parents=True, exist_ok=True)
    runs = [(model, mode, target) for model, target in targets.items() for mode in MODES]
    with ThreadPoolExecutor(len(runs)) as pool:
        found = list(pool.map(lambda run: tried(out, *run), runs))
    rows = [row for rows, _ in found for row in rows]
    (out / f"jax_plan-{asked.group}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print("model     mode          batch figure                   predicted        measured      off")
    print("\n".join(map(printed, rows)))
    for model, target in targets.items():
        with tarfile.open(out / f"probes-{model}.tar.gz", "w:gz") as packed:
            names = [f"truth-{model}-*.json", f"probes-{model}-*/compiled-{target}", *(f"probes-{model}-*/probe-{batch}-0.vram" for batch in BATCHES)]
            for path in sorted(path for name in names for path in out.glob(name)):
                packed.add(path, str(path.relative_to(out)))
    wrong = [error for _, error in found if error]
    print("\n".join(wrong))
    return 1 if wrong else None


if __name__ == "__main__":
    sys.exit(main())
