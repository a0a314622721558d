"""Probes and truths for `vramline plan` from a real GPU.

    python tests/gpu/plan_probes.py OUT [--only torch,vramline,jax,held-out,second,third,fourth,fifth,sixth,seventh] [--cases A,B] [--workers N]
        [--until SECONDS]

Needs PyTorch and JAX with CUDA; no network. OUT gets, each from a process of its own, because an allocator remembers:
- `torch/CASE-BATCH.pickle.gz`: PyTorch's memory snapshot of a few steps at a small batch, from the first allocation on;
- `vram/CASE-BATCH.tar.gz`: for some of the cases the recording of the same by `vramline run`, where that is installed;
- `jax/CASE-BATCH.hlo.pb`: XLA's program of a training step with its plan of memory, at small and at large batches;
- `truths.jsonl`: for every run, small or large, recorded or not, the peaks that the framework counted and what NVML says of the process;
- `recordings-N.tar`: all of `vram/` in few archives of at most 15 MiB. `fixtures/keep_probes.py` turns them and the truths into fixtures.

Of the groups in `WITH_FURTHER` larger batch sizes are recorded too, as kind `further`: the probes that a plan asks for.

The models are in plan_models; some of the held-out groups need torchvision or transformers. Several processes run at once as long
as most of the device's memory stays free: libraries choose their workspaces by what is free.
"""

import argparse
import gzip
import itertools
import json
import math
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from plan_models import CASES, HELD_OUT_GROUPS, HELD_OUT_PROBES, WITH_FURTHER, made_model

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 3
PROBES = (2, 4, 8)
TRUTHS = (16, 32, 64, 128, 256)
JAX_TRUTHS = (64, 128)
DEADLINE = 240
# Memory in GiB that processes may take together; a larger one runs alone.
TOGETHER = 64
# The most bytes of recordings in one archive.
ARCHIVE = 15 << 20

# Also recorded by `vramline run`.
RECORDED = ("resnet50-sgd", "gpt-adamw", *itertools.chain(*HELD_OUT_GROUPS.values()))
JAX_CASES = ("mlp", "convolution")


def nvml_figures():
    """What NVML says of this process and of the device; None where it does not tell."""
    try:
        from driver import Nvml

        nvml = Nvml()
        device = nvml.devices[0]
        _, _, _, used = nvml.memory(device)
        listed = nvml.processes(device)
    except (OSError, AssertionError) as error:
        return {"process_bytes": None, "device_used_bytes": None, "why": repr(error)}
    return {"process_bytes": listed.get(os.getpid()), "device_used_bytes": used, "listed_bytes": list(listed.values())}


def job_torch(case, batch, snapshot):
    """Trains. `snapshot` is the file for one from the first allocation on, or None."""
    import torch

    _, optimizer, is_tried, _ = CASES[case]
    if case.endswith("-trainer"):
        return job_trainer(case, batch)
    assert not torch.cuda.is_initialized()
    torch.backends.cudnn.benchmark = is_tried
    torch.manual_seed(0)
    if snapshot:
        # Without stack frames: they are most of a snapshot's bytes.
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1 << 20)
    made, samples = made_model(torch, case)
    made = made.cuda()
    optimizers = {
        "sgd": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-4),
        "adam": lambda p: torch.optim.Adam(p, 1e-4),
        "adamw": lambda p: torch.optim.AdamW(p, 1e-4),
    }
    stepper = optimizers[optimizer](made.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=case.endswith("-amp"))
    called = torch.compile(made) if case.endswith("-compiled") else made
    loss_of = getattr(made, "loss", torch.nn.functional.cross_entropy)
    peaks = []
    for _ in range(STEPS):
        *x, y = (each.cuda() for each in samples(batch))
        with torch.autocast("cuda", torch.bfloat16 if case.endswith("-bf16") else None, enabled=case.endswith(("-amp", "-bf16"))):
            loss = loss_of(called(*x), y)
        stepper.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(stepper)
        scaler.update()
        peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    torch.cuda.synchronize()
    told = {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "so_far": peaks,
        "parameters": sum(p.numel() for p in made.parameters()),
        "loss": float(loss.detach()),
        "versions": [torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.get_device_name(0)],
        **nvml_figures(),
    }
    if snapshot:
        taken = torch.cuda.memory._snapshot()
        told["events"] = sum(map(len, taken["device_traces"]))
        with gzip.open(snapshot, "wb", 6) as file:
            pickle.dump(taken, file)
    return told


def job_trainer(case, batch):
    """Trains with the Trainer of Hugging Face."""
    import torch
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model, row = made_model(torch, case)
    rows = [row(each) for each in range(batch * STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=batch, max_steps=STEPS, report_to=[],
            save_strategy="no", disable_tqdm=True)  # fmt: skip
        Trainer(model, arguments, train_dataset=rows).train()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": [torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.get_device_name(0)],
        **nvml_figures(),
    }


def made_jax(case, batch):
    """A training step, and what it is given."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    if case == "mlp":
        widths = (1024, 4096, 4096, 2048, 512)
        params = [jax.random.normal(key, shape) * 0.02 for shape in itertools.pairwise(widths)]
        x = jax.random.normal(key, (batch, 1024))

        def apply(params, x):
            for each in params:
                x = jax.nn.gelu(x @ each)
            return x

    else:
        shapes = ((32, 3, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3))
        params = [jax.random.normal(key, shape) * 0.05 for shape in shapes]
        x = jax.random.normal(key, (batch, 3, 128, 128))

        def apply(params, x):
            for number, each in enumerate(params):
                stride = 2 if number == 2 else 1
                x = jax.nn.relu(jax.lax.conv_general_dilated(x, each, (stride, stride), "SAME"))
            return x.mean((2, 3))

    def loss(params, x):
        return (apply(params, x) ** 2).mean()

    def train_step(params, first, second, x):
        gradients = jax.grad(loss)(params, x)
        first = [0.9 * a + 0.1 * g for a, g in zip(first, gradients)]
        second = [0.99 * a + 0.01 * g * g for a, g in zip(second, gradients)]
        return [p - 1e-3 * a / (jnp.sqrt(b) + 1e-8) for p, a, b in zip(params, first, second)], first, second

    first, second = [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params]
    return train_step, (params, first, second, x)


def step_jax(case, batch):
    """Runs a few steps, and prints what XLA itself says of them."""
    import jax

    train_step, (params, first, second, x) = made_jax(case, batch)
    step = jax.jit(train_step)
    for _ in range(STEPS):
        params, first, second = step(params, first, second, x)
    jax.block_until_ready(params)
    analysis = step.lower(params, first, second, x).compile().memory_analysis()
    print(json.dumps({name: getattr(analysis, name) for name in dir(analysis) if name.endswith("_in_bytes")}))


def job_jax(case, batch, dump):
    """Compiles a step and runs it. XLA was told by the environment where to put its programs."""
    import jax

    train_step, (params, first, second, x) = made_jax(case, batch)
    compiled = jax.jit(train_step).lower(params, first, second, x).compile()
    analysis = compiled.memory_analysis()
    names = [name for name in dir(analysis) if name.endswith("_in_bytes")]
    # A CPU counts nothing.
    before = jax.devices()[0].memory_stats() or {}
    for _ in range(STEPS):
        params, first, second = compiled(params, first, second, x)
    jax.block_until_ready(params)
    stats = jax.devices()[0].memory_stats() or {}
    (program,) = pathlib.Path(dump).parent.glob("dump/*train_step*after_optimizations.hlo.pb")
    shutil.copy(program, dump)
    return {
        "analysis": {name: getattr(analysis, name) for name in names},
        "before_bytes": before.get("bytes_in_use"),
        "before_peak_bytes": before.get("peak_bytes_in_use"),
        "allocated_bytes": stats.get("peak_bytes_in_use"),
        "reserved_bytes": stats.get("peak_pool_bytes", stats.get("pool_bytes")),
        "stats": {name: value for name, value in stats.items() if isinstance(value, int)},
        "versions": [jax.__version__, jax.devices()[0].device_kind],
        **nvml_figures(),
    }


class Room:
    """Lets processes run at once as long as they leave most of the device free."""

    def __init__(self):
        self.taken, self.changed = 0.0, threading.Condition()

    def enter(self, need):
        with self.changed:
            self.changed.wait_for(lambda: self.taken == 0 or self.taken + need <= TOGETHER)
            self.taken += need

    def leave(self, need):
        with self.changed:
            self.taken -= need
            self.changed.notify_all()


def jobs(asked):
    """What is run: (kind, case, batch, GiB). The large ones come first, so that the small ones fill the gaps."""
    listed = []
    kinds = asked.only.split(",")
    cases = [case for case in CASES if not asked.cases or case in asked.cases.split(",")]
    for case in cases:
        per_sample = CASES[case][3] / 1024
        group = next((name for name, cases in HELD_OUT_GROUPS.items() if case in cases), None)
        if group:
            if group in kinds:
                probes = HELD_OUT_PROBES.get(case, PROBES)
                further = [times * probes[-1] for times in WITH_FURTHER.get(group, ())]
                listed += [("vramline", case, batch, 3 + batch * per_sample) for batch in probes]
                listed += [("further", case, batch, 3 + batch * per_sample) for batch in further]
                listed += [("free", case, batch * probes[-1], 3 + batch * probes[-1] * per_sample) for batch in (2, 4, 8)]
            continue
        if "torch" in kinds:
            listed += [("snapshot", case, batch, 3 + batch * per_sample) for batch in PROBES]
            listed += [("free", case, batch, 3 + batch * per_sample) for batch in TRUTHS]
        if "vramline" in kinds and case in RECORDED and shutil.which("vramline"):
            listed += [("vramline", case, batch, 3 + batch * per_sample) for batch in PROBES]
    if "jax" in kinds:
        listed += [("jax", case, batch, 4) for case in JAX_CASES for batch in PROBES + JAX_TRUTHS]
    return sorted(listed, key=lambda job: -job[3])


def run(out, kind, case, batch):
    """One job in a process of its own; what it told."""
    name = f"{case}-{batch}"
    own = [sys.executable, str(HERE / "plan_probes.py"), "--job", "jax" if kind == "jax" else "torch", case, str(batch)]
    environment = dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        if kind == "snapshot":
            own.append(str(out / "torch" / f"{name}.pickle.gz"))
        if kind in ("vramline", "further"):
            own = ["vramline", "run", "--no-report", "--trace", f"steps={STEPS}", "-o", f"{folder}/{name}.vram", "--", *own]
        if kind == "jax":
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            environment["XLA_FLAGS"] = f"--xla_dump_to={folder}/dump --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=.*train_step.*"
            own.append(f"{folder}/{name}.hlo.pb")
        begin = time.monotonic()
        done = subprocess.run(own, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
        seconds = round(time.monotonic() - begin, 1)
        row = {"kind": kind, "case": case, "batch": batch, "seconds": seconds, "exit": done.returncode}
        if done.returncode != 0:
            return row | {"error": (done.stdout + done.stderr)[-1500:]}
        if kind == "jax":
            shutil.copy(f"{folder}/{name}.hlo.pb", out / "jax")
        if kind in ("vramline", "further"):
            with tarfile.open(out / "vram" / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(f"{folder}/{name}.vram", f"{name}.vram")
        return row | json.loads(done.stdout.splitlines()[-1])


def pack(out):
    """Puts the recordings into few archives, for machines that give back few files of a limited size."""
    for old in out.glob("recordings-*.tar"):
        old.unlink()
    parts, room = [], 0
    for path in sorted((out / "vram").glob("*.tar.gz")):
        # Headers and padding of an entry, and the end of the archive.
        size = path.stat().st_size + (16 << 10)
        if not parts or size > room:
            parts.append([])
            room = ARCHIVE
        parts[-1].append(path)
        room -= size
    for number, part in enumerate(parts, 1):
        with tarfile.open(out / f"recordings-{number}.tar", "w") as archive:
            for path in part:
                archive.add(path, path.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="torch,vramline,jax,held-out,second,third,fourth,fifth,sixth,seventh")
    parser.add_argument("--cases", default="")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--until", type=float, default=math.inf, help="begin no run after so many seconds")
    asked = parser.parse_args()
    for folder in ("torch", "vram", "jax"):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    truths = asked.out / "truths.jsonl"
    done = set()
    if truths.exists():
        rows = map(json.loads, truths.read_text(encoding="utf-8").splitlines())
        done = {(row["kind"], row["case"], row["batch"]) for row in rows if row["exit"] == 0}
    room, writing, failed, begin = Room(), threading.Lock(), [], time.monotonic()

    def one(job):
        kind, case, batch, need = job
        if (kind, case, batch) in done:
            return
        room.enter(need)
        if time.monotonic() - begin > asked.until:
            room.leave(need)
            with writing:
                failed.append(job)
            return
        try:
            row = run(asked.out, kind, case, batch)
        except Exception as error:
            # One job that hangs must not cost the others.
            row = {"kind": kind, "case": case, "batch": batch, "exit": None, "error": repr(error)[:1500]}
        finally:
            room.leave(need)
        with writing:
            with truths.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if row["exit"] != 0:
                failed.append(job)
            shown = {name: row.get(name) for name in ("kind", "case", "batch", "seconds", "allocated_bytes", "reserved_bytes", "process_bytes", "events")}
            print(f"{time.monotonic() - begin:.0f}", json.dumps(shown), row.get("error", "")[-600:], flush=True)

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(one, jobs(asked)))
    pack(asked.out)
    size = sum(path.stat().st_size for path in asked.out.rglob("*") if path.is_file())
    print(f"{time.monotonic() - begin:.0f} s, {size / 1e6:.1f} MB; failed: {failed or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        _, _, framework, case, batch, *path = sys.argv
        job = {"torch": job_torch, "jax": job_jax}[framework]
        print(json.dumps(job(case, int(batch), path[0] if path else None)))
    else:
        sys.exit(main())
