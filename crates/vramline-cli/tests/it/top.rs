//! `top` where something breaks. Everything else of it is tested on real terminals in `tests/python/test_top.py`; a panic can only be provoked
//! in a build with debug assertions.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::json;

/// A terminal: the end that a program has open, and the end of whoever looks at it.
pub(crate) fn terminal() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (slave, File::from(master))
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_readable() {
    let scratch = tempfile::tempdir().unwrap();
    let script = scratch.path().join("driver.json");
    std::fs::write(&script, json!({"devices": [{"total": 1000}]}).to_string()).unwrap();
    let (slave, mut reader) = terminal();
    let before = tcgetattr(&slave).unwrap();
    assert!(before.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    let end = || Stdio::from(slave.try_clone().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_vramline"))
        .args(["top", "--rate", "20"])
        .current_dir(scratch.path())
        .env("VRAMLINE_FAKE_DRIVER", &script)
        .env("VRAMLINE_TOP_PANIC", "3")
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    let reading = std::thread::spawn(move || {
        let (mut written, mut piece) = (Vec::new(), [0; 4096]);
        // A terminal that nobody has open any more is an error, not an end.
        while let Ok(read @ 1..) = reader.read(&mut piece) {
            written.extend_from_slice(&piece[..read]);
        }
        written
    });
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let after = tcgetattr(&slave).unwrap();
    assert_eq!(
        (after.local_modes, after.input_modes, after.output_modes, after.control_modes),
        (before.local_modes, before.input_modes, before.output_modes, before.control_modes)
    );
    drop(slave);
    let written = String::from_utf8_lossy(&reading.join().unwrap()).into_owned();
    let at = |text: &str| written.rfind(text).unwrap_or_else(|| panic!("no {text:?} in {written:?}"));
    assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"));
    assert!(at("\u{1b}[?25l") < at("\u{1b}[?25h"));
    assert!(at("\u{1b}[?1049l") < at("error: this is a bug in Vramline"));
    assert!(at("\u{1b}[?1049l") < at("asked to stumble at frame 3"));
}
