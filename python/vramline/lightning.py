"""`vramline.lightning.MemoryCallback`: a callback for Lightning's `Trainer` that measures memory.

    from vramline.lightning import MemoryCallback

    trainer = lightning.Trainer(callbacks=[MemoryCallback()])
    trainer.fit(model)

It works with both packages, `lightning.pytorch` and `pytorch_lightning`, and derives from the `Callback` of the one that the program
has imported.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from vramline.callbacks.measuring import OfObject
from vramline.callbacks.training import TrainerMeasurements, quietly
from vramline.words import Phase

__all__ = ["MemoryCallback"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
# A callback of Lightning that reports PyTorch's own peak.
_READS_PEAK = "DeviceStatsMonitor"


def _bases() -> tuple[type, ...]:
    """Returns the `Callback` classes of the packages that the program has imported; else of one that is installed."""
    loaded = [sys.modules[name] for name in _PACKAGES if hasattr(sys.modules.get(name), "Callback")]
    errors = []
    for name in _PACKAGES:
        if loaded:
            break
        try:
            loaded.append(importlib.import_module(name))
        except ImportError as error:
            errors.append(str(error))
    if not loaded:
        raise ImportError(
            f"vramline.lightning needs the package lightning or pytorch_lightning: {'; '.join(errors)}\nhint: pip install lightning"
        )
    return tuple(dict.fromkeys(module.Callback for module in loaded))


class MemoryCallback(TrainerMeasurements, *_bases()):  # type: ignore[misc]  # Its bases are known only when the program runs.
    """A callback of Lightning's `Trainer` that measures memory during `fit`, `validate`, `test` and `predict`.

        memory = MemoryCallback(steps=[0, 10], record="run.vram")
        trainer = lightning.Trainer(callbacks=[memory])
        trainer.fit(model)
        memory.plot()

    The figures go to every logger of the trainer (CSV, TensorBoard, Weights & Biases, MLflow): `vram_peak_gib`, `vram_current_gib` and
    `vram_reserved_gib` of the steps since the line before, every `log_every_n_steps`; the same with `val_`, `test_`, `predict_` and
    `train_` for a validation, a test, a prediction and the whole training. They are of the trainer's device; for other devices of this
    process the name is appended, as in `vram_peak_gib_gpu1`. In a distributed training, lines of the training also have
    `vram_peak_gib_all_ranks` and `vram_peak_rank`: the highest peak of all ranks so far, and the rank that has it.

    The callback resets PyTorch's peak where a measurement begins, so `torch.cuda.max_memory_allocated()` counts from there. Next to
    Lightning's `DeviceStatsMonitor`, which reports that peak, it resets nothing; then a peak is known only if it is the highest so far.

    If memory runs out, the error gets a note with the cause and what to do.

    Args:
        steps: The steps to measure: "all", a collection of step numbers (counted from 0), or None for none. With accumulated gradients, a
            step is several batches.
        record: A folder to record to, such as "run.vram". Other ranks than the first add their number: "run-rank1.vram".
        print_stats: Print one line per measurement.
        devices: The devices to measure, such as "GPU:0" or ["GPU:0", "GPU:1"]. By default, those that this process uses.
        logs: Send the figures to the trainer's loggers.
        reset_peaks: Reset PyTorch's peak where a measurement begins.

    Attributes:
        history: A list of measurements. Each is a dict with label, phase, epoch, step, device, current_bytes, peak_bytes,
            reserved_bytes and time (seconds since 1970). A size is None if it is unknown.
        labels: The labels of the first device's measurements.
        memory_usage: The peaks of the first device's measurements in GiB; None where a peak is unknown.
        path: The folder of the recording, once a training has begun; or None.
    """

    # Batches of the current step, the trainer's count of updates before it, and the number of the next step.
    _batches = _updates = _next = 0

    # Events of Lightning's trainer. An error in one of ours is a warning.

    @OfObject
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        quietly(self._set_up, trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._updates, self._next, self._batches = trainer.global_step, _logged_steps(trainer), 0
        quietly(self._begin_training)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._begin_epoch, trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._batches += 1
        if self._batches == 1:
            quietly(self._begin_step, self._next)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # With accumulated gradients, a batch may end without an update.
        if trainer.global_step != self._updates:
            quietly(self._end_step, self._batches)
            self._updates, self._next, self._batches = trainer.global_step, self._next + 1, 0
            if trainer.log_every_n_steps and self._next % trainer.log_every_n_steps == 0:
                quietly(self._log_training, trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._end_epoch, pl_module, trainer.optimizers)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._log_end, trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._begin, "evaluate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        label = "Validation"
        if trainer.sanity_checking:
            label = "Sanity check"
        elif self._is_open("train"):
            label = f"Validation of epoch {trainer.current_epoch + 1}"
        quietly(self._log_phase, trainer, "evaluate", label, "validation", "" if trainer.sanity_checking else "val_")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._begin, "evaluate")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._log_phase, trainer, "evaluate", "Test", "validation", "test_")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._begin, "predict")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._log_phase, trainer, "predict", "Prediction", "predict", "predict_")

    @OfObject
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        quietly(self._fail, exception)
        self._tear_down()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._tear_down()

    # What it does with them.

    def _set_up(self, trainer: Any) -> None:
        monitor = next((_READS_PEAK for each in trainer.callbacks if type(each).__name__ == _READS_PEAK), None)
        self._settle(trainer.strategy.root_device, trainer.global_rank, monitor)

    def _tear_down(self) -> None:
        self._open.clear()
        quietly(self._close)

    def _log_training(self, trainer: Any) -> None:
        self._to_loggers(trainer, self._figures_since_log())

    def _log_end(self, trainer: Any) -> None:
        self._to_loggers(trainer, self._figures(self._end_training(), "train_"))

    def _log_phase(self, trainer: Any, unit: str, label: str, phase: Phase, prefix: str) -> None:
        measured = self._end_phase(unit, label, phase)
        if prefix:
            self._to_loggers(trainer, self._figures(measured, prefix))

    def _to_loggers(self, trainer: Any, figures: dict[str, float]) -> None:
        # Not by `self.log`: it would put a tensor for each figure on the device.
        for logger in trainer.loggers if figures else []:
            logger.log_metrics(figures, step=_logged_steps(trainer))


def _logged_steps(trainer: Any) -> int:
    """Returns the step that Lightning logs its own metrics for now: batches that ended with an update.

    Lightning has no public name for it, and its own monitors read the same attribute. `global_step` counts the updates of all optimizers.
    """
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step))
