//! The table of exit codes in `docs/reference/exit-codes.md`, row by row: a command that ends so, for each.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::request::{RequestWatch, SnapshotRequest};

use crate::{root, top};

const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
const LOOP: &str = "fixtures/torch2110_h200_loop.vram";
const NEAR_FULL: &str = "fixtures/torch2110_h200_near_full.vram";
const AUTOENCODER: &str = "fixtures/plan/tf221_cpu_autoencoder";
/// A job that leaves a recording behind as if it had trained.
pub(crate) const TRAIN: &str = "cp -r fixtures/tf221_cpu_keras.vram/. \"$VRAMLINE_RECORD\"; : {batch}";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The rows of the table: verb and code, without backticks.
fn rows() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs/reference/exit-codes.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(verb, rest)| (verb.to_owned(), rest.split(" |").next().unwrap().to_owned())).collect()
}

/// A shell starts what runs in its background with interrupts ignored, `nohup` with hang-ups, and tests may run there: here they count.
pub(crate) fn vramline(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,HUP,TERM", env!("CARGO_BIN_EXE_vramline")]);
    command.current_dir(root()).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("VRAMLINE_PACKAGE", root().join("python/vramline")).env("TMPDIR", folder);
    command
}

fn code(mut command: Command) -> i32 {
    command.status().unwrap().code().expect("no signal")
}

/// Ends a command that goes on, once `is_ready`, and gives its code.
fn interrupted(mut command: Command, signal: &str, is_ready: impl Fn() -> bool) -> i32 {
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while !is_ready() {
        assert!(begin.elapsed() < PATIENCE, "it does not begin");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let status = ended(&mut child);
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Waits for an end that must come; a test that hung would tell nothing.
fn ended(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn plan(options: &[&str]) -> Vec<String> {
    let probes = [5, 7, 13].map(|batch| format!("{batch}={AUTOENCODER}-{batch}.xplane.pb.gz"));
    let mut args = vec!["plan".to_owned()];
    args.extend(probes.into_iter().flat_map(|probe| ["--probe".to_owned(), probe]));
    args.extend(options.iter().map(|&option| option.to_owned()));
    args
}

/// Asks a recording for a snapshot: this process answers as one of a job, and as many others that run do not.
fn asked(folder: &Path, silent: usize) -> i32 {
    let recording = folder.join("job.vram");
    std::fs::create_dir(&recording).unwrap();
    let mut others: Vec<Child> =
        (0..silent).map(|_| Command::new("sleep").arg("100").spawn().unwrap()).collect();
    let own = std::process::id();
    for pid in others.iter().map(Child::id).chain([own]) {
        let id = ProcessId::of_running(pid).unwrap();
        std::fs::write(recording.join(Part::Process.name(&id)), "{}").unwrap();
    }
    let mut watch = RequestWatch::new(&recording);
    let mut command = vramline(&["snapshot", recording.to_str().unwrap(), "--timeout", "2"], folder);
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while !watch.has_new() {
        assert!(begin.elapsed() < PATIENCE, "there is no request");
        std::thread::sleep(Duration::from_millis(5));
    }
    let request = std::fs::read_to_string(recording.join("request.json")).unwrap();
    let request: SnapshotRequest = serde_json::from_str(&request).unwrap();
    let answer = format!("{{\"request\": \"{}\"}}", request.request);
    let id = ProcessId::of_running(own).unwrap();
    // Moved into place, as a process does it: half an answer is none.
    std::fs::write(recording.join(".answer"), answer).unwrap();
    std::fs::rename(recording.join(".answer"), recording.join(format!("answer-{id}.json"))).unwrap();
    let status = ended(&mut child);
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    status.code().unwrap()
}

/// Runs a command that should end with the code of a row, and gives the code that it ends with.
fn ends_with(verb: &str, code_of_row: &str, folder: &Path) -> i32 {
    let out = folder.join("out").to_str().unwrap().to_owned();
    let job = |job: &[&str]| {
        let words = [&["run", "--no-report", "-o", &out, "--"], job].concat();
        code(vramline(&words, folder))
    };
    let simple = |args: &[&str]| code(vramline(args, folder));
    let planned = |options: &[&str]| {
        let args = plan(options);
        simple(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let document = folder.join("plan.json");
    let verify = |peak: u64, script: &str| {
        let text = format!(
            r#"{{"kind":"plan","headline":"","limit_bytes":null,"certain":true,"warnings":[],"largest_batch":{{"sure":null,"likely":null}},
            "predictions":[{{"batch":8,"peak_bytes":{peak},"low_bytes":1,"high_bytes":1,"minimum_bytes":null}}]}}"#
        );
        std::fs::write(&document, text).unwrap();
        let plan = document.to_str().unwrap();
        ["verify", "--plan", plan, "--batch", "8", "--runs", "1", "-o", &out, "--", "sh", "-c", script]
            .map(str::to_owned)
    };
    let verified = |peak: u64, script: &str| {
        simple(&verify(peak, script).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let begun = folder.join("begun");
    let endless = format!("touch {}; while :; do sleep 0.1; done; : {{batch}}", begun.display());
    let is_begun = || begun.exists();
    match (verb, code_of_row) {
        ("run", "0") => job(&["true"]),
        ("run", "2") => simple(&["run", "--limit", "1GiB", "--growth", "on", "--", "true"]),
        ("run", "126") => job(&["/"]),
        ("run", "127") => job(&["/no/such/program"]),
        ("run", "128+n") => job(&["sh", "-c", "kill -USR1 $$"]) - 10,
        ("report", "0") => simple(&["report", CNN]),
        ("oom", "0") => simple(&["oom", "fixtures/tf221_cpu_oom.log"]),
        ("replay", "0") => simple(&["replay", CNN, "--gate", "exact"]),
        ("replay", "3") => simple(&["replay", CNN, "--gate", "fits", "--what-if", "limit=10MiB"]),
        ("replay", "4") => simple(&["replay", "fixtures/tf221_cpu_mlp_window.xplane.pb", "--gate", "exact"]),
        ("diff", "0") => simple(&["diff", NEAR_FULL, LOOP, "--fail-over", "1%"]),
        ("diff", "1") => simple(&["diff", CNN, "/no/such/file"]),
        ("diff", "2") => simple(&["diff", CNN]),
        ("diff", "3") => simple(&["diff", LOOP, NEAR_FULL, "--fail-over", "1%"]),
        ("diff", "4") => simple(&["diff", "fixtures/jax0112_h200.memory.prof", CNN, "--fail-over", "1%"]),
        ("plan", "0") => planned(&["--batch", "20", "--limit", "1GiB"]),
        ("plan", "1") => simple(&["plan", "--probe", "1=/no/such/file", "--probe", "2=/no/such/file"]),
        ("plan", "3") => planned(&["--batch", "20", "--limit", "1MiB"]),
        // Another batch than the one it is called.
        ("plan", "4") => {
            let probes = [6, 8, 14].map(|batch| format!("{batch}={AUTOENCODER}-{}.xplane.pb.gz", batch - 1));
            let [a, b, c] = &probes;
            simple(&["plan", "--probe", a, "--probe", b, "--probe", c, "--batch", "100", "--limit", "400MiB"])
        }
        ("plan", "128+n") => {
            let args = ["plan", "--batches", "7,11", "-o", &out, "--", "sh", "-c", &endless];
            interrupted(vramline(&args, folder), "-TERM", is_begun) - 15
        }
        ("verify", "0") => verified(72_866_048, TRAIN),
        ("verify", "1") => verified(1, "exit 5; : {batch}"),
        ("verify", "2") => simple(&["verify", "--", "true"]),
        ("verify", "3") => verified(1, TRAIN),
        ("verify", "128+n") => {
            let args = verify(1, &endless);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            interrupted(vramline(&args, folder), "-HUP", is_begun) - 1
        }
        ("pack", "0") => simple(&["pack", CNN, "--device-memory", "1GiB", "--context", "100MiB"]),
        ("pack", "3") => simple(&["pack", NEAR_FULL, "--device-memory", "1MiB"]),
        ("pack", "4") => simple(&["pack", NEAR_FULL, "--device-memory", "200GiB"]),
        ("serve", "0") => {
            let mut command = vramline(&["serve", CNN], folder);
            let file = std::fs::File::create(&out).unwrap();
            command.stdout(file);
            let is_ready = || std::fs::read_to_string(&out).is_ok_and(|text| text.contains("Ctrl-C"));
            interrupted(command, "-INT", is_ready)
        }
        ("export", "0") => simple(&["export", CNN, "--to", "csv", "-o", "-"]),
        ("export", "1") => simple(&["export", CNN, "--to", "csv", "-o", "/no/such/folder/file"]),
        ("export", "2") => simple(&["export", CNN]),
        ("top", "0") => simple(&["top", "--once"]),
        ("top", "128+n") => {
            let (slave, mut reader) = top::terminal();
            let mut command = vramline(&["top"], folder);
            command.env("TERM", "xterm").stdin(slave.try_clone().unwrap()).stdout(slave);
            let (drawn, is_drawn) = std::sync::mpsc::channel();
            let reading = std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(1..) = reader.read(&mut piece) {
                    // Nobody waits for the later ones.
                    let _ = drawn.send(());
                }
            });
            let code = interrupted(command, "-TERM", || is_drawn.try_recv().is_ok());
            reading.join().unwrap();
            code - 15
        }
        ("doctor", "0") => simple(&["doctor", "--python", "/no/such/python"]),
        ("demo", "0") => simple(&["demo", "--python", "/bin/true", "-o", &out]),
        ("demo", "1") => {
            let mut command = vramline(&["demo"], folder);
            command.env("VRAMLINE_PACKAGE", "/no/such/folder");
            code(command)
        }
        ("completions", "0") => simple(&["completions", "bash"]),
        ("snapshot", "0") => asked(folder, 0),
        ("snapshot", "4") => asked(folder, 1),
        ("gather", "0") => {
            let (recording, joined) = (format!("{out}.vram"), format!("{out}-joined.vram"));
            assert_eq!(job(&["true"]), 0);
            simple(&["gather", &recording, "--job", "mine", "-o", &joined])
        }
        ("gather", "1") => simple(&["gather", "/no/such/file", "-o", &out]),
        (verb, "1") => simple(&[verb, "/no/such/file"]),
        (verb, "2") => simple(&[verb, "--no-such-option"]),
        (verb, other) => panic!("no command is known here that ends {verb} with {other}"),
    }
}

#[test]
fn every_verb_ends_as_the_table_says() {
    let rows = rows();
    let mut verbs: BTreeMap<&str, usize> = BTreeMap::new();
    for (verb, code) in &rows {
        let folder = tempfile::tempdir().unwrap();
        let expected = if code == "128+n" { 128 } else { code.parse().unwrap() };
        assert_eq!(ends_with(verb, code, folder.path()), expected, "{verb} {code}");
        *verbs.entry(verb).or_default() += 1;
    }
    // Every verb that the help lists has its rows.
    let help = crate::run(&["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    for verb in listed.filter_map(|line| line.split_whitespace().next()).filter(|&verb| verb != "help") {
        assert!(verbs.contains_key(verb), "docs/reference/exit-codes.md does not know {verb}");
    }
}

/// A script that swallows Ctrl-C is ended all the same, and nothing that it started goes on.
#[test]
fn a_plan_stops_at_once() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let (out, begun) = (folder.path().join("out"), folder.path().join("begun"));
        let script = format!(
            "trap 'echo no' INT TERM HUP; echo $$ > {0}.part; mv {0}.part {0}; while :; do sleep 0.05; done; : {{batch}}",
            begun.display()
        );
        let out = out.to_str().unwrap();
        let args = ["plan", "--batches", "7,11,13", "-o", out, "--", "sh", "-c", &script];
        let signalled = std::cell::Cell::new(Instant::now());
        let is_ready = || {
            signalled.set(Instant::now());
            begun.exists()
        };
        assert_eq!(interrupted(vramline(&args, folder.path()), signal, is_ready), code);
        // A second of grace for the script, and time for a busy machine.
        assert!(signalled.get().elapsed() < Duration::from_secs(4), "{:?}", signalled.get().elapsed());
        let job = std::fs::read_to_string(&begun).unwrap();
        assert!(!Path::new("/proc").join(job.trim()).exists(), "the job goes on");
        let left: Vec<_> = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["probe-7-0.log"], "half a probe is left, or a second was begun");
    }
}

/// Reading and planning end with the signal, too: nothing there waits for anything.
#[test]
fn a_plan_without_a_job_stops_at_once() {
    let probe = |batch: u64| format!("{batch}=fixtures/plan/resnet50-adam-{batch}.pickle.gz");
    let probes = [probe(2), probe(4), probe(8)];
    let mut args = vec!["plan", "--limit", "100GiB", "--curve"];
    args.extend(probes.iter().flat_map(|probe| ["--probe", probe.as_str()]));
    let all = (1..400).map(|batch| batch.to_string()).collect::<Vec<_>>().join(",");
    args.extend(["--batch", &all]);
    let folder = tempfile::tempdir().unwrap();
    // So many predictions take minutes, of which some time has to pass.
    let begin = Instant::now();
    let is_planning = || begin.elapsed() > Duration::from_millis(1500);
    assert_eq!(interrupted(vramline(&args, folder.path()), "-INT", is_planning), 130);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}
