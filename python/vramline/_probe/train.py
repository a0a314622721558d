"""A probe of `fit_within`: a few training steps of the user's model at a small batch size, in a separate process.

    VRAMLINE_PROBE=FOLDER python train.py BATCH

FOLDER holds `probe.json`, the arrays, and the model unless a function builds it. It is an environment variable and not an argument,
because it differs in every run, and `vramline plan` reuses a recording only if the command is the same. If the model cannot be rebuilt, the
probe prints one line that begins with `cannot rebuild:`.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main(folder: Path, batch: int) -> None:
    told = json.loads((folder / "probe.json").read_text(encoding="utf-8"))
    sys.path += [path for path in told["path"] if path not in sys.path]
    # Import the framework before our package: that attaches, which loads the package that fits the launcher's version.
    import keras  # noqa: F401
    import numpy as np

    from vramline.planning import accumulation

    _settle(told)
    try:
        model = _model(folder, told)
    except Exception as error:
        # Keras writes the whole configuration before the reason, and parts of it after the reason.
        reason = str(error).rpartition("Exception encountered: ")[2].partition(" Full object config:")[0]
        # The process that started the probe recognises this failure by the prefix.
        print(f"cannot rebuild: {type(error).__name__}: {reason}".replace("\n", " "), flush=True)
        raise SystemExit(1) from error
    arrays = [np.load(folder / f"{number}.npy", mmap_mode="r") for number in range(told["arrays"])]
    rows = np.arange(batch * told["steps"]) % len(arrays[0])
    leaves = iter([array[rows] for array in arrays])
    data = tuple(_filled(part, leaves) for part in told["structure"])
    batches = accumulation.Batches(data, batch, batch, shuffle=False)
    model.optimizer.build(model.trainable_variables)
    with accumulation.Accumulation(model, told["accumulate"]):
        model.fit(batches.dataset(), epochs=1, verbose=0, shuffle=False, class_weight=_numbered(told["class_weight"]))


def _settle(told: dict[str, Any]) -> None:
    """Applies the settings of the process that started the probe."""
    import keras
    import tensorflow as tf

    keras.config.set_floatx(told["floatx"])
    keras.config.set_image_data_format(told["image_data_format"])
    keras.config.set_dtype_policy(told["dtype_policy"])
    tf.config.threading.set_inter_op_parallelism_threads(told["threads"][0])
    tf.config.threading.set_intra_op_parallelism_threads(told["threads"][1])


def _model(folder: Path, told: dict[str, Any]) -> Any:
    import keras

    if told["build"] is None:
        # Safe, because the process that started the probe has just saved this model.
        return keras.saving.load_model(folder / "model.keras", safe_mode=False)
    place, _, name = told["build"].rpartition(":")
    if place.endswith(".py"):
        # Use the name that `multiprocessing` uses: a script trains only if its name is __main__.
        function = runpy.run_path(place, run_name="__mp_main__")[name]
    else:
        function = importlib.import_module(place)
        for part in name.split("."):
            function = getattr(function, part)
    model = function()
    if getattr(model, "optimizer", None) is None:
        raise TypeError(f"{told['build']} returned {type(model).__name__}, expected a compiled model")
    if not model.built:
        raise TypeError(f"{told['build']} returned a model that is not built; start it with keras.Input, or call it once")
    return model


def _filled(structure: Any, leaves: Any) -> Any:
    """Replaces each number in the structure by the next array."""
    if isinstance(structure, dict):
        return {name: _filled(part, leaves) for name, part in structure.items()}
    if isinstance(structure, list):
        return tuple(_filled(part, leaves) for part in structure)
    return next(leaves)


def _numbered(weights: Any) -> Any:
    return None if weights is None else {int(name): weight for name, weight in weights.items()}


if __name__ == "__main__":
    main(Path(os.environ["VRAMLINE_PROBE"]), int(sys.argv[1]))
