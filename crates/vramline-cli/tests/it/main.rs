//! The binary's tests, in one binary: whole commands with exit code, output and errors. Verbs without a module are tested here.
//!
//! - `bug`: a panic is one message and an exit code, and leaves no half of a file
//! - `dataset`: tables for SQL across jobs
//! - `diff`: `vramline diff`, its gate and its errors
//! - `driver`: `run` and `doctor` with a driver that plays a script
//! - `exit`: the table of exit codes, row by row; a plan that is ended ends at once
//! - `export`: files for other tools
//! - `pack`: exit codes, names and batches of `vramline pack`
//! - `piping`: standard input as a file, and output that nobody reads on
//! - `progress`: a line of progress on a terminal, and notes that are printed once
//! - `redact`: a secret is in no output of any verb
//! - `run`: a job behaves as if it had been started without us
//! - `top`: a live view that breaks gives the terminal back
//! - `words`: every answer is one screen, in plain words

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bug;
mod dataset;
mod diff;
mod driver;
mod exit;
mod export;
mod pack;
mod piping;
mod progress;
mod redact;
mod run;
mod top;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
    command.current_dir(root()).args(args).output().expect("the binary runs")
}

/// Exit code, standard output and standard error, as one text.
fn told(args: &[&str]) -> String {
    let output = run(args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let mut told = format!("exit {}\n", output.status.code().expect("a code"));
    told += &text(&output.stdout);
    if !output.stderr.is_empty() {
        told += "--- stderr\n";
        told += &text(&output.stderr);
    }
    told
}

/// Compares what a command tells with a file beside this one; `UPDATE_EXPECTED=1 cargo test` writes it anew.
fn assert_told(name: &str, args: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/expected").join(name);
    let told = told(args);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &told).expect("written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(told == expected, "{name} differs. Expected:\n{expected}\nFound:\n{told}");
}

#[test]
fn the_first_screen_of_a_recording() {
    assert_told("keras.txt", &["report", "fixtures/tf221_cpu_keras.vram"]);
    assert_told("keras_by_layer.txt", &["report", "fixtures/tf221_cpu_keras.vram", "--by", "layer"]);
}

#[test]
fn the_first_screen_of_a_plan() {
    let probe = |batch: u32| format!("{batch}=fixtures/plan/tf221_cpu_autoencoder-{batch}.xplane.pb.gz");
    let probes = [probe(5), probe(7), probe(13)];
    let probes = probes.iter().flat_map(|probe| ["--probe", probe.as_str()]);
    let plan: Vec<&str> = std::iter::once("plan").chain(probes).collect();
    let limited = [plan.clone(), vec!["--batch", "64", "--limit", "150MiB"]].concat();
    assert_told("plan.txt", &limited);
    assert_told("plan_full.txt", &[limited, vec!["--full"]].concat());
}

#[test]
fn the_verdict_comes_first() {
    assert_told("cnn.txt", &["report", "fixtures/tf221_cpu_cnn_from_start.xplane.pb", "--top", "4"]);
}

#[test]
fn snapshots_of_pytorch() {
    assert_told(
        "torch.txt",
        &["report", "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz", "--top", "4"],
    );
    assert_told("torch_out_of_memory.txt", &["report", "fixtures/torch/out_of_memory.pickle.gz"]);
    assert_told(
        "torch_late.txt",
        &["report", "fixtures/torch/late.pickle.gz", "--by", "stack", "--top", "2"],
    );
}

#[test]
fn grouped_by_role_and_by_layer() {
    assert_told(
        "cnn_by_role.txt",
        &["report", "fixtures/tf221_cpu_cnn_from_start.xplane.pb", "--by", "role"],
    );
    assert_told(
        "cnn_by_layer.txt",
        &["report", "fixtures/tf221_cpu_cnn_from_start.xplane.pb", "--by", "layer"],
    );
}

#[test]
fn jax_has_the_names_of_its_programs() {
    assert_told("jax.txt", &["report", "fixtures/jax0112_h200_growth_window.xplane.pb"]);
    assert_told("jax_program.txt", &["report", "fixtures/jax0102_cpu_step.hlo.pb"]);
    assert_told("jax_profile.txt", &["report", "fixtures/jax0112_h200.memory.prof"]);
}

#[test]
fn a_silent_allocator_is_the_first_thing_said() {
    assert_told("jax_cuda_async.txt", &["report", "fixtures/jax0112_h200_cuda_async.xplane.pb.gz"]);
}

#[test]
fn driver_calls_name_what_lies_beside_the_pool() {
    assert_told("beside.txt", &["report", "fixtures/beside/torch_graph.vram"]);
    let full = told(&["report", "fixtures/beside/torch_graph.vram", "--full"]);
    let at_peak = full.split_once("The ledger of GPU:0").expect("a ledger").1;
    for (size, line, detail) in [
        ("518 MiB", "context", "PyTorch, without 8.81 MiB that NVML counts for the device only"),
        ("70.0 MiB", "streams", "PyTorch, 128 streams"),
        ("64.1 MiB", "memory of libraries", "cuBLAS, 3 allocations"),
        ("1.87 MiB", "rounding to pages of the driver", "NVML counts pages of 2 MiB"),
    ] {
        let is_it =
            |text: &str| text.trim_start().starts_with(size) && text.contains(line) && text.contains(detail);
        assert!(at_peak.lines().any(is_it), "{line}: {at_peak}");
    }
}

#[test]
fn help_teaches() {
    assert_told("help.txt", &["report", "--help"]);
}

#[test]
fn a_window_calls_what_was_there_before_in_use() {
    let told = told(&["report", "fixtures/tf221_cpu_mlp_window.xplane.pb"]);
    assert!(told.contains("before the recording   14.1 MiB  49.0 %"), "{told}");
    assert!(!told.to_lowercase().contains("unused"), "{told}");
}

#[test]
fn json_is_one_document() {
    let output = run(&["report", "fixtures/jax0112_h200_growth_window.xplane.pb", "--json", "--pool", "GPU"]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["kind"], "report");
    assert_eq!(report["pools"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["pools"][0]["peak_bytes"], 771_059_456);
}

#[test]
fn a_replay_tells_its_story() {
    let what_if = ["--what-if", "limit=64MiB", "--what-if", "growth=off,limit=80MiB", "--find", "limit"];
    let path = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
    assert_told("replay.txt", &[&["replay", path][..], &what_if].concat());
}

#[test]
fn a_replay_of_pytorch_tells_its_story() {
    let path = "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz";
    let what_if = [
        "--what-if",
        "expandable=on",
        "--what-if",
        "split_size=128MiB",
        "--what-if",
        "limit=6500MiB",
        "--what-if",
        "limit=5GiB",
        "--what-if",
        "allocator=cuda_malloc_async",
        "--find",
        "limit",
    ];
    assert_told("replay_torch.txt", &[&["replay", path, "--full"][..], &what_if].concat());
    let path = "fixtures/torch/out_of_memory.pickle.gz";
    assert_told("replay_torch_failed.txt", &["replay", path, "--what-if", "", "--find", "limit"]);
    let path = "fixtures/torch/late.pickle.gz";
    assert_told("replay_torch_late.txt", &["replay", path, "--what-if", "limit=100MiB"]);
}

#[test]
fn failures_of_a_snapshot_have_a_verdict() {
    assert_told("oom_torch_snapshot.txt", &["oom", "fixtures/torch/out_of_memory.pickle.gz"]);
}

#[test]
fn settings_of_another_allocator_are_refused() {
    let path = "fixtures/torch/default.pickle.gz";
    let told = told(&["replay", path, "--what-if", "growth=off"]);
    let expected = "exit 2\n--- stderr\nerror: 'growth=off' does not apply to cuda:0: it is a setting of TensorFlow's and JAX's allocator\nhint: ";
    assert!(told.starts_with(expected), "{told}");
    let code = |args: &[&str]| run(&[&["replay", path, "--gate", "fits"], args].concat()).status.code();
    assert_eq!(code(&["--gate", "exact", "--what-if", "limit=80GiB"]), Some(0));
    assert_eq!(code(&["--what-if", "limit=2MiB"]), Some(3));
    assert_eq!(code(&["--what-if", "allocator=cuda_malloc_async"]), Some(4));
}

#[test]
fn gates_decide_the_exit_code() {
    let code = |args: &[&str]| run(&[&["replay"], args].concat()).status.code();
    let whole = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
    let window = "fixtures/tf221_cpu_mlp_window.xplane.pb";
    assert_eq!(code(&[whole, "--gate", "exact", "--gate", "fits", "--what-if", "limit=200MiB"]), Some(0));
    assert_eq!(code(&[whole, "--gate", "fits", "--what-if", "limit=40MiB"]), Some(3));
    // From an assumed start nothing is certain.
    assert_eq!(code(&[window, "--gate", "exact"]), Some(4));
    assert_eq!(code(&[window, "--gate", "fits", "--what-if", "limit=200MiB"]), Some(4));
    assert_eq!(code(&[whole, "--what-if", "limit=40MiB"]), Some(0));
    assert_eq!(code(&[whole, "--gate", "fits"]), Some(2));
    assert_eq!(code(&[whole, "--what-if", "colour=red"]), Some(2));
    assert_eq!(code(&["fixtures/tf221_cpu_mlp_nobfc_window.xplane.pb"]), Some(1));
}

#[test]
fn settings_come_from_a_file_too() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("settings.txt");
    std::fs::write(&file, "# limits\nlimit=40MiB\n\nlimit=200MiB,growth=off\n").unwrap();
    let path = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
    let output = run(&["replay", path, "--json", "--settings", file.to_str().unwrap()]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let fits: Vec<_> =
        document["what_if"].as_array().unwrap().iter().map(|row| row["fits"].clone()).collect();
    assert_eq!(fits, [false, true]);
    assert_eq!(document["kind"], "replay");
    assert_eq!(document["pools"][0]["address_matches"], 5060);
}

#[test]
fn errors_have_a_hint() {
    let scratch = tempfile::tempdir().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = scratch.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases = [
        (
            "no/such/file".to_owned(),
            "error: cannot read 'no/such/file': No such file or directory",
            "plugins/profile",
        ),
        (file("empty.xplane.pb", b""), "is empty", "when it is stopped"),
        (
            file("log.txt", b"I0000 something\n"),
            "text without an out-of-memory error",
            "only the out-of-memory errors",
        ),
        (file("snapshot.pickle", b"\x80\x04\x95abc"), "in the middle of the pickle", "copy the file again"),
        (
            nothing.path().to_str().unwrap().to_owned(),
            "contains no profiler trace",
            "tf.profiler.experimental.start",
        ),
    ];
    for (path, expected, hint) in cases {
        let output = run(&["report", &path]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(output.stdout.is_empty());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected) && error.contains("\nhint: ") && error.contains(hint), "{error}");
        assert!(error.matches("os error").count() <= 1, "{error}");
    }
}

#[test]
fn usage_is_exit_code_two() {
    assert_eq!(run(&["report"]).status.code(), Some(2));
    assert_eq!(run(&["report", "x", "--at", "noon"]).status.code(), Some(2));
    assert_eq!(run(&["report", "x", "--by", "colour"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn a_pool_that_is_not_there() {
    let output = run(&["report", "fixtures/tf221_cpu_mlp_window.xplane.pb", "--pool", "GPU_7"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no pool whose name contains 'GPU_7'"));
}

/// A trace that was cut is reported on, and that is no error.
#[test]
fn a_cut_trace_is_reported_on() {
    let scratch = tempfile::tempdir().unwrap();
    let whole = std::fs::read(root().join("fixtures/tf221_cpu_mlp_window.xplane.pb")).unwrap();
    let path = scratch.path().join("cut.xplane.pb");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let output = run(&["report", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("This trace has no memory events") && told.contains("table of names"), "{told}");
}

/// `vramline report ... | head -1` ends quietly.
#[test]
fn a_closed_pipe_is_no_error() {
    let script = format!(
        "'{}' report fixtures/tf221_cpu_cnn_from_start.xplane.pb --json | head -c 1",
        env!("CARGO_BIN_EXE_vramline")
    );
    let output =
        Command::new("bash").args(["-o", "pipefail", "-c", &script]).current_dir(root()).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"{"[..], &b""[..]));
    assert!(output.status.success());
}

#[test]
fn nothing_but_text_on_a_pipe() {
    let output = run(&["report", "fixtures/tf221_cpu_cnn_from_start.xplane.pb"]);
    assert!(!output.stdout.contains(&0x1b));
}

/// Names come from files; none of them gets to steer the terminal.
#[test]
fn escape_sequences_in_a_name_are_not_printed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut trace = std::fs::read(root().join("fixtures/tf221_cpu_cnn_from_start.xplane.pb")).unwrap();
    let name = b"bfc_cpu_allocator_for_gpu";
    while let Some(at) = trace.windows(name.len()).position(|window| window == name) {
        trace[at..at + 4].copy_from_slice(b"\x1b[2J");
    }
    let path = scratch.path().join("hostile.xplane.pb");
    std::fs::write(&path, trace).unwrap();
    let output = run(&["report", path.to_str().unwrap(), "--full"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("\u{fffd}[2Jcpu_allocator_for_gpu") && !told.contains('\x1b'), "{told}");
}

#[test]
fn shells_can_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("report") && script.contains("oom"));
    }
}

#[test]
fn a_post_mortem_shows_its_arithmetic() {
    assert_told("oom.txt", &["oom", "fixtures/tf221_cpu_oom.log"]);
    assert_told("oom_full.txt", &["oom", "fixtures/tf221_cpu_oom.log", "--full"]);
    assert_told("oom_three.txt", &["oom", "fixtures/jax0112_h200_oom_three_failures.log"]);
    assert_told("oom_short.txt", &["oom", "fixtures/jax0112_h200_oom_short.log"]);
    assert_told("oom_dump.txt", &["oom", "fixtures/tf221_cpu_oom.memorydump.pb"]);
    assert_told("oom_limit.txt", &["oom", "fixtures/tf221_cpu_oom.log", "--limit", "256MiB"]);
}

#[test]
fn the_help_of_oom_teaches() {
    assert_told("oom_help.txt", &["oom", "--help"]);
}

#[test]
fn the_help_of_doctor_teaches() {
    assert_told("doctor_help.txt", &["doctor", "--help"]);
}

/// A log without a failure is an answer; a file that is no log, or is not there, is an error.
#[test]
fn no_failure_is_an_answer_and_no_log_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("job.log");
    std::fs::write(&path, "Epoch 1/10\nall is well\n").unwrap();
    let output = run(&["oom", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("No out-of-memory error found.") && told.contains("looked for"), "{told}");
    for (path, expected) in
        [("fixtures/tf221_cpu_cnn_from_start.xplane.pb", "a profiler trace"), ("no/such.log", "cannot read")]
    {
        let output = run(&["oom", path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(error.contains(expected) && error.contains("\nhint: give "), "{error}");
    }
    assert_eq!(run(&["oom"]).status.code(), Some(2));
}
