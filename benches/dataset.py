"""How a dataset grows: time and memory to export recordings, size on disk, and the time of each question on DuckDB.

    python benches/dataset.py [--counts 1000,10000] [--write docs/proof/dataset.md]

The recordings are made from the real ones of `fixtures/` with varied sizes (`benches/make_fleet.py`). The export runs once into a new folder, then one more
recording is added. Each question runs in a process of its own, with the time to open the dataset; the operating system has the files in its cache.
"""

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from make_fleet import make

import vramline
from vramline.command import path as vramline_path

PAGE = """# How a dataset grows

`make proof` writes this page with `benches/dataset.py`, which describes the method.

{machine}

| recordings, made from the real ones of `fixtures/` | {counts} | ratio |
|---|{rule}---|
{rows}

{questions}
| question on DuckDB, time with opening the dataset | {counts} | ratio |
|---|{rule}---|
{answers}
"""


def measured(count, folder):
    """The figures of an export of `count` recordings, by name, and the seconds of each question."""
    runs, dataset = folder / "runs", folder / "dataset"
    paths = make(runs, count + 1)
    command = [vramline_path(), "export", "--to", "dataset", "-o", str(dataset)]
    begin = time.monotonic()
    child = subprocess.Popen([*command, *map(str, paths[:count])], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"error: the export of {count} recordings failed")
    seconds = time.monotonic() - begin
    files = [path.stat() for path in dataset.rglob("*.parquet")]
    figures = {
        "export, s": seconds,
        "of that processor time, s": used.ru_utime + used.ru_stime,
        "peak resident, MB": used.ru_maxrss * 1024 / 1e6,
        "size of the files, MB": sum(file.st_size for file in files) / 1e6,
        "size on disk, MB": sum(file.st_blocks * 512 for file in files) / 1e6,
        "files": len(files),
    }
    begin = time.monotonic()
    subprocess.run([*command, str(paths[count])], check=True, stdout=subprocess.DEVNULL)
    figures["adding one more recording, s"] = time.monotonic() - begin
    return figures, {name: answered(name, dataset) for name in vramline.questions()}


def answered(question, dataset):
    """Seconds and rows of a question, in a new process."""
    code = (
        "import sys, time, vramline, duckdb; begin = time.monotonic();"
        "rows = len(vramline.ask(sys.argv[1], sys.argv[2]).fetchall()); print(time.monotonic() - begin, rows)"
    )
    done = subprocess.run([sys.executable, "-c", code, question, dataset], check=True, capture_output=True, text=True)
    seconds, _ = done.stdout.splitlines()[-1].split()
    return float(seconds)


def shown(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def table(columns):
    """Rows of a table: the name, a figure for each count, and how the last relates to the first."""
    rows = []
    for name in columns[0]:
        figures = [column[name] for column in columns]
        rows.append(f"| {name} | {' | '.join(map(shown, figures))} | {figures[-1] / figures[0]:.2g} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="1000,10000")
    parser.add_argument("--folder", type=Path, help="where recordings and datasets lie meanwhile")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.counts.split(",")]
    figures, questions = [], []
    for count in counts:
        folder = Path(tempfile.mkdtemp(prefix="vramline-dataset-", dir=arguments.folder))
        try:
            exported, asked = measured(count, folder)
        finally:
            shutil.rmtree(folder)
        figures.append(exported)
        questions.append({f"`{name}`": seconds for name, seconds in asked.items()})
        print(count, exported, asked, flush=True)
    loaded = f"{os.getloadavg()[0]:.0f}"
    page = PAGE.format(
        machine=f"Vramline {vramline.__version__}, DuckDB {duckdb.__version__}; {os.cpu_count()} cores, {platform.machine()}, Linux "
        f"{platform.release().split('-')[0]}, load average {loaded}; {datetime.date.today()}",
        counts=" | ".join(f"{count:,}" for count in counts),
        rule="---|" * len(counts),
        rows=table(figures),
        questions="DuckDB opens each file of the tables that a question needs. With small files that is most of the time.\n",
        answers=table(questions),
    )
    if arguments.write:
        arguments.write.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
