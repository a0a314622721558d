"""A worker of a cluster of TensorFlow: a custom loop under MultiWorkerMirroredStrategy. Says its rank as the strategy knows it.

With `alone` it trains without the cluster, as the restart of a worker whose peers have ended. With `killed` it is killed once all of
them have ended the last step: earlier, a peer could still wait for its part of the sum. With `exhausts` its last step wants 256 MiB at
once, before its part of the sum is ready.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import tensorflow as tf

STEPS = 6

how = sys.argv[1]
strategy = tf.distribute.get_strategy() if how == "alone" else tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]

with strategy.scope():
    weights = tf.Variable(tf.ones([256, 256]), name="weights")


@tf.function
def step(batch, times):
    def replica(batch, times):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.tile(batch, [times, 1]), weights)))
        gradient = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weights))
        weights.assign_sub(0.01 * gradient)
        return loss

    return strategy.run(replica, args=(batch, times))


for number in range(STEPS):
    rows = 32 * (task["index"] + 1)
    times = (256 << 20) // (rows * 256 * 4) if how == "exhausts" and number == STEPS - 1 else 1
    step(tf.ones([rows, 256]), tf.constant(times))

resolver = strategy.cluster_resolver
context = strategy.extended
said = {"task": task, "rank": getattr(context, "_id_in_cluster", None), "workers": strategy.num_replicas_in_sync, "host": os.uname().nodename}
print(json.dumps(said), flush=True)


def wait_for(pattern, count):
    end = time.monotonic() + 60
    while len(list(Path().glob(pattern))) < count and time.monotonic() < end:
        time.sleep(0.01)


if how == "killed":
    wait_for("done-*", strategy.num_replicas_in_sync - 1)
    Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
if how == "whole":
    Path(f"done-{task['type']}-{task['index']}").touch()
    wait_for("killed", 1)
