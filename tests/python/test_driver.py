"""The driver's side of the Python package and of `vramline run`, with a driver that plays a script."""

import json
import os
import subprocess
import sys

import pytest

from vramline import _vramline

GIB = 1 << 30
H200 = {"name": "NVIDIA H200", "capability": [9, 0], "total": 140 * GIB, "reserved": GIB}


@pytest.fixture
def asked(tmp_path):
    """A function: runs Python code under a script for the driver, and gives what it left in `told`."""

    def ask(code, script=None, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "VRAMLINE_"))}
        if script is not None:
            path = tmp_path / "driver.json"
            path.write_text(json.dumps(script))
            environment["VRAMLINE_FAKE_DRIVER"] = str(path)
        code = f"import json, os, vramline\ntold = None\n{code}\nprint(json.dumps(told))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment | variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return ask


DRIVER = ("driver_total", "driver_reserved", "driver_free", "driver_used")
INFO = """
info = vramline.memory_info(DEVICE)
fields = ("driver_total", "driver_reserved", "driver_free", "driver_used", "process", "host_total", "host_available")
told = {name: getattr(info, name) for name in fields} | {"why": {name: info.why(name) for name in fields}}
"""


def test_the_figures_are_the_drivers_and_add_up(asked):
    processes = [{"pid": "self", "used": 2 * GIB}, {"pid": 1, "used": 3 * GIB}]
    told = asked(INFO.replace("DEVICE", "'GPU:0'"), {"devices": [H200 | {"processes": processes}]})
    assert told["driver_total"] == told["driver_reserved"] + told["driver_free"] + told["driver_used"] == 140 * GIB
    assert (told["driver_used"], told["process"]) == (5 * GIB, 2 * GIB)
    assert set(told["why"].values()) == {None}


@pytest.mark.parametrize(
    ("device", "process", "words"),
    [
        ({}, {"pid": "self", "used": None}, "does not report the memory of each process"),
        ({}, {"pid": 4_100_000, "used": 5}, "another namespace"),
        ({"processes_error": {"code": "no-permission"}}, {"pid": "self", "used": 5}, "may not ask"),
        ({"lost_at_ms": 0}, {"pid": "self", "used": 5}, "fallen off the bus"),
    ],
)
def test_what_the_driver_does_not_tell_is_none_with_a_why(asked, device, process, words):
    told = asked(INFO.replace("DEVICE", "'GPU:0'"), {"devices": [H200 | device | {"processes": [process]}]})
    assert told["process"] is None
    assert words in told["why"]["process"]
    assert (told["driver_total"] is None) == ("lost_at_ms" in device)


def test_no_library_is_an_ordinary_machine(asked):
    script = {"error": {"code": "library-missing", "detail": "no such file"}}
    told = asked(INFO.replace("DEVICE", "'GPU:0'"), script)
    assert [told[name] for name in ("driver_total", "driver_used", "process")] == [None] * 3
    assert "cannot load the driver's library libnvidia-ml.so.1" in told["why"]["driver_total"]
    # The machine's own memory stands in for a device; no driver tells of it, the kernel does.
    told = asked(INFO.replace("DEVICE", "'CPU:0'"), script)
    assert [told[name] for name in DRIVER] == [None] * 4
    assert {told["why"][name] for name in DRIVER} == {"a CPU has no driver: see host_total, host_available and host_resident of memory_info"}
    assert 0 < told["process"] < told["host_total"] - told["host_available"] < told["host_total"]


def test_devices_are_those_that_cuda_shows(asked):
    code = "told = [(device, device.uuid, device.model, device.capability, device.driver_total) for device in vramline.devices()]"
    script = {"driver_version": "580.1", "devices": [H200 | {"uuid": "GPU-a"}, H200 | {"uuid": "GPU-b", "total": 5 * GIB}]}
    assert asked(code, script) == [
        ["GPU:0", "GPU-a", "NVIDIA H200", [9, 0], 140 * GIB],
        ["GPU:1", "GPU-b", "NVIDIA H200", [9, 0], 5 * GIB],
    ]
    assert asked(code, script, CUDA_VISIBLE_DEVICES="1") == [["GPU:0", "GPU-b", "NVIDIA H200", [9, 0], 5 * GIB]]
    assert asked(code, script, CUDA_VISIBLE_DEVICES="-1") == []
    told = asked(INFO.replace("DEVICE", "'GPU:0'"), script, CUDA_VISIBLE_DEVICES="")
    assert "CUDA_VISIBLE_DEVICES" in told["why"]["driver_total"]


def test_a_forked_child_has_figures_of_its_own(asked):
    code = """
read, write = os.pipe()
before = vramline.memory_info("GPU:0").process
if os.fork() == 0:
    os.write(write, str(vramline.memory_info("GPU:0").process).encode())
    os._exit(0)
os.wait()
told = [before, int(os.read(read, 99))]
"""
    assert asked(code, {"devices": [H200 | {"processes": [{"pid": "self", "used": GIB}]}]}) == [GIB, GIB]


def test_importing_loads_no_driver(asked):
    """A script that is none would be told of where it is read."""
    code = "told = ['libnvidia-ml' in open('/proc/self/maps').read(), vramline.memory_info('GPU:0').why('driver_total')]"
    is_loaded, why = asked(code, ["no script", 7])
    assert not is_loaded and "driver.json" in why
    assert asked("told = 'libnvidia-ml' in open('/proc/self/maps').read()") is False


def column(columns, name):
    values = columns[name]
    if isinstance(values, list):
        return values
    return [None if null else number for number, null in zip(memoryview(values[0]).cast("q"), values[1])]


def test_a_run_finds_forked_and_started_processes(binary, tmp_path):
    """Without a driver: the machine's memory, and the resident set of whatever the job started."""
    job = """
import os, subprocess, sys, time
kept = bytearray(64 << 20)
child = os.fork()
if child == 0:
    own = bytearray(32 << 20)
    time.sleep(2.5)
    os._exit(0)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2.5)"])
print(os.getpid(), child, other.pid, flush=True)
os.waitpid(child, 0), other.wait()
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE_")}
    environment["VRAMLINE_FAKE_DRIVER"] = str(tmp_path / "none.json")
    (tmp_path / "none.json").write_text('{"error": {"code": "driver-not-loaded"}}')
    command = [binary, "run", "-o", tmp_path / "a.vram", "--no-report", "--", sys.executable, "-c", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    columns, torn = _vramline.read_stream(tmp_path / "a.vram" / "driver.arrows")
    rows = list(zip(*(column(columns, name) for name in ("device", "kind", "pid", "job", "used_bytes", "total_bytes"))))
    assert torn == 0 and {row[0] for row in rows} == {"CPU"}
    for pid, least in zip(map(int, done.stdout.split()), (64 << 20, 32 << 20, 1 << 20)):
        held = [row for row in rows if row[1] == "process" and row[2] == pid]
        assert held and all(row[3] == 1 for row in held)
        assert max(row[4] for row in held) > least
        assert any(row[1] == "gone" and row[2] == pid for row in rows)
    manifest = json.loads((tmp_path / "a.vram" / "run.json").read_text())
    assert manifest["driver"]["error"]["code"] == "driver-not-loaded"
    assert manifest["driver"]["host"]["calls"] > 5
    assert manifest["driver"]["lost_rows"] == 0
