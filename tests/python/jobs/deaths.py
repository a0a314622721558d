"""Dies of memory in a way that users know: `deaths.py WAY [VALUE]`. With the advice followed (another VALUE or limit) the same job passes."""

import sys

import tensorflow as tf

MIB = 1 << 20
way, value = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


def dense(batch, steps=3):
    """A product whose result is the batch: eager, so that what is held does not depend on the kernels."""
    weights = tf.Variable(tf.zeros([256, 1024]))
    for _ in range(steps):
        with tf.GradientTape() as tape:
            activations = tf.zeros([batch, 256]) @ weights
            loss = tf.reduce_mean(activations * activations)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))


def far():
    dense(int(value))


def slightly():
    dense(8192)


def pieces():
    """Every other block is freed, unless all of them were made before: half of the pool is free, and no two neighbours."""
    held = [tf.zeros([MIB], tf.uint8) for _ in range(56)]
    if value == "apart":
        del held[::2]
    else:
        del held[28:]
    tf.zeros([16 * MIB], tf.uint8)


def leak():
    """A list keeps what each step made."""
    kept = []
    weights = tf.Variable(tf.zeros([256, 256]))
    for _ in range(60):
        with tf.GradientTape() as tape:
            activations = tf.zeros([4096, 256]) @ weights
            loss = tf.reduce_mean(activations * activations)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        kept.append(float(loss) if value == "float" else activations)


def growing():
    """A longer sequence with every step, unless it is cut."""
    weights = tf.Variable(tf.zeros([64, 64]))
    for step in range(160):
        length = min(1024 * (step + 1), int(value) if value else 1 << 30)
        with tf.GradientTape() as tape:
            activations = tf.zeros([length, 64]) @ weights
            loss = tf.reduce_mean(activations * activations)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))


{"far": far, "slightly": slightly, "pieces": pieces, "leak": leak, "growing": growing}[way]()
print("passed")
