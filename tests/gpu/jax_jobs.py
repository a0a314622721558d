"""Training jobs of JAX as users write them: `python jax_jobs.py NAME`. The last line is JSON: what the arrays themselves say.

`steps` has, for each step, the paths of the arrays that live at its end, with their addresses and sizes. They are the truth for the owners
that Vramline finds.
"""

import itertools
import json
import sys

STEPS = 6


def leaves(**trees):
    """The address and the size of each array, by its path below the name that the program has for the tree."""
    import jax

    found = {}
    for name, tree in trees.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if isinstance(leaf, jax.Array):
                found[name + jax.tree_util.keystr(path)] = [leaf.unsafe_buffer_pointer(), leaf.nbytes]
    return found


def peak():
    import jax

    told = jax.local_devices()[0].memory_stats() or {}
    return told.get("peak_bytes_in_use")


def transformer(width=256, layers=4, vocabulary=4096):
    """Parameters of a small language model, as nested dicts, and its loss."""
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.key(0), 4 + 6 * layers))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / rows**0.5

    params = {"embed": dense(vocabulary, width), "l": [], "out": dense(width, vocabulary)}
    for _ in range(layers):
        params["l"].append({"q": dense(width, width), "k": dense(width, width), "v": dense(width, width), "o": dense(width, width),
                            "up": dense(width, 4 * width), "down": dense(4 * width, width), "scale": jnp.ones(width)})  # fmt: skip

    def forward(params, tokens):
        x = params["embed"][tokens]
        for layer in params["l"]:
            h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * layer["scale"]
            q, k, v = h @ layer["q"], h @ layer["k"], h @ layer["v"]
            mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
            scores = jnp.where(mask, jnp.einsum("bqd,bkd->bqk", q, k) / width**0.5, -1e9)
            x = x + jax.nn.softmax(scores) @ v @ layer["o"]
            x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
        return x @ params["out"]

    def loss(params, batch):
        logits = forward(params, batch[:, :-1])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch[:, 1:, None], -1).mean()

    return params, loss


def language_model(donate):
    """Adam written by hand. With `donate` parameters and state are updated in place."""
    import jax
    import jax.numpy as jnp

    params, loss_of = transformer()
    opt = {"m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params), "count": jnp.zeros((), jnp.int32)}

    def step(params, opt, batch):
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt["m"], grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, opt["v"], grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return params, {"m": m, "v": v, "count": opt["count"] + 1}, loss

    step = jax.jit(step, donate_argnums=(0, 1) if donate else ())
    steps = []
    for number in range(STEPS):
        batch = jax.random.randint(jax.random.key(number), (16, 129), 0, 4096)
        params, opt, loss = step(params, opt, batch)
        loss.block_until_ready()
        steps.append(leaves(params=params, opt=opt, batch=batch, loss=loss))
    return steps, float(loss)


def jax_lm():
    return language_model(donate=False)


def jax_lm_donated():
    return language_model(donate=True)


def jax_scan_mlp():
    """Parameters in a list of tuples, SGD with momentum, the batch made on the host, evaluation between the steps."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    draw = np.random.default_rng(0)
    sizes = [784, 2048, 2048, 2048, 10]
    weights = [(jnp.asarray(draw.normal(size=(a, b)) / a**0.5, jnp.float32), jnp.zeros(b)) for a, b in itertools.pairwise(sizes)]
    momentum = jax.tree.map(jnp.zeros_like, weights)

    def predict(weights, images):
        for w, b in weights[:-1]:
            images = jax.nn.relu(images @ w + b)
        return images @ weights[-1][0] + weights[-1][1]

    def loss_of(weights, images, labels):
        return -(jax.nn.log_softmax(predict(weights, images)) * jax.nn.one_hot(labels, 10)).sum(1).mean()

    @jax.jit
    def update(weights, momentum, images, labels):
        grads = jax.grad(loss_of)(weights, images, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda w, m: w - 0.01 * m, weights, momentum), momentum

    accuracy = jax.jit(lambda weights, images, labels: (predict(weights, images).argmax(1) == labels).mean())
    steps = []
    for _ in range(STEPS):
        images, labels = jnp.asarray(draw.normal(size=(1024, 784)), jnp.float32), jnp.asarray(draw.integers(0, 10, 1024))
        weights, momentum = update(weights, momentum, images, labels)
        right = accuracy(weights, images, labels).block_until_ready()
        steps.append(leaves(weights=weights, momentum=momentum, images=images, labels=labels))
    return steps, float(right)


def optax_lm():
    """The same language model with optax' AdamW, donated, as most people write it."""
    import jax
    import optax

    params, loss_of = transformer()
    optimizer = optax.adamw(1e-3)
    opt_state = optimizer.init(params)

    @jax.jit
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    steps = []
    for number in range(STEPS):
        batch = jax.random.randint(jax.random.key(number), (16, 129), 0, 4096)
        params, opt_state, loss = train_step(params, opt_state, batch)
        loss.block_until_ready()
        steps.append(leaves(params=params, opt_state=opt_state, batch=batch))
    return steps, float(loss)


def flax_linen():
    """A convolutional network of Flax Linen with a TrainState."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn
    from flax.training.train_state import TrainState

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in (32, 64):
                x = nn.avg_pool(nn.relu(nn.Conv(width, (3, 3))(x)), (2, 2), (2, 2))
            return nn.Dense(10)(nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1))))

    net = Net()
    variables = net.init(jax.random.key(0), jnp.ones((1, 32, 32, 3)))
    state = TrainState.create(apply_fn=net.apply, params=variables["params"], tx=optax.adam(1e-3))

    @jax.jit
    def train_step(state, images, labels):
        def loss_of(params):
            logits = state.apply_fn({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=grads), loss

    steps = []
    for number in range(STEPS):
        key = jax.random.key(number)
        images, labels = jax.random.normal(key, (256, 32, 32, 3)), jax.random.randint(key, (256,), 0, 10)
        state, loss = train_step(state, images, labels)
        loss.block_until_ready()
        steps.append(leaves(state=state, images=images, labels=labels))
    return steps, float(loss)


def flax_nnx():
    """A network of Flax NNX with its optimizer object."""
    import jax
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second, self.last = nnx.Linear(512, 2048, rngs=rngs), nnx.Linear(2048, 2048, rngs=rngs), nnx.Linear(2048, 10, rngs=rngs)

        def __call__(self, x):
            return self.last(nnx.relu(self.second(nnx.relu(self.first(x)))))

    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda model: optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean())(model)
        optimizer.update(model, grads)
        return loss

    steps = []
    for number in range(STEPS):
        key = jax.random.key(number)
        x, y = jax.random.normal(key, (1024, 512)), jax.random.randint(key, (1024,), 0, 10)
        loss = train_step(model, optimizer, x, y)
        loss.block_until_ready()
        steps.append(leaves(model=nnx.state(model), optimizer=nnx.state(optimizer), x=x, y=y))
    return steps, float(loss)


def keras_jax():
    import keras
    import numpy as np

    model = keras.Sequential([keras.layers.Input((784,)), *(keras.layers.Dense(1024, "relu") for _ in range(3)), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    draw = np.random.default_rng(0)
    model.fit(draw.normal(size=(256 * STEPS, 784)).astype("float32"), draw.integers(0, 10, 256 * STEPS), batch_size=256, verbose=0)
    found = {}
    for role, variables in (("parameters", model.trainable_variables), ("optimizer", model.optimizer.variables)):
        for variable in variables:
            value = variable.value
            address = value.unsafe_buffer_pointer() if hasattr(value, "unsafe_buffer_pointer") else value.data_ptr()
            found[f"{role} {variable.path}"] = [address, int(value.nbytes)]
    return [found], 0.0


JOBS = {job.__name__: job for job in (jax_lm, jax_lm_donated, jax_scan_mlp, optax_lm, flax_linen, flax_nnx, keras_jax)}


if __name__ == "__main__":
    found, result = JOBS[sys.argv[1]]()
    print(json.dumps({"peak": peak(), "result": result, "steps": found}))
