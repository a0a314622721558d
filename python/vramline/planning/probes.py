"""Probes: short runs of a model at small batch sizes in separate processes, from which `vramline plan` makes its plans.

What a probe needs is written to a folder: the model or the name of the function that builds it, some of the data, and the settings of
this process. `_probe/train.py` reads that folder.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramline import _vramline, command
from vramline.planning import accumulation

# Small numbers that are rarely a dimension of a model, so that batch dimensions can be told from others.
PROBES = (5, 7, 11)
# Micro-batches that each probe traces: with accumulation over two, these are three updates.
_STEPS = 6


class CannotPlan(RuntimeError):
    """Raised by `fit_within` if no plan can be made: the model cannot be rebuilt in another process, or its probes failed."""


class Probes:
    """Short runs of a model in separate processes, and the plans made from them."""

    def __init__(self, model: Any, folder: Path, keep: Path | None, batches: tuple[int, ...]) -> None:
        self._model, self._folder, self._keep = model, folder, keep
        self._kept = folder
        self._batches = sorted(set(batches))
        if len(self._batches) < 2 or self._batches[0] < 1:
            raise ValueError(f"probes: expected at least two different batch sizes, found {batches}")

    def save(
        self, data: tuple[Any, ...], build: Callable[[], Any] | str | None, class_weight: dict[int, float] | None
    ) -> None:
        """Writes what the probes need to the folder."""
        import keras
        import numpy as np
        import tensorflow as tf

        arrays = [np.asarray(array) for array in keras.tree.flatten(data)]
        rows = min(self._batches[-1] * _STEPS, len(arrays[0]))
        for number, array in enumerate(arrays):
            np.save(self._folder / f"{number}.npy", array[:rows])
        self._told = {
            "path": [os.path.abspath(path) for path in sys.path],
            "build": _place(build),
            "arrays": len(arrays),
            "structure": keras.tree.map_structure(lambda _: 0, data),
            "steps": _STEPS,
            "class_weight": class_weight,
            "floatx": keras.config.floatx(),
            "image_data_format": keras.config.image_data_format(),
            "dtype_policy": keras.config.dtype_policy().name,
            "threads": [
                tf.config.threading.get_inter_op_parallelism_threads(),
                tf.config.threading.get_intra_op_parallelism_threads(),
            ],
        }
        if self._keep is not None:
            shapes = [[list(array.shape[1:]), str(array.dtype)] for array in arrays]
            self._kept = self._keep / f"model-{_fingerprint(self._model, shapes, self._told)}"
        if build is None:
            try:
                self._model.save(self._folder / "model.keras")
            except Exception as error:
                raise CannotPlan(f"the model cannot be saved for its probes: {error}\n{_BUILD}") from error

    def plan(self, accumulate: int, batch: int, limit: int | None, confirm: int = 0) -> _vramline.PlanDocument:
        """Returns the plan for a batch size, from probes that accumulate over `accumulate` micro-batches. Runs those that are missing.

        With `confirm`, the batch size itself runs that many times under the limit.
        """
        (self._folder / "probe.json").write_text(json.dumps(self._told | {"accumulate": accumulate}), encoding="utf-8")
        script = Path(__file__).parents[1] / "_probe" / "train.py"
        command = [
            *(_command(), "plan", "--json", "--repeats", "1", "--trace-steps", str(_STEPS)),
            *("--batches", ",".join(map(str, self._batches)), "--batch", str(batch)),
            *(("--limit", str(limit)) if limit is not None else ()),
            *(("--confirm", str(confirm)) if confirm else ("--no-confirm",)),
            *("--output", str(self._kept / f"accumulate-{accumulate}")),
            *("--", sys.executable, str(script), "{batch}"),
        ]
        environment = _environment() | {"VRAMLINE_PROBE": str(self._folder)}
        done = _run(command, environment)
        # Exit codes of a plan: it fits (0), it does not fit (3), not certain (4).
        if done.returncode not in (0, 3, 4):
            said = re.search(r"cannot rebuild: (.*)", done.stderr)
            if said:
                raise CannotPlan(f"the model cannot be rebuilt in another process: {said[1]}\n{_BUILD}")
            raise CannotPlan(f"`vramline plan` failed:\n{done.stderr.strip()}")
        return _vramline.PlanDocument(done.stdout)


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. On an interrupt, terminates it and waits, so that no probe keeps running on its own."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _fingerprint(model: Any, shapes: list[Any], told: dict[str, Any]) -> str:
    """Returns a hash of what probes depend on: the model, how it is trained, the kind of data, and the software. Not batch and limit.

    Names that Keras numbers (dense_3) do not matter, nor do the values of weights or of a learning rate.
    """
    import keras
    import tensorflow as tf

    layers = [model, *model._flatten_layers(include_self=False)]
    optimizer = accumulation.inner(model.optimizer)
    named = dict.fromkeys(part.name for part in [*layers, model.optimizer, optimizer])
    names = {name: f"#{number}" for number, name in enumerate(named)}
    settings = {name: value for name, value in _config(optimizer).items() if not (name == "learning_rate" and _is_number(value))}
    compiled = {name: value for name, value in _attempted(model.get_compile_config, {}).items() if name != "optimizer"}
    facts = {
        "layers": [[type(layer).__module__, type(layer).__qualname__, _config(layer)] for layer in layers],
        "weights": [[list(each.shape), str(each.dtype), bool(each.trainable)] for each in model.weights],
        "optimizer": [type(model.optimizer).__qualname__, type(optimizer).__qualname__, settings],
        "states": [[list(each.shape), str(each.dtype)] for each in model.optimizer.variables],
        "compiled": compiled,
        "how": [str(getattr(model, name, None)) for name in ("jit_compile", "run_eagerly", "steps_per_execution")],
        "code": [_code(each) for each in [*layers, optimizer, *keras.tree.flatten(getattr(model, "loss", None))]],
        "data": shapes,
        "told": {name: value for name, value in told.items() if name != "path"},
        "versions": [platform.python_version(), tf.__version__, keras.__version__, _version()],
        "devices": [[device.device_type, device.name] for device in tf.config.list_physical_devices()],
        "environment": {
            name: value
            for name, value in sorted(_environment().items())
            if name in ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES") or (name.startswith("TF_") and "LOG" not in name)
        },
    }
    text = json.dumps(_renamed(facts, names), sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _attempted(function: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return function()
    except Exception:  # A user's class may raise anything; the other facts are still usable.
        return otherwise


def _config(part: Any) -> dict[str, Any]:
    return _attempted(part.get_config, {})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or getattr(value, "shape", None) == ()


def _code(part: Any) -> str | None:
    """Returns the source code of classes that are not part of Keras: their configuration does not say what they compute."""
    kinds = [part] if inspect.isroutine(part) else type(part).__mro__
    own = [kind for kind in kinds if getattr(kind, "__module__", "").partition(".")[0] not in ("keras", "tensorflow", "builtins")]
    return "\n".join(_attempted(lambda kind=kind: inspect.getsource(kind), "") for kind in own) or None  # type: ignore[misc]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {str(_renamed(name, names)): _renamed(part, names) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _plain(value: Any) -> str:
    """Converts values that JSON does not support to their type's name: a repr with an address would differ in every run."""
    return str(value) if getattr(value, "shape", None) == () else f"{type(value).__module__}.{type(value).__qualname__}"


def _version() -> str:
    from importlib import metadata

    return _attempted(lambda: metadata.version("vramline"), "")


_BUILD = (
    "hint: pass build=, a function that returns the compiled model, or its name as 'module:function'; or move custom "
    "objects to a module and register them with keras.saving.register_keras_serializable"
)


def _place(build: Callable[[], Any] | str | None) -> str | None:
    """Returns where another process finds a function, as "module:function" or "script.py:function"."""
    if build is None:
        return None
    if isinstance(build, str):
        if not re.fullmatch(r"[\w.]+:[\w.]+", build):
            raise ValueError(f"build: expected a function or 'module:function', found {build!r}")
        return build
    name = getattr(build, "__qualname__", "")
    module = getattr(build, "__module__", None)
    if not name or "<" in name or module is None:
        raise ValueError(f"build: another process cannot import {build!r}\nhint: define it with def at the top level of a module")
    if module == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", None)
        if script is None:
            raise ValueError("build: another process cannot import a function of an interactive session\nhint: define it in a module")
        return f"{os.path.abspath(script)}:{name}"
    return f"{module}:{name}"


def _command() -> str:
    try:
        return command.path()
    except command.NotFound as error:
        raise CannotPlan(str(error)) from error


def _environment() -> dict[str, str]:
    """Returns the environment of a probe: without the CPU pool's limit, and with memory growth, because it shares the GPU."""
    package = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPU_BFC_MEM_LIMIT_IN_MB"}
    environment["VRAMLINE_PACKAGE"] = str(package)
    environment["KERAS_BACKEND"] = "tensorflow"
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    paths = [environment.get("PYTHONPATH"), str(package.parent)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment
