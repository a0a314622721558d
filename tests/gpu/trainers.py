"""`MemoryCallback` and `vramline.record` in the real trainers on a real GPU, compared with `torch.cuda` itself, and what they cost.

    python tests/gpu/trainers.py OUT [--write docs/proof/cost-trainers.md]    # about six minutes; needs PyTorch with CUDA, vramline installed
    VRAMLINE_TRAINERS_DEVICE=cpu python tests/gpu/trainers.py OUT             # checks the script itself, with a stand-in for torch.cuda

Each of Hugging Face's trainer, Lightning's and a loop with accelerate runs the same training in processes of its own:

- nobody: `torch.cuda.max_memory_allocated()` of the whole training, and the weights.
- torch.cuda: its peak is reset and read by hand around each step, an evaluation and a prediction.
- vramline: the figures of the callback (of `vramline.record` with accelerate), and in the same run what `torch.cuda` says at the end of each step.
- out of memory: a step requests more than PyTorch's limit; the note on its error.
- cost: many trainings in turns, with the callback and without. The device is waited for after each step, so that nothing hides behind it.

Figures must be equal to the byte, and losses and weights to the last bit. So the first four run with deterministic algorithms, with PyTorch's plain
attention, because the gradients of the fused ones are sums in any order, and without Python's garbage collector, which frees tensors in cycles
at another moment when a callback makes objects. Writes OUT/trainers.json after each process, prints the tables, and ends with 1 if a comparison
fails. A trainer that is not installed is skipped. With `--write` the tables become the part of the page on a GPU.
"""

import argparse
import datetime
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

STEPS = 12
FAILS_AT = 3
MIB = 1 << 20
DEVICE = os.environ.get("VRAMLINE_TRAINERS_DEVICE", "cuda")
LONGEST = 512 if DEVICE == "cuda" else 64
MODES = ("nobody", "torch.cuda", "vramline", "out of memory", "cost")
# By trainer: its name, and a package that it needs, one of several.
TRAINERS = {
    "hugging-face": ("Hugging Face", ("transformers",)),
    "lightning": ("Lightning", ("lightning", "pytorch_lightning")),
    "accelerate": ("accelerate", ("accelerate",)),
}
# Seconds for a process. The first one reads the packages from a cold disk.
DEADLINE = 170

# What is measured in the mode "cost", with the arguments of the callback; None without one.
COSTS = {
    "nothing": None,
    "epochs and phases, as by default": {},
    'every step, `steps="all"`': {"steps": "all"},
    "every step, and a mark of each on disk": {"steps": "all", "record": "cost.vram"},
}
# Trainings for each of them, their steps, and the steps at the begin of each that do not count.
TURNS, COST_STEPS, WARM = (7, 60, 10) if DEVICE == "cuda" else (2, 14, 4)

HEAD = """
`make gpu-trainers` writes this part with `tests/gpu/trainers.py`, which describes the method.

"""
PART = "## On a GPU\n"


class Truth:
    """The peaks of `torch.cuda`, read by hand. Makes a step run out of memory in that mode."""

    def __init__(self, mode, net):
        import torch

        self._cuda, self._resets, self._net = torch.cuda, mode == "torch.cuda", net
        self._fails = mode == "out of memory"
        self._begun = 0
        self.steps = []

    def step_begins(self, *_, **__):
        if self._resets:
            self._cuda.reset_peak_memory_stats()
        if self._fails and self._begun == FAILS_AT:
            self._net.wants = self._limit()
        self._begun += 1

    def step_ends(self, *_, **__):
        self.steps.append(self._cuda.max_memory_allocated())

    def around(self, call):
        """The peak of a call; nothing is reset if the callback does it."""
        if self._resets:
            self._cuda.reset_peak_memory_stats()
        call()
        return self._cuda.max_memory_allocated()

    def _limit(self):
        """Limits PyTorch to little more than it has reserved. Returns a size that it cannot have."""
        if DEVICE == "cpu":
            return 2 << 30
        limit = self._cuda.memory_reserved() + 32 * MIB
        self._cuda.set_per_process_memory_fraction(limit / self._cuda.get_device_properties(0).total_memory)
        return limit + (1 << 30)


class Clock:
    """The time of each step, from the end of the one before, and the time in the callback."""

    def __init__(self):
        self.ends, self.inside = [], []

    def step_ends(self, *_, **__):
        import torch

        if DEVICE == "cuda":
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def wrap(self, memory, first, last):
        """Measures two events of the callback: one at the begin of a step, and one at its end."""

        def event(call, begins):
            def timed(*args, **kwargs):
                begin = time.perf_counter()
                call(*args, **kwargs)
                took = time.perf_counter() - begin
                if begins:
                    self.inside.append(took)
                else:
                    self.inside[-1] += took

            return timed

        for name in (first, last):
            setattr(memory, name, event(getattr(memory, name), name == first))

    def told(self):
        steps = [after - before for before, after in zip(self.ends, self.ends[1:])]
        return {"steps": steps[WARM - 1 :], "inside": self.inside[WARM:]}


def network():
    """A small transformer, whose memory depends on the length of its input."""
    import torch
    from torch import nn

    class Net(nn.Module):
        wants = None
        """A number of bytes that the next step requests, and cannot have."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            width = 256 if DEVICE == "cuda" else 16
            self.first = nn.Linear(16, width)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.last = nn.Linear(width, 1)

        def forward(self, x, labels=None):
            if self.wants:
                run_out(x.device, self.wants)
            with held(x):
                out = self.last(self.layers(self.first(x))).mean((1, 2))
                return {"loss": ((out - (0 if labels is None else labels)) ** 2).mean(), "logits": out}

    return Net()


def run_out(device, size):
    import torch

    if DEVICE == "cuda":
        torch.empty(size, dtype=torch.uint8, device=device)
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including "
        "non-PyTorch memory, this process has 15.00 GiB memory in use. Of the allocated memory 14.00 GiB is allocated by PyTorch, and 200.00 MiB "
        "is reserved by PyTorch but unallocated."
    )


def held(x):
    """On the CPU, what the stand-in is told."""
    import contextlib

    if DEVICE == "cuda":
        return contextlib.nullcontext()
    import cuda_stand_in

    return cuda_stand_in.held("forward", x.numel() * 100)


def rows(count, longest, are_equal=False):
    """Sequences, in batches of two of one length; the batches differ in length unless they are equal."""
    import torch

    generator = torch.Generator().manual_seed(1)
    lengths = [longest if are_equal else longest * (2 + number * 5 % 7) // 8 for number in range(count // 2) for _ in range(2)]
    return [{"x": torch.randn(length, 16, generator=generator), "labels": torch.randn((), generator=generator)} for length in lengths]


def loader(count, longest, are_equal=False):
    import torch

    return torch.utils.data.DataLoader(rows(count, longest, are_equal), 2)


def digest(model):
    text = b"".join(value.detach().cpu().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(text).hexdigest()


# --- Hugging Face ---


def hf_trainer(model, folder, steps, callbacks, are_equal=False):
    import torch
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(str(folder / "hf"), per_device_train_batch_size=2, per_device_eval_batch_size=2, max_steps=steps,
        use_cpu=DEVICE == "cpu", save_strategy="no", logging_steps=10**9 if are_equal else 4, disable_tqdm=True, report_to=[], seed=0,
        data_seed=0, dataloader_pin_memory=False)  # fmt: skip
    training = rows(2 * steps, LONGEST, are_equal)
    return InOrder(model, arguments, train_dataset=training, eval_dataset=rows(8, LONGEST // 2), callbacks=callbacks)


def hf_listener(begins, ends):
    from transformers import TrainerCallback

    class Listener(TrainerCallback):
        on_step_begin = staticmethod(begins)
        on_step_end = staticmethod(ends)

    return Listener()


def hugging_face(mode, folder):
    net = network()
    truth = Truth(mode, net)
    memory = None
    if mode in ("vramline", "out of memory"):
        from vramline.huggingface import MemoryCallback

        memory = MemoryCallback(steps="all", record=folder / f"hugging-face-{mode.replace(' ', '-')}.vram")
    # The callback puts itself first: it resets before the listener begins, and both read at the end.
    callbacks = [hf_listener(truth.step_begins, truth.step_ends), *([memory] if memory else [])]
    trainer = hf_trainer(net, folder, STEPS, callbacks)
    if mode == "out of memory":
        return failure(trainer.train)
    whole = whole_of(trainer.train)
    evaluation = truth.around(trainer.evaluate)
    prediction = truth.around(lambda: trainer.predict(rows(8, LONGEST)))
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    told = facts(truth, trainer.model, whole, evaluation, prediction, losses)
    return told | (figures(memory, "Evaluation", "Prediction") if memory else {})


def hugging_face_cost(folder, options):
    clock, memory = Clock(), None
    if options is not None:
        from vramline.huggingface import MemoryCallback

        memory = MemoryCallback(**options)
    callbacks = [hf_listener(lambda *_, **__: None, clock.step_ends), *([memory] if memory else [])]
    trainer = hf_trainer(network(), folder, COST_STEPS, callbacks, are_equal=True)
    if memory:
        clock.wrap(memory, "on_step_begin", "on_step_end")
    trainer.train()
    return clock.told()


# --- Lightning ---


def lightning_package():
    return next(importlib.import_module(name) for name in TRAINERS["lightning"][1] if importlib.util.find_spec(name))


def lightning_trainer(steps, callbacks):
    pl = lightning_package()
    return pl.Trainer(max_steps=steps, accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=callbacks)  # fmt: skip


def lightning_model(net):
    import torch

    class Model(lightning_package().LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = net, []

        def training_step(self, batch, number):
            loss = self.net(**batch)["loss"]
            self.losses.append(loss.detach())
            return loss

        def validation_step(self, batch, number):
            self.net(**batch)

        def predict_step(self, batch, number):
            return self.net(**batch)["logits"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    return Model()


def lightning_listener(begins, ends):
    class Listener(lightning_package().Callback):
        def on_train_batch_start(self, *args):
            begins()

        def on_train_batch_end(self, *args):
            ends()

    return Listener()


def lightning(mode, folder):
    net = network()
    truth, model = Truth(mode, net), lightning_model(net)
    memory = None
    if mode in ("vramline", "out of memory"):
        lightning_package()
        from vramline.lightning import MemoryCallback

        memory = MemoryCallback(steps="all", record=folder / f"lightning-{mode.replace(' ', '-')}.vram")
    # Hooks run in the order of the list.
    trainer = lightning_trainer(STEPS, [*([memory] if memory else []), lightning_listener(truth.step_begins, truth.step_ends)])
    lightning_package().seed_everything(0)
    if mode == "out of memory":
        return failure(lambda: trainer.fit(model, loader(2 * STEPS, LONGEST)))
    whole = whole_of(lambda: trainer.fit(model, loader(2 * STEPS, LONGEST)))
    evaluation = truth.around(lambda: trainer.validate(model, loader(8, LONGEST // 2), verbose=False))
    prediction = truth.around(lambda: trainer.predict(model, loader(8, LONGEST)))
    told = facts(truth, model, whole, evaluation, prediction, [loss.item() for loss in model.losses])
    return told | (figures(memory, "Validation", "Prediction") if memory else {})


def lightning_cost(folder, options):
    clock, memory = Clock(), None
    if options is not None:
        lightning_package()
        from vramline.lightning import MemoryCallback

        memory = MemoryCallback(**options)
        clock.wrap(memory, "on_train_batch_start", "on_train_batch_end")
    trainer = lightning_trainer(COST_STEPS, [*([memory] if memory else []), lightning_listener(lambda: None, clock.step_ends)])
    trainer.fit(lightning_model(network()), loader(2 * COST_STEPS, LONGEST, are_equal=True))
    return clock.told()


# --- accelerate ---


def accelerated(net, batches):
    """A function for each step of a loop with accelerate, which returns the loss."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=DEVICE == "cpu")
    model, optimizer, prepared = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), batches)
    model.train()

    def step(batch):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, prepared


def accelerate(mode, folder):
    import contextlib

    net = network()
    truth = Truth(mode, net)
    step, batches = accelerated(net, loader(2 * STEPS, LONGEST))
    losses = []

    def train():
        path = folder / f"accelerate-{mode.replace(' ', '-')}.vram"
        with vramline.record(path) if vramline else contextlib.nullcontext() as recording:
            for number, batch in enumerate(batches):
                with recording.step(number) if vramline else contextlib.nullcontext():
                    truth.step_begins()
                    losses.append(step(batch))
                # The peak of the step still: the next one resets it.
                truth.step_ends()
        return recording

    vramline = None
    if mode in ("vramline", "out of memory"):
        import vramline
    if mode == "out of memory":
        return failure(train)
    held = []
    whole = whole_of(lambda: held.append(train()))
    told = facts(truth, net, whole, None, None, [loss.item() for loss in losses])
    if vramline:
        steps = [int(peak) for peak in vramline.load(held[0].path).steps["peak_bytes"]]
        told["vramline"] = {"steps": steps, "whole": max(steps)}
    return told


def accelerate_cost(folder, options):
    import contextlib

    import vramline

    clock = Clock()
    step, batches = accelerated(network(), loader(2 * COST_STEPS, LONGEST, are_equal=True))
    with vramline.record(options["record"]) if options else contextlib.nullcontext() as recording:
        for number, batch in enumerate(batches):
            if options is None:
                step(batch)
            else:
                begin = time.perf_counter()
                measured = recording.step(number)
                measured.__enter__()
                entered = time.perf_counter()
                step(batch)
                ended = time.perf_counter()
                measured.__exit__(None, None, None)
                clock.inside.append(entered - begin + time.perf_counter() - ended)
            clock.step_ends()
    return clock.told()


# --- All of them ---


def whole_of(train):
    """The peak of a training since the process began; of use if nobody resets it."""
    import torch

    train()
    return torch.cuda.max_memory_allocated()


def facts(truth, model, whole, evaluation, prediction, losses):
    return {"losses": losses, "digest": digest(model), "steps": truth.steps, "whole": whole, "evaluation": evaluation, "prediction": prediction}


def figures(memory, evaluation, prediction):
    """What the callback measured."""
    rows_of = {row["label"]: row for row in memory.history}
    told = {
        "steps": [row["peak_bytes"] for row in memory.history if row["step"] is not None],
        "whole": rows_of["Training"]["peak_bytes"],
        "evaluation": rows_of[evaluation]["peak_bytes"],
        "prediction": rows_of[prediction]["peak_bytes"],
    }
    return {"vramline": told}


def failure(train):
    """Lets memory run out, and returns the note."""
    import torch

    try:
        train()
    except torch.OutOfMemoryError as error:
        return {"raised": str(error), "notes": getattr(error, "__notes__", [])}
    return {"raised": None, "notes": []}


JOBS = {"hugging-face": (hugging_face, hugging_face_cost), "lightning": (lightning, lightning_cost), "accelerate": (accelerate, accelerate_cost)}


def costs(trainer, folder):
    """Trainings in turns, in another order each time."""
    import torch

    run = JOBS[trainer][1]
    wanted = {what: options for what, options in COSTS.items() if trainer != "accelerate" or options is None or "record" in options}
    found = {what: [] for what in wanted}
    run(folder, None)
    for turn in range(TURNS):
        names = [*wanted]
        for what in names[turn % len(names) :] + names[: turn % len(names)]:
            options = wanted[what]
            if options and "record" in options:
                options = options | {"record": folder / f"cost-{trainer}-{turn}.vram"}
            found[what].append(run(folder, options))
    calls = {"read": lambda: torch._C._cuda_memoryStats(0), "reset": lambda: torch._C._cuda_resetPeakMemoryStats(0)}
    return {"turns": found, "counters": {name: quick(call) for name, call in calls.items()}}


def quick(call):
    """The time of a call that is made often."""
    times = []
    for _ in range(500):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def job(trainer, mode, folder):
    import torch

    if DEVICE == "cpu":
        sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integrations" / "jobs"))
        import cuda_stand_in

        cuda_stand_in.install()
    elif mode != "cost":
        torch.use_deterministic_algorithms(True, warn_only=True)
        for name in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
            getattr(torch.backends.cuda, name, bool)(False)
    if mode == "cost":
        told = costs(trainer, folder)
    else:
        gc.disable()
        told = JOBS[trainer][0](mode, folder)
    if DEVICE == "cuda":
        told["device"] = torch.cuda.get_device_name(0)
    (folder / f"{trainer}-{mode}.json").write_text(json.dumps(told))


def compare(told):
    """What was compared, and whether it is equal."""
    bare, by_hand, measured, failed = (told[mode] for mode in MODES[:4])
    ours = measured["vramline"]
    note = failed["notes"][0] if len(failed["notes"]) == 1 else ""
    equal = {
        "losses and weights, with nobody who measures": (bare["losses"], bare["digest"]) == (measured["losses"], measured["digest"]),
        "the peak of each step, in the same run": ours["steps"] == measured["steps"] and len(ours["steps"]) == STEPS,
        "the peak of each step, read by hand in another run": ours["steps"] == by_hand["steps"],
        "the peak of the training, without any reset": ours["whole"] == bare["whole"],
    }
    for name in ("evaluation", "prediction"):
        if name in ours:
            equal[f"the peak of {'an' if name[0] == 'e' else 'a'} {name}, read by hand"] = ours[name] == by_hand[name]
    return equal | {
        "steps have different peaks": len(set(ours["steps"])) > 1,
        "a note on the out-of-memory error, with its step": "Out of memory (" in note and f"step {FAILS_AT}" in note,
    }


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * 1e6:.1f} µs ({low * 1e6:.1f} to {high * 1e6:.1f})"


def cost_rows(name, told):
    turns = told["turns"]
    medians = {what: [statistics.median(each["steps"]) for each in runs] for what, runs in turns.items()}
    lines = []
    for what, runs in turns.items():
        cells = [f"{statistics.median(medians[what]) * 1e3:.2f} ms", "", ""]
        if what != "nothing":
            added = [ours - bare for ours, bare in zip(medians[what], medians["nothing"])]
            share = statistics.median(added) / statistics.median(medians["nothing"])
            cells[1:] = [f"{spread(added)}, {share:+.2%}", spread([each for run in runs for each in run["inside"]])]
        lines.append(f"| {name} | {what} | " + " | ".join(cells) + " |")
    return lines


def tables(result):
    """The tables of the page."""
    done = {TRAINERS[name][0]: told for name, told in result["trainers"].items()}
    device = next((told["figures"][mode]["device"] for told in done.values() for mode in told["figures"] if "device" in told["figures"][mode]), "CPU")
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    equal = list(dict.fromkeys(what for told in done.values() for what in told["equal"]))
    mark = {True: "yes", False: "no", None: ""}
    lines = [
        f"{packages}; {device}; {datetime.date.today()}",
        "",
        f"### Equal to `torch.cuda`: {STEPS} steps of a small transformer with batches of different lengths",
        "",
        "| " + " | ".join(["what is compared", *done]) + " |",
        "|---" * (1 + len(done)) + "|",
        *("| " + " | ".join([what, *(mark[told["equal"].get(what)] for told in done.values())]) + " |" for what in equal),
        "",
        f"### Time: {TURNS} trainings of {COST_STEPS - WARM} steps for each row, in turns",
        "",
        "| trainer | what is measured | median step | added to the step: median over trainings (quartiles) | time in Vramline per step (quartiles) |",
        "|---|---|---|---|---|",
        *(line for name, told in done.items() if "cost" in told["figures"] for line in cost_rows(name, told["figures"]["cost"])),
    ]
    counters = [told["figures"]["cost"]["counters"] for told in done.values() if "cost" in told["figures"]]
    if counters:
        read, reset = (statistics.median(each[name] for each in counters) * 1e6 for name in ("read", "reset"))
        lines += ["", f"PyTorch takes {read:.1f} µs to read its counters and {reset:.1f} µs to reset its peak; a measured step needs two and one."]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path, help="write the tables to the part of this page on a GPU")
    args = parser.parse_args()
    if args.write and DEVICE == "cpu":
        parser.error("--write: the page shows figures of a GPU only")
    folder = args.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # One device: with several, Hugging Face's trainer would use all. The workspaces of cuBLAS as deterministic algorithms need them.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] if DEVICE == "cuda" else ""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible, "HF_HUB_OFFLINE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    begin, result = time.monotonic(), {"device": DEVICE, "versions": versions(), "skipped": [], "trainers": {}}
    for trainer, (name, packages) in TRAINERS.items():
        if not any(importlib.util.find_spec(package) for package in packages):
            result["skipped"].append(name)
            continue
        told = result["trainers"][trainer] = {"equal": {}, "errors": {}, "figures": {}}
        for mode in MODES:
            error = run(trainer, mode, folder, environment)
            if error:
                told["errors"][mode] = error
                print(f"{trainer}, {mode}: {error}", file=sys.stderr, flush=True)
            else:
                told["figures"][mode] = json.loads((folder / f"{trainer}-{mode}.json").read_text())
            if all(each in told["figures"] for each in MODES[:4]):
                told["equal"] = compare(told["figures"])
            result["seconds"] = round(time.monotonic() - begin, 1)
            # If this process is ended, what was found remains.
            (folder / "trainers.json").write_text(json.dumps(result, indent=1) + "\n")
    found = result["trainers"].values()
    result["passed"] = bool(found) and all(each["equal"] and not each["errors"] and all(each["equal"].values()) for each in found)
    (folder / "trainers.json").write_text(json.dumps(result, indent=1) + "\n")
    text = tables(result)
    print(text)
    print(f"passed: {result['passed']}, {result['seconds']} s; skipped: {', '.join(result['skipped']) or 'nothing'}")
    if args.write:
        before = args.write.read_text().partition(PART)[0].rstrip("\n")
        args.write.write_text(f"{before}\n\n{PART}{HEAD}{text}")
    return 0 if result["passed"] else 1


def run(trainer, mode, folder, environment):
    """Runs one process. Returns what went wrong, or None."""
    command = [sys.executable, __file__, "--job", trainer, mode, str(folder)]
    try:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        return f"took longer than {DEADLINE} s"
    return done.stderr[-3000:] if done.returncode else None


def versions():
    from importlib import metadata

    found = {}
    for name in ("vramline", "torch", "transformers", "accelerate", "lightning", "pytorch-lightning"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
