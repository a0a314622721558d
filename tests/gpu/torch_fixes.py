"""Fixes of PyTorch programs on a real GPU: what `vramline plan` says that they save, against what they save.

    python tests/gpu/torch_fixes.py OUT [--jobs A,B]

Needs vramline and PyTorch with CUDA; no network; about a minute. Three small jobs: a decoder, a convolutional net, and an MLP whose weights
are most of its memory and whose gradients stay allocated between steps. Each is recorded at three batch sizes. Then the target runs as it is
and with each fix written into the program: autocast, accumulation, updates inside the backward pass, updates one parameter at a time, and
gradients that are freed. A fourth job accumulates already. Two more, a vision transformer and a U-Net, run as they are and with autocast
only: they were listed before anything of them ran. Several processes run at the same time.

OUT gets `torch_fixes.jsonl`, a row for each job and fix, and `probes.tar.gz` with the recordings.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

from plan_models import words

STEPS = 4
BATCHES = {
    "decoder": (3, 5, 7),
    "convolution": (3, 5, 7),
    "mlp": (11, 17, 23),
    "accumulated": (12, 20, 28),
    "vision": (3, 5, 7),
    "segmenter": (3, 5, 7),
}
TARGETS = {"decoder": 56, "convolution": 64, "mlp": 256, "accumulated": 112, "vision": 56, "segmenter": 48}
# What is written into each program, by the name that the plan has for it.
GENERAL = ("mixed-precision", "accumulate", "step-in-backward", "one-by-one")
FIXES = {
    "decoder": GENERAL,
    "convolution": GENERAL,
    "mlp": (*GENERAL, "set-to-none"),
    "accumulated": (),
    "vision": ("mixed-precision",),
    "segmenter": ("mixed-precision",),
}
ACCUMULATED = 4
WORKERS = 8
DEADLINE = 110


def decoder(torch):
    return words.gpt(torch, length=160, words=3000, width=320, heads=5, blocks=5)


def convolution(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
            )  # fmt: skip
            self.short = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.body(x) + self.short(x))

    layers = [nn.Conv2d(3, 40, 5, 2, 2, bias=False), nn.BatchNorm2d(40), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [Block(40, 80, 1), Block(80, 160, 2), Block(160, 320, 2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(320, 100))
    return model, lambda batch: (torch.randn(batch, 3, 144, 144), torch.randint(0, 100, (batch,)))


def mlp(torch):
    nn = torch.nn
    layers = [nn.Linear(1200, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 50)]
    return nn.Sequential(*layers), lambda batch: (torch.randn(batch, 1200), torch.randint(0, 50, (batch,)))


def vision(torch):
    """A vision transformer whose attention is written by hand."""
    nn, side, patch, width, heads, kinds = torch.nn, 96, 8, 256, 4, 100
    count = (side // patch) ** 2

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            batch, count, size = x.shape[0], x.shape[1], width // heads
            q, k, v = self.inner(self.first(x)).view(batch, count, 3, heads, size).permute(2, 0, 3, 1, 4).unbind(0)
            weights = (q @ k.transpose(2, 3) * size**-0.5).softmax(-1)
            x = x + self.outer((weights @ v).transpose(1, 2).reshape(batch, count, width))
            return x + self.mlp(self.second(x))

    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.blocks = nn.Conv2d(3, width, patch, patch), nn.Sequential(*(Block() for _ in range(5)))
            self.kind, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(0.02 * torch.randn(count + 1, width))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kinds)

        def forward(self, x):
            x = self.cut(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.kind.expand(x.shape[0], 1, width), x], 1) + self.places
            return self.head(self.norm(self.blocks(x))[:, 0])

    return Vision(), lambda batch: (torch.randn(batch, 3, side, side), torch.randint(0, kinds, (batch,)))


def segmenter(torch):
    """A U-Net that labels pixels, with norms over groups."""
    nn, side, kinds, widths = torch.nn, 96, 12, (32, 64, 128)

    def block(inputs, width):
        layers = []
        for number in (inputs, width):
            layers += [nn.Conv2d(number, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU()]
        return nn.Sequential(*layers)

    class Segmenter(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([block(inputs, width) for inputs, width in zip((3, *widths), widths)])
            self.shrink, self.middle = nn.MaxPool2d(2), block(widths[-1], 2 * widths[-1])
            self.grow = nn.ModuleList([nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths)])
            self.up = nn.ModuleList([block(2 * width, width) for width in reversed(widths)])
            self.last = nn.Conv2d(widths[0], kinds, 1)

        def forward(self, x):
            kept = []
            for layer in self.down:
                kept.append(layer(x))
                x = self.shrink(kept[-1])
            x = self.middle(x)
            for grow, layer in zip(self.grow, self.up):
                x = layer(torch.cat([grow(x), kept.pop()], 1))
            return self.last(x).permute(0, 2, 3, 1).flatten(0, 2)

    return Segmenter(), lambda batch: (torch.randn(batch, 3, side, side), torch.randint(0, kinds, (batch, side, side)))


def train(job, batch, fix, told):
    """An ordinary script: nothing in it knows of vramline. `fix` is empty for the job as it is."""
    import torch

    torch.manual_seed(0)
    times = ACCUMULATED if job == "accumulated" else 2 if fix == "accumulate" else 1
    model, samples = globals()["decoder" if job == "accumulated" else job](torch)
    model = model.cuda()
    adam = torch.optim.AdamW if job == "convolution" else torch.optim.Adam
    options = {"foreach": False} if fix == "one-by-one" else {}
    stepper = None
    if fix == "step-in-backward":
        steppers = {parameter: adam([parameter], 1e-4) for parameter in model.parameters()}

        def step(parameter):
            steppers[parameter].step()
            steppers[parameter].zero_grad()

        for parameter in steppers:
            parameter.register_post_accumulate_grad_hook(step)
    else:
        stepper = adam(model.parameters(), 1e-4, **options)
    keeps = job == "mlp" and fix != "set-to-none"
    for _ in range(STEPS):
        x, y = samples(batch)
        if stepper is not None:
            stepper.zero_grad(set_to_none=not keeps)
        for part_x, part_y in zip(x.chunk(times), y.chunk(times)):
            part_x, part_y = part_x.cuda(), part_y.cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=fix == "mixed-precision"):
                loss = torch.nn.functional.cross_entropy(model(part_x), part_y.flatten()) / times
            loss.backward()
            del part_x, part_y, loss
        if stepper is not None:
            stepper.step()
    torch.cuda.synchronize()
    if told:
        peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        pathlib.Path(told).write_text(json.dumps(peaks | {"torch": torch.__version__}), encoding="utf-8")


def record(out, job, batch):
    command = ["vramline", "run", "--no-report", "--trace", "steps=3", "-o", str(out / f"{job}-{batch}.vram"), "--"]
    subprocess.run([*command, sys.executable, __file__, "train", job, str(batch)], check=True, timeout=DEADLINE, capture_output=True, text=True)


def measure(out, job, fix):
    told = out / f"measured-{job}-{fix or 'as-it-is'}.json"
    command = [sys.executable, __file__, "train", job, str(TARGETS[job]), fix, str(told)]
    subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True, text=True)
    return json.loads(told.read_text(encoding="utf-8"))


def plan(folder, job):
    """What the plan says of the target, from recordings."""
    binary = os.environ.get("VRAMLINE_BIN", "vramline")
    probes = [word for batch in BATCHES[job] for word in ("--probe", f"{batch}={folder}/{job}-{batch}.vram")]
    command = [binary, "plan", *probes, "--batch", str(TARGETS[job]), "--steps", str(STEPS), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)


def rows_of(job, told, measured):
    """Predicted beside measured, of the job as it is and with each fix that was measured."""
    (said,) = told["predictions"]
    offered = {fix["name"]: fix for fix in told["fixes"]}
    base = measured[job, ""]
    for fix in ("", *FIXES[job]):
        real = measured.get((job, fix))
        if real is None:
            continue
        by_plan = said if not fix else offered.get(fix)
        row = {"job": job, "batch": TARGETS[job], "fix": fix, "offered": by_plan is not None, "torch": real["torch"]}
        for figure, name in (("allocated", "peak_bytes"), ("reserved", "pool_bytes")):
            # A fix that is not offered is said to save nothing.
            predicted = (by_plan or said)[name]
            saving = None if predicted is None else (said[name] - predicted, base[figure] - real[figure])
            row[figure] = {"predicted": predicted, "measured": real[figure], "saving": saving}
            row[figure]["apart"] = None if saving is None else (saving[0] - saving[1]) / base[figure]
        yield row


def printed(row):
    words = [f"{row['job']:12} {row['batch']:4} {row['fix'] or 'as it is':17} {'offered' if row['offered'] else '-':8}"]
    for figure in ("allocated", "reserved"):
        told = row[figure]
        size = lambda number: "-" if number is None else f"{number / 2**20:.0f}"  # noqa: E731
        saving = told["saving"] or (None, None)
        apart = "" if told["apart"] is None else f"{told['apart']:+.1%}"
        words.append(f"{size(told['predicted']):>6} {size(told['measured']):>6}  {size(saving[0]):>6} {size(saving[1]):>6} {apart:>7}")
    return " | ".join(words)


def tried(make):
    """One that fails does not keep the others from being tried: a GPU is rare."""
    try:
        return make(), None
    except subprocess.CalledProcessError as error:
        return None, f"{error.cmd[-4:]}: {error.stderr[-2000:]}"
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def main():
    if sys.argv[1] == "train":
        job, batch, fix, told = [*sys.argv[2:], "", ""][:4]
        return train(job, int(batch), fix, told)
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--jobs", type=lambda names: names.split(","), default=list(TARGETS))
    asked = parser.parse_args()
    out, jobs = asked.out.resolve(), asked.jobs
    out.mkdir(parents=True, exist_ok=True)
    runs = {(job, fix): lambda job=job, fix=fix: measure(out, job, fix) for job in jobs for fix in ("", *FIXES[job])}
    probes = [(lambda job=job, batch=batch: record(out, job, batch)) for job in jobs for batch in BATCHES[job]]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(tried, [*runs.values(), *probes]))
    measured = {key: real for key, (real, _) in zip(runs, found) if real is not None}
    wrong = [error for _, error in found if error]
    rows = []
    for job in jobs:
        made, error = tried(lambda job=job: list(rows_of(job, plan(out, job), measured)))
        rows += made or []
        wrong += [f"{job}: {error}"] if error else []
    (out / "torch_fixes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (out / "measured.jsonl").write_text(
        "".join(json.dumps({"job": job, "batch": TARGETS[job], "fix": fix, **real}) + "\n" for (job, fix), real in measured.items()),
        encoding="utf-8",
    )
    print("MiB                                            | allocated: said, measured; saves: said, measured, apart | reserved")
    print("\n".join(map(printed, rows)))
    with tarfile.open(out / "probes.tar.gz", "w:gz") as packed:
        for folder in sorted(out.glob("*.vram")):
            packed.add(folder, folder.name)
    print("\n".join(wrong))
    return 1 if wrong else None


if __name__ == "__main__":
    sys.exit(main())
