"""`MemoryCallback` in the trainers of Hugging Face and Lightning on a real GPU, compared with the figures of `torch.cuda` itself.

    python tests/gpu/trainers.py OUT                        # under three minutes; needs PyTorch with CUDA and vramline installed
    VRAMLINE_TRAINERS_DEVICE=cpu python tests/gpu/trainers.py OUT    # checks the script itself, with a stand-in for torch.cuda

Each trainer runs the same training in processes of its own, which differ in who measures:

- nobody: `torch.cuda.max_memory_allocated()` of the whole training, and the weights.
- torch.cuda: its peak is reset and read by hand around each step, an evaluation and a prediction.
- the callback: its figures for the same, and in the same run what `torch.cuda` says at the end of each step.
- memory runs out: the note on the error.

Figures must be equal to the byte, and losses and weights to the last bit. Writes OUT/trainers.json, prints it, and ends with 1 if a
comparison fails. A trainer that is not installed is skipped.
"""

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
MIB = 1 << 20
DEVICE = os.environ.get("VRAMLINE_TRAINERS_DEVICE", "cuda")
MODES = ("nobody", "torch.cuda", "callback", "out of memory")
# By trainer: a package that it needs, one of several.
TRAINERS = {"hugging face": ("transformers",), "lightning": ("lightning", "pytorch_lightning")}


class Truth:
    """The peaks of `torch.cuda`, read by hand."""

    def __init__(self, resets):
        import torch

        self._cuda, self._resets = torch.cuda, resets
        self.steps, self.times = [], []

    def step_begins(self):
        if self._resets:
            self._cuda.reset_peak_memory_stats()
        self._begin = time.perf_counter()

    def step_ends(self):
        self.times.append(time.perf_counter() - self._begin)
        self.steps.append(self._cuda.max_memory_allocated())

    def around(self, call):
        """The peak of a call; nothing is reset if the callback does it."""
        if self._resets:
            self._cuda.reset_peak_memory_stats()
        call()
        return self._cuda.max_memory_allocated()


def timed(memory, *names):
    """Measures these events of the callback. Returns the list of times."""
    times = []

    def wrap(call):
        def event(*args, **kwargs):
            begin = time.perf_counter()
            call(*args, **kwargs)
            times.append(time.perf_counter() - begin)

        return event

    for name in names if memory else ():
        setattr(memory, name, wrap(getattr(memory, name)))
    return times


def network():
    """A small transformer, whose memory depends on the length of its input."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            width = 256 if DEVICE == "cuda" else 16
            self.first = nn.Linear(16, width)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.last = nn.Linear(width, 1)

        def forward(self, x, labels=None):
            with held(x):
                out = self.last(self.layers(self.first(x))).mean((1, 2))
                return {"loss": ((out - (0 if labels is None else labels)) ** 2).mean(), "logits": out}

    return Net()


def held(x):
    """On the CPU, what the stand-in is told."""
    import contextlib

    if DEVICE == "cuda":
        return contextlib.nullcontext()
    import cuda_stand_in

    return cuda_stand_in.held("forward", x.numel() * 100)


def rows(count, longest):
    """Sequences of different lengths, in batches of two of one length."""
    import torch

    generator = torch.Generator().manual_seed(1)
    lengths = [longest * (2 + number * 5 % 7) // 8 for number in range(count // 2) for _ in range(2)]
    return [{"x": torch.randn(length, 16, generator=generator), "labels": torch.randn((), generator=generator)} for length in lengths]


def digest(model):
    text = b"".join(value.detach().cpu().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(text).hexdigest()


def hugging_face(mode, folder):
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    truth = Truth(mode == "torch.cuda")
    longest = 512 if DEVICE == "cuda" else 64

    class Reader(TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            truth.step_begins()

        def on_step_end(self, *args, **kwargs):
            truth.step_ends()

    memory = None
    if mode in ("callback", "out of memory"):
        from vramline.huggingface import MemoryCallback

        memory = MemoryCallback(steps="all", record=folder / f"hugging-face-{mode.replace(' ', '-')}.vram")
    arguments = TrainingArguments(str(folder / "hf"), per_device_train_batch_size=2, per_device_eval_batch_size=2, max_steps=STEPS,
        use_cpu=DEVICE == "cpu", save_strategy="no", logging_steps=4, disable_tqdm=True, report_to=[], seed=0, data_seed=0,
        dataloader_pin_memory=False)  # fmt: skip
    callbacks = [Reader(), *([memory] if memory else [])]

    class InOrder(Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    trainer = InOrder(network(), arguments, train_dataset=rows(2 * STEPS, longest), eval_dataset=rows(8, longest // 2), callbacks=callbacks)
    if mode == "out of memory":
        return failure(trainer.train, trainer.model)
    times = timed(memory, "on_step_begin", "on_step_end")
    whole = whole_of(trainer.train, mode)
    evaluation = truth.around(trainer.evaluate)
    prediction = truth.around(lambda: trainer.predict(rows(8, longest)))
    log = trainer.state.log_history
    told = {"losses": [line["loss"] for line in log if "loss" in line], "lines": [line["vram_peak_gib"] for line in log if "vram_peak_gib" in line]}
    return told | facts(truth, trainer.model, memory, times, whole, evaluation, prediction, ("Evaluation", "Prediction"))


def lightning(mode, folder):
    import torch

    pl = next(importlib.import_module(name) for name in TRAINERS["lightning"] if importlib.util.find_spec(name))
    truth = Truth(mode == "torch.cuda")
    longest = 512 if DEVICE == "cuda" else 64
    losses = []

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, number):
            loss = self.net(**batch)["loss"]
            losses.append(loss.detach())
            return loss

        def validation_step(self, batch, number):
            self.net(**batch)

        def predict_step(self, batch, number):
            return self.net(**batch)["logits"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    class Reader(pl.Callback):
        def on_train_batch_start(self, *args):
            truth.step_begins()

        def on_train_batch_end(self, *args):
            truth.step_ends()

    memory = None
    if mode in ("callback", "out of memory"):
        from vramline.lightning import MemoryCallback

        memory = MemoryCallback(steps="all", record=folder / f"lightning-{mode.replace(' ', '-')}.vram")
    # Its hooks run in the order of the list: the callback resets before the reader begins, and both read at the end.
    trainer = pl.Trainer(max_steps=STEPS, accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=[*([memory] if memory else []), Reader()])  # fmt: skip
    model = Model()

    def loader(count, length):
        return torch.utils.data.DataLoader(rows(count, length), 2)

    pl.seed_everything(0)
    if mode == "out of memory":
        return failure(lambda: trainer.fit(model, loader(2 * STEPS, longest)), model)
    times = timed(memory, "on_train_batch_start", "on_train_batch_end")
    whole = whole_of(lambda: trainer.fit(model, loader(2 * STEPS, longest)), mode)
    evaluation = truth.around(lambda: trainer.validate(model, loader(8, longest // 2), verbose=False))
    prediction = truth.around(lambda: trainer.predict(model, loader(8, longest)) and None)
    told = {"losses": [loss.item() for loss in losses]}
    return told | facts(truth, model, memory, times, whole, evaluation, prediction, ("Validation", "Prediction"))


def whole_of(train, mode):
    """The peak of a training; known if nobody resets it."""
    import torch

    train()
    return torch.cuda.max_memory_allocated() if mode == "nobody" else None


def facts(truth, model, memory, times, whole, evaluation, prediction, labels):
    told = {"digest": digest(model), "steps": truth.steps, "whole": whole, "evaluation": evaluation, "prediction": prediction}
    told["median step, us"] = round(statistics.median(truth.times[2:]) * 1e6)
    if memory is not None:
        rows_of = {row["label"]: row for row in memory.history}
        told["callback"] = {
            "steps": [row["peak_bytes"] for row in memory.history if row["step"] is not None],
            "whole": rows_of["Training"]["peak_bytes"],
            "evaluation": rows_of[labels[0]]["peak_bytes"],
            "prediction": rows_of[labels[1]]["peak_bytes"],
            "reserved": rows_of["Training"]["reserved_bytes"],
            # Of two events; the first ones are slower.
            "median time per step, us": round(2e6 * statistics.median(times[4:]), 1),
        }
    return told


def failure(train, model):
    """Lets memory run out, and returns the note."""
    import torch

    if DEVICE == "cuda":
        used = torch.cuda.memory_reserved() + 32 * MIB
        torch.cuda.set_per_process_memory_fraction(used / torch.cuda.get_device_properties(0).total_memory)
    else:
        (getattr(model, "net", model)).forward = out_of_memory
    try:
        train()
    except torch.OutOfMemoryError as error:
        return {"raised": str(error), "notes": getattr(error, "__notes__", [])}
    return {"raised": None, "notes": []}


def out_of_memory(**_):
    import torch

    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including "
        "non-PyTorch memory, this process has 15.00 GiB memory in use. Of the allocated memory 14.00 GiB is allocated by PyTorch, and 200.00 MiB "
        "is reserved by PyTorch but unallocated."
    )


def job(trainer, mode, folder):
    import torch

    if DEVICE == "cpu":
        sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integrations" / "jobs"))
        import cuda_stand_in

        cuda_stand_in.install()
    else:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
    told = {"hugging face": hugging_face, "lightning": lightning}[trainer](mode, folder)
    (folder / f"{trainer}-{mode}.json").write_text(json.dumps(told))


def compare(told):
    """What was compared, and whether it is equal."""
    bare, by_hand, measured, failed = (told[mode] for mode in MODES)
    ours = measured["callback"]
    return {
        "losses and weights, without the callback and with it": (bare["losses"], bare["digest"]) == (measured["losses"], measured["digest"]),
        "the peak of each step, with torch.cuda's in the same run": ours["steps"] == measured["steps"] and len(ours["steps"]) == STEPS,
        "the peak of each step, with torch.cuda's read by hand in another run": ours["steps"] == by_hand["steps"],
        "the peak of the training, with torch.cuda's without any reset": ours["whole"] == bare["whole"],
        "the peak of an evaluation, with torch.cuda's read by hand": ours["evaluation"] == by_hand["evaluation"],
        "the peak of a prediction, with torch.cuda's read by hand": ours["prediction"] == by_hand["prediction"],
        "peaks differ between steps": len(set(ours["steps"])) > 1,
        "a note on the out-of-memory error": bool(failed["raised"]) and len(failed["notes"]) == 1 and "Out of memory (" in failed["notes"][0],
    }


def main():
    if sys.argv[1] == "--job":
        return job(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TOKENIZERS_PARALLELISM": "false"}
    if DEVICE == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    begin, result, is_equal = time.monotonic(), {"device": DEVICE}, True
    for trainer, packages in TRAINERS.items():
        if not any(importlib.util.find_spec(name) for name in packages):
            result[trainer] = "skipped: not installed"
            continue
        told, errors = {}, {}
        for mode in MODES:
            command = [sys.executable, __file__, "--job", trainer, mode, str(folder)]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=170, check=False)
            if done.returncode:
                errors[mode] = done.stderr[-3000:]
            else:
                told[mode] = json.loads((folder / f"{trainer}-{mode}.json").read_text())
        compared = {} if errors else compare(told)
        is_equal = is_equal and not errors and all(compared.values())
        result[trainer] = {"equal": compared, "errors": errors, "figures": told}
    result |= {"seconds": round(time.monotonic() - begin, 1), "passed": is_equal, "versions": versions()}
    text = json.dumps(result, indent=1)
    (folder / "trainers.json").write_text(text + "\n")
    print(text)
    return 0 if is_equal else 1


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
