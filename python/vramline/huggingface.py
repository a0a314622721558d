"""`vramline.huggingface.MemoryCallback`: a callback for Hugging Face's `Trainer` that measures memory.

    from vramline.huggingface import MemoryCallback

    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[MemoryCallback()])
    trainer.train()

It works with every class that derives from `Trainer`, such as `Seq2SeqTrainer`.

`Trainer` tells its callbacks neither that an evaluation begins nor that an error ended a training. So the first callback that is made
wraps `Trainer.train`, `evaluate` and `predict`. They do what they did for trainers without this callback.
"""

from __future__ import annotations

import functools
from typing import Any

from vramline.callbacks.training import TrainerMeasurements, quietly
from vramline.words import Phase

try:
    import transformers
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(f"vramline.huggingface needs the package transformers: {error}\nhint: pip install transformers") from error

__all__ = ["MemoryCallback"]

# By method of `Trainer`: the unit that it is.
_UNITS = {"train": "train", "evaluate": "evaluate", "predict": "predict"}
_RUNTIME = "_runtime"


class MemoryCallback(TrainerMeasurements, TrainerCallback):  # type: ignore[misc]  # transformers has no types here.
    """A callback of Hugging Face's `Trainer` that measures memory during `train`, `evaluate` and `predict`.

        memory = MemoryCallback(steps=[0, 10], record="run.vram")
        trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[memory])
        trainer.train()
        memory.plot()

    The figures are in the trainer's logs, so the console, TensorBoard, Weights & Biases, MLflow and every other tracker of `report_to`
    show them: `vram_peak_gib`, `vram_current_gib` and `vram_reserved_gib` of the steps since the line before, the same with `eval_`,
    `test_` and `train_` in the metrics of evaluations, predictions and the whole training. They are of the trainer's device; for other
    devices of this process the name is appended, as in `vram_peak_gib_gpu1`. In a distributed training, lines of the training also have
    `vram_peak_gib_all_ranks` and `vram_peak_rank`: the highest peak of all ranks so far, and the rank that has it.

    The callback resets PyTorch's peak where a measurement begins, so `torch.cuda.max_memory_allocated()` counts from there.
    With `skip_memory_metrics=False`, where `Trainer` reports that peak itself, it resets nothing; then a peak is known only if it is the
    highest so far.

    If memory runs out, the error gets a note with the cause and what to do.

    Args:
        steps: The steps to measure: "all", a collection of step numbers (counted from 0), or None for none.
        record: A folder to record to, such as "run.vram". Other ranks than the first add their number: "run-rank1.vram".
        print_stats: Print one line per measurement.
        devices: The devices to measure, such as "GPU:0" or ["GPU:0", "GPU:1"]. By default, those that this process uses.
        logs: Add the figures to the trainer's logs.
        reset_peaks: Reset PyTorch's peak where a measurement begins.

    Attributes:
        history: A list of measurements. Each is a dict with label, phase, epoch, step, device, current_bytes, peak_bytes,
            reserved_bytes and time (seconds since 1970). A size is None if it is unknown.
        labels: The labels of the first device's measurements.
        memory_usage: The peaks of the first device's measurements in GiB; None where a peak is unknown.
        path: The folder of the recording, once a training has begun; or None.
    """

    # Batches of the current step.
    _batches = 0

    def _made(self) -> None:
        _wrap_trainer()

    # What the wrapped methods of `Trainer` call.

    def _enter(self, unit: str, trainer: Any) -> int:
        """Begins a unit. Returns how many are open around it."""
        around = len(self._open)
        handler, args = trainer.callback_handler, trainer.args
        if handler.callbacks[0] is not self:
            # To the front, so that the others find its figures in `logs`. A new list, because `Trainer` may be iterating over this one.
            handler.callbacks = [self, *(each for each in handler.callbacks if each is not self)]
        self._settle(args.device, args.process_index, None if args.skip_memory_metrics else "Trainer(skip_memory_metrics=False)")
        if unit != "train":
            self._begin(unit)
        return around

    def _leave(self, around: int | None) -> None:
        # A unit is still open after an exception, or if a class of the program's own logs nothing.
        while around is not None and len(self._open) > around:
            self._close_innermost()
        if not self._open:
            self._close()

    # Events of `Trainer`. Each passes on what it is told; an error in one of ours is a warning.

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._begin_training)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._begin_epoch, _epoch(state))

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        quietly(self._end_epoch, model, [] if optimizer is None else [optimizer])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._batches = 1
        quietly(self._begin_step, state.global_step)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._batches += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._end_step, self._batches)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if logs is not None:
            quietly(self._log, state, logs)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if metrics is not None:
            quietly(self._measure_phase, metrics, "predict", "Prediction", "predict")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._end_training)

    # What it does with them.

    def _log(self, state: Any, logs: dict[str, Any]) -> None:
        before = set(logs)
        if "total_flos" in logs:
            # The last line of a training.
            logs.update(self._figures(self._end_training(), "train_"))
        elif self._is_open("evaluate") and _prefix(logs):
            where = f" at step {state.global_step}" if self._is_open("train") else ""
            what = _prefix(logs).removeprefix("eval_").rstrip("_")
            self._measure_phase(logs, "evaluate", f"Evaluation{f' of {what}' if what else ''}{where}", "validation")
        elif self._is_open("train"):
            logs.update(self._figures_since_log())
        # `Trainer` has copied the line into its history already.
        if state.log_history and before <= state.log_history[-1].keys():
            state.log_history[-1].update({name: value for name, value in logs.items() if name not in before})

    def _measure_phase(self, metrics: dict[str, Any], unit: str, label: str, phase: Phase) -> None:
        metrics.update(self._figures(self._end_phase(unit, label, phase), _prefix(metrics)))


def _prefix(metrics: dict[str, Any]) -> str:
    """Returns how the names of these metrics begin, such as "eval_"; empty for a line of the training."""
    keys = (key for key in metrics if key.endswith(_RUNTIME) and not key.startswith("train_"))
    return next((f"{key.removesuffix(_RUNTIME)}_" for key in keys), "")


def _epoch(state: Any) -> int:
    """Returns the number of the epoch that begins: `state.epoch` is a sum of fractions."""
    return int((state.epoch or 0.0) + 1e-6)


def _wrap_trainer() -> None:
    """Makes `Trainer` tell its `MemoryCallback` where a training, an evaluation and a prediction begin and end."""
    trainer = transformers.Trainer
    for name, unit in _UNITS.items():
        method = trainer.__dict__[name]
        if not getattr(method, "_measures_memory", False):
            setattr(trainer, name, _wrapped(method, unit))


def _wrapped(method: Any, unit: str) -> Any:
    @functools.wraps(method)
    def measured(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = [each for each in trainer.callback_handler.callbacks if isinstance(each, MemoryCallback)]
        around = [quietly(callback._enter, unit, trainer) for callback in callbacks]
        try:
            return method(trainer, *args, **kwargs)
        except Exception as error:
            for callback in callbacks:
                quietly(callback._fail, error)
            raise
        finally:
            for callback, count in zip(callbacks, around):
                quietly(callback._leave, count)

    measured._measures_memory = True  # type: ignore[attr-defined]
    return measured
