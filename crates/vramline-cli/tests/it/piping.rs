//! What comes from standard input, and what goes to somebody who does not read on.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::{root, run};

fn piped(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
    command.current_dir(root()).args(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Whoever refuses it does not read it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What is piped is read as its file is: every kind of file, also such as need going back and forth.
#[test]
fn standard_input_is_read_as_a_file_is() {
    for (args, file) in [
        (&["oom", "PATH", "--json"][..], "fixtures/tf221_cpu_oom.log"),
        (&["oom", "PATH", "--full"], "fixtures/jax0112_h200_oom_three_failures.log"),
        (&["report", "PATH", "--json"], "fixtures/tf221_cpu_cnn_from_start.xplane.pb"),
        (&["report", "PATH", "--full"], "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz"),
        (&["report", "PATH", "--json"], "fixtures/jax0112_h200.memory.prof"),
        (&["report", "PATH", "--json"], "fixtures/tf221_cpu_oom.memorydump.pb"),
        (&["replay", "PATH", "--json"], "fixtures/tf221_cpu_cnn_from_start.xplane.pb"),
    ] {
        let with = |path: &str| {
            args.iter()
                .map(|&arg| if arg == "PATH" { path.to_owned() } else { arg.to_owned() })
                .collect::<Vec<_>>()
        };
        let by_name = with(file);
        let expected = run(&by_name.iter().map(String::as_str).collect::<Vec<_>>());
        let by_pipe = with("-");
        let bytes = std::fs::read(root().join(file)).unwrap();
        let found = piped(&by_pipe.iter().map(String::as_str).collect::<Vec<_>>(), &bytes);
        assert_eq!(found.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&found.stderr));
        let text = |output: Output| String::from_utf8(output.stdout).unwrap();
        let stem = file.rsplit('/').next().unwrap();
        assert_eq!(
            text(found),
            // What was piped cannot be named again.
            text(expected)
                .replace(&format!(" {file} --"), " - --")
                .replace(file, "standard input")
                .replace(stem, "standard input"),
            "{args:?}"
        );
    }
}

#[test]
fn nothing_in_standard_input_is_said() {
    let empty = piped(&["report", "-"], b"");
    assert_eq!(empty.status.code(), Some(1));
    assert!(String::from_utf8(empty.stderr).unwrap().starts_with("error: 'standard input' is empty\nhint: "));
    let foreign = piped(&["report", "-"], b"hello\n");
    assert_eq!(foreign.status.code(), Some(1));
    assert!(String::from_utf8(foreign.stderr).unwrap().contains("'standard input' has no memory data"));
}

/// A pipe whose other end is closed, and a standard output that never was: neither is an error to anybody.
#[test]
fn who_does_not_read_on_is_no_error() {
    const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
    const LOOP: &str = "fixtures/torch2110_h200_loop.vram";
    for args in [
        &["report", CNN, "--json"][..],
        &["report", CNN],
        &["oom", "fixtures/tf221_cpu_oom.log", "--json"],
        &["replay", CNN, "--json"],
        &["diff", LOOP, LOOP, "--json"],
        &[
            "plan",
            "--probe",
            "5=fixtures/plan/tf221_cpu_autoencoder-5.xplane.pb.gz",
            "--probe",
            "7=fixtures/plan/tf221_cpu_autoencoder-7.xplane.pb.gz",
            "--batch",
            "9",
            "--json",
        ],
        &[
            "pack",
            "fixtures/jax0112_h200_preallocated_pool.vram",
            "--device-memory",
            "200GiB",
            "--context",
            "1GiB",
            "--json",
        ],
        &["export", CNN, "--to", "csv", "-o", "-"],
        &["export", CNN, "--to", "parquet", "-o", "-"],
        &["top", "--json"],
        &["doctor", "--json", "--python", "/no/such/python"],
        &["completions", "bash"],
        &["unpickle", "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
        let output = command.current_dir(root()).args(args).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
    // A full disk is an error.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
    let output = command.current_dir(root()).args(["report", CNN, "--json"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: No space left on device"));
}
