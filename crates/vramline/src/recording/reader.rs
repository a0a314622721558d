//! What a recording holds, put together from the files of as many processes as wrote.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::driver_calls::DriverCalls;
use super::folder::{ProcessId, RUN, parts};
use super::identity::RankIdentity;
#[cfg(feature = "recording")]
pub use super::load::read;
use super::manifest::RunManifest;
use super::rows::{DriverRow, Inventory, Mark, Moment, OwnerRow, Sample, TraceState};
use crate::event::Framework;
use crate::warning::Warnings;

/// Everything that a recording holds, traces left where they are.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The folder.
    pub path: PathBuf,
    /// What the launcher wrote; a program that records itself has none.
    pub manifest: Option<RunManifest>,
    /// One for each process, in the order of their first marks.
    pub processes: Vec<RecordedProcess>,
    /// What the driver and the kernel said while the job ran, in order; empty where nobody asked. A row holds until the next
    /// of the same device or process: [`DriverState`](super::rows::DriverState) knows what held when.
    pub driver: Vec<DriverRow>,
    /// Calls of the driver, for each process that recorded them. A process may have nothing else.
    pub driver_calls: Vec<DriverCalls>,
    /// What could not be read.
    pub warnings: Warnings,
}

/// What one process wrote.
#[derive(Debug)]
pub struct RecordedProcess {
    /// Which.
    pub id: ProcessId,
    /// What it said of itself.
    pub facts: ProcessFacts,
    /// What it did, in order.
    pub marks: Vec<Mark>,
    /// Counters in the background.
    pub samples: Vec<Sample>,
    /// Its variables, each time they were listed.
    pub inventories: Vec<Inventory>,
    /// Whose its ops are, as it learned that.
    pub owners: Vec<OwnerRow>,
    /// The folder of its profiler.
    pub trace: Option<PathBuf>,
    /// The folders of its moments, by their numbers.
    pub moments: BTreeMap<u64, PathBuf>,
    /// The text of the exception that ended it.
    pub exception: Option<PathBuf>,
    /// The texts of out-of-memory errors that were raised in it, caught or not, in order.
    pub raised: Vec<PathBuf>,
    /// Pictures of its pools that TensorFlow made when an allocation failed.
    pub dumps: Vec<PathBuf>,
}

impl RecordedProcess {
    /// A process before anything was read.
    #[must_use]
    pub fn new(id: ProcessId) -> RecordedProcess {
        RecordedProcess {
            id,
            facts: ProcessFacts::default(),
            marks: Vec::new(),
            samples: Vec::new(),
            inventories: Vec::new(),
            owners: Vec::new(),
            trace: None,
            moments: BTreeMap::new(),
            exception: None,
            raised: Vec::new(),
            dumps: Vec::new(),
        }
    }
}

impl RecordedProcess {
    /// When its profiler was started.
    #[must_use]
    pub fn trace_began(&self) -> Option<Moment> {
        self.trace_mark(TraceState::Begun)
    }

    /// When its profiler was stopped.
    #[must_use]
    pub fn trace_stopped(&self) -> Option<Moment> {
        self.trace_mark(TraceState::Stopped)
    }

    fn trace_mark(&self, state: TraceState) -> Option<Moment> {
        let is_moment = |mark: &Mark| {
            let number = mark.window.and_then(|number| u64::try_from(number).ok());
            number.is_some_and(|number| self.moments.contains_key(&number))
        };
        let mut of_traces = self.marks.iter().filter(|mark| mark.trace_state == Some(state));
        of_traces.find(|mark| !is_moment(mark)).map(|mark| mark.time)
    }
}

/// `process-ID.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// The version of what it wrote.
    pub schema: u32,
    /// Python's version.
    pub python: String,
    /// Frameworks with their versions.
    pub frameworks: BTreeMap<String, String>,
    /// The framework that Keras works on.
    pub backend: Option<String>,
    /// Which part of a larger job it is. Older recordings have nothing else of [`ProcessFacts::identity`].
    pub rank: Option<u64>,
    /// Which part of which job it is.
    pub identity: RankIdentity,
    /// The process it was forked from.
    pub forked_from: Option<String>,
}

impl ProcessFacts {
    /// The framework that holds the memory, as it is imported, and its version; others are imported beside it.
    #[must_use]
    pub fn framework(&self) -> Option<(&str, &str)> {
        let known = |name: &str| self.frameworks.get_key_value(name);
        let backend = self.backend.as_deref().and_then(known);
        let (name, version) = backend
            .or_else(|| ["tensorflow", "torch", "jax"].into_iter().find_map(known))
            .or_else(|| self.frameworks.iter().next())?;
        Some((name, version))
    }

    /// The same as one of those that are known here.
    #[must_use]
    pub(crate) fn known_framework(&self) -> Option<Framework> {
        match self.framework()?.0 {
            "tensorflow" => Some(Framework::TensorFlow),
            "jax" => Some(Framework::Jax),
            "torch" => Some(Framework::PyTorch),
            _ => None,
        }
    }
}

/// Whether a path is the folder of a recording.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    path.is_dir() && (path.join(RUN).is_file() || parts(path).is_ok_and(|parts| !parts.is_empty()))
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The folder cannot be listed.
    #[error("cannot read '{}': {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// A newer version of Vramline wrote it.
    #[error("'{}' was written by a newer version of Vramline: {what}", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Which file says so, and how.
        what: String,
    },
}

impl ReadError {
    /// What to do next; empty if there is nothing to add.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            ReadError::Newer { .. } => "update vramline",
            ReadError::Io { .. } => "",
        }
    }
}
