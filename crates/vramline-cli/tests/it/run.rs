//! `vramline run` with small jobs: it must be as if the job had been started by itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, with a Python package that notes its attachment as the real one does.
struct Place {
    folder: TempDir,
}

const BOOT: &str = r#"
import os
start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
folder = os.environ.get("VRAMLINE_RECORD")
if folder:
    open(f"{folder}/process-test-host-{os.getpid()}-{start}.json", "w").write("{}")
"#;

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("package/_boot")).unwrap();
        fs::write(folder.path().join("package/_boot/sitecustomize.py"), BOOT).unwrap();
        Place { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A run with an environment that is the same on every machine. No GPU is visible, so that none matters. A shell starts what
    /// runs in its background with interrupts ignored, and so might these tests be run: `env` undoes that.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(env!("CARGO_BIN_EXE_vramline"));
        command.current_dir(self.path()).arg("run").args(words);
        for (name, _) in std::env::vars_os() {
            if name != "PATH" && name != "HOME" {
                command.env_remove(name);
            }
        }
        command.env("CUDA_VISIBLE_DEVICES", "-1").env("VRAMLINE_PACKAGE", self.path().join("package"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The recordings here, by name.
    fn recordings(&self) -> BTreeSet<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".vram")).collect()
    }

    fn manifest(&self, recording: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(recording).join("run.json")).unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the job says a line, which it does when it is ready.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn code(child: &mut Child) -> Option<i32> {
    child.wait().unwrap().code()
}

#[test]
fn the_exit_code_is_the_jobs() {
    let place = Place::new();
    let not_executable = place.path().join("plain.txt");
    fs::write(&not_executable, "").unwrap();
    for (words, expected) in [
        (&["--", "true"][..], 0),
        (&["--", "sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["--", "sh", "-c", "kill -9 $$"], 137),
        (&["--", "sh", "-c", "kill -TERM $$"], 143),
        (&["--", "no-such-command-anywhere"], 127),
        (&["--", "./plain.txt"], 126),
        (&["--", "/"], 126),
    ] {
        let output = place.run(words);
        assert_eq!(output.status.code(), Some(expected), "{words:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    // What was not started left nothing behind.
    assert_eq!(place.recordings().len(), 5, "{:?}", place.recordings());
}

#[test]
fn the_manifest_tells_the_run() {
    let place = Place::new();
    let output =
        place.run(&["-o", "a.vram", "--limit", "8GiB", "--rate", "0.5", "--", "sh", "-c", "exit 3", "ü"]);
    assert_eq!(output.status.code(), Some(3));
    let manifest = place.manifest("a.vram");
    assert_eq!(manifest["kind"], "vramline-recording");
    assert_eq!(manifest["command"], serde_json::json!(["sh", "-c", "exit 3", "ü"]));
    assert_eq!(manifest["cwd"], place.path().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(manifest["exit"]["code"], 3);
    assert_eq!(manifest["settings"]["limit_bytes"], 8_u64 << 30);
    assert_eq!(manifest["settings"]["rate"], 0.5);
    assert_eq!(manifest["settings"]["stand_in"], "switched-on");
    assert_eq!(manifest["environment"]["TF_CPU_BFC_MEM_LIMIT_IN_MB"], "8192");
    let (begin, end) = (&manifest["clocks"]["begin"], &manifest["clocks"]["end"]);
    for clock in ["realtime_ns", "monotonic_ns"] {
        assert!(begin[clock].as_i64() > Some(0) && end[clock].as_i64() >= begin[clock].as_i64());
    }
    let signal = place.run(&["-o", "b", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(signal.status.code(), Some(137));
    assert_eq!(place.manifest("b.vram")["exit"], serde_json::json!({"signal": 9}));
}

#[test]
fn input_and_output_are_the_jobs() {
    let place = Place::new();
    let mut child = started({
        let mut command = place.command(&["-o", "a", "--", "sh", "-c", "cat; echo to stderr >&2"]);
        command.stdin(Stdio::piped());
        command
    });
    child.stdin.take().unwrap().write_all(b"through\0and through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"through\0and through");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("to stderr\n"), "{stderr}");
    for line in stderr.lines().filter(|line| *line != "to stderr") {
        assert!(line.starts_with("vramline: "), "{line}");
    }
    assert!(stderr.ends_with("vramline: recording: a.vram\n"), "{stderr}");
}

/// A job behind a closed or full standard error is not disturbed by what we cannot say.
#[test]
fn a_standard_error_that_takes_nothing() {
    let place = Place::new();
    for stderr in ["2>/dev/full", "2>&-"] {
        let script = format!("exec \"$0\" run -o x -- sh -c 'exit 9' {stderr}");
        let status = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_vramline")])
            .current_dir(place.path())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(9), "{stderr}");
    }
}

#[test]
fn signals_reach_the_job() {
    let place = Place::new();
    for signal in ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT"] {
        let script = format!("trap 'echo got; exit 5' {signal}; echo ready; while :; do sleep 0.05; done");
        let mut child = started(place.command(&["-o", "a", "--", "sh", "-c", &script]));
        assert_eq!(line(&mut child), "ready");
        send(&format!("-{signal}"), child.id());
        assert_eq!((line(&mut child).as_str(), code(&mut child)), ("got", Some(5)), "{signal}");
    }
    // A job that takes no notice of it is ended by it.
    let mut child = started(place.command(&["-o", "a", "--", "sh", "-c", "echo ready; exec sleep 600"]));
    line(&mut child);
    send("-TERM", child.id());
    assert_eq!(code(&mut child), Some(143));
}

/// What the job sends to its whole group, or to its parent, does not come back to it.
#[test]
fn the_jobs_own_signals_are_not_returned() {
    let place = Place::new();
    let script = "
import os, signal
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
os.kill(os.getppid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
import time; time.sleep(0.2)
print(len(got))";
    let output = place.run(&["-o", "a", "--no-report", "--", "python3", "-c", script]);
    assert_eq!(
        (text(&output.stdout).trim(), output.status.code()),
        ("1", Some(0)),
        "{}",
        text(&output.stderr)
    );
}

/// In a terminal Ctrl-C goes to the whole group: the job gets it once, and we see it to its end.
#[test]
fn ctrl_c_in_a_terminal_reaches_the_job_once() {
    let place = Place::new();
    let script = r#"
import os, pty, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    job = "import signal, time\ngot = []\nsignal.signal(signal.SIGINT, lambda *_: got.append(1))\nprint('ready', flush=True)\n" \
          "while not got: time.sleep(0.02)\ntime.sleep(0.3)\nprint('got', len(got), flush=True)\nraise SystemExit(6)"
    os.execv(sys.argv[1], [sys.argv[1], "run", "-o", "a", "--no-report", "--", sys.executable, "-c", job])
seen = b""
def read_until(word):
    global seen
    while word not in seen:
        try:
            seen += os.read(terminal, 1000)
        except OSError:
            break
read_until(b"ready")
os.write(terminal, b"\x03")
read_until(b"recording:")
_, status = os.waitpid(pid, 0)
print(b"got 1" in seen, os.waitstatus_to_exitcode(status))
"#;
    let output = Command::new("python3")
        .args(["-c", script, env!("CARGO_BIN_EXE_vramline")])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout).trim(), "True 6", "{}", text(&output.stderr));
}

/// Ctrl-Z and `fg`: both stop, both go on.
#[test]
fn stopped_and_continued_with_the_job() {
    let place = Place::new();
    let mut command = place.command(&["-o", "a", "--", "sh", "-c", "echo $$; read line < go; exit 8"]);
    assert!(Command::new("mkfifo").arg(place.path().join("go")).status().unwrap().success());
    let mut child = started({
        command.process_group(0);
        command
    });
    let both = [child.id().to_string(), line(&mut child)];
    let all_are_stopped =
        || both.iter().all(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T "));
    let group = format!("-{}", child.id());
    let to_group = |signal: &str| {
        assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
    };
    to_group("-TSTP");
    while !all_are_stopped() {
        std::thread::yield_now();
    }
    to_group("-CONT");
    fs::write(place.path().join("go"), "\n").unwrap();
    assert_eq!(code(&mut child), Some(8));
}

/// Killed without a chance to do anything, we leave the job running to its own end.
#[test]
fn the_job_survives_us() {
    let place = Place::new();
    let script = "echo ready; read line < go; echo $line > done";
    assert!(Command::new("mkfifo").arg(place.path().join("go")).status().unwrap().success());
    let mut child = started(place.command(&["-o", "a", "--", "sh", "-c", script]));
    assert_eq!(line(&mut child), "ready");
    send("-KILL", child.id());
    child.wait().unwrap();
    fs::write(place.path().join("go"), "undisturbed\n").unwrap();
    // Its output ends when it does.
    child.stdout.as_mut().unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(fs::read_to_string(place.path().join("done")).unwrap(), "undisturbed\n");
    assert!(place.manifest("a.vram")["exit"].is_null());
}

/// What we were told to ignore, and what waits for children, is for the job as it would be without us.
#[test]
fn what_is_inherited_stays() {
    let place = Place::new();
    let script = "trap '' HUP CHLD; exec \"$0\" run -o a -- sh -c 'grep -E \"^Sig(Blk|Ign)\" /proc/self/status; exit 4'";
    let status = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_vramline")])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(4), "{}", text(&status.stderr));
    let told = text(&status.stdout);
    let bits = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(bits("SigBlk:"), 0, "{told}");
    assert_eq!(bits("SigIgn:") & 1, 1, "{told}");
}

#[test]
fn a_taken_name_is_told() {
    let place = Place::new();
    assert!(!text(&place.run(&["-o", "x.vram", "true"]).stderr).contains("already exists"));
    let second = text(&place.run(&["-o", "x.vram", "true"]).stderr);
    assert!(
        second.contains("vramline: 'x.vram' already exists; recording to 'x-2.vram' instead\n"),
        "{second}"
    );
    assert!(second.ends_with("vramline: recording: x-2.vram\n"), "{second}");
    place.run(&["-o", "deep/er/y", "true"]);
    assert!(place.path().join("deep/er/y.vram/run.json").is_file());
}

#[test]
fn runs_at_once_do_not_share_a_folder() {
    let place = Place::new();
    let mut runs: Vec<Child> = (0..6)
        .map(|i| started(place.command(&["-o", "x", "--", "sh", "-c", &format!("exit {i}")])))
        .collect();
    for (i, run) in (0..).zip(&mut runs) {
        assert_eq!(code(run), Some(i));
    }
    let exits: BTreeSet<i64> = place
        .recordings()
        .iter()
        .map(|name| place.manifest(name)["exit"]["code"].as_i64().unwrap())
        .collect();
    assert_eq!((place.recordings().len(), exits), (6, (0..6).collect()));
}

#[test]
fn without_a_name_the_script_gives_it() {
    let place = Place::new();
    fs::write(place.path().join("train.py"), "").unwrap();
    place.run(&["python3", "train.py", "--epochs", "3", "-o", "not-ours"]);
    let names = place.recordings();
    let name = names.first().unwrap();
    assert!(
        names.len() == 1 && name.starts_with("train-2") && name.len() == "train-20261115-071010.vram".len()
    );
    assert_eq!(place.manifest(name)["command"][5], "not-ours");
}

/// A place that cannot be written to costs a line, then the recording, never the job.
#[test]
fn no_room_for_a_recording() {
    let place = Place::new();
    let temporary = place.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    // Nobody, not even root, makes folders there.
    for wanted in ["/proc/x.vram", "/dev/full/x.vram"] {
        let mut command =
            place.command(&["-o", wanted, "--", "sh", "-c", "echo \"$VRAMLINE_RECORD\"; exit 3"]);
        let output = command.env("TMPDIR", &temporary).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let recording = PathBuf::from(text(&output.stdout).trim());
        assert!(recording.starts_with(&temporary) && recording.join("run.json").is_file(), "{recording:?}");
        assert!(text(&output.stderr).contains("cannot write '"), "{}", text(&output.stderr));

        let mut command = place.command(&[
            "-o",
            wanted,
            "--",
            "sh",
            "-c",
            "echo \"[$VRAMLINE_RECORD$PYTHONPATH]\"; exit 3",
        ]);
        let output = command.env("TMPDIR", "/proc").output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(3), "[]"));
        let told = text(&output.stderr);
        assert_eq!(told.lines().filter(|line| line.contains("without a recording")).count(), 1, "{told}");
        assert!(!told.contains("recording: "), "{told}");
    }
}

#[test]
fn a_folder_that_is_read_only() {
    let place = Place::new();
    let folder = place.path().join("closed");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let is_root = fs::write(folder.join("probe"), "").is_ok();
    let mut command = place.command(&["-o", "closed/x.vram", "--", "sh", "-c", "exit 3"]);
    let output = command.env("TMPDIR", place.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    // Root may write anywhere.
    assert!(is_root || place.path().join("x.vram/run.json").is_file(), "{}", text(&output.stderr));
}

/// A folder that is gone, or full, when the job ends.
#[test]
fn a_recording_that_cannot_be_completed() {
    let place = Place::new();
    let output = place.run(&["-o", "x", "--", "sh", "-c", "rm -r \"$VRAMLINE_RECORD\"; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("vramline: cannot write to 'x.vram': "),
        "{}",
        text(&output.stderr)
    );
}

/// Files may not grow: as near to a full disk as a test gets without a disk of its own.
#[test]
fn a_disk_that_is_full() {
    let place = Place::new();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" run -o x -- sh -c 'exit 3'";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_vramline")])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("running without a recording"), "{}", text(&output.stderr));
    assert!(place.recordings().is_empty(), "a folder without a manifest was left");
}

#[test]
fn contradictions_are_refused_before_anything_starts() {
    let place = Place::new();
    let cases: [&[&str]; 9] = [
        &["--limit", "8GiB", "--growth", "on"],
        &["--limit", "8GiB", "--allocator", "async"],
        &["--limit", "8"],
        &["--limit", "1GiB", "--gpus", "none", "--no-stand-in"],
        &["--growth", "off", "--allocator", "platform"],
        &["--growth", "off", "--allocator", "async"],
        &["--gpus", "none", "--growth", "on"],
        &["--gpus", "none", "--allocator", "expandable"],
        // The environment of these tests says -1.
        &["--gpus", "0"],
    ];
    for options in cases {
        let output = place.run(&[options, &["--", "touch", "started"]].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {told}");
        assert!(
            told.starts_with("error: ") && told.contains("\nhint: ") && told.contains(options[0]),
            "{told}"
        );
    }
    assert!(!place.path().join("started").exists() && place.recordings().is_empty());
    let told = text(&place.run(&["--gpus", "0", "true"]).stderr);
    assert!(told.contains("--gpus 0 conflicts with CUDA_VISIBLE_DEVICES=-1"), "{told}");
}

#[test]
fn wrong_usage_is_exit_code_two() {
    let place = Place::new();
    let cases: [&[&str]; 8] = [
        &[],
        &["--"],
        &["--no-such-option", "true"],
        &["--trace", "some", "true"],
        &["--limit", "much", "true"],
        &["--rate", "-1", "true"],
        &["--trace-seconds", "0", "true"],
        &["--gpus", "first", "true"],
    ];
    for words in cases {
        assert_eq!(place.run(words).status.code(), Some(2), "{words:?}");
    }
    assert!(place.recordings().is_empty());
}

#[test]
fn secrets_stay_out_of_the_recording() {
    let place = Place::new();
    let mut command = place.command(&["-o", "a", "--", "python3", "-c", "pass"]);
    for name in
        ["AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "TF_MY_TOKEN", "HF_TOKEN", "SOMETHING", "JAX_auth_file"]
    {
        command.env(name, "very-secret");
    }
    let output = command.env("TF_CONFIG", "{\"task\": 1}").env("SLURM_PROCID", "3").output().unwrap();
    assert!(output.status.success());
    for entry in fs::read_dir(place.path().join("a.vram")).unwrap() {
        // A stream is not text; what stands in it as text is found all the same.
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("very-secret") && !text.contains("TOKEN"), "{text}");
    }
    let environment = &place.manifest("a.vram")["environment"];
    assert_eq!(
        (&environment["TF_CONFIG"], &environment["SLURM_PROCID"]),
        (&"{\"task\": 1}".into(), &"3".into())
    );
    assert!(environment.get("PATH").is_none() && environment.get("HOME").is_none());
}

/// The variables that the job has, by name.
fn job_environment(mut command: Command) -> Vec<String> {
    let output = command.args(["--", "env"]).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn the_stand_in_is_said_and_can_be_prevented() {
    let place = Place::new();
    let has = |command: Command, line: &str| job_environment(command).iter().any(|found| found == line);
    assert!(has(place.command(&[]), "TF_CPU_ALLOCATOR_USE_BFC=1"));
    assert!(has(place.command(&[]), "VRAMLINE_STAND_IN=1"));
    assert!(!has(place.command(&["--no-stand-in"]), "TF_CPU_ALLOCATOR_USE_BFC=1"));
    let mut own = place.command(&[]);
    own.env("TF_CPU_ALLOCATOR_USE_BFC", "0");
    assert!(has(own, "TF_CPU_ALLOCATOR_USE_BFC=0"));
    let told = text(&place.run(&["--", "true"]).stderr);
    assert_eq!(told.lines().filter(|line| line.contains("switched on")).count(), 1, "{told}");
    assert!(!text(&place.run(&["--no-stand-in", "--", "true"]).stderr).contains("switched on"));
}

#[test]
fn the_job_is_told_where_to_record() {
    let place = Place::new();
    let mut command = place.command(&["-o", "a", "--trace", "steps=2"]);
    command.env("PYTHONPATH", "mine").env("VRAMLINE_STEP_PEAKS", "1");
    let environment = job_environment(command);
    let root = place.path().canonicalize().unwrap();
    for expected in [
        format!("VRAMLINE_RECORD={}", root.join("a.vram").display()),
        "VRAMLINE_TRACE=steps=2".to_owned(),
        "VRAMLINE_TRACE_SECONDS=60".to_owned(),
        "VRAMLINE_RATE=10".to_owned(),
        format!("PYTHONPATH={}:mine", place.path().join("package/_boot").display()),
    ] {
        assert!(environment.contains(&expected), "{expected} is not in {environment:#?}");
    }
    // That was of a run around this one.
    assert!(!environment.iter().any(|line| line.starts_with("VRAMLINE_STEP_PEAKS")));
}

#[test]
fn whether_python_attached_is_said() {
    let place = Place::new();
    let told = |words: &[&str]| text(&place.run(words).stderr);
    let line = "no Python process was recorded";
    assert!(told(&["-o", "a", "true"]).contains(line));
    assert!(told(&["-o", "a", "--", "python3", "-I", "-c", "pass"]).contains(line));
    assert!(!told(&["-o", "a", "--", "python3", "-c", "pass"]).contains(line));
    let mut lost = place.command(&["-o", "a", "true"]);
    let told = text(&lost.env("VRAMLINE_PACKAGE", "nowhere").output().unwrap().stderr);
    assert!(told.contains("VRAMLINE_PACKAGE is '") && told.contains("does not contain _boot"), "{told}");
    assert!(!told.contains(line), "{told}");
}

/// The report comes on standard error, and a failing one changes nothing.
#[test]
fn the_report_comes_at_the_end() {
    let place = Place::new();
    let fixture = crate::root().join("fixtures/tf221_cpu_cnn_from_start.xplane.pb").canonicalize().unwrap();
    let script = "import os, shutil, sys\n\
        folder = os.environ['VRAMLINE_RECORD'] + '/trace-test-host-1-2'\n\
        os.mkdir(folder); shutil.copy(sys.argv[1], folder); sys.exit(5)";
    let job = ["--", "python3", "-c", script, fixture.to_str().unwrap()];
    let output = place.run(&[&["-o", "a", "--json", "a.json"], &job[..]].concat());
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(5), ""));
    assert!(text(&output.stderr).contains("69.3 MiB"), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&fs::read(place.path().join("a.json")).unwrap()).unwrap();
    assert_eq!(json["pools"][0]["peak_bytes"], 72_718_080);

    let quiet = place.run(&[&["-o", "b", "--no-report"], &job[..]].concat());
    assert!(
        !text(&quiet.stderr).contains("69.3 MiB") && text(&quiet.stderr).ends_with("recording: b.vram\n")
    );

    let unwritable = place.run(&[&["-o", "c", "--no-report", "--json", "/dev/full"], &job[..]].concat());
    assert_eq!(unwritable.status.code(), Some(5));
    assert!(
        text(&unwritable.stderr).contains("vramline: cannot write the report: "),
        "{}",
        text(&unwritable.stderr)
    );
}

#[test]
fn help_teaches() {
    crate::assert_told("run_help.txt", &["run", "--help"]);
}

#[test]
fn shells_complete_it() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&crate::run(&["completions", shell]).stdout);
        for word in ["no-stand-in", "step-peaks", "expandable"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
