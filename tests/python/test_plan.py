"""`vramline plan` and `vramline verify` with real TensorFlow: probes that they make themselves, predictions against real runs, and bad input."""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import job_environment

JOB = Path(__file__).parent / "jobs" / "batched.py"
COMPILED = JOB.with_name("compiled.py")
EDGES = JOB.with_name("edges.py")
MIB = 1 << 20
TARGET = 104
# Large enough that most of the peak grows with the batch, whichever kernels TensorFlow has for the processor.
LARGE = 200
FAR = 500


def call(binary, *arguments, codes=(0,), **more):
    """What the tool prints; its exit code must be one of these."""
    command = [str(binary), *map(str, arguments)]
    done = subprocess.run(command, env=job_environment(**more), capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode in codes, (done.returncode, done.stderr[-2000:])
    return done


@pytest.fixture(scope="module")
def planned(binary, tmp_path_factory):
    """The folder of probes that plan made, what it said, and the file that a probe must not write."""
    folder = tmp_path_factory.mktemp("plan")
    ends = folder / "ended"
    command = ["plan", "--json", "--batches", "13,7,11", "--repeats", "1", "--batch", TARGET, "--steps", "6", "--trace-steps", "6", "-o", folder / "probes"]
    done = call(binary, *command, "--", sys.executable, JOB, "{batch}", "--ends", ends)
    return folder, json.loads(done.stdout), ends, done.stderr


def probes(folder):
    return [word for batch in (7, 11, 13) for word in ("--probe", f"{batch}={folder}/probes/probe-{batch}-0.vram")]


def test_plan_makes_its_probes_smallest_first_and_ends_them(planned):
    folder, document, ends, said = planned
    assert [probe["batch"] for probe in document["probes"]] == [7, 11, 13]
    assert all(probe["exact"] and probe["from_start"] and probe["steps"] == 6 for probe in document["probes"])
    assert not ends.exists(), "a probe went on after its steps"
    order = [line for line in said.splitlines() if "took" in line]
    assert [line.split("batch ")[1].split()[0] for line in order] == ["7", "11", "13"]
    assert (folder / "probes/probe-7-0.log").exists()


def test_samples_in_the_pool_make_nothing_sure(binary, tmp_path):
    """Their number grows with the batch, and not their size: what that does to the pool no probe shows."""
    command = ["plan", "--json", "--batches", "5,13,23", "--repeats", "1", "--limit", "100MiB", "--trace-steps", "6", "--no-confirm", "-o", tmp_path]
    done = call(binary, *command, "--", sys.executable, JOB, "{batch}", "--shuffled", codes=(4,))
    document = json.loads(done.stdout)
    assert "once-per-sample" in [warning["code"] for warning in document["warnings"]]
    assert document["largest_batch"]["sure"] is None and document["largest_batch"]["likely"] > 23


def test_what_is_there_of_this_job_is_not_run_again(binary, planned, tmp_path):
    folder, document, ends, _ = planned
    command = ["plan", "--json", "--batches", "7,11,13", "--repeats", "1", "--batch", TARGET, "--steps", "6", "--trace-steps", "6"]
    job = [sys.executable, JOB, "{batch}", "--ends", ends]
    done = call(binary, *command, "-o", folder / "probes", "--", *job)
    assert json.loads(done.stdout)["predictions"] == document["predictions"]
    assert done.stderr.count("already recorded") == 3
    # What is there of another job is not taken for this one, be it another command or other settings.
    copy = shutil.copytree(folder / "probes", tmp_path / "probes")
    for other in (["false", "{batch}"], ["false", *job[1:]], ["sh", "-c", "exit 255; {batch}"]):
        done = call(binary, *command, "-o", copy, "--", *other, codes=(1,))
        assert "of another job" in done.stderr and "already recorded" not in done.stderr
    done = call(binary, *command[:-1], "1000000", "-o", copy, "--", *job[:2], "not a number", *job[2:], codes=(1,))
    assert "of another job" in done.stderr and (copy / "probe-7-0.vram").is_dir()


@pytest.mark.parametrize(("ending", "said"), [("exit 255", "code 255"), ("kill -9 $$", "signal 9"), ("exit 3", "code 3")])
def test_a_probe_that_fails_ends_the_plan_with_its_last_words(ending, said, binary, tmp_path):
    script = f"echo 'no such data'; {ending}; {{batch}}"
    done = call(binary, "plan", "--batches", "7,11", "--repeats", "1", "-o", tmp_path, "--", "bash", "-c", script, codes=(1,))
    assert said in done.stderr and "no such data" in done.stderr
    assert not list(tmp_path.glob("probe-*-0.vram"))


def test_the_prediction_holds_in_real_runs(binary, planned, tmp_path):
    _, document, _, _ = planned
    (told,) = document["predictions"]
    peaks = []
    for run in range(4):
        path = tmp_path / f"{run}.vram"
        call(binary, "run", "--no-report", "--trace", "off", "-o", path, "--json", tmp_path / "report.json", "--", sys.executable, JOB, TARGET)
        report = json.loads((tmp_path / "report.json").read_text())
        peaks.append(max(pool["lifetime_peak_bytes"] for pool in report["pools"] if pool["device"] == "CPU:0"))
    median = statistics.median(peaks)
    assert abs(told["peak_bytes"] / median - 1) < 0.02, (told, peaks)
    assert told["exact_share"] > 0.9 and document["certain"]
    assert sum(told["by_role"].values()) == sum(told["bases"].values())
    # Op by op nothing has a scope, and still nearly everything has a role.
    assert told["by_role"]["unknown"] < 0.02 * sum(told["by_role"].values())


def test_sure_passes_where_the_allocator_enforces_the_limit(binary, planned):
    folder, document, _, _ = planned
    # Without oneDNN most of a probe's peak is scratch of the convolutions, whose size is the processor's cache's and not the batch's. Far from
    # there the batch decides: half-way there is room on both sides.
    done = call(binary, "plan", "--json", *probes(folder), "--batch", FAR, "--steps", "6")
    (told,) = json.loads(done.stdout)["predictions"]
    largest_probe = max(probe["peak_bytes"] for probe in document["probes"])
    limit = (largest_probe + told["peak_bytes"]) // 2 // MIB
    done = call(binary, "plan", "--json", *probes(folder), "--limit", f"{limit}MiB", codes=(0, 4))
    largest = json.loads(done.stdout)["largest_batch"]
    # Without a command nothing ran, so that only four times the largest probe is called sure.
    assert 13 < largest["sure"] <= min(largest["expected"], 4 * 13) and largest["expected"] <= largest["likely"] < FAR
    call(binary, "run", "--no-report", "--trace", "off", "--limit", f"{limit}MiB", "-o", folder / "sure.vram", "--", sys.executable, JOB, largest["expected"])
    done = call(binary, "plan", *probes(folder), "--limit", f"{limit}MiB", "--batch", FAR, codes=(3,))
    assert "does not fit" in done.stdout.splitlines()[0]
    done = call(binary, "plan", *probes(folder), "--limit", "4GiB", "--batch", TARGET, "--curve")
    assert "fits in 4.00 GiB" in done.stdout.splitlines()[0] and "Memory against batch" in done.stdout


def confirmed(binary, folder, limit, *job, codes=(0, 4), **more):
    command = ["plan", "--json", "--repeats", "1", "--trace-steps", "4", "--limit", limit, "-o", folder]
    done = call(binary, *command, *job, codes=codes, **more)
    return json.loads(done.stdout), done.stderr


def test_what_is_sure_has_run_though_another_kernel_needs_more(binary, tmp_path):
    """Above some size TensorFlow's own 3-D convolutions take scratch memory that no small probe shows."""
    job = ["--batches", "3,5,7", "--confirm", "2", "--", sys.executable, EDGES, "volumes", "{batch}"]
    document, said = confirmed(binary, tmp_path / "probes", "300MiB", *job, TF_ENABLE_ONEDNN_OPTS="0")
    told, largest = document["confirmation"], document["largest_batch"]
    assert told["state"] == "confirmed" and told["confirmed"], (told, said)
    assert largest["sure"] == told["batch"] and told["passes"] == 2 and told["failures"] == 0 and told["steps"] == 4
    counted = [run for run in told["runs"] if run["batch"] == told["batch"] and not run["only_measured"]]
    assert [run["passed"] for run in counted] == [True, True] and all(run["limit_bytes"] == 300 * MIB for run in counted)
    failed = [run["batch"] for run in told["runs"] if not run["passed"]]
    assert told["nearest_failure_batch"] == min(failed, default=None)
    (prediction,) = document["predictions"]
    assert "ran 2 times under 300 MiB, 4 steps each" in told["text"] and prediction["fits"]
    # What is predicted for it is of the kernels that it uses.
    assert prediction["batch"] == told["batch"] and prediction["peak_bytes"] <= 300 * MIB
    # What it says is so in one more run, and running the same plan again runs nothing.
    limit = ["--limit", "300MiB", "-o", tmp_path / "sure.vram"]
    call(binary, "run", "--no-report", "--trace", "off", *limit, "--", sys.executable, EDGES, "volumes", largest["sure"], TF_ENABLE_ONEDNN_OPTS="0")
    again, said = confirmed(binary, tmp_path / "probes", "300MiB", *job, TF_ENABLE_ONEDNN_OPTS="0")
    assert again["largest_batch"] == largest and " after " not in said and "already recorded; it passed" in said


def test_a_run_that_fails_for_another_reason_confirms_nothing(binary, tmp_path):
    job = ["--batches", "7,11,13", "--", sys.executable, EDGES, "depthwise", "{batch}", "--fails-above", "13"]
    document, _ = confirmed(binary, tmp_path / "probes", "600MiB", *job)
    told = document["confirmation"]
    assert told["state"] == "other-failure" and not told["confirmed"] and told["runs"] == [] and told["batch"] is None
    assert "another reason than memory" in told["text"] and "no such batch" in told["text"]
    # Requests that come once a sample, but add up to next to nothing, leave it certain.
    assert document["certain"] and 13 < document["largest_batch"]["sure"] <= 4 * 13, document["warnings"]
    assert "kernel-may-change" in [warning["code"] for warning in document["warnings"]]


def test_the_page_of_a_plan_says_what_the_document_says(binary, planned, tmp_path):
    folder, _, _, _ = planned
    page = tmp_path / "plan.html"
    done = call(binary, "plan", "--json", *probes(folder), "--batch", TARGET, "--steps", "6", "--html", page)
    told = json.loads(done.stdout)
    text = page.read_text(encoding="utf-8")
    assert told["headline"] in text and "<script" not in text and "<polyline" in text and "http" not in text.split("<body>")[1]
    assert all(fix["name"] in text for fix in told["fixes"]) and len(told["curve"]) > 10


def test_a_fix_is_measured(binary, planned):
    folder, _, ends, _ = planned
    command = ["verify", "--json", "--batches", "7,11,13", "--repeats", "1", "--runs", "2", "--trace-steps", "6"]
    command += ["-o", folder / "probes", "--fix", "accumulate", "--batch", LARGE]
    done = call(binary, *command, "--", sys.executable, JOB, "{batch}", "--ends", ends, codes=(0, 3))
    document = json.loads(done.stdout)
    assert document["fix"] == "accumulate" and len(document["runs_bytes"]) == 2
    # The accumulators are weights' size each, and the batch is half: both are in the measured figure.
    assert document["measured_saving_bytes"] > 0
    assert abs(document["off_share"]) < 0.1, document


def test_verify_takes_the_prediction_from_a_plan_that_is_there(binary, planned, tmp_path):
    _, document, ends, _ = planned
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    job = ["--plan", file, "-o", tmp_path / "measured", "--", sys.executable, JOB, "{batch}", "--ends", ends]
    done = call(binary, "verify", "--json", "--runs", "1", "--trace-steps", "6", "--batch", TARGET, *job, codes=(0, 3))
    verified = json.loads(done.stdout)
    (prediction,) = document["predictions"]
    assert [verified[f"predicted_{name}"] for name in ("bytes", "low_bytes", "high_bytes")] == [
        prediction[name] for name in ("peak_bytes", "low_bytes", "high_bytes")
    ]
    assert abs(verified["off_share"]) < 0.05, verified
    done = call(binary, "verify", "--batch", TARGET + 1, *job, codes=(1,))
    assert "has no prediction for batch" in done.stderr and "hint:" in done.stderr
    done = call(binary, "verify", "--batch", TARGET, "--fix", "accumulate", *job, codes=(2,))
    assert "cannot be combined" in done.stderr and "leave out --plan" in done.stderr


def peak_of(binary, folder, batch):
    report = folder / "report.json"
    call(binary, "run", "--no-report", "--trace", "off", "-o", folder / f"{batch}.vram", "--json", report, "--", sys.executable, COMPILED, batch)
    return max(pool["lifetime_peak_bytes"] for pool in json.loads(report.read_text())["pools"] if pool["device"] == "CPU:0")


def test_a_program_that_xla_compiles_is_compiled_at_the_batch_in_question(binary, tmp_path):
    command = ["plan", "--json", "--batches", "7,11,19", "--repeats", "1", "--trace-steps", "4", "--batch", 140, "-o", tmp_path / "probes"]
    job = ["--", sys.executable, COMPILED, "{batch}", "--ends", tmp_path / "ended"]
    done = call(binary, *command, *job, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    document = json.loads(done.stdout)
    assert document["certain"] and "compiling at batch 140 took" in done.stderr
    assert not (tmp_path / "ended").exists(), "compiling went on to the end of the training"
    (told,) = document["predictions"]
    (program,) = [one for one in document["compiled"] if one["batch"] == 140]
    assert told["bases"]["compiled"] == program["temporary_bytes"] > told["peak_bytes"] // 3
    real = peak_of(binary, tmp_path, 140)
    assert abs(told["peak_bytes"] / real - 1) < 0.01, (told, real)
    # The dump and the probes are there: the same answer without running anything.
    files = [word for batch in (7, 11, 19) for word in ("--probe", f"{batch}={tmp_path}/probes/probe-{batch}-0.vram")]
    dump = f"140={tmp_path}/probes/compiled-140"
    again = json.loads(call(binary, "plan", "--json", *files, "--compiled", dump, "--batch", 140).stdout)
    assert again["predictions"] == document["predictions"]
    # A batch that was not compiled is not certain.
    again = json.loads(call(binary, "plan", "--json", *files, "--batch", 140, codes=(4,)).stdout)
    assert not again["certain"] and "not-compiled" in [warning["code"] for warning in again["warnings"]]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["plan"], 2, "plan needs probes or a command"),
        (["plan", "--compiled", f"140={__file__}"], 1, "no program compiled by XLA"),
        (["plan", "--compile-only", "--batch", "5", "--", "true"], 2, "does not contain {batch}"),
        (["plan", "--probe", "seven=x"], 2, "BATCH=PATH"),
        (["plan", "--batches", "7,11", "--", "true"], 2, "does not contain {batch}"),
        (["plan", "--probe", "7=nowhere.vram", "--probe", "8=nowhere.vram"], 1, "nowhere.vram"),
        (["verify", "--", "true", "{batch}"], 2, "verify needs --batch"),
        (["verify", "--batch", "8"], 2, "verify needs a command to run"),
    ],
)
def test_bad_input_has_a_hint(binary, arguments, code, says):
    done = call(binary, *arguments, codes=(code,))
    assert says in done.stderr
    assert "hint:" in done.stderr or "For more information" in done.stderr


def test_one_probe_another_model_and_a_wrong_batch(binary, planned, fixtures):
    folder = planned[0]
    mine = f"{folder}/probes/probe-7-0.vram"
    done = call(binary, "plan", "--probe", f"7={mine}", codes=(1,))
    assert "all probes have the same batch size (7)" in done.stderr and "hint:" in done.stderr
    other = fixtures / "plan/tf221_cpu_autoencoder-13.xplane.pb.gz"
    done = call(binary, "plan", "--probe", f"7={mine}", "--probe", f"13={other}", codes=(1,))
    assert "not of the same program" in done.stderr
    done = call(binary, "plan", "--probe", f"7={mine}", "--probe", f"11={mine}", codes=(1,))
    assert "no request grows" in done.stderr
    # The largest file as the smallest batch: memory seems to fall.
    swapped = [word for said, real in ((20, 7), (11, 11), (7, 13)) for word in ("--probe", f"{said}={folder}/probes/probe-{real}-0.vram")]
    done = call(binary, "plan", *swapped, "--limit", "4GiB", "--batch", TARGET, codes=(4,))
    assert done.stdout.startswith("Not certain")
