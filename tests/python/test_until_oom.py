"""PyTorch after its trace: the allocator goes on recording live blocks, a failure is written with its owners, and a running job answers
`vramline snapshot`. There is no GPU here: a stand-in for PyTorch allocates (`torch_stand_in`).
"""

import json
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch_stand_in
from conftest import job_environment

MIB = 1 << 20

# The frames of a module's call are others while hooks exist, as in PyTorch. `grow` says how large the activations of a step are.
JOB = """
    import atexit, os, signal, sys, time
    import torch
    from torch import nn
    from torch.nn.modules import module as calls
    from torch.optim.optimizer import Optimizer
    def trained(steps, size, every_step=lambda step: None):
        for step in range(steps):
            activations = []
            def ran(name):
                line = 1800 if calls._global_forward_hooks else 1750
                frames = [("forward", "/v/site-packages/torch/nn/modules/linear.py", 125),
                    ("_call_impl", "/v/site-packages/torch/nn/modules/module.py", line), ("forward", f"/me/model.py", 7 + len(name)),
                    ("main", "/me/train.py", 40)]
                activations.append(torch.Tensor(size(step), frames=frames))
                return activations[-1]
            net.ran = ran
            net(None)
            for parameter in net.parameters():
                parameter.grad = torch.Tensor(parameter.size)
            for each in activations:
                each.free()
            optimizer.step()
            for parameter in net.parameters():
                parameter.grad.free()
                parameter.grad = None
            every_step(step)
    class Part(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name
            self._parameters["weight"] = torch.Tensor(65536, frames=[("__init__", "/me/model.py", 3)])
        def forward(self, x):
            return net.ran(self.name)
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.mlp = Part("attention"), Part("mlp")
        def forward(self, x):
            return self.mlp(self.attention(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Module()
            for number in range(3):
                setattr(self.layers, str(number), Block())
        def forward(self, x):
            for block in self.layers._modules.values():
                x = block(x)
            return x
    torch.cuda.init()
    net = Net()
    optimizer = Optimizer(net.parameters())
"""

GROWS = "trained(400, lambda step: 16384 if step < 20 else 16384 + (step - 20) * 8192)"
LEAKS = """
    kept = []
    def keep(step):
        kept.append(torch.Tensor(65536, frames=[("main", "/me/train.py", 44)]))
    trained(400, lambda step: 16384, keep)
"""
CAUGHT = """
    def refuse(step):
        if step == 8:
            for _ in range(300):
                try:
                    torch.Tensor(1 << 30, frames=[("main", "/me/train.py", 70)])
                except torch.OutOfMemoryError:
                    pass
            print(torch._C.calls.count("snapshot"))
    trained(12, lambda step: 16384, refuse)
"""


class Jobs:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.stand_in = torch_stand_in.install(folder)

    def command(self, script, name, *options):
        path = self.folder / f"{name}.py"
        path.write_text(textwrap.dedent(JOB) + textwrap.dedent(script))
        return [self.binary, "run", "--no-report", "-o", self.folder / f"{name}.vram", *(() if "--trace" in options else ("--trace", "steps=3")), *options,
            "--", sys.executable, path]  # fmt: skip

    def environment(self, limit=8 * MIB):
        return job_environment(self.stand_in, STAND_IN_LIMIT=str(limit))

    def run(self, script, name, *options, limit=8 * MIB):
        command = self.command(script, name, *options)
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(limit), cwd=self.folder, timeout=120, check=False
        )

    def read(self, verb, name, *options):
        done = subprocess.run([self.binary, verb, self.folder / f"{name}.vram", "--json", *options], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def text(self, verb, name, *options):
        return subprocess.run([self.binary, verb, self.folder / f"{name}.vram", *options], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def jobs(binary, tmp_path_factory):
    return Jobs(binary, tmp_path_factory.mktemp("until_oom"))


@pytest.fixture(scope="module")
def grown(jobs):
    done = jobs.run(GROWS, "grown")
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr, done.stderr
    return jobs.read("oom", "grown")


def owners(held):
    return {(owner["role"], owner["layer"]): owner for owner in held["owners"]}


def test_a_late_failure_is_explained_by_owner(jobs, grown):
    (failure,) = grown["failures"]
    assert (failure["outcome"], failure["verdict"]) == ("ended-job", "exhausted")
    held = failure["held"]
    assert held["shown_by"] == "failure" and held["after_step"] > 50
    assert held["in_use_bytes"] == sum(owner["bytes"] for owner in held["owners"]) + held["slack_bytes"]
    found = owners(held)
    # The variables are named by their addresses at that moment, not at the end of the trace.
    for kind in ("attention", "mlp"):
        assert found["parameters", f"layers.*.{kind}"]["bytes"] == 3 * 65536
        assert found["optimizer", f"layers.*.{kind}"]["bytes"] == 3 * 65536
    attention = found["activations", "layers.*.attention"]
    assert attention["evidence"] == "the same call stack as in the trace of the first steps"
    assert attention["before_bytes"] in (2 * 16384, 3 * 16384) and attention["bytes"] > 20 * attention["before_bytes"]
    assert "activations of layers.*" in held["growth"] and "grew from" in held["growth"]
    assert held["growth"] in grown["headline"]
    assert "limit the size of a batch" in failure["advice"][0]["text"]


def test_the_first_screen_names_the_owners(jobs, grown):
    text = jobs.text("oom", "grown")
    assert len(text.splitlines()) <= 32 and all(len(line) <= 100 for line in text.splitlines())
    assert "layers.*.attention" in text and "first steps" in text and "Held when the allocation failed, after step" in text
    assert "layers.*.mlp" in jobs.text("oom", "grown", "--full")
    redacted = jobs.text("oom", "grown", "--redact", "--full")
    assert "attention" not in redacted and "train.py" not in redacted and "layers" not in redacted


def test_the_report_shows_the_failure_as_the_highest_moment(jobs, grown):
    report = jobs.read("report", "grown")
    (pool,) = report["pools"]
    held = grown["failures"][0]["held"]
    assert (pool["moment"], pool["peak_bytes"]) == ("failure", held["in_use_bytes"])
    at = pool["at_peak"]
    assert at["named_bytes"] + at["unnamed_bytes"] + at["slack_bytes"] + at["before_recording_bytes"] == pool["peak_bytes"]
    assert at["by_role"]["activations"] > 6 * MIB
    windows = [(window["opened_for"], window["state"]) for window in report["windows"]]
    assert windows[0] == ("start", "written") and windows[-1] == ("oom", "written")
    assert "when an allocation failed" in " ".join([report["headline"], *report["explanation"]])


def test_a_leak_names_its_line(jobs):
    done = jobs.run(LEAKS, "leaked")
    assert done.returncode == 1, done.stderr
    document = jobs.read("oom", "leaked")
    (failure,) = document["failures"]
    held = failure["held"]
    leaked = held["owners"][0]
    assert leaked["source"].endswith("train.py:44 main") and leaked["count"] > 60 and leaked["bytes"] == leaked["count"] * 65536
    assert leaked["before_count"] < 8
    assert "the program keeps" in document["headline"] and "train.py:44" in document["headline"]
    assert "loss.item()" in failure["advice"][0]["text"]


def test_a_failure_that_the_program_catches_is_a_note_and_costs_little(jobs):
    done = jobs.run(CAUGHT, "caught")
    assert done.returncode == 0, done.stderr
    # One is the window's own. Of 300 failures only the first ones are written.
    assert int(done.stdout) <= 1 + 4
    document = jobs.read("oom", "caught")
    assert document["verdict"]["word"] == "went-on"
    assert {failure["outcome"] for failure in document["failures"]} == {"went-on"}
    assert len(list((jobs.folder / "caught.vram").glob("moment-*"))) <= 4
    report = jobs.read("report", "caught")
    assert [warning["code"] for warning in report["warnings"] if "memory" in warning["code"] or "refused" in warning["code"]] == ["refused-at-first"]


def test_a_failure_in_the_window_is_explained_by_the_trace(jobs):
    script = "trained(3, lambda step: 16384 if step < 2 else 4 << 20)"
    done = jobs.run(script, "early")
    assert done.returncode == 1, done.stderr
    (failure,) = jobs.read("oom", "early")["failures"]
    assert failure["held"]["shown_by"] == "trace"
    assert owners(failure["held"])["parameters", "layers.*.mlp"]["bytes"] == 3 * 65536
    assert not list((jobs.folder / "early.vram").glob("moment-*"))


def test_a_job_that_is_killed_says_what_it_held(jobs):
    script = LEAKS.replace("kept.append", "step == 80 and os.kill(os.getpid(), signal.SIGKILL)\n        step > 8 and time.sleep(0.01)\n        kept.append")
    done = jobs.run("from vramline.attach import history\nhistory._FIRST_RISE = 0.0\n" + textwrap.dedent(script), "killed")
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    document = jobs.read("oom", "killed")
    assert document["verdict"]["word"] == "killed" and not document["failures"]
    held = document["killed"]
    assert (held["signal"], held["shown_by"]) == (9, "snapshot") and held["last_in_use_bytes"] > 4 * MIB
    assert held["owners"][0]["source"].endswith("train.py:44 main") and held["owners"][0]["count"] > 20
    assert "signal 9 (SIGKILL) ended the job" in document["headline"] and "train.py:44" in document["headline"]
    assert "train.py:44" in jobs.text("oom", "killed")


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ((), ["all", "snapshot", None, "state"]),
        (("--until-oom", "on"), ["all", "snapshot", None, "state"]),
        (("--until-oom", "off"), ["all", "snapshot", None]),
        (("--trace", "off"), []),
        (("--trace", "off", "--until-oom", "on"), ["state"]),
    ],
)
def test_the_switch(jobs, options, calls):
    script = "trained(8, lambda step: 16384)\nprint([call for call in torch._C.calls])"
    done = jobs.run(script, "switch", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(calls)


def test_call_stacks_that_cost_too_much_are_dropped(jobs):
    """The stand-in has no function that gathers a stack, so that its upper bound counts, and many allocations a second exceed 1 %."""
    script = """
        seen = []
        record = torch.cuda.memory._record_memory_history
        from vramline.attach import history
        history._COUNTED_SECONDS, history._MOST_SHARE = 0.2, {share}
        def wait(step):
            seen.append(torch._C.has_context)
            time.sleep(0.05)
        trained(20, lambda step: 16384, wait)
        print(seen[-1])
    """
    for share, kept in ((1e-9, "False"), (0.9, "True")):
        done = jobs.run(textwrap.dedent(script).replace("{share}", str(share)), f"cost{kept}")
        assert (done.returncode, done.stdout.strip()) == (0, kept), done.stderr
        marks = jobs.read("report", f"cost{kept}")["marks"]
        (said,) = [mark["label"] for mark in marks if "until memory runs out" in mark["label"]]
        assert ("without call stacks" in said) == (kept == "False") and "of the time" in said


OWN = """
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
    {own}
    try:
        trained(400, lambda step: 16384 if step < 6 else 4 << 20)
    except torch.OutOfMemoryError:
        print(len(seen), [call for call in torch._C.calls])
"""


def test_a_program_with_an_observer_or_a_history_of_its_own_keeps_them(jobs):
    done = jobs.run(OWN.replace("{own}", ""), "observer")
    assert done.stdout.strip() == "1 ['all', 'snapshot', None, 'state', 'snapshot']", done.stderr
    own = "torch.cuda.memory._record_memory_history(enabled='all')"
    done = jobs.run(OWN.replace("{own}", own), "own")
    # Theirs replaces ours, and nothing of us touches it afterwards.
    assert done.stdout.strip() == "1 ['all', 'snapshot', None, 'all']", done.stderr


def test_an_observer_that_fails_does_not_reach_the_program(jobs):
    script = """
        import vramline.attach.moments as moments
        def none(*_): raise KeyError("no")
        moments.Moments.take = moments.Moments.may_take = none
        try:
            trained(400, lambda step: 16384 if step < 6 else 4 << 20)
        except torch.OutOfMemoryError:
            print("as usual")
    """
    done = jobs.run(textwrap.dedent(script), "broken")
    assert (done.returncode, done.stdout.strip()) == (0, "as usual"), done.stderr


def test_a_forked_child_writes_no_moment(jobs):
    script = """
        trained(6, lambda step: 16384)
        child = os.fork()
        if child == 0:
            try:
                torch.Tensor(1 << 30)
            except torch.OutOfMemoryError:
                os._exit(0)
        os.waitpid(child, 0)
    """
    done = jobs.run(textwrap.dedent(script), "forked")
    assert done.returncode == 0, done.stderr
    assert not list((jobs.folder / "forked.vram").glob("moment-*"))


# --- vramline snapshot ---

WAITS = """
    kept = [torch.Tensor(2 << 20, frames=[("main", "/me/train.py", 90)])]
    trained(6, lambda step: 16384)
    open("ready", "w").close()
    while not os.path.exists("enough"):
        trained(1, lambda step: 16384, lambda step: time.sleep(0.02))
"""


def ask(jobs, name, *options):
    return subprocess.run([jobs.binary, "snapshot", jobs.folder / f"{name}.vram", *options], capture_output=True, text=True, timeout=60, check=False)


def test_a_running_job_answers(jobs):
    job = subprocess.Popen(jobs.command(WAITS, "waits"), env=jobs.environment(), cwd=jobs.folder, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (jobs.folder / "ready").exists():
            assert job.poll() is None and time.monotonic() < deadline, job.stderr.read()
            time.sleep(0.05)
        done = ask(jobs, "waits", "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        (process,) = document["processes"]
        assert (document["answered"], document["asked"], process["state"], process["framework"]) == (1, 1, "taken", "torch")
        assert process["devices"][0]["current_bytes"] >= 2 * MIB
        text = ask(jobs, "waits")
        assert text.returncode == 0 and "snapshot" in text.stdout and "1 of 1 running processes answered" in text.stdout
        report = jobs.read("report", "waits")
        asked = [window for window in report["windows"] if window["opened_for"] == "request"]
        assert [window["window"] for window in asked] == [process["window"], process["window"] + 1]
        assert all(window["is_read"] and window["peak_bytes"] >= 2 * MIB for window in asked)
    finally:
        (jobs.folder / "enough").touch()
        assert job.wait(timeout=60) == 0
    late = ask(jobs, "waits")
    assert late.returncode == 1 and "the job has ended" in late.stderr


def test_a_job_that_cannot_answer_is_said(jobs):
    script = 'open("ready2", "w").close()\nwhile not os.path.exists("enough2"): time.sleep(0.05)'
    job = subprocess.Popen(jobs.command(script, "silent", "--rate", "0"), env=jobs.environment(), cwd=jobs.folder)
    try:
        deadline = time.monotonic() + 60
        while not (jobs.folder / "ready2").exists():
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        done = ask(jobs, "silent", "--timeout", "1", "--json")
        assert done.returncode == 1 and "no process answered within 1 s" in done.stderr and "--rate 0" in done.stderr
        assert json.loads(done.stdout)["processes"][0]["state"] == "no-answer"
    finally:
        (jobs.folder / "enough2").touch()
        assert job.wait(timeout=60) == 0
    assert ask(jobs, "nowhere").returncode == 1
    assert ask(jobs, "silent", "--timeout", "0").returncode == 2


def started(jobs, command, ready, environment):
    """Starts a job and waits until it writes the file `ready`."""
    job = subprocess.Popen(command, env=environment, cwd=jobs.folder, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (jobs.folder / ready).exists():
        assert job.poll() is None and time.monotonic() < deadline, job.stderr.read()
        time.sleep(0.05)
    return job


def test_a_job_that_records_to_a_local_folder_first_is_asked_there(jobs):
    """The folder that everybody sees has only a manifest until the job has ended."""
    script = WAITS.replace("ready", "ready-local").replace("enough", "enough-local")
    job = started(jobs, jobs.command(script, "local", "--local-first", "on"), "ready-local", jobs.environment())
    shared = jobs.folder / "local.vram"
    try:
        done = ask(jobs, "local", "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        (process,) = document["processes"]
        assert (document["answered"], process["state"]) == (1, "taken")
        local = json.loads((shared / "run.json").read_text())["local"]
        assert document["path"] == local
        assert [path.name for path in shared.iterdir()] == ["run.json"]
        # As another machine sees it, the local folder is not there, or it is that of another run.
        other = jobs.folder / "other.vram"
        other.mkdir()
        for path in (jobs.folder / "gone.vram", jobs.folder / "grown.vram"):
            run = json.loads((shared / "run.json").read_text()) | {"host": "node-b", "local": str(path)}
            (other / "run.json").write_text(json.dumps(run))
            there = ask(jobs, "other")
            assert there.returncode == 1
            assert "they are in local folders until it has ended" in there.stderr
            assert f"`vramline snapshot {path}` on node-b" in there.stderr
    finally:
        (jobs.folder / "enough-local").touch()
        assert job.wait(timeout=60) == 0
    late = ask(jobs, "local")
    assert late.returncode == 1 and "the job has ended" in late.stderr
    assert jobs.read("report", "local")["windows"]


def test_jax_answers_with_its_live_arrays(jobs):
    pytest.importorskip("jax")
    (jobs.folder / "jax_job.py").write_text(
        "import os, time, jax.numpy as jnp\n"
        "x = jnp.ones((1 << 20,), jnp.float32)\n"
        "open('ready3', 'w').close()\n"
        "while not os.path.exists('enough3'): time.sleep(0.05)\n"
    )
    command = [jobs.binary, "run", "--no-report", "-o", jobs.folder / "jax.vram", "--", sys.executable, jobs.folder / "jax_job.py"]
    job = started(jobs, command, "ready3", job_environment(lean=False, JAX_PLATFORMS="cpu"))
    try:
        done = ask(jobs, "jax", "--json")
        assert done.returncode == 0, done.stderr
        (process,) = json.loads(done.stdout)["processes"]
        assert (process["state"], process["framework"]) == ("taken", "jax"), process
        report = jobs.read("report", "jax")
        (asked,) = [window for window in report["windows"] if window["opened_for"] == "request"]
        assert asked["is_read"] and asked["peak_bytes"] >= 4 * MIB
    finally:
        (jobs.folder / "enough3").touch()
        assert job.wait(timeout=60) == 0


def test_tensorflow_answers_with_a_trace_of_its_next_steps(jobs):
    pytest.importorskip("tensorflow")
    (jobs.folder / "tf_job.py").write_text(
        "import os, time, tensorflow as tf\n"
        "x = tf.Variable(tf.ones([1 << 20]))\n"
        "@tf.function\n"
        "def step():\n"
        "    x.assign_add(tf.random.normal([1 << 20]))\n"
        "for _ in range(4): step()\n"
        "open('ready4', 'w').close()\n"
        "while not os.path.exists('enough4'):\n"
        "    step(); time.sleep(0.02)\n"
    )
    command = [jobs.binary, "run", "--no-report", "--trace-seconds", "1", "-o", jobs.folder / "tf.vram", "--", sys.executable, jobs.folder / "tf_job.py"]
    job = started(jobs, command, "ready4", job_environment())
    try:
        deadline, state = time.monotonic() + 60, None
        # The first window is open for some seconds, because the loop has no optimizer.
        while time.monotonic() < deadline and state != "opened":
            done = ask(jobs, "tf", "--json")
            assert done.returncode == 0, done.stderr
            (process,) = json.loads(done.stdout)["processes"]
            state = process["state"] if process["reason"] is None else None
            time.sleep(0.3)
        assert (state, process["framework"]) == ("opened", "tensorflow")
    finally:
        time.sleep(1)
        (jobs.folder / "enough4").touch()
        assert job.wait(timeout=60) == 0
    asked = [window for window in jobs.read("report", "tf")["windows"] if window["opened_for"] == "request"]
    assert asked and asked[-1]["window"] == process["window"]


def test_pinned_memory_has_a_ledger_of_its_own(jobs):
    script = "import torch.pinning\ntrained(6, lambda step: 16384)\ntime.sleep(0.5)"
    done = jobs.run(script, "pinned")
    assert done.returncode == 0, done.stderr
    report = jobs.read("report", "pinned")
    # It comes last, although it is larger than the pool of the device.
    assert [pool["device"] for pool in report["pools"]] == ["GPU:0", "HOST:pinned"]
    assert report["pools"][1]["peak_bytes"] == 4 * MIB
    lines = {line["line"]: line for line in report["ledger"] if line["device"] == "HOST:pinned"}
    assert (lines["pool"]["bytes"], lines["pool"]["source"]) == (8 * MIB, "framework")
    assert (lines["in use"]["bytes"], lines["in use"]["source"]) == (3 * MIB, "framework")
    assert lines["device total"]["bytes"] is None and "pinned memory is memory of the host" in lines["device total"]["reason"]
