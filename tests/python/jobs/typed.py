"""What people type, right or nearly right, on a real model; what becomes of it goes to standard output as JSON."""

import contextlib
import csv
import io
import json
import os
import sys
import warnings

import vramline

told = {}


def said(name, call):
    """What a call gives or raises, and what it says on standard error and in warnings."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            given = call()
            told[name] = {"given": given if isinstance(given, (int, str, list, dict, type(None))) else None}
        except Exception as error:
            told[name] = {"raised": f"{type(error).__name__}: {error}"}
    told[name]["said"] = errors.getvalue()
    told[name]["warned"] = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]


# Before the first tensor, and before a framework is there.
said("reset before anything", vramline.reset_peak)

import keras
import numpy as np
import tensorflow as tf

said("reset before the first tensor", vramline.reset_peak)
from vramline.keras import MemoryCallback

x, y = np.ones((32, 8), "float32"), np.ones((32, 1), "float32")


def fit(*callbacks):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=list(callbacks))


def trained(memory, times=1):
    for _ in range(times):
        fit(memory)
    return sorted({row["device"] for row in memory.history})


said("one device", lambda: trained(MemoryCallback(devices="cpu:0")))
said("no such device", lambda: trained(MemoryCallback(devices=["GPU:7"]), times=2))
said("a number", lambda: MemoryCallback(batches=5))
said("a word", lambda: MemoryCallback(batches="every"))
said("a range", lambda: sorted(MemoryCallback(batches=range(0, 10, 5)).batches))
said("the class", lambda: fit(MemoryCallback))
said("no such peak", lambda: vramline.reset_peak("GPU:7"))



def logged(name, *callbacks):
    history = fit(*callbacks)
    with open(name) as file:
        return {"columns": next(csv.reader(file)), "history": sorted(history.history)}


said("csv behind", lambda: logged("a.csv", MemoryCallback(), keras.callbacks.CSVLogger("a.csv")))
said("csv before", lambda: logged("b.csv", keras.callbacks.CSVLogger("b.csv"), MemoryCallback()))
said("scaled", lambda: trained(MemoryCallback(print_stats=True)))


def recorded(name):
    with vramline.record(name) as recording, recording.step(0):
        tf.ones(1000)
    return str(recording.path)


said("recorded", lambda: recorded("run.vram"))
said("recorded again", lambda: recorded("run.vram"))
os.mkdir("x.vram"), os.mkdir("x-2.vram")
for folder in ("x.vram", "x-2.vram"):
    with open(os.path.join(folder, "run.json"), "w") as file:
        file.write("{}")
said("an older one", lambda: str(vramline.load("x.vram").path))
said("the newest", lambda: str(vramline.load("x-2.vram").path))
said("no roles", lambda: vramline.compare(["run.vram", "run.vram"]).plot("role"))
with vramline.watch("a block") as watched:
    kept = tf.ones(1_000_000)
told["notebook"] = {"watch": watched._repr_html_(), "ledger": vramline.memory_info().ledger()._repr_html_()}
print(json.dumps(told), file=sys.__stdout__)
