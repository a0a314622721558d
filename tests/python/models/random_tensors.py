"""Makes and drops tensors at random until TensorFlow's pool is exhausted, with the profiler on from the first one.

    python random_tensors.py SEED LOGDIR FACTS

FACTS gets what the last request asked for. TensorFlow writes its dump to standard error; a request that nobody's free
can save waits ten seconds for one. Afterwards a few more tensors are made and dropped, so that the trace shows how the
pool went on.
"""

import json
import random
import sys

import tensorflow as tf


def main():
    seed, logdir, facts = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    chance = random.Random(seed)
    tf.profiler.experimental.start(logdir, tf.profiler.experimental.ProfilerOptions(2, 0, 0))
    held = []
    made = 0

    def make():
        # Small ones are most, large ones fill the pool; exact multiples of 256 and their neighbours among them.
        bytes_ = int(2 ** chance.uniform(0, 22.5))
        if chance.random() < 0.3:
            bytes_ = max(1, bytes_ // 256 * 256 + chance.choice((-1, 0, 1)))
        held.append(bytes_)
        held[-1] = tf.zeros([bytes_], tf.uint8)
        return bytes_

    failed = None
    while failed is None:
        # More is made than dropped, so that it comes to an end; now and then most of it goes.
        if held and chance.random() < 0.42:
            held.pop(chance.randrange(len(held)))
        elif held and chance.random() < 0.004:
            while len(held) > 5:
                held.pop(chance.randrange(len(held)))
        else:
            try:
                make()
                made += 1
            except tf.errors.ResourceExhaustedError:
                failed = held.pop()
    for _ in range(40):
        if len(held) > 1:
            held.pop(chance.randrange(len(held)))
    held.extend(tf.zeros([chance.randrange(1, 60_000)], tf.uint8) for _ in range(30))
    tf.profiler.experimental.stop()
    with open(facts, "w", encoding="utf-8") as file:
        json.dump({"asked": failed, "made": made}, file)


if __name__ == "__main__":
    main()
