"""Starts Python processes in every usual way; each uses TensorFlow and tells its process id. The parent trains too.

python children.py FACTS
"""

import json
import multiprocessing
import os
import subprocess
import sys

WORK = "import tensorflow as tf, os; tf.function(lambda x: x @ x)(tf.ones((8, 8))); print(os.getpid())"


def work(told):
    import tensorflow as tf

    tf.function(lambda x: x @ x)(tf.ones((8, 8)))
    told.put(os.getpid())


def load(told):
    """A worker that prepares data and uses no framework, though one is there."""
    told.put(os.getpid())


def start(how, target):
    context = multiprocessing.get_context(how)
    told = context.SimpleQueue()
    process = context.Process(target=target, args=(told,))
    process.start()
    return process, told


def end(process, told):
    pid = told.get()
    process.join()
    assert process.exitcode == 0, process.exitcode
    return pid


def main():
    facts = {"parent": os.getpid()}
    children = [subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    started = {how: start(how, work) for how in ("fork", "spawn")}
    facts["subprocess"] = [int(child.communicate()[0].split()[-1]) for child in children]
    facts |= {how: end(*process) for how, process in started.items()}

    import small

    model = small.compiled()
    model.fit(small.data(2), verbose=0)
    # The trace is open, and TensorFlow has threads: the child of a fork has neither.
    facts["loader"] = end(*start("fork", load))
    model.fit(small.data(6), verbose=0)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(facts, file)


if __name__ == "__main__":
    main()
