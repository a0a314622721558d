//! Progress on a terminal, and messages that are printed once.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::exit::{TRAIN, vramline};
use crate::top::terminal;

/// Makes two probes that take longer than a second each. The probes are equal, so no plan follows.
fn plan(folder: &Path) -> Command {
    let script = format!("sleep 1.3; {TRAIN}");
    let out = folder.join("out");
    let args = ["plan", "--batches", "7,11", "--repeats", "1", "-o", out.to_str().unwrap(), "--"];
    let mut command = vramline(&[&args[..], &["sh", "-c", &script]].concat(), folder);
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    command
}

/// Standard error of a command, through a terminal.
struct Shown(Arc<Mutex<String>>);

impl Shown {
    fn of(command: &mut Command) -> Shown {
        let (slave, mut reader) = terminal();
        command.stderr(Stdio::from(slave));
        let text = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        Shown(text)
    }

    fn until(&self, wanted: &str) -> String {
        let began = Instant::now();
        loop {
            let text = self.0.lock().unwrap().clone();
            if text.contains(wanted) {
                return text;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "no {wanted:?} in {text:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn probes_show_progress_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = plan(folder.path());
    let shown = Shown::of(&mut command);
    assert_eq!(command.status().unwrap().code(), Some(1));
    let text = shown.until("hint:");
    for (number, batch) in [(1, 7), (2, 11)] {
        assert!(text.contains(&format!("\r\x1b[Kprobe {number} of 2: batch {batch}, 1 s")), "{text:?}");
        let took = format!("\r\x1b[Kvramline: probe {number} of 2: batch {batch} took ");
        assert!(text.contains(&took), "{text:?}");
    }
    assert_eq!(text.matches("no GPU is visible").count(), 1, "{text:?}");
}

#[test]
fn elsewhere_only_lines_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(folder.path()).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains(['\r', '\x1b']), "{text:?}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("vramline: ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains("no GPU is visible"), "{text}");
    assert!(lines[1].starts_with("vramline: probe 1 of 2: batch 7 took "), "{text}");
    assert!(lines[2].starts_with("vramline: probe 2 of 2: batch 11 took "), "{text}");
}

/// The thread that draws the line must not receive the signal in place of the job.
#[test]
fn ctrl_c_ends_a_probe_that_shows_progress() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let script = "trap '' INT; while :; do sleep 0.1; done; : {batch}";
    let args = ["plan", "--batches", "7,11", "-o", out.to_str().unwrap(), "--", "sh", "-c", script];
    let mut command = vramline(&args, folder.path());
    let shown = Shown::of(&mut command);
    let mut child = command.spawn().unwrap();
    shown.until("probe 1 of 4: batch 7, 0 s");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
