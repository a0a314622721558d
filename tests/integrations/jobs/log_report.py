"""Attaches the report on a recording to a run of MLflow and one of Weights & Biases, without training anything.

python log_report.py FOLDER yes|no

The last argument says whether private texts are replaced. The path of the recording is in the file `recording`, because Weights & Biases
keeps the command line. Writes facts to `facts.json`.
"""

import json
import pathlib
import sys

import mlflow
import wandb

import vramline

folder, redacts = sys.argv[1:]
recording = pathlib.Path(folder, "recording").read_text()
online = wandb.init(project="vramline", mode="offline", dir=folder)
with mlflow.start_run() as run:
    verdicts = [vramline.log_report(each, recording, redact=redacts == "yes") for each in (run, online)]
online.finish()
pathlib.Path(folder, "facts.json").write_text(json.dumps({"run": run.info.run_id, "verdicts": verdicts}))
