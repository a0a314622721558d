"""What `vramline run` does inside the processes of its job.

`begin` is called once, when the program is about to import a framework. It opens the job's recording and installs hooks on the framework
as soon as that is imported. The hooks read counters at every step, find the steps of Keras and of custom loops, make a bounded trace, and
write a final mark when the process ends.

Nothing here initialises a device, or resets a statistic unless the user requested it. A hook that fails is ignored.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from types import ModuleType

from vramline.attach import ending, fixes, imports, jax, keras, settings, tensorflow, torch, trainers
from vramline.attach.requests import Requests
from vramline.attach.steps import Steps
from vramline.attach.window import Window
from vramline.recording import recorder, session


def begin() -> None:
    """Opens the recording, and installs hooks on each framework when it is imported."""
    options = settings.options()
    folder = pathlib.Path(os.environ["VRAMLINE_RECORD"])
    job = session.session(folder)
    recorder.attach(job)
    _name_dumps(job)
    window = Window(job, options)
    steps = Steps(job, window, options)
    requests = Requests(job)
    job.on_request = requests.noticed
    if options.rate > 0:
        job.sample(1.0 / options.rate)
    else:
        job.mark("mark", "attached")
    ending.watch(job, steps)

    def after(name: str, hook: Callable[[ModuleType], None]) -> None:
        def call(module: ModuleType) -> None:
            try:
                hook(module)
            finally:
                # Write the framework's version now, because the process may be killed later.
                job.note()

        imports.after(name, call)

    after("tensorflow", lambda module: tensorflow.hook(module, steps, options, requests))

    def with_fixes(module: ModuleType) -> None:
        # Apply the fixes first, so that the hooks see what the job will use.
        for done in fixes.hook(module):
            job.mark("mark", f"vramline verify applies {done}")
        keras.hook(module, steps)

    after("keras", with_fixes)
    after("tf_keras", with_fixes)
    after("jax", lambda module: jax.hook(module, steps, options, requests))
    after("torch", lambda module: torch.hook(module, steps, options, requests))
    trainers.hook(steps)
    os.register_at_fork(after_in_child=steps.after_fork)
    os.register_at_fork(after_in_child=requests.after_fork)
    os.register_at_fork(after_in_child=lambda: _name_dumps(job))


def _name_dumps(job: session.Session) -> None:
    """Sets where TensorFlow dumps its pool when an allocation fails: a file of this process, not of its parent. A name from the user stays."""
    told = os.environ.get("TF_BFC_MEMORY_DUMP", "")
    if not told or told.startswith(str(job.folder / "dump-")):
        os.environ["TF_BFC_MEMORY_DUMP"] = str(job.folder / f"dump-{job.name}")
