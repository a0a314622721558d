"""Gradient accumulation: data in micro-batches, and an optimizer that updates the weights after the last one of a batch.

Keras 3 can accumulate gradients (`gradient_accumulation_steps`), but differs from training on whole batches in three points, which
this module corrects during the training:

- Keras passes the number of micro-batches to a learning-rate schedule. Here the schedule gets the number of updates.
- If an epoch ends in the middle of a batch, Keras adds the rest to the first batch of the next epoch. Here it is applied at the end
  of the epoch.
- Keras counts micro-batches in `iterations`. After the training it counts updates again.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

Arrays = Any
"""An array, or dicts, lists and tuples of arrays, all with one row per sample."""


# By optimizer: the variables that accumulators were made for, and the accumulators. They are reused, because TensorFlow never frees
# a compiled step with branches, nor what it refers to: new accumulators for every training would add up.
_made: weakref.WeakKeyDictionary[Any, tuple[list[int], list[Any]]] = weakref.WeakKeyDictionary()


class Batches:
    """Arrays in batches, each divided into parts of at most `micro` rows. The sizes of the parts differ by at most one row.

    The framework gets one part at a time, and the arrays stay in host memory. With `shuffle`, every pass has a new order.
    """

    def __init__(self, arrays: tuple[Arrays, ...], batch: int, micro: int, shuffle: bool) -> None:
        import keras

        self._structure = arrays
        self._arrays = [_array(array) for array in keras.tree.flatten(arrays)]
        rows = {len(array) for array in self._arrays}
        if len(rows) != 1:
            raise ValueError(f"the arrays have different numbers of rows: {sorted(rows)}")
        self.rows = rows.pop()
        self.batch, self.micro, self._shuffle = batch, micro, shuffle

    def __len__(self) -> int:
        """The number of parts in a pass over the data."""
        return sum(1 for _ in self._parts())

    def _parts(self) -> Iterator[tuple[int, int]]:
        for begin in range(0, self.rows, self.batch):
            rows = min(self.batch, self.rows - begin)
            count = math.ceil(rows / self.micro)
            for part in range(count):
                yield begin + part * rows // count, begin + (part + 1) * rows // count

    def _pass(self) -> Iterator[Any]:
        import keras
        import numpy as np

        order = np.arange(self.rows)
        if self._shuffle:
            # The global generator, which `keras.utils.set_random_seed` seeds.
            np.random.shuffle(order)
        for begin, end in self._parts():
            rows = order[begin:end]
            taken = [_narrowed(array[rows], keras.config.floatx()) for array in self._arrays]
            yield keras.tree.pack_sequence_as(self._structure, taken)

    def dataset(self) -> Any:
        """Returns a `tf.data.Dataset` of the parts."""
        import keras
        import tensorflow as tf

        def spec(array: Any) -> Any:
            dtype = _narrowed(array[:0], keras.config.floatx()).dtype
            return tf.TensorSpec((None, *array.shape[1:]), dtype)

        signature = keras.tree.pack_sequence_as(self._structure, [spec(array) for array in self._arrays])
        signature = keras.tree.lists_to_tuples(signature)
        data = tf.data.Dataset.from_generator(
            lambda: map(keras.tree.lists_to_tuples, self._pass()), output_signature=signature
        )
        return data.apply(tf.data.experimental.assert_cardinality(len(self))).prefetch(1)


def _array(array: Any) -> Any:
    import numpy as np

    found = type(array).__name__
    array = np.asarray(array)
    if array.ndim == 0 or array.dtype == object:
        raise TypeError(
            f"expected arrays with one row per sample, found {found}\n"
            "hint: fit_within accepts NumPy arrays, tensors and data frames, and dicts, lists and tuples of them"
        )
    return array


def _narrowed(array: Any, floatx: str) -> Any:
    """Converts floating-point numbers to the default float type of Keras, as Keras does."""
    return array.astype(floatx) if array.dtype.kind == "f" and array.dtype != floatx else array


def inner(optimizer: Any) -> Any:
    """Returns the optimizer that updates the weights; a loss-scaling optimizer wraps it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


class Accumulation:
    """A context in which the optimizer of a model applies the mean of the gradients of `steps` micro-batches.

    The optimizer must be built. After the context it is as before.

    Raises:
        ValueError: If the optimizer already accumulates, or averages weights (`use_ema`), which Keras does at every micro-batch.
    """

    def __init__(self, model: Any, steps: int) -> None:
        self._model, self.steps = model, steps
        self._optimizer = inner(model.optimizer)
        if self._optimizer.gradient_accumulation_steps:
            raise ValueError(
                "the optimizer already accumulates gradients\n"
                "hint: remove gradient_accumulation_steps; fit_within chooses it"
            )
        if self._optimizer.use_ema and steps > 1:
            raise ValueError(
                "the optimizer averages weights (use_ema), which Keras does at every micro-batch instead of every update\n"
                "hint: remove use_ema, or choose a batch_size that fits without accumulation"
            )
        self._rate: Any = None

    def __enter__(self) -> Accumulation:
        if self.steps > 1:
            from keras.optimizers.schedules import LearningRateSchedule

            optimizer = self._optimizer
            _attach(optimizer, self.steps)
            optimizer._iterations.assign(int(optimizer._iterations) * self.steps)
            if isinstance(optimizer._learning_rate, LearningRateSchedule):
                self._rate = optimizer._learning_rate
                optimizer._learning_rate = _by_update(self._rate, self.steps)
            self._model.train_function = None
        return self

    def __exit__(self, *_: object) -> None:
        if self.steps > 1:
            optimizer = self._optimizer
            if self._rate is not None:
                optimizer._learning_rate = self._rate
            updates = int(optimizer._iterations) // self.steps
            _detach(optimizer)
            optimizer._iterations.assign(updates)
            # It was compiled for an optimizer that accumulates.
            self._model.train_function = None

    def flush(self) -> None:
        """Applies the accumulated gradients of an incomplete batch, if there are any."""
        optimizer = self._optimizer
        seen = int(optimizer._iterations) % self.steps if self.steps > 1 else 0
        if not seen:
            return
        variables = optimizer._trainable_variables
        gradients = [gradient / seen for gradient in optimizer._accumulated_gradients]
        gradients = optimizer._clip_gradients(gradients)
        optimizer._apply_weight_decay(variables)
        optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)
        optimizer._backend_reset_gradient_accumulators()
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        optimizer._iterations.assign_add(self.steps - seen)

    def callback(self, parts: int) -> Any:
        """Returns a callback that flushes at the end of an epoch of `parts` micro-batches, before its validation."""
        import keras

        class Flush(keras.callbacks.Callback):
            def on_train_batch_end(callback, batch: int, logs: dict[str, Any] | None = None) -> None:
                if batch + 1 >= parts:
                    self.flush()

        return Flush()


def _by_update(schedule: Any, steps: int) -> Any:
    from keras import ops
    from keras.optimizers.schedules import LearningRateSchedule

    class ByUpdate(LearningRateSchedule):
        """A schedule that gets the number of micro-batches and answers for the number of updates."""

        def __call__(self, step: Any) -> Any:
            return schedule(ops.floor_divide(step, steps))

        def get_config(self) -> dict[str, Any]:
            return schedule.get_config()

    return ByUpdate()


def _attach(optimizer: Any, steps: int) -> None:
    """Adds accumulators to an optimizer, as if it had been built with them.

    Keras places accumulators before the optimizer's other variables, and saved models depend on that order.
    """
    own = (id(optimizer._iterations), id(optimizer._learning_rate))
    before = list(optimizer._variables)
    trained = [id(variable) for variable in optimizer._trainable_variables]
    known, added = _made.get(optimizer, ([], []))
    if known != trained:
        add = optimizer.add_variable_from_reference
        added = [add(variable, name="gradient_accumulator") for variable in optimizer._trainable_variables]
        _made[optimizer] = (trained, added)
    first = [variable for variable in before if id(variable) in own]
    _hold(optimizer, [*first, *added, *(variable for variable in before if id(variable) not in own)], added)
    optimizer.gradient_accumulation_steps = steps
    optimizer._backend_reset_gradient_accumulators()


def _detach(optimizer: Any) -> None:
    gone = {id(variable) for variable in optimizer._accumulated_gradients}
    _hold(optimizer, [variable for variable in optimizer._variables if id(variable) not in gone], [])
    optimizer.gradient_accumulation_steps = None


def _hold(optimizer: Any, variables: list[Any], accumulators: list[Any]) -> None:
    """Replaces the lists of variables of an optimizer.

    Lists that change in place would keep their former content, and TensorFlow could not save them in a checkpoint.
    """
    from keras.src.utils.tracking import DotNotTrackScope

    tracker = optimizer._tracker
    kind, _ = tracker.config["variables"]
    # As in the optimizer's own code: a tracked list would add the variables to the tracker again.
    with DotNotTrackScope():
        optimizer._variables = variables
        optimizer._accumulated_gradients = accumulators
    tracker.config["variables"] = (kind, optimizer._variables)
    tracker.stored_ids["variables"] = {id(variable) for variable in variables}


def state(model: Any) -> Callable[[], None]:
    """Copies the values of a model and its built optimizer to host memory. Returns a function that restores them."""
    held = [(variable, variable.numpy()) for variable in model.variables]
    held += [(variable, variable.numpy()) for variable in model.optimizer.variables]

    def restore() -> None:
        for variable, value in held:
            variable.assign(value)

    return restore
