"""`vramline.keras.fit_within`: trains within a memory limit, with micro-batches that the planner chooses.

Probes run the model in separate processes with batches of a few samples, and `vramline plan` computes the memory of larger batches from
them. Meanwhile neither the pool of this process nor the model changes.
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

from vramline import _vramline
from vramline.frameworks import counters
from vramline.planning import accumulation
from vramline.planning.probes import PROBES, Probes
from vramline.planning.probes import CannotPlan as CannotPlan  # Part of the interface of fit_within.
from vramline.shown import size_text

# Micro-batches that are run under the limit before the choice stands without a confirmation.
_TRIES = 3
# TensorFlow's pool rounds every request up to a multiple of this.
_ROUNDING = 256


class DoesNotFit(MemoryError):
    """Raised by `fit_within` if the model does not fit the limit: not even a batch of one sample, or memory ran out twice."""


@dataclass(frozen=True)
class Within:
    """How `fit_within` kept a training within its limit. A number of bytes is None if it is unknown.

    Attributes:
        batch_size: Samples per update, as requested.
        micro_batch: Samples per micro-batch: these are in memory at the same time.
        accumulation_steps: Micro-batches per update; 1 if the whole batch fits.
        limit_bytes: The limit: the most that the pool may reserve.
        accumulator_bytes: Memory of the accumulated gradients, held during the whole training; 0 if nothing is accumulated.
        predicted_peak_bytes: Median of the predicted peak at this micro-batch, without a limit. It may exceed the limit: under a
            limit the allocator packs tighter and ops wait for memory, so `minimum_bytes` decides what fits.
        predicted_low_bytes: Lower bound of the predicted peak.
        predicted_high_bytes: Upper bound of the predicted peak.
        minimum_bytes: The smallest limit that the plan calls sure for this micro-batch.
        certain: False if the plan has too little data, or expects only some orders of ops to pass.
        confirmed_runs: Number of short real runs with this micro-batch that passed under the limit, in separate processes. 0 if the
            choice was not confirmed: a run failed, `confirm` is 0, or a plan was given.
        measured_peak_bytes: The peak that the framework measured during the training.
        stepped_down: True if memory ran out with the planned micro-batch and a smaller one was used.
        plan: The plan as a dict, as `vramline plan --json` prints it.
    """

    batch_size: int
    micro_batch: int
    accumulation_steps: int
    limit_bytes: int
    accumulator_bytes: int
    predicted_peak_bytes: int | None
    predicted_low_bytes: int | None
    predicted_high_bytes: int | None
    minimum_bytes: int | None
    certain: bool
    confirmed_runs: int
    measured_peak_bytes: int | None
    stepped_down: bool
    plan: dict[str, Any] = field(repr=False)

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
                    text += f": needs at least {size_text(self.minimum_bytes)}"
                text += f"; without a limit the peak would be {size_text(self.predicted_peak_bytes)} ({between})"
        if self.accumulator_bytes:
            text += f", including {size_text(self.accumulator_bytes)} for accumulated gradients"
        if not self.certain:
            text += "; not certain"
        runs = "1 run" if self.confirmed_runs == 1 else f"{self.confirmed_runs} runs"
        text += f"; confirmed by {runs}" if self.confirmed_runs else "; not confirmed by a run"
        if self.measured_peak_bytes is not None:
            text += f"; measured peak {size_text(self.measured_peak_bytes)}"
        return text


def _whole(value: Any) -> int | None:
    """Converts a whole number of any type, also of NumPy, to int; None if it is not one."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return int(value) if isinstance(value, float) and value.is_integer() else None


def size_of(limit: int | str) -> int:
    """Converts a limit to bytes: a number, or a text such as "8GiB" or "8G"."""
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
        raise ValueError(f"limit: expected more than 0 bytes, found {limit!r}")
    return size


def samples_of(batch: Any) -> int:
    """Checks a batch size, and converts it to int."""
    size = None if isinstance(batch, float) else _whole(batch)
    if size is None or size < 1:
        raise ValueError(f"batch_size: expected a whole number of samples, at least 1, found {batch!r}")
    return size


def _runs(confirm: Any) -> int:
    """Checks a number of runs, and converts it to int."""
    runs = None if isinstance(confirm, float) else _whole(confirm)
    if runs is None or not 0 <= runs <= 100:
        raise ValueError(f"confirm: expected a number of runs from 0 to 100, found {confirm!r}")
    return runs


def parts_of(batch: int, largest: int) -> tuple[int, int]:
    """Divides a batch into micro-batches of at most `largest` samples: returns their size and their number.

    The size is an exact divisor of the batch if there is one of at least half of `largest`: then every sample has the same weight.
    Otherwise the micro-batches of a batch differ by one sample.
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
    confirm: int = 3,
    **fit_arguments: Any,
) -> Any:
    """Trains a compiled Keras 3 model with a given batch size within a memory limit.

        history = vramline.keras.fit_within(model, x, y, batch_size=256, limit="8GiB", epochs=3)
        print(history.within)

    If the whole batch fits, the model is trained as usual. Otherwise gradients are accumulated over as many micro-batches as needed,
    and each update equals that of the whole batch, except for layers that compute across a batch: BatchNormalization sees
    micro-batches. `optimizer.iterations` and learning-rate schedules count updates; callbacks count micro-batches.

    Vramline chooses the micro-batch before the training: it runs the model with a few small batches in separate processes and predicts
    the memory of larger ones. Then it runs the chosen micro-batch under the limit, a few steps each time; if that fails, it tries a
    smaller one, at most twice. If memory still runs out before the first update, the model is restored and a smaller micro-batch
    is tried, once.

    Args:
        model: A compiled model on the TensorFlow backend.
        x: Arrays with one row per sample, or dicts, lists and tuples of such arrays.
        y: Targets, as x.
        batch_size: Samples per update.
        limit: The most that the pool may reserve: a number of bytes, or a text such as "8GiB". On a GPU, leave room for the CUDA
            context. `fit_within` does not enforce the limit; `vramline run --limit`, a logical device or TF_CPU_BFC_MEM_LIMIT_IN_MB do.
        sample_weight, validation_split, validation_data, shuffle, verbose, callbacks: As for `Model.fit`.
        record: A folder to record to, such as "run.vram".
        build: A function without arguments that returns the compiled model, or its name as "module:function". Needed only if the
            model cannot be saved and loaded: the probes then build it with this function.
        plan: A plan to use instead of making one: the output of `vramline plan --json --limit ...`, as a dict or as the path of a
            file. Its limit must not exceed `limit`.
        probes: The batch sizes to probe.
        keep: A folder to keep the probes in. Later calls with the same model use them again.
        confirm: Number of runs under the limit that the micro-batch has to pass before the training; 0 to predict only. On a GPU nothing
            is run: there is no room for a second process with the same limit.
        **fit_arguments: Other arguments of `Model.fit`, such as epochs, except steps_per_epoch.

    Returns:
        The History of Keras, with one more attribute: `within`, a `Within`.

    Raises:
        DoesNotFit: If not even a batch of one sample fits the limit, or memory ran out a second time.
        CannotPlan: If the model cannot be rebuilt in another process, or its probes do not allow a plan.
        ValueError: If an argument is invalid, or the plan was made for a higher limit.
        NotImplementedError: On backends other than TensorFlow.
    """
    limit_bytes, batch_size = size_of(limit), samples_of(batch_size)
    _check(model, fit_arguments)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = _split((x, y, sample_weight), validation_split)
    data = tuple(part for part in (x, y, sample_weight) if part is not None)
    if y is None and sample_weight is not None:
        raise ValueError("sample_weight: needs y as well")
    accumulation.Batches(data, batch_size, batch_size, shuffle)  # Raises early if the data is not supported.
    if not model.built:
        import keras

        model(keras.tree.map_structure(lambda array: array[:1], x))
    model.optimizer.build(model.trainable_variables)
    wanted = _Request(model, batch_size, limit_bytes)
    chosen = _chosen(wanted, data, plan, build, probes, keep, fit_arguments.get("class_weight"), _runs(confirm))
    if verbose:
        print(f"vramline: {chosen}", flush=True)

    def train(within: Within) -> Any:
        batches = accumulation.Batches(data, batch_size, within.micro_batch, shuffle)
        with accumulation.Accumulation(model, within.accumulation_steps) as accumulated:
            first = _First(min(within.accumulation_steps, len(batches)))
            hooks = [first.callback(), accumulated.callback(len(batches)), *_flat(callbacks)]
            if record is not None:
                from vramline.callbacks.keras import MemoryCallback

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
                f"memory ran out with a batch of one sample within {size_text(wanted.limit)}"
            ) from error.__cause__
        if verbose:
            print(f"vramline: memory ran out with micro-batches of {chosen.micro_batch}; retrying with {smaller}", flush=True)
        restore()
        chosen = smaller
        try:
            history = train(chosen)
        except _TooLarge as again:
            raise DoesNotFit(
                f"memory ran out again, with the smaller micro-batches of {chosen.micro_batch}\n"
                "hint: the plan does not match this process; pass a smaller limit=, or run `vramline oom` on the log to see what holds the memory"
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
    """Returns the plan of a compiled model at a batch size, without a limit and without accumulation, as `vramline plan --json` prints it."""
    batch = samples_of(batch)
    _check(model, {})
    wanted = _Request(model, batch, 1)
    with tempfile.TemporaryDirectory(prefix="vramline-") as temporary:
        made = Probes(wanted.model, Path(temporary), None, tuple(probes))
        made.save(data, build, None)
        return json.loads(made.plan(1, batch, None).json)


class _TooLarge(Exception):
    """Memory ran out before the first update."""


class _First:
    """Knows whether the first update is done."""

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
    """Returns callbacks as a list. Keras accepts one, several, or its own CallbackList."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return keras.tree.flatten(callbacks) if callbacks else []


class _Peaks:
    """The highest peak of any device from now on, even if others reset the framework's peak meanwhile."""

    def __init__(self) -> None:
        self.highest: int | None = None
        counters.reset_all()

    def note(self) -> None:
        for read in counters.read_all():
            if read.peak is not None:
                self.highest = max(read.peak, self.highest or 0)

    def callback(self) -> Any:
        """Returns a callback to put before every callback that may reset the peak: it reads the peak first, in every hook."""
        import keras

        def note(callback: Any, *_: Any, **__: Any) -> None:
            self.note()

        # These are all hooks that Keras calls during a training.
        loops = ("train", "test", "epoch", "train_batch", "test_batch")
        hooks = {f"on_{loop}_{edge}": note for loop in loops for edge in ("begin", "end")}
        return type("Note", (keras.callbacks.Callback,), hooks)()


def _check(model: Any, fit_arguments: dict[str, Any]) -> None:
    """Raises if `fit_within` cannot train this model with these arguments."""
    import keras

    if not hasattr(keras, "ops"):
        raise NotImplementedError("fit_within needs Keras 3\nhint: pip install 'keras>=3'")
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            f"fit_within needs the TensorFlow backend, found {keras.backend.backend()}\n"
            "hint: for other backends use `vramline plan --batches 5,7,11 --limit 8GiB -- python train.py --batch {batch}`"
        )
    if getattr(model, "optimizer", None) is None:
        raise ValueError("the model is not compiled\nhint: call model.compile(optimizer, loss) first")
    if "steps_per_epoch" in fit_arguments:
        raise ValueError("steps_per_epoch: not supported; fit_within uses all data in every epoch")
    accumulation.Accumulation(model, 1)


class _Request:
    """What to train: a built model with its optimizer, a batch size and a limit."""

    def __init__(self, model: Any, batch: int, limit: int) -> None:
        self.model, self.batch, self.limit = model, batch, limit
        # What this process holds besides the model stays allocated during the training, and no probe holds it.
        own = sum(_rounded(variable.value) for variable in [*model.variables, *model.optimizer.variables])
        held = max((read.current or 0 for read in counters.read_all()), default=0)
        self.others = max(held - own, 0) if held - own >= 1 << 20 else 0
        self.accumulators = sum(_rounded(variable.value) for variable in model.trainable_variables)


def _rounded(value: Any) -> int:
    size = int(math.prod(value.shape)) * value.dtype.size
    return -(-size // _ROUNDING) * _ROUNDING


def _chosen(
    wanted: _Request,
    data: tuple[Any, ...],
    plan: dict[str, Any] | str | os.PathLike[str] | None,
    build: Callable[[], Any] | str | None,
    probes: Sequence[int],
    keep: str | os.PathLike[str] | None,
    class_weight: dict[int, float] | None,
    confirm: int,
) -> Within:
    room = wanted.limit - wanted.others
    if room <= 0:
        raise DoesNotFit(
            f"this process holds {size_text(wanted.others)} besides the model, which uses up the limit of {size_text(wanted.limit)}"
        )
    if plan is not None:
        told = _given(plan, wanted.limit)
        micro, steps = _parts(wanted, told)
        # The plan does not say whether its runs accumulated gradients, or held what this process holds besides the model.
        is_roomy = (told.limit or 0) + (wanted.accumulators if steps > 1 else 0) <= room
        return _within(wanted, told, micro, steps, is_roomy)
    with tempfile.TemporaryDirectory(prefix="vramline-") as temporary:
        folder = Path(temporary)
        made = Probes(wanted.model, folder, Path(keep) if keep is not None else None, tuple(probes))
        made.save(data, build, class_weight)
        confirm = 0 if _has_gpu() else confirm
        told = made.plan(2, wanted.batch, room)
        direct = told.predictions[0]
        if direct.fits is not True:
            # If the whole batch fits, nothing is accumulated, which needs less memory than these probes needed.
            least = direct.minimum or direct.low
            if least - 3 * wanted.accumulators <= room:
                alone = made.plan(1, wanted.batch, room)
                if alone.predictions[0].fits is True:
                    alone = made.plan(1, wanted.batch, room, confirm) if confirm else alone
                    if alone.predictions[0].fits is True:
                        return _within(wanted, alone, wanted.batch, 1)
        micro, steps = (wanted.batch, 1) if direct.fits is True else _parts(wanted, told)
        for tried in range(_TRIES):
            if confirm or steps > 1:
                told = made.plan(2, micro, room, confirm)
            # A smaller one helps only if memory ran out, not if the runs show nothing.
            if not confirm or not _ran_out(told) or micro == 1 or tried + 1 == _TRIES:
                break
            micro, steps = parts_of(wanted.batch, max(micro * 3 // 4, 1))
        return _within(wanted, told, micro, steps)


def _ran_out(plan: _vramline.PlanDocument) -> bool:
    return json.loads(plan.json).get("confirmation", {}).get("failures", 0) > 0


def _has_gpu() -> bool:
    """Whether the model trains on a GPU: there, a run under the whole limit has no room next to this process."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _given(plan: dict[str, Any] | str | os.PathLike[str], limit: int) -> _vramline.PlanDocument:
    """Reads a plan from the user, and checks that it is one of batch sizes for TensorFlow whose limit is not higher."""
    make = f"hint: vramline plan --json --limit {_limit_text(limit)} --batches 5,7,11 -- python train.py --batch {{batch}} > plan.json"
    expected = "plan: expected the output of `vramline plan --json`, found"
    try:
        text = json.dumps(plan) if isinstance(plan, dict) else Path(plan).read_text(encoding="utf-8")
        told = _vramline.PlanDocument(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{expected} {error}\n{make}") from error
    if told.variable != "batch":
        raise ValueError(f"{expected} a plan of {told.variable!r} instead of the batch size\n{make}")
    if told.framework not in (None, "tensorflow"):
        raise ValueError(f"{expected} a plan for {told.framework!r} instead of TensorFlow\n{make}")
    if told.limit is None:
        raise ValueError(f"plan: it was made without a limit, so it does not say what fits\n{make}")
    if told.limit > limit:
        raise ValueError(
            f"plan: it was made for a limit of {size_text(told.limit)} ({told.limit} bytes), but the limit here is "
            f"{size_text(limit)} ({limit} bytes)\n{make}"
        )
    return told


def _limit_text(size: int) -> str:
    """Formats a size for `--limit`, rounded down."""
    return f"{size >> 20}MiB" if size >= 1 << 20 else str(size)


def _parts(wanted: _Request, plan: _vramline.PlanDocument) -> tuple[int, int]:
    # If no batch size is sure to fit, stay well below the largest that is likely to.
    largest = plan.expected or plan.sure or (max(plan.likely * 3 // 4, 1) if plan.likely is not None else None)
    if largest is None:
        doubts = "".join(f"\n  not certain: {text}" for text in plan.doubts)
        raise DoesNotFit(
            f"not even a batch of one sample fits {size_text(wanted.limit)}: {plan.headline}{doubts}\n"
            "hint: use a smaller model, mixed precision or another optimizer; to see what holds the memory, keep the probes "
            "(keep=...) and run `vramline report` on one of them"
        )
    return parts_of(wanted.batch, largest)


def _within(wanted: _Request, plan: _vramline.PlanDocument, micro: int, steps: int, is_known: bool = True) -> Within:
    """Returns the result for a micro-batch. It is not certain unless `is_known` says that the plan is of runs like this one."""
    at = next((each for each in plan.predictions if each.batch == micro), None)

    # By the criterion of the plan; a given plan need not have a prediction for this micro-batch.
    fits = (plan.expected or plan.sure or 0) >= micro if at is None else at.fits is True

    def with_others(size: Callable[[_vramline.PlannedBatch], int | None]) -> int | None:
        told = None if at is None else size(at)
        return None if told is None else told + wanted.others

    return Within(
        batch_size=wanted.batch,
        micro_batch=micro,
        accumulation_steps=steps,
        limit_bytes=wanted.limit,
        accumulator_bytes=wanted.accumulators if steps > 1 else 0,
        predicted_peak_bytes=with_others(lambda at: at.peak),
        predicted_low_bytes=with_others(lambda at: at.low),
        predicted_high_bytes=with_others(lambda at: at.high),
        minimum_bytes=with_others(lambda at: at.minimum),
        certain=is_known and plan.certain and (plan.confirmed == micro or fits),
        confirmed_runs=plan.passes if plan.confirmed == micro else 0,
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
    return _replaced(chosen, stepped_down=True, certain=False, confirmed_runs=0, **changed, **unknown)


def _replaced(within: Within, **changes: Any) -> Within:
    return Within(**{**vars(within), **changes})


def _is_exhausted(error: BaseException) -> bool:
    import tensorflow as tf

    return isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError))


def _split(parts: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Splits off the last rows for validation, before shuffling, as Keras does."""
    import keras

    rows = len(keras.tree.flatten(parts[0])[0])
    at = math.floor(rows * (1.0 - share))
    if not 0 < at < rows:
        raise ValueError(f"validation_split: {share} of {rows} rows leaves no rows for training or none for validation")

    def cut(begin: int, end: int) -> tuple[Any, ...]:
        return tuple(
            None if part is None else keras.tree.map_structure(lambda array: array[begin:end], part) for part in parts
        )

    held_out = cut(at, rows)
    return cut(0, at), held_out if held_out[2] is not None else held_out[:2]


def _validation(data: Any, batch: int) -> Any:
    """Turns arrays into a dataset of batches, so that they are not copied into the pool as a whole."""
    if not isinstance(data, (tuple, list)):
        return data
    return accumulation.Batches(tuple(data), batch, batch, shuffle=False).dataset()
