"""SQL across jobs on Apache Spark: the same tables and questions as `vramline.sql`, read and written by many machines.

    tables = vramline.spark.read(spark, glob.glob("/shared/runs/*.vram"))
    tables.register()
    vramline.spark.ask(spark, "waste").show()

    vramline.spark.write(spark, paths, "/shared/fleet")     # the dataset of `vramline export --to dataset`
    vramline.spark.open(spark, "/shared/fleet").register()

Each worker reads its share of the paths with this package, which must be installed there, in a Python with PyArrow. Paths must mean the same
on every worker. Vramline distributes nothing itself: Spark does. PySpark is imported by the functions, not by this module.
"""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vramline import _vramline, command
from vramline.fleet import checked, parameters, question_sql, view_statements

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

# Arguments of one command; the kernel's limit is on their length.
PATHS_PER_COMMAND = 200
# Recordings differ in size: several tasks for each core keep all of them busy to the end.
TASKS_PER_CORE = 4

SPARK_TYPES = {"int64": "bigint", "double": "double", "bool": "boolean", "text": "string", "date": "date"}


class Tables(Mapping[str, "DataFrame"]):
    """The tables of a dataset as data frames of Spark, by their names."""

    def __init__(self, spark: SparkSession, frames: dict[str, DataFrame]) -> None:
        self._spark = spark
        self._frames = frames

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def register(self) -> Tables:
        """Creates a temporary view for each table, and the views that the ready questions use. Returns the tables."""
        for name, frame in self._frames.items():
            frame.createOrReplaceTempView(name)
        for statement in view_statements():
            self._spark.sql(statement)
        return self


def read(
    spark: SparkSession, paths: Iterable[str | os.PathLike[str]], *, allocations: bool = False, tasks: int | None = None
) -> Tables:
    """Reads recordings, traces, snapshots and logs on Spark's workers and returns them as the tables of a dataset.

    What cannot be read is a row of `errors`. `allocations` fills the table of allocations, which is empty otherwise. `tasks` is the number of
    tasks; by default four for each core. What the workers read is kept in Spark's storage, so that the tables are made from one reading.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions

    frame = _paths(spark, paths, tasks)
    schema = "recording string, path string, table string, stream binary"
    # Each table is a part of the same reading.
    streams = frame.mapInArrow(functools.partial(_read, allocations=allocations), schema).persist(StorageLevel.MEMORY_AND_DISK)
    # Of several copies of a recording one counts, as in a dataset.
    first = streams.groupBy("recording").agg(functions.min("path").alias("path"))
    streams = streams.join(first, ["recording", "path"])
    frames = {
        name: streams.where(functions.col("table") == name).select("stream").mapInArrow(_decode, _columns(columns))
        for name, columns in _vramline.dataset_schema()[1]
    }
    return Tables(spark, frames)


def write(
    spark: SparkSession,
    paths: Iterable[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    allocations: bool = False,
    tasks: int | None = None,
) -> Tables:
    """Writes a dataset on Spark's workers, as `vramline export --to dataset` does, and returns its tables.

    `dataset` is a folder that every worker can write to. Each recording appears at once and completely; another export of it is replaced.
    """
    frame = _paths(spark, paths, tasks)
    written = frame.mapInArrow(functools.partial(_write, dataset=os.path.abspath(dataset), allocations=allocations), "paths bigint")
    written.agg({"paths": "sum"}).collect()
    return open(spark, dataset)


def open(spark: SparkSession, dataset: str | os.PathLike[str]) -> Tables:
    """The tables of a dataset that was written before, read by Spark's own reader of Parquet."""
    folder = os.path.abspath(checked(dataset))
    reader = spark.read.option("basePath", folder)
    frames = {
        name: reader.schema(_columns(columns)).option("pathGlobFilter", f"{name}.parquet").parquet(folder)
        for name, columns in _vramline.dataset_schema()[1]
    }
    return Tables(spark, frames)


def ask(
    spark: SparkSession, question: str, *, since: str | datetime.date | None = None, batch_factor: float | None = None
) -> DataFrame:
    """Asks one of `vramline.questions()` of the tables that were registered last. The options are those of `vramline.ask`."""
    # Numbers of an earlier question do not stay.
    for statement in parameters(since, batch_factor) or view_statements()[:1]:
        spark.sql(statement)
    return spark.sql(question_sql(question))


def _paths(spark: SparkSession, paths: Iterable[str | os.PathLike[str]], tasks: int | None) -> DataFrame:
    """A frame with one path a row, in as many parts as there are tasks."""
    listed = sorted({os.path.abspath(path) for path in paths})
    if not listed:
        raise ValueError("there are no paths\nhint: give recordings, as in glob.glob('/shared/runs/*.vram')")
    count = tasks if tasks is not None else TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    return spark.createDataFrame([(path,) for path in listed], "path string").repartition(max(1, min(count, len(listed))))


def _columns(columns: list[tuple[str, str, bool]]) -> str:
    return ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind, _ in columns)


def _read(batches: Iterator[pyarrow.RecordBatch], allocations: bool) -> Iterator[pyarrow.RecordBatch]:
    """On a worker: reads paths. One reading is one batch for each stream, so that a large recording needs no more memory than its rows."""
    import pyarrow

    for batch in batches:
        for path in batch.column(0).to_pylist():
            recording, streams = _vramline.dataset_rows(path, allocations)
            for table, stream in streams:
                row: dict[str, list[Any]] = {"recording": [recording], "path": [path], "table": [table], "stream": [stream]}
                yield pyarrow.RecordBatch.from_pydict(row)


def _decode(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """On a worker: the rows of streams."""
    import pyarrow

    for batch in batches:
        for stream in batch.column(0).to_pylist():
            with pyarrow.ipc.open_stream(stream) as reader:
                yield from reader


def _write(batches: Iterator[pyarrow.RecordBatch], dataset: str, allocations: bool) -> Iterator[pyarrow.RecordBatch]:
    """On a worker: exports paths."""
    import pyarrow

    for batch in batches:
        paths = batch.column(0).to_pylist()
        for begin in range(0, len(paths), PATHS_PER_COMMAND):
            part = paths[begin : begin + PATHS_PER_COMMAND]
            options = ["--allocations"] if allocations else []
            command.output("export", "--to", "dataset", "-o", dataset, *options, "--", *part)
            yield pyarrow.RecordBatch.from_pydict({"paths": [len(part)]})
