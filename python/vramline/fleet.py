"""SQL across jobs: a dataset that `vramline export --to dataset` wrote, asked with DuckDB.

    vramline.sql("SELECT script, max(peak_bytes) FROM jobs GROUP BY script", dataset="fleet")
    vramline.questions()                          # the questions that come with Vramline
    vramline.ask("waste", dataset="fleet")

`docs/reference/dataset.md` describes the tables. DuckDB is imported when the first query is made; `vramline.spark` asks the same on Spark.
"""

from __future__ import annotations

import datetime
import glob
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vramline import _vramline

if TYPE_CHECKING:
    import duckdb

MARKER = "vramline-dataset.json"
KIND = "vramline-dataset"


def sql(
    query: str, dataset: str | os.PathLike[str], *, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyRelation:
    """Runs SQL on the tables of a dataset and returns a relation of DuckDB, which has `.fetchall()`, `.df()`, `.arrow()` and `.pl()`.

    Each table is a view of its name, and so are `pool_use`, `later_steps` and `parameters`, which the ready questions use. Nothing is copied:
    DuckDB reads the Parquet files when rows are fetched. With a `connection` of yours, the views are created there, as temporary ones.
    """
    return _asked(query, dataset, connection, [])


def questions() -> dict[str, str]:
    """The questions that come with Vramline: the name of each, and what it asks."""
    return {name: title for name, title, _ in _vramline.dataset_queries()[1]}


def ask(
    question: str,
    dataset: str | os.PathLike[str],
    *,
    since: str | datetime.date | None = None,
    batch_factor: float | None = None,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> duckdb.DuckDBPyRelation:
    """Asks one of `questions()` of a dataset and returns a relation of DuckDB, as `sql` does.

    `since` is the first day that counts as new in "regressions". `batch_factor` is how much larger the batch is in "larger_batch".
    """
    return _asked(question_sql(question), dataset, connection, parameters(since, batch_factor))


def question_sql(question: str) -> str:
    """The SQL of one of `questions()`."""
    for name, _, text in _vramline.dataset_queries()[1]:
        if name == question:
            return text
    known = ", ".join(questions())
    raise ValueError(f"there is no question {question!r}\nhint: the questions are {known}")


def parameters(since: str | datetime.date | None, batch_factor: float | None) -> list[str]:
    """The statement that replaces the numbers that questions use; none if all keep their values."""
    if since is None and batch_factor is None:
        return []
    day = "2000-01-01" if since is None else str(since)
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        raise ValueError(f"since is {since!r}\nhint: give a day, such as 2026-11-01") from None
    factor = 2.0 if batch_factor is None else float(batch_factor)
    if not 0 < factor < 1e9:
        raise ValueError(f"batch_factor is {batch_factor!r}\nhint: give a positive number, such as 2")
    return [f"CREATE OR REPLACE TEMPORARY VIEW parameters AS SELECT DATE '{day}' AS since, CAST({factor!r} AS DOUBLE) AS batch_factor"]


def view_statements() -> list[str]:
    """The statements that create the views that questions use, in order."""
    # A comment may contain a semicolon.
    text = re.sub(r"--[^\n]*", "", _vramline.dataset_queries()[0])
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def checked(dataset: str | os.PathLike[str]) -> Path:
    """The folder of a dataset that this version can read."""
    folder = Path(dataset)
    try:
        marker = json.loads((folder / MARKER).read_text())
        kind, schema = marker["kind"], int(marker["schema"])
    except FileNotFoundError:
        raise FileNotFoundError(
            f"'{folder}' is not a dataset: it has no {MARKER}\nhint: make one with: vramline export runs/*.vram --to dataset {folder}"
        ) from None
    except (ValueError, KeyError, TypeError):
        kind, schema = "", 0
    if kind != KIND:
        raise ValueError(f"'{folder / MARKER}' is not the marker of a dataset\nhint: give the folder that vramline export wrote")
    known = _vramline.dataset_schema()[0]
    if schema > known:
        raise ValueError(f"'{folder}' has schema {schema}, but this version of Vramline reads schemas up to {known}\nhint: pip install -U vramline")
    return folder


def _asked(
    query: str, dataset: str | os.PathLike[str], connection: duckdb.DuckDBPyConnection | None, replaced: list[str]
) -> duckdb.DuckDBPyRelation:
    folder = checked(dataset)
    try:
        import duckdb
    except ImportError:
        raise ImportError("DuckDB is not installed\nhint: pip install duckdb") from None
    if connection is None:
        made = duckdb.connect()
        # It would be printed into whatever the program writes.
        made.execute("SET enable_progress_bar = false")
    else:
        made = connection
    for statement in _statements(query, folder):
        made.execute(statement)
    for statement in replaced:
        made.execute(statement)
    return made.sql(query)


def _statements(query: str, folder: Path) -> list[str]:
    """The statements that create the views of a query. A large dataset has many files, and a view of a table looks at their names."""
    wanted = query
    views: list[str] = []
    for statement in reversed(view_statements()):
        name = statement.split(" AS", 1)[0].split()[-1]
        if _names(name, wanted):
            views.insert(0, statement)
            wanted += statement
    tables = [name for name, _ in _vramline.dataset_schema()[1] if _names(name, wanted)]
    return [_table(name, folder) for name in tables] + views


def _names(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def _table(name: str, folder: Path) -> str:
    # The folder's own name may have signs that mean something in a pattern or in SQL.
    pattern = f"{glob.escape(str(folder))}/job=*/recording=*/host=*/{name}.parquet".replace("'", "''")
    return (
        f"CREATE OR REPLACE TEMPORARY VIEW {name} AS "
        f"SELECT * FROM read_parquet('{pattern}', hive_partitioning = true, hive_types_autocast = false)"
    )
