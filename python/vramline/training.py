"""What the callbacks for PyTorch's trainers share: which device is the trainer's, figures for its logs, ranks, out-of-memory errors.

It knows none of the trainers. `vramline.huggingface` and `vramline.lightning` tell it what happens.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection
from typing import Any, Literal

from vramline import counters, inventory, out_of_memory, recorder, session, shown
from vramline.adapter import Counters
from vramline.measuring import GIB, Measurements, add_peaks, numbers
from vramline.ranks import Ranks
from vramline.words import How, Phase

_UNITS = {"gib": GIB}
_FIGURES = ("peak", "current", "reserved")


class TrainerMeasurements(Measurements):
    """Measures a training as a trainer of PyTorch divides it: steps, epochs, evaluations, predictions.

    Args:
        steps: The steps to measure: "all", a collection of step numbers (counted from 0 in a training), or None for none.
        record: A folder to record to, such as "run.vram". Other ranks than the first add their number: "run-rank1.vram".
        print_stats: Print one line per measurement.
        devices: The devices to measure. By default, those that this process uses, the trainer's first.
        logs: Add the figures to the trainer's logs.
        reset_peaks: Reset PyTorch's peak where a measurement begins. With False, or if the trainer reports that peak itself, a peak
            is known only if it is the highest so far.
    """

    _how: How = "trainer"
    _numbered = "step"

    def __init__(
        self,
        steps: Literal["all"] | Collection[int] | None = None,
        record: str | os.PathLike[str] | None = None,
        print_stats: bool = False,
        devices: str | Collection[str] | None = None,
        logs: bool = True,
        reset_peaks: bool = True,
    ) -> None:
        super().__init__(print_stats, devices, logs, reset_peaks)
        self.steps = numbers("steps", "step", steps)
        self._record = record
        self._main: str | None = None
        self._is_counted = False
        self._is_settled = False
        self._step: int | None = None
        # By device: the highest peak since the last line of the trainer's log, and since the training began.
        self._since_log: dict[str, int | None] = {}
        self._in_training: dict[str, int | None] = {}
        self._ranks: Ranks | None = None

    # --- What is measured ---

    def _read(self) -> list[Counters]:
        """Reads the devices that this process uses, the trainer's first: other ranks use the others."""
        reads = super()._read()
        if len(reads) > 1:
            reads = [read for read in reads if read.device == self._main or read.peak or read.pool or read.reason]
            reads.sort(key=lambda read: read.device != self._main)
        return reads

    def _note(self, reads: list[Counters]) -> dict[str, int | None]:
        peaks = super()._note(reads)
        if self._is_open("train"):
            add_peaks(self._in_training, peaks)
            if not any(unit in ("evaluate", "predict") for unit, _, _ in self._open):
                add_peaks(self._since_log, peaks)
        return peaks

    def _settle(self, device: Any, rank: int, who_reads_peak: str | None) -> None:
        """Takes what the trainer knows when it begins, once: its device, this process' rank, and who else reads PyTorch's peak."""
        if getattr(device, "type", None) == "cuda":
            self._main = f"GPU:{device.index or 0}"
        if self._is_settled:
            return
        self._is_settled = True
        if who_reads_peak is not None and self._resets:
            self._resets = False
            session.warn(f"MemoryCallback does not reset PyTorch's peak, which {who_reads_peak} reports: only peaks that rise are known")
        if not counters.read_all():
            session.warn("MemoryCallback: nothing to measure: this program uses no GPU, and PyTorch does not count CPU memory")
        if self._record is not None:
            path = pathlib.Path(self._record)
            if rank:
                path = path.with_name(f"{path.name.removesuffix('.vram')}-rank{rank}.vram")
            self._recording = recorder.record(path, step_peaks=False)

    # --- A training ---

    def _begin_training(self) -> None:
        # An earlier training that an exception ended left units open.
        self._open.clear()
        self._epoch = self._step = None
        self._is_counted = False
        self._ranks = Ranks()
        self._begin("train")
        self._since_log, self._in_training = {}, {}

    def _end_training(self) -> dict[str, dict[str, Any]]:
        self._epoch = None
        return self._end("train", "Training", "train", None) if self._is_open("train") else {}

    def _end_epoch(self, model: Any, optimizers: list[Any]) -> None:
        if self._epoch is not None and self._is_open("epoch"):
            self._end("epoch", f"Epoch {self._epoch + 1} end", "train", None)
        self._count(model, optimizers)

    def _begin_step(self, number: int) -> None:
        self._step = number
        if self._is_wanted(number) and not self._is_open("step"):
            self._begin("step")

    def _end_step(self, batches: int) -> None:
        if self._step is not None and self._is_open("step"):
            self._end("step", f"Step {self._step}", "train", self._step, batches)

    def _is_wanted(self, number: int) -> bool:
        return self.steps is not None and (self.steps == "all" or number in self.steps)

    def _end_phase(self, unit: str, label: str, phase: Phase) -> dict[str, dict[str, Any]]:
        """Ends an evaluation or a prediction, in a training or alone, and returns its measurements."""
        if not self._is_open(unit):
            return {}
        figures = self._end(unit, label, phase, None)
        # What comes next has its own peaks again.
        self._reset()
        return figures

    def _count(self, model: Any, optimizers: list[Any]) -> None:
        """Writes the variables of the model and its optimizers to the recording, once."""
        if self._recording is not None and not self._is_counted:
            self._is_counted = True
            files = self._recording._session
            files.attempt(lambda: files.inventory(inventory.of_torch_training(model, optimizers)))

    def _close(self) -> None:
        """Writes everything to disk. A later training goes on in the same recording."""
        if self._recording is not None:
            self._recording.close()

    # --- What it tells the trainer ---

    def _figures(self, measured: dict[str, dict[str, Any]], prefix: str) -> dict[str, float]:
        """Returns the figures of a unit for a log."""
        if not self._logs:
            return {}
        return {f"{prefix}{name}": value for name, value in self._by_name(measured, _FIGURES, _UNITS).items()}

    def _figures_since_log(self) -> dict[str, float]:
        """Returns the figures for a line of the trainer's log: of the time since the line before. Begins the next such time."""
        reads = self._read()
        self._note(reads)
        peaks, self._since_log = self._since_log, {}
        self._reset()
        rows = {read.device: self._row("", "train", None, read, peaks.get(read.device)) for read in reads}
        return self._figures(rows, "") | self._of_all_ranks()

    def _of_all_ranks(self) -> dict[str, float]:
        """Tells the other ranks the highest peak of this one, and returns theirs in the first rank."""
        known = [peak for peak in self._in_training.values() if peak is not None]
        highest = None if self._ranks is None else self._ranks.exchange(max(known, default=None))
        if highest is None or not self._logs:
            return {}
        return {"vram_peak_gib_all_ranks": highest.peak / GIB, "vram_peak_rank": highest.rank}

    def _peak(self, read: Counters) -> int | None:
        """Returns the highest peak of a device in this training, also if the peak was reset since."""
        known = [peak for peak in (read.peak, self._in_training.get(read.device)) if peak is not None]
        return max(known, default=None)

    def _fail(self, error: BaseException) -> None:
        """Writes the error that ended a training to the recording, and adds a note to it if memory has run out."""
        if self._recording is not None:
            self._recording._session.exception(error, self._read())
        facts = []
        if self._open:
            unit = self._open[-1][0]
            where = {"evaluate": "an evaluation", "predict": "a prediction"}.get(unit, "training")
            at = "" if self._step is None or where != "training" else f", step {self._step}"
            facts.append(f"It happened in {where}{at}.")
        facts += [
            f"{read.device}: {shown.size_text(read.current)} in use now, {shown.size_text(self._peak(read))} at the peak of this training."
            for read in self._read()
            if read.current is not None
        ]
        job = recorder.attached()
        command = "vramline run -- python train.py" if job is None else f"vramline oom {job.folder}"
        facts.append(f"To see who held the memory: {command}")
        out_of_memory.explain(error, facts)


_warned: set[str] = set()


def quietly(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function. An exception costs one warning and never the training; the result is None then."""
    try:
        return call(*arguments)
    except Exception as error:
        text = f"MemoryCallback: some figures are missing: {type(error).__name__}: {error}"
        if text not in _warned:
            _warned.add(text)
            session.warn(text)
        return None
