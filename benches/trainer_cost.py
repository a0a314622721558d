"""What `MemoryCallback` costs a step of Hugging Face's and Lightning's trainers.

    .venv-integrations/bin/python benches/trainer_cost.py [--write docs/proof/cost-trainers.md]

Needs the environment of `make test-integrations`. The real trainers run a tiny model on the CPU; the processor time of the thread in each
event of the callback is added up and divided by the steps, so that neither what a step does nor waiting for a processor is measured.
On a busy machine caches are cold, and the figures are higher. A stand-in answers for the counters of `torch.cuda`: what the real ones take
comes on top, and `tests/gpu/trainers.py` measures it. Figures are medians with the range between the quartiles over several trainings.
Nothing is asserted.
"""

import argparse
import datetime
import importlib.metadata as metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TRAININGS, STEPS = 7, 100
HEAD = """# What the trainers' callbacks cost

`make proof` writes this page with `benches/trainer_cost.py`, which describes the method. The counters of `torch.cuda` are a stand-in here.

"""

JOB = """
import json, sys, tempfile, time, warnings
sys.path.insert(0, sys.argv[1])
import cuda_stand_in, torch
from torch import nn
cuda_stand_in.install()
warnings.simplefilter("ignore")
TRAININGS, STEPS = int(sys.argv[3]), int(sys.argv[4])

def timed(callback, names):
    spent = [0.0]
    for name in names:
        def event(*args, _call=getattr(callback, name), **kwargs):
            begin = time.thread_time()
            _call(*args, **kwargs)
            spent[0] += time.thread_time() - begin
        setattr(callback, name, event)
    return spent

def hugging_face(callback):
    from transformers import Trainer, TrainingArguments
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 1)
        def forward(self, x, labels=None):
            return {"loss": self.net(x).pow(2).mean()}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=STEPS, use_cpu=True, save_strategy="no", logging_steps=10**9, disable_tqdm=True, report_to=[])
        rows = [{"x": torch.randn(4), "labels": torch.zeros(())} for _ in range(STEPS * 8)]
        trainer = Trainer(Model(), arguments, train_dataset=rows, callbacks=[callback])
        spent = timed(callback, ["on_step_begin", "on_step_end", "on_substep_end"])
        trainer.train()
    return spent[0] / STEPS

def lightning(callback):
    import lightning as pl
    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 1)
        def training_step(self, batch, number):
            return self.net(batch).pow(2).mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)
    spent = timed(callback, ["on_train_batch_start", "on_train_batch_end"])
    trainer = pl.Trainer(max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=10**9, callbacks=[callback])
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(STEPS, 4), 1))
    return spent[0] / STEPS

if sys.argv[2] == "lightning":
    from vramline.lightning import MemoryCallback
else:
    from vramline.huggingface import MemoryCallback
run = {"lightning": lightning, "Hugging Face": hugging_face}[sys.argv[2]]
found = {"default": [], "steps": [], "recorded": []}
with tempfile.TemporaryDirectory() as folder:
    run(MemoryCallback(steps="all"))
    for _ in range(TRAININGS):
        found["default"].append(run(MemoryCallback()))
        found["steps"].append(run(MemoryCallback(steps="all")))
        found["recorded"].append(run(MemoryCallback(steps="all", record=folder + "/run.vram")))
json.dump(found, sys.__stdout__)
"""

CASES = {
    "default": "epochs and phases, as by default",
    "steps": 'every step, `steps="all"`',
    "recorded": "every step, and a mark of each on disk",
}


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * 1e6:.1f} µs ({low * 1e6:.1f} to {high * 1e6:.1f})"


def rows(trainer):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    jobs = REPOSITORY / "tests" / "integrations" / "jobs"
    command = [sys.executable, "-c", JOB, str(jobs), trainer, str(TRAININGS), str(STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{trainer} failed:\n{done.stderr}")
    found = json.loads(done.stdout[done.stdout.rindex("{") :])
    name = "Lightning" if trainer == "lightning" else trainer
    return [f"| {name} | {what} | {spread(found[case])} |" for case, what in CASES.items()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "lightning"))
    tables = [*rows("Hugging Face"), *rows("lightning")]
    load = os.getloadavg()[1]
    lines = [
        f"{versions}, Python {platform.python_version()}; {os.cpu_count()} cores, {platform.machine()}; {datetime.date.today()};"
        f" {load:.0f} processes wanted the processors meanwhile",
        "",
        f"| trainer | what is measured | processor time in the callback per step: median (quartiles) of {TRAININGS} trainings of {STEPS} steps |",
        "|---|---|---|",
        *tables,
    ]
    print("\n".join(lines))
    if args.write:
        args.write.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
