"""The training job comes first: killed, stopped, out of disk, forked, it ends as it would have without us, and what it recorded is there.

Real processes throughout. Where a test needs a framework but not what it computes, a stand-in for PyTorch is put on the
path, so that the job is attached to in a tenth of a second; TensorFlow itself is used where its trace or its threads matter.
No test asserts time: the timeouts only keep a hang from lasting for ever.
"""

import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import killed
import pytest
from conftest import job_environment
from killed import SECONDS

# As much of PyTorch as the recorder touches: counters, and a hook that is called after each step.
TORCH = {
    "__init__.py": "from torch import _C, cuda, optim\n__version__ = '0.0'\n",
    "_C.py": """
        def _cuda_memoryStats(number):
            count = {"all": {"current": 1 << 20, "peak": 1 << 21}}
            return {"allocated_bytes": count, "reserved_bytes": count}
    """,
    "cuda.py": "is_initialized = lambda: True\ndevice_count = lambda: 1\nreset_peak_memory_stats = lambda number: None\n",
    "optim/__init__.py": "from torch.optim.optimizer import step\n",
    "optim/optimizer.py": """
        hooks = []
        register_optimizer_step_post_hook = hooks.append
        class Optimizer:
            param_groups, state = [], {}
        def step():
            for hook in hooks:
                hook(Optimizer, (), {})
    """,
}


class Jobs:
    """Runs jobs, alone and recorded, in a folder of their own."""

    def __init__(self, folder, binary):
        self.folder = folder
        self.binary = binary
        self.recording = folder / "job.vram"
        for name, text in TORCH.items():
            path = folder / "stand_in" / "torch" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        self.environment = job_environment(folder / "stand_in")

    def command(self, script, *arguments):
        """The command of a job: the text of a script."""
        path = self.folder / "job.py"
        path.write_text(textwrap.dedent(script))
        return [sys.executable, path, *arguments]

    def recorded(self, command, *options, to=None):
        """That command under `vramline run`."""
        return [self.binary, "run", "--no-report", "-o", to or self.recording, *options, "--", *command]

    def run(self, command, **variables):
        """Runs a command to its end."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def start(self, command):
        """Starts a command; its output is read by whoever asks."""
        return killed.start(command, cwd=self.folder, env=self.environment)

    def report(self, recording=None):
        """The report on a recording, which must open."""
        done = self.run([self.binary, "report", "--json", recording or self.recording])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def jobs(tmp_path, binary):
    """Jobs in a folder of their own."""
    return Jobs(tmp_path, binary)


def steps_of(report):
    """The numbers of the steps, in order."""
    return [step["step"] for step in report["steps"]]


def marks_of(report, kind):
    """The labels of the marks of a kind."""
    return [mark["label"] for mark in report["marks"] if mark["kind"] == kind]


def pid_of(job):
    """The process number that a job says first."""
    word, number = killed.line(job).split()
    assert word == "pid"
    return int(number)


def until(job, text):
    """What a job says up to a line that begins with a text."""
    said = ""
    while line := killed.line(job):
        said += line
        if line.startswith(text):
            return said
    pytest.fail(f"the job ended before it said '{text}': {said}{killed.end(job)}")


# Killed


def test_a_loop_that_is_killed_loses_no_announced_step(binary, tmp_path):
    chance = random.Random(9)
    announced = 0
    for number in range(15):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = killed.kill_fast(folder, chance)
        killed.check(job, binary)
        announced += job.announced + 1
    assert announced > 15


def test_a_fit_that_is_killed_loses_no_announced_step(binary, tmp_path):
    chance = random.Random(9)
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed.check(killed.kill_fit(folder, chance, binary), binary)


def test_the_training_finishes_when_the_tool_is_killed(jobs):
    job = jobs.start(jobs.recorded([sys.executable, "-c", killed.FIT, "200"]))
    pid = pid_of(job)
    begun = until(job, "step 3")
    job.kill()
    # The end of its output is the end of the training: nobody else holds the pipe.
    output, _ = killed.end(job)
    said = (begun + output).splitlines()
    assert said == [*(f"step {number}" for number in range(200)), "done"]
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    report = jobs.report()
    assert steps_of(report) == list(range(200))
    assert report["pools"][0]["from_start"] is True
    assert marks_of(report, "end") == ["exit"]
    assert json.loads((jobs.recording / "run.json").read_text())["exit"] is None


# Stopped


def test_a_fit_that_is_terminated_leaves_its_trace(jobs):
    # No window that ends by itself: only the signal can have it written.
    command = jobs.recorded([sys.executable, "-c", killed.FIT, "100000000"], "--trace", "all")
    job = jobs.start(command)
    pid = pid_of(job)
    begun = until(job, "step 3")
    os.kill(pid, signal.SIGTERM)
    output, errors = killed.end(job)
    assert job.returncode == 128 + signal.SIGTERM, errors
    report = jobs.report()
    assert steps_of(report)[: killed.announced_in(begun + output) + 1] == list(
        range(killed.announced_in(begun + output) + 1)
    )
    assert report["pools"][0]["from_start"] is True
    assert marks_of(report, "end")[0] == "SIGTERM"
    assert json.loads((jobs.recording / "run.json").read_text())["exit"] == {"signal": signal.SIGTERM}


WAITS = """
    import os, time, torch
    torch.optim.step()
    print("pid", os.getpid(), flush=True)
    time.sleep(1000)
"""


def test_a_signal_to_the_tool_reaches_the_job(jobs):
    job = jobs.start(jobs.recorded(jobs.command(WAITS)))
    pid_of(job)
    job.terminate()
    _, errors = killed.end(job)
    assert job.returncode == 128 + signal.SIGTERM, errors
    assert marks_of(jobs.report(), "end") == ["SIGTERM"]


STUCK = """
    import ctypes, os, sys, torch
    library = getattr(ctypes, sys.argv[1])(None)
    sleep, _ = os.pipe()
    print("pid", os.getpid(), flush=True)
    # Goes on after a signal, as long computations do.
    library.read(sleep, ctypes.create_string_buffer(1), 1)
"""


# One lets go of Python's lock while it is in C, the other does not: then nothing can be asked of Python any more.
@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_a_job_that_is_stuck_in_c_dies_too(jobs, library):
    job = jobs.start(jobs.recorded(jobs.command(STUCK, library)))
    os.kill(pid_of(job), signal.SIGTERM)
    _, errors = killed.end(job)
    assert job.returncode == 128 + signal.SIGTERM, errors
    jobs.report()


HANDLES = """
    import os, signal, sys, torch
    def handle(number, frame):
        print("handled", flush=True)
        sys.exit(5)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    signal.signal(signal.SIGTERM, handle)
    print("pid", os.getpid(), flush=True)
    signal.pause()
"""


def test_a_handler_of_the_programs_own_is_its_own(jobs):
    job = jobs.start(jobs.recorded(jobs.command(HANDLES)))
    os.kill(pid_of(job), signal.SIGTERM)
    output, errors = killed.end(job)
    assert (output, job.returncode) == ("handled\n", 5), errors


INTERRUPTED = """
    import sys, time, torch
    count = 0
    try:
        print("ready", flush=True)
        # Not one long sleep: Python does not notice a signal that arrives just before the call until the call returns.
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        count += 1
    try:
        time.sleep(0.5)
    except KeyboardInterrupt:
        count += 1
    print("interrupted", count, flush=True)
    if "again" in sys.argv:
        raise KeyboardInterrupt
"""


def typed_into(command, environment, folder):
    """Runs a command in a terminal of its own, types Ctrl-C when it is ready, and gives what it said and how it ended."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execve(command[0], [str(word) for word in command], environment)
        finally:
            os._exit(99)
    said = b""
    typed = False
    while True:
        if not select.select([terminal], [], [], SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
            pytest.fail(f"nothing more was said in {SECONDS} s after: {said.decode()}")
        try:
            read = os.read(terminal, 4096)
        except OSError:  # The other side is closed.
            break
        said += read
        if b"ready" in said and not typed:
            typed = True
            os.write(terminal, b"\x03")
        if not read:
            break
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("argument", ["once", "again"])
def test_ctrl_c_in_a_terminal_is_the_jobs(jobs, argument):
    command = jobs.command(INTERRUPTED, argument)
    alone, alone_code = typed_into(command, jobs.environment, jobs.folder)
    said, code = typed_into(jobs.recorded(command), jobs.environment, jobs.folder)
    assert "interrupted 1" in alone
    assert "interrupted 1" in said, said
    # A shell shows a death by signal N as 128 + N, and so do we.
    assert alone_code == (0 if argument == "once" else -signal.SIGINT)
    assert code == (0 if argument == "once" else 128 + signal.SIGINT)
    jobs.report()


# Forked

FORKS = """
    import multiprocessing, os, sys, torch

    def work(number):
        torch.optim.step()
        return number

    if __name__ == "__main__":
        codes = []
        for number in range(50):
            pid = os.fork()
            if pid == 0:
                if number % 4 == 0:
                    sys.exit(number % 7)
                torch.optim.step()
                if number % 4 == 1:
                    os._exit(number % 7)
                if number % 4 == 2:
                    sys.exit(number % 7)
                raise RuntimeError("in the child")
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            torch.optim.step()
        print(codes)
        context = multiprocessing.get_context("fork")
        with context.Pool(4) as pool:
            print(sum(pool.map(work, range(100))))
        sleeper = context.Process(target=__import__("time").sleep, args=(1000,))
        sleeper.start()
        sleeper.terminate()
        sleeper.join()
        print(sleeper.exitcode)
"""


def test_forks_end_as_they_would(jobs):
    command = jobs.command(FORKS)
    alone = jobs.run(command)
    # As many samples as the thread can take, so that forks meet it at work.
    recorded = jobs.run(jobs.recorded(command, "--rate", "1000"))
    assert recorded.returncode == alone.returncode == 0, alone.stderr + recorded.stderr
    assert recorded.stdout == alone.stdout
    assert recorded.stdout.splitlines()[-1] == str(-signal.SIGTERM)
    report = jobs.report()
    processes = report["run"]["processes"]
    parents = [process for process in processes if process["forked_from"] is None]
    assert len(parents) == 1
    assert {process["forked_from"] for process in processes} == {None, parents[0]["id"]}
    steps = [step for step in report["steps"] if step["pid"] == parents[0]["pid"]]
    assert [step["step"] for step in steps] == list(range(50))
    # Each child that did something has files of its own: three of four, and at least one worker.
    assert len(processes) >= 1 + 37 + 1


LOADER = """
    import os, sys
    import tensorflow as tf
    value = tf.Variable(tf.ones((256, 256)))
    codes = []
    for number in range(6):
        tf.matmul(value, value)
        pid = os.fork()
        if pid == 0:
            if number % 2:
                raise RuntimeError("in the child")
            sys.exit(3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(codes)
"""


def test_forks_of_tensorflow_end_as_they_would(jobs):
    command = jobs.command(LOADER)
    done = jobs.run(jobs.recorded(command, "--rate", "1000"))
    assert (done.stdout, done.returncode) == (f"{[3, 1] * 3}\n", 0), done.stderr
    jobs.report()


# No place to write

FILLS = """
    import os, sys, time, torch, vramline
    recording, ballast = sys.argv[1], sys.argv[2]
    with vramline.record(recording, rate=100.0) as rec:
        for number in range(3000):
            with rec.step(number):
                rec.mark("x" * 600)
            if number == 2980:
                # A write that took long, as on a busy machine, has left the rest to a thread, which must catch up to see the room.
                time.sleep(2)
                os.remove(ballast)
        print("done")
"""

# A file system of one mebibyte that only this job sees; what was recorded is copied out of it before it goes away.
ON_A_SMALL_DISK = """
    mount -t tmpfs -o size=1m small "$1" || exit 77
    head -c 300000 /dev/zero > "$1/ballast"
    out=$2
    shift 2
    "$@"
    code=$?
    cp -r small/*.vram "$out"
    exit $code
"""


def test_a_full_disk_costs_the_recording_only(jobs):
    small, out = jobs.folder / "small", jobs.folder / "out"
    small.mkdir()
    out.mkdir()
    job = jobs.command(FILLS, small / "loop.vram", small / "ballast")
    within = ["unshare", "-rm", "sh", "-c", textwrap.dedent(ON_A_SMALL_DISK), "sh", small, out]
    done = jobs.run([*within, *jobs.recorded(job, to=small / "job.vram")])
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    # One line for each recording, not one for each step.
    assert done.stderr.count(" is incomplete: ") <= 2, done.stderr
    for name in ("loop.vram", "job.vram"):
        report = jobs.report(out / name)
        steps = steps_of(report)
        assert 0 < len(steps) < 3000
        assert steps == sorted(set(steps)), "in order, each once"
        assert steps[0] == 0
        # There was room again at the end.
        assert steps[-1] == 2999, name
        for stream in (out / name).glob("*.arrows"):
            assert killed.read_whole(stream)[1] is False, stream


NOWHERE = """
    import os, sys, tempfile, torch, vramline
    # Without this Python would look for another place by itself.
    tempfile.tempdir = os.environ["TMPDIR"]
    with vramline.record(sys.argv[1], rate=100.0) as rec:
        for number in range(10):
            with rec.step(number):
                rec.mark("within")
    print("done", vramline.__version__)
"""


# Nobody can write below /proc, root neither.
@pytest.mark.parametrize("temporary", [None, "/proc"])
def test_a_folder_that_cannot_be_written(jobs, temporary):
    with tempfile.TemporaryDirectory(dir=jobs.folder) as elsewhere:
        command = jobs.command(NOWHERE, "/proc/loop.vram")
        done = jobs.run(jobs.recorded(command, to="/proc/job.vram"), TMPDIR=temporary or elsewhere)
        assert done.stdout.startswith("done"), done.stderr
        assert done.returncode == 0
        assert "cannot write '/proc/job.vram'" in done.stderr
        recordings = list(Path(elsewhere).glob("*.vram"))
        if temporary is None:
            assert len(recordings) == 2
            for recording in recordings:
                assert steps_of(jobs.report(recording)) == list(range(10))
        else:
            assert recordings == []
            assert "without a recording" in done.stderr


VANISHES = """
    import os, shutil, sys, torch, vramline
    with vramline.record("loop.vram", rate=200.0) as rec:
        for number in range(200):
            with rec.step(number):
                pass
            torch.optim.step()
            if number == 50:
                for name in ("loop.vram", "job.vram"):
                    # A sample may come in between.
                    while os.path.exists(name):
                        shutil.rmtree(name, ignore_errors=True)
            if number == 100 and "deeper" in sys.argv:
                os.rmdir(os.getcwd())
    with vramline.record("again") as rec, rec.step():
        pass
    print("done")
"""


@pytest.mark.parametrize("what", ["recordings", "deeper"])
def test_a_folder_that_vanishes(jobs, what):
    below = jobs.folder / "below"
    below.mkdir()
    command = ["sh", "-c", 'cd "$0" && exec "$@"', below, *jobs.command(VANISHES, what)]
    done = jobs.run(jobs.recorded(command, to=below / "job.vram"))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


ONE_NAME = """
    import sys, vramline
    with vramline.record("loop") as rec:
        for number in range(100):
            with rec.step(number):
                pass
    print(rec.path)
"""


def test_runs_into_one_name_at_once(jobs):
    command = jobs.recorded(jobs.command("import torch" + ONE_NAME.replace("\n    ", "\n")))
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: jobs.run(command), range(6)))
    assert [run.returncode for run in runs] == [0] * 6, runs
    loops = {run.stdout.strip() for run in runs}
    assert len(loops) == 6
    for loop in loops:
        report = jobs.report(loop)
        assert steps_of(report) == list(range(100))
        assert len(report["run"]["processes"]) == 1
    recordings = list(jobs.folder.glob("job*.vram"))
    assert len(recordings) == 6
    for recording in recordings:
        assert steps_of(jobs.report(recording)) == list(range(100))


# Secrets

SECRETS = [
    "AWS_SECRET_ACCESS_KEY",
    "WANDB_API_KEY",
    "HF_TOKEN",
    "DATABASE_URL",
    "TF_VAR_db",
    "TF_CLI_ARGS_apply",
    "TF_TOKEN_app_terraform_io",
    "TF_HTTP_PASSWORD",
    "TF_API_KEY",
    "JAX_AUTH",
    "PYTORCH_PASSWORD",
    "CUDA_SECRET",
    "NVIDIA_API_KEY",
    "SSH_AUTH_SOCK_X",
    "OMP_SECRET",
    "SLURM_JWT",
]

# The framework is imported, a step done, an exception raised: everything that writes has written.
LEAVES_ALL = """
    import os, torch, vramline
    torch.optim.step()
    with vramline.record("loop.vram", rate=100.0) as rec, rec.step(0):
        rec.mark("mark")
    pid = os.fork()
    if pid == 0:
        torch.optim.step()
        os._exit(0)
    os.waitpid(pid, 0)
    raise RuntimeError("at the end")
"""


def test_a_secret_is_nowhere(jobs):
    hidden = "s3cr3t-7f1d0c"
    variables = {name: f"{hidden}-{number}" for number, name in enumerate(SECRETS)}
    done = jobs.run(jobs.recorded(jobs.command(LEAVES_ALL)), TF_GPU_ALLOCATOR="cuda_malloc_async", **variables)
    assert done.returncode == 1
    assert hidden not in done.stdout + done.stderr
    files = [path for path in jobs.folder.rglob("*") if path.is_file() and ".vram" in str(path)]
    assert len(files) >= 6
    assert [path for path in files if hidden.encode() in path.read_bytes()] == []
    # What explains memory is there.
    assert b"cuda_malloc_async" in (jobs.recording / "run.json").read_bytes()


# Cut by others

CUT = """
    import glob, os, torch, vramline
    with vramline.record("loop.vram", rate=200.0) as rec:
        for number in range(2000):
            with rec.step(number):
                pass
            torch.optim.step()
            if number in (50, 1000):
                for name in glob.glob("*.vram/*.arrows"):
                    os.truncate(name, 100 if number == 50 else 0)
    with vramline.record("again") as rec, rec.step():
        pass
    print("done")
"""


def test_streams_that_somebody_cuts_cost_the_recording_only(jobs):
    """They are mapped into the job: a store where the file has ended is a signal, not an error."""
    done = jobs.run(jobs.recorded(jobs.command(CUT)))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert done.stderr.count(" is incomplete: ") == 2, done.stderr
    assert steps_of(jobs.report(jobs.folder / "again.vram")) == [0]


# A signal that is none of ours ends the job as it would have, also where the recorder has an answer to its own.
FAULT = """
    import mmap, os, torch, vramline
    with vramline.record("loop.vram") as rec:
        for number in range(100):
            with rec.step(number):
                pass
        file = os.open("file", os.O_RDWR | os.O_CREAT)
        os.truncate("file", 4096)
        page = mmap.mmap(file, 4096)
        os.truncate("file", 0)
        page[0] = 1
"""


def test_faults_of_the_job_are_the_jobs(jobs):
    done = jobs.run(jobs.command(FAULT))
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert steps_of(jobs.report(jobs.folder / "loop.vram")) == list(range(100))


# The clock jumps

CLOCK = """
    #define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    long jump_seconds = 0;
    int clock_gettime(clockid_t clock, struct timespec *time) {
        long result = syscall(SYS_clock_gettime, clock, time);
        if (clock == CLOCK_REALTIME) time->tv_sec += jump_seconds;
        return (int)result;
    }
"""

# An hour back while the trace is written, two hours on when it is over.
JUMPS = """
    import ctypes, time
    import keras, numpy as np
    jump = ctypes.c_long.in_dll(ctypes.CDLL(None), "jump_seconds")
    class Jumps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            jump.value = {3: -3600, 40: 3600}.get(batch, jump.value)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    begin = time.time()
    model.fit(np.ones((480, 16)), np.ones((480, 1)), batch_size=8, verbose=0, callbacks=[Jumps()])
    assert time.time() - begin > 3000
    print("done")
"""


def test_a_clock_that_jumps(jobs):
    source, library = jobs.folder / "clock.c", jobs.folder / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = jobs.run(jobs.recorded(jobs.command(JUMPS)), LD_PRELOAD=str(library))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    report = jobs.report()
    assert steps_of(report) == list(range(60))
    assert all((step["peak_bytes"] or step["current_bytes"]) >= step["current_bytes"] > 0 for step in report["steps"])
    # What took place before and after was told by the clock that nobody sets.
    times = [step["begin_ns"] for step in report["steps"]]
    assert times == sorted(times)


# Read by others


def test_a_killed_stream_is_read_by_others_as_it_is(jobs):
    """What lies behind the last message are zeros, which are the end of a stream."""
    import duckdb
    import pyarrow

    job = jobs.start(jobs.command(killed.FAST, "fast.vram"))
    until(job, "step 50")
    job.kill()
    announced = max(50, killed.announced_in(killed.end(job)[0]))
    (path,) = jobs.folder.glob("fast.vram/marks-*.arrows")
    marks = pyarrow.ipc.open_stream(path).read_all()
    assert duckdb.sql("SELECT max(step) FROM marks").fetchall()[0][0] >= announced
    assert marks.to_pandas().step.max() >= announced


def test_a_torn_stream_is_read_up_to_the_tear(jobs):
    """What docs/reference/recording.md says of other readers."""
    import duckdb
    import pyarrow

    done = jobs.run(jobs.command("import sys" + ONE_NAME.replace("\n    ", "\n")))
    recording = jobs.folder / done.stdout.strip()
    (marks,) = recording.glob("marks-*.arrows")
    whole, is_torn = killed.read_whole(marks)
    assert (whole.num_rows, is_torn) == (100, False)
    assert pyarrow.ipc.open_stream(marks).read_all().num_rows == 100
    written = marks.read_bytes()
    # In the description of the last message, then in its rows.
    last = written.rindex(b"\xff\xff\xff\xff")
    for cut, error in ((last + 100, pyarrow.ArrowInvalid), (len(written) - 10, OSError)):
        marks.write_bytes(written[:cut])
        with pytest.raises(error):
            pyarrow.ipc.open_stream(marks).read_all()
        rows, is_torn = killed.read_whole(marks)
        assert (rows.num_rows, is_torn) == (99, True)
    assert rows.to_pandas().step.tolist() == list(range(99))
    assert duckdb.connect().sql("SELECT max(step) FROM rows").fetchall() == [(98,)]
    report = jobs.report(recording)
    assert steps_of(report) == list(range(99))
    assert "torn-tail" in [warning["code"] for warning in report["warnings"]]
