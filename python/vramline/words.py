"""The closed sets of words in recordings, as types.

The Rust core declares them. A test compares these types with `_vramline.MARK_KINDS` and the other tuples there.
"""

from __future__ import annotations

from typing import Literal

MarkKind = Literal["step", "call", "epoch", "phase", "mark", "trace", "retrace", "setting", "exception", "end"]
"""The kind of an event in a recording."""

Phase = Literal["train", "validation", "predict", "other"]
"""What a step was part of."""

How = Literal["keras", "trainer", "api", "trace", "inferred"]
"""How Vramline learned of a step: from Keras, from a trainer of PyTorch, from `rec.step`, from a trace, or inferred from calls of the framework."""

Role = Literal["parameters", "gradients", "optimizer", "activations", "inputs", "state", "temporaries", "unknown"]
"""The role of a variable or a block."""

WindowReason = Literal["start", "fit", "validation", "predict", "retrace", "rise", "program", "oom", "request"]
"""Why a trace was started.

`start`: with the process. `rise`: the peak of the process had risen. `program`: the program started its own profiler. `oom`: an
allocation failed. `request`: `vramline snapshot` asked for it. The others: the program began to fit, validate, predict, or traced a function again.
"""

TraceState = Literal["begun", "stopped", "written", "failed", "lost"]
"""The state of a trace. `failed`: it could not start. `lost`: it could not be written."""

LimitSetter = Literal["built-in", "environment", "run", "logical-device", "framework"]
"""Who set the limit of a pool.

`built-in`: TensorFlow's default for its CPU pool. `environment`: an environment variable. `run`: `vramline run --limit`.
`logical-device`: the program, with a logical device. `framework`: the framework reports a limit, and not who set it.
"""
