//! Bugs: a panic anywhere is one message and exit code 1, and no file is left half written. `VRAMLINE_PANIC` provokes one in builds with debug
//! assertions.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use crate::root;

const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";

fn stumbling(place: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
    command.current_dir(root()).env("VRAMLINE_PANIC", place).env_remove("RUST_BACKTRACE").args(args);
    command
}

fn assert_is_bug(output: &Output, place: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = told.lines().collect();
    let [error, hint] = lines.as_slice() else { panic!("{told}") };
    let expected = format!("error: this is a bug in Vramline {}: ", env!("CARGO_PKG_VERSION"));
    assert!(
        error.starts_with(&expected) && error.contains(&format!("stumble at {place} (crates/")),
        "{error}"
    );
    assert!(hint.starts_with("hint: please report"), "{hint}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_panic_is_told_as_a_bug() {
    for verb in ["report", "replay"] {
        let output = stumbling("read", &[verb, CNN]).output().unwrap();
        assert_is_bug(&output, "read");
        assert!(output.stdout.is_empty());
    }
    let traced = stumbling("read", &["report", CNN]).env("RUST_BACKTRACE", "1").output().unwrap();
    assert!(String::from_utf8_lossy(&traced.stderr).lines().count() > 2);
}

#[test]
fn a_panic_leaves_no_half_of_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("out");
    let args = |format| ["export", CNN, "--to", format, "-o", path.to_str().unwrap()];
    for format in ["csv", "parquet"] {
        assert_is_bug(&stumbling("export", &args(format)).output().unwrap(), "export");
        assert!(!path.exists(), "{format}");
    }
    assert!(stumbling("nowhere", &args("csv")).output().unwrap().status.success());
    assert!(path.metadata().unwrap().len() > 0);
}

/// Nobody waits for the threads of a server: it would answer no more, or with what was read long ago.
#[test]
fn a_panic_in_a_thread_that_nobody_joins_ends_the_command() {
    let mut server = stumbling("serve", &["serve", CNN]);
    let mut child = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim_start_matches("http://").split('/').next().unwrap();
    let _connection = TcpStream::connect(address).unwrap();
    assert_is_bug(&child.wait_with_output().unwrap(), "serve");
}

/// The exit code of `run` is the job's, and its recording is there: only the report is missing.
#[test]
fn a_panic_in_the_report_does_not_touch_the_job() {
    let scratch = tempfile::tempdir().unwrap();
    let job = "start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20); \
               echo {} > \"$VRAMLINE_RECORD/process-test-host-$$-$start.json\"; exit 7";
    let mut command = stumbling("read", &["run", "-o", "a.vram", "--json", "a.json", "--", "sh", "-c", job]);
    let output = command.current_dir(scratch.path()).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{told}");
    assert_eq!(told.matches("error: this is a bug in Vramline").count(), 1, "{told}");
    assert!(told.contains("vramline: recording: a.vram"), "{told}");
    assert!(scratch.path().join("a.vram/run.json").exists());
    assert!(!scratch.path().join("a.json").exists());
}
