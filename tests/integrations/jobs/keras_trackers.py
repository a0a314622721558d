"""Trains with Keras, and with the callbacks of TensorBoard, MLflow and Weights & Biases for it. Writes facts to `facts.json`.

python keras_trackers.py FOLDER
"""

import json
import os
import pathlib
import sys

os.environ |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}

import keras
import mlflow
import numpy as np
import wandb
from mlflow.keras import MlflowCallback
from wandb.integration.keras import WandbMetricsLogger

import vramline

folder = pathlib.Path(sys.argv[1])
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.ones((32, 8), "float32"), np.ones((32, 1), "float32")
memory = vramline.keras.MemoryCallback(record=folder / "keras.vram")
online = wandb.init(project="vramline", mode="offline", dir=str(folder))
with mlflow.start_run() as run:
    trackers = [keras.callbacks.TensorBoard(str(folder / "board")), WandbMetricsLogger(), MlflowCallback(run)]
    # Ours is last in the list.
    model.fit(x, y, epochs=2, validation_split=0.5, verbose=0, callbacks=[*trackers, memory])
    # To every active run.
    verdict = vramline.log_report()
online.finish()
told = {"history": memory.history, "run": run.info.run_id, "verdict": verdict}
(folder / "facts.json").write_text(json.dumps(told))
