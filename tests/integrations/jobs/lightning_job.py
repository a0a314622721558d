"""Trains with Lightning's `Trainer` and `vramline.lightning.MemoryCallback`, and writes facts to `facts.json`.

python lightning_job.py FOLDER lightning.pytorch|pytorch_lightning|late

With `late`, `vramline.lightning` is imported before the package of the program, which is `pytorch_lightning`.
"""

import hashlib
import importlib
import json
import pathlib
import sys

import cuda_stand_in as cuda
import torch
from torch import nn

folder, package = sys.argv[1:]
if package == "late":
    import vramline.lightning

    package = "pytorch_lightning"
pl = importlib.import_module(package)
loggers = importlib.import_module(f"{package}.loggers")

import vramline
from vramline.lightning import MemoryCallback

MIB = cuda.MIB
cuda.install()
facts = {}
MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including non-PyTorch "
    "memory, this process has 15.00 GiB memory in use. Of the allocated memory 14.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by "
    "PyTorch but unallocated."
)


class Model(pl.LightningModule):
    """A step holds 1 MiB more than the one before, a validation 20 MiB, a test 25 MiB, a prediction 30 MiB."""

    def __init__(self, fails_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.calls, self.fails_at, self.losses = 0, fails_at, []

    def training_step(self, batch, number):
        self.calls += 1
        if self.calls == self.fails_at:
            raise torch.OutOfMemoryError(MESSAGE)
        with cuda.held("train", self.calls * MIB):
            loss = self.net(batch).pow(2).mean()
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, number):
        with cuda.held("validation", 20 * MIB):
            self.net(batch)

    def test_step(self, batch, number):
        with cuda.held("test", 25 * MIB):
            self.net(batch)

    def predict_step(self, batch, number):
        with cuda.held("predict", 30 * MIB):
            return self.net(batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def loader(count, batch=2):
    return torch.utils.data.DataLoader(torch.randn(count, 4, generator=torch.Generator().manual_seed(1)), batch)


def trainer(*callbacks, logger=False, **options):
    return pl.Trainer(max_epochs=2, accelerator="cpu", logger=logger, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=1, accumulate_grad_batches=2, log_every_n_steps=2, callbacks=list(callbacks),
        **options)  # fmt: skip


def fit(memory=None, more=(), **options):
    since, resets = len(cuda.seen), cuda.resets
    model = Model()
    made = trainer(*more, *([memory] if memory else []), **options)
    pl.seed_everything(3)
    made.fit(model, loader(16), loader(4))
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    return made, model, {
        "history": list(memory.history) if memory else [],
        "seen": cuda.seen[since:],
        "digest": digest,
        "losses": model.losses,
        "resets": cuda.resets - resets,
    }


*_, facts["bare"] = fit()

memory = MemoryCallback(steps="all", record=f"{folder}/lightning.vram")
csv = loggers.CSVLogger(folder, name="csv")
board = loggers.TensorBoardLogger(folder, name="board")
made, model, facts["all"] = fit(memory, logger=[csv, board])
made.validate(model, loader(4), verbose=False)
made.test(model, loader(4), verbose=False)
made.predict(model, loader(4))
facts["all"] |= {"history": memory.history, "path": memory.path, "csv": csv.log_dir, "board": board.log_dir}

if sys.argv[2] == "lightning.pytorch":
    store = loggers.MLFlowLogger("lightning", tracking_uri=f"file:{folder}/store")
    online = loggers.WandbLogger(name="lightning", save_dir=folder, offline=True)
    memory = MemoryCallback(record=f"{folder}/tracked.vram")
    *_, facts["tracked"] = fit(memory, logger=[store, online])
    facts["tracked"] |= {"verdict": vramline.log_report(store), "run": store.run_id}
    facts["tracked"]["again"] = vramline.log_report(online)
    online.experiment.finish()

    *_, facts["DeviceStatsMonitor"] = fit(
        MemoryCallback(steps="all"), [pl.callbacks.DeviceStatsMonitor(cpu_stats=False)], logger=loggers.CSVLogger(folder, name="monitor")
    )
    *_, facts["no logs"] = fit(MemoryCallback(logs=False), logger=(quiet := loggers.CSVLogger(folder, name="quiet")))
    facts["no logs"]["csv"] = quiet.log_dir
    try:
        trainer(MemoryCallback).fit(Model(), loader(4))
    except TypeError as error:
        facts["the class"] = str(error)

model = Model(fails_at=5)
memory = MemoryCallback(record=f"{folder}/failed.vram")
try:
    trainer(memory).fit(model, loader(16))
except torch.OutOfMemoryError as error:
    facts["failed"] = {"args": error.args, "notes": getattr(error, "__notes__", [])}
facts["bases"] = [base.__module__ for base in MemoryCallback.__mro__ if base.__name__ == "Callback"]
pathlib.Path(folder, "facts.json").write_text(json.dumps(facts))
