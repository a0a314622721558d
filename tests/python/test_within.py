"""`fit_within` against real TensorFlow, whose own allocator enforces the limit.

The job trains a model that fails at its batch under the limit. Trained within, it must take the same way as without a limit.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import job_environment

from vramline.planning import probes, within

JOB = Path(__file__).parent / "jobs" / "within.py"
MIB = 1 << 20
# Ends what hangs: on a busy machine a job of several runs takes minutes.
SECONDS = 900

# Name: how, seed, the limit that is told and enforced, in MiB. Nothing enforces a limit that is not there.
JOBS = {
    "seed 1": ("direct", 1, None),
    "seed 2": ("direct", 2, None),
    "fails": ("direct", 1, 30),
    "within": ("within", 1, 30),
    "wrong plan": ("wrong", 1, 36),
    "recorded": ("recorded", 1, 30),
    "reset": ("reset", 1, 100),
    "tiny": ("within", 1, 5),
    "custom": ("custom", 1, 30),
    "at once": ("build", 1, 400),
}


@pytest.fixture(scope="module")
def facts(binary, tmp_path_factory):
    """What every job has written down."""
    folder = tmp_path_factory.mktemp("within")
    kept = job_environment(TF_CPU_ALLOCATOR_USE_BFC="1")

    def run(name):
        how, seed, limit = JOBS[name]
        path = folder / f"{name}.json"
        # A limit below what TensorFlow needs to come up would test nothing but that.
        enforced = {} if limit is None or name == "tiny" else {"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}
        environment = kept | enforced | {"VRAMLINE_BIN": str(binary)}
        command = [sys.executable, str(JOB), how, str(seed), str(path), *([f"{limit}MiB"] if limit else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(path.read_text()) | {"printed": done.stdout, "record": path.with_suffix(".vram")}

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(JOBS, pool.map(run, JOBS)))


def test_the_batch_fails_under_the_limit(facts):
    assert facts["fails"]["failed"] == "ResourceExhaustedError"


def test_within_the_limit_it_takes_the_same_way(facts):
    within, one, other = facts["within"], facts["seed 1"], facts["seed 2"]
    assert within["failed"] is None
    for name in ("loss", "val_loss"):
        ours, direct, noise = (np.array(each["history"][name]) for each in (within, one, other))
        assert len(ours) == len(direct) == 4
        assert np.all(np.abs(ours - direct) <= np.abs(noise - direct).max())
        # Far closer than seeds are: an epoch's last batch of 77 comes in parts of 38 and 39, the rest is the same but for rounding.
        assert np.allclose(ours, direct, rtol=2e-3)
    assert ours[-1] < ours[0] / 2, "it learns"


def test_what_was_done_is_told(facts):
    told = facts["within"]["within"]
    assert told["batch_size"] == 256 == told["micro_batch"] * told["accumulation_steps"]
    assert told["accumulation_steps"] > 1
    assert not told["stepped_down"]
    # It ran under the limit before the training, in a process of its own.
    assert told["confirmed_runs"] == 1 and "confirmed by 1 run" in facts["within"]["printed"]
    # Weights and biases, each in whole chunks.
    sizes = [48 * 6000 * 4, 6000 * 4, 6000 * 10 * 4, 10 * 4]
    assert told["accumulator_bytes"] == sum(-(-size // 256) * 256 for size in sizes)
    assert told["limit_bytes"] == 30 * MIB
    assert told["predicted_low_bytes"] <= told["predicted_peak_bytes"] <= told["predicted_high_bytes"]
    assert told["minimum_bytes"] <= told["limit_bytes"]
    assert told["measured_peak_bytes"] == facts["within"]["memory"]["peak"] <= told["limit_bytes"]
    # The prediction is of a pool with room, from one run of each probe: few orders of many.
    assert abs(told["measured_peak_bytes"] / told["predicted_peak_bytes"] - 1) < 0.3
    assert f"256 as {told['accumulation_steps']} micro-batches of {told['micro_batch']}" in facts["within"]["printed"]


def test_the_measured_peak_is_of_the_whole_run(facts, vramline):
    ran = facts["recorded"]
    report = vramline(ran["record"])
    measured = ran["within"]["measured_peak_bytes"]
    assert measured == max(epoch["peak_bytes"] for epoch in report["epochs"])
    # The callback that records has reset the peak since: the framework knows of a small batch of validation only.
    assert measured > 2 * ran["memory"]["peak"]
    assert facts["reset"]["within"]["measured_peak_bytes"] == facts["reset"]["seen"] > 60 * MIB


def test_afterwards_the_optimizer_is_as_without(facts):
    for name in ("within", "wrong plan", "at once"):
        assert facts[name]["iterations"] == facts["seed 1"]["iterations"] == 20
        assert facts[name]["states"] == facts["seed 1"]["states"]


def test_a_given_plan_is_certain_where_all_that_it_may_not_know_has_room(facts):
    # The process holds more than the model and its optimizer: the plan, made for the whole limit, may know of it or not.
    assert not facts["recorded"]["within"]["certain"]
    assert facts["reset"]["within"]["certain"]


def test_a_wrong_plan_costs_one_step_down(facts):
    ran = facts["wrong plan"]
    assert ran["failed"] is None
    assert ran["within"]["stepped_down"]
    assert (ran["within"]["micro_batch"], ran["within"]["accumulation_steps"]) == (128, 2)
    # From where it began, not from what the failed attempt left.
    assert np.allclose(ran["history"]["loss"], facts["seed 1"]["history"]["loss"], rtol=2e-3)


def test_what_does_not_fit_at_all_is_said(facts):
    assert facts["tiny"]["failed"] == "DoesNotFit"
    assert "not even a batch of one sample fits 5 MiB" in facts["tiny"]["text"]
    assert facts["tiny"]["iterations"] == 0


def test_a_model_that_no_other_process_knows_is_said(facts):
    assert facts["custom"]["failed"] == "CannotPlan"
    assert "cannot be rebuilt" in facts["custom"]["text"]
    assert "Tanh" in facts["custom"]["text"]
    assert "hint: pass build=" in facts["custom"]["text"]


def test_what_fits_at_once_is_not_accumulated(facts):
    told = facts["at once"]["within"]
    assert (told["micro_batch"], told["accumulation_steps"], told["accumulator_bytes"]) == (256, 1, 0)
    assert np.allclose(facts["at once"]["history"]["loss"], facts["seed 1"]["history"]["loss"], rtol=1e-4)


def plan_for(largest, limit=500 * MIB):
    """A plan that says how much fits, and nothing else."""
    sure = {"sure": largest, "likely": largest}
    told = {"kind": "plan", "variable": "batch", "framework": "tensorflow", "limit_bytes": limit, "largest_batch": sure}
    return told | {"predictions": [], "certain": True, "warnings": [], "verdict": ""}


@pytest.mark.parametrize(
    ("policy", "largest", "name"), [("float32", 4, "adagrad"), ("float32", 3, "adamw"), ("mixed_float16", 4, "adamw")]
)
def test_dicts_schedules_and_scaled_losses(policy, largest, name):
    import keras

    import vramline.keras

    def optimizer():
        if name == "adagrad":
            return keras.optimizers.Adagrad(0.1)
        adamw = keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.1, 8), clipnorm=1.0)
        # A scale so low that nothing overflows.
        return adamw if policy == "float32" else keras.optimizers.LossScaleOptimizer(adamw, initial_scale=16.0)

    def trained(fit, **more):
        keras.utils.set_random_seed(3)
        inputs = {name: keras.Input((4,), name=name) for name in ("one", "two")}
        hidden = keras.layers.Dense(8, activation="relu")(keras.ops.concatenate(list(inputs.values()), axis=-1))
        outputs = {"a": keras.layers.Dense(1, name="a")(hidden), "b": keras.layers.Dense(2, name="b")(hidden)}
        model = keras.Model(inputs, outputs)
        model.compile(optimizer(), loss="mse")
        random = np.random.default_rng(1)
        x = {name: random.standard_normal((50, 4)) for name in inputs}
        y = {"a": random.standard_normal((50, 1)), "b": random.standard_normal((50, 2))}
        settings = {"batch_size": 12, "epochs": 3, "shuffle": False, "verbose": 0, "validation_split": 0.04}
        return fit(model, x, y, **settings, **more), model

    keras.config.set_dtype_policy(policy)
    try:
        direct, reference = trained(keras.Model.fit)
        history, model = trained(vramline.keras.fit_within, limit="1GiB", plan=plan_for(largest))
    finally:
        keras.config.set_dtype_policy("float32")
    assert (history.within.micro_batch, history.within.accumulation_steps) == (largest, 12 // largest)
    rtol = 1e-4 if policy == "float32" else 2e-2
    for each in ("loss", "val_loss"):
        assert np.allclose(history.history[each], direct.history[each], rtol=rtol)
    assert int(model.optimizer.iterations) == int(reference.optimizer.iterations) == 12
    shapes = [[tuple(each.shape) for each in one.optimizer.variables] for one in (model, reference)]
    assert shapes[0] == shapes[1]


def test_a_second_training_goes_on_where_the_first_ended(tmp_path):
    import keras

    import vramline.keras

    def trained(largest):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
        x = np.random.default_rng(2).standard_normal((40, 4)).astype("float32")
        losses = []
        for _ in range(2):
            settings = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
            if largest is None:
                history = model.fit(x, x[:, :3], **settings)
            else:
                plan = plan_for(largest)
                history = vramline.keras.fit_within(model, x, x[:, :3], limit="1GiB", plan=plan, **settings)
            losses += history.history["loss"]
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        assert int(again.optimizer.iterations) == 20
        assert not again.optimizer.gradient_accumulation_steps
        return losses

    assert np.allclose(trained(2), trained(None), rtol=1e-4)


def test_what_is_refused():
    import keras

    import vramline.keras

    def fit(optimizer="sgd", x=None, **arguments):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        if optimizer is not None:
            model.compile(optimizer, "mse")
        x = np.zeros((8, 4)) if x is None else x
        settings = {"batch_size": 4, "limit": "1GiB", "plan": plan_for(2), "verbose": 0} | arguments
        return vramline.keras.fit_within(model, x, np.zeros((8, 3)), **settings)

    with pytest.raises(ValueError, match="not compiled"):
        fit(None)
    with pytest.raises(ValueError, match="already accumulates gradients"):
        fit(keras.optimizers.SGD(gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="use_ema"):
        fit(keras.optimizers.SGD(use_ema=True))
    with pytest.raises(ValueError, match="steps_per_epoch"):
        fit(steps_per_epoch=3)
    with pytest.raises(ValueError, match="batch_size"):
        fit(batch_size=0)
    with pytest.raises(ValueError, match="different numbers of rows"):
        fit(x=np.zeros((7, 4)))
    with pytest.raises(TypeError, match="one row per sample"):
        fit(x=iter([1, 2]))
    with pytest.raises(within.DoesNotFit, match="batch of one"):
        fit(plan=plan_for(None))
    with pytest.raises(ValueError, match="another process cannot import"):
        fit(plan=None, build=lambda: None)


def small(optimizer="sgd"):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(optimizer, "mse")
    return model


def fit_small(model=None, **arguments):
    import vramline.keras

    settings = {"batch_size": 4, "limit": "1GiB", "plan": plan_for(2), "verbose": 0} | arguments
    return vramline.keras.fit_within(model or small(), np.zeros((8, 4)), np.zeros((8, 3)), **settings)


def test_a_plan_for_more_memory_than_there_is(tmp_path):
    for limit in (60 * MIB, 10 * MIB + 1):
        with pytest.raises(ValueError, match=r"the limit here is 10 MiB \(10485760 bytes\)\n.*--limit 10MiB"):
            fit_small(limit="10MiB", plan=plan_for(2, limit))
    with pytest.raises(ValueError, match=r"made without a limit.*\n.*--limit 10MiB"):
        fit_small(limit="10MiB", plan=plan_for(None, None))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_for(4, 10 * MIB)))
    told = fit_small(limit="10MiB", plan=path).within
    assert (told.micro_batch, told.accumulation_steps, told.certain) == (4, 1, True)
    # Accumulated gradients come on top of what the plan knows.
    told = fit_small(limit="10MiB", plan=plan_for(2, 10 * MIB)).within
    assert (told.micro_batch, told.accumulation_steps, told.certain) == (2, 2, False)
    assert fit_small(limit="10MiB", plan=plan_for(2, 9 * MIB)).within.certain


def test_what_is_no_plan_is_said(tmp_path):
    plan = plan_for(2)
    documents = [{}, [], None, {"kind": "verify"}, plan | {"kind": "replay"}, plan | {"variable": "length"}]
    documents += [plan | {"framework": "pytorch"}, plan | {"largest_batch": {"sure": 2}}, plan | {"predictions": [{}]}]
    documents += [{each: value for each, value in plan.items() if each != name} for name in plan if name not in ("variable", "framework")]
    path = tmp_path / "plan.json"
    for document in documents:
        path.write_text(json.dumps(document))
        for given in (document, path) if isinstance(document, dict) else (path,):
            with pytest.raises(ValueError, match=r"plan: expected the output of `vramline plan --json`, found .*\nhint: "):
                fit_small(plan=given)
    for text in ("", "batch 64 fits", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match="plan: expected the output of `vramline plan --json`"):
            fit_small(plan=path)
    with pytest.raises(FileNotFoundError):
        fit_small(plan=tmp_path / "none.json")


def test_an_interrupted_plan_leaves_no_probe_behind(tmp_path):
    """Neither the command nor the job that it started, though that job does not listen."""
    begun = tmp_path / "begun"
    job = f"trap 'echo no' INT TERM; echo $$ > {begun}.part; mv {begun}.part {begun}; while :; do sleep 0.05; done; : {{batch}}"
    command = [os.environ["VRAMLINE_BIN"], "plan", "--batches", "5,7", "-o", str(tmp_path / "probes"), "--", "sh", "-c", job]
    script = f"import os\nfrom vramline.planning import probes\nprobes._run({command!r}, dict(os.environ))"
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    wait_until(begun.exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert not os.path.exists(f"/proc/{begun.read_text().strip()}")


def wait_until(is_so, patience=60):
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_kept_probes_belong_to_one_model(tmp_path, monkeypatch):
    import keras

    asked = []

    def made(command, _environment):
        asked.append(command[command.index("--output") + 1])
        predicted = dict.fromkeys(["peak_bytes", "low_bytes", "high_bytes", "minimum_bytes"], MIB) | {"batch": 4, "fits": True}
        plan = plan_for(4) | {"predictions": [predicted]}
        return subprocess.CompletedProcess(command, 0, json.dumps(plan), "")

    monkeypatch.setattr(probes, "_run", made)
    monkeypatch.setenv("VRAMLINE_BIN", sys.executable)

    def model(units=3, optimizer="sgd", loss="mse", activation=None, trainable=True, **compiled):
        layers = [keras.layers.Dense(5, activation=activation, trainable=trainable), keras.layers.Dense(units)]
        made = keras.Sequential([keras.Input((4,)), *layers])
        made.compile(optimizer, loss, **compiled)
        return made

    def doubled(text):
        """The same class of the same module, with another text."""
        (tmp_path / "doubled.py").write_text(
            f"import keras\nclass Doubled(keras.layers.Layer):\n    def call(self, inputs):\n        return {text}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        sys.modules.pop("doubled", None)
        return importlib.import_module("doubled").Doubled

    def custom(kind):
        made = keras.Sequential([keras.Input((4,)), kind(), keras.layers.Dense(3)])
        made.compile("sgd", "mse")
        return made

    def folder(of, x=None, y=None, **arguments):
        import vramline.keras

        asked.clear()
        x = np.zeros((8, 4), "float32") if x is None else x
        y = np.zeros((8, of.output_shape[-1])) if y is None else y
        settings = {"batch_size": 4, "limit": "1GiB", "keep": tmp_path / "kept", "verbose": 0} | arguments
        vramline.keras.fit_within(of, x, y, **settings)
        (told,) = set(asked)
        assert Path(told).parents[1] == tmp_path / "kept"
        return told

    kept = model(optimizer=keras.optimizers.SGD(0.1))
    own = folder(kept)
    # After a training, made anew with other names, with another rate, batch or limit: the same.
    assert own == folder(kept) == folder(model()) == folder(model(optimizer=keras.optimizers.SGD(0.5)), batch_size=8, limit="2GiB")
    others = [
        folder(model(units=2)),
        folder(model(optimizer="adam")),
        folder(model(optimizer=keras.optimizers.SGD(momentum=0.9))),
        folder(model(loss="mae")),
        folder(model(activation="relu")),
        folder(model(trainable=False)),
        folder(model(jit_compile=True)),
        folder(model(), y=np.zeros((8, 3), "float32")),
        folder(custom(doubled("inputs + inputs"))),
        folder(custom(doubled("2 * inputs"))),
    ]
    assert len({own, *others}) == 1 + len(others)


KEPT = """
import json, keras, numpy as np, sys, vramline.keras
for _ in range(2):
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512)])
    model.compile("sgd", "mse")
    x, y = np.zeros((32, 256), "float32"), np.zeros((32, 512), "float32")
    vramline.keras.fit_within(model, x, y, batch_size=16, limit="1GiB", probes=(3, 5), keep=sys.argv[1], confirm=1, verbose=0)
    print(json.dumps([(path.parent.name, path.stat().st_mtime_ns) for path in sorted(__import__("pathlib").Path(sys.argv[1]).glob("*/*/*/run.json"))]))
"""


def test_kept_probes_are_not_run_again(binary, tmp_path):
    kept = job_environment(TF_CPU_ALLOCATOR_USE_BFC="1", VRAMLINE_BIN=str(binary))
    command = [sys.executable, "-c", KEPT, str(tmp_path / "kept")]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = ([tuple(each) for each in json.loads(line)] for line in done.stdout.splitlines())
    assert {"probe-5-0.vram", "confirmed-16-0.vram"} <= {name for name, _ in first}
    # The runs that confirm are made for the memory that this process leaves; the probes are as they were.
    assert [each for each in first if each[0].startswith("probe-")] == [each for each in second if each[0].startswith("probe-")]


def test_a_peak_above_the_limit_is_said_to_be_of_more_memory():
    told = within.Within(
        batch_size=256,
        micro_batch=16,
        accumulation_steps=16,
        limit_bytes=14 * MIB,
        accumulator_bytes=0,
        predicted_peak_bytes=17 * MIB,
        predicted_low_bytes=16 * MIB,
        predicted_high_bytes=18 * MIB,
        minimum_bytes=13 * MIB,
        certain=True,
        confirmed_runs=0,
        measured_peak_bytes=None,
        stepped_down=False,
        plan={},
    )
    begin = "batch 256 as 16 micro-batches of 16 within"
    spare = "without a limit the peak would be 17 MiB (16 MiB to 18 MiB)"
    end = "; not confirmed by a run"
    assert str(told) == f"{begin} 14 MiB: needs at least 13 MiB; {spare}{end}"
    assert str(replace(told, minimum_bytes=None, confirmed_runs=2)) == f"{begin} 14 MiB; {spare}; confirmed by 2 runs"
    # An interval that reaches beyond the limit contradicts it as well.
    assert spare in str(replace(told, limit_bytes=17 * MIB))
    assert str(replace(told, limit_bytes=18 * MIB)) == f"{begin} 18 MiB: predicted peak 17 MiB (16 MiB to 18 MiB){end}"


def test_whole_numbers_of_numpy_and_a_callback_alone():
    import keras

    told = fit_small(batch_size=np.int64(4)).within
    assert (told.batch_size, told.micro_batch, type(told.batch_size)) == (4, 2, int)
    for wrong in (True, 4.0, "4", None, np.int64(0), -1):
        with pytest.raises(ValueError, match="batch_size: expected a whole number of samples"):
            fit_small(batch_size=wrong)
    for wrap in (lambda one: one, lambda one: [one], lambda one: (one, [one]), lambda one: keras.callbacks.CallbackList([one])):
        epochs = []
        note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs, epochs=epochs: epochs.append(epoch))
        fit_small(callbacks=wrap(note))
        assert epochs in ([0], [0, 0])


def test_other_backends_are_told_what_to_do():
    pytest.importorskip("jax")
    script = """
import keras, numpy, vramline.keras
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
model.compile("sgd", "mse")
try:
    vramline.keras.fit_within(model, numpy.zeros((8, 4)), numpy.zeros((8, 3)), batch_size=4, limit="1GiB")
except NotImplementedError as error:
    print(error)
"""
    environment = job_environment(lean=False, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "needs the TensorFlow backend, found jax" in done.stdout
    assert "hint: for other backends use `vramline plan" in done.stdout


@pytest.mark.parametrize(
    ("batch", "largest", "expected"),
    [
        (256, 300, (256, 1)),
        (256, 255, (128, 2)),
        (256, 100, (64, 4)),
        (256, 1, (1, 256)),
        (100, 49, (25, 4)),
        # No divisor is near what fits: parts that differ by one.
        (257, 100, (86, 3)),
        (7, 6, (4, 2)),
    ],
)
def test_parts(batch, largest, expected):
    micro, steps = within.parts_of(batch, largest)
    assert (micro, steps) == expected
    assert micro <= max(largest, 1) or steps == 1
    assert micro * steps >= batch > micro * (steps - 1)


def test_sizes():
    assert within.size_of("8GiB") == 8 << 30
    assert within.size_of("1.5 GiB") == 3 << 29
    assert within.size_of("500MB") == 500_000_000
    assert within.size_of("8G") == within.size_of("8 g") == 8 << 30
    assert (within.size_of("400M"), within.size_of("2.5k"), within.size_of("1T")) == (400 * MIB, 2560, 1 << 40)
    assert within.size_of(12) == within.size_of("12") == within.size_of("12b") == within.size_of(np.int64(12)) == 12
    assert within.size_of(8e9) == 8_000_000_000
    for wrong in ("", "GiB", "8GiBs", "-1", 0, "1e3", "1.5", "8E", True, False, 1.5, float("nan"), float("inf"), None, [8]):
        with pytest.raises(ValueError, match="limit"):
            within.size_of(wrong)
