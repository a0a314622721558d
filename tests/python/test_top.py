"""`vramline top` on real terminals: what it shows of fake GPUs and of real jobs, and that it gives the terminal back."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from screen import PATIENCE, Screen

GIB = 1 << 30


def device(processes=(), **more):
    told = {"name": "NVIDIA H200", "capability": [9, 0], "total": 140 * GIB, "reserved": GIB, "processes": list(processes)}
    return {**told, **more}


def script(folder, *devices, **more):
    path = folder / "driver.json"
    path.write_text(json.dumps({"driver_version": "580.159.04", "devices": list(devices), **more}))
    return {"VRAMLINE_FAKE_DRIVER": str(path)}


def many(gpus=8, processes=200):
    """So many processes, spread over so many GPUs, none of which runs here."""
    each = [[] for _ in range(gpus)]
    for number in range(processes):
        each[number % gpus].append({"pid": 4_000_000_000 + number, "used": (number + 1) << 22})
    return [device(listed) for listed in each]


def numbers(text):
    return [int(line.split()[0]) for line in text.splitlines() if line.split() and line.split()[0].startswith("40000")]


@pytest.fixture
def look(binary, tmp_path):
    """A function: one look, as JSON, with every bar checked."""

    def once(environment=None, *arguments, cwd=tmp_path):
        done = subprocess.run(
            [binary, "top", "--json", *arguments], capture_output=True, text=True, cwd=cwd, env={**os.environ, **(environment or {})}
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        for found in document["devices"]:
            assert sum(part["bytes"] for part in found["parts"]) == (found["total_bytes"] or 0)
        return document

    return once


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10), (20, 5), (1, 1)])
@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_every_size_with_any_number_of_gpus(binary, tmp_path, size, gpus):
    environment = script(tmp_path, *many(gpus, 200 if gpus else 0))
    with Screen([binary, "top"], *size, environment=environment, cwd=tmp_path) as screen:
        screen.until(lambda _: b"\x1b[?1049h" in screen.written, "the other screen")
        if size[0] >= 40:
            screen.until("GPU 0" if gpus else "host memory" if size[1] > 10 else "CPU")
        if size == (80, 24):
            shown = screen.until(lambda text: len(numbers(text)) >= 5 or not gpus)
            # The largest first.
            assert not gpus or numbers(shown)[:3] == [4_000_000_199, 4_000_000_198, 4_000_000_197]
        if size == (200, 60) and gpus:
            screen.until(lambda text: text.count("GPU") >= gpus + 1 and "HEADROOM" in text and "driver reserved" in text)
        for key in ("?", "?", "\r", "\x1b[B", "\r", "s", "/", "zz", "\r", "r", " ", "\x03"):
            screen.keys(key)
            screen.read(0.1)
        assert screen.wait() == 0
        assert screen.is_given_back()


def test_resized_while_it_runs(binary, tmp_path):
    with Screen([binary, "top", "--rate", "10"], 80, 24, environment=script(tmp_path, *many()), cwd=tmp_path) as screen:
        screen.until("GPU 7")
        assert "PHASE" not in screen.text()
        for size in ((200, 60), (20, 5), (3, 2), (120, 30), (200, 60)):
            screen.size(*size)
            if size[0] > 100:
                screen.until(lambda text, size=size: text.split("\n")[size[1] - 1].startswith("q quit") and "HEADROOM" in text)
        assert "PHASE" in screen.text()
        screen.keys("q")
        assert screen.wait() == 0


def test_sorting_filtering_and_choosing(binary, tmp_path):
    with Screen([binary, "top"], 100, 30, environment=script(tmp_path, *many()), cwd=tmp_path) as screen:
        screen.until(lambda text: numbers(text)[:1] == [4_000_000_199])
        screen.keys("i")
        screen.until(lambda text: numbers(text)[:1] == [4_000_000_000] and "sort: pid" in text)
        screen.keys("r")
        screen.until(lambda text: numbers(text)[:1] == [4_000_000_199] and "reversed" in text)
        screen.keys("/400000013")
        screen.until(lambda text: sorted(numbers(text)) == list(range(4_000_000_130, 4_000_000_140)))
        screen.keys("\r")
        screen.until("/ filter: 400000013")
        screen.keys("\x1b[B\r")
        screen.until("process 4000000138 on GPU 2")
        assert "not recorded" in screen.text()
        screen.keys("\x1b")
        screen.until("/ filter: 400000013")
        screen.keys("\x1b")
        screen.until(lambda text: len(numbers(text)) > 10)
        screen.keys("?")
        screen.until("press any key to go back")
        screen.keys("x")
        screen.until(lambda text: "press any key to go back" not in text)
        # A filter that nothing matches says so.
        screen.keys("/nothing like this")
        screen.until("No process matches the filter")
        screen.keys("\x03")
        assert screen.wait() == 0 and screen.is_given_back()


@pytest.mark.parametrize("end", ["q", "\x1b", "\x03", signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_terminal_is_given_back(binary, tmp_path, end):
    with Screen([binary, "top"], environment=script(tmp_path, device()), cwd=tmp_path) as screen:
        screen.until("GPU 0")
        assert not screen.is_given_back()
        if isinstance(end, str):
            screen.keys(end)
        else:
            screen.signal(end)
        assert screen.wait() == (0 if isinstance(end, str) else 128 + end)
        assert screen.is_given_back()


@pytest.mark.parametrize("how", ["key", "signal"])
def test_stopped_and_continued(binary, tmp_path, how):
    # A shell, so that there is somebody who could continue it.
    shell = ["/usr/bin/env", "bash", "--norc", "-i"]
    with Screen(shell, environment={**script(tmp_path, device()), "PS1": "ready> "}, cwd=tmp_path) as screen:
        screen.until("ready>")
        screen.keys(f"{binary} top\n")
        screen.until("GPU 0")
        if how == "key":
            screen.keys("\x1a")
        else:
            found = subprocess.run(["pgrep", "-P", str(screen.pid)], capture_output=True, text=True, check=True)
            os.kill(int(found.stdout.split()[0]), signal.SIGTSTP)
        # pyte knows no other screen; that it was left is in what was written.
        screen.until(lambda _: screen.written.rfind(b"\x1b[?1049l") > screen.written.rfind(b"\x1b[?1049h"), "left")
        screen.until(lambda _: b"Stopped" in screen.written, "stopped")
        count = screen.written.count(b"\x1b[?1049h")
        screen.keys("fg\n")
        screen.until(lambda _: screen.written.count(b"\x1b[?1049h") > count, "entered again")
        screen.until("GPU 0")
        screen.keys("q")
        screen.until(lambda _: screen.written.rfind(b"\x1b[?1049l") > screen.written.rfind(b"\x1b[?1049h"), "left")
        screen.keys("exit\n")
        assert screen.wait() == 0


def test_without_colour_it_has_none(binary, tmp_path):
    environment = {**script(tmp_path, device([{"pid": 4_000_000_000, "used": 30 * GIB}])), "NO_COLOR": "1"}
    with Screen([binary, "top"], environment=environment, cwd=tmp_path) as screen:
        shown = screen.until(lambda text: len(numbers(text)) == 1)
        colours = {cell.fg for line in screen.emulated.buffer.values() for cell in line.values()}
        assert colours <= {"default"}
        # Signs tell the parts of the bar apart.
        bar = next(line for line in shown.splitlines() if line.startswith("["))
        assert "=" in bar and "#" in bar and "·" in bar
        screen.keys("q")
        assert screen.wait() == 0


def test_no_terminal_one_look(binary, tmp_path):
    environment = {**os.environ, **script(tmp_path, *many())}
    for words in ([], ["--once"]):
        done = subprocess.run([binary, "top", *words], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0 and "\x1b" not in done.stdout
        assert done.stdout.startswith(f"{os.uname().nodename}: 8 GPUs, ")
        assert done.stdout.count("NVIDIA H200") == 8
        assert len(numbers(done.stdout)) == 200
    wrong = subprocess.run([binary, "top", "no/such"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert wrong.returncode == 1 and "hint:" in wrong.stderr


def test_what_is_not_told_is_said(look, tmp_path):
    silent = device([{"pid": 4_000_000_000, "used": None}], unlisted=5 * GIB)
    environment = script(tmp_path, device(memory_error={"code": "gpu-lost"}), silent)
    document = look(environment)
    first, second = document["devices"][:2]
    assert (first["total_bytes"], first["error"], first["parts"]) == (None, "gpu-lost", [])
    assert sum(part["bytes"] for part in second["parts"]) == second["total_bytes"] == 140 * GIB
    assert {"part": "unattributed", "bytes": 5 * GIB} in second["parts"]
    assert next(row for row in document["processes"] if row["pid"] == 4_000_000_000)["held_bytes"] is None
    reasons = {unknown["path"] for unknown in document["unknowns"]}
    assert {"devices[].total_bytes", "processes[].held_bytes"} <= reasons
    assert "gpu-lost" in {warning["code"] for warning in document["warnings"]}
    (tmp_path / "driver.json").write_text(json.dumps({"error": {"code": "driver-not-loaded"}}))
    document = look(environment)
    assert document["driver"]["error"] == "driver-not-loaded"
    assert [found["name"] for found in document["devices"]] == ["CPU"]
    assert document["warnings"][0]["code"] == "driver-not-loaded" and document["warnings"][0]["hint"]


JOB = """
    import os, sys, time
    import tensorflow as tf
    import keras
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    data = tf.random.normal((64, 64)), tf.random.normal((64, 1))
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05)
    open("ready", "w").close()
    while not os.path.exists("stop"):
        model.fit(*data, batch_size=8, epochs=1, verbose=0, callbacks=[Slow()])
"""


@pytest.fixture
def job(binary, tmp_path):
    """A real training under `vramline run`, which goes on until it is told to stop."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(textwrap.dedent(JOB))
    environment = {**os.environ, "VRAMLINE_FAKE_DRIVER": ""}
    command = [binary, "run", "-o", "live.vram", "--step-peaks", "--no-report", "--", sys.executable, "train.py"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield folder, process
    finally:
        (folder / "stop").touch()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


def test_a_live_job_is_found_by_itself(binary, job, look, tmp_path):
    """Started anywhere, looked at from elsewhere, step by step; and nothing in its recording is touched."""
    folder, process = job
    end = time.monotonic() + 2 * PATIENCE

    def ours():
        document = look()
        path = str((folder / "live.vram").resolve())
        # Others may run on this machine too.
        jobs = [number for number, job in enumerate(document["jobs"]) if job["path"] == path]
        return document, [row for row in document["processes"] if row["job"] in jobs and row["step"] is not None]

    document, found = ours()
    while not found or found[0]["step_peak_bytes"] is None or not found[0]["roles"]:
        assert time.monotonic() < end and process.poll() is None, document
        time.sleep(0.3)
        document, found = ours()
    (row,) = found
    assert row["device"] == "CPU" and row["framework"].startswith(("keras", "tensorflow"))
    assert "train.py" in row["command"]
    assert row["in_use_bytes"] <= row["peak_bytes"] and row["headroom_bytes"] > 0
    assert document["jobs"][row["job"]]["path"] == str((folder / "live.vram").resolve())
    assert row["phase"] == "train" and row["steps"][-1]["step"] == row["step"]
    assert any(role["role"] == "parameters" and role["bytes"] >= 4 * (64 * 256 + 256 + 256 + 1) for role in row["roles"])
    first = row["steps"][-1]["end_ns"]
    with Screen([binary, "top", "--rate", "5"], 120, 40, cwd=tmp_path) as screen:
        screen.until("q quit")
        screen.keys("/job/live.vram\r")
        screen.until("train.py")
        screen.keys("\r")
        shown = screen.until(lambda text: "Variables of the program" in text and "STEP" in text)
        assert "parameters" in shown and "running for" in shown
        # The trace is read when somebody looks.
        screen.until(lambda text: "In use at the peak of the traced steps" in text or "until the first trace is written" in text)
        steps = {line for line in shown.splitlines() if " train " in line}
        screen.until(lambda text: {line for line in text.splitlines() if " train " in line} - steps, "a new step")
        screen.keys("\x1b")
        (folder / "stop").touch()
        process.wait(PATIENCE)
        screen.keys("q")
        assert screen.wait() == 0 and screen.is_given_back()
    document = look({}, str(folder / "live.vram"))
    (number,) = [number for number, job in enumerate(document["jobs"]) if job["path"] == str((folder / "live.vram").resolve())]
    assert (document["jobs"][number]["state"], document["jobs"][number]["exit_code"]) == ("ended", 0)
    (row,) = [row for row in document["processes"] if row["job"] == number]
    assert row["steps"][-1]["end_ns"] > first
    assert process.returncode == 0


def test_a_job_that_has_told_nothing_yet_is_known(binary, tmp_path, look):
    """It has no Python at all: its launcher and its environment tell of it."""
    environment = script(tmp_path, device([{"pid": 4_000_000_000, "used": GIB}]))
    folder = tmp_path / "job"
    folder.mkdir()
    process = subprocess.Popen(
        [binary, "run", "-o", "gpu.vram", "--no-report", "--", "sleep", "600"],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + PATIENCE
        document = look(environment)
        path = str((folder / "gpu.vram").resolve())
        while path not in (job["path"] for job in document["jobs"]):
            assert time.monotonic() < end
            time.sleep(0.2)
            document = look(environment)
        (found,) = [job for job in document["jobs"] if job["path"] == path]
        assert found["state"] == "running" and found["command"] == "sleep 600"
        parts = {part["part"]: part["bytes"] for part in document["devices"][0]["parts"]}
        assert parts["driver reserved"] == GIB and parts["other processes"] == GIB
    finally:
        process.terminate()
        process.wait()


HOSTS = ["node-a", "node-b", "node \x1b[31mc"]


@pytest.fixture
def job_of_hosts(fixtures, tmp_path):
    """A job of four ranks on a shared folder: one on each of three hosts, from a real recording; nobody has seen the fourth."""
    recording = tmp_path / "shared" / "job.vram"
    recording.mkdir(parents=True)
    now = time.time_ns()
    for number, host in enumerate(HOSTS):
        name = re.sub(r"[^a-z-]", "_", host)
        identity = {"job": "blue \x07 17", "host": host, "run": f"{name}-{number + 1}-1", "rank": number, "world_size": 4}
        for path in (fixtures / "tf221_cpu_keras.vram").iterdir():
            kind, dash, _rest = path.name.partition("-")
            if path.is_dir():
                shutil.copytree(path, recording / f"{kind}-{name}-{20013 + number}-1648239")
            elif dash:
                target = recording / f"{kind}-{name}-{20013 + number}-1648239{path.suffix}"
                shutil.copy(path, target)
                if kind == "process":
                    target.write_text(json.dumps(json.loads(path.read_text()) | {"rank": number, "identity": identity}))
            else:
                run = json.loads(path.read_text()) | {"host": host, "identity": identity}
                run["clocks"]["end"] = None
                run["exit"] = {"code": 3} if host == "node-b" else None
                if host == "node-a":
                    # It began a moment ago, and goes on.
                    run["clocks"]["begin"]["realtime_ns"] = now
                (recording / ("run.json" if number == 0 else f"run-{name}-{number + 1}-1.json")).write_text(json.dumps(run))
    return recording


def hosts_text(binary, *arguments):
    done = subprocess.run([binary, "top", "--hosts", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    return done.stdout


def test_a_row_for_each_host_of_a_job(binary, job_of_hosts, look, vramline):
    mine = str(job_of_hosts.resolve())
    document = look({}, str(job_of_hosts))
    (job,) = [number for number, each in enumerate(document["jobs"]) if each["path"] == mine]
    hosts = [each for each in document["hosts"] if each["job"] == job]
    # What needs attention comes first: a rank that nobody has seen, no news, a failure.
    assert [(each["host"], each["state"], each["ranks"]) for each in hosts] == [
        (None, "unseen", [3]), (HOSTS[2], "silent", [2]), ("node-b", "ended", [1]), ("node-a", "running", [0]),
    ]  # fmt: skip
    assert (hosts[2]["exit_code"], hosts[3]["exit_code"]) == (3, None)
    assert {each["world_size"] for each in hosts} == {4} and {each["job_name"] for each in hosts} == {"blue \x07 17"}
    # Each rank is the recorded process, whose peak the report knows.
    report = vramline(job_of_hosts)
    peaks = {each["host"]: each["peak_bytes"] for each in report["ranks"]["ranks"]}
    rows = {row["rank"]: row for row in document["processes"] if row["job"] == job}
    for each in hosts[1:]:
        row = rows[each["ranks"][0]]
        assert (each["peak_bytes"], each["peak_rank"]) == (peaks[each["host"]], row["rank"])
        assert each["in_use_bytes"] == row["in_use_bytes"]
        assert each["lowest_step"] == each["highest_step"] == row["step"]
        # The framework's built-in limit is none, so nothing tells the headroom.
        assert each["headroom_bytes"] is None
    assert hosts[3]["age_ns"] < hosts[1]["age_ns"]


def test_hosts_as_text(binary, job_of_hosts):
    for words in ([str(job_of_hosts)], ["--once", str(job_of_hosts)]):
        lines = hosts_text(binary, *words).splitlines()
        ours = [line for line in lines if "blue \ufffd 17" in line]
        assert len(ours) == 4
        assert "not seen: 3" in ours[0] and "1 of 4" in ours[0]
        assert "node \ufffd[31mc" in ours[1] and "no news for " in ours[1]
        assert "node-b" in ours[2] and "ended (code 3)" in ours[2] and "rank 1" in ours[2]
        assert "node-a" in ours[3] and "running" in ours[3]
        assert "Processes" not in lines
    hidden = hosts_text(binary, "--redact", str(job_of_hosts))
    assert "node" not in hidden.replace(os.uname().nodename, "") and "blue" not in hidden


def test_hosts_on_the_screen(binary, job_of_hosts, tmp_path):
    environment = script(tmp_path, device())
    with Screen([binary, "top", "--hosts", job_of_hosts], 120, 30, environment=environment, cwd=tmp_path) as screen:
        screen.until("q quit")
        # Other jobs may run on this machine.
        screen.keys("/blue\r")
        shown = screen.until(lambda text: "not seen: 3" in text and "/ filter: blue" in text)
        assert "node-b" in shown and "ended (code 3)" in shown and "HEADROOM" in shown and "GPU 0" not in shown
        screen.keys("H")
        screen.until(lambda text: "GPU 0" in text and "COMMAND" in text and "not seen" not in text)
        screen.keys("H")
        screen.until(lambda text: "not seen: 3" in text and "GPU 0" not in text)
        # On a low screen the rows move.
        screen.size(60, 5)
        screen.until(lambda text: "q quit" in text.split("\n")[4] and "not seen: 3" in text)
        screen.keys("\x1b[F")
        screen.until(lambda text: "node-a" in text and "not seen" not in text)
        screen.keys("\x1b[H")
        screen.until("not seen: 3")
        screen.size(120, 30)
        screen.keys("/nothing like this")
        screen.until("No host matches the filter")
        screen.keys("\x1b")
        screen.until("node-b")
        screen.keys("q")
        assert screen.wait() == 0 and screen.is_given_back()
