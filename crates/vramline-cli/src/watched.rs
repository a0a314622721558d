//! Reads with a line of progress, if it takes long and somebody is looking.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use vramline::source::{Progress, SourceError};
use vramline::units::Bytes;
use vramline::{OutOfMemory, Reading};

use crate::bug;

/// Most traces are read before this.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn read(path: &Path) -> Result<Reading, SourceError> {
    watched(|progress| {
        bug::stumble("read");
        vramline::read_watched(path, progress)
    })
}

pub(crate) fn read_failures(paths: &[PathBuf], limit: Option<Bytes>) -> Result<OutOfMemory, SourceError> {
    watched(|progress| vramline::read_failures(paths, limit, progress))
}

fn watched<T>(read: impl FnOnce(&Arc<Progress>) -> T) -> T {
    let progress = Arc::new(Progress::default());
    if !io::stderr().is_terminal() {
        return read(&progress);
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
        let reading = read(&progress);
        drop(done);
        reading
    })
}
