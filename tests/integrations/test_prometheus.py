"""Real Prometheus scrapes the exporter: its figures are those of `top`, and the rules and the dashboard of the documentation work with them.

Not in the everyday suite, because it needs Debian's package `prometheus`, which brings `promtool`.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
GIB = 1 << 30
PATIENCE = 120

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus is not installed, and `make test-integrations` could not install it: that needs Debian and root",
)

# One job trains close to its limit; the other runs out of memory.
JOB = """
    import os, pathlib, sys, time
    from vramline.frameworks import counters
    from vramline.recording import session
    job = session.session(pathlib.Path(os.environ["VRAMLINE_RECORD"]))
    read = [("GPU:0", 5 << 30, 39 << 30, None, 8 << 30, 40 << 30, None)]
    counters.read_sampled = lambda: read
    job.sample(0.1)
    for step in range(10**9):
        job.mark("step", phase="train", how="api", step=step, batches=1, begin_ns=time.monotonic_ns() - 10_000_000, read=read)
        time.sleep(0.1)
        if sys.argv[1] == "fails" and step == 20:
            job.mark("exception", "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
                     "of which 12.50 GiB is free.")
            sys.exit(1)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Prometheus:
    """A Prometheus of our own, with the example configuration of the documentation."""

    def __init__(self, folder, target):
        for file in MONITORING.iterdir():
            shutil.copy(file, folder)
        config = folder / "prometheus.yml"
        text = config.read_text()
        assert "127.0.0.1:10190" in text and "scrape_interval: 15s" in text
        text = text.replace("127.0.0.1:10190", target).replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
        config.write_text(text)
        self.port = free_port()
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression):
        """The series of an expression, as pairs of labels and value."""
        return [(one["metric"], one["value"][1]) for one in self.ask("query", query=expression)["result"]]

    def until(self, expression):
        """The series of an expression, when there are some."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if found := self.query(expression):
                    return found
            except OSError:
                assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end, expression
            time.sleep(0.5)

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stderr.close()


@pytest.fixture(scope="module")
def machine(binary, tmp_path_factory):
    """A fake GPU, two real jobs, the exporter and Prometheus."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "job.py").write_text(textwrap.dedent(JOB))
    device = {"name": "NVIDIA H200", "total": 140 * GIB, "reserved": GIB, "processes": [{"pid": 4_000_000_001, "used": 50 * GIB}]}
    (folder / "driver.json").write_text(json.dumps({"driver_version": "580.159.04", "devices": [device]}))
    environment = os.environ | {"VRAMLINE_FAKE_DRIVER": str(folder / "driver.json")}
    quiet = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = free_port()
    started = [subprocess.Popen([binary, "exporter", "--listen", str(port)], **quiet)]
    for name in ("close", "fails"):
        command = [binary, "run", "-o", f"{name}.vram", "--no-report", "--trace", "off", "--", sys.executable, "job.py", name]
        started.append(subprocess.Popen(command, **quiet))
    data = tmp_path_factory.mktemp("prometheus")
    prometheus = Prometheus(data, f"127.0.0.1:{port}")
    try:
        prometheus.until('vramline_steps_total{job="close"}')
        prometheus.until('vramline_job_last_failure_timestamp_seconds{job="fails"}')
        yield prometheus, port, folder, environment
    finally:
        prometheus.end()
        for process in started:
            process.terminate()
            process.wait(PATIENCE)


def test_the_figures_are_those_of_top(machine, binary):
    prometheus, _, folder, environment = machine
    done = subprocess.run([binary, "top", "--json"], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    top = json.loads(done.stdout)
    gpu = next(device for device in top["devices"] if device["name"] == "GPU 0")
    ((labels, limit),) = prometheus.query("hw_gpu_memory_limit_bytes")
    assert (labels["host"], labels["device"], float(limit)) == (top["host"], "GPU 0", gpu["total_bytes"])
    ((_, used),) = prometheus.query("hw_gpu_memory_usage_bytes")
    assert float(used) == gpu["total_bytes"] - gpu["free_bytes"]
    parts = prometheus.query('vramline_device_memory_bytes{device="GPU 0"}')
    assert {labels["part"]: float(value) for labels, value in parts} == {part["part"]: part["bytes"] for part in gpu["parts"]}
    path = str(folder / "close.vram")
    row = next(row for row in top["processes"] if row["job"] is not None and top["jobs"][row["job"]]["path"] == path)
    for metric, field in (
        ("usage", "in_use_bytes"),
        ("reserved", "pool_bytes"),
        ("peak", "peak_bytes"),
        ("limit", "limit_bytes"),
        ("headroom", "headroom_bytes"),
    ):
        ((labels, value),) = prometheus.query(f'vramline_pool_{metric}_bytes{{job="close"}}')
        assert float(value) == row[field], metric
        assert (labels["device"], labels["pool"]) == (row["device"], "GPU:0")
    steps = [float(value) for _, value in prometheus.query('vramline_steps_total{job="close"}')]
    assert 0 < steps[0] <= row["step"] + 100


def test_the_alerts_fire(machine):
    prometheus, *_ = machine
    prometheus.until('ALERTS{alertname="GpuOutOfMemory", alertstate="firing", job="fails"}')
    # It fires after two minutes only.
    prometheus.until('ALERTS{alertname="GpuMemoryHeadroomLow", job="close"}')
    (group,) = prometheus.ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"} and len(group["rules"]) == 4
    (alert,) = prometheus.ask("rules")["groups"][0]["rules"][2]["alerts"]
    assert alert["annotations"]["summary"].startswith("fails ran out of memory on ")


def test_the_dashboard_has_data_everywhere(machine):
    prometheus, *_ = machine
    dashboard = json.loads((MONITORING / "vramline-grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    assert len(expressions) > 10
    for expression in expressions:
        # The driver lists none of these processes, so what they hold beside their pools is unknown.
        if "vramline_process_memory_bytes" not in expression:
            prometheus.until(expression.replace("$host", ".*").replace("$job", ".*").replace("$__rate_interval", "1m"))
    for variable in dashboard["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", variable.get("definition", "")):
            assert all(found[2] in labels for labels, _ in prometheus.until(found[1].replace("$host", ".*")))


def test_promtool_has_nothing_to_say(machine):
    _, port, *_ = machine
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        body = answer.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for check in (
        ["check", "rules", "vramline-alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "vramline-alerts.test.yml"],
    ):
        done = subprocess.run(["promtool", *check], cwd=MONITORING, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
