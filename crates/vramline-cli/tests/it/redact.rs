//! `--redact`: a secret in a command line, a path, a host name and a label is in no output of any verb. What it replaces in every kind of file
//! is tested in the core.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use vramline::recording::folder::ProcessId;
use vramline::recording::process::ProcessRecorder;
use vramline::recording::rows::{Mark, Moment, RecordedMarkKind};

use crate::root;

const SECRET: &str = "swordfish";

/// Recordings, traces and a log with a secret wherever a user can have one.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["a", "b"] {
            place.recording(name);
        }
        for batch in [5, 7, 13] {
            let from = root().join(format!("fixtures/plan/tf221_cpu_autoencoder-{batch}.xplane.pb.gz"));
            fs::copy(from, place.secret(&format!("{batch}.xplane.pb.gz"))).unwrap();
        }
        let log = fs::read_to_string(root().join("fixtures/tf221_cpu_oom.log")).unwrap();
        let log = format!("  File \"/home/{SECRET}/train.py\", line 3, in {SECRET}\n{log}");
        fs::write(place.secret("log"), log.replace("Fill", &format!("{SECRET}/Fill"))).unwrap();
        let snapshot = "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz";
        fs::copy(root().join(snapshot), place.secret("snapshot.pickle.gz")).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.path().join(format!("{SECRET}-{name}"))
    }

    fn recording(&self, name: &str) {
        let folder = self.secret(&format!("{name}.vram"));
        let from = root().join("fixtures/tf221_cpu_keras.vram");
        assert!(Command::new("cp").arg("-r").arg(from).arg(&folder).status().unwrap().success());
        let manifest = folder.join("run.json");
        let mut told: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        told["command"] = json!(["python", format!("{SECRET}.py"), "--token", SECRET]);
        told["cwd"] = json!(format!("/home/{SECRET}"));
        told["host"] = json!(SECRET);
        fs::write(&manifest, told.to_string()).unwrap();
        // A process of its own: the streams of the first are those of an earlier version.
        let id: ProcessId = format!("{SECRET}-20014-1648240").parse().unwrap();
        let recorder = ProcessRecorder::new(&folder, &id);
        let label = Some(format!("before {SECRET}"));
        let mark = Mark { kind: RecordedMarkKind::Mark, label, time: Moment::now(), ..Mark::default() };
        recorder.mark(&mark).unwrap();
        recorder.close();
    }

    /// What a command writes to its outputs and into a file.
    fn told(&self, args: &[&str]) -> Vec<u8> {
        let out = self.path().join("out");
        let _ = fs::remove_file(&out);
        let named = |arg: &&str| {
            arg.replace("OUT", out.to_str().unwrap()).replace("SECRET", self.secret("").to_str().unwrap())
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
        command.current_dir(self.path()).args(args.iter().map(named)).stdin(Stdio::null());
        command.env("VRAMLINE_PACKAGE", root().join("python/vramline"));
        let output = command.output().unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 3 | 4)),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let file = fs::read(&out).unwrap_or_default();
        [output.stdout, output.stderr, file].concat()
    }
}

fn has_secret(told: &[u8]) -> bool {
    told.windows(SECRET.len()).any(|part| part.eq_ignore_ascii_case(SECRET.as_bytes()))
}

/// For each verb that takes the option, every form of its answer.
const COMMANDS: &[&[&str]] = &[
    &["report", "SECRETa.vram"],
    &["report", "SECRETa.vram", "--by", "layer", "--json"],
    &["report", "SECRETa.vram", "--by", "stack"],
    &["report", "SECRETa.vram", "--html", "OUT"],
    &["report", "SECRETlog", "--html", "OUT"],
    &["report", "SECRETsnapshot.pickle.gz", "--by", "stack", "--json"],
    &["report", "SECRET5.xplane.pb.gz"],
    &["oom", "SECRETlog"],
    &["oom", "SECRETlog", "--json", "--all"],
    &["oom", "SECRETsnapshot.pickle.gz", "--json"],
    &["replay", "SECRETa.vram"],
    &[
        "replay",
        "SECRETa.vram",
        "--json",
        "--ask",
        "1GiB",
        "--op",
        "swordfish/MatMul",
        "--what-if",
        "limit=64MiB",
    ],
    &["diff", "SECRETa.vram", "SECRETb.vram"],
    &["diff", "SECRETa.vram", "SECRETb.vram", "--json"],
    &["diff", "--repeats", "SECRETa.vram", "SECRETb.vram", "--repeats", "SECRETa.vram", "--html", "OUT"],
    &[
        "plan",
        "--probe",
        "5=SECRET5.xplane.pb.gz",
        "--probe",
        "7=SECRET7.xplane.pb.gz",
        "--probe",
        "13=SECRET13.xplane.pb.gz",
        "--limit",
        "80MiB",
        "--variable",
        "swordfish",
    ],
    &[
        "plan",
        "--probe",
        "5=SECRET5.xplane.pb.gz",
        "--probe",
        "7=SECRET7.xplane.pb.gz",
        "--batch",
        "20",
        "--json",
        "--html",
        "OUT",
    ],
    &["pack", "swordfish=SECRETa.vram", "SECRETb.vram", "--device-memory", "8GiB"],
    &["pack", "SECRETa.vram", "SECRETb.vram", "--device-memory", "8GiB", "--json"],
    &["export", "SECRETa.vram", "--to", "csv", "-o", "-"],
    &["export", "SECRETa.vram", "--to", "json", "-o", "-"],
    &["export", "SECRETa.vram", "--to", "perfetto", "-o", "OUT"],
    &["export", "SECRETa.vram", "--to", "parquet", "-o", "OUT"],
    &["top", "SECRETa.vram", "--once"],
    &["top", "SECRETa.vram", "--json"],
    &["doctor", "--python", "SECRETpython"],
    &["doctor", "--python", "SECRETpython", "--json"],
];

#[test]
fn no_verb_tells_a_secret() {
    let place = Place::new();
    let mut leaky = 0;
    for args in COMMANDS {
        leaky += usize::from(has_secret(&place.told(args)));
        let told = place.told(&[*args, &["--redact"]].concat());
        assert!(!told.is_empty(), "{args:?}");
        assert!(!has_secret(&told), "{args:?}:\n{}", String::from_utf8_lossy(&told));
    }
    // All of these but a few would tell it: exports have no column for it.
    assert!(leaky >= COMMANDS.len() - 6, "{leaky} of {}", COMMANDS.len());
}

/// A prediction that is measured: the command itself is the secret.
#[test]
fn verify_tells_no_secret() {
    let place = Place::new();
    let plan = place.told(&[
        "plan",
        "--probe",
        "5=SECRET5.xplane.pb.gz",
        "--probe",
        "7=SECRET7.xplane.pb.gz",
        "--batch",
        "8",
        "--json",
    ]);
    fs::write(place.secret("plan.json"), plan).unwrap();
    let script = format!(
        "cp -r {}/. \"$VRAMLINE_RECORD\"; : {{batch}} {SECRET}",
        root().join("fixtures/tf221_cpu_keras.vram").display()
    );
    for form in [&["--redact"][..], &["--redact", "--json"]] {
        let args = [
            &["verify", "--plan", "SECRETplan.json", "--batch", "8", "--runs", "1", "-o", "probes"],
            form,
            &["--", "sh", "-c", &script],
        ];
        let told = place.told(&args.concat());
        assert!(!told.is_empty() && !has_secret(&told), "{}", String::from_utf8_lossy(&told));
    }
}

#[test]
fn a_served_page_tells_no_secret() {
    let place = Place::new();
    for (options, is_told) in [(&["--redact"][..], false), (&[], true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
        command.arg("serve").arg(place.secret("a.vram")).args(options).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut url = String::new();
        // It ends where nobody reads what it says.
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut url).unwrap();
        let (address, path) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut page = Vec::new();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut page).unwrap();
        assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
        server.wait().unwrap();
        assert!(page.len() > 10_000, "{}", String::from_utf8_lossy(&page));
        assert_eq!(has_secret(&page), is_told);
    }
}
