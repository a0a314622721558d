"""Training without Keras: plain.py MODE. The last line is JSON: what each thing that it holds is, in bytes."""

import json
import sys
from collections import Counter

import tensorflow as tf

WIDE, ROWS, STEPS = 600, 500, 8


def tensors():
    """No variable, nothing is trained: four tensors, and a loop that multiplies them."""
    parts = [tf.random.normal((WIDE, WIDE)) for _ in range(4)]
    for _ in range(STEPS):
        total = tf.zeros((WIDE, WIDE))
        for part in parts:
            total += tf.matmul(part, parts[0])
    return {"parameters": 0, "optimizer": 0, "gradients": 0}


class Net:
    """Two weights, an accumulator for each, a moving average, a table that nobody trains. Few people name their variables."""

    def __init__(self, has_names):
        name = (lambda name: name) if has_names else (lambda name: None)
        self.first = tf.Variable(tf.random.normal((300, WIDE)), name=name("first"))
        self.second = tf.Variable(tf.random.normal((WIDE, 50)), name=name("second"))
        self.weights = [self.first, self.second]
        self.sums = [tf.Variable(tf.zeros_like(each), trainable=False, name=name(f"{each.name[:-2]}_sum")) for each in self.weights]
        self.average = tf.Variable(tf.zeros_like(self.first), trainable=False, name=name("average"))
        self.table = tf.Variable(tf.random.normal((400, 200)), trainable=False, name=name("table"))

    def step(self, x, y):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.matmul(x, self.first))
            loss = tf.reduce_mean(tf.square(tf.matmul(hidden, self.second) - y)) + 0.0 * tf.reduce_sum(self.table[0])
        for total, gradient in zip(self.sums, tape.gradient(loss, self.weights), strict=True):
            total.assign_add(gradient)
        for weight, total in zip(self.weights, self.sums, strict=True):
            weight.assign_sub(0.01 * total)
            total.assign(tf.zeros_like(total))
        self.average.assign(0.9 * self.average + 0.1 * self.first)
        return loss


def train(step_of, has_names=True):
    net = Net(has_names)
    step = step_of(net)
    x, y = tf.random.normal((ROWS, 300)), tf.random.normal((ROWS, 50))
    for _ in range(STEPS):
        step(x, y)
    size = lambda *values: sum(4 * int(tf.size(value)) for value in values)  # noqa: E731
    variables = Counter()
    for each in [*net.weights, *net.sums, net.average, net.table]:
        variables[each.name.partition(":")[0]] += size(each)
    return {
        "parameters": size(*net.weights),
        "optimizer": 0,
        "least": {"state": size(*net.sums, net.average, net.table)},
        # The program's own variables, the data that it keeps, and what TensorFlow folds into constants of the function: a gradient, zeros.
        "most": {"state": size(*net.sums, net.average, net.table, x, y, y, *net.sums)},
        "variables": variables,
    }


def eager(net):
    return net.step


def function(net):
    return tf.function(net.step)


MODES = {
    "tensors": tensors,
    "eager": lambda: train(eager),
    "function": lambda: train(function),
    "eager without names": lambda: train(eager, has_names=False),
    "function without names": lambda: train(function, has_names=False),
}

if __name__ == "__main__":
    told = MODES[sys.argv[1]]()
    peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    print(json.dumps({"mode": sys.argv[1], "peak": peak} | told))
