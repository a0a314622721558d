"""The report against TensorFlow itself: small models, trained on the CPU with TensorFlow's pool allocator.

`models/train.py` trains one model in a process of its own and writes down what TensorFlow counted, which variables
there are, and where in memory each of them lay before and after every step. From the addresses follows, block by
block, what of the trace is a parameter and what is the optimizer's, with no rule about names: that is what the roles
are held against. Other roles have no such witness and are not tested here.

Threads make every run a little different, so no size of a peak is written down here; what must agree is the report and
the facts of the same run.
"""

import gzip
import json
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

import pytest
import xplane_truth
from conftest import job_environment

PROGRAM = Path(__file__).parent / "models" / "train.py"
LIMIT_MIB = 1000
POOL = "bfc_cpu_allocator_for_gpu"

MODELS = [
    "cnn_adam",
    "mlp_sgd",
    "mlp_momentum",
    "mlp_decay",
    "mlp_mixed",
    "transformer_adamw",
    "batchnorm_rmsprop",
    "lstm_adam",
    "tape_adam",
]


class Run:
    """A training that took place: its trace, and the facts that TensorFlow told."""

    def __init__(self, logdir, facts):
        self.logdir = logdir
        self.facts = facts
        (self.trace,) = logdir.glob("plugins/profile/*/*.xplane.pb")

    @property
    def folder(self):
        return self.trace.parent


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """A function: train a model and return the `Run`. The same request is trained once."""
    known = {}

    def run(model, *options, pooled=True):
        request = (model, options, pooled)
        if request not in known:
            folder = tmp_path_factory.mktemp(model)
            known[request] = run_program(folder, model, options, pooled)
        return known[request]

    return run


def run_program(folder, model, options, pooled):
    environment = job_environment()
    if pooled:
        environment |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB)}
    logdir, facts = folder / "logdir", folder / "facts.json"
    command = [sys.executable, PROGRAM, model, logdir, facts, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return Run(logdir, json.loads(facts.read_text(encoding="utf-8")))


def only_pool(report):
    (pool,) = report["pools"]
    assert pool["name"] == POOL
    return pool


def codes(report):
    return [warning["code"] for warning in report["warnings"]]


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_tensorflows_own_to_the_byte(model, train, vramline):
    run = train(model)
    report = vramline(run.trace)
    pool = only_pool(report)
    assert report["source"]["framework"] == "tensorflow"
    assert pool["from_start"] is True
    assert pool["before_recording"] == {"at_begin_bytes": 0, "freed_bytes": 0, "freed_blocks": 0}
    assert pool["at_peak"]["before_recording_bytes"] == 0
    assert pool["peak_bytes"] == pool["lifetime_peak_bytes"] == run.facts["after"]["peak"]
    assert pool["limit_bytes"] == LIMIT_MIB << 20
    # Nothing is doubtful in a trace from the start: neither a count that disagrees, nor anything else.
    assert codes(report) == []


@pytest.mark.parametrize("model", MODELS)
def test_the_rows_are_the_live_blocks(model, train, vramline):
    run = train(model)
    held = only_pool(vramline(run.trace))["at_peak"]
    truth = xplane_truth.read(run.trace)[POOL]
    xplane_truth.assert_rows_are(held["rows"], truth.live_at(truth.peak))
    assert held["named_bytes"] >= 0.85 * (held["named_bytes"] + held["unnamed_bytes"])


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_is_a_step(model, train, vramline):
    run = train(model)
    report = vramline(run.trace)
    assert [step["phase"] for step in report["steps"]] == ["train"] * run.facts["batches"]
    assert [step["step"] for step in report["steps"]] == list(range(run.facts["batches"]))
    assert max(step["peak_bytes"] for step in report["steps"]) == only_pool(report)["peak_bytes"]


# --- Roles ---

# The variables whose bytes each of these roles must be.
WHOSE = {"parameters": "model", "optimizer": "optimizer"}


class Witness:
    """Which blocks of a trace are the model's and which the optimizer's, by the addresses that the program noted."""

    def __init__(self, run, report):
        self.facts = run.facts
        self.pool = xplane_truth.read(run.trace)[POOL]
        self.blocks, _ = self.pool.blocks()
        # The last event before each step; a step lasts until the next begins, the last one to the end.
        self.begins = [self.pool.position_at(step["begin_ns"] * 1000 - 1) for step in report["steps"]]
        self.ends = [*self.begins[1:], len(self.pool.events) - 1]

    def peaks(self):
        """The highest position of each step."""
        for begin, end in zip(self.begins, self.ends, strict=True):
            yield max(range(begin + 1, end + 1), key=lambda i: (self.pool.events[i].in_use, -i))

    def state(self, role, position):
        """The blocks that hold the role's variables at a position within a step.

        Those are the values that the variables had when the step began and those that they have when it ends, as far
        as they are there: an old value stays while somebody reads it, a new one may be there before it is assigned.
        Two variables that were filled alike may share one block until one of them changes.
        """
        whose = WHOSE[role]
        step = bisect_left(self.begins, position) - 1
        assert step >= 0, "before the first step"
        values = {}
        for variable in self.facts[whose]:
            path = variable["path"]
            old, new = (self.facts["addresses"][at][whose].get(path) for at in (step, step + 1))
            found = [self.block(new, self.ends[step])]
            # The optimizer makes its variables in the first step: nobody can ask before.
            found += [self.block(old, self.begins[step])] if old else self.first_values(path)
            for block in found:
                assert block.requested == variable["nbytes"], path
                values[block.born] = block
        return [block for block in values.values() if block.lives_at(position)]

    def block(self, address, position):
        (block,) = (block for block in self.blocks if block.address == address and block.lives_at(position))
        return block

    def first_values(self, path):
        # The scope before the name may have got a number behind it: adam_10.
        name = path.rsplit("/", 1)[-1]
        return [block for block in self.blocks if f"/{name}/Initializer/" in f"/{block.op}"]

    def rows(self, held, role):
        """The report's rows of a role, without scalars of the optimizer: a rate or a counter is nobody's tensor."""
        scalars = tuple(f"{path}/Initializer/" for path in self.facts["scalars"])
        return [row for row in held["rows"] if row["role"] == role and not row["op"].startswith(scalars)]

    def moment(self, position):
        """For `--at`: nanoseconds. What happens within the same one is counted in."""
        return self.pool.events[position].time_ps // 1000

    def settled(self, position):
        """The last position of the same nanosecond."""
        return self.pool.position_at(self.moment(position) * 1000 + 999)


def assert_roles(held, witness, position):
    """Parameters and optimizer are the very blocks that the addresses tell, and their bytes."""
    for role in WHOSE:
        blocks = witness.state(role, position)
        rows = witness.rows(held, role)
        assert sum(row["bytes"] for row in rows) == sum(block.requested for block in blocks)
        xplane_truth.assert_rows_are(rows, blocks)


@pytest.mark.parametrize("model", MODELS)
def test_roles_at_the_peak_are_the_variables(model, train, vramline):
    run = train(model)
    report = vramline(run.trace)
    witness = Witness(run, report)
    assert_roles(only_pool(report)["at_peak"], witness, witness.pool.peak)


@pytest.mark.parametrize("model", MODELS)
def test_roles_at_the_peak_of_every_step_are_the_variables(model, train, vramline):
    run = train(model)
    witness = Witness(run, vramline(run.trace))
    for position in witness.peaks():
        held = only_pool(vramline(run.trace, "--at", str(witness.moment(position))))["at"]
        assert_roles(held, witness, witness.settled(position))


@pytest.mark.parametrize("model", MODELS)
def test_between_steps_each_variable_is_held_once(model, train, vramline):
    """No old value is being read and no new one made: parameters and optimizer are what the program has, no more."""
    run = train(model)
    witness = Witness(run, vramline(run.trace))
    expected = {role: sum(variable["nbytes"] for variable in run.facts[whose]) for role, whose in WHOSE.items()}
    for position in witness.ends:
        held = only_pool(vramline(run.trace, "--at", str(witness.moment(position))))["at"]
        assert {role: sum(row["bytes"] for row in witness.rows(held, role)) for role in WHOSE} == expected
        assert_roles(held, witness, witness.settled(position))


@pytest.mark.parametrize("model", MODELS)
def test_before_the_first_step_there_is_the_model_alone(model, train, vramline):
    run = train(model)
    witness = Witness(run, vramline(run.trace))
    moment = witness.moment(witness.begins[0])
    held = only_pool(vramline(run.trace, "--at", str(moment)))["at"]
    assert held["by_role"]["parameters"] == sum(variable["nbytes"] for variable in run.facts["model"])
    assert held["by_role"]["optimizer"] == 0


# --- A window of a longer run ---


@pytest.mark.parametrize("model", ["mlp_momentum", "cnn_adam"])
def test_a_window_counts_what_was_there_before(model, train, vramline):
    run = train(model, "--window")
    report = vramline(run.trace)
    pool = only_pool(report)
    assert pool["from_start"] is False
    assert pool["before_recording"]["at_begin_bytes"] == run.facts["before"]["current"]
    assert pool["peak_bytes"] == pool["lifetime_peak_bytes"] == run.facts["after"]["peak"]
    assert pool["limit_bytes"] == LIMIT_MIB << 20
    assert [step["phase"] for step in report["steps"]] == ["train"] * run.facts["batches"]
    assert codes(report) == ["began-late"]
    truth = xplane_truth.read(run.trace)[POOL]
    assert pool["at_peak"]["before_recording_bytes"] == truth.before_at(truth.peak) > 0
    xplane_truth.assert_rows_are(pool["at_peak"]["rows"], truth.live_at(truth.peak))


# --- Why there is nothing to see ---


@pytest.mark.parametrize(
    ("level", "reasons"), [(1, [["host-tracer-level"]]), (0, [["no-host-threads"], ["host-tracer-level"]])]
)
def test_a_low_host_tracer_level_is_named_as_the_reason(level, reasons, train, vramline):
    report = vramline(train("mlp_sgd", "--capture", str(level)).trace)
    assert report["pools"] == report["steps"] == []
    assert codes(report) in reasons
    assert "host_tracer_level=2" in report["warnings"][0]["hint"]


def test_the_same_capture_at_level_two_has_the_pool(train, vramline):
    """What the two above are compared with: it is the level that matters, not the way to record."""
    report = vramline(train("mlp_sgd", "--capture", "2").trace)
    assert only_pool(report)["from_start"] is False
    assert codes(report) == ["began-late"]


def assert_says_plain_allocator(report):
    assert codes(report).count("plain-cpu-allocator") == 1
    warning = report["warnings"][codes(report).index("plain-cpu-allocator")]
    assert "TF_CPU_ALLOCATOR_USE_BFC=1" in warning["hint"]


def test_the_plain_cpu_allocator_is_named_as_the_reason(train, vramline):
    assert_says_plain_allocator(vramline(train("mlp_sgd", pooled=False).trace))


def test_the_plain_cpu_allocator_is_named_though_what_it_shows_has_names(fixtures, vramline):
    """It records large blocks alone, all of them with a name: the report looks complete and is not."""
    report = vramline(fixtures / "tf221_cpu_mlp_nobfc_window.xplane.pb")
    assert (report["pools"][0]["allocs"], report["pools"][0]["frees"]) == (65, 65)
    assert_says_plain_allocator(report)


# --- Ways to name a trace ---


def test_a_gzip_copy_gives_the_same_report(train, vramline, tmp_path):
    run = train("mlp_sgd")
    # Sniffed by content: the name gives nothing away.
    copy = tmp_path / "copy"
    copy.write_bytes(gzip.compress(run.trace.read_bytes()))
    plain, packed = vramline(run.trace), vramline(copy)
    assert plain["source"].pop("files") == [str(run.trace)]
    assert packed["source"].pop("files") == [str(copy)]
    assert (plain["subject"].pop(0), packed["subject"].pop(0)) == (str(run.trace), str(copy))
    assert packed == plain


@pytest.mark.parametrize("which", ["folder", "logdir"])
def test_a_folder_gives_the_report_of_its_trace(which, train, vramline):
    run = train("mlp_sgd")
    plain, found = vramline(run.trace), vramline(getattr(run, which))
    assert found["source"]["files"] == [str(run.trace)]
    assert found == plain
