"""A training in a fork of this process, which has imported TensorFlow and has not used it: TensorFlow reads its pool's settings when it
makes the pool. A fork saves the seconds that an import takes."""

import json
import os
import select
import signal
import time


def forked(train, environment, deadline, what):
    """The answer of `train`, a peak in bytes or None where it ran out of memory; and the seconds. `what` names the run in errors."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    from tensorflow.python.eager import context

    assert context._context is None or not context._context._initialized, "a fork needs a TensorFlow that was never used"
    reader, writer = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            os.environ.clear()
            os.environ.update(environment)
            os.write(writer, json.dumps(train()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(writer, json.dumps(repr(error)[:2000]).encode())
            os._exit(1)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], deadline)
        told = os.read(reader, 4096) if ready else b""
    finally:
        os.close(reader)
        if not told:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not ready:
        raise RuntimeError(f"{what} took more than {deadline} s")
    # Where memory is very short TensorFlow may die of a signal instead of raising: that is not passing either.
    peak = json.loads(told) if told else None
    if isinstance(peak, str):
        raise RuntimeError(f"{what}: {peak}")
    return peak, time.monotonic() - begin
