"""`vramline.spark`: a real Spark with two workers reads and writes the dataset, and answers every question as DuckDB does.

Not in the everyday suite: PySpark has 450 MB and needs Java 17, and the workers take a minute to start.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vramline

pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17", allow_module_level=True)

REPOSITORY = Path(__file__).resolve().parents[2]
COUNT = 200


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """200 recordings made from real ones; the last was written by a newer version of Vramline."""
    spec = importlib.util.spec_from_file_location("make_fleet", REPOSITORY / "benches" / "make_fleet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    paths = module.make(tmp_path_factory.mktemp("runs"), COUNT, broken=1)
    # Files without a recording around them.
    others = ["tf221_cpu_oom.log", "torch2110_h200_oom_pieces.log", "torch/random_streams.pickle.gz", "tf221_cpu_oom.memorydump.pb"]
    return [*paths, *(REPOSITORY / "fixtures" / other for other in others)]


@pytest.fixture(scope="session")
def dataset(recordings, binary, tmp_path_factory):
    """The dataset that the command writes."""
    folder = tmp_path_factory.mktemp("dataset") / "fleet"
    subprocess.run([binary, "export", *recordings, "--to", "dataset", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    session = (
        # Two workers, which are processes of their own, with one core each.
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("vramline")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def test_there_are_two_workers(spark):
    from pyspark.sql.functions import spark_partition_id

    def processes(batches):
        import os

        import pyarrow

        for _ in batches:
            # Both tasks run at the same time, so each has a worker of its own.
            import time

            time.sleep(2)
            yield pyarrow.RecordBatch.from_pydict({"parent": [os.getppid()]})

    frame = spark.range(2, numPartitions=2).select(spark_partition_id().alias("part"))
    assert len({row.parent for row in frame.mapInArrow(processes, "parent bigint").collect()}) == 2


@pytest.fixture(scope="session")
def expected(dataset):
    """The rows of every question and table by DuckDB."""
    answers = {name: vramline.ask(name, dataset, since="2026-12-01", batch_factor=3).fetchall() for name in vramline.questions()}
    assert sum(map(bool, answers.values())) >= 9, {name: len(rows) for name, rows in answers.items()}
    return answers


def answers_of(spark):
    asked = {name: vramline.spark.ask(spark, name, since="2026-12-01", batch_factor=3) for name in vramline.questions()}
    return {name: [tuple(row) for row in frame.collect()] for name, frame in asked.items()}


def test_the_dataset_gives_the_same_rows_on_both(spark, dataset, expected):
    vramline.spark.open(spark, dataset).register()
    found = answers_of(spark)
    for name, rows in expected.items():
        assert found[name] == rows, name


def test_what_workers_read_gives_the_same_rows(spark, recordings, dataset, expected):
    tables = vramline.spark.read(spark, recordings).register()
    found = answers_of(spark)
    for name, rows in expected.items():
        assert found[name] == rows, name
    for name, frame in tables.items():
        count = vramline.sql(f"SELECT count(*) FROM {name}", dataset).fetchall()[0][0]
        assert frame.count() == count, name
    errors = tables["errors"].collect()
    assert [error.source for error in errors] == [str(recordings[COUNT - 1])]
    assert "newer version" in errors[0].text


def test_workers_write_the_same_dataset(spark, recordings, dataset, tmp_path):
    written = tmp_path / "written"
    # Fewer: the command is the same, only the place where it runs is another.
    some = recordings[::4]
    vramline.spark.write(spark, some, written)
    some_keys = [key for (key,) in vramline.sql("SELECT recording FROM jobs", written).fetchall()]
    assert len(some_keys) >= len(some) - 1
    listed = ", ".join(f"'{key}'" for key in some_keys)
    for name in ("jobs", "pools", "peaks"):
        theirs = vramline.sql(f"SELECT * FROM {name} WHERE recording IN ({listed}) ORDER BY ALL", dataset).fetchall()
        ours = vramline.sql(f"SELECT * FROM {name} ORDER BY ALL", written).fetchall()
        assert ours and ours == theirs, name
