"""`vramline.log_report`: attaches the report on a recording to a run of MLflow or Weights & Biases.

Figures of a training reach these trackers through the loggers of Keras, Hugging Face's `Trainer` and Lightning. This adds the page and
the verdict.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

from vramline import command
from vramline.recording import recorder, session

# The longest value of a tag that every version of MLflow accepts.
_MOST_TAG = 5000
_NAME = "vramline"


def log_report(run: Any = None, recording: str | os.PathLike[str] | None = None, redact: bool = False) -> str:
    """Attaches the report on a recording to a run of an experiment tracker.

        trainer.train()
        vramline.log_report()

    An MLflow run gets the artifacts `vramline/report.html` and `vramline/report.txt` and the tag `vramline.verdict`. A Weights & Biases
    run gets the panel `vramline/report` with the page, and `vramline/verdict` in its summary.

    Args:
        run: A run of MLflow or its ID, a run of Weights & Biases, or one of Lightning's loggers for them. By default, every run that is
            active in this program; of MLflow, also the last one if it has ended.
        recording: The recording, or any other file that `vramline report` reads. By default, what this program records or has recorded.
        redact: Replace private texts with placeholders: command lines, paths, host names, layers, source lines.

    Returns:
        The verdict, which is the first sentence of the report.

    Raises:
        ValueError: If there is no run or no recording.
        RuntimeError: If the report cannot be made.
    """
    trackers = [_tracker(run)] if run is not None else _active()
    if not trackers:
        raise ValueError("run: no run of MLflow or Weights & Biases is active\nhint: pass it: vramline.log_report(run)")
    with tempfile.TemporaryDirectory(prefix="vramline-") as folder:
        report = _Report(_recording(recording), pathlib.Path(folder), redact)
        for tracker in trackers:
            tracker.attach(report)
    return report.verdict


def _recording(given: str | os.PathLike[str] | None) -> pathlib.Path:
    if given is not None:
        return pathlib.Path(given)
    attached = recorder.attached()
    found = attached.folder if attached is not None else session.latest()
    if found is None:
        raise ValueError(
            "recording: this program has recorded nothing\n"
            "hint: pass the path of a recording, or record with MemoryCallback(record='run.vram'), vramline.record or vramline run"
        )
    return found


class _Report:
    """A report: a page, a text and the verdict."""

    def __init__(self, path: pathlib.Path, folder: pathlib.Path, redact: bool) -> None:
        options = ["--redact"] if redact else []
        self.page = folder / "report.html"
        self.verdict = str(json.loads(command.output("report", "--json", *options, path))["headline"])
        self.text = command.output("report", "--color", "never", *options, path)
        command.output("report", "--html", self.page, *options, path)


class _MLflow:
    """A run of MLflow, by its ID."""

    def __init__(self, run_id: str, client: Any = None) -> None:
        import mlflow

        self._run_id, self._client = run_id, client or mlflow.MlflowClient()

    def attach(self, report: _Report) -> None:
        self._client.log_artifact(self._run_id, str(report.page), _NAME)
        self._client.log_text(self._run_id, report.text, f"{_NAME}/report.txt")
        self._client.set_tag(self._run_id, f"{_NAME}.verdict", report.verdict[:_MOST_TAG])


class _Wandb:
    """A run of Weights & Biases."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def attach(self, report: _Report) -> None:
        import wandb

        # Not committed: a new step would shift those of the program. It is sent with the next one, or when the run ends.
        self._run.log({f"{_NAME}/report": wandb.Html(report.page.read_text(encoding="utf-8"), inject=False)}, commit=False)
        self._run.summary[f"{_NAME}/verdict"] = report.verdict


def _tracker(run: Any) -> _MLflow | _Wandb:
    """Returns what attaches to a run, by what it has: the packages may not be imported yet."""
    if isinstance(run, str):
        return _MLflow(run)
    if isinstance(getattr(getattr(run, "info", None), "run_id", None), str):
        return _MLflow(run.info.run_id)
    if isinstance(getattr(run, "run_id", None), str) and hasattr(run, "experiment"):
        # Lightning's `MLFlowLogger`, whose client knows where its runs are.
        return _MLflow(run.run_id, run.experiment)
    # Lightning's `WandbLogger` has its run there.
    inner = getattr(run, "experiment", run)
    if hasattr(inner, "log") and hasattr(inner, "summary"):
        return _Wandb(inner)
    raise ValueError(
        f"run: expected a run of MLflow or its ID, or a run of Weights & Biases, found {type(run).__name__}\n"
        "hint: vramline.log_report() uses the active run"
    )


def _active() -> list[_MLflow | _Wandb]:
    """Returns the active runs of the trackers that the program has imported."""
    found: list[_MLflow | _Wandb] = []
    mlflow, wandb = sys.modules.get("mlflow"), sys.modules.get("wandb")
    if mlflow is not None:
        run = mlflow.active_run() or mlflow.last_active_run()
        if run is not None:
            found.append(_MLflow(run.info.run_id))
    if wandb is not None and getattr(wandb, "run", None) is not None:
        found.append(_Wandb(wandb.run))
    return found
