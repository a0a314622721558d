"""What the callbacks for PyTorch's trainers share: which device is the trainer's, figures for its logs, ranks, out-of-memory errors.

It knows none of the trainers. `vramline.huggingface` and `vramline.lightning` tell it what happens.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection
from typing import Any, Literal

from vramline import shown
from vramline.callbacks.measuring import GIB, Measurements, numbers, raise_peaks
from vramline.callbacks.ranks import Ranks
from vramline.frameworks import counters, inventory
from vramline.frameworks.adapter import Counters
from vramline.recording import out_of_memory, recorder, session
from vramline.words import How, Phase

_UNITS = {"gib": GIB}
_FIGURES = ("peak", "current", "reserved")


class TrainerMeasurements(Measurements):
    """Measures a training as a trainer of PyTorch divides it: steps, epochs, evaluations, predictions.

    The callbacks inherit this constructor, and describe its parameters to the user.
    """

    _how: How = "trainer"
    _numbered = "step"
    # No step or epoch is inside an evaluation or a prediction, and their peaks are not in the log's lines of a training.
    _apart = ("evaluate", "predict")

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
        self._is_every = self.steps == "all"
        self._record = record
        self._main: str | None = None
        self._is_counted = False
        self._is_settled = False
        self._step: int | None = None
        self._ranks: Ranks | None = None
        self._made()

    def _made(self) -> None:
        """Does what a trainer needs when a callback is made."""

    # --- What is measured ---

    def _chosen(self, reads: list[Counters]) -> list[Counters]:
        """Returns the counters of the devices that this process uses, the trainer's first: other ranks use the others."""
        reads = super()._chosen(reads)
        if len(reads) > 1:
            reads = [read for read in reads if read.device == self._main or read.peak or read.pool or read.reason]
            reads.sort(key=lambda read: read.device != self._main)
        return reads

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
            self._recording._session.open()

    # --- A training ---

    def _begin_training(self) -> None:
        # An earlier training that an exception ended left units open.
        self._open.clear()
        self._epoch = self._step = None
        self._is_counted = False
        self._ranks = Ranks()
        self._begin("train")
        self._highest = {}

    def _end_training(self) -> dict[str, dict[str, Any]]:
        self._epoch = None
        return self._end("train", "Training", "train", None) if self._is_open("train") else {}

    def _end_epoch(self, model: Any, optimizers: list[Any]) -> None:
        if self._epoch is not None and self._is_open("epoch"):
            self._end("epoch", f"Epoch {self._epoch + 1} end", "train", None)
        self._count(model, optimizers)

    def _begin_step(self, number: int) -> None:
        self._step = number
        if (self._is_every or (self.steps is not None and number in self.steps)) and not self._is_open("step"):
            self._begin("step")

    def _end_step(self, batches: int) -> None:
        if self._step is not None and self._is_open("step"):
            self._end("step", f"Step {self._step}", "train", self._step, batches)

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
        reads = self._note()
        peaks, self._highest = self._highest, {}
        self._reset()
        rows = {read.device: self._row("", "train", None, read, peaks.get(read.device)) for read in reads}
        return self._figures(rows, "") | self._of_all_ranks()

    def _of_all_ranks(self) -> dict[str, float]:
        """Tells the other ranks the highest peak of this one, and returns theirs in the first rank."""
        known = [peak for peak in self._peaks_so_far().values() if peak is not None]
        highest = None if self._ranks is None else self._ranks.exchange(max(known, default=None))
        if highest is None or not self._logs:
            return {}
        return {"vram_peak_gib_all_ranks": highest.peak / GIB, "vram_peak_rank": highest.rank}

    def _peaks_so_far(self) -> dict[str, int | None]:
        """Returns the highest peak of each device in what is open, such as a training, also if the peak was reset since."""
        peaks: dict[str, int | None] = {}
        for _, _, of_unit in self._open:
            raise_peaks(of_unit, peaks)
        return peaks

    def _fail(self, error: BaseException) -> None:
        """Writes the error that ended a training to the recording, and adds a note to it if memory has run out."""
        if self._recording is not None:
            self._recording._session.exception(error, self._read())
        facts, whole = [], "this program"
        if self._open:
            named = {"evaluate": "evaluation", "predict": "prediction"}
            around, unit = (named.get(self._open[place][0], "training") for place in (0, -1))
            at = "" if self._step is None or unit != "training" else f", step {self._step}"
            where = {"evaluation": "an evaluation", "prediction": "a prediction"}.get(unit, unit)
            facts.append(f"It happened in {where}{at}.")
            whole = f"this {around}"
        reads = self._read()
        highest = self._peaks_so_far()
        raise_peaks({read.device: read.peak for read in reads}, highest)
        facts += [
            f"{read.device}: {shown.size_text(read.current)} in use now, {shown.size_text(highest[read.device])} at the peak of {whole}."
            for read in reads
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
