"""What a report says of the peak of a job of `kinds.py`, against what the model's own objects say."""

from collections import Counter
from typing import NamedTuple

# Parts of a program that are no layer.
PARTS = {"input data", "loss"}
# A step of the program's own is told by its line.
LINE = "kinds.py:"


def rows_of(pool, *roles):
    return [row for row in pool["at_peak"]["rows"] if row["role"] in roles]


def by_layer(rows):
    sizes = Counter()
    for row in rows:
        sizes[row["layer"]] += row["bytes"]
    return sizes


def requested(pool):
    return pool["at_peak"]["named_bytes"] + pool["at_peak"]["unnamed_bytes"]


def has_layer(told, row):
    """Whether a row's layer is one of the model's, a part of the program that is none, or a line of it."""
    return row["layer"] in {*told["layers"], *PARTS} or row["layer"].startswith(LINE)


def has_such_tensors(told, row):
    """Whether the layer of a row of activations or gradients takes, gives, or has as a weight what is as large."""
    each, layer = row["bytes"] // row["count"], row["layer"]
    # A gradient that runs without a graph is told by its line: it may be of any layer.
    inside = [
        path
        for path in told["passed"]
        if path == layer or path.startswith(layer + "/") or layer.startswith(LINE) or layer in (told["model"], "loss")
    ]
    sizes = {size for path in inside for size in told["passed"][path]}
    # A gradient of a layer's weights is no larger than these.
    return each in sizes or each <= sum(told["own"].get(path, 0) for path in inside)


def agreed(found, true):
    """Bytes by layer that are in both."""
    return sum(min(size, true.get(layer, 0)) for layer, size in found.items())


class Shares(NamedTuple):
    """Shares of the requested bytes at the peak."""

    layer: float
    right_layer: float
    right_role: float


def shares(told, pool):
    """How much has a layer, how much the right one, and how much the right role.

    Parameters and slots are right as far as the layer has that many bytes of them; activations and gradients where the layer has tensors of
    their size; other bytes where their layer is there at all. A role is wrong where it is not known, where a layer has fewer
    parameters or slots than that, and where some of its parameters have another role.
    """
    whole = requested(pool)
    rows = pool["at_peak"]["rows"]
    parameters, slots = by_layer(rows_of(pool, "parameters")), by_layer(rows_of(pool, "optimizer"))
    variables = agreed(parameters, told["own"]) + agreed(slots, told["slots"])
    flows = sum(row["bytes"] for row in rows_of(pool, "activations", "gradients") if has_layer(told, row) and has_such_tensors(told, row))
    others = sum(row["bytes"] for row in rows_of(pool, "inputs", "state", "temporaries") if has_layer(told, row))
    # Counters and rates of an optimizer have no layer.
    surplus = parameters.total() + slots.total() - slots.get("", 0) - variables
    missing = sum(told["own"].values()) - agreed(parameters, told["own"])
    wrong = pool["at_peak"]["by_role"]["unknown"] + surplus + missing
    return Shares(
        layer=sum(row["bytes"] for row in rows if has_layer(told, row)) / whole,
        right_layer=(variables + flows + others) / whole,
        right_role=1 - wrong / whole,
    )
