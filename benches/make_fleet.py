"""Makes many recordings from the real ones of `fixtures/`, with varied sizes, for measurements and tests of datasets.

    python benches/make_fleet.py FOLDER --count 1000

Each is one of the real recordings under another name, host, time and job. Its counters are scaled and some of its last steps are dropped, in 32 ways for
each real recording. Files that do not differ are linked, not copied: traces, and streams of the same way. A tenth of the jobs has two recordings, a tenth
runs in a later version of the framework.
"""

import argparse
import json
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SCALED = ("current_bytes", "peak_bytes", "pool_bytes", "limit_bytes")
DAY = 86_400_000_000_000
WAYS = 32


def make(folder, count, seed=1, broken=0):
    """Makes recordings in a folder and returns their paths. The last `broken` of them cannot be read."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    originals = sorted(path for path in FIXTURES.glob("*.vram") if (path / "run.json").exists())
    varied = random.Random(seed)
    paths = [folder / f"job-{number:05}.vram" for number in range(count)]
    streams = {}
    for number, path in enumerate(paths):
        vary(originals[number % len(originals)], path, number, varied, streams)
        if number >= count - broken:
            manifest = path / "run.json"
            manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": 99}))
    return paths


def vary(original, path, number, varied, streams):
    """Makes one recording from another. `streams` has those that were made before."""
    path.mkdir()
    host, pid = f"node-{varied.randrange(40):02}", 1000 + number
    own = next(original.glob("process-*.json")).stem.removeprefix("process-")
    name = f"{host}-{pid}-{number}"
    way = varied.randrange(WAYS)
    for entry in sorted(original.iterdir()):
        target = path / entry.name.replace(own, name)
        if entry.is_dir():
            shutil.copytree(entry, target, copy_function=link)
        elif entry.suffix == ".arrows" and entry.name.startswith(("marks-", "samples-")):
            made = streams.setdefault((entry, way), target)
            if made == target:
                stream(entry, target, 0.3 + 0.7 * way / WAYS, 0.5 + 0.5 * (way * 7 % WAYS) / WAYS)
            else:
                link(made, target)
        elif entry.suffix == ".json":
            document = json.loads(entry.read_text())
            change(document, host, pid, number, varied)
            target.write_text(json.dumps(document))
        else:
            link(entry, target)


def change(document, host, pid, number, varied):
    """Gives the manifest of a run, or of a process, another host, time and job."""
    document["host"] = host
    document["parent_pid" if document["kind"] == "vramline-recording" else "pid"] = pid
    if document["kind"] == "vramline-recording":
        for clock in filter(None, document["clocks"].values()):
            clock["realtime_ns"] += number % 60 * DAY + number
        # Every tenth job is started twice.
        job = number - 1 if number % 10 == 1 else number
        labels = {"commit": f"{varied.randrange(16**7):07x}", "team": f"team-{number % 7}"}
        document["identity"] = {"job": str(100_000 + job), "attempt": number - job, "labels": labels}
    elif number % 10 == 2:
        document["frameworks"] = {name: version + ".post1" for name, version in document["frameworks"].items()}


def stream(original, target, scale, kept):
    """Scales the counters of a stream, and drops the last steps."""
    table = pa.ipc.open_stream(original).read_all()
    for name in SCALED:
        if name in table.column_names:
            scaled = [None if value is None else int(value * scale) for value in table[name].to_pylist()]
            table = table.set_column(table.column_names.index(name), table.schema.field(name), pa.array(scaled, pa.int64()))
    if "kind" in table.column_names:
        kinds = table["kind"].to_pylist()
        steps = [place for place, kind in enumerate(kinds) if kind == "step"]
        dropped = set(steps[max(1, round(len(steps) * kept)) :])
        table = table.take([place for place in range(len(kinds)) if place not in dropped])
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def link(original, target):
    """Links a file, or copies it to another file system."""
    try:
        os.link(original, target)
    except OSError:
        shutil.copyfile(original, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--broken", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.folder, arguments.count, broken=arguments.broken)
