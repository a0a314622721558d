"""What `vramline run` does inside the processes of its job.

`begin` is called once, when a framework is about to be imported. It opens the job's recording and has hooks put on the framework as
soon as that is there: counters at every step, the steps of Keras and of custom loops, a bounded trace, a last word at the end.

Nothing here initialises a device or resets a statistic the user did not ask to be reset; a hook that fails is taken for absent.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from types import ModuleType

from vramline import recorder, session
from vramline.attach import ending, fixes, imports, jax, keras, settings, tensorflow, torch
from vramline.attach.steps import Steps
from vramline.attach.window import Window


def begin() -> None:
    """Opens the recording and waits for the frameworks."""
    asked = settings.asked()
    folder = pathlib.Path(os.environ["VRAMLINE_RECORD"])
    job = session.session(folder)
    recorder.attach(job)
    _name_dumps(job)
    window = Window(job, asked)
    steps = Steps(job, window, asked.step_peaks, asked.stop)
    if asked.rate > 0:
        job.sample(1.0 / asked.rate)
    else:
        job.mark("mark", "attached")
    ending.watch(job, steps)

    def after(name: str, hook: Callable[[ModuleType], None]) -> None:
        def call(module: ModuleType) -> None:
            try:
                hook(module)
            finally:
                # A process that is killed later leaves its versions behind.
                job.note()

        imports.after(name, call)

    after("tensorflow", lambda module: tensorflow.hook(module, steps, asked))
    def with_fixes(module: ModuleType) -> None:
        # First, so that the hooks find what the job will use.
        for done in fixes.hook(module):
            job.mark("mark", f"vramline verify applies {done}")
        keras.hook(module, steps)

    after("keras", with_fixes)
    after("tf_keras", with_fixes)
    after("jax", lambda module: jax.hook(module, steps, asked))
    after("torch", lambda module: torch.hook(module, steps, asked))
    os.register_at_fork(after_in_child=steps.after_fork)
    os.register_at_fork(after_in_child=lambda: _name_dumps(job))


def _name_dumps(job: session.Session) -> None:
    """TensorFlow writes a picture of its pool there when an allocation fails. A name that a parent of this process was given is not ours."""
    told = os.environ.get("TF_BFC_MEMORY_DUMP", "")
    if not told or told.startswith(str(job.folder / "dump-")):
        os.environ["TF_BFC_MEMORY_DUMP"] = str(job.folder / f"dump-{job.name}")
