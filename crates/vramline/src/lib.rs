//! Vramline's core: from the files that frameworks write to what held the memory.
//!
//! The whole pipe:
//!
//! ```text
//! source/  bytes     -> History     what happened, as the file tells it
//! trace/   History   -> Trace       allocations with lifetimes, steps, roles
//!          Trace     -> Snapshot    what a pool held at one moment
//! allocator/         the frameworks' allocators, simulated
//! replay/  Trace     -> Replay      the trace through a simulator: exactness, fragmentation, what-if
//! view/    Trace     -> Report      plain data for terminals and JSON
//!
//! source/      bytes    -> Failures    allocations that failed, as logs and dumps tell them
//! postmortem/  Failure  -> Conclusion  why
//! view/                 -> OomReport
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

pub mod advise;
pub mod allocator;
pub mod dtype;
pub mod event;
pub mod executable;
pub mod failure;
pub mod ledger;
pub mod names;
mod pages;
pub mod postmortem;
pub mod recording;
pub mod replay;
pub mod snapshot;
pub mod source;
pub mod stack;
pub mod trace;
pub mod units;
pub mod view;
pub mod warning;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use failure::{Failures, Told};
use postmortem::{Proof, witness};
use recording::reader::{self, Recorded, RecordedProcess};
use snapshot::Still;
use source::{Content, Progress, Source, SourceError};
use trace::Trace;
use units::{Bytes, Nanos};

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
    /// The allocations that failed in it, where it is a recording.
    pub failures: Option<OutOfMemory>,
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
            failures: None,
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
    Ok(Reading { hosts, stills, other_runs, unreadable, recorded: None, failures: None })
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
                    if let Some(began) = process.trace_began() {
                        let zero = history.wall_clock_zero.get_or_insert(Nanos(began.wall)).0;
                        let since = began.wall.saturating_sub(zero);
                        history.monotonic_zero = Some(Nanos(began.monotonic.saturating_sub(since)));
                    }
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
    reading.failures = Some(failures_of(&recorded, progress)).filter(|found| !found.failures.list.is_empty());
    reading.recorded = Some(recorded);
    Ok(reading)
}

/// The failed allocations that paths tell of.
#[derive(Debug, Default)]
pub struct OutOfMemory {
    /// The failures, text and dump of each joined.
    pub failures: Failures,
    /// For each of them, what proves that its limit is the user's own.
    pub proofs: Vec<Option<Proof>>,
    /// What was read.
    pub files: Vec<PathBuf>,
}

/// Reads the failed allocations of logs, dumps and recordings. `limit` is what the user says he set.
pub fn read_failures(
    paths: &[PathBuf],
    limit: Option<Bytes>,
    progress: &Arc<Progress>,
) -> Result<OutOfMemory, SourceError> {
    let mut all = OutOfMemory::default();
    let mut loose = Failures::default();
    for path in paths {
        all.files.push(path.clone());
        if reader::is_recording(path) {
            let recorded = reader::read(path)
                .map_err(|error| SourceError::Recording { text: error.to_string(), hint: error.hint() })?;
            all.append(failures_of(&recorded, progress));
        } else if path.is_dir() {
            for file in source::logs_in(path)? {
                loose.append(source::read_failures(&file, progress)?);
            }
        } else {
            loose.append(source::read_failures(path, progress)?);
        }
    }
    witness::join(&mut loose);
    let proofs = vec![None; loose.list.len()];
    all.append(OutOfMemory { failures: loose, proofs, files: Vec::new() });
    if let Some(limit) = limit {
        all.set_limit(limit);
    }
    Ok(all)
}

impl OutOfMemory {
    fn append(&mut self, other: OutOfMemory) {
        self.failures.append(other.failures);
        self.proofs.extend(other.proofs);
    }

    /// Takes the user's word for the limit of every pool, where nothing contradicts it.
    fn set_limit(&mut self, limit: Bytes) {
        for (failure, proof) in self.failures.list.iter_mut().zip(&mut self.proofs) {
            if witness::set_limit(failure, Some(Told::exact(limit))) {
                *proof = Some(Proof { limit: Some(limit), by: "--limit".to_owned() });
            } else if let Some(own) = failure.limit {
                self.failures.warnings.add(
                    "another-limit",
                    format!("--limit is {} bytes, the pool's own limit is {}", limit.0, own.low.0),
                    "leave --limit out, or give the pool's own",
                );
            }
        }
    }
}

/// The failures of a recording: of each process its exception and TensorFlow's dumps.
fn failures_of(recorded: &Recorded, progress: &Arc<Progress>) -> OutOfMemory {
    let mut all = OutOfMemory::default();
    for process in &recorded.processes {
        let mut failures = Failures::default();
        for path in process.exception.iter().chain(&process.dumps) {
            match source::read_failures(path, progress) {
                Ok(found) => failures.append(found),
                Err(error) => failures.warnings.add("unreadable", error.to_string(), error.hint()),
            }
        }
        witness::join(&mut failures);
        let mut proofs = Vec::new();
        for failure in &mut failures.list {
            let limit = failure.allocator.as_deref().and_then(|name| limit_of(recorded, process, name));
            let has_limit = witness::set_limit(failure, limit.map(Told::exact));
            proofs.push(proof_of(recorded).filter(|_| has_limit));
        }
        all.append(OutOfMemory { failures, proofs, files: Vec::new() });
    }
    all
}

/// TensorFlow's limit for its pool on the CPU.
const LIMIT_OF_CPU: &str = "TF_CPU_BFC_MEM_LIMIT_IN_MB";

/// The limit of a pool, as the framework told it while the job ran, or as it was set.
fn limit_of(recorded: &Recorded, process: &RecordedProcess, allocator: &str) -> Option<Bytes> {
    let device = event::device_of(allocator);
    let counters = process.samples.iter().rev().filter_map(|sample| sample.counters.as_ref());
    let mut limits =
        counters.filter(|counters| counters.device == device).filter_map(|counters| counters.limit);
    if let Some(limit) = limits.next() {
        return u64::try_from(limit).ok().map(Bytes);
    }
    let told = recorded.manifest.as_ref()?.environment.get(LIMIT_OF_CPU).filter(|_| device == "CPU:0")?;
    told.parse::<u64>().ok()?.checked_mul(1 << 20).map(Bytes)
}

/// What proves that a recorded job ran under a limit of the user's.
fn proof_of(recorded: &Recorded) -> Option<Proof> {
    let manifest = recorded.manifest.as_ref()?;
    if let Some(limit) = manifest.settings.limit_bytes {
        return Some(Proof { limit: Some(limit), by: "vramline run --limit".to_owned() });
    }
    manifest.environment.get(LIMIT_OF_CPU).map(|_| Proof { limit: None, by: LIMIT_OF_CPU.to_owned() })
}
