//! *Internal.* Turns bytes into facts. Only this folder and `recording/` read files.
//!
//! [`read`] takes any path, detects its format and returns one [`History`] per host, or a [`Still`] for a file that describes a single
//! moment. Readers stream: they neither load the whole file into memory nor draw conclusions.

pub mod driver;
pub mod fingerprint;
mod folder;
pub(crate) mod hlo;
mod input;
mod memory_dump;
mod memory_profile;
mod oom_log;
mod pprof;
pub mod procfs;
pub mod sniff;
mod torch_snapshot;
mod wire;
mod xplane;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::event::History;
use crate::executable::Executable;
use crate::failure::Failures;
use crate::snapshot::Still;
use input::Input;
pub use input::Progress;
use sniff::Format;

/// Why a path cannot be read. [`hint`](SourceError::hint) says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The operating system reported an error.
    #[error("cannot read '{}': {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// The file is empty.
    #[error("'{}' is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file has another format.
    #[error("'{}' has no memory data that Vramline can read: it looks like {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The file cannot contain failed allocations.
    #[error("'{}' is not a log or a dump: it is {what}", path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A recording that cannot be read.
    #[error("{text}")]
    Recording {
        /// What is wrong, including the path.
        text: String,
        /// What to do.
        hint: &'static str,
    },
    /// A recording, but this build lacks the feature `recording`.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_keras.vram");
    /// use vramline::{SourceError, read};
    ///
    /// match read(path.as_ref()) {
    ///     Err(error @ SourceError::NoRecordings { .. }) => assert!(error.hint().contains("recording")),
    ///     read => assert!(read.is_ok() && cfg!(feature = "recording")),
    /// }
    /// ```
    #[error("'{}' is a recording, and this build of Vramline cannot read recordings", path.display())]
    NoRecordings {
        /// The folder.
        path: PathBuf,
    },
    /// A damaged pickle, or a pickle that is not a snapshot.
    #[error("cannot read '{}': {what}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// There is no compiled program.
    #[error("'{}' contains no program compiled by XLA", path.display())]
    NoProgram {
        /// The file or folder.
        path: PathBuf,
    },
    /// The folder contains no trace.
    #[error("'{}' contains no profiler trace (*.xplane.pb) and no snapshot (*.snapshot.pickle)", path.display())]
    NoTrace {
        /// The folder.
        path: PathBuf,
    },
}

impl SourceError {
    /// What to do next; empty if there is nothing to add.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            SourceError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "give a recording (*.vram), a PyTorch snapshot, a log or a trace; for <logdir>/plugins/profile/<run>/<host>.xplane.pb you can \
                 give <logdir>"
            }
            SourceError::Io { .. } => "",
            SourceError::Empty { .. } => {
                "a profiler writes its file when it is stopped: call tf.profiler.experimental.stop() or \
                 jax.profiler.stop_trace(), and do not kill the program"
            }
            SourceError::NoLog { .. } => {
                "give the log of the job, a dump of TF_BFC_MEMORY_DUMP, or a recording; for other files use `vramline report`"
            }
            SourceError::Foreign { hint, .. }
            | SourceError::Recording { hint, .. }
            | SourceError::Pickle { hint, .. } => hint,
            SourceError::NoRecordings { .. } => {
                "in Cargo.toml, add features = [\"recording\"] to the dependency vramline"
            }
            SourceError::NoProgram { .. } => {
                "run the job with XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto', then give FOLDER or a file in it that ends in \
                 after_optimizations.hlo.pb"
            }
            SourceError::NoTrace { .. } => {
                "make a trace with tf.profiler.experimental.start(logdir) and stop(), or with jax.profiler.trace(logdir)"
            }
        }
    }
}

/// The content of a file.
#[derive(Debug)]
pub enum Content {
    /// Events in order of time.
    History(Box<History>),
    /// One moment.
    Still(Box<Still>),
}

/// The content of a path.
#[derive(Debug, Default)]
pub struct Source {
    /// One history for each host, with the file it came from.
    pub histories: Vec<(PathBuf, History)>,
    /// States at one moment, with the file each came from.
    pub stills: Vec<(PathBuf, Still)>,
    /// Traces of other runs in the same folder, which were not read.
    pub other_runs: Vec<PathBuf>,
    /// Hosts of the same run that could not be read. If no host can be read, reading fails.
    pub unreadable: Vec<SourceError>,
}

impl Source {
    fn take(&mut self, path: PathBuf, content: Content) {
        match content {
            Content::History(history) => self.histories.push((path, *history)),
            Content::Still(still) => self.stills.push((path, *still)),
        }
    }
}

/// Reads a trace file, a profiler run or a whole log directory, and updates `progress`.
pub fn read(path: &Path, progress: &Arc<Progress>) -> Result<Source, SourceError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| SourceError::Io { path, error }
    };
    if !std::fs::metadata(path).map_err(at(path))?.is_dir() {
        let mut source = Source::default();
        source.take(path.to_owned(), read_file(path, progress)?);
        return Ok(source);
    }
    let found = folder::find(path).map_err(at(path))?;
    let mut files = found.hosts;
    if files.is_empty() {
        // A folder of XLA dumps: the compiled programs contain their memory needs.
        files = folder::dumps(path).map_err(at(path))?;
        files.truncate(MOST_PROGRAMS);
    }
    if files.is_empty() {
        return Err(SourceError::NoTrace { path: path.to_owned() });
    }
    let mut source = Source { other_runs: found.other_runs, ..Source::default() };
    for file in files {
        match read_file(&file, progress) {
            Ok(mut content) => {
                if let Content::History(history) = &mut content
                    && history.host.is_empty()
                {
                    history.host = folder::host_of(&file);
                }
                source.take(file, content);
            }
            Err(error) => source.unreadable.push(error),
        }
    }
    if source.histories.is_empty()
        && source.stills.is_empty()
        && let Some(error) = source.unreadable.pop()
    {
        return Err(error);
    }
    Ok(source)
}

/// Number of programs that are read from a folder at most. The largest jobs compile a few thousand.
const MOST_PROGRAMS: usize = 1 << 14;

/// Reads the programs that XLA compiled from a file or from a folder of dumps, in the order of compilation. Other files of a folder and
/// incomplete files are ignored.
pub fn read_programs(path: &Path) -> Result<Vec<Executable>, SourceError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| SourceError::Io { path, error }
    };
    let program = |file: &Path| -> io::Result<Option<Executable>> {
        let input = Input::open(file, &Arc::default())?;
        if sniff::sniff(&input)? == Format::Hlo { hlo::read_program(&input) } else { Ok(None) }
    };
    let mut programs = Vec::new();
    if std::fs::metadata(path).map_err(at(path))?.is_dir() {
        for file in folder::dumps(path).map_err(at(path))?.iter().take(MOST_PROGRAMS) {
            // A file that cannot be read is treated as missing.
            programs.extend(program(file).unwrap_or_default());
        }
    } else {
        programs.extend(program(path).map_err(at(path))?);
    }
    if programs.is_empty() {
        return Err(SourceError::NoProgram { path: path.to_owned() });
    }
    Ok(programs)
}

/// Reads a file from memory. Errors use `name` as its path.
pub fn read_bytes(bytes: &[u8], name: &Path) -> Result<Content, SourceError> {
    let at = |error| SourceError::Io { path: name.to_owned(), error };
    read_input(&Input::of_memory(bytes).map_err(at)?, name)
}

fn pickle_error(failure: torch_snapshot::Failure, path: &Path) -> SourceError {
    let path = path.to_owned();
    match failure {
        torch_snapshot::Failure::Io(error) => SourceError::Io { path, error },
        torch_snapshot::Failure::Fault(fault) => {
            SourceError::Pickle { path, what: fault.to_string(), hint: fault.hint() }
        }
    }
}

/// Writes a PyTorch snapshot as JSON with its original keys, to compare it with what Python reads.
pub fn write_snapshot_json(path: &Path, out: &mut dyn io::Write) -> Result<(), SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    let input = Input::open(path, &Arc::default()).map_err(at)?;
    torch_snapshot::write_json(&input, out).map_err(|failure| pickle_error(failure, path))
}

fn read_file(path: &Path, progress: &Arc<Progress>) -> Result<Content, SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    read_input(&Input::open(path, progress).map_err(at)?, path)
}

fn read_input(input: &Input, path: &Path) -> Result<Content, SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    if input.length() == 0 {
        return Err(SourceError::Empty { path: path.to_owned() });
    }
    let (what, hint) = match sniff::sniff(input).map_err(at)? {
        Format::XPlane => {
            return xplane::read(input).map(|history| Content::History(Box::new(history))).map_err(at);
        }
        Format::Empty => return Err(SourceError::Empty { path: path.to_owned() }),
        Format::Pickle => return torch_snapshot::read(input).map_err(|failure| pickle_error(failure, path)),
        Format::Zip => (
            "a zip archive, perhaps a PyTorch checkpoint",
            "a checkpoint contains weights, not memory data; make a snapshot with torch.cuda.memory._dump_snapshot(file)",
        ),
        Format::Pprof => match pprof::read(input).map_err(at)? {
            pprof::ProfileContent::Still(still) => return Ok(Content::Still(still)),
            pprof::ProfileContent::GoHeap => (
                "a heap profile of a Go program (pprof)",
                "read it with `go tool pprof`; make a memory profile of JAX with \
                 jax.profiler.save_device_memory_profile(file)",
            ),
            pprof::ProfileContent::Foreign => (
                "a pprof profile, but not of device memory",
                "make a memory profile of JAX with jax.profiler.save_device_memory_profile(file)",
            ),
        },
        Format::Hlo => match hlo::read_file(input).map_err(at)? {
            Some(still) => return Ok(Content::Still(Box::new(still))),
            None => (
                "an XLA program before compilation, without a memory layout",
                "give the file of the same program whose name ends in after_optimizations.hlo.pb",
            ),
        },
        Format::MemoryDump => {
            let failures = memory_dump::read(input).map_err(at)?;
            return Ok(Content::Still(Box::new(failures.still("memory-dump"))));
        }
        Format::EventFile => (
            "a TensorBoard event file",
            "give its folder instead: the trace is in plugins/profile/<run>/<host>.xplane.pb",
        ),
        Format::MemoryProfile => match memory_profile::read(input).map_err(at)? {
            Some(still) => return Ok(Content::Still(Box::new(still))),
            None => (
                "a damaged memory profile of xprof or TensorBoard",
                "copy the file again, or give the .xplane.pb file of the same folder",
            ),
        },
        Format::ChromeTrace => (
            "a trace in Chrome's event format (JSON), which contains times, but no memory events",
            "give the .xplane.pb file in the same folder, which contains the memory events",
        ),
        Format::TorchTrace => (
            "a trace of PyTorch's profiler (JSON), which contains times and totals, but not what holds the memory",
            "make a snapshot: torch.cuda.memory._record_memory_history() at the start, torch.cuda.memory._dump_snapshot(file) at the end",
        ),
        Format::Json => (
            "JSON without memory data",
            "give a .xplane.pb file, a PyTorch snapshot, a memory profile of JAX, a log or a recording",
        ),
        Format::PythonProfile => (
            "a profile of cProfile, which contains times of Python functions, but no memory data",
            "make a memory profile of JAX with jax.profiler.save_device_memory_profile(file)",
        ),
        Format::Text => {
            let failures = oom_log::read(input).map_err(at)?;
            if !failures.list.is_empty() {
                return Ok(Content::Still(Box::new(failures.still("oom-log"))));
            }
            (
                "text without an out-of-memory error",
                "give the log of a job that ran out of memory, or a recording: Vramline reads only the out-of-memory errors of a log",
            )
        }
        Format::Unknown => (
            "an unknown binary format",
            "give a recording (*.vram), a .xplane.pb file, a PyTorch snapshot, or a log",
        ),
    };
    Err(SourceError::Foreign { path: path.to_owned(), what, hint })
}

/// Reads the failed allocations of a log or a dump. A file of unknown format is read as a log.
pub fn read_failures(path: &Path, progress: &Arc<Progress>) -> Result<Failures, SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    failures_of(&Input::open(path, progress).map_err(at)?, path)
}

/// Whether a file is a pickle, such as a PyTorch snapshot. The failures of a snapshot are in its history.
#[must_use]
pub(crate) fn is_pickle(path: &Path) -> bool {
    let sniffed = Input::open(path, &Arc::default()).and_then(|input| sniff::sniff(&input));
    matches!(sniffed, Ok(Format::Pickle))
}

/// Reads failed allocations from memory. `name` is used as the path.
pub fn read_failures_in(bytes: &[u8], name: &Path) -> Result<Failures, SourceError> {
    let at = |error| SourceError::Io { path: name.to_owned(), error };
    failures_of(&Input::of_memory(bytes).map_err(at)?, name)
}

fn failures_of(input: &Input, path: &Path) -> Result<Failures, SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    let what = match sniff::sniff(input).map_err(at)? {
        Format::XPlane => "a profiler trace",
        Format::Pickle => "a Python pickle, perhaps a PyTorch memory snapshot",
        Format::Zip => "a zip archive",
        Format::Pprof => "a pprof profile",
        Format::Hlo => "an XLA program",
        Format::EventFile => "a TensorBoard event file",
        Format::MemoryProfile => "a memory profile of xprof or TensorBoard",
        Format::ChromeTrace | Format::TorchTrace => "a trace in Chrome's event format",
        Format::PythonProfile => "a profile of cProfile",
        Format::MemoryDump => {
            let mut failures = memory_dump::read(input).map_err(at)?;
            name_witnesses(&mut failures, path);
            return Ok(failures);
        }
        _ => {
            let mut failures = oom_log::read(input).map_err(at)?;
            name_witnesses(&mut failures, path);
            return Ok(failures);
        }
    };
    Err(SourceError::NoLog { path: path.to_owned(), what })
}

fn name_witnesses(failures: &mut Failures, path: &Path) {
    // TensorFlow writes PREFIX_ALLOCATOR.MICROSECONDS.
    let micros = path.extension().and_then(|end| end.to_str()?.parse().ok());
    for witness in failures.list.iter_mut().flat_map(|failure| &mut failure.witnesses) {
        path.clone_into(&mut witness.path);
        witness.micros = micros.filter(|_| witness.line.is_none());
    }
}

/// The logs and dumps in a folder, without its subfolders.
pub(crate) fn logs_in(folder: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let at = |error| SourceError::Io { path: folder.to_owned(), error };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            found.push(entry.path());
        }
    }
    found.sort();
    let is_log = |path: &PathBuf| {
        let format = Input::open(path, &Arc::default()).and_then(|input| sniff::sniff(&input));
        matches!(format, Ok(Format::Text | Format::MemoryDump))
    };
    found.retain(is_log);
    Ok(found)
}

/// The content of each file of a folder, whatever its format. A file that cannot be read becomes an error in the list.
pub(crate) fn read_each(
    place: &Path,
    progress: &Arc<Progress>,
    unreadable: &mut Vec<SourceError>,
) -> Vec<(PathBuf, Content)> {
    /// A folder of one moment has one.
    const MOST_FILES: usize = 8;
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths.into_iter().take(MOST_FILES) {
        match read(&path, progress) {
            Ok(read) => {
                unreadable.extend(read.unreadable);
                let histories = read
                    .histories
                    .into_iter()
                    .map(|(path, history)| (path, Content::History(Box::new(history))));
                let stills =
                    read.stills.into_iter().map(|(path, still)| (path, Content::Still(Box::new(still))));
                found.extend(histories.chain(stills));
            }
            Err(error) => unreadable.push(error),
        }
    }
    found
}
