"""`vramline export`: other tools open the files, and what they add up is what the report says."""

import csv
import itertools
import json
import subprocess

import duckdb
import pandas
import pytest

SOURCES = [
    "tf221_cpu_keras.vram",
    "tf221_cpu_cnn_from_start.xplane.pb",
    "jax0112_h200_growth_window.xplane.pb",
    "torch2110_h200_resnet50_b64.snapshot.pickle.gz",
    "torch/random_streams.pickle.gz",
]


@pytest.fixture(scope="module", params=SOURCES)
def exported(request, binary, fixtures, vramline, tmp_path_factory):
    """The report and a function that exports to a format."""
    source = fixtures / request.param
    folder = tmp_path_factory.mktemp("export")

    def export(to):
        path = folder / f"export.{to}"
        if not path.exists():
            subprocess.run([binary, "export", source, "--to", to, "-o", path], check=True)
        return path

    return vramline(source), export


def at_peak(report):
    """By pool, what the report says was asked for by blocks that lived at the peak."""
    held = {pool["name"]: pool["at_peak"] for pool in report["pools"] if pool["allocs"]}
    return {name: one["named_bytes"] + one["unnamed_bytes"] for name, one in held.items() if one["in_use_bytes"]}


def test_the_parquet_opens_in_duckdb_and_pandas(exported):
    report, export = exported
    path = str(export("parquet"))
    asked = "SELECT pool, sum(bytes)::BIGINT FROM read_parquet(?) WHERE at_peak GROUP BY pool"
    assert dict(duckdb.execute(asked, [path]).fetchall()) == at_peak(report)
    table = pandas.read_parquet(path)
    assert table[table.at_peak].groupby("pool").bytes.sum().to_dict() == at_peak(report)
    counts = {pool["name"]: pool["allocs"] for pool in report["pools"] if pool["allocs"]}
    assert table.groupby("pool").size().to_dict() == counts
    assert (table.bytes <= table.chunk_bytes).all()
    assert (table.freed_ns.dropna() >= table.born_ns[table.freed_ns.notna()]).all()


def test_every_table_holds_the_same(exported):
    _, export = exported
    parquet = pandas.read_parquet(export("parquet"))
    rows = json.loads(export("json").read_text())["allocations"]
    assert list(rows[0]) == list(parquet.columns)
    expected = parquet.astype(object).where(parquet.notna(), None).to_dict("records")
    assert rows == expected
    with export("csv").open(newline="") as file:
        cells = list(csv.DictReader(file))

    def cell(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    assert cells == [{name: cell(value) for name, value in row.items()} for row in rows]


def test_the_roles_are_the_reports(binary, fixtures, vramline, tmp_path):
    source = fixtures / "tf221_cpu_cnn_from_start.xplane.pb"
    path = tmp_path / "a.parquet"
    subprocess.run([binary, "export", source, "--to", "parquet", "-o", path], check=True)
    asked = "SELECT role, sum(bytes)::BIGINT FROM read_parquet(?) WHERE at_peak GROUP BY role"
    by_role = vramline(source)["pools"][0]["at_peak"]["by_role"]
    assert dict(duckdb.execute(asked, [str(path)]).fetchall()) == {role: size for role, size in by_role.items() if size}


def test_the_perfetto_trace_has_the_peak(exported):
    report, export = exported
    events = json.loads(export("perfetto").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    peaks = {}
    for event in (event for event in events if event["ph"] == "C"):
        pool = names[event["pid"]].split(" (")[0]
        peaks[pool] = max(peaks.get(pool, 0), event["args"]["bytes"])
    assert peaks == {pool["name"]: pool["peak_bytes"] for pool in report["pools"] if pool["allocs"] or pool["frees"]}
    slices = [event for event in events if event["ph"] == "X" and event["cat"] != "step"]
    assert len(slices) == sum(pool["allocs"] for pool in report["pools"] if pool["allocs"])
    # Slices of a lane do not overlap, or a viewer would drop some.
    lanes = {}
    for event in slices:
        lanes.setdefault((event["pid"], event["tid"]), []).append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    for lane in lanes.values():
        lane.sort()
        assert all(begin + dur <= later for (begin, dur), (later, _) in itertools.pairwise(lane))


def test_what_has_no_history_is_told(binary, fixtures, tmp_path):
    command = [binary, "export", fixtures / "tf221_cpu_oom.memorydump.pb", "--to", "csv", "-o", tmp_path / "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no history" in done.stderr and not (tmp_path / "x").exists()
    command = [binary, "export", fixtures / "tf221_cpu_keras.vram", "--to", "csv", "-o", tmp_path / "no" / "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "cannot write" in done.stderr
