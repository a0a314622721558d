"""What `vramline exporter` costs: resident memory and processor time while it is scraped, on a machine with 8 GPUs and 200 processes.

    python benches/exporter.py [--minutes 60] [--every 5] [--write docs/proof/exporter.md]

The GPUs are those of the tests' stub of NVML (`crates/vramline/tests/it/stub_nvml.c`), and the processes are real: 192 that sleep, and
eight ranks of a job under `vramline run`, one for each GPU, which record ten steps and ten samples a second. Needs the package installed and a C compiler.
As root it runs in a PID namespace of its own, so that the exporter sees the processes of this benchmark only. Nothing is asserted.
"""

import argparse
import datetime
import http.client
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("VRAMLINE_BIN", ROOT / ".venv/bin/vramline")).resolve()
GPUS, PROCESSES = 8, 200
INSIDE = "VRAMLINE_BENCH_INSIDE"

JOB = """
import os, sys, time
from vramline.frameworks import counters
from vramline.recording import session
job = session.session(__import__("pathlib").Path(os.environ["VRAMLINE_RECORD"]))
rank, mib, step = int(os.environ["RANK"]), 1 << 20, 0
counters.read_sampled = lambda: [(f"GPU:{rank}", (200 + step % 7) * mib + rank, 207 * mib, None, 300 * mib, 700 * mib, None)]
job.sample(0.1)
while True:
    time.sleep(0.1)
    begin = time.monotonic_ns() - 100_000_000
    job.mark("step", phase="train", how="api", step=step, batches=1, begin_ns=begin, read=counters.read_sampled())
    step += 1
"""
LAUNCH = 'for rank in 0 1 2 3 4 5 6 7; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=8 "$1" job.py & echo $! >> ranks; done; wait'


def environment(folder):
    return os.environ | {"LD_LIBRARY_PATH": str(folder), "STUB_NVML_PIDS": str(folder / "pids"), "VRAMLINE_FAKE_DRIVER": ""}


def stub(folder):
    source = ROOT / "crates/vramline/tests/it/stub_nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-DMANY", "-o", folder / "libnvidia-ml.so.1", source], check=True)


def resident(pid):
    """Resident memory of a process and its highest value so far, in MiB, and the part that belongs to files."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM", "RssFile"))}


def processor(pid):
    """Processor time of a process in seconds, its threads that have ended included."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, answer.status
    connection.close()
    return body.decode()


def ended(process):
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def measure(folder, minutes, every):
    stub(folder)
    (folder / "job.py").write_text(JOB)
    sleepers = [subprocess.Popen(["sleep", "infinity"]) for _ in range(PROCESSES - GPUS)]
    command = [BINARY, "run", "-o", "job.vram", "--no-report", "--trace", "off", "--", "sh", "-c", LAUNCH, "sh", sys.executable]
    job = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
    ranks = folder / "ranks"
    while not ranks.exists() or len(ranks.read_text().split()) < GPUS:
        time.sleep(0.1)
    pids = [int(pid) for pid in ranks.read_text().split()] + [process.pid for process in sleepers]
    (folder / "pids").write_text("\n".join(map(str, pids)))
    port = free_port()
    exporter = subprocess.Popen([BINARY, "exporter", "--listen", str(port)], cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
    try:
        time.sleep(5)
        scrape(port)
        begin, used = time.monotonic(), processor(exporter.pid)
        times, sizes, memory, text = [], [], [], ""
        while time.monotonic() - begin < minutes * 60:
            time.sleep(max(0.0, begin + every * (len(times) + 1) - time.monotonic()))
            asked = time.monotonic()
            text = scrape(port)
            times.append(time.monotonic() - asked)
            sizes.append(sum(not line.startswith("#") for line in text.splitlines()))
            memory.append(resident(exporter.pid)["VmRSS"])
        took, spent = time.monotonic() - begin, processor(exporter.pid) - used
        final = resident(exporter.pid)
        steps = sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("vramline_steps_total"))
        recording = sum(file.stat().st_size for file in (folder / "job.vram").iterdir() if file.is_file()) / 2**20
    finally:
        for process in [exporter, job, *sleepers]:
            ended(process)
    assert text.count("\nhw_gpu_memory_usage_bytes{") == GPUS and text.count("\nvramline_pool_limit_bytes{") == GPUS, text
    return [
        "| Figure | Measured | Bar |",
        "|---|---|---|",
        f"| resident memory, highest | {final['VmHWM']:.1f} MiB, of which {final['RssFile']:.1f} MiB are the program's file | 20 MiB |",
        f"| resident memory, after the first minute and at the end | {memory[min(len(memory), int(60 / every)) - 1]:.1f} MiB, {memory[-1]:.1f} MiB | |",
        f"| processor time | {spent:.2f} s in {took / 60:.1f} min: {100 * spent / took:.3f} % of a core | 0.5 % |",
        f"| processor time of one scrape | {1000 * spent / len(times):.1f} ms | |",
        f"| answer to a scrape: median, 99th percentile | {1000 * statistics.median(times):.0f} ms, {1000 * sorted(times)[int(len(times) * 0.99)]:.0f} ms | |",
        f"| scrapes | {len(times):,}, one every {every:g} s | |",
        f"| series | {sizes[-1]} | |",
        f"| the job at the end | {steps:,.0f} steps of {GPUS} ranks, a recording of {recording:.1f} MiB | |",
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between two scrapes")
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this file")
    args = parser.parse_args()
    if os.geteuid() == 0 and INSIDE not in os.environ:
        apart = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, *sys.argv]
        sys.exit(subprocess.run(apart, env=os.environ | {INSIDE: "1"}).returncode)
    with tempfile.TemporaryDirectory() as folder:
        table = measure(pathlib.Path(folder), args.minutes, args.every)
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    apart = "in a PID namespace of its own" if INSIDE in os.environ else "among all processes of the machine"
    page = [
        "# Cost of the exporter",
        "",
        "Written by `benches/exporter.py`. `vramline exporter` is scraped on a machine with 8 GPUs, which the tests' stub of NVML plays, and",
        "200 real processes: 192 that sleep, and eight ranks of a recorded job, one for each GPU, with ten steps and ten samples a second each. The",
        "stub answers at once: the time that a real driver takes for a call is not included.",
        "",
        *table,
        "",
        f"{version}, {apart}; {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}; load of the machine at the end"
        f" {os.getloadavg()[1]:.1f}; {datetime.date.today()}.",
        "",
    ]
    print("\n".join(page))
    if args.write:
        args.write.write_text("\n".join(page))


if __name__ == "__main__":
    main()
