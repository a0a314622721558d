//! Starts a job under a recording: [`record`] runs what a [`JobSpec`] says. Probes of a plan and programs that XLA is to compile are such
//! jobs too.
//!
//! The job comes first. Only settings that contradict each other are refused, before anything is started; from then on
//! whatever fails here costs a line on standard error and a part of the recording, never the job.

mod child;
pub(crate) mod compile;
mod devices;
pub(crate) mod driver;
pub(crate) mod environment;
mod job;
pub(crate) mod kernel;
pub(crate) mod package;
mod place;
pub(crate) mod probes;
pub(crate) mod spec;
pub(crate) mod values;

use std::fmt::Display;
use std::io::{self, Write};

pub(crate) use job::{Recorded, record};
pub(crate) use spec::JobSpec;

/// Says one line on standard error, which is the job's too.
pub(crate) fn say(line: impl Display) {
    // A standard error that is closed or full is no reason to disturb the job.
    let _ = writeln!(io::stderr(), "vramline: {line}");
}
