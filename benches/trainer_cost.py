"""What `MemoryCallback` costs a step of Hugging Face's and Lightning's trainers.

    .venv-integrations/bin/python benches/trainer_cost.py [--write docs/proof/cost-trainers.md]

Needs the environment of `make test-integrations`. The real trainers run a tiny model on the CPU. The processor time of the thread in the
events of the callback is measured, so that neither what a step does nor waiting for a processor counts. Between two events the trainer and
PyTorch run, so the callback's code is not in the caches of the processor.

A stand-in answers for the counters of `torch.cuda`. A callback that only calls the stand-in as often as `MemoryCallback` does is measured the
same way: what the stand-in and the clock itself take. The real counters of a GPU take longer; `tests/gpu/trainers.py` measures the callback there.

Figures are medians over all steps but the first, with the range between the quartiles. The first step is listed apart: code is loaded, and
a recording creates a file. Nothing is asserted. With `--write`, the part of the page on a GPU stays.
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

## On the CPU

`make proof` writes this part with `benches/trainer_cost.py`, which describes the method. The counters of `torch.cuda` are a stand-in here.

"""
# What `tests/gpu/trainers.py --write` writes.
GPU = "\n## On a GPU\n"

JOB = """
import json, sys, tempfile, time, warnings
sys.path.insert(0, sys.argv[1])
import cuda_stand_in, torch
from torch import nn
cuda_stand_in.install()
warnings.simplefilter("ignore")
TRAININGS, STEPS = int(sys.argv[3]), int(sys.argv[4])

def timed(callback, names):
    # By step: the time in these events of a callback. The first of them begins a step.
    spent = []
    for place, name in enumerate(names):
        def event(*args, _call=getattr(callback, name), _begins=not place, **kwargs):
            begin = time.thread_time()
            _call(*args, **kwargs)
            took = time.thread_time() - begin
            if _begins:
                spent.append(took)
            else:
                spent[-1] += took
        setattr(callback, name, event)
    return spent

def only_stand_in(base):
    # A callback that asks the stand-in as often as MemoryCallback(steps="all") does in a step, and nothing else.
    stats, reset = torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats
    class Bare(base):
        def on_step_begin(self, *args, **kwargs):
            stats(0), reset(0)
        def on_step_end(self, *args, **kwargs):
            stats(0)
        def on_train_batch_start(self, *args):
            stats(0), reset(0)
        def on_train_batch_end(self, *args):
            stats(0)
    return Bare()

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
        spent = timed(callback, ["on_step_begin", "on_step_end"])
        trainer.train()
    return spent

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
    return spent

if sys.argv[2] == "lightning":
    from lightning.pytorch import Callback as Base
    from vramline.lightning import MemoryCallback
else:
    from transformers import TrainerCallback as Base
    from vramline.huggingface import MemoryCallback
run = {"lightning": lightning, "Hugging Face": hugging_face}[sys.argv[2]]
found = {"stand-in": [], "default": [], "steps": [], "recorded": []}
with tempfile.TemporaryDirectory() as folder:
    run(MemoryCallback(steps="all"))
    for number in range(TRAININGS):
        found["stand-in"].append(run(only_stand_in(Base)))
        found["default"].append(run(MemoryCallback()))
        found["steps"].append(run(MemoryCallback(steps="all")))
        found["recorded"].append(run(MemoryCallback(steps="all", record=f"{folder}/{number}.vram")))
json.dump(found, sys.__stdout__)
"""

CASES = {
    "stand-in": "nothing but the stand-in and the clock",
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
    lines = []
    for case, what in CASES.items():
        later = [step for training in found[case] for step in training[1:]]
        first = statistics.median(training[0] for training in found[case])
        lines.append(f"| {name} | {what} | {spread(later)} | {first * 1e6:.0f} µs |")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file too")
    args = parser.parse_args()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "lightning"))
    tables = [*rows("Hugging Face"), *rows("lightning")]
    load = os.getloadavg()[0]
    lines = [
        f"{versions}, Python {platform.python_version()}; {os.cpu_count()} cores, {platform.machine()}; {datetime.date.today()};"
        f" load average {load:.1f}; {TRAININGS} trainings of {STEPS} steps for each row",
        "",
        "| trainer | what is measured | processor time per step: median (quartiles) | the first step |",
        "|---|---|---|---|",
        *tables,
    ]
    print("\n".join(lines))
    if args.write:
        _, mark, kept = args.write.read_text().partition(GPU)
        args.write.write_text(HEAD + "\n".join(lines) + "\n" + mark + kept)


if __name__ == "__main__":
    main()
