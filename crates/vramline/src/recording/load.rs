//! A recording, read back: whatever is whole.
//!
//! Reading never waits for a run to end: what is there is taken. A file that cannot be read costs a warning; only a folder that
//! holds nothing of ours, or was written by a later version, is refused.

use std::collections::{BTreeMap, BTreeSet};
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
    RecordedFolder::open(path)?.read()
}

/// The files of a recording by process, so that the processes of a large job can be read one after the other.
#[derive(Debug, Default)]
pub struct RecordedFolder {
    path: PathBuf,
    manifest: Option<RunManifest>,
    /// The launchers that joined, in the order of their begin.
    joined: Vec<(ProcessId, Option<RunManifest>)>,
    /// What each process wrote; of a launcher that joined its own files.
    parts: BTreeMap<ProcessId, Vec<Part>>,
    facts: BTreeMap<ProcessId, ProcessFacts>,
    attempts: BTreeMap<ProcessId, u64>,
    /// What others than the recorder put there, in the order of the names.
    last_words: BTreeMap<ProcessId, Vec<PathBuf>>,
    warnings: Warnings,
}

impl RecordedFolder {
    /// Lists a recording, and reads what launchers and processes say of themselves.
    pub fn open(path: &Path) -> Result<RecordedFolder, ReadError> {
        let mut folder = RecordedFolder { path: path.to_owned(), ..RecordedFolder::default() };
        match RunManifest::read(path) {
            Ok(manifest) => folder.manifest = Some(manifest),
            Err(error @ ManifestError::Newer { .. }) => return Err(newer(path, error.to_string())),
            Err(ManifestError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => folder.warnings.add("unreadable-manifest", error.to_string(), error.hint()),
        }
        let found = parts(path).map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
        for (part, id) in found {
            let file = path.join(part.name(&id));
            if part == Part::Run {
                folder.joined.push((id.clone(), manifest(&file, path, &mut folder.warnings)?));
            } else if part == Part::Process {
                folder.read_facts(&id, &file)?;
            }
            folder.parts.entry(id).or_default().push(part);
        }
        for (id, _) in folder.parts.iter().filter(|(_, parts)| parts.contains(&Part::Driver)) {
            if !folder.joined.iter().any(|(joined, _)| joined == id) {
                folder.joined.push((id.clone(), None));
            }
        }
        let begin = |run: &Option<RunManifest>| run.as_ref().map(|run| run.clocks.begin.realtime_ns.0);
        folder.joined.sort_by_key(|(id, run)| (begin(run), id.clone()));
        folder.list_last_words();
        folder.number_attempts();
        Ok(folder)
    }

    fn read_facts(&mut self, id: &ProcessId, file: &Path) -> Result<(), ReadError> {
        match facts(file) {
            Ok(facts) if facts.schema > VERSION => {
                return Err(newer(&self.path, format!("'{}' has schema {}", name_of(file), facts.schema)));
            }
            Ok(facts) => drop(self.facts.insert(id.clone(), facts)),
            Err(error) => {
                self.warnings.add(
                    "unreadable-facts",
                    format!("'{}' cannot be read: {error}", name_of(file)),
                    "",
                );
            }
        }
        Ok(())
    }

    fn number_attempts(&mut self) {
        let ids: Vec<&ProcessId> = self.processes().collect();
        let mut outline = self.launchers(&ids, true);
        outline.processes = ids.into_iter().map(|id| self.process(id)).collect();
        attempts::number(&mut outline);
        self.attempts = outline.processes.into_iter().map(|process| (process.id, process.attempt)).collect();
    }

    /// Its processes.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessId> {
        let is_of_process = |part: &Part| !matches!(part, Part::Run | Part::Driver | Part::DriverCalls);
        self.parts.iter().filter(move |(_, parts)| parts.iter().any(is_of_process)).map(|(id, _)| id)
    }

    /// A process with what it says of itself, without what it did.
    #[must_use]
    pub fn process(&self, id: &ProcessId) -> RecordedProcess {
        RecordedProcess {
            facts: self.facts.get(id).cloned().unwrap_or_default(),
            attempt: self.attempts.get(id).copied().unwrap_or_default(),
            ..RecordedProcess::new(id.clone())
        }
    }

    /// Reads the whole recording.
    pub fn read(&self) -> Result<Recorded, ReadError> {
        // Calls of the driver may be all that a process has.
        let ids: Vec<&ProcessId> = self.parts.keys().collect();
        let mut recorded = self.launchers(&ids, true);
        self.read_drivers(&mut recorded)?;
        self.read_processes(&ids, &mut recorded)?;
        Ok(recorded)
    }

    /// Reads some of its processes as if there were no others, with or without the driver's rows.
    pub fn read_of(&self, ids: &[&ProcessId], with_driver: bool) -> Result<Recorded, ReadError> {
        let mut recorded = self.launchers(ids, false);
        if with_driver {
            self.read_drivers(&mut recorded)?;
        }
        self.read_processes(ids, &mut recorded)?;
        Ok(recorded)
    }

    /// The launchers of some processes, or all of them.
    fn launchers(&self, ids: &[&ProcessId], is_all: bool) -> Recorded {
        let run = |id: &ProcessId| self.facts.get(id)?.identity.run.as_ref()?.parse().ok();
        let names: BTreeSet<ProcessId> = ids.iter().filter_map(|id| run(id)).collect();
        let is_named = |id: &ProcessId| names.contains(id);
        let is_of_host = |host: &str| ids.iter().any(|id| id.host() == ProcessId::new(host, 0, 0).host());
        let has_named = self.joined.iter().any(|(id, _)| is_named(id));
        let is_theirs = |id: &ProcessId| {
            is_all || is_named(id) || (!has_named && names.is_empty() && is_of_host(id.host()))
        };
        let other = |(id, manifest): &(ProcessId, Option<RunManifest>)| RecordedRun {
            manifest: manifest.clone(),
            ..RecordedRun::new(id.clone())
        };
        let mut others: Vec<RecordedRun> =
            self.joined.iter().filter(|(id, _)| is_theirs(id)).map(other).collect();
        let is_first_theirs = is_all
            || others.is_empty()
            || self.manifest.as_ref().is_some_and(|first| {
                let own = first.identity.run.as_ref().and_then(|name| name.parse().ok());
                own.is_some_and(|own: ProcessId| names.contains(&own))
                    || (names.is_empty() && is_of_host(&first.host))
            });
        let mut recorded =
            Recorded { path: self.path.clone(), warnings: self.warnings.clone(), ..Recorded::default() };
        // The one that made the folder may not have been able to start its command.
        let is_first_gone = is_all && self.manifest.is_none() && !self.path.join(RUN).exists();
        if (is_first_gone || !is_first_theirs) && !others.is_empty() {
            let first = others.remove(0);
            (recorded.manifest, recorded.first_id) = (first.manifest, Some(first.id));
        } else {
            recorded.manifest = self.manifest.clone();
        }
        recorded.others = others;
        recorded
    }

    fn read_drivers(&self, recorded: &mut Recorded) -> Result<(), ReadError> {
        let Recorded { others, warnings, .. } = recorded;
        let mut rows = |name: String| {
            let file = self.path.join(name);
            if !file.exists() {
                return Ok(Vec::new());
            }
            Ok(DriverRow::all(&table(&file, &self.path, warnings)?))
        };
        for run in others {
            run.driver = rows(Part::Driver.name(&run.id))?;
        }
        recorded.driver = rows(match &recorded.first_id {
            Some(id) => Part::Driver.name(id),
            None => DRIVER.to_owned(),
        })?;
        Ok(())
    }

    fn read_processes(&self, ids: &[&ProcessId], recorded: &mut Recorded) -> Result<(), ReadError> {
        for id in ids {
            self.read_process(id, recorded)?;
        }
        recorded.processes.sort_by_key(|process| process.marks.first().map(|mark| mark.time));
        warn_of_missing_calls(recorded);
        Ok(())
    }

    fn read_process(&self, id: &ProcessId, recorded: &mut Recorded) -> Result<(), ReadError> {
        let (path, warnings) = (&self.path, &mut recorded.warnings);
        let mut process = self.process(id);
        let mut has_own = false;
        for part in self.parts.get(id).into_iter().flatten() {
            let file = path.join(part.name(id));
            let mut table = || table(&file, path, warnings);
            match part {
                Part::Marks => process.marks = Mark::all(&table()?),
                Part::Samples => process.samples = Sample::all(&table()?),
                Part::Inventory => process.inventories = Inventory::all(&table()?),
                Part::Owners => process.owners = OwnerRow::all(&table()?),
                Part::Trace => process.trace = Some(file),
                Part::DriverCalls => {
                    recorded.driver_calls.extend(driver_calls(&file, id.clone(), path, warnings)?);
                }
                Part::Process | Part::Run | Part::Driver => {}
            }
            has_own |= !matches!(part, Part::Run | Part::Driver | Part::DriverCalls);
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

/// The manifest of a parent that joined; an unreadable one becomes a warning.
fn manifest(file: &Path, folder: &Path, warnings: &mut Warnings) -> Result<Option<RunManifest>, ReadError> {
    match RunManifest::read_file(file.to_owned()) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error @ ManifestError::Newer { .. }) => Err(newer(folder, error.to_string())),
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
