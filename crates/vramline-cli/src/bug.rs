//! Panics: reports them and ends the command.
//!
//! A panic is a bug. It is reported in one line, on any thread, and the command ends with exit code 1. A command that continued
//! without one of its threads would silently return an incomplete answer.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit;

/// Runs the command. A panic becomes a message and exit code 1.
pub(crate) fn guarded(command: fn() -> ExitCode) -> ExitCode {
    std::panic::set_hook(Box::new(announce));
    catch_unwind(command).unwrap_or(ExitCode::from(exit::BUG))
}

/// Starts a detached thread. A panic in it ends the command.
pub(crate) fn detach(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(|| or_exit(work));
}

/// Runs the work of a thread. A panic in it ends the command.
pub(crate) fn or_exit(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        std::process::exit(exit::BUG.into());
    }
}

/// Reports the first panic only: threads that do the same work panic for the same reason.
fn announce(panic: &PanicHookInfo<'_>) {
    static IS_ANNOUNCED: AtomicBool = AtomicBool::new(false);
    if IS_ANNOUNCED.swap(true, Ordering::AcqRel) {
        return;
    }
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
    let place =
        panic.location().map_or(String::new(), |place| format!(" ({}:{})", place.file(), place.line()));
    let mut stderr = io::stderr().lock();
    // There may be a line of progress.
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    // If this cannot be written, there is no other way to report it.
    let _ = writeln!(
        stderr,
        "{clear}error: this is a bug in Vramline {}: {}{place}\n\
         hint: please report this message, and attach the file that Vramline read if you can share it",
        env!("CARGO_PKG_VERSION"),
        text.replace('\n', " "),
    );
    // Captured only if RUST_BACKTRACE is set.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        let _ = writeln!(stderr, "{trace}");
    }
}

/// For tests: panics at the place that VRAMLINE_PANIC names.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "that is what is tested")]
pub(crate) fn stumble(place: &str) {
    if std::env::var(crate::variables::PANIC).is_ok_and(|wanted| wanted == place) {
        panic!("asked to stumble\nat {place}");
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn stumble(_place: &str) {}
