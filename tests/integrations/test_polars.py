"""Polars reads recordings and exported tables without us. It is not in the everyday suite, which has three other readers, for its size."""

import json
import subprocess

import polars
import pytest

import vramline


@pytest.mark.parametrize("name", ["marks", "inventory", "samples"])
def test_a_stream_of_a_recording_is_read_whole(name, recording):
    (path,) = recording.glob(f"{name}-*.arrows")
    theirs = polars.read_ipc_stream(path)
    ours = getattr(vramline.load(recording), name)
    assert theirs.height == ours.rows > 0
    for column in theirs.columns:
        values = ours[column]
        assert theirs[column].to_list() == (values if isinstance(values, list) else values.tolist()), column


def test_an_exported_table_has_every_allocation(recording, binary, tmp_path):
    file = tmp_path / "allocations.parquet"
    subprocess.run([binary, "export", recording, "--to", "parquet", "-o", file], check=True, capture_output=True)
    table = polars.read_parquet(file)
    done = subprocess.run([binary, "report", recording, "--json"], check=True, capture_output=True, text=True)
    (pool,) = json.loads(done.stdout)["pools"]
    assert table.height == pool["allocs"]
    requested = pool["at_peak"]["named_bytes"] + pool["at_peak"]["unnamed_bytes"]
    assert table.filter("at_peak")["bytes"].sum() == requested
