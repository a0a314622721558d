//! *Internal.* Bytes in, facts out: the only place besides `recording/` that touches files.
//!
//! [`read`] takes a path of any kind, sniffs what it is and gives one [`History`] for each host, or a [`Still`] where a
//! file knows one moment only. Readers push into what they are given; they neither collect the file in memory nor draw conclusions.

pub mod driver;
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

/// Why a path cannot be read, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file system said no.
    #[error("cannot read '{}': {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// The file holds nothing.
    #[error("'{}' is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("'{}' is not a profiler trace: it looks like {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The file is not one that tells of failures.
    #[error("'{}' tells of no failed allocation: it is {what}", path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A recording that cannot be read.
    #[error("{text}")]
    Recording {
        /// What is wrong, with the path in it.
        text: String,
        /// What to do.
        hint: &'static str,
    },
    /// A recording, which only builds with the feature `recording` read.
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
    #[error("'{}' is a recording, and this program was built without reading them", path.display())]
    NoRecordings {
        /// The folder.
        path: PathBuf,
    },
    /// A pickle that is no snapshot, or a damaged one.
    #[error("cannot read '{}': {what}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// No program of XLA's that is compiled.
    #[error("no compiled program of XLA's in '{}'", path.display())]
    NoProgram {
        /// The file or folder.
        path: PathBuf,
    },
    /// The folder holds no trace.
    #[error("no profiler trace (*.xplane.pb) and no snapshot (*.snapshot.pickle) in '{}'", path.display())]
    NoTrace {
        /// The folder.
        path: PathBuf,
    },
}

impl SourceError {
    /// What to do now; empty where the error says it all.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            SourceError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "give a recording (*.vram), a PyTorch snapshot, a log or a trace; of a profiler's <logdir>/plugins/profile/<run>/<host>.xplane.pb \
                 any folder on the way will do"
            }
            SourceError::Io { .. } => "",
            SourceError::Empty { .. } => {
                "a profiler writes its file when it is stopped: call tf.profiler.experimental.stop() or \
                 jax.profiler.stop_trace(), and let the program end by itself"
            }
            SourceError::NoLog { .. } => {
                "give the job's log, the files of TF_BFC_MEMORY_DUMP, or a recording; `vramline report` reads the rest"
            }
            SourceError::Foreign { hint, .. }
            | SourceError::Recording { hint, .. }
            | SourceError::Pickle { hint, .. } => hint,
            SourceError::NoRecordings { .. } => {
                "in Cargo.toml, give the dependency vramline features = [\"recording\"]"
            }
            SourceError::NoProgram { .. } => {
                "XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto' has XLA write what it compiles: give that folder, or \
                 its file that ends in after_optimizations.hlo.pb"
            }
            SourceError::NoTrace { .. } => {
                "record one with tf.profiler.experimental.start(logdir) and stop(), or jax.profiler.trace(logdir)"
            }
        }
    }
}

/// What a file held.
#[derive(Debug)]
pub enum Content {
    /// Events in order of time.
    History(Box<History>),
    /// One moment.
    Still(Box<Still>),
}

/// What a path held.
#[derive(Debug, Default)]
pub struct Source {
    /// One history for each host, with the file it came from.
    pub histories: Vec<(PathBuf, History)>,
    /// States without a history, with the file each came from.
    pub stills: Vec<(PathBuf, Still)>,
    /// Traces in the same folder that were not read, because they are of other runs.
    pub other_runs: Vec<PathBuf>,
    /// Hosts of the same run that could not be read; where none could, that is an error.
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

/// Reads a trace file, a profile run or a whole log directory, and tells `progress` how far it has come.
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
        // Of what XLA writes when it is told to dump, the compiled programs tell what they ask for.
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

/// Most programs that are read of a folder: the largest jobs compile some thousands.
const MOST_PROGRAMS: usize = 1 << 14;

/// Reads the compiled programs of XLA's in a file, or in a folder of dumps, in the order in which they were compiled. Files of a
/// folder that are something else, or not written to their end yet, are passed over.
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
            // A file that is gone or cannot be read is as one that is not there yet.
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

/// Reads a file that is in memory. `name` stands for the path in errors.
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

/// Writes what is read of a PyTorch snapshot as JSON with the snapshot's own keys, to compare with Python's reading.
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
            "a checkpoint holds weights, not what held memory: torch.cuda.memory._dump_snapshot(file) writes that",
        ),
        Format::Pprof => match pprof::read(input).map_err(at)? {
            pprof::ProfileContent::Still(still) => return Ok(Content::Still(still)),
            pprof::ProfileContent::GoHeap => (
                "a heap profile of a Go program (pprof)",
                "read it with `go tool pprof`; JAX's profiles of device memory come from \
                 jax.profiler.save_device_memory_profile(file)",
            ),
            pprof::ProfileContent::Foreign => (
                "a pprof profile of something else than device memory",
                "JAX's profiles of device memory come from jax.profiler.save_device_memory_profile(file)",
            ),
        },
        Format::Hlo => match hlo::read_file(input).map_err(at)? {
            Some(still) => return Ok(Content::Still(Box::new(still))),
            None => (
                "a program of XLA's before it was compiled, without places in memory",
                "give the file of the same program whose name ends in after_optimizations.hlo.pb",
            ),
        },
        Format::MemoryDump => {
            let failures = memory_dump::read(input).map_err(at)?;
            return Ok(Content::Still(Box::new(failures.still("memory-dump"))));
        }
        Format::EventFile => (
            "a TensorBoard event file",
            "the trace lies beside it, in plugins/profile/<run>/<host>.xplane.pb: give the folder instead",
        ),
        Format::MemoryProfile => match memory_profile::read(input).map_err(at)? {
            Some(still) => return Ok(Content::Still(Box::new(still))),
            None => (
                "a memory profile of xprof's or TensorBoard's, but damaged",
                "copy the file again, or give the .xplane.pb file of the same folder",
            ),
        },
        Format::ChromeTrace => (
            "a trace in Chrome's event format (JSON), which tells of times, not of memory",
            "give the .xplane.pb file of the same folder, which has the memory events",
        ),
        Format::TorchTrace => (
            "a trace of PyTorch's profiler (JSON), which tells of times and sums, not of what holds the memory",
            "torch.cuda.memory._record_memory_history() at the start and torch.cuda.memory._dump_snapshot(file) at the end write a \
             snapshot that does",
        ),
        Format::Json => (
            "JSON, but nothing that tells of memory",
            "give a .xplane.pb file, a PyTorch snapshot, a memory profile of JAX's, a log or a recording",
        ),
        Format::PythonProfile => (
            "a profile of cProfile's, which tells of the time of Python functions, not of memory",
            "JAX's profiles of device memory come from jax.profiler.save_device_memory_profile(file)",
        ),
        Format::Text => {
            let failures = oom_log::read(input).map_err(at)?;
            if !failures.list.is_empty() {
                return Ok(Content::Still(Box::new(failures.still("oom-log"))));
            }
            ("text in which no allocation fails", "a log is read for its out-of-memory errors only")
        }
        Format::Unknown => {
            ("something else", "give the .xplane.pb file that the profiler wrote, or its folder")
        }
    };
    Err(SourceError::Foreign { path: path.to_owned(), what, hint })
}

/// Reads the failed allocations that a log or a dump tells of. Whatever is no other file that is known is a log.
pub fn read_failures(path: &Path, progress: &Arc<Progress>) -> Result<Failures, SourceError> {
    let at = |error| SourceError::Io { path: path.to_owned(), error };
    failures_of(&Input::open(path, progress).map_err(at)?, path)
}

/// Whether a file is a pickle, as PyTorch's snapshots are: these hold failures, but in a history.
#[must_use]
pub(crate) fn is_pickle(path: &Path) -> bool {
    let sniffed = Input::open(path, &Arc::default()).and_then(|input| sniff::sniff(&input));
    matches!(sniffed, Ok(Format::Pickle))
}

/// The same from memory. `name` stands for the path.
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
        Format::Hlo => "a program of XLA's",
        Format::EventFile => "a TensorBoard event file",
        Format::MemoryProfile => "a memory profile of xprof's or TensorBoard's",
        Format::ChromeTrace | Format::TorchTrace => "a trace in Chrome's event format",
        Format::PythonProfile => "a profile of cProfile's",
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

/// The logs and dumps that lie in a folder, without those below it.
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
