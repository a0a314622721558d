//! Vramline's core: from the files that frameworks write to what held the memory.
//!
//! The whole pipe:
//!
//! ```text
//! source/  bytes     -> History     what happened, as the file tells it
//! trace/   History   -> Trace       allocations with lifetimes, steps, roles
//!          Trace     -> Snapshot    what a pool held at one moment
//! view/    Trace     -> Report      plain data for terminals and JSON
//! ```
//!
//! Imports point up this list only, and a test enforces it. The core neither prints nor keeps global state, and touches
//! files in `source/` and `recording/` only.
//!
//! ```
//! use vramline::view::report::{Wanted, report};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
//! let reading = vramline::read(path.as_ref())?;
//! let report = report(&reading, &Wanted::default());
//! let pool = &report.pools[0];
//! assert_eq!(pool.name, "bfc_cpu_allocator_for_gpu");
//! assert_eq!(pool.peak_bytes.map(|bytes| bytes.0), Some(72_718_080));
//! # Ok::<(), vramline::source::SourceError>(())
//! ```

pub mod dtype;
pub mod event;
pub mod executable;
pub mod names;
mod pages;
pub mod recording;
pub mod snapshot;
pub mod source;
pub mod stack;
pub mod trace;
pub mod units;
pub mod view;
pub mod warning;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use recording::reader::{self, Recorded};
use snapshot::Still;
use source::{Content, Progress, Source, SourceError};
use trace::Trace;

/// A path, read and understood.
#[derive(Debug)]
pub struct Reading {
    /// One for each host that the path holds a trace of.
    pub hosts: Vec<Host>,
    /// One for each file that knows a single moment.
    pub stills: Vec<(PathBuf, Still)>,
    /// Folders of other runs, which were not read; newest first.
    pub other_runs: Vec<PathBuf>,
    /// Hosts that could not be read.
    pub unreadable: Vec<SourceError>,
    /// What the path held besides traces, where it is a recording.
    pub recorded: Option<Recorded>,
}

impl Reading {
    /// A reading of one file.
    #[must_use]
    pub fn of(path: PathBuf, content: Content) -> Reading {
        let mut reading = Reading::empty();
        match content {
            Content::History(history) => {
                reading.hosts.push(Host { path, trace: Trace::new(*history), process: None });
            }
            Content::Still(still) => reading.stills.push((path, *still)),
        }
        reading
    }

    fn empty() -> Reading {
        Reading {
            hosts: Vec::new(),
            stills: Vec::new(),
            other_runs: Vec::new(),
            unreadable: Vec::new(),
            recorded: None,
        }
    }
}

/// One host's trace.
#[derive(Debug)]
pub struct Host {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub trace: Trace,
    /// The process of the recording that it is of.
    pub process: Option<usize>,
}

/// Reads a recording, a trace file, a profile run or a whole log directory; hosts side by side.
pub fn read(path: &Path) -> Result<Reading, SourceError> {
    read_watched(path, &Arc::default())
}

/// Like [`read`], and tells `progress` how far it has come.
pub fn read_watched(path: &Path, progress: &Arc<Progress>) -> Result<Reading, SourceError> {
    if reader::is_recording(path) {
        return read_recording(path, progress);
    }
    let Source { histories, stills, other_runs, unreadable } = source::read(path, progress)?;
    let host = |(path, history)| Host { path, trace: Trace::new(history), process: None };
    let hosts = std::thread::scope(|threads| {
        let others: Vec<_> = histories.into_iter().map(|found| threads.spawn(move || host(found))).collect();
        others.into_iter().filter_map(|host| host.join().ok()).collect()
    });
    Ok(Reading { hosts, stills, other_runs, unreadable, recorded: None })
}

/// A recording, and the traces of its processes.
fn read_recording(path: &Path, progress: &Arc<Progress>) -> Result<Reading, SourceError> {
    let recorded = reader::read(path)
        .map_err(|error| SourceError::Recording { text: error.to_string(), hint: error.hint() })?;
    let mut reading = Reading::empty();
    for (number, process) in recorded.processes.iter().enumerate() {
        let Some(folder) = &process.trace else { continue };
        match source::read(folder, progress) {
            Ok(Source { histories, unreadable, .. }) => {
                reading.unreadable.extend(unreadable);
                reading.hosts.extend(histories.into_iter().map(|(path, mut history)| {
                    // Older profilers do not say when they began; the process noted it within microseconds.
                    history.wall_clock_zero = history.wall_clock_zero.or_else(|| process.trace_began());
                    let mut trace = Trace::new(history);
                    if let Some(inventory) = process.inventories.last() {
                        trace = trace.with_inventory(inventory);
                    }
                    Host { path, trace, process: Some(number) }
                }));
            }
            // A window that was opened and never written leaves its folder; the marks say why.
            Err(SourceError::NoTrace { .. }) => {}
            Err(error) => reading.unreadable.push(error),
        }
    }
    reading.recorded = Some(recorded);
    Ok(reading)
}
