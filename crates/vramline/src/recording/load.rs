//! A recording, read back: whatever is whole.
//!
//! Reading never waits for a run to end: what is there is taken. A file that cannot be read costs a warning; only a folder that
//! holds nothing of ours, or was written by a later version, is refused.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::attempts;
use super::driver_calls::{DriverCalls, DriverCallsError};
use super::folder::{DRIVER, Part, ProcessId, RUN, moment_of_name, open_plain, parts};
use super::manifest::{DriverTrace, ManifestError, RunManifest};
use super::reader::{ProcessFacts, ReadError, Recorded, RecordedProcess, RecordedRun, RunView};
use super::rows::{DriverRow, HOST, Inventory, Mark, OwnerRow, Sample};
use super::schema::VERSION;
use super::stream::{self, StreamError, Table};
use crate::warning::{NamingText, PrivateName, Warnings};

/// What a process says of itself is small; what is larger is not its.
const LARGEST_FACTS: u64 = 4 << 20;

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
    let mut runs: BTreeMap<ProcessId, RecordedRun> = BTreeMap::new();
    for (part, id) in found {
        let file = path.join(part.name(&id));
        match part {
            Part::DriverCalls => {
                recorded.driver_calls.extend(driver_calls(&file, id, path, &mut recorded.warnings)?);
                continue;
            }
            Part::Run => {
                let manifest = manifest(&file, path, &mut recorded.warnings)?;
                runs.entry(id.clone()).or_insert_with(|| RecordedRun::new(id)).manifest = manifest;
                continue;
            }
            Part::Driver => {
                let rows = DriverRow::all(&table(&file, path, &mut recorded.warnings)?);
                runs.entry(id.clone()).or_insert_with(|| RecordedRun::new(id)).driver = rows;
                continue;
            }
            _ => {}
        }
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
            Part::Owners => process.owners = OwnerRow::all(&table()?),
            Part::Trace => process.trace = Some(file),
            Part::DriverCalls | Part::Run | Part::Driver => {}
        }
    }
    let file = path.join(DRIVER);
    if file.exists() {
        recorded.driver = DriverRow::all(&table(&file, path, &mut recorded.warnings)?);
    }
    recorded.processes = processes.into_values().collect();
    recorded.processes.sort_by_key(|process| process.marks.first().map(|mark| mark.time));
    recorded.others = runs.into_values().collect();
    let begin = |run: &RecordedRun| run.manifest.as_ref().map(|manifest| manifest.clocks.begin.realtime_ns.0);
    recorded.others.sort_by_key(|run| (begin(run), run.id.clone()));
    // The one that made the folder may not have been able to start its command.
    if recorded.manifest.is_none() && !recorded.others.is_empty() && !path.join(RUN).exists() {
        let first = recorded.others.remove(0);
        (recorded.manifest, recorded.driver) = (first.manifest, first.driver);
    }
    attempts::number(&mut recorded);
    add_last_words(&mut recorded);
    warn_of_missing_calls(&mut recorded);
    Ok(recorded)
}

/// The manifest of a parent that joined; an unreadable one becomes a warning.
fn manifest(file: &Path, folder: &Path, warnings: &mut Warnings) -> Result<Option<RunManifest>, ReadError> {
    match RunManifest::read_file(file.to_owned()) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error @ ManifestError::Newer { .. }) => {
            Err(ReadError::Newer { path: folder.to_owned(), what: error.to_string() })
        }
        Err(error) => {
            warnings.add("unreadable-manifest", error.to_string(), error.hint());
            Ok(None)
        }
    }
}

/// Says so where calls of the driver were to be recorded and the job used a GPU, but no process recorded any.
fn warn_of_missing_calls(recorded: &mut Recorded) {
    let should_have = |run: RunView<'_>| {
        let is_on = run.manifest.is_some_and(|run| run.settings.driver_trace == DriverTrace::On);
        is_on && run.driver.iter().any(|row| row.is_job == Some(true) && row.device != HOST)
    };
    if recorded.driver_calls.is_empty() && recorded.runs().any(should_have) {
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

/// What others than the recorder put there: texts of errors, TensorFlow's dumps, and what frameworks said of single moments.
fn add_last_words(recorded: &mut Recorded) {
    const KINDS: [(&str, LastWords); 3] =
        [("dump-", LastWords::Dump), ("exception-", LastWords::Exception), ("raised-", LastWords::Raised)];
    let Ok(entries) = std::fs::read_dir(&recorded.path) else { return };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    for (path, (id, number)) in names.iter().filter_map(|path| Some((path, moment_of_name(&name_of(path))?)))
    {
        if path.is_dir()
            && let Some(process) = recorded.processes.iter_mut().find(|process| process.id == id)
        {
            process.moments.insert(number, path.clone());
        }
    }
    for path in names.into_iter().filter(|path| path.is_file()) {
        let name = name_of(&path);
        let known = KINDS.iter().find_map(|(prefix, kind)| Some((name.strip_prefix(prefix)?, *kind)));
        let Some((rest, kind)) = known else { continue };
        for process in &mut recorded.processes {
            let Some(after) = rest.strip_prefix(&process.id.to_string()) else { continue };
            match kind {
                LastWords::Dump if after.starts_with('_') => process.dumps.push(path.clone()),
                LastWords::Exception if after == ".txt" => process.exception = Some(path.clone()),
                LastWords::Raised if after.starts_with('.') => process.raised.push(path.clone()),
                _ => {}
            }
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
