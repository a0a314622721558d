//! Starts a job under a recording: what `vramline run` needs beside its verb.
//!
//! The job comes first. Only settings that contradict each other are refused, before anything is started; from then on
//! whatever fails here costs a line on standard error and a part of the recording, never the job.

pub(crate) mod child;
pub(crate) mod compile;
pub(crate) mod devices;
pub(crate) mod driver;
pub(crate) mod environment;
pub(crate) mod job;
pub(crate) mod kernel;
pub(crate) mod package;
pub(crate) mod place;
pub(crate) mod probes;
pub(crate) mod settings;

use std::fmt::Display;
use std::io::{self, Write};

/// Says one line on standard error, which is the job's too.
pub(crate) fn say(line: impl Display) {
    // A standard error that is closed or full is no reason to disturb the job.
    let _ = writeln!(io::stderr(), "vramline: {line}");
}
