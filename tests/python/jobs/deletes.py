"""Allocates a large tensor, reads, deletes it, waits and reads again, as articles do it; then watches blocks of code.

python deletes.py FACTS FOLDER
"""

import gc
import json
import sys
import time

import tensorflow as tf

import vramline

path, folder = sys.argv[1:]
MIB = 1 << 20


def truth():
    return tf.config.experimental.get_memory_info("CPU:0")


def tensor(mebibytes):
    return tf.ones(mebibytes * MIB // 4)


def told(watch, **more):
    figures = {"peak": watch.peak, "why": watch.why_peak, "text": str(watch), "html": watch._repr_html_()}
    return figures | {"change": watch.change("current"), "before": watch.before.peak, "after": watch.after.peak} | more


kept = tensor(1)
script = {"start": truth()}
large = tensor(64)
script["allocated"] = truth()
del large
gc.collect()
script["deleted"] = truth()
time.sleep(0.3)
script["later"] = truth()

info = vramline.memory_info("CPU:0")
limit = {"bytes": info.limit, "by": info.limit_by, "why": info.why("limit_by")}

watched = {}
second = tensor(16)
before = truth()["current"]
with vramline.watch("delete second") as watch:
    del second
watched["deleted"] = told(watch, truth=truth()["current"] - before)

with vramline.watch("a peak below that of the program") as watch:
    some = tensor(8)
    del some
    inside = truth()
watched["lower"] = told(watch, truth=inside)

with vramline.watch("outer") as outer:
    some = tensor(32)
    high = truth()
    del some
    with vramline.watch("inner") as inner:
        some = tensor(4)
        low = truth()
        del some
watched["outer"], watched["inner"] = told(outer, truth=high), told(inner, truth=low)

some = tensor(24)
del some
whole = truth()["peak"]
with vramline.watch("not higher", reset=False) as watch:
    some = tensor(2)
    del some
watched["not reset"] = told(watch, truth=truth(), whole=whole)
with vramline.watch("higher", reset=False) as watch:
    some = tensor(40)
    del some
watched["risen"] = told(watch, truth=truth())

with vramline.record(f"{folder}/inside.vram") as rec, vramline.watch("around a step") as watch:
    some = tensor(12)
    del some
    with rec.step(0):
        tensor(1)
watched["stepped"] = told(watch)

with vramline.watch("nothing") as watch:
    pass
watched["nothing"] = told(watch, truth=truth())
with open(path, "w", encoding="utf-8") as file:
    json.dump({"script": script, "limit": limit, "watched": watched}, file)
