"""What `vramline run` does inside the processes of its job.

`begin` is called once, when a framework is about to be imported. It opens the job's recording and has hooks put on the framework as
soon as that is there: counters at every step, the steps of Keras and of custom loops, a bounded trace, a last word at the end.

Nothing here initialises a device or resets a statistic the user did not ask to be reset; a hook that fails is taken for absent.
"""

from __future__ import annotations

import os
import pathlib

from vramline import recorder, session
from vramline.attach import ending, imports, jax, keras, settings, tensorflow, torch
from vramline.attach.steps import Steps
from vramline.attach.window import Window

# The one of this process.
steps: Steps


def begin() -> None:
    """Opens the recording and waits for the frameworks."""
    global steps
    asked = settings.asked()
    folder = pathlib.Path(os.environ["VRAMLINE_RECORD"])
    job = session.session(folder)
    recorder.attach(job)
    # TensorFlow writes a picture of its pool there when an allocation fails.
    if "TF_BFC_MEMORY_DUMP" not in os.environ:
        os.environ["TF_BFC_MEMORY_DUMP"] = str(folder / f"dump-{job.name}")
    window = Window(job, asked)
    steps = Steps(job, window, asked.step_peaks)
    if asked.rate > 0:
        job.sample(1.0 / asked.rate)
    else:
        job.mark("mark", "attached")
    ending.watch(job, steps)
    imports.after("tensorflow", lambda module: tensorflow.hook(module, steps, asked))
    imports.after("keras", lambda module: keras.hook(module, steps))
    imports.after("tf_keras", lambda module: keras.hook(module, steps))
    imports.after("jax", lambda module: jax.hook(module, steps, asked))
    imports.after("torch", lambda module: torch.hook(module, steps, asked))
    os.register_at_fork(after_in_child=steps.after_fork)
