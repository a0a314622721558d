"""Calls the Python API in a loop of its own, before and after TensorFlow is used, and writes down what it was told.

python api.py FACTS FOLDER
"""

import json
import sys
import time

import vramline

path, folder = sys.argv[1:]
facts = {"imported": [name for name in ("tensorflow", "keras", "jax", "torch") if name in sys.modules]}
FIELDS = ("current", "peak", "limit", "limit_by", "pool", "driver_used", "driver_total", "host_total", "host_resident")


def told(*arguments, **named):
    info = vramline.memory_info(*arguments, **named)
    figures = {field: getattr(info, field) for field in FIELDS}
    return figures | {"device": info.device, "why": {field: info.why(field) for field in FIELDS}}


def refused(call):
    try:
        call()
    except LookupError as error:
        return str(error)
    return None


facts["before import"] = told()
import tensorflow as tf

facts["before use"] = told("CPU:0")
facts["no devices"] = vramline.devices()
facts["no reset"] = refused(vramline.reset_peak)
with vramline.watch("nothing") as nothing:
    pass
facts["watched nothing"] = str(nothing)
with vramline.record(f"{folder}/early") as rec, rec.step(5):
    rec.mark("nothing yet")
facts["early"] = str(rec.path)

# All of these fail once TensorFlow has been initialised.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def truth():
    return tf.config.experimental.get_memory_info("CPU:0")


x = tf.ones(1 << 20)
facts["devices"] = vramline.devices()
facts["info"], facts["truth"] = told("cpu:0", framework="tensorflow"), truth()
facts["any"] = told()["device"]
facts["other"] = told("GPU:7")
big = tf.ones(1 << 21)
del big
vramline.reset_peak("CPU:0")
facts["reset"] = truth()
with vramline.watch("delete x") as deleted:
    del x
facts["deleted"] = {"change": deleted.change("current"), "text": str(deleted), "pool": deleted.change("pool")}

SIZES = [1 << 20, 1 << 18, 1 << 19]
steps, marks = [], []
begin = time.monotonic_ns()
print("--- printed ---", flush=True)
with vramline.record(f"{folder}/loop.vram", print_every=2) as rec:
    facts["loop"] = str(rec.path)
    for number, size in enumerate(SIZES):
        with rec.step(number * 10):
            y = tf.ones(size)
            rec.mark("made")
            marks.append(truth()["current"])
            del y
            # Inside the step: nothing of ours runs between this and its end.
            steps.append(truth())
print("--- end ---", flush=True)
facts |= {"steps": steps, "marks": marks}

# A second recording of the name: this program's own is gone on with, and a step without a number is counted.
whole = truth()["peak"]
with vramline.record(f"{folder}/loop.vram", step_peaks=False, phase="validation", rate=100) as rec:
    facts["again"] = str(rec.path)
    for _ in range(2):
        with rec.step():
            tf.ones(1 << 10)
    time.sleep(0.1)
facts["not reset"] = truth()["peak"] == whole

try:
    with vramline.record(f"{folder}/fails.vram") as rec, rec.step(0):
        raise RuntimeError("enough is enough")
except RuntimeError as error:
    facts["raised"] = str(error)
with open(path, "w", encoding="utf-8") as file:
    json.dump(facts, file)
