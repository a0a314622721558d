"""Trains with the memory callback in every way it may be asked, and writes down what it measured.

python callback.py FACTS FOLDER
"""

import csv
import sys
import time

import keras
import small

from vramline.keras import MemoryCallback

path, folder = sys.argv[1:]
facts = {}


def measured(name, callback, train):
    """What the callback tells of one training, and what Keras shows of it."""
    begin = time.monotonic_ns()
    told = train(callback)
    facts[name] = {
        "begin_ns": begin,
        "end_ns": time.monotonic_ns(),
        "history": [{key: row[key] for key in row if key != "time"} for row in callback.history],
        "labels": callback.labels,
        "memory_usage": callback.memory_usage,
        "keras": told.history if hasattr(told, "history") else told,
    }


def fit(model, **options):
    return lambda callback: model.fit(
        small.data(3), epochs=2, verbose=0, callbacks=[callback, *options.pop("others", [])], **options
    )


class Failing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise RuntimeError("enough is enough")


model = small.compiled()
log = keras.callbacks.CSVLogger(f"{folder}/log.csv")
measured("epochs", MemoryCallback(), fit(model, validation_data=small.data(2), others=[log]))
with open(f"{folder}/log.csv", newline="", encoding="utf-8") as file:
    facts["csv"] = list(csv.DictReader(file))
measured("all", MemoryCallback(batches="all"), fit(model, validation_data=small.data(2)))
measured("chosen", MemoryCallback(batches=[1]), fit(model))
measured("no logs", MemoryCallback(logs=False), fit(model))
measured(
    "evaluate",
    MemoryCallback(batches="all"),
    lambda callback: model.evaluate(small.data(2), verbose=0, callbacks=[callback], return_dict=True),
)
measured(
    "predict",
    MemoryCallback(batches="all"),
    lambda callback: model.predict(small.data(2), verbose=0, callbacks=[callback]).shape[0],
)
several = small.compiled(steps_per_execution=4)
measured(
    "steps_per_execution",
    MemoryCallback(batches="all"),
    lambda callback: several.fit(
        small.data(6), validation_data=small.data(5), verbose=0, callbacks=[callback]
    ),
)


def fail_then_go_on(callback):
    try:
        model.fit(small.data(3), verbose=0, callbacks=[callback, Failing()])
    except RuntimeError as error:
        facts["caught"] = str(error)
    facts["after the exception"] = len(callback.history)
    model.evaluate(small.data(1), verbose=0, callbacks=[callback])
    return model.fit(small.data(2), verbose=0, callbacks=[callback])


measured("exception", MemoryCallback(batches="all"), fail_then_go_on)

print("--- printed ---", flush=True)
recorded = MemoryCallback(batches=[0], record=f"{folder}/callback.vram", print_stats=True, devices=["cpu:0"])
measured("recorded", recorded, fit(model, validation_data=small.data(2)))
print("--- end ---", flush=True)
facts["path"] = recorded.path
try:
    MemoryCallback(batches="some")
except ValueError as error:
    facts["refused"] = str(error)
small.write(path, facts)
