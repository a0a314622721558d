//! A line of progress on standard error, for work that takes longer than a moment.
//!
//! A thread draws the line and removes it when the work is done. Nothing is written where standard error is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Work that ends sooner than this shows no progress.
const PATIENCE: Duration = Duration::from_millis(700);
/// Time between two updates of the line.
const TICK: Duration = Duration::from_millis(100);
/// Longest line that is drawn. A line that the terminal wraps could not be removed.
const MAX_COLUMNS: usize = 78;
/// Goes to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Whether a line of progress is on the terminal. It only changes while standard error is locked.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// The progress of one piece of work. Dropping it removes the line.
pub(crate) struct ProgressLine {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ProgressLine {
    /// Shows nothing.
    pub(crate) fn hidden() -> ProgressLine {
        ProgressLine { thread: None }
    }

    /// Shows a label and the seconds since the work began: `replaying, 3 s`.
    pub(crate) fn timed(label: impl Into<String>) -> ProgressLine {
        let label = label.into();
        ProgressLine::start(move |elapsed| format!("{label}, {} s", elapsed.as_secs()))
    }

    /// Shows what `text` returns for the time since the work began.
    pub(crate) fn start(text: impl Fn(Duration) -> String + Send + 'static) -> ProgressLine {
        if !io::stderr().is_terminal() {
            return ProgressLine::hidden();
        }
        let (done, is_done) = channel::<()>();
        let draw = move || {
            let began = Instant::now();
            let mut wait = PATIENCE;
            while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let line: String = text(began.elapsed()).chars().take(MAX_COLUMNS).collect();
                let mut stderr = io::stderr().lock();
                // Progress is a courtesy: a terminal that cannot show it is no reason to fail.
                let _ = stderr.write_all(format!("{CLEAR}{line}").as_bytes());
                IS_SHOWN.store(true, Ordering::Relaxed);
                wait = TICK;
            }
            remove(&mut io::stderr().lock());
        };
        let thread = std::thread::Builder::new().spawn(draw).ok();
        ProgressLine { thread: thread.map(|thread| (done, thread)) }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.thread.take() {
            drop(done);
            // A panic of the thread has been announced.
            let _ = thread.join();
        }
    }
}

/// Removes the line of progress, if there is one. To be called before anything else is written to standard error.
pub(crate) fn remove(stderr: &mut io::StderrLock<'_>) {
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        let _ = stderr.write_all(CLEAR.as_bytes());
    }
}
