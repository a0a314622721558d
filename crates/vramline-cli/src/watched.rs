//! Reads with a line of progress, if it takes long and somebody is looking.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use vramline::Reading;
use vramline::source::{Progress, SourceError};

/// Most traces are read before this.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn read(path: &Path) -> Result<Reading, SourceError> {
    let progress = Arc::new(Progress::default());
    if !io::stderr().is_terminal() {
        return vramline::read_watched(path, &progress);
    }
    let (done, is_done) = channel::<()>();
    std::thread::scope(|threads| {
        let watched = Arc::clone(&progress);
        threads.spawn(move || {
            let mut wait = PATIENCE;
            let mut is_shown = false;
            while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let share = watched.share().unwrap_or(0.0);
                // Progress is a courtesy: a terminal that cannot show it is no reason to fail.
                let _ = write!(io::stderr(), "\rreading: {:3.0} %", share * 100.0);
                (wait, is_shown) = (TICK, true);
            }
            if is_shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let reading = vramline::read_watched(path, &progress);
        drop(done);
        reading
    })
}
