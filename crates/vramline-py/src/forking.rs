//! No sample is being read while the program forks.
//!
//! A thread that reads counters holds locks: of the interpreter, where it attaches (CPython up to 3.11 waits for that one in the
//! child, for ever), and of the framework. A child has the locks but not the thread that would let go of them. So a fork waits
//! until a read is over, and a read waits until a fork is over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

static READS: AtomicUsize = AtomicUsize::new(0);
static IS_FORKING: AtomicBool = AtomicBool::new(false);

/// A framework that does not answer keeps a fork waiting for so long.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Reads, but not while the program forks.
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

/// The program is about to fork: waits until no sample is being read.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    IS_FORKING.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while READS.load(Ordering::SeqCst) > 0 && begin.elapsed() < PATIENCE {
        // The reader may be waiting for Python's lock.
        py.detach(|| std::thread::sleep(PAUSE));
    }
}

/// The program has forked; in the child nobody reads.
#[pyfunction]
pub(crate) fn after_fork(is_child: bool) {
    if is_child {
        READS.store(0, Ordering::SeqCst);
    }
    IS_FORKING.store(false, Ordering::SeqCst);
}
