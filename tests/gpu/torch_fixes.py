"""Fixes of PyTorch programs on a real GPU: what `vramline plan` says that they save, against what they save.

    python tests/gpu/torch_fixes.py OUT

Needs vramline and PyTorch with CUDA; no network; about a minute. Three small jobs: a decoder, a convolutional net, and an MLP whose weights
are most of its memory and whose gradients stay allocated between steps. Each is recorded at three batch sizes. Then the target runs as it is
and with each fix written into the program: autocast, accumulation, updates inside the backward pass, updates one parameter at a time, and
gradients that are freed. A fourth job accumulates already. Several processes run at the same time.

OUT gets `torch_fixes.jsonl`, a row for each job and fix, and `probes.tar.gz` with the recordings.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

STEPS = 4
BATCHES = {"decoder": (3, 5, 7), "convolution": (3, 5, 7), "mlp": (11, 17, 23), "accumulated": (12, 20, 28)}
TARGETS = {"decoder": 56, "convolution": 64, "mlp": 256, "accumulated": 112}
# What is written into the program, by the name that the plan has for it.
FIXES = ("mixed-precision", "accumulate", "step-in-backward", "one-by-one", "set-to-none")
ACCUMULATED = 4
WORKERS = 8
DEADLINE = 110


def decoder(torch):
    nn, length, words, width, heads = torch.nn, 160, 3000, 320, 5

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            batch, count, _ = x.shape
            parts = self.inner(self.first(x)).view(batch, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.outer(y.transpose(1, 2).reshape(batch, count, width))
            return x + self.mlp(self.second(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(5)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    def samples(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].contiguous()

    return Decoder(), samples


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
    words = ["vramline", "run", "--no-report", "--trace", "steps=3", "-o", str(out / f"{job}-{batch}.vram"), "--"]
    subprocess.run([*words, sys.executable, __file__, "train", job, str(batch)], check=True, timeout=DEADLINE, capture_output=True, text=True)


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
    for fix in ("", *FIXES):
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
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs = {(job, fix): lambda job=job, fix=fix: measure(out, job, fix)
            for job in TARGETS for fix in ("", *FIXES)
            if not (job == "accumulated" and fix) and (fix != "set-to-none" or job == "mlp")}  # fmt: skip
    probes = [(lambda job=job, batch=batch: record(out, job, batch)) for job in TARGETS for batch in BATCHES[job]]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(tried, [*runs.values(), *probes]))
    measured = {key: real for key, (real, _) in zip(runs, found) if real is not None}
    wrong = [error for _, error in found if error]
    rows = []
    for job in TARGETS:
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
