"""One recording of a job with several processes, each under a `vramline run` of its own, with real TensorFlow and JAX.

Hosts are told apart by name: each process gets a UTS namespace of its own, in which the kernel itself answers with that name.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import assert_adds_up, job_environment

JOBS = Path(__file__).parent / "jobs"
SECONDS = 300


def on_host(name):
    """The beginning of a command that runs on a host of this name."""
    for options in (["--uts"], ["--map-root-user", "--uts"]):
        start = ["unshare", *options, "sh", "-c", 'printf %s "$0" > /proc/sys/kernel/hostname && exec "$@"', name]
        if shutil.which("unshare") and subprocess.run([*start, "true"], capture_output=True, check=False).returncode == 0:
            return start
    pytest.skip("this machine does not let a process have a host name of its own")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def facts_of(recording):
    """What each process says of itself, by its rank and its task."""
    return [json.loads(path.read_text()) for path in sorted(recording.glob("process-*.json"))]


def report_on(binary, recording, *options):
    done = subprocess.run([binary, "report", recording, "--json", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert_adds_up(document)
    return document


def said(out):
    return next(json.loads(line) for line in out.splitlines() if line.startswith("{"))


# The tasks of a cluster of TensorFlow: type, index, host. Their ranks are 0, 1, 2.
TASKS = [("chief", 0, "node-a"), ("worker", 0, "node-b"), ("worker", 1, "node-c")]


class Cluster:
    """Workers of TensorFlow on three hosts, which write one recording in a folder."""

    def __init__(self, binary, folder):
        self.recording = folder / "job.vram"
        self._binary = binary
        chief, *workers = [f"127.0.0.1:{port}" for port in free_ports(len(TASKS))]
        self._cluster = {"chief": [chief], "worker": workers}

    def start(self, kind, index, host, how, *options):
        config = {"cluster": self._cluster, "task": {"type": kind, "index": index}}
        command = [self._binary, "run", "-o", self.recording, "--job", "mwms", "--label", "team=vision", *options]
        command += ["--trace", "steps=2", "--", sys.executable, JOBS / "workers.py", how]
        environment = job_environment(TF_CONFIG=json.dumps(config))
        return subprocess.Popen(
            [*on_host(host), *command],
            env=environment,
            cwd=self.recording.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def cluster(binary, tmp_path_factory):
    """Three workers of TensorFlow on three hosts; one is killed after the last common step and started again."""
    cluster = Cluster(binary, tmp_path_factory.mktemp("cluster"))
    running = [cluster.start(*task, "killed" if task[1:] == (1, "node-c") else "whole") for task in TASKS]
    ended = [(process, *process.communicate(timeout=SECONDS)) for process in running]
    again = cluster.start("worker", 1, "node-c", "alone")
    ended.append((again, *again.communicate(timeout=SECONDS)))
    return cluster.recording, TASKS, ended


def test_three_hosts_write_one_recording(cluster):
    recording, _, ended = cluster
    codes = [process.returncode for process, _, _ in ended]
    assert codes == [0, 0, 137, 0], [err for _, _, err in ended]
    assert [path.name for path in recording.parent.glob("*.vram")] == ["job.vram"]
    # Each launcher has a manifest and a stream of its own; the first one has the usual names.
    assert (recording / "run.json").exists()
    assert (recording / "driver.arrows").exists()
    assert len(list(recording.glob("run-*.json"))) == 3
    assert len(list(recording.glob("driver-*.arrows"))) == 3
    assert not [path for path in recording.parent.iterdir() if path.name.startswith(".job")]
    for _, _, err in ended:
        assert "recording of job 'mwms'" in err or "recording: " in err


def test_each_process_says_who_it_is(cluster):
    recording, tasks, ended = cluster
    truths = [said(out) for _, out, _ in ended[:3]]
    identities = {(each["identity"]["role"], each["identity"]["task_index"]): each for each in facts_of(recording)}
    assert set(identities) == {("chief", 0), ("worker", 0), ("worker", 1)}
    for (kind, index, host), truth in zip(tasks, truths, strict=True):
        facts = identities[kind, index]
        identity = facts["identity"]
        assert truth["host"] == host
        assert (identity["host"], identity["job"], identity["world_size"]) == (host, "mwms", truth["workers"])
        assert facts["rank"] == identity["rank"]
        if truth["rank"] is not None:
            assert identity["rank"] == truth["rank"]
        assert identity["launcher"] == "tf-config"
        assert identity["labels"] == {"team": "vision"}
    assert sorted(each["rank"] for each in facts_of(recording)) == [0, 1, 2, 2]


def test_a_restarted_worker_belongs_to_another_launcher(cluster):
    recording, _, _ = cluster
    manifests = [json.loads(path.read_text()) for path in [recording / "run.json", *recording.glob("run-*.json")]]
    runs = {manifest["identity"]["run"]: manifest for manifest in manifests}
    assert len(runs) == 4
    twice = [each["identity"]["run"] for each in facts_of(recording) if each["rank"] == 2]
    assert sorted(runs[run]["exit"] == {"signal": 9} for run in twice) == [False, True]


def test_readers_take_the_figures_of_each_host(cluster, binary):
    recording, _, _ = cluster
    report = report_on(binary, recording)
    ranks = report["ranks"]
    assert [(each["rank"], each["host"], each["task_role"]) for each in ranks["ranks"]] == [
        (0, "node-a", "chief"), (1, "node-b", "worker"), (2, "node-c", "worker"),
    ]  # fmt: skip
    assert (ranks["job"], ranks["world_size"], ranks["missing"], ranks["earlier_attempts"]) == ("mwms", 3, [], 1)
    for rank in range(3):
        alone = report_on(binary, recording, "--rank", str(rank))
        assert max(pool["lifetime_peak_bytes"] for pool in alone["pools"]) == ranks["ranks"][rank]["peak_bytes"]
    for verb in (["export", recording, "--to", "csv", "-o", recording.parent / "out"], ["top", recording, "--json"]):
        done = subprocess.run([binary, *verb], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (verb, done.stderr)


def test_the_worker_that_runs_out_first_is_named(binary, tmp_path):
    """The sum of the others fails when the connection to it is lost: `UnavailableError`, or the coordination service ends them."""
    cluster = Cluster(binary, tmp_path)
    how = {"node-b": ("exhausts", "--limit", "64MiB")}
    running = [cluster.start(*task, *how.get(task[2], ("whole",))) for task in TASKS]
    ended = [(process, *process.communicate(timeout=SECONDS)) for process in running]
    errors = [err for _, _, err in ended]
    assert all(process.returncode != 0 for process, _, _ in ended), errors
    assert ["ResourceExhaustedError" in err for err in errors] == [False, True, False], errors
    ranks = report_on(binary, cluster.recording)["ranks"]
    first = ranks["first_failure"]
    assert (first["rank"], first["host"], ranks["main"]) == (1, "node-b", 1)
    assert (first["at_once"], first["later"]) == ([], [])
    assert sorted(first["lost_peers"] + first["killed"]) == [0, 2]
    ends = [each["end"] for each in ranks["ranks"]]
    assert ends[1] == "out-of-memory"
    assert {ends[0], ends[2]} <= {"collective", "killed"}
    text = subprocess.run([binary, "report", cluster.recording], capture_output=True, text=True, check=True).stdout
    said = " ".join(text.split())
    assert "Rank 1 on node-b ran out of memory first. After it, rank" in said
    # The part that the report explains is about that rank, and says what it wanted.
    assert "Rank 1 on node-b" in text.splitlines()
    assert "an allocation of 256 MiB for Tile" in said


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the version of JAX for Python 3.10 is not tested here")
def test_jax_tells_the_rank_once_it_is_connected(binary, tmp_path):
    recording = tmp_path / "job.vram"
    address = f"127.0.0.1:{free_ports(1)[0]}"
    environment = job_environment(lean=False, JAX_PLATFORMS="cpu")

    def start(number):
        command = [binary, "run", "-o", recording, "--job", "pair", "--", sys.executable, JOBS / "jax_pair.py", address, str(number)]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = [start(number) for number in range(2)]
    ended = [(process, *process.communicate(timeout=SECONDS)) for process in running]
    assert [process.returncode for process, _, _ in ended] == [0, 0], [err for _, _, err in ended]
    assert [path.name for path in tmp_path.glob("*.vram")] == ["job.vram"]
    facts = facts_of(recording)
    assert sorted((each["rank"], each["identity"]["world_size"]) for each in facts) == [(0, 2), (1, 2)]
    assert {each["identity"]["launcher"] for each in facts} == {"jax"}
    assert {each["identity"]["job"] for each in facts} == {"pair"}
    assert sorted(said(out)["rank"] for _, out, _ in ended) == [0, 1]
    report_on(binary, recording)


SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "2"}


def recorded(binary, folder, *options, **variables):
    """`vramline run` of a command that does nothing."""
    environment = job_environment() | variables
    command = [binary, "run", "-o", folder / "job.vram", *options, "--", "true"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def task(number):
    return SLURM | {"SLURM_PROCID": str(number), "SLURM_NODEID": str(number)}


def test_tasks_of_one_step_of_slurm_join(binary, tmp_path):
    for number in range(2):
        assert recorded(binary, tmp_path, **task(number)).returncode == 0
    # A requeue of the same job is an attempt in the same recording.
    assert recorded(binary, tmp_path, **task(0), SLURM_RESTART_COUNT="1").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["job.vram"]
    assert len(list((tmp_path / "job.vram").glob("run-*.json"))) == 2


def test_another_job_gets_another_name_and_says_why(binary, tmp_path):
    assert recorded(binary, tmp_path, **task(0)).returncode == 0
    other = recorded(binary, tmp_path, **task(1) | {"SLURM_JOB_ID": "78"})
    assert other.returncode == 0
    assert "belongs to job '77.0', and this run to job '78.0'" in other.stderr
    alone = recorded(binary, tmp_path)
    assert "already exists" in alone.stderr
    # One name for two jobs: nothing tells them apart but the user.
    named = recorded(binary, tmp_path, "--job", "mine", **task(0))
    assert "belongs to job '77.0', and this run to job 'mine'" in named.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-2.vram", "job-3.vram", "job-4.vram", "job.vram"]


def test_programs_of_an_interactive_job_do_not_mix(binary, tmp_path):
    shell = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    for _ in range(2):
        assert recorded(binary, tmp_path, **shell).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-2.vram", "job.vram"]


def test_a_launcher_whose_program_is_missing_leaves_the_others(binary, tmp_path):
    assert recorded(binary, tmp_path, "--job", "mine").returncode == 0
    command = [binary, "run", "-o", tmp_path / "job.vram", "--job", "mine", "--", "/no/such/program"]
    done = subprocess.run(command, env=job_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert [path.name for path in (tmp_path / "job.vram").glob("run*.json")] == ["run.json"]


def test_foreign_files_do_no_harm(binary, tmp_path):
    folder = tmp_path / "job.vram"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    done = recorded(binary, tmp_path, "--job", "mine")
    assert done.returncode == 0
    assert "already exists" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    # A recording of the job into which somebody else writes too.
    (tmp_path / "job-2.vram" / "run-node-x.json").write_text("{")
    (tmp_path / "job-2.vram" / "run-node-1-2.json").write_text("{")
    assert recorded(binary, tmp_path, "--job", "mine").returncode == 0
    assert len(list((tmp_path / "job-2.vram").glob("run-*.json"))) == 3


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
def test_a_folder_without_permission_is_not_joined(binary, tmp_path):
    # The tool and this folder must be reachable for the user without rights.
    tool = tmp_path / "vramline"
    shutil.copy(binary, tool)
    for above in [tmp_path, *tmp_path.parents]:
        if above == Path(tempfile.gettempdir()):
            break
        above.chmod(0o755)
    tmp_path.chmod(0o777)
    assert recorded(binary, tmp_path, "--job", "mine").returncode == 0
    (tmp_path / "job.vram").chmod(0o555)
    start = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*start, tool, "run", "-o", tmp_path / "job.vram", "--job", "mine", "--", "true"]
    done = subprocess.run(command, env=job_environment(), cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "belongs to the same job but cannot be written" in done.stderr
    assert (tmp_path / "job-2.vram").is_dir()


def gather(binary, *arguments):
    command = [binary, "gather", *arguments]
    return subprocess.run(command, env=job_environment(), capture_output=True, text=True, check=False)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_recordings_of_hosts_are_gathered(binary, tmp_path, fixtures):
    """Each process of the fixture is that of another host, whose clock is a day off."""
    hosts = []
    day = 86_400 * 10**9
    for number, name in enumerate(["node-a", "node-b"]):
        host = tmp_path / f"{name}.vram"
        shutil.copytree(fixtures / "tf221_cpu_keras.vram", host)
        run = json.loads((host / "run.json").read_text())
        run["host"] = name
        run["identity"] = {"job": "mine", "run": f"{name}-1-{number}", "rank": number}
        run["clocks"]["begin"]["realtime_ns"] += number * day
        (host / "run.json").write_text(json.dumps(run))
        for path in list(host.iterdir()):
            kind, dash, rest = path.name.partition("-")
            if dash:
                _, pid, start = rest.rsplit("-", 2)
                path.rename(host / f"{kind}-{name}-{pid}-{start}")
        hosts.append(host)
    before = [contents(host) for host in hosts]
    joined = tmp_path / "job.vram"
    done = gather(binary, *hosts, "-o", joined)
    assert done.returncode == 0, done.stderr
    assert "recording of job 'mine'" in done.stderr
    assert "2 runs, 2 processes, 2 hosts" in done.stderr
    assert [contents(host) for host in hosts] == before
    assert (joined / "run-node-b-1-1.json").read_bytes() == before[1]["run.json"]
    assert sorted([*before[0] | before[1], "run-node-b-1-1.json"]) == sorted(contents(joined))
    # The peaks are those of the parts.
    report = report_on(binary, joined)
    parts = [report_on(binary, host) for host in hosts]
    peaks = [pool["peak_bytes"] for part in parts for pool in part["pools"]]
    assert sorted(pool["peak_bytes"] for pool in report["pools"]) == sorted(peaks)
    # Both hosts have a device with the same name.
    assert [line["host"] for line in report["ledger"] if line["part_of"] is None] == ["node-a", "node-b"]
    assert {line["host"] for line in report["ledger"]} == {"node-a", "node-b"}
    text = subprocess.run([binary, "report", joined, "--full"], capture_output=True, text=True, check=True).stdout
    for name in ("node-a", "node-b"):
        assert sum(line.strip().startswith("The ledger of CPU:0") and f" on {name} at " in line for line in text.splitlines()) == 1
    alone = subprocess.run([binary, "report", hosts[0], "--full"], capture_output=True, text=True, check=True).stdout
    assert "The ledger of CPU:0" in alone and " on node-a at " not in alone
    subprocess.run([binary, "export", joined, "--to", "dataset", "-o", tmp_path / "set"], capture_output=True, check=True)
    for name in ("node-a", "node-b"):
        (rows,) = (tmp_path / "set").glob(f"job=mine/recording=*/host={name}")
        assert {"devices", "ledger", "pools", "processes"} <= {path.stem for path in rows.iterdir()}
    assert len(list((tmp_path / "set").glob("job=mine/recording=*/host=*/jobs.parquet"))) == 1
    # A second time, and with a recording that holds a part already.
    assert gather(binary, *hosts, "-o", joined).returncode == 1
    again = gather(binary, joined, hosts[1], "-o", tmp_path / "again.vram")
    assert again.returncode == 1 or contents(tmp_path / "again.vram") == contents(joined)


def test_what_is_not_one_job_is_not_gathered(binary, tmp_path):
    for name, job in [("a", "one"), ("b", "two"), ("c", None), ("d", None)]:
        options = ["--job", job] if job else []
        command = [binary, "run", "-o", tmp_path / f"{name}.vram", *options, "--", "true"]
        subprocess.run(command, env=job_environment(), capture_output=True, check=True)
    a, b, c, d = (tmp_path / f"{name}.vram" for name in "abcd")
    target = tmp_path / "job.vram"
    refused = [
        ([a, b], "belongs to job 'one'"),
        ([a, b, "--job", "one"], "belongs to job 'one'"),
        ([c, d], "nothing in"),
        ([a, a], "are the same recording"),
        ([a, tmp_path / "none.vram"], "cannot read"),
        ([a, JOBS], "is not a recording"),
    ]
    for arguments, why in refused:
        done = gather(binary, *arguments, "-o", target)
        assert (done.returncode, why in done.stderr) == (1, True), (arguments, done.stderr)
        assert not target.exists()
    assert gather(binary, a).returncode == 2
    insisted = gather(binary, c, d, "--job", "mine", "-o", target)
    assert insisted.returncode == 0, insisted.stderr
    assert json.loads((target / "run.json").read_text())["identity"]["job"] == "mine"
    newer = json.loads((a / "run.json").read_text()) | {"schema": 99}
    (a / "run.json").write_text(json.dumps(newer))
    assert "schema 99" in gather(binary, a, c, "--job", "one", "-o", tmp_path / "e.vram").stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_local_recording_is_copied_at_the_end(binary, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = job_environment() | {"TMPDIR": str(scratch)}

    def run(script):
        command = [binary, "run", "-o", tmp_path / "job.vram", "--local-first", "on", "--job", "mine", "--", "sh", "-c", script]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    look = 'echo "$VRAMLINE_RECORD"; ls "$VRAMLINE_RECORD"; cat job.vram/run.json; echo 1 > "$VRAMLINE_RECORD/exception-node-1-2.txt"'
    done = run(look)
    assert done.returncode == 0, done.stderr
    local, *there = done.stdout.splitlines()
    assert Path(local).parent.parent == scratch
    assert "run.json" in there
    # Whoever reads the shared folder while the job runs learns where the files are.
    assert f'"local": "{local}"' in done.stdout
    assert "recording to" in done.stderr
    assert "is copied to" in done.stderr
    assert list(scratch.iterdir()) == []
    manifest = json.loads((tmp_path / "job.vram" / "run.json").read_text())
    assert (manifest["local"], manifest["exit"]) == (None, {"code": 0})
    assert {"run.json", "exception-node-1-2.txt"} <= {path.name for path in (tmp_path / "job.vram").iterdir()}
    # A launcher that joins hands over to its own files.
    assert run("true").returncode == 0
    assert len(list((tmp_path / "job.vram").glob("run-*.json"))) == 1
    assert len(list((tmp_path / "job.vram").glob("driver*.arrows"))) == 2
    # The job is never failed by a copy that fails.
    lost = run("rm -rf job.vram")
    assert lost.returncode == 0
    assert "the recording stays in" in lost.stderr
    assert "vramline gather" in lost.stderr
    kept = next(scratch.glob("vramline-*/job.vram"))
    assert json.loads((kept / "run.json").read_text())["exit"] == {"code": 0}
    assert subprocess.run([binary, "gather", kept, "-o", tmp_path / "again.vram"], check=False).returncode == 0


def test_runs_of_a_job_without_an_output_have_one_name(binary, tmp_path):
    for number in range(2):
        command = [binary, "run", "--", "true"]
        subprocess.run(command, env=job_environment() | task(number), cwd=tmp_path, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["true-77.0.vram"]


def test_labels_are_pairs(binary, tmp_path):
    assert recorded(binary, tmp_path, "--label", "team=vision", "--label", "commit=a=b").returncode == 0
    manifest = json.loads((tmp_path / "job.vram" / "run.json").read_text())
    assert manifest["identity"]["labels"] == {"team": "vision", "commit": "a=b"}
    for wrong in ("team", "=vision", ""):
        refused = recorded(binary, tmp_path, "--label", wrong)
        assert (refused.returncode, "KEY=VALUE" in refused.stderr) == (2, True)
