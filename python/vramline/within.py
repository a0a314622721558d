"""Training inside a limit: the batch that is wanted, in micro-batches that fit, chosen by the planner and not by trial.

The model is probed in processes of its own, at batches of a few samples, and `vramline plan` computes what larger ones take. This
process is not touched meanwhile: neither its pool nor the model. `vramline.keras.fit_within` is this module's `fit_within`.
"""

from __future__ import annotations

import json
import math
import operator
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramline import _vramline, accumulation, counters
from vramline.probes import PROBES, Probes
from vramline.probes import CannotPlan as CannotPlan  # Whoever calls fit_within catches it here.
from vramline.shown import size_text

# What TensorFlow's pool rounds every request to.
_ROUNDING = 256


class DoesNotFit(MemoryError):
    """Not even a batch of one fits, by the plan or in truth."""


@dataclass(frozen=True)
class Within:
    """How a training was kept inside its limit. Bytes are None where they are not known."""

    batch_size: int
    """Samples in an update, as asked for."""
    micro_batch: int
    """Samples that are in memory at a time."""
    accumulation_steps: int
    """Micro-batches in an update; 1 where the batch fits at once."""
    limit_bytes: int
    """What the pool may take."""
    accumulator_bytes: int
    """What accumulating gradients holds all the time; 0 where nothing is accumulated."""
    predicted_peak_bytes: int | None
    """The most in use at the micro-batch, in the middle of many runs, as planned for a pool with memory to spare: it may be more
    than the limit. Under one the allocator packs tighter and ops wait; `minimum_bytes` decides."""
    predicted_low_bytes: int | None
    predicted_high_bytes: int | None
    minimum_bytes: int | None
    """The least limit with which every order of ops passes, as planned."""
    certain: bool
    """False where the plan says that it rests on too little, or only some orders pass."""
    measured_peak_bytes: int | None
    """The most in use in truth, by the framework's own count."""
    stepped_down: bool
    """True where the plan was wrong and a smaller micro-batch was taken."""
    plan: dict[str, Any] = field(repr=False)
    """The plan, as `vramline plan --json` prints it."""

    def __str__(self) -> str:
        parts = f"batch {self.batch_size}"
        if self.accumulation_steps > 1:
            parts += f" as {self.accumulation_steps} micro-batches of {self.micro_batch}"
        text = f"{parts} within {size_text(self.limit_bytes)}"
        if self.predicted_peak_bytes is not None:
            between = f"{size_text(self.predicted_low_bytes)} to {size_text(self.predicted_high_bytes)}"
            if max(self.predicted_peak_bytes, self.predicted_high_bytes or 0) <= self.limit_bytes:
                text += f": predicted peak {size_text(self.predicted_peak_bytes)} ({between})"
            else:
                if self.minimum_bytes is not None:
                    text += f": passes with {size_text(self.minimum_bytes)}"
                text += f"; with memory to spare it would take {size_text(self.predicted_peak_bytes)} ({between})"
        if self.accumulator_bytes:
            text += f", {size_text(self.accumulator_bytes)} of it for accumulated gradients"
        if not self.certain:
            text += "; not certain"
        if self.measured_peak_bytes is not None:
            text += f"; measured {size_text(self.measured_peak_bytes)}"
        return text


def _whole(value: Any) -> int | None:
    """A whole number of any type, NumPy's too; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return int(value) if isinstance(value, float) and value.is_integer() else None


def size_of(limit: int | str) -> int:
    """Bytes of a number or of a text such as 8GiB or 8G."""
    if isinstance(limit, str):
        try:
            size: int | None = _vramline.parse_size(limit)
        except ValueError as error:
            raise ValueError(f"limit: {error}") from None
    else:
        size = _whole(limit)
    if size is None:
        raise ValueError(f"limit: expected bytes or a size such as '8GiB', found {limit!r}")
    if size <= 0:
        raise ValueError(f"limit: expected more than nothing, found {limit!r}")
    return size


def samples_of(batch: Any) -> int:
    """A batch size, of any type of whole numbers."""
    size = None if isinstance(batch, float) else _whole(batch)
    if size is None or size < 1:
        raise ValueError(f"batch_size: expected a number of samples, found {batch!r}")
    return size


def parts_of(batch: int, largest: int) -> tuple[int, int]:
    """The micro-batch for a batch where `largest` samples fit, and how many of them there are.

    An exact divisor is taken where one is at least half as large as what fits: then every sample weighs the same. Otherwise the
    micro-batches of a batch differ by one sample.
    """
    if largest >= batch:
        return batch, 1
    divisor = next(size for size in range(largest, 0, -1) if batch % size == 0)
    if divisor * 2 >= largest:
        return divisor, batch // divisor
    steps = math.ceil(batch / largest)
    return math.ceil(batch / steps), steps


def fit_within(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int = 32,
    limit: int | str,
    sample_weight: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    verbose: int | str = "auto",
    callbacks: Any = None,
    record: str | os.PathLike[str] | None = None,
    build: Callable[[], Any] | str | None = None,
    plan: dict[str, Any] | str | os.PathLike[str] | None = None,
    probes: Sequence[int] = PROBES,
    keep: str | os.PathLike[str] | None = None,
    **fit_arguments: Any,
) -> Any:
    """Trains a compiled Keras 3 model at an effective batch inside a limit.

    Where the batch fits at once it is trained as it is. Otherwise gradients are accumulated over micro-batches, as many as it
    takes: each update is that of the whole batch, except where layers look across a batch (BatchNormalization sees micro-batches).
    `optimizer.iterations` and learning-rate schedules count updates; callbacks count micro-batches.

    Where the plan was wrong and memory runs out before the first update, the model is put back as it was and the next smaller
    micro-batch is tried, once.

    Args:
        model: Compiled, on the TensorFlow backend.
        x: Arrays, or dicts, lists and tuples of arrays, with one row a sample.
        y: As x.
        batch_size: Samples in an update.
        limit: What the pool may take: bytes, or a text such as "8GiB". On a GPU leave room for the CUDA context. It is not enforced
            here: `vramline run --limit`, a logical device or TF_CPU_BFC_MEM_LIMIT_IN_MB do that.
        sample_weight, validation_split, validation_data, shuffle, verbose, callbacks: As of `Model.fit`.
        record: A folder to record into, such as "run.vram".
        build: What makes the compiled model anew in the probes' processes, where it cannot be saved and loaded: a function
            without arguments, or its name as "module:function".
        plan: A plan to go by instead of making one: what `vramline plan --json --limit ...` printed, as a dict or a file. It must have been
            made for a limit, and for no more than may be taken here.
        probes: The batches that are probed.
        keep: A folder to keep the probes in; what is there already of this very model is not run again.
        **fit_arguments: Whatever else `Model.fit` takes, such as epochs; not steps_per_epoch.

    Returns:
        Keras' History, with one attribute more: `within`, a `Within`.

    Raises:
        DoesNotFit: If not even a batch of one fits the limit, or memory ran out again after the step down.
        CannotPlan: If the model cannot be rebuilt in another process, or its probes do not lead to a plan.
        ValueError: If an argument is not possible, also a plan that was made for more memory than this limit.
        NotImplementedError: On backends other than TensorFlow.
    """
    limit_bytes, batch_size = size_of(limit), samples_of(batch_size)
    _check(model, fit_arguments)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = _split((x, y, sample_weight), validation_split)
    data = tuple(part for part in (x, y, sample_weight) if part is not None)
    if y is None and sample_weight is not None:
        raise ValueError("sample_weight: expected y with it")
    accumulation.Batches(data, batch_size, batch_size, shuffle)  # Complains early of data that it cannot take.
    if not model.built:
        import keras

        model(keras.tree.map_structure(lambda array: array[:1], x))
    model.optimizer.build(model.trainable_variables)
    wanted = _Wanted(model, batch_size, limit_bytes)
    chosen = _chosen(wanted, data, plan, build, probes, keep, fit_arguments.get("class_weight"))
    if verbose:
        print(f"vramline: {chosen}", flush=True)

    def train(within: Within) -> Any:
        batches = accumulation.Batches(data, batch_size, within.micro_batch, shuffle)
        with accumulation.Accumulation(model, within.accumulation_steps) as accumulated:
            first = _First(min(within.accumulation_steps, len(batches)))
            hooks = [first.callback(), accumulated.callback(len(batches)), *_flat(callbacks)]
            if record is not None:
                from vramline.callback import MemoryCallback

                hooks.append(MemoryCallback(batches="all", record=record, logs=False))
            watched = [each for hook in hooks for each in (peaks.callback(), hook)]
            arguments = dict(fit_arguments, verbose=verbose, callbacks=watched, shuffle=False)
            if validation_data is not None:
                size = arguments.pop("validation_batch_size", None) or within.micro_batch
                arguments["validation_data"] = _validation(validation_data, size)
            try:
                return model.fit(batches.dataset(), **arguments)
            except Exception as error:
                if not first.is_done and _is_exhausted(error):
                    raise _TooLarge from error
                raise

    restore = accumulation.state(model)
    peaks = _Peaks()
    try:
        history = train(chosen)
    except _TooLarge as error:
        smaller = _smaller(chosen, wanted.accumulators)
        if smaller is None:
            raise DoesNotFit(
                f"memory ran out at a batch of one within {size_text(wanted.limit)}"
            ) from error.__cause__
        if verbose:
            print(f"vramline: memory ran out at {chosen.micro_batch}; once more with {smaller}", flush=True)
        restore()
        chosen = smaller
        try:
            history = train(chosen)
        except _TooLarge as again:
            raise DoesNotFit(
                f"memory ran out at micro-batches of {chosen.micro_batch} too, the second that was tried\n"
                "hint: the plan is far off; `vramline oom` tells what held the memory, a smaller limit= leaves more room"
            ) from again.__cause__
    peaks.note()
    history.within = _replaced(chosen, measured_peak_bytes=peaks.highest)
    if verbose and peaks.highest is not None:
        print(f"vramline: measured peak {size_text(peaks.highest)}", flush=True)
    return history


def predicted(
    model: Any,
    data: tuple[Any, ...],
    batch: int,
    build: Callable[[], Any] | str | None = None,
    probes: Sequence[int] = PROBES,
) -> dict[str, Any]:
    """The plan of a compiled model at a batch, as it is and without a limit: what `vramline plan --json` prints."""
    batch = samples_of(batch)
    _check(model, {})
    wanted = _Wanted(model, batch, 1)
    with tempfile.TemporaryDirectory(prefix="vramline-") as temporary:
        made = Probes(wanted.model, Path(temporary), None, tuple(probes))
        made.save(data, build, None)
        return json.loads(made.plan(1, batch, None).json)


class _TooLarge(Exception):
    """Memory ran out before the first update."""


class _First:
    """Whether the first update is done."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.is_done = False

    def callback(self) -> Any:
        import keras

        class First(keras.callbacks.Callback):
            def on_train_batch_end(callback, batch: int, logs: dict[str, Any] | None = None) -> None:
                self.is_done = self.is_done or batch + 1 >= self._steps

        return First()


def _flat(callbacks: Any) -> list[Any]:
    """As Keras takes them: one, several, or its own list of them."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return keras.tree.flatten(callbacks) if callbacks else []


class _Peaks:
    """The most that was in use on a device from now on, whoever resets the framework's own count meanwhile."""

    def __init__(self) -> None:
        self.highest: int | None = None
        counters.reset_all()

    def note(self) -> None:
        for read in counters.read_all():
            if read.peak is not None:
                self.highest = max(read.peak, self.highest or 0)

    def callback(self) -> Any:
        """A callback that belongs before every one that may reset the count: it reads first, at whatever Keras tells."""
        import keras

        def told(callback: Any, *_: Any, **__: Any) -> None:
            self.note()

        # An epoch's, a batch's and a loop's: these are all that callbacks of a training are told.
        loops = ("train", "test", "epoch", "train_batch", "test_batch")
        hooks = {f"on_{loop}_{edge}": told for loop in loops for edge in ("begin", "end")}
        return type("Note", (keras.callbacks.Callback,), hooks)()


def _check(model: Any, fit_arguments: dict[str, Any]) -> None:
    """Refuses what is not possible at all."""
    import keras

    if not hasattr(keras, "ops"):
        raise NotImplementedError("fit_within needs Keras 3\nhint: pip install 'keras>=3'")
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            f"fit_within works on the TensorFlow backend, found {keras.backend.backend()}\n"
            "hint: `vramline plan --batches 5,7,11 --limit 8GiB -- python train.py --batch {batch}` plans for the others"
        )
    if getattr(model, "optimizer", None) is None:
        raise ValueError("the model is not compiled\nhint: model.compile(optimizer, loss)")
    if "steps_per_epoch" in fit_arguments:
        raise ValueError("steps_per_epoch: fit_within goes through all of the data in every epoch")
    accumulation.Accumulation(model, 1)


class _Wanted:
    """What is asked for, of a model and an optimizer that are built."""

    def __init__(self, model: Any, batch: int, limit: int) -> None:
        self.model, self.batch, self.limit = model, batch, limit
        # Others' memory in this process is there all the while, and in no probe.
        own = sum(_rounded(variable.value) for variable in [*model.variables, *model.optimizer.variables])
        held = max((read.current or 0 for read in counters.read_all()), default=0)
        self.others = max(held - own, 0) if held - own >= 1 << 20 else 0
        self.accumulators = sum(_rounded(variable.value) for variable in model.trainable_variables)


def _rounded(value: Any) -> int:
    size = int(math.prod(value.shape)) * value.dtype.size
    return -(-size // _ROUNDING) * _ROUNDING


def _chosen(
    wanted: _Wanted,
    data: tuple[Any, ...],
    plan: dict[str, Any] | str | os.PathLike[str] | None,
    build: Callable[[], Any] | str | None,
    probes: Sequence[int],
    keep: str | os.PathLike[str] | None,
    class_weight: dict[int, float] | None,
) -> Within:
    room = wanted.limit - wanted.others
    if room <= 0:
        raise DoesNotFit(
            f"this process holds {size_text(wanted.others)} beside the model, all of the {size_text(wanted.limit)}"
        )
    if plan is not None:
        told = _given(plan, wanted.limit)
        micro, steps = _parts(wanted, told)
        # Whether its runs accumulated gradients, or held what this process holds beside the model, it does not say.
        is_roomy = (told.limit or 0) + (wanted.accumulators if steps > 1 else 0) <= room
        return _within(wanted, told, micro, steps, is_roomy)
    with tempfile.TemporaryDirectory(prefix="vramline-") as temporary:
        folder = Path(temporary)
        made = Probes(wanted.model, folder, Path(keep) if keep is not None else None, tuple(probes))
        made.save(data, build, class_weight)
        told = made.plan(2, wanted.batch, room)
        direct = told.predictions[0]
        if direct.fits is not True:
            # Nothing is accumulated where the batch fits at once: that takes less than the probes took.
            least = direct.minimum or direct.low
            if least - 3 * wanted.accumulators <= room:
                alone = made.plan(1, wanted.batch, room)
                if alone.predictions[0].fits is True:
                    return _within(wanted, alone, wanted.batch, 1)
        micro, steps = _parts(wanted, told)
        if steps > 1:
            told = made.plan(2, micro, room)
        return _within(wanted, told, micro, steps)


def _given(plan: dict[str, Any] | str | os.PathLike[str], limit: int) -> _vramline.PlanDocument:
    """A plan that somebody made: one of batches for TensorFlow, for no more than the limit."""
    make = f"hint: vramline plan --json --limit {_limit_text(limit)} --batches 5,7,11 -- python train.py --batch {{batch}} > plan.json"
    expected = "plan: expected what `vramline plan --json` prints, found"
    try:
        text = json.dumps(plan) if isinstance(plan, dict) else Path(plan).read_text(encoding="utf-8")
        told = _vramline.PlanDocument(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{expected} {error}\n{make}") from error
    if told.variable != "batch":
        raise ValueError(f"{expected} a plan of {told.variable!r}, not of the batch\n{make}")
    if told.framework not in (None, "tensorflow"):
        raise ValueError(f"{expected} a plan of {told.framework!r}, not of TensorFlow\n{make}")
    if told.limit is None:
        raise ValueError(f"plan: it was made without a limit, so it does not tell what fits\n{make}")
    if told.limit > limit:
        raise ValueError(
            f"plan: it was made for {size_text(told.limit)} ({told.limit} bytes), and no more than "
            f"{size_text(limit)} ({limit} bytes) may be taken here\n{make}"
        )
    return told


def _limit_text(size: int) -> str:
    """A size as `--limit` takes it, no larger than it is."""
    return f"{size >> 20}MiB" if size >= 1 << 20 else str(size)


def _parts(wanted: _Wanted, plan: _vramline.PlanDocument) -> tuple[int, int]:
    # Below the edge, where nothing is sure.
    largest = plan.sure or (max(plan.likely * 3 // 4, 1) if plan.likely is not None else None)
    if largest is None:
        doubts = "".join(f"\n  not certain: {text}" for text in plan.doubts)
        raise DoesNotFit(
            f"not even a batch of one fits {size_text(wanted.limit)}: {plan.headline}{doubts}\n"
            "hint: a smaller model, mixed precision or another optimizer; `vramline report` on a probe (keep=...) tells "
            "what holds the memory"
        )
    return parts_of(wanted.batch, largest)


def _within(wanted: _Wanted, plan: _vramline.PlanDocument, micro: int, steps: int, is_known: bool = True) -> Within:
    """How it is done; not certain unless `is_known` that the plan is of runs such as this one."""
    at = next((each for each in plan.predictions if each.batch == micro), None)

    def beside(size: Callable[[_vramline.PlannedBatch], int | None]) -> int | None:
        told = None if at is None else size(at)
        return None if told is None else told + wanted.others

    return Within(
        batch_size=wanted.batch,
        micro_batch=micro,
        accumulation_steps=steps,
        limit_bytes=wanted.limit,
        accumulator_bytes=wanted.accumulators if steps > 1 else 0,
        predicted_peak_bytes=beside(lambda at: at.peak),
        predicted_low_bytes=beside(lambda at: at.low),
        predicted_high_bytes=beside(lambda at: at.high),
        minimum_bytes=beside(lambda at: at.minimum),
        certain=is_known and plan.certain and (plan.sure or 0) >= micro,
        measured_peak_bytes=None,
        stepped_down=False,
        plan=json.loads(plan.json),
    )


def _smaller(chosen: Within, accumulators: int) -> Within | None:
    if chosen.micro_batch == 1:
        return None
    micro, steps = parts_of(chosen.batch_size, max(chosen.micro_batch * 3 // 4, 1))
    unknown = dict.fromkeys(["predicted_peak_bytes", "predicted_low_bytes", "predicted_high_bytes", "minimum_bytes"])
    changed = {"micro_batch": micro, "accumulation_steps": steps, "accumulator_bytes": accumulators}
    return _replaced(chosen, stepped_down=True, certain=False, **changed, **unknown)


def _replaced(within: Within, **changes: Any) -> Within:
    return Within(**{**vars(within), **changes})


def _is_exhausted(error: BaseException) -> bool:
    import tensorflow as tf

    return isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError))


def _split(parts: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """As Keras does: the last rows, before they are shuffled."""
    import keras

    rows = len(keras.tree.flatten(parts[0])[0])
    at = math.floor(rows * (1.0 - share))
    if not 0 < at < rows:
        raise ValueError(f"validation_split: {share} leaves nothing of {rows} rows on one side")

    def cut(begin: int, end: int) -> tuple[Any, ...]:
        return tuple(
            None if part is None else keras.tree.map_structure(lambda array: array[begin:end], part) for part in parts
        )

    held_out = cut(at, rows)
    return cut(0, at), held_out if held_out[2] is not None else held_out[:2]


def _validation(data: Any, batch: int) -> Any:
    """Arrays go in batches, so that they do not lie in the pool as a whole."""
    if not isinstance(data, (tuple, list)):
        return data
    return accumulation.Batches(tuple(data), batch, batch, shuffle=False).dataset()
