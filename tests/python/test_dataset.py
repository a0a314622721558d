"""`vramline.sql` and the ready questions: DuckDB reads what `vramline export --to dataset` writes."""

import builtins
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

import vramline

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = [
    "tf221_cpu_keras.vram",
    "jax0112_h200_loop.vram",
    "torch2110_h200_keras.vram",
    "torch2110_h200_near_full.vram",
    "torch2110_h200_resnet50_b64.snapshot.pickle.gz",
    "tf221_cpu_oom.log",
    "torch2110_h200_oom_pieces.log",
]


def load_fleet():
    spec = importlib.util.spec_from_file_location("make_fleet", REPOSITORY / "benches" / "make_fleet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def export(binary, folder, *paths):
    return subprocess.run([binary, "export", *paths, "--to", "dataset", folder], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def dataset(binary, fixtures, tmp_path_factory):
    """A dataset whose folder has a name that means something in SQL and in patterns."""
    folder = tmp_path_factory.mktemp("dataset") / "it's [a] *fleet*"
    export(binary, folder, *(fixtures / source for source in SOURCES), "/no such recording.vram")
    return folder


@pytest.fixture(scope="module")
def fleet(binary, tmp_path_factory):
    """21 recordings made from real ones, with names of jobs, labels and another version here and there."""
    folder = tmp_path_factory.mktemp("fleet")
    load_fleet().make(folder / "runs", 21)
    export(binary, folder / "dataset", folder / "runs")
    return folder / "dataset"


def test_holders_add_up_to_their_pools(dataset):
    query = """
        SELECT p.pool, p.in_use_bytes, CAST(sum(h.bytes) AS BIGINT)
        FROM pools p JOIN peaks h USING (job, recording, host, pool_number) GROUP BY ALL
    """
    rows = vramline.sql(query, dataset).fetchall()
    assert len(rows) >= 4
    for pool, in_use, held in rows:
        assert in_use == held, pool


def test_the_tables_say_what_the_reports_say(dataset, vramline, fixtures):
    import vramline as package

    for source in ["tf221_cpu_keras.vram", "torch2110_h200_keras.vram"]:
        report = vramline(fixtures / source)
        path = str(fixtures / source).replace("'", "''")
        job = package.sql(f"SELECT * FROM jobs WHERE source = '{path}'", dataset).df().iloc[0]
        assert (job.verdict, job.headline) == (report["verdict"]["word"], report["headline"])
        assert job.peak_bytes == report["verdict"]["peak_bytes"]
        assert job.script == next(word for word in report["run"]["command"] if word.endswith(".py"))
        steps = package.sql(f"SELECT * FROM steps WHERE recording = '{job.recording}'", dataset).df()
        assert steps.step.tolist() == [step["step"] for step in report["steps"]]
        lines = package.sql(f"SELECT * FROM ledger WHERE recording = '{job.recording}' ORDER BY line_number", dataset).fetchall()
        assert len(lines) == len(report["ledger"])


def test_every_line_of_a_ledger_is_the_sum_of_its_parts(dataset):
    query = """
        SELECT whole.line, whole.bytes, CAST(sum(part.bytes) AS BIGINT) FROM ledger part
        JOIN ledger whole ON part.recording = whole.recording AND part.part_of = whole.line_number
        GROUP BY ALL HAVING count(part.bytes) = count(*) AND whole.bytes IS NOT NULL
    """
    rows = vramline.sql(query, dataset).fetchall()
    assert len(rows) >= 10
    assert all(whole == parts for _, whole, parts in rows), rows


def test_what_cannot_be_read_is_a_row(dataset):
    assert vramline.sql("SELECT source, code FROM errors", dataset).fetchall() == [("/no such recording.vram", "unreadable")]


def test_every_question_has_an_answer(dataset, fleet):
    questions = vramline.questions()
    assert len(questions) == 12
    rows = {name: len(vramline.ask(name, dataset)) + len(vramline.ask(name, fleet)) for name in questions}
    # No job of these leaks, and nothing regresses since the year 2000.
    assert {name for name, count in rows.items() if not count} <= {"growth", "regressions"}
    assert all(title.endswith("?") or "estimate" in title for title in questions.values())


def test_questions_take_numbers(fleet):
    twice = vramline.ask("larger_batch", fleet).df().set_index(["recording", "pool_number"])
    thrice = vramline.ask("larger_batch", fleet, batch_factor=3).df().set_index(["recording", "pool_number"])
    assert (thrice.would_need_bytes - thrice.in_use_bytes == 2 * thrice.batch_bytes).all()
    assert (twice.would_need_bytes - twice.in_use_bytes == twice.batch_bytes).all()
    days = [day for (day,) in vramline.sql("SELECT started_on FROM jobs ORDER BY started_on", fleet).fetchall()]
    grown = vramline.ask("regressions", fleet, since=days[len(days) // 2]).fetchall()
    assert len(grown) >= 1
    for *_, before, since, growth in grown:
        assert since > before and growth == since - before


def test_names_of_jobs_and_labels_are_columns(fleet):
    jobs = vramline.sql("SELECT job, job_id, attempt, commit, count(*) OVER (PARTITION BY job) AS recordings FROM jobs", fleet).df()
    assert (jobs.job == jobs.job_id).all() and set(jobs.attempt) == {0, 1} and jobs.commit.str.len().eq(7).all()
    assert sorted(set(jobs.recordings)) == [1, 2]
    assert len(vramline.sql("SELECT * FROM labels WHERE name = 'team'", fleet)) == len(jobs)


def test_a_connection_of_ones_own(fleet):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE owners AS SELECT 'team-1' AS team, 'Ada' AS person")
    query = "SELECT person FROM labels JOIN owners ON value = team WHERE name = 'team'"
    assert set(vramline.sql(query, fleet, connection=connection).fetchall()) == {("Ada",)}
    # The views are there afterwards, and nowhere else.
    assert connection.execute("SELECT count(*) FROM labels").fetchall()[0][0] > 0


def test_bad_input_is_explained(dataset, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="hint: make one with: vramline export"):
        vramline.sql("SELECT 1", tmp_path)
    with pytest.raises(ValueError, match="hint: the questions are waste"):
        vramline.ask("no such", dataset)
    with pytest.raises(ValueError, match="hint: give a day"):
        vramline.ask("regressions", dataset, since="'; DROP TABLE jobs")
    with pytest.raises(ValueError, match="hint: give a positive number"):
        vramline.ask("larger_batch", dataset, batch_factor=float("nan"))
    (tmp_path / "vramline-dataset.json").write_text(json.dumps({"kind": "vramline-dataset", "schema": 99}))
    with pytest.raises(ValueError, match=r"schema 99[\s\S]*hint: pip install -U vramline"):
        vramline.sql("SELECT 1", tmp_path)
    real = builtins.__import__

    def without_duckdb(name, *arguments, **options):
        if name == "duckdb":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_duckdb)
    with pytest.raises(ImportError, match="hint: pip install duckdb"):
        vramline.sql("SELECT 1", dataset)


def test_importing_vramline_imports_no_engine():
    code = "import sys, vramline, vramline.spark; assert not {'duckdb', 'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_the_questions_are_files_of_the_package():
    folder = Path(vramline.__file__).parent / "queries"
    if not folder.exists():
        pytest.skip("the package is not installed")
    assert {path.stem for path in folder.glob("*.sql")} == {*vramline.questions(), "views"}


def test_a_killed_export_leaves_nothing_half(binary, tmp_path):
    runs = tmp_path / "runs"
    load_fleet().make(runs, 60)
    folder = tmp_path / "fleet"
    # The signal comes at another place each time.
    for pause in (0.02, 0.05, 0.1, 0.2):
        export_process = subprocess.Popen([binary, "export", runs, "--to", "dataset", folder], stdout=subprocess.DEVNULL)
        time.sleep(pause)
        export_process.send_signal(signal.SIGKILL)
        export_process.wait()
        if (folder / "job=_schema").exists():
            query = "SELECT count(*), count(DISTINCT recording), (SELECT count(DISTINCT recording) FROM processes) FROM jobs"
            rows, recordings, with_processes = vramline.sql(query, folder).fetchall()[0]
            assert rows == recordings == with_processes <= 60
    export(binary, folder, runs)
    assert vramline.sql("SELECT count(*) FROM jobs", folder).fetchall() == [(60,)]
    assert not list((folder / ".writing").iterdir())
    shutil.rmtree(runs)
