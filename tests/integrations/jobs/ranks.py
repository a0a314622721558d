"""A rank of a training with Hugging Face's or Lightning's `Trainer`. The second holds more memory. Each writes its facts to `facts-RANK.json`.

torchrun --nproc-per-node 2 ranks.py FOLDER hugging_face|lightning
"""

import json
import os
import pathlib
import sys

import cuda_stand_in as cuda
import torch
from torch import nn

folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
cuda.install()
cuda.allocate(100 * rank * cuda.MIB)


def hugging_face():
    from transformers import Trainer, TrainingArguments

    from vramline.huggingface import MemoryCallback

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
    return memory, [line for line in trainer.state.log_history if "loss" in line]


def lightning():
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.strategies import DDPStrategy

    from vramline.lightning import MemoryCallback

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net, self.calls = nn.Linear(4, 1), 0

        def training_step(self, batch, number):
            self.calls += 1
            with cuda.held("train", self.calls * cuda.MIB):
                return self.net(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    lines = []

    # Keeps the lines of every rank: Lightning's own loggers write those of the first only.
    class Lines(CSVLogger):
        def log_metrics(self, metrics, step=None):
            lines.append(dict(metrics))

    memory = MemoryCallback(steps="all", record=folder / "run.vram")
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo"), logger=Lines(folder),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=2, callbacks=[memory])  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(16, 4), 1))
    return memory, [line for line in lines if "vram_peak_gib" in line]


memory, lines = {"hugging_face": hugging_face, "lightning": lightning}[sys.argv[2]]()
(folder / f"facts-{rank}.json").write_text(json.dumps({"lines": lines, "history": memory.history, "path": memory.path}))
