//! A recording, read back: whatever is whole, of as many processes as wrote.
//!
//! Reading never waits for a run to end: what is there is taken. A file that cannot be read costs a warning; only a folder that
//! holds nothing of ours, or was written by a later version, is refused.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::folder::{DRIVER, Part, ProcessId, RUN, parts};
use super::manifest::{ManifestError, RunManifest};
use super::rows::{DriverRow, Inventory, Mark, Moment, Sample, TraceState};
use super::schema::VERSION;
use super::stream::{self, StreamError, Table};
use crate::event::Framework;
use crate::warning::Warnings;

/// What a process says of itself is small; what is larger is not its.
const LARGEST_FACTS: u64 = 4 << 20;

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
    /// The folder of its profiler.
    pub trace: Option<PathBuf>,
    /// The text of the exception that ended it.
    pub exception: Option<PathBuf>,
    /// Pictures of its pools that TensorFlow made when an allocation failed.
    pub dumps: Vec<PathBuf>,
}

impl RecordedProcess {
    /// A process of which nothing was read yet.
    #[must_use]
    pub fn new(id: ProcessId) -> RecordedProcess {
        RecordedProcess {
            id,
            facts: ProcessFacts::default(),
            marks: Vec::new(),
            samples: Vec::new(),
            inventories: Vec::new(),
            trace: None,
            exception: None,
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
        self.marks.iter().find(|mark| mark.trace_state == Some(state)).map(|mark| mark.time)
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
    /// Which part of a larger job it is.
    pub rank: Option<u64>,
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
    pub fn known_framework(&self) -> Option<Framework> {
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

/// A recording that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The folder cannot be listed.
    #[error("cannot read '{}': {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A later version wrote it.
    #[error("'{}' was written by a later version: {what}", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Which file says so, and how.
        what: String,
    },
}

impl ReadError {
    /// What to do now; empty where the error says it all.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            ReadError::Newer { .. } => "update vramline: the recording was made by a newer one",
            ReadError::Io { .. } => "",
        }
    }
}

/// Reads a recording.
pub fn read(path: &Path) -> Result<Recorded, ReadError> {
    let newer = |what: String| ReadError::Newer { path: path.to_owned(), what };
    let mut recorded = Recorded { path: path.to_owned(), ..Recorded::default() };
    match RunManifest::read(path) {
        Ok(manifest) => recorded.manifest = Some(manifest),
        Err(error @ ManifestError::Newer { .. }) => return Err(newer(error.to_string())),
        Err(ManifestError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => recorded.warnings.add("unreadable-manifest", error.to_string(), error.hint()),
    }
    let found = parts(path).map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
    let mut processes: BTreeMap<ProcessId, RecordedProcess> = BTreeMap::new();
    for (part, id) in found {
        let file = path.join(part.name(&id));
        let process = processes.entry(id.clone()).or_insert_with(|| RecordedProcess::new(id));
        let mut table = || table(&file, path, &mut recorded.warnings);
        match part {
            Part::Process => match facts(&file) {
                Ok(facts) if facts.schema > VERSION => {
                    return Err(newer(format!("'{}' has schema {}", name_of(&file), facts.schema)));
                }
                Ok(facts) => process.facts = facts,
                Err(error) => recorded.warnings.add(
                    "unreadable-facts",
                    format!("'{}' cannot be read: {error}", name_of(&file)),
                    "",
                ),
            },
            Part::Marks => process.marks = Mark::all(&table()?),
            Part::Samples => process.samples = Sample::all(&table()?),
            Part::Inventory => process.inventories = Inventory::all(&table()?),
            Part::Trace => process.trace = Some(file),
        }
    }
    let file = path.join(DRIVER);
    if file.exists() {
        recorded.driver = DriverRow::all(&table(&file, path, &mut recorded.warnings)?);
    }
    recorded.processes = processes.into_values().collect();
    recorded.processes.sort_by_key(|process| process.marks.first().map(|mark| mark.time));
    add_last_words(&mut recorded);
    Ok(recorded)
}

/// The rows of a stream, as far as they are whole; a stream that is none is a warning.
fn table(file: &Path, folder: &Path, warnings: &mut Warnings) -> Result<Table, ReadError> {
    match stream::read(file) {
        Ok(table) => {
            if table.torn_bytes > 0 {
                warnings.add(
                    "torn-tail",
                    format!(
                        "the last {} bytes of '{}' are not whole and were left out",
                        table.torn_bytes,
                        name_of(file)
                    ),
                    "the process was killed while it wrote; everything before is there",
                );
            }
            Ok(table)
        }
        Err(error @ StreamError::Newer { .. }) => {
            Err(ReadError::Newer { path: folder.to_owned(), what: error.to_string() })
        }
        Err(error) => {
            warnings.add("unreadable-stream", error.to_string(), "");
            Ok(Table::default())
        }
    }
}

/// What others than the recorder put there: the exception's text, and TensorFlow's dumps.
fn add_last_words(recorded: &mut Recorded) {
    let Ok(entries) = std::fs::read_dir(&recorded.path) else { return };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    for path in names.into_iter().filter(|path| path.is_file()) {
        let name = name_of(&path);
        let rest = name.strip_prefix("dump-").map(|rest| (rest, true));
        let Some((rest, is_dump)) =
            rest.or_else(|| name.strip_prefix("exception-").map(|rest| (rest, false)))
        else {
            continue;
        };
        for process in &mut recorded.processes {
            let Some(after) = rest.strip_prefix(&process.id.to_string()) else { continue };
            if is_dump && after.starts_with('_') {
                process.dumps.push(path.clone());
            } else if !is_dump && after == ".txt" {
                process.exception = Some(path.clone());
            }
        }
    }
}

pub(super) fn facts(path: &Path) -> io::Result<ProcessFacts> {
    let mut text = Vec::new();
    stream::open_plain(path)?.take(LARGEST_FACTS).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
