"""`MemoryCallback` in fakes of the trainers, on a stand-in for PyTorch on a GPU; prints facts as JSON on the last line.

python trainer_callbacks.py FOLDER
"""

import json
import sys

import torch
from pytorch_lightning import Trainer as Lightning
from torch import _C, cuda
from transformers import Trainer

import vramline
from vramline.frameworks import counters
from vramline.frameworks import torch as adapter
from vramline.huggingface import MemoryCallback
from vramline.lightning import MemoryCallback as LightningCallback

MIB = 1 << 20
facts, truth = {}, []
cuda.init()


def reset(number):
    _C.highest = _C._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"]


cuda.reset_peak_memory_stats = reset
kept = torch.Tensor(2 * MIB)


def hold(what, size):
    """Holds memory for a moment, and keeps what PyTorch's allocator says of it."""
    tensor = torch.Tensor(size)
    truth.append((what, _C._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"]))
    tensor.free()


def step(*_):
    hold("train", len([what for what, _ in truth if what == "train"]) * MIB + MIB)


def evaluate(*_):
    hold("evaluate", 20 * MIB)


def too_much(*_):
    torch.Tensor(1 << 40)


folder = sys.argv[1]
memory = MemoryCallback(steps=[1, 2], record=f"{folder}/hf.vram", print_stats=True)
trainer = Trainer(None, step, evaluate, [memory])
facts["metrics"] = trainer.train()
facts["evaluated"] = trainer.evaluate("eval_long")
facts["predicted"] = trainer.predict()
facts["hf"] = {"log": trainer.state.log_history, "history": memory.history, "truth": list(truth), "path": memory.path, "labels": memory.labels}
facts["usage"] = memory.memory_usage
truth.clear()

other = Trainer(None, step, evaluate, [])
other.train()
facts["another trainer"] = other.state.log_history
truth.clear()

ranked = MemoryCallback(record=f"{folder}/ranked.vram")
Trainer(None, step, evaluate, [ranked], process_index=3).train()
facts["rank"] = ranked.path
truth.clear()

memory = LightningCallback(steps="all")
lightning = Lightning(step, evaluate, [memory])
lightning.fit()
facts["lightning"] = {"lines": lightning.loggers[0].lines, "history": memory.history, "truth": list(truth)}


def loop():
    with vramline.record(f"{folder}/loop.vram") as recording:
        for number in range(10, 14):
            with recording.step(number):
                step() if number < 12 else too_much()


errors = {
    "loop": loop,
    "hf": lambda: Trainer(None, too_much, evaluate, [MemoryCallback(record=f"{folder}/failed.vram")]).train(),
    "hf evaluation": lambda: Trainer(None, step, too_much, [MemoryCallback()]).evaluate(),
    "lightning": lambda: Lightning(too_much, evaluate, [LightningCallback()]).fit(),
}
for name, call in errors.items():
    try:
        call()
    except torch.OutOfMemoryError as error:
        facts[f"failed, {name}"] = {"text": str(error), "notes": getattr(error, "__notes__", [])}


def refuse(call):
    try:
        return call()
    except (ValueError, TypeError) as error:
        return str(error)


class Broken:
    """A logger that fails, as when its server is gone."""

    def log_metrics(self, *_, **__):
        raise ConnectionError("no server")


lightning = Lightning(step, evaluate, [LightningCallback()])
lightning.loggers = [Broken()]
lightning.fit()
facts["refused"] = refuse(lambda: MemoryCallback(steps=5))
facts["no run"] = refuse(vramline.log_report)
facts["not a run"] = refuse(lambda: vramline.log_report(3))

# How the figures are read: prepared calls, as long as CUDA stays in use.
by_adapter, prepared = adapter.read("GPU:0"), counters.plan
facts["prepared"] = {"equal": prepared.read() == [tuple(by_adapter)] and counters.read_all() == [by_adapter]}
cuda._initialized = False
facts["prepared"] |= {"without CUDA": [prepared.read(), prepared.reset(), adapter.plan()]}
cuda._initialized = True
prepared = adapter.plan()
for _ in range(100):
    prepared.read()
facts["prepared"] |= {"after 100 reads": prepared.read()}
print(json.dumps(facts))
