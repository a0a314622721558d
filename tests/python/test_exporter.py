"""`vramline exporter`: what it tells Prometheus of fake GPUs and real recordings, whatever is sent to it and whatever happens to them."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from exposition import Figures, parse

GIB = 1 << 30
PATIENCE = 120
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
POOL = ("usage", "reserved", "peak", "limit", "headroom")

# Others may record on this machine at the same time, so the names of jobs here are their own.
# A job that records figures of a pool without a framework: the counters are given.
JOB = """
    import json, os, pathlib, sys, time
    from vramline.frameworks import counters
    from vramline.recording import session
    told = json.loads(sys.argv[1])
    job = session.session(pathlib.Path(os.environ["VRAMLINE_RECORD"]))
    read = [(told.get("device", "GPU:0"), 5 << 30, (6 << 30) + 7, None, 8 << 30, told.get("limit"), None)]
    counters.read_sampled = lambda: read
    job.sample(0.05)
    step = 0
    while not os.path.exists(told["stop"]):
        job.mark("step", phase="train", how="api", step=step, batches=1, begin_ns=time.monotonic_ns() - 50_000_000, read=read)
        step += 1
        time.sleep(0.05)
    if told.get("error"):
        job.mark("exception", told["error"])
        sys.exit(1)
"""


def script(folder, *devices, **more):
    (folder / "driver.json").write_text(json.dumps({"driver_version": "580.159.04", "devices": list(devices), **more}))
    return {"VRAMLINE_FAKE_DRIVER": str(folder / "driver.json")}


def device(processes=(), **more):
    return {"name": "NVIDIA H200", "total": 140 * GIB, "reserved": GIB, "processes": list(processes), **more}


class Exporter:
    """An exporter of the real binary, and plain requests to it."""

    def __init__(self, binary, *arguments, cwd, environment=None):
        command = [binary, "exporter", *(arguments or ["--listen", "0"])]
        told = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, cwd=cwd, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://(?:127\.0\.0\.1|[^/]*):(\d+)/metrics", url)
        assert found, url + self.process.stderr.read()
        self.port = int(found[1])

    def get(self, path="/metrics", method="GET", timeout=30, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{self.port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def figures(self):
        answer, body = self.get()
        assert answer.status == 200, body
        return Figures(body)

    def until(self, is_it):
        """Asks again until the figures are as they should be."""
        end = time.monotonic() + PATIENCE
        while not is_it(figures := self.figures()):
            assert time.monotonic() < end, figures.text
            time.sleep(0.3)
        return figures

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def export(binary, tmp_path):
    """A function that starts an exporter. All are ended afterwards."""
    started = []

    def start(*arguments, cwd=tmp_path, environment=None):
        started.append(Exporter(binary, *arguments, cwd=cwd, environment=environment))
        return started[-1]

    yield start
    for exporter in started:
        assert exporter.end() == 0


@pytest.fixture
def record(binary, tmp_path):
    """A function that starts a job under `vramline run`, which goes on until it is told to stop."""
    started = []
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))

    def start(name="exported.vram", environment=None, options=(), **told):
        stop = tmp_path / f"stop-{len(started)}"
        words = [sys.executable, tmp_path / "job.py", json.dumps({"stop": str(stop), **told})]
        command = [binary, "run", "-o", name, "--no-report", "--trace", "off", *options, "--", *words]
        process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append((process, stop))
        return process, stop

    yield start
    for process, stop in started:
        stop.touch()
        process.wait(PATIENCE)


def test_devices_are_those_of_top(binary, export, tmp_path):
    listed = [{"pid": 4_000_000_001, "used": 30 * GIB}, {"pid": 4_000_000_002, "used": 3 * GIB}]
    environment = script(tmp_path, device(listed), device(name='NVIDIA "H"\\200\n', unlisted=5), device(memory_error={"code": "gpu-lost"}))
    figures = export(environment=environment).figures()
    done = subprocess.run([binary, "top", "--json"], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **environment})
    top = json.loads(done.stdout)
    host = top["host"]
    for shown in top["devices"]:
        of = {"host": host, "device": shown["name"]}
        if shown["total_bytes"] is None:
            # An unknown figure has no series.
            assert not figures.all("hw_gpu_memory_usage_bytes", **of) and not figures.all("vramline_device_memory_bytes", **of)
            continue
        parts = {labels["part"]: value for labels, value in figures.all("vramline_device_memory_bytes", **of)}
        if shown["name"] != "CPU":
            assert figures.one("hw_gpu_memory_limit_bytes", **of) == shown["total_bytes"]
            assert figures.one("hw_gpu_memory_usage_bytes", **of) == shown["total_bytes"] - shown["free_bytes"]
            assert parts == {part["part"]: part["bytes"] for part in shown["parts"]}
        assert sum(parts.values()) == shown["total_bytes"] or shown["name"] == "CPU"
        assert figures.one("vramline_device_processes", **of) == shown["processes"] or shown["name"] == "CPU"
    ((info, one),) = figures.all("vramline_device_info", device="GPU 1")
    assert (info["model"], one) == ('NVIDIA "H"\\200\n', 1)
    assert figures.one("vramline_driver_up") == 1 and figures.one("vramline_driver_answer_age_seconds") >= 0
    assert figures.all("vramline_driver_info")[0][0]["version"] == "580.159.04"
    # Processes without a recording are in the sums only.
    assert "4000000001" not in figures.text


def test_a_job_has_its_pools_and_steps(binary, export, record, tmp_path):
    environment = script(tmp_path, device())
    process, stop = record(environment={**environment, "RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "8"}, limit=9 * GIB)
    exporter = export(environment=environment)
    is_sampled = lambda figures: figures.all("vramline_pool_limit_bytes", job="exported")  # noqa: E731
    figures = exporter.until(lambda figures: is_sampled(figures) and figures.all("vramline_steps_total", job="exported"))
    of = {"device": "GPU 0", "job": "exported", "rank": "3", "pool": "GPU:0"}
    told = {name: figures.one(f"vramline_pool_{name}_bytes", **of) for name in POOL}
    assert told == {"usage": 5 * GIB, "reserved": 8 * GIB, "peak": 6 * GIB + 7, "limit": 9 * GIB, "headroom": 3 * GIB - 7}
    # The driver does not list this process, so what it holds is unknown.
    assert not figures.all("vramline_process_memory_bytes", job="exported")
    assert figures.one("vramline_steps_total", job="exported", rank="3") == figures.one("vramline_step_number", job="exported", rank="3") + 1
    assert figures.one("vramline_step_duration_seconds", job="exported") >= 0.05
    assert figures.one("vramline_job_running", job="exported") == 1
    assert abs(figures.one("vramline_job_start_timestamp_seconds", job="exported") - time.time()) < 2 * PATIENCE
    ((info, _),) = figures.all("vramline_rank_info", job="exported")
    assert (info["rank"], info["world_size"], info["local_rank"]) == ("3", "8", "0")
    assert figures.all("vramline_job_info", job="exported")[0][0]["recording"] == str(tmp_path / "exported.vram")
    for family in figures.families.values():
        assert not any({"pid", "step"} & dict(labels).keys() for labels in family.samples)
    # A pool costs six series at most.
    assert sum(dict(labels).get("job") == "exported" and "pool" in dict(labels) for family in figures.families.values() for labels in family.samples) <= 6
    first = figures.one("vramline_steps_total", job="exported")
    exporter.until(lambda figures: figures.one("vramline_steps_total", job="exported") > first)
    # It ends: its live figures disappear, and the job stays for a while.
    stop.touch()
    assert process.wait(PATIENCE) == 0
    figures = exporter.until(lambda figures: figures.one("vramline_job_running", job="exported") == 0)
    assert not figures.all("vramline_pool_usage_bytes", job="exported") and not figures.all("vramline_steps_total", job="exported")
    assert figures.one("vramline_job_end_timestamp_seconds", job="exported") > figures.one("vramline_job_start_timestamp_seconds", job="exported")
    assert not figures.all("vramline_job_last_failure_timestamp_seconds", job="exported")


FAILURES = {
    "out_of_memory": "ResourceExhaustedError: OOM when allocating tensor with shape[64,1024] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:MatMul]",
    "exception": "ValueError: memory is not the reason",
}


def test_the_last_failure_has_its_reason(export, record, tmp_path):
    environment = script(tmp_path, device())
    exporter = export("--listen", "0", "--keep", "3", environment=environment)
    jobs = {reason: record(f"{reason}.vram", environment, error=error) for reason, error in FAILURES.items()}
    exporter.until(lambda figures: all(figures.all("vramline_steps_total", job=reason) for reason in jobs))
    for reason, (process, stop) in jobs.items():
        stop.touch()
        assert process.wait(PATIENCE) == 1
        figures = exporter.until(lambda figures, job=reason: figures.one("vramline_job_running", job=job) == 0)
        ((labels, at),) = figures.all("vramline_job_last_failure_timestamp_seconds", job=reason)
        assert labels["reason"] == reason and abs(at - time.time()) < 2 * PATIENCE
        # After the stated time nothing of it is left.
        exporter.until(lambda figures, job=reason: f'job="{job}"' not in figures.text)


def test_hostile_names_are_only_names(export, record, tmp_path):
    hostile = 'a"b\\c\nd} 1\n# EOF\nvramline_driver_up{host="x'
    environment = script(tmp_path, device())
    record(f"{hostile}.vram".replace("/", ""), environment, device=hostile)
    exporter = export(environment=environment)
    figures = exporter.until(lambda figures: figures.all("vramline_pool_usage_bytes", job=hostile))
    assert figures.one("vramline_pool_usage_bytes", job=hostile) == 5 * GIB
    assert len(figures.all("vramline_driver_up")) == 1
    _, body = exporter.get(Accept=OPENMETRICS)
    assert Figures(body, is_openmetrics=True).one("vramline_pool_usage_bytes", job=hostile) == 5 * GIB


def test_two_jobs_of_one_name_stay_apart(export, record, tmp_path):
    environment = script(tmp_path, device(), device())
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    first = record("one/twin.vram", environment)
    exporter = export(environment=environment)
    exporter.until(lambda figures: figures.all("vramline_steps_total", job="twin"))
    record("two/twin.vram", environment)
    exporter.until(lambda figures: figures.all("vramline_steps_total", job="twin #2"))
    # The label of the second stays when the first has gone.
    first[1].touch()
    first[0].wait(PATIENCE)
    figures = exporter.until(lambda figures: not figures.all("vramline_steps_total", job="twin"))
    assert figures.one("vramline_pool_usage_bytes", job="twin #2") == 5 * GIB
    # Two recordings of one job of a launcher are parts of it.
    for name in ("three.vram", "four.vram"):
        record(name, {**environment, "SLURM_JOB_ID": "7755", "SLURM_STEP_ID": "0", "SLURM_PROCID": name[:1]})
    figures = exporter.until(lambda figures: len(figures.all("vramline_pool_usage_bytes", job="7755.0")) == 2)
    assert figures.one("vramline_job_running", job="7755.0") == 1
    assert {labels["pool"] for labels, _ in figures.all("vramline_pool_usage_bytes", job="7755.0")} == {"GPU:0", "GPU:0 #2"}


def test_a_recording_is_deleted_meanwhile(export, record, tmp_path):
    environment = script(tmp_path, device())
    record("gone.vram", environment)
    record("stays.vram", environment)
    exporter = export(environment=environment)
    exporter.until(lambda figures: all(figures.all("vramline_steps_total", job=job) for job in ("gone", "stays")))
    shutil.rmtree(tmp_path / "gone.vram", ignore_errors=True)
    shutil.rmtree(tmp_path / "gone.vram", ignore_errors=True)
    figures = exporter.until(lambda figures: not figures.all("vramline_pool_usage_bytes", job="gone"))
    assert figures.one("vramline_pool_usage_bytes", job="stays") == 5 * GIB


def test_the_format_is_what_the_reader_asks_for(export, tmp_path):
    exporter = export(environment=script(tmp_path, device()))
    answer, body = exporter.get()
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    plain = parse(body)
    answer, body = exporter.get(Accept=OPENMETRICS)
    assert answer.getheader("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    other = parse(body, is_openmetrics=True)
    assert plain.keys() == other.keys()
    assert other["hw_gpu_memory_usage_bytes"].unit == "bytes"
    assert (plain["vramline_device_info"].kind, other["vramline_device_info"].kind) == ("gauge", "info")
    answer, body = exporter.get(method="HEAD")
    assert answer.status == 200 and not body
    answer, body = exporter.get("/")
    assert answer.status == 200 and "/metrics" in body and answer.getheader("Content-Type").startswith("text/html")
    for path, method, status in (("/else", "GET", 404), ("/metrics", "POST", 405), ("/metrics/../etc", "GET", 404)):
        assert exporter.get(path, method)[0].status == status
    # The name of another site that points to this address.
    assert exporter.get(Host="evil.example")[0].status == 421
    assert exporter.get(Host="localhost:9999")[0].status == 200


def test_clients_that_hang_hold_nobody_up(export, tmp_path):
    exporter = export(environment=script(tmp_path, device()))
    hanging = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(60)]
    for number, connection in enumerate(hanging):
        connection.sendall([b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: 127"][number % 3])
    # One that asks and never reads, and one that sends without end.
    deaf = socket.create_connection(("127.0.0.1", exporter.port))
    deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    endless = socket.create_connection(("127.0.0.1", exporter.port))
    endless.sendall(b"GET /" + b"x" * 5000)
    assert b"414" in endless.recv(100)
    assert exporter.figures().one("vramline_driver_up") == 1
    for connection in [*hanging, deaf, endless]:
        connection.close()
    assert exporter.figures().one("vramline_driver_up") == 1


def test_a_token_is_needed_where_others_can_ask(binary, export, tmp_path):
    def refused(*arguments):
        done = subprocess.run([binary, "exporter", *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)
        assert "hint:" in done.stderr, done.stderr
        return done.returncode

    assert refused("--listen", "0.0.0.0:0") == 2
    short, file = tmp_path / "short", tmp_path / "token"
    short.write_text("secret")
    file.write_text("A-token-of-some-length\n")
    assert refused("--listen", "0.0.0.0:0", "--token-file", short) == 1
    assert refused("--listen", "0.0.0.0:0", "--token-file", tmp_path / "none") == 1
    exporter = export("--listen", "0.0.0.0:0", "--token-file", file, environment=script(tmp_path, device()))
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic A-token-of-some-length"}, {"Authorization": "Bearer"}):
        answer, body = exporter.get(**header)
        assert answer.status == 401 and answer.getheader("WWW-Authenticate") == "Bearer" and "GPU" not in body
    answer, body = exporter.get(Authorization="Bearer A-token-of-some-length", Host="any.name:80")
    assert answer.status == 200 and parse(body)
    assert exporter.get("/")[0].status == 200
    open_to_all = export("--listen", "0.0.0.0:0", "--no-token", environment=script(tmp_path, device()))
    assert open_to_all.get(Host="node-7")[0].status == 200
    # The port is taken.
    assert refused("--listen", str(exporter.port)) == 1


def test_the_text_file_is_whole_at_any_time(binary, tmp_path):
    environment = {**os.environ, **script(tmp_path, *[device()] * 8)}
    file = tmp_path / "vramline.prom"
    once = subprocess.run([binary, "exporter", "--textfile", file, "--once"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert once.returncode == 0 and not once.stdout, once.stderr
    assert len(parse(file.read_text())["hw_gpu_memory_usage_bytes"].samples) == 8
    printed = subprocess.run([binary, "exporter", "--once"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert parse(printed.stdout).keys() == parse(file.read_text()).keys()
    assert stat.S_IMODE(file.stat().st_mode) & 0o400
    command = [binary, "exporter", "--textfile", file, "--interval", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "every 1 s" in process.stdout.readline()
        versions, end = set(), time.monotonic() + PATIENCE
        while len(versions) < 3:
            assert time.monotonic() < end
            versions.add(file.stat().st_ino)
            assert len(parse(file.read_text())["hw_gpu_memory_usage_bytes"].samples) == 8
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    # Old figures would look like those of now.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["driver.json"]
    wrong = subprocess.run([binary, "exporter", "--textfile", tmp_path / "a.txt"], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 2 and ".prom" in wrong.stderr
    missing = subprocess.run([binary, "exporter", "--textfile", "no/such/a.prom", "--once"], cwd=tmp_path, capture_output=True, text=True)
    assert missing.returncode == 1 and "hint:" in missing.stderr


@pytest.mark.parametrize("can_warn", [True, False])
def test_a_text_file_that_cannot_be_removed_is_a_warning(binary, tmp_path, can_warn):
    file = tmp_path / "vramline.prom"
    said = tmp_path / "said" if can_warn else Path("/dev/full")
    with said.open("w") as stderr:
        command = [binary, "exporter", "--textfile", file, "--interval", "60"]
        process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **script(tmp_path, device())}, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert "every 60 s" in process.stdout.readline()
            file.unlink()
            file.mkdir()
            process.send_signal(signal.SIGINT)
            # Also where the warning itself cannot be written.
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.communicate()
    if can_warn:
        warning, hint = said.read_text().splitlines()
        assert warning.startswith(f"warning: cannot remove '{file}': ") and hint.startswith("hint: remove it")


def test_a_driver_that_hangs_or_is_not_there(export, tmp_path):
    missing = export(environment=script(tmp_path, error={"code": "library-missing", "detail": "no file"}))
    figures = missing.figures()
    assert figures.one("vramline_driver_up") == 0 and not figures.all("hw_gpu_memory_usage_bytes")
    # It is asked again: the driver may be loaded later.
    script(tmp_path, device())
    missing.until(lambda figures: figures.all("hw_gpu_memory_usage_bytes", device="GPU 0"))
    hanging = export(environment=script(tmp_path, device(), memory_takes_ms=3_600_000))
    assert hanging.figures().one("vramline_driver_up") == 0


def test_redacted_figures_name_nobody(export, record, tmp_path):
    environment = script(tmp_path, device())
    record("secretproject.vram", environment)
    exporter = export("--listen", "0", "--redact", environment=environment)
    figures = exporter.until(lambda figures: 5 * GIB in [value for _, value in figures.all("vramline_pool_usage_bytes")])
    for secret in ("secretproject", os.uname().nodename, str(tmp_path)):
        assert f'"{secret}' not in figures.text and f"/{secret}" not in figures.text
