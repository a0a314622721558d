//! What a recording holds, put together from the files of as many processes as wrote.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::driver_calls::DriverCalls;
use super::folder::{ProcessId, RUN, parts};
use super::identity::RankIdentity;
#[cfg(feature = "recording")]
pub use super::load::{RecordedFolder, read};
use super::manifest::RunManifest;
use super::rows::{DriverRow, Inventory, Mark, Moment, OwnerRow, Sample, TraceState};
use crate::event::Framework;
use crate::warning::Warnings;

/// Everything that a recording holds, traces left where they are.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The folder.
    pub path: PathBuf,
    /// What the launcher wrote, the first one if there are several; a program that records itself has none.
    pub manifest: Option<RunManifest>,
    /// The launcher of [`Recorded::manifest`], if it is one that joined.
    pub first_id: Option<ProcessId>,
    /// One for each process, in the order of their first marks.
    pub processes: Vec<RecordedProcess>,
    /// What the driver and the kernel said on the first launcher's machine while the job ran, in order; empty where nobody asked. A row
    /// holds until the next of the same device or process: [`DriverState`](super::rows::DriverState) knows what held when.
    pub driver: Vec<DriverRow>,
    /// The launchers that joined later, in the order of their begin.
    pub others: Vec<RecordedRun>,
    /// Calls of the driver, for each process that recorded them. A process may have nothing else.
    pub driver_calls: Vec<DriverCalls>,
    /// What could not be read.
    pub warnings: Warnings,
}

/// What a launcher that joined a recording wrote.
#[derive(Debug)]
pub struct RecordedRun {
    /// The launcher.
    pub id: ProcessId,
    /// What it said; `None` where that cannot be read.
    pub manifest: Option<RunManifest>,
    /// What the driver and the kernel said on its machine.
    pub driver: Vec<DriverRow>,
}

impl RecordedRun {
    /// A launcher before anything was read.
    #[must_use]
    pub fn new(id: ProcessId) -> RecordedRun {
        RecordedRun { id, manifest: None, driver: Vec::new() }
    }
}

/// One launcher of a recording: the first one, or one that joined.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    /// What it said.
    pub manifest: Option<&'a RunManifest>,
    /// What the driver and the kernel said on its machine.
    pub driver: &'a [DriverRow],
}

impl Recorded {
    /// All launchers, the first one first.
    pub fn runs(&self) -> impl Iterator<Item = RunView<'_>> {
        let first = RunView { manifest: self.manifest.as_ref(), driver: &self.driver };
        let others = self.others.iter();
        let others = others.map(|run| RunView { manifest: run.manifest.as_ref(), driver: &run.driver });
        std::iter::once(first).chain(others)
    }

    /// The number of the launcher in [`Recorded::runs`] that started a process.
    #[must_use]
    pub fn run_number(&self, process: &RecordedProcess) -> usize {
        if self.others.is_empty() {
            return 0;
        }
        let name = process.facts.identity.run.as_deref();
        let id: Option<ProcessId> = name.and_then(|name| name.parse().ok());
        if let Some(place) = self.others.iter().position(|run| Some(&run.id) == id.as_ref()) {
            return place + 1;
        }
        let is_of_host = |id: &ProcessId| id.host() == process.id.host();
        let first = self.manifest.as_ref();
        let is_first = first.is_none_or(|first| {
            let own = first.identity.run.as_deref();
            (own.is_some() && own == name) || is_of_host(&ProcessId::new(&first.host, 0, 0))
        });
        // A process whose file is missing belongs to the launcher of its host.
        let of_host = self.others.iter().position(|run| is_of_host(&run.id));
        of_host.filter(|_| !is_first).map_or(0, |place| place + 1)
    }

    /// The launcher that started a process.
    #[must_use]
    pub fn run_of(&self, process: &RecordedProcess) -> RunView<'_> {
        let first = RunView { manifest: self.manifest.as_ref(), driver: &self.driver };
        self.runs().nth(self.run_number(process)).unwrap_or(first)
    }

    /// The machine of a launcher, by its number in [`Recorded::runs`]. Where it has said nothing its name tells, or one of its processes.
    #[must_use]
    pub fn host_of_run(&self, number: usize) -> Option<&str> {
        let told =
            self.runs().nth(number).and_then(|run| run.manifest).map(|manifest| manifest.host.as_str());
        let joined = || self.others.get(number.checked_sub(1)?).map(|run| run.id.host());
        let process = || {
            let first = self.processes.iter().find(|process| self.run_number(process) == number);
            first.map(|process| process.id.host())
        };
        told.or_else(joined).or_else(process).filter(|host| !host.is_empty())
    }

    /// Whether every launcher has written how its part of the job ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let ended = |run: RunView<'_>| run.manifest.is_some_and(|manifest| manifest.exit.is_some());
        self.runs().all(ended)
    }
}

/// What one process wrote.
#[derive(Debug)]
pub struct RecordedProcess {
    /// Which.
    pub id: ProcessId,
    /// How many times this part of the job had been started before, from the launchers and from what the folder holds.
    pub attempt: u64,
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
            attempt: 0,
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
    /// The version of Vramline that wrote it.
    pub vramline: String,
    /// Python's version.
    pub python: String,
    /// Frameworks with their versions.
    pub frameworks: BTreeMap<String, String>,
    /// Those of them that were in use; empty where nobody asked.
    pub used: Vec<String>,
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
        // Trackers and trainers import frameworks that the program does not use, and a Keras that it does not use either.
        let is_used = |name: &str| self.used.is_empty() || self.used.iter().any(|used| used == name);
        let known = |name: &str| self.frameworks.get_key_value(name).filter(|_| is_used(name));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framework_that_is_only_imported_holds_no_memory() {
        let facts = |used: &[&str], backend: Option<&str>| ProcessFacts {
            frameworks: ["jax", "keras", "tensorflow", "torch"]
                .map(|name| (name.to_owned(), "1".to_owned()))
                .into(),
            used: used.iter().map(|&name| name.to_owned()).collect(),
            backend: backend.map(str::to_owned),
            ..ProcessFacts::default()
        };
        let holds = |used, backend| facts(used, backend).framework().unwrap().0.to_owned();
        assert_eq!(holds(&["torch"], Some("tensorflow")), "torch");
        assert_eq!(holds(&["jax"], None), "jax");
        assert_eq!(holds(&["tensorflow", "torch"], Some("torch")), "torch");
        assert_eq!(holds(&["tensorflow", "torch"], Some("jax")), "tensorflow");
        // Older recordings do not know.
        assert_eq!(holds(&[], Some("torch")), "torch");
        assert_eq!(holds(&[], None), "tensorflow");
    }
}
