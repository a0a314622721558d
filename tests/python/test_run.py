"""`vramline run` against real TensorFlow, on its pool allocator for the CPU, and real JAX. `recorded_jobs.py` runs the jobs."""

import importlib.util
import json
import subprocess

import pytest
from recorded_jobs import DEVICE, IS_OLDER, MIB, MODELS, POOL, rows, uses, within

import vramline as package


def only_written_trace(job):
    (path,) = job.files("trace-*/**/*.xplane.pb")
    return job.recording / path


# --- Steps, epochs and phases in every situation ---


def steps_of(marks):
    names = ("phase", "how", "step", "batches", "epoch")
    return [tuple(mark[name] for name in names) for mark in marks if mark["kind"] == "step"]


def keras(phase, batches, epoch=None):
    """Batches of Keras, one a step, counted from zero."""
    return [(phase, "keras", number, 1, epoch) for number in range(batches)]


HAS_TF_KERAS = importlib.util.find_spec("tf_keras") is not None

# What each section of `situations.py` must have been: its steps, its epochs, and the phases that ended in it.
SITUATIONS = {
    "fit": (keras("train", 3, 0) + keras("train", 3, 1), [0, 1], ["fit"]),
    "validation": (
        keras("train", 2, 0) + keras("train", 2, 1) + keras("validation", 2, 1) + keras("train", 2, 2),
        [0, 1, 2],
        ["evaluate", "fit"],
    ),
    "evaluate": (keras("validation", 3), [], ["evaluate"]),
    "predict": (keras("predict", 3), [], ["predict"]),
    "several fits": (
        keras("train", 2, 0) + keras("train", 2, 2) + keras("train", 2, 3),
        [0, 2, 3],
        ["fit", "fit"],
    ),
    "another model": (keras("train", 2, 0), [0], ["fit"]),
    "train_step": (keras("train", 3, 0), [0], ["fit"]),
    "run_eagerly": (keras("train", 3, 0), [0], ["fit"]),
    "run_eagerly, train_step": (keras("train", 3, 0), [0], ["fit"]),
    # Ten batches, and six to validate with, four at a time: a step has the number of its last batch.
    "steps_per_execution": (
        [
            (phase, "keras", last, batches, epoch)
            for epoch in (0, 1)
            for phase, last, batches in [
                ("train", 3, 4),
                ("train", 7, 4),
                ("train", 9, 2),
                ("validation", 3, 4),
                ("validation", 5, 2),
            ]
        ],
        [0, 1],
        ["evaluate", "evaluate", "fit"],
    ),
    "early stopping": (keras("train", 2, 0) + keras("train", 2, 1), [0, 1], ["fit"]),
    "on_batch": (keras("train", 3) + keras("validation", 2) + keras("predict", 1), [], []),
    "unknown length": (keras("train", 3, 0), [0], ["fit"]),
    "inside a callback": (
        keras("train", 2, 0) + keras("predict", 2) + keras("train", 2, 1) + keras("predict", 2),
        [0, 1],
        ["predict", "predict", "fit"],
    ),
    "an exception in the data": (keras("train", 3, 0), [], []),
    # The steps of loops are numbered through.
    "an eager loop": ([("train", "inferred", number, 1, None) for number in range(4)], [], []),
    "a loop with tf.function": ([("train", "inferred", number, 1, None) for number in range(4, 8)], [], []),
    "accumulation": ([("train", "inferred", number, 1, None) for number in range(8, 11)], [], []),
    "functions": ([], [], []),
}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("keras", marks=uses("situations")),
        pytest.param(
            "tf_keras",
            marks=[
                uses("situations, tf_keras"),
                pytest.mark.skipif(not HAS_TF_KERAS, reason="tf_keras (Keras 2) is not installed"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("name", SITUATIONS)
def test_steps_epochs_and_phases_are_those_that_took_place(name, version, job):
    marks = within(job.marks, job.facts["sections"][name])
    steps, epochs, phases = SITUATIONS[name]
    assert steps_of(marks) == steps
    assert [mark["epoch"] for mark in marks if mark["kind"] == "epoch"] == epochs
    assert [mark["label"] for mark in marks if mark["kind"] == "phase"] == phases


@uses("situations")
@pytest.mark.parametrize("name", sorted(SITUATIONS.keys() - {"an exception in the data", "functions"}))
def test_bytes_in_use_at_a_steps_end_are_what_the_script_read_there(name, job):
    section = job.facts["sections"][name]
    steps = [mark for mark in within(job.marks, section) if mark["kind"] == "step"]
    current = [step["current_bytes"] for step in steps]
    # Between the two readings a thread of TensorFlow may let a last block go, or take the next batch where Keras prefetches.
    assert sum(ours != theirs for ours, theirs in zip(current, section["current"], strict=True)) <= 1
    assert {step["device"] for step in steps} == {DEVICE}


@uses("situations")
def test_calls_of_functions_that_are_no_steps_are_calls(job):
    def calls(name):
        marks = within(job.marks, job.facts["sections"][name])
        return [(mark["label"], mark["phase"], mark["step"]) for mark in marks if mark["kind"] == "call"]

    assert calls("accumulation") == [("accumulate", "train", number) for number in range(6)]
    assert calls("functions") == [("<lambda>", "other", number) for number in range(3)]
    # Functions that Keras calls in a batch are its own business.
    assert calls("fit") == calls("on_batch") == []


@uses("situations")
def test_the_report_has_every_step_epoch_and_phase(job):
    report = job.report
    expected = [step for steps, _, _ in SITUATIONS.values() for step in steps]
    names = ("phase", "how", "step", "batches", "epoch")
    assert [tuple(step[name] for name in names) for step in report["steps"]] == expected
    assert [epoch["epoch"] for epoch in report["epochs"]] == [
        number for _, epochs, _ in SITUATIONS.values() for number in epochs
    ]
    # Fits are counted through; what is outside of them belongs to none.
    fits = [step["fit"] for step in report["steps"]]
    assert sorted({fit for fit in fits if fit}) == list(range(1, max(filter(None, fits)) + 1))
    for phase in report["phases"]:
        steps = [step for step, fit in zip(expected, fits, strict=True) if (step[0], fit) == (phase["phase"], phase["fit"])]
        assert (phase["steps"], phase["batches"]) == (len(steps), sum(step[3] for step in steps))
    assert {phase["phase"] for phase in report["phases"]} == {"train", "validation", "predict"}


@uses("situations")
def test_the_highest_peak_is_tensorflows_own(job):
    assert max(mark["peak_bytes"] for mark in job.marks if mark["peak_bytes"] is not None) == job.facts["peak"]
    assert job.pool["peak_bytes"] == job.pool["lifetime_peak_bytes"] == job.facts["peak"]
    # Every step is in the trace, so each has a peak of its own; the highest of all may lie between two steps.
    peaks = [step["peak_bytes"] for step in job.report["steps"]]
    assert max(peaks) <= job.facts["peak"]
    assert all(step["current_bytes"] <= step["peak_bytes"] for step in job.report["steps"])


@uses("situations")
def test_trace_all_lasts_to_the_end_of_the_program(job):
    assert job.labels("trace")[:2] == ["tensorflow: trace started", "trace stopped: the program ended"]
    assert job.labels("end") == ["exit"]
    assert job.report["run"]["exit"] == "code 0"
    # The profiler of TensorFlow 2.15 drops events of long traces; that is said.
    assert [warning["code"] for warning in job.report["warnings"] if not IS_OLDER] == []


@uses("situations")
def test_counters_are_sampled_in_the_background(job):
    samples = rows(package.load(job.recording).samples)
    counted = [sample for sample in samples if sample["current_bytes"] is not None]
    assert {sample["device"] for sample in counted} == {DEVICE}
    assert max(sample["peak_bytes"] for sample in counted) <= job.facts["peak"]
    # Until TensorFlow is used nothing is asked of it.
    assert samples[0]["current_bytes"] is None
    assert all(sample["resident_bytes"] > 0 for sample in samples)


# --- Exceptions ---


@uses("fails", "fails, alone")
def test_an_exception_in_an_epoch_ends_the_job_as_without_a_recorder(jobs):
    recorded, alone = jobs
    assert (recorded.code, recorded.out) == (alone.code, alone.out) == (1, "")
    assert recorded.said() == alone.said()
    assert "RuntimeError: enough is enough" in alone.said()


@uses("fails")
def test_an_exception_in_an_epoch_leaves_steps_exception_and_trace(job):
    assert steps_of(job.marks) == keras("train", 3, 0)
    assert job.labels("exception") == ["RuntimeError: enough is enough"]
    (path,) = job.files("exception-*.txt")
    assert (job.recording / path).read_text(encoding="utf-8") == "RuntimeError: enough is enough"
    assert job.labels("trace")[1] == "trace stopped: the program ended"
    assert only_written_trace(job).stat().st_size > 0
    assert job.pool["from_start"] is True
    assert job.report["run"]["exit"] == "code 1"
    assert {row["role"] for row in job.report["inventory"]} == {"parameters", "optimizer", "state"}


@uses("fails in a function", "fails in a function, alone")
def test_what_tensorflow_says_of_a_failed_op_does_not_mention_the_recorder(jobs):
    """TensorFlow prints the stack in which the op was made; that is noted while our hook is in the call."""
    recorded, alone = jobs
    assert recorded.code == alone.code == 1
    assert recorded.said() == alone.said()
    assert "assertion failed" in recorded.err
    (text,) = recorded.labels("exception")
    assert "attach" not in text
    assert steps_of(recorded.marks) == []


# --- The trace of a run, and roles ---


@pytest.mark.parametrize("name", [pytest.param(name, marks=uses(f"model {name}")) for name in MODELS])
class TestTheTraceOfAModel:
    def test_it_begins_before_the_first_allocation(self, name, job):
        assert job.pool["name"] == POOL
        assert job.pool["from_start"] is True
        assert job.pool["before_recording"] == {"at_begin_bytes": 0, "freed_bytes": 0, "freed_blocks": 0}
        assert job.pool["at_peak"]["before_recording_bytes"] == 0
        assert job.report["warnings"] == []

    def test_it_ends_after_a_few_steps(self, name, job):
        states = [mark["trace_state"] for mark in job.marks if mark["kind"] == "trace"]
        # On a busy machine an order of ops may come late that raises the peak: then there is another window.
        windows = [states[at : at + 3] for at in range(0, len(states), 3)]
        assert windows and all(window == ["begun", "stopped", "written"] for window in windows)
        assert all(mark["trace_state"] is None for mark in job.marks if mark["kind"] != "trace")
        labels = job.labels("trace")
        assert labels[1] == "trace stopped: step limit reached"
        assert labels[2].startswith("trace written: 5 steps ")

    def test_the_recordings_highest_peak_is_tensorflows(self, name, job):
        assert max(mark["peak_bytes"] for mark in job.marks if mark["peak_bytes"] is not None) == job.facts["peak"]
        assert job.pool["lifetime_peak_bytes"] <= job.facts["peak"]

    def test_nearly_all_of_the_peak_has_a_name(self, name, job):
        held = job.pool["at_peak"]
        assert held["named_bytes"] >= 0.95 * (held["named_bytes"] + held["unnamed_bytes"])

    def test_parameters_and_optimizer_are_what_the_program_lists(self, name, job):
        if IS_OLDER and name in ("mlp_momentum", "transformer_adamw"):
            pytest.xfail("TensorFlow 2.15 writes some new values beside the old ones, and its profiler does not tell when it began")
        listed = {row["role"]: row for row in job.report["inventory"]}
        second = job.report["steps"][1]["begin_ns"]
        for role in ("parameters", "optimizer"):
            missing = listed[role]["in_pool_bytes"] - job.pool["at_peak"]["by_role"][role]
            if role == "optimizer" and job.pool["peak_at_ns"] < second:
                # TensorFlow lets an optimizer's two slots of a shape share one block of zeros until the first step writes to
                # them: where the peak lies in that step, up to half of the slots have no block yet.
                assert 0 <= missing <= listed[role]["in_pool_bytes"] / 2, role
            else:
                assert missing == 0, role
            # Scalars may lie outside the pool, or be missing in what the script adds up.
            scalars = listed[role]["bytes"] - job.facts[role]
            assert 0 <= scalars <= 8 * job.facts["scalars"], role
            assert 0 <= listed[role]["bytes"] - listed[role]["in_pool_bytes"] <= 8 * job.facts["scalars"], role


@uses("two steps traced")
def test_a_trace_of_two_steps_is_one_of_two_steps(job):
    labels = job.labels("trace")
    assert labels[1] == "trace stopped: step limit reached"
    assert labels[2].startswith("trace written: 2 steps ")
    # The peaks of the steps in it are known; the pool's highest in it is the highest of the whole process up to there.
    peaks = [step["peak_bytes"] for step in job.report["steps"]]
    assert peaks[:2] == [reading["peak"] for reading in job.facts["keras"][:2]]


# --- Peaks of steps ---


def readings(job):
    return [reading for name in ("keras", "function", "eager") for reading in job.facts[name]]


@uses("own peaks")
def test_a_script_that_resets_and_reads_has_the_peaks_of_the_trace(job):
    """The script measures each step by itself; the trace saw the same steps without resetting anything."""
    assert [step["peak_bytes"] for step in job.report["steps"]] == [reading["peak"] for reading in readings(job)]


@uses("step peaks", "own peaks")
def test_step_peaks_gives_every_step_its_own(jobs):
    job, own = jobs
    steps = job.report["steps"]
    assert [step["peak_bytes"] for step in steps] == [reading["peak"] for reading in readings(job)]
    # Slack differs a little from run to run; a peak that is not the step's own would differ by much.
    assert [step["peak_bytes"] for step in steps] == pytest.approx([step["peak"] for step in readings(own)], rel=0.2)


@uses("step peaks")
def test_trace_off_and_rate_0_leave_steps_only(job):
    assert job.files("trace-*") == job.files("samples-*") == []
    assert job.labels("trace") == []
    assert len(job.report["steps"]) == len(readings(job))
    assert job.pool["at_peak"] is None
    assert job.pool["from_start"] is None


@uses("two steps traced")
def test_without_being_asked_run_resets_no_peak(job):
    peaks = [reading["peak"] for reading in readings(job)]
    assert peaks == sorted(peaks)
    assert all(mark["peak_since_ns"] is None for mark in job.marks)


@uses("two steps traced", "own peaks")
def test_a_peak_between_two_steps_is_no_steps_peak(jobs):
    """Before the loop with tf.function the script makes a tensor that is larger than any step, and lets it go."""
    job, own = jobs
    first = job.report["steps"][len(job.facts["keras"])]
    assert first["peak_bytes"] in (None, pytest.approx(own.facts["function"][0]["peak"], rel=0.05))


# --- Behaviour unchanged ---


@uses("behaviour", "behaviour, alone")
def test_a_program_sees_and_prints_the_same(jobs):
    """Settings after the import, devices, threads, path, hooks, signals, own sitecustomize, callbacks, losses to the last bit."""
    recorded, alone = jobs
    assert alone.out.splitlines()[0] == "the user's own sitecustomize"
    assert alone.out.splitlines()[-1].startswith("hook ValueError the end")
    assert recorded.out.replace(str(recorded.folder), "HERE") == alone.out.replace(str(alone.folder), "HERE")
    assert recorded.said() == alone.said()
    assert recorded.code == alone.code == 1


@uses("behaviour")
def test_a_program_with_hooks_of_its_own_is_recorded_all_the_same(job):
    expected = []
    for epoch in (0, 1):
        expected += keras("train", 3, epoch) + keras("validation", 2, epoch)
    expected += keras("validation", 2)
    # Two logical devices share one pool, and a step on both is one step.
    expected += keras("train", 3, 0) + keras("train", 3, 1)
    assert steps_of(job.marks) == expected
    assert {mark["device"] for mark in job.marks if mark["kind"] == "step"} == {DEVICE}
    assert job.labels("exception") == ["ValueError: the end"]
    assert job.labels("end") == ["exit"]


@uses("profiles by hand")
def test_a_profiler_started_by_hand_gets_its_trace_and_ours_makes_way(job):
    assert job.code == 0, job.err
    assert job.labels("trace")[1] == "trace stopped: the program starts its own profiler"
    assert job.labels("trace")[2].startswith("trace written: 2 steps ")
    assert steps_of(job.marks) == keras("train", 2, 0) + keras("train", 4, 0) + keras("train", 3, 0)
    # Each of the three windows shows the same steps; which has the highest moment, some bytes decide.
    assert job.pool["from_start"] is (job.pool["window"] == 1)
    for name, batches in {"hand": 4, "with": 3}.items():
        theirs = job.report_on(job.folder / "work" / name)
        assert [(step["step"], step["how"]) for step in theirs["steps"]] == [(n, "trace") for n in range(batches)]
        assert [(pool["from_start"], pool["allocs"] > 0) for pool in theirs["pools"]] == [(False, True)]
        assert [warning["code"] for warning in theirs["warnings"]] == ["began-late"]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
@uses("profiles by TensorBoard")
def test_tensorboards_callback_gets_its_profile(job):
    assert job.code == 0, job.err
    assert job.labels("trace")[1] == "trace stopped: the program starts its own profiler"
    assert steps_of(job.marks) == keras("train", 8, 0)
    theirs = job.report_on(job.folder / "work")
    # Batches three to five, counted from one. Keras 2 begins and ends its profile inside a batch, which only the middle one survives.
    assert [step["step"] for step in theirs["steps"]] == ([3] if IS_OLDER else [2, 3, 4])
    assert [pool["allocs"] > 0 for pool in theirs["pools"]] == [True]


@uses("-c")
def test_a_command_line_program_that_trains_nothing_has_its_calls_as_steps(job):
    assert job.code == 0, job.err
    assert [(step["name"], step["phase"], step["how"], step["step"]) for step in job.report["steps"]] == [
        ("<lambda>", "other", "inferred", number) for number in range(3)
    ]
    assert job.pool["from_start"] is True
    assert job.report["inventory"] == []


@uses("-m")
def test_a_module_that_updates_its_variables_itself_has_the_calls_that_train_as_steps(job):
    assert job.code == 0, job.err
    assert job.out == "__main__ []\n"
    assert [(step["name"], step["phase"], step["how"]) for step in job.report["steps"]] == [
        ("accumulate", "train", "inferred")
    ] * 4


@pytest.mark.parametrize("option", [pytest.param(option, marks=uses(option)) for option in ("-I", "-E", "-S")])
def test_where_python_ignores_us_the_job_runs_and_one_line_says_so(option, job):
    assert (job.code, job.out) == (0, "done\n")
    (line,) = [line for line in job.err.splitlines() if "no Python process was recorded" in line]
    assert option in line
    # What the driver and the kernel say of it remains.
    assert job.files("*") == ["driver.arrows", "run.json"]


# --- Limits ---


@uses("out of memory", "out of memory, alone")
def test_a_job_over_its_limit_fails_as_tensorflow_fails(jobs):
    recorded, alone = jobs
    assert recorded.code == alone.code == 1
    assert recorded.out == alone.out == "trained\n"
    assert recorded.said()[-1].startswith("tensorflow.python.framework.errors_impl.ResourceExhaustedError: ")
    assert recorded.said() == alone.said()


@uses("out of memory")
def test_a_job_over_its_limit_leaves_exception_dump_and_trace(job):
    (path,) = job.files("exception-*.txt")
    text = (job.recording / path).read_text(encoding="utf-8")
    assert text.startswith("ResourceExhaustedError: ")
    assert "OOM when allocating tensor with shape[4096,4096]" in text
    assert job.labels("exception") == [text]
    (process,) = job.report["run"]["processes"]
    dumps = job.files("dump-*")
    assert dumps
    assert all(dump.startswith(f"dump-{process['id']}_{POOL}.") for dump in dumps)
    assert job.pool["from_start"] is True
    assert job.pool["limit_bytes"] == 40 * MIB
    assert steps_of(job.marks) == keras("train", 2, 0)


@uses("out of memory")
def test_a_job_over_its_limit_has_a_post_mortem(job, binary):
    done = subprocess.run([binary, "oom", job.recording, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (failure,) = json.loads(done.stdout)["failures"]
    assert (failure["verdict"], failure["limit_set_by"]) == ("limit", "vramline run --limit")
    assert failure["limit_bytes"] == 40 * MIB
    assert failure["rounded_bytes"] == 64 * MIB
    assert failure["short_by_bytes"] == 64 * MIB - failure["free_bytes"] - failure["unallocated_bytes"]
    assert failure["slack_bytes"] is not None
    (warning,) = [warning for warning in job.report["warnings"] if warning["code"] == "out-of-memory"]
    assert "(limit)" in warning["text"]


# --- Several processes ---


@uses("children")
def test_every_process_that_uses_tensorflow_has_files_of_its_own(job):
    facts = job.facts
    training = facts["parent"]
    calling = {*facts["subprocess"], facts["fork"], facts["spawn"]}
    assert len(calling) == 4
    processes = {process["pid"]: process for process in job.report["run"]["processes"]}
    # The worker that was forked while TensorFlow was there did not use it, and has nothing to tell.
    assert processes.keys() == calling | {training}
    assert facts["loader"] not in processes
    for pid, process in processes.items():
        assert [name.split()[0] for name in process["frameworks"]][-1] == "tensorflow"
        for kind in ("marks", "samples"):
            assert job.files(f"{kind}-*-{pid}-*.arrows") == [f"{kind}-{process['id']}.arrows"]
        (trace,) = job.files(f"trace-*-{pid}-*/**/*.xplane.pb")
        assert trace.startswith(f"trace-{process['id']}/")
        marks = [mark for mark in job.marks if mark["process"] == process["id"]]
        assert [mark["label"] for mark in marks if mark["kind"] == "end"] == ["exit"]
    by_pid = {pool["pid"]: pool for pool in job.report["pools"]}
    assert by_pid.keys() == processes.keys()
    assert all(pool["from_start"] is True for pool in by_pid.values())


@uses("children")
def test_a_fork_in_the_middle_of_a_training_changes_nothing(job):
    steps = [step for step in job.report["steps"] if step["pid"] == job.facts["parent"]]
    assert [(step["phase"], step["step"]) for step in steps] == [("train", n) for n in (0, 1, 0, 1, 2, 3, 4, 5)]
    assert all(step["peak_bytes"] is not None for step in steps[:5])


# --- Keras on JAX ---


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed: its tests need an environment with it")
class TestKerasOnJax:
    @uses("jax")
    def test_steps_are_counted(self, job):
        expected = []
        for epoch in (0, 1):
            expected += keras("train", 3, epoch) + keras("validation", 2, epoch)
        assert steps_of(job.marks) == expected + keras("predict", 3) + keras("train", 1)
        assert [epoch["epoch"] for epoch in job.report["epochs"]] == [0, 1]

    @uses("jax")
    def test_what_jax_does_not_count_is_null_with_a_reason(self, job):
        assert all(step["peak_bytes"] is step["current_bytes"] is None for step in job.report["steps"])
        unknown = {entry["path"]: entry["reason"] for entry in job.report["unknowns"]}
        assert unknown["pools[0].peak_bytes"] == "the framework does not count the memory of this device"
        assert "steps[].current_bytes" in unknown
        assert {warning["code"] for warning in job.report["warnings"]} == {"jax-cpu", "no-counters"}
        (process,) = job.report["run"]["processes"]
        assert process["backend"] == "jax"

    @uses("jax")
    def test_the_api_says_why(self, job):
        facts = job.facts
        assert facts["device"] == DEVICE
        assert facts["figures"] == [None] * 4
        assert set(facts["why"]) == {"JAX keeps no memory statistics of a CPU"}
        assert facts["reset"].startswith("JAX cannot reset its peak")
        assert facts["logs"] == ["loss", "val_loss"]
        assert all(row["peak_bytes"] is row["current_bytes"] is None for row in facts["history"])

    @uses("jax")
    def test_variables_are_listed(self, job):
        listed = {row["role"]: row["bytes"] for row in job.report["inventory"]}
        assert listed["parameters"] == job.facts["parameters"]
        assert listed["optimizer"] > 2 * job.facts["parameters"]
