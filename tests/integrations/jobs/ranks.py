"""A rank of a training with Hugging Face's `Trainer`. The second holds more memory. Each writes its facts to `facts-RANK.json`.

torchrun --nproc-per-node 2 ranks.py FOLDER
"""

import json
import os
import pathlib
import sys

import cuda_stand_in as cuda
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from vramline.huggingface import MemoryCallback

folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
cuda.install()
cuda.allocate(100 * rank * cuda.MIB)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.calls = nn.Linear(4, 1), 0

    def forward(self, x, labels=None):
        self.calls += 1
        with cuda.held("train", self.calls * cuda.MIB):
            return {"loss": ((self.net(x) - labels) ** 2).mean()}


rows = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(16)]
arguments = TrainingArguments(folder / "out", per_device_train_batch_size=1, num_train_epochs=1, use_cpu=True, ddp_backend="gloo",
    save_strategy="no", logging_steps=2, disable_tqdm=True, report_to=[])  # fmt: skip
memory = MemoryCallback(steps="all", record=folder / "run.vram")
trainer = Trainer(Model(), arguments, train_dataset=rows, callbacks=[memory])
trainer.train()
(folder / f"facts-{rank}.json").write_text(json.dumps({"log": trainer.state.log_history, "history": memory.history, "path": memory.path}))
