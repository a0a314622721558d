//! Starts a job and records it: [`record`] runs the job of a [`JobSpec`]. The probes of a plan and the jobs that let XLA compile a
//! program are started in the same way.
//!
//! The job comes first. Conflicting settings are refused before the job starts. After that, an error costs a line on standard
//! error and a part of the recording, but never the job.

mod child;
pub(crate) mod compile;
mod devices;
pub(crate) mod driver;
pub(crate) mod environment;
mod job;
pub(crate) mod kernel;
mod local;
pub(crate) mod package;
mod place;
mod preload;
pub(crate) mod probes;
pub(crate) mod spec;
pub(crate) mod values;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

pub(crate) use job::{Recorded, record};
pub(crate) use spec::JobSpec;

use crate::progress;

/// Prints one line to standard error, which the job shares.
pub(crate) fn say(line: impl Display) {
    let mut stderr = io::stderr().lock();
    progress::remove(&mut stderr);
    // A standard error that is closed or full is no reason to disturb the job.
    let _ = writeln!(stderr, "vramline: {line}");
}

/// Prints a line like [`say`], but only once per command: a plan starts many jobs, and the same note holds for all of them.
pub(crate) fn say_once(line: impl Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = line.to_string();
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        say(line);
    }
}
