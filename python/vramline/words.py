"""The words of recordings, as types. The core declares them; a test holds these lists against `_vramline.MARK_KINDS` and its like."""

from __future__ import annotations

from typing import Literal

MarkKind = Literal["step", "call", "epoch", "phase", "mark", "trace", "retrace", "setting", "exception", "end"]
"""What a mark is about."""

Phase = Literal["train", "validation", "predict", "other"]
"""What a step did."""

How = Literal["keras", "api", "trace", "inferred"]
"""Who told of a step."""

Role = Literal["parameters", "gradients", "optimizer", "activations", "inputs", "state", "temporaries", "unknown"]
"""What a variable is for."""

WindowReason = Literal["start", "fit", "validation", "predict", "retrace", "rise", "program"]
"""Why a trace was begun: `start` with the process, `rise` because the peak of the process had risen, `program` by the program itself."""

TraceState = Literal["begun", "stopped", "written", "failed", "lost"]
"""What became of the trace: `failed` could not begin, `lost` could not be written."""

LimitSetter = Literal["built-in", "environment", "run", "logical-device", "framework"]
"""Who set a pool's limit: TensorFlow's default for its pool on the CPU, a variable, `vramline run --limit`, a logical device of the program, or
the framework in another way."""
