"""Trains with Keras on JAX, whose CPU counts no memory.

python jax_backend.py FACTS
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

import vramline
from vramline.keras import MemoryCallback

x, y = np.ones((24, 20), np.float32), np.zeros(24, np.int64)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32), keras.layers.Dense(4)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
memory = MemoryCallback(batches="all")
facts = {"before": vramline.devices()}
told = model.fit(x, y, batch_size=8, epochs=2, validation_data=(x[:16], y[:16]), verbose=0, callbacks=[memory])
model.predict(x, batch_size=8, verbose=0)
model.train_on_batch(x[:8], y[:8])
info = vramline.memory_info()
facts |= {
    "logs": sorted(told.history),
    "history": [{key: row[key] for key in row if key != "time"} for row in memory.history],
    "device": info.device,
    "figures": [info.current, info.peak, info.limit, info.pool],
    "why": [info.why(field) for field in ("current", "peak", "limit", "pool")],
    "parameters": model.count_params() * 4,
}
try:
    vramline.reset_peak()
except RuntimeError as error:
    facts["reset"] = str(error)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(facts, file)
