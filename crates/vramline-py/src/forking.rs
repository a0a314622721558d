//! Keeps reads of counters and forks of the program apart.
//!
//! A thread that reads counters holds locks: of the interpreter (CPython up to 3.11 waits for that lock in the child for ever)
//! and of the framework. A forked child inherits the locks, but not the thread that would release them. So a fork waits
//! until a read has ended, and a read waits until a fork has ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

static READS: AtomicUsize = AtomicUsize::new(0);
static IS_FORKING: AtomicBool = AtomicBool::new(false);

/// The longest that a fork waits for a framework that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Calls a function that reads counters, but not while the program forks.
pub(crate) fn between_forks<T>(read: impl FnOnce() -> T) -> T {
    loop {
        READS.fetch_add(1, Ordering::SeqCst);
        if !IS_FORKING.load(Ordering::SeqCst) {
            break;
        }
        READS.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(PAUSE);
    }
    let found = read();
    READS.fetch_sub(1, Ordering::SeqCst);
    found
}

/// Waits until no thread reads counters. Called before the program forks.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    IS_FORKING.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while READS.load(Ordering::SeqCst) > 0 && begin.elapsed() < PATIENCE {
        // The reader may be waiting for the GIL.
        py.detach(|| std::thread::sleep(PAUSE));
    }
}

/// Allows reads again. Called after the program has forked; in the child no thread reads.
#[pyfunction]
pub(crate) fn after_fork(is_child: bool) {
    if is_child {
        READS.store(0, Ordering::SeqCst);
    }
    IS_FORKING.store(false, Ordering::SeqCst);
}
