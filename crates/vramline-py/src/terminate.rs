//! Calls a function before SIGTERM ends the process, to save the trace.
//!
//! A profiler keeps its trace in memory until it stops, and the default action of SIGTERM leaves no time for that. A Python
//! handler would run only when the main thread returns to Python, which a long step may delay, and it would be visible in
//! `signal.getsignal`. So the handler works below Python: it wakes a thread, and the thread calls the function, restores the
//! default action and sends the signal again. The process then ends exactly as it would have. A second thread does the same
//! if the function takes too long.
//!
//! If the program sets its own handler, before or after, that one is used. A forked child does not have the thread: there the
//! handler restores the default action at once.

#![expect(unsafe_code, reason = "signal handlers")]

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use pyo3::prelude::*;

/// The write end of the pipe that wakes the thread.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// The process that has the thread.
static OWNER: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_terminate(signal: libc::c_int) {
    // SAFETY: getpid, write, signal and kill may be called in a signal handler.
    unsafe {
        let woken = libc::getpid() == OWNER.load(Ordering::Relaxed)
            && libc::write(WAKE.load(Ordering::Relaxed), [0_u8].as_ptr().cast(), 1) == 1;
        if !woken {
            die(signal);
        }
    }
}

/// Restores the default action of the signal, and sends it again.
fn die(signal: libc::c_int) {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
    }
}

/// Calls a function on SIGTERM, for at most `patience` seconds. Returns False if the program has its own handler.
#[pyfunction]
pub(crate) fn before_terminate(call: Py<PyAny>, patience: f64) -> bool {
    let Ok(patience) = Duration::try_from_secs_f64(patience) else { return false };
    let mut ends = [0; 2];
    // SAFETY: all pointers are to locals that outlive the calls; the structs are plain data.
    let is_set = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let is_free = libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_DFL;
        is_free && libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == 0
    };
    if !is_set {
        return false;
    }
    let [sleep, wake] = ends;
    let wait = move || {
        let mut byte = [0_u8];
        // SAFETY: the buffer is a local of this thread.
        while unsafe { libc::read(sleep, byte.as_mut_ptr().cast(), 1) } != 1 {}
        // The process ends after the deadline, even if the function does not return.
        let deadline = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(patience);
            die(libc::SIGTERM);
        });
        if deadline.is_ok() {
            let _ = Python::try_attach(|py| call.call0(py).is_ok());
        }
        die(libc::SIGTERM);
    };
    if std::thread::Builder::new().name("vramline-term".into()).spawn(wait).is_err() {
        return false;
    }
    WAKE.store(wake, Ordering::Relaxed);
    // SAFETY: as above; the handler is a function of this library, which is never unloaded.
    unsafe {
        OWNER.store(libc::getpid(), Ordering::Relaxed);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_terminate as *const () as usize;
        ours.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGTERM, &raw const ours, std::ptr::null_mut()) == 0
    }
}
