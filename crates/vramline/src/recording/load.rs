//! A recording, read back: whatever is whole.
//!
//! Reading never waits for a run to end: what is there is taken. A file that cannot be read costs a warning; only a folder that
//! holds nothing of ours, or was written by a later version, is refused.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::driver_calls::{DriverCalls, DriverCallsError};
use super::folder::{DRIVER, Part, ProcessId, moment_of_name, open_plain, parts};
use super::manifest::{DriverTrace, ManifestError, RunManifest};
use super::reader::{ProcessFacts, ReadError, Recorded, RecordedProcess};
use super::rows::{DriverRow, HOST, Inventory, Mark, OwnerRow, Sample};
use super::schema::VERSION;
use super::stream::{self, StreamError, Table};
use crate::warning::{NamingText, PrivateName, Warnings};

/// What a process says of itself is small; what is larger is not its.
const LARGEST_FACTS: u64 = 4 << 20;

/// Reads a recording.
pub fn read(path: &Path) -> Result<Recorded, ReadError> {
    RecordedFolder::open(path)?.read()
}

/// The files of a recording by process, so that the processes of a large job can be read one after the other.
#[derive(Debug)]
pub struct RecordedFolder {
    path: PathBuf,
    manifest: Option<RunManifest>,
    parts: BTreeMap<ProcessId, Vec<Part>>,
    /// What others than the recorder put there, in the order of the names.
    last_words: BTreeMap<ProcessId, Vec<PathBuf>>,
    warnings: Warnings,
}

impl RecordedFolder {
    /// Lists a recording.
    pub fn open(path: &Path) -> Result<RecordedFolder, ReadError> {
        let mut folder = RecordedFolder {
            path: path.to_owned(),
            manifest: None,
            parts: BTreeMap::new(),
            last_words: BTreeMap::new(),
            warnings: Warnings::default(),
        };
        match RunManifest::read(path) {
            Ok(manifest) => folder.manifest = Some(manifest),
            Err(error @ ManifestError::Newer { .. }) => return Err(newer(path, error.to_string())),
            Err(ManifestError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => folder.warnings.add("unreadable-manifest", error.to_string(), error.hint()),
        }
        let found = parts(path).map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
        for (part, id) in found {
            folder.parts.entry(id).or_default().push(part);
        }
        folder.list_last_words();
        Ok(folder)
    }

    /// Its processes.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessId> {
        self.parts.keys()
    }

    /// What a process says of itself; `None` if its file is missing or damaged.
    #[must_use]
    pub fn facts(&self, id: &ProcessId) -> Option<ProcessFacts> {
        facts(&self.path.join(Part::Process.name(id))).ok()
    }

    /// Reads the whole recording.
    pub fn read(&self) -> Result<Recorded, ReadError> {
        let ids: Vec<&ProcessId> = self.parts.keys().collect();
        self.read_of(&ids, true)
    }

    /// Reads some of its processes, with or without the driver's rows.
    pub fn read_of(&self, ids: &[&ProcessId], with_driver: bool) -> Result<Recorded, ReadError> {
        let path = &self.path;
        let mut recorded = Recorded {
            path: path.clone(),
            manifest: self.manifest.clone(),
            warnings: self.warnings.clone(),
            ..Recorded::default()
        };
        for id in ids {
            self.read_process(id, &mut recorded)?;
        }
        let file = path.join(DRIVER);
        if with_driver && file.exists() {
            recorded.driver = DriverRow::all(&table(&file, path, &mut recorded.warnings)?);
        }
        recorded.processes.sort_by_key(|process| process.marks.first().map(|mark| mark.time));
        warn_of_missing_calls(&mut recorded);
        Ok(recorded)
    }

    fn read_process(&self, id: &ProcessId, recorded: &mut Recorded) -> Result<(), ReadError> {
        let (path, warnings) = (&self.path, &mut recorded.warnings);
        let mut process = RecordedProcess::new(id.clone());
        let mut has_own = false;
        for part in self.parts.get(id).into_iter().flatten() {
            let file = path.join(part.name(id));
            if *part == Part::DriverCalls {
                recorded.driver_calls.extend(driver_calls(&file, id.clone(), path, warnings)?);
                continue;
            }
            has_own = true;
            let mut table = || table(&file, path, warnings);
            match part {
                Part::Process => match facts(&file) {
                    Ok(facts) if facts.schema > VERSION => {
                        return Err(newer(path, format!("'{}' has schema {}", name_of(&file), facts.schema)));
                    }
                    Ok(facts) => process.facts = facts,
                    Err(error) => warnings.add(
                        "unreadable-facts",
                        format!("'{}' cannot be read: {error}", name_of(&file)),
                        "",
                    ),
                },
                Part::Marks => process.marks = Mark::all(&table()?),
                Part::Samples => process.samples = Sample::all(&table()?),
                Part::Inventory => process.inventories = Inventory::all(&table()?),
                Part::Owners => process.owners = OwnerRow::all(&table()?),
                Part::Trace => process.trace = Some(file),
                Part::DriverCalls => {}
            }
        }
        if has_own {
            let paths = self.last_words.get(id).map(Vec::as_slice).unwrap_or_default();
            add_last_words(&mut process, paths);
            recorded.processes.push(process);
        }
        Ok(())
    }

    /// Finds texts of errors, TensorFlow's dumps, and what frameworks said of single moments.
    fn list_last_words(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = name_of(&path);
            let id = match LastWords::of_name(&name) {
                Some((LastWords::Dump, rest)) => {
                    // A host may have such signs in its name too.
                    let mut ids = rest.match_indices('_').filter_map(|(at, _)| rest.get(..at)?.parse().ok());
                    ids.find(|id| self.parts.contains_key(id))
                }
                Some((LastWords::Exception, rest)) => {
                    rest.strip_suffix(".txt").and_then(|id| id.parse().ok())
                }
                Some((LastWords::Raised, rest)) => rest.rsplit_once('.').and_then(|(id, _)| id.parse().ok()),
                None => moment_of_name(&name).map(|(id, _)| id),
            };
            if let Some(id) = id.filter(|id| self.parts.contains_key(id)) {
                self.last_words.entry(id).or_default().push(path);
            }
        }
    }
}

fn newer(path: &Path, what: String) -> ReadError {
    ReadError::Newer { path: path.to_owned(), what }
}

/// Says so where calls of the driver were to be recorded and the job used a GPU, but no process recorded any.
fn warn_of_missing_calls(recorded: &mut Recorded) {
    let is_on = recorded.manifest.as_ref().is_some_and(|run| run.settings.driver_trace == DriverTrace::On);
    let used_gpu = recorded.driver.iter().any(|row| row.is_job == Some(true) && row.device != HOST);
    if is_on && used_gpu && recorded.driver_calls.is_empty() {
        recorded.warnings.add(
            "no-driver-calls",
            "the job used a GPU, but none of its processes recorded calls of the driver".to_owned(),
            "a launcher, container or sandbox removed LD_PRELOAD; run `vramline run` inside it",
        );
    }
}

/// The complete rows of a stream; an unreadable stream becomes a warning.
fn table(file: &Path, folder: &Path, warnings: &mut Warnings) -> Result<Table, ReadError> {
    match stream::read(file) {
        Ok(table) => {
            warn_of_torn(table.torn_bytes, file, warnings);
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

fn warn_of_torn(bytes: u64, file: &Path, warnings: &mut Warnings) {
    let (last, skipped) = match bytes {
        0 => return,
        1 => ("byte".to_owned(), "is incomplete and was skipped"),
        count => (format!("{count} bytes"), "are incomplete and were skipped"),
    };
    let text = NamingText {
        before: format!("the last {last} of '"),
        name: PrivateName::Path(name_of(file)),
        after: format!("' {skipped}"),
    };
    warnings.add_naming(
        "torn-tail",
        text,
        "the process was killed while it wrote; everything before that is intact",
    );
}

/// The whole records of a file of driver calls; an unreadable file becomes a warning.
fn driver_calls(
    file: &Path,
    id: ProcessId,
    folder: &Path,
    warnings: &mut Warnings,
) -> Result<Option<DriverCalls>, ReadError> {
    match DriverCalls::read(file, id) {
        Ok(calls) => {
            warn_of_torn(calls.torn_bytes, file, warnings);
            Ok(Some(calls))
        }
        Err(error @ DriverCallsError::Newer(_)) => {
            Err(ReadError::Newer { path: folder.to_owned(), what: format!("'{}': {error}", name_of(file)) })
        }
        Err(error) => {
            warnings.add("unreadable-stream", format!("'{}' cannot be read: {error}", name_of(file)), "");
            Ok(None)
        }
    }
}

/// Files that are recognised by their names only.
#[derive(Clone, Copy)]
enum LastWords {
    /// `dump-ID_ALLOCATOR.MICROSECONDS`, by TensorFlow.
    Dump,
    /// `exception-ID.txt`: what ended the process.
    Exception,
    /// `raised-ID.MICROSECONDS`: an error that the program may have caught.
    Raised,
}

impl LastWords {
    /// What a name stands for, and what follows in it.
    fn of_name(name: &str) -> Option<(LastWords, &str)> {
        const KINDS: [(&str, LastWords); 3] = [
            ("dump-", LastWords::Dump),
            ("exception-", LastWords::Exception),
            ("raised-", LastWords::Raised),
        ];
        KINDS.iter().find_map(|(prefix, kind)| Some((*kind, name.strip_prefix(prefix)?)))
    }
}

fn add_last_words(process: &mut RecordedProcess, paths: &[PathBuf]) {
    for path in paths {
        let name = name_of(path);
        if let Some((_, number)) = moment_of_name(&name).filter(|_| path.is_dir()) {
            process.moments.insert(number, path.clone());
        }
        match LastWords::of_name(&name).filter(|_| path.is_file()) {
            Some((LastWords::Dump, _)) => process.dumps.push(path.clone()),
            Some((LastWords::Exception, _)) => process.exception = Some(path.clone()),
            Some((LastWords::Raised, _)) => process.raised.push(path.clone()),
            None => {}
        }
    }
}

pub(super) fn facts(path: &Path) -> io::Result<ProcessFacts> {
    let mut text = Vec::new();
    open_plain(path)?.take(LARGEST_FACTS).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
