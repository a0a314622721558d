"""Trains with Hugging Face's `Trainer` and `vramline.huggingface.MemoryCallback`, and writes facts to `facts.json`.

python hugging_face.py FOLDER
"""

import hashlib
import json
import pathlib
import sys

import cuda_stand_in as cuda
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import vramline
from vramline.huggingface import MemoryCallback

MIB = cuda.MIB
folder = sys.argv[1]
cuda.install()
facts = {}


class Model(nn.Module):
    """A step holds 1 MiB more than the one before, a validation 20 MiB, a prediction 30 MiB."""

    def __init__(self, fails_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.calls, self.what, self.fails_at = 0, "validation", fails_at

    def forward(self, x, labels=None):
        what, size = (self.what, {"validation": 20, "predict": 30}.get(self.what)) if not self.training else ("train", 1 + self.calls)
        if self.training:
            self.calls += 1
            if self.calls == self.fails_at:
                raise torch.OutOfMemoryError(MESSAGE)
        with cuda.held(what, size * MIB):
            out = self.net(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}


MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including non-PyTorch "
    "memory, this process has 15.00 GiB memory in use. Of the allocated memory 14.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by "
    "PyTorch but unallocated."
)


class Watch(TrainerCallback):
    """What another callback finds in a line of the log."""

    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.lines.append(dict(logs))


def rows(count=16):
    generator = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(4, generator=generator), "labels": torch.randn(1, generator=generator)} for _ in range(count)]


def trainer(*callbacks, model=None, **options):
    arguments = TrainingArguments(f"{folder}/out", per_device_train_batch_size=1, gradient_accumulation_steps=2, num_train_epochs=2, use_cpu=True,
        eval_strategy="epoch", save_strategy="no", logging_steps=2, disable_tqdm=True, per_device_eval_batch_size=4, seed=3,
        **{"report_to": [], **options})  # fmt: skip
    return Trainer(model or Model(), arguments, train_dataset=rows(), eval_dataset=rows(8), callbacks=list(callbacks))


def told(memory, made, since, **more):
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in made.model.state_dict().values())).hexdigest()
    return {
        "history": memory.history if memory else [],
        "log": made.state.log_history,
        "seen": cuda.seen[since:],
        "digest": digest,
        **more,
    }


def train(memory=None, **options):
    watch, since, resets = Watch(), len(cuda.seen), cuda.resets
    # The watching callback is first in the list of the program.
    made = trainer(watch, *([memory] if memory else []), **options)
    metrics = made.train().metrics
    return made, told(memory, made, since, lines=watch.lines, metrics=metrics, resets=cuda.resets - resets)


_, facts["bare"] = train()

memory = MemoryCallback(steps="all", record=f"{folder}/hf.vram")
made, facts["all"] = train(memory)
made.model.what = "predict"
facts["all"]["predict metrics"] = made.predict(rows(4)).metrics
made.model.what = "validation"
facts["all"]["evaluate metrics"] = made.evaluate()
facts["all"] |= {"path": memory.path, "history": memory.history, "log": made.state.log_history}

trackers = ["tensorboard", "mlflow", "wandb"]
memory = MemoryCallback(record=f"{folder}/tracked.vram")
made, facts["tracked"] = train(memory, report_to=trackers, run_name="tracked")
facts["tracked"]["verdict"] = vramline.log_report()

_, facts["skip_memory_metrics=False"] = train(MemoryCallback(steps="all"), skip_memory_metrics=False)
_, facts["no logs"] = train(MemoryCallback(logs=False))

made = trainer(model=Model(fails_at=5))
made.add_callback(MemoryCallback(record=f"{folder}/failed.vram"))
try:
    made.train()
except torch.OutOfMemoryError as error:
    facts["failed"] = {"args": error.args, "notes": getattr(error, "__notes__", [])}
made.model.fails_at = None
made.evaluate()
facts["failed"]["after"] = made.state.log_history[-1]

pathlib.Path(folder, "facts.json").write_text(json.dumps(facts))
