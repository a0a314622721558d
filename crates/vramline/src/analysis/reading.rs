//! Reads a path: its traces, files that show one moment, the recording around them, and failed allocations.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::moments::{self, HeldAtFailure, ProcessMoments};
use super::ranks::JobRanks;
use crate::advise::Finding;
use crate::event::{self, Framework, History};
use crate::failure::{Dialect, Failure, Failures, SizeRange};
use crate::postmortem::need::LeastNeed;
use crate::postmortem::outcome::{self, Ended, FailureOutcome, ProcessEnd};
use crate::postmortem::{Proof, history, traced, witness};
use crate::recording::kinds::RecordedMarkKind;
use crate::recording::manifest::Exit;
use crate::recording::reader::{self, Recorded, RecordedProcess};
use crate::recording::rows::{Inventory, TraceState};
use crate::recording::windows::RecordedWindow;
use crate::snapshot::Still;
use crate::source::{self, Content, Progress, Source, SourceError};
use crate::trace::recorded::TracedWindow;
use crate::trace::{Places, PoolRange, PoolTrace, Trace};
use crate::units::{Bytes, Nanos};
use crate::worker;

opaque! {
    /// What was read from a path: the result of [`read`], and the input of every question.
    #[derive(Debug)]
    pub struct Reading {
        /// One for each host with a trace; for a process of a recording, its first trace.
        hosts: Vec<Host>,
        /// Later traces of processes of a recording, on the clock of the first.
        later: Vec<Host>,
        /// What PyTorch's allocator held at single moments, in the order of processes and moments.
        moments: Vec<Host>,
        /// What JAX held at single moments.
        still_moments: Vec<StillMoment>,
        /// Profiles by the program's own profiler that no longer exist.
        missing: Vec<PathBuf>,
        /// One for each file that shows a single moment.
        stills: Vec<(PathBuf, Still)>,
        /// Folders of other runs, which were not read; newest first.
        other_runs: Vec<PathBuf>,
        /// Hosts that could not be read.
        unreadable: Vec<SourceError>,
        /// What a recording contains in addition to traces.
        recorded: Option<Recorded>,
        /// The failed allocations of a recording.
        failures: Option<OutOfMemory>,
        /// The ranks of a job, if the recording was read rank by rank.
        ranks: Option<JobRanks>,
    }
}

impl Reading {
    /// A reading of one file.
    #[cfg(feature = "internals")]
    #[must_use]
    pub fn of(path: PathBuf, content: Content) -> Reading {
        let mut reading = Reading::empty();
        match content {
            Content::History(history) => {
                reading.hosts.push(Host::of(path, *history));
            }
            Content::Still(still) => reading.stills.push((path, *still)),
        }
        reading
    }

    /// The pool with the highest peak, of those whose name contains `name`.
    pub(crate) fn highest_pool(&self, name: Option<&str>) -> Option<(&Host, &PoolTrace)> {
        let all = self.hosts.iter().flat_map(|host| host.trace.pools.iter().map(move |pool| (host, pool)));
        let is_asked =
            |(host, pool): &(&Host, &PoolTrace)| name.is_none_or(|name| host.pool_name(pool).contains(name));
        all.filter(is_asked).max_by_key(|(_, pool)| pool.peak().map(|peak| peak.bytes))
    }

    /// The failed allocations, with the traces that may show what led to them; `None` if none failed.
    #[must_use]
    pub fn into_failures(self) -> Option<OutOfMemory> {
        let mut failures = self.failures?;
        let is_theirs = |host: &Host| host.process.is_some() && failures.of_process.contains(&host.process);
        failures.hosts = self.hosts.into_iter().filter(is_theirs).collect();
        failures.files = self.recorded.map(|recorded| recorded.path).into_iter().collect();
        Some(failures)
    }

    /// All traces of a process of the recording, including the first.
    pub(super) fn windows_of(&self, process: usize) -> Vec<TracedWindow<'_>> {
        let all = self.hosts.iter().chain(&self.later).filter(|host| host.process == Some(process));
        all.filter_map(|host| Some(TracedWindow { trace: &host.trace, window: host.window.as_ref()? }))
            .collect()
    }

    /// The first trace of a process of the recording.
    pub(super) fn host_of(&self, process: usize) -> Option<(usize, &Host)> {
        self.hosts.iter().enumerate().find(|(_, host)| host.process == Some(process))
    }

    /// The process of the recording that a trace is of.
    pub(super) fn process_of(&self, host: &Host) -> Option<&RecordedProcess> {
        self.recorded.as_ref()?.processes.get(host.process?)
    }

    fn empty() -> Reading {
        Reading {
            hosts: Vec::new(),
            later: Vec::new(),
            moments: Vec::new(),
            still_moments: Vec::new(),
            missing: Vec::new(),
            stills: Vec::new(),
            other_runs: Vec::new(),
            unreadable: Vec::new(),
            recorded: None,
            failures: None,
            ranks: None,
        }
    }
}

/// A file of one moment of a process, without a history.
#[derive(Debug)]
pub struct StillMoment {
    /// The file.
    pub path: PathBuf,
    /// Its process in the recording.
    pub process: usize,
    /// Which moment it is.
    pub window: RecordedWindow,
    /// What it says.
    pub still: Still,
}

/// One host's trace.
#[derive(Debug)]
pub struct Host {
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub trace: Trace,
    /// Its process in the recording.
    pub process: Option<usize>,
    /// The framework's version, if a recording contains it.
    pub version: Option<String>,
    /// Which trace of that process it is, without its path.
    pub window: Option<RecordedWindow>,
}

impl Host {
    /// A trace that is not part of a recording.
    fn of(path: PathBuf, history: History) -> Host {
        Host { path, trace: Trace::new(history), process: None, version: None, window: None }
    }

    /// The framework's name for one of its pools.
    #[must_use]
    pub(crate) fn pool_name(&self, pool: &PoolTrace) -> &str {
        self.trace.history.pool(pool.id).map_or("", |pool| pool.name.as_str())
    }
}

/// Reads a trace, a snapshot, a profile, a log, a dump, a folder of these, or a recording.
///
/// The format is detected from the content, not from the name. In a log directory with several runs, the newest run is read, with all its hosts.
///
/// # Errors
///
/// Returns an error if the path does not exist or contains no known format. A damaged file is read as far as possible; the
/// warnings of each answer say what is missing.
pub fn read(path: &Path) -> Result<Reading, SourceError> {
    read_watched(path, &Arc::default())
}

/// Like [`read`], and reports to `progress` how far it has read, for programs that show a progress bar.
///
/// # Errors
///
/// As [`read`].
pub fn read_watched(path: &Path, progress: &Arc<Progress>) -> Result<Reading, SourceError> {
    if reader::is_recording(path) {
        return read_recording(path, progress);
    }
    let Source { histories, stills, other_runs, unreadable } = source::read(path, progress)?;
    let host = |(path, history)| Host::of(path, history);
    let hosts = std::thread::scope(|threads| {
        let others: Vec<_> = histories.into_iter().map(|found| threads.spawn(move || host(found))).collect();
        others.into_iter().map(worker::joined).collect()
    });
    Ok(Reading { hosts, stills, other_runs, unreadable, ..Reading::empty() })
}

/// What a recording contains in addition to traces.
#[cfg(feature = "recording")]
fn recorded(path: &Path) -> Result<Recorded, SourceError> {
    reader::read(path).map_err(|error| SourceError::Recording { text: error.to_string(), hint: error.hint() })
}

#[cfg(not(feature = "recording"))]
fn recorded(path: &Path) -> Result<Recorded, SourceError> {
    Err(SourceError::NoRecordings { path: path.to_owned() })
}

/// A recording, and the traces of its processes.
fn read_recording(path: &Path, progress: &Arc<Progress>) -> Result<Reading, SourceError> {
    Ok(reading_of(recorded(path)?, progress))
}

/// What was read of a recording, with the traces of the same processes.
pub(super) fn reading_of(recorded: Recorded, progress: &Arc<Progress>) -> Reading {
    let mut reading = Reading::empty();
    let mut found = OutOfMemory::default();
    for (number, process) in recorded.processes.iter().enumerate() {
        let TracesOfProcess { first, later, moments, stills, unreadable, missing } =
            traces_of(&recorded, number, progress);
        let told = told_by(process, &moments, progress);
        found.add(&recorded, number, told, &Shown { first: &first, later: &later, moments: &moments });
        reading.hosts.extend(first);
        reading.later.extend(later);
        reading.moments.extend(moments);
        reading.still_moments.extend(stills);
        reading.unreadable.extend(unreadable);
        reading.missing.extend(missing);
    }
    reading.failures = Some(found).filter(|found| !found.failures.list.is_empty());
    reading.recorded = Some(recorded);
    reading
}

/// The traces of a process of a recording.
#[derive(Default)]
struct TracesOfProcess {
    /// The trace of its first window.
    first: Vec<Host>,
    /// The traces of later windows.
    later: Vec<Host>,
    /// What PyTorch's allocator held at single moments.
    moments: Vec<Host>,
    /// What JAX held at single moments.
    stills: Vec<StillMoment>,
    /// Those that cannot be read.
    unreadable: Vec<SourceError>,
    /// Profiles by the program's own profiler that no longer exist.
    missing: Vec<PathBuf>,
}

/// The maximum number of profiles by the program's own profiler that are read.
const MOST_OF_PROGRAM: usize = 8;

fn traces_of(recorded: &Recorded, number: usize, progress: &Arc<Progress>) -> TracesOfProcess {
    let mut traces = TracesOfProcess::default();
    let Some(process) = recorded.processes.get(number) else { return traces };
    let windows = process.windows();
    let mut of_program = 0;
    let mut ranges = Vec::new();
    let mut moments = Vec::new();
    for (at, window) in windows.iter().enumerate() {
        let Some(place) = &window.place else { continue };
        if window.is_moment && moments.len() >= MOST_MOMENTS {
            continue;
        }
        if window.is_of_program() {
            // Two profiles within a second are written to the same place; the second is what lies there.
            let is_lost = windows.iter().skip(at + 1).any(|later| later.place.as_ref() == Some(place));
            if window.state != Some(TraceState::Written) || is_lost || of_program >= MOST_OF_PROGRAM {
                continue;
            }
            of_program += 1;
            if !place.is_dir() {
                traces.missing.push(place.clone());
                continue;
            }
        }
        if window.is_moment {
            for (path, content) in source::read_each(place, progress, &mut traces.unreadable) {
                let own = RecordedWindow { place: None, ..window.clone() };
                match content {
                    Content::History(history) => moments.push((window, path, *history)),
                    Content::Still(still) => {
                        traces.stills.push(StillMoment { path, process: number, window: own, still: *still });
                    }
                }
            }
            continue;
        }
        let read = match source::read(place, progress) {
            Ok(read) => read,
            // A window that was opened and never written leaves its folder; the marks say why.
            Err(SourceError::NoTrace { .. }) => continue,
            // So does a recording that was copied without its later traces.
            Err(SourceError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                traces.unreadable.push(error);
                continue;
            }
        };
        traces.unreadable.extend(read.unreadable);
        let host = |(path, history)| host_of_window(process, number, window, path, history, &ranges);
        let hosts: Vec<Host> = read.histories.into_iter().map(host).collect();
        ranges.extend(hosts.iter().flat_map(|host| host.trace.ranges()));
        if traces.first.is_empty() {
            traces.first = hosts;
        } else {
            traces.later.extend(hosts);
        }
    }
    if let Some(first) = traces.first.first() {
        let zeros = (first.trace.history.monotonic_zero, first.trace.history.wall_clock_zero);
        traces.later.iter_mut().for_each(|host| set_zeros(&mut host.trace.history, zeros));
    }
    // What places hold is asked only where there is a moment to explain.
    let places = traces.first.first().filter(|_| !moments.is_empty()).map(|host| Places::of(&host.trace));
    let moment =
        |(window, path, history)| host_of_moment(process, number, window, path, history, places.as_ref());
    traces.moments = moments.into_iter().map(moment).collect();
    traces
}

/// The maximum number of moments of a process that are read. A recorder writes fewer.
const MOST_MOMENTS: usize = 64;

fn host_of_moment(
    process: &RecordedProcess,
    number: usize,
    window: &RecordedWindow,
    path: PathBuf,
    mut history: History,
    places: Option<&Places>,
) -> Host {
    set_clock(&mut history, window);
    let listed = inventories_of(process, window);
    let version = version_of(process, &history);
    let trace = Trace::new(history).with_moment(process, &listed, places);
    let window = RecordedWindow { place: None, ..window.clone() };
    Host { path, trace, process: Some(number), version, window: Some(window) }
}

/// Puts a trace on the clock of another of the same process.
fn set_zeros(history: &mut History, (monotonic, wall): (Option<Nanos>, Option<Nanos>)) {
    let (Some(first), Some(own)) = (monotonic, history.monotonic_zero) else { return };
    history.origin = Nanos(history.origin.0.saturating_add(own.0.saturating_sub(first.0)));
    (history.monotonic_zero, history.wall_clock_zero) = (monotonic, wall);
}

fn host_of_window(
    process: &RecordedProcess,
    number: usize,
    window: &RecordedWindow,
    path: PathBuf,
    mut history: History,
    earlier: &[PoolRange],
) -> Host {
    set_clock(&mut history, window);
    let version = version_of(process, &history);
    let listed = inventories_of(process, window);
    let mut trace = Trace::new(history).with_announced(process, window).with_owners(process, &listed);
    if window.number > 1 {
        trace = trace.with_carried(process, window.stopped, earlier);
    }
    let window = RecordedWindow { place: None, ..window.clone() };
    Host { path, trace, process: Some(number), version, window: Some(window) }
}

/// Sets the zero points of a trace's times. Older profilers do not say when they began; the process noted it within microseconds.
fn set_clock(history: &mut History, window: &RecordedWindow) {
    if let Some(began) = window.begun {
        let zero = history.wall_clock_zero.get_or_insert(Nanos(began.wall)).0;
        let since = began.wall.saturating_sub(zero);
        history.monotonic_zero = Some(Nanos(began.monotonic.saturating_sub(since)));
    }
}

/// The version of the framework that wrote a trace.
fn version_of(process: &RecordedProcess, history: &History) -> Option<String> {
    let name = match history.framework? {
        Framework::PyTorch => "torch",
        other => other.word(),
    };
    process.facts.frameworks.get(name).cloned()
}

/// The inventories that name the blocks of a window: those taken in it; for the first window, otherwise the next one.
fn inventories_of<'a>(process: &'a RecordedProcess, window: &RecordedWindow) -> Vec<&'a Inventory> {
    let stopped = window.stopped.map_or(i64::MAX, |stopped| stopped.monotonic);
    let begun = window.begun.map_or(i64::MIN, |begun| begun.monotonic);
    let is_within = |taken: &&Inventory| (begun..=stopped).contains(&taken.time.monotonic);
    let within: Vec<&Inventory> = process.inventories.iter().filter(is_within).collect();
    if !within.is_empty() || window.number > 1 {
        return within;
    }
    let after = process.inventories.iter().find(|taken| taken.time.monotonic > stopped);
    after.or(process.inventories.last()).into_iter().collect()
}

opaque! {
    /// The failed allocations in some paths: the result of [`read_failures`](crate::read_failures).
    #[derive(Debug, Default)]
    pub struct OutOfMemory {
        /// The failures; the text and the dump of one failure are joined.
        failures: Failures,
        /// For each of them, the evidence that its limit is a setting.
        proofs: Vec<Option<Proof>>,
        /// What was read.
        files: Vec<PathBuf>,
        /// For each of them, its process in [`OutOfMemory::hosts`].
        of_process: Vec<Option<usize>>,
        /// For each of them, the outcome of the request.
        outcomes: Vec<FailureOutcome>,
        /// For each of them, a lower bound of what its program needs.
        needs: Vec<Option<LeastNeed>>,
        /// For each of them, who held the memory then.
        held: Vec<Option<HeldAtFailure>>,
        /// Who held the memory of processes that a signal ended, when that was last known.
        killed: Vec<HeldAtFailure>,
        /// Findings about growth before one of them.
        growth: Vec<Finding>,
        /// Traces that may show what led to them.
        hosts: Vec<Host>,
    }
}

/// Whether a path is a recording.
pub(super) fn is_recording(path: &Path) -> bool {
    reader::is_recording(path)
}

/// Reads the failed allocations in some paths, without what led to them.
pub(super) fn read_told(
    paths: &[PathBuf],
    limit: Option<Bytes>,
    progress: &Arc<Progress>,
) -> Result<OutOfMemory, SourceError> {
    let mut all = OutOfMemory::default();
    let mut loose = Failures::default();
    for path in paths {
        all.files.push(path.clone());
        if reader::is_recording(path) {
            let recorded = recorded(path)?;
            let mut found = OutOfMemory::default();
            for (number, process) in recorded.processes.iter().enumerate() {
                // A trace is read only where there is something to explain.
                let has_moments = !process.moments.is_empty();
                let has_died = end_of(&recorded, process) == ProcessEnd::Died;
                let is_quiet = !has_moments && !has_died && told_by(process, &[], progress).list.is_empty();
                let traces = match is_quiet {
                    true => TracesOfProcess::default(),
                    false => traces_of(&recorded, number, progress),
                };
                let told = told_by(process, &traces.moments, progress);
                let shown = Shown { first: &traces.first, later: &traces.later, moments: &traces.moments };
                found.add(&recorded, number, told, &shown);
                found.hosts.extend(traces.first);
            }
            all.append(found);
        } else if source::is_pickle(path) {
            all.append(snapshot_failures(path, progress)?);
        } else if path.is_dir() {
            for file in source::logs_in(path)? {
                loose.append(source::read_failures(&file, progress)?);
            }
        } else {
            loose.append(source::read_failures(path, progress)?);
        }
    }
    witness::join(&mut loose);
    all.append(OutOfMemory::of(loose, None));
    if let Some(limit) = limit {
        all.set_limit(limit);
    }
    Ok(all)
}

impl OutOfMemory {
    fn append(&mut self, other: OutOfMemory) {
        // Processes are counted on, so that those of two recordings are not taken for one.
        let taken = self
            .of_process
            .iter()
            .flatten()
            .chain(self.hosts.iter().filter_map(|host| host.process.as_ref()));
        let first = taken.max().map_or(0, |last| last + 1);
        let moved = |process: Option<usize>| process.map(|process| process + first);
        self.failures.append(other.failures);
        self.proofs.extend(other.proofs);
        self.of_process.extend(other.of_process.into_iter().map(moved));
        self.outcomes.extend(other.outcomes);
        self.needs.extend(other.needs);
        self.growth.extend(other.growth);
        self.held.extend(other.held);
        self.killed.extend(other.killed);
        let hosts = other.hosts.into_iter();
        self.hosts.extend(hosts.map(|host| Host { process: moved(host.process), ..host }));
    }

    /// Adds failures of one process, or of an unknown one.
    pub(super) fn of(failures: Failures, process: Option<usize>) -> OutOfMemory {
        let count = failures.list.len();
        let (proofs, of_process) = (vec![None; count], vec![process; count]);
        let (outcomes, needs) = (vec![FailureOutcome::Unknown; count], vec![None; count]);
        let held = vec![None; count];
        OutOfMemory { failures, proofs, of_process, outcomes, needs, held, ..OutOfMemory::default() }
    }

    /// A lower bound of what the program of a failure needs, by its index.
    pub(super) fn need(&self, at: usize) -> Option<&LeastNeed> {
        self.needs.get(at).and_then(Option::as_ref)
    }

    /// The outcome of each failure, by its index.
    pub(super) fn outcome(&self, at: usize) -> FailureOutcome {
        self.outcomes.get(at).copied().unwrap_or_default()
    }

    /// The failure that ended a process, or may have ended it.
    pub(crate) fn that_ended(&self, process: usize) -> Option<(usize, &Failure)> {
        let failures = self.failures.list.iter().enumerate();
        let mine = failures.filter(|(at, _)| self.of_process.get(*at).copied().flatten() == Some(process));
        mine.filter(|(at, _)| !self.outcome(*at).is_survived()).min_by_key(|(at, _)| self.outcome(*at))
    }

    /// Adds the failures of a process of a recording, with what its traces show.
    fn add(&mut self, recorded: &Recorded, number: usize, told: Failures, shown: &Shown<'_>) {
        let Some(process) = recorded.processes.get(number) else { return };
        let mut failures = told;
        let set_limit = |failure: &mut Failure| {
            let limit = failure.allocator.as_deref().and_then(|name| limit_of(recorded, process, name));
            witness::set_limit(failure, limit.map(SizeRange::exact))
        };
        // What was free follows from the limit; the trace is asked with that.
        failures.list.iter_mut().for_each(|failure| {
            set_limit(failure);
        });
        // The newest trace knows the chunks of a dump best.
        let traces: Vec<&Trace> =
            shown.first.iter().chain(shown.later).rev().map(|host| &host.trace).collect();
        let served = traced::explain(&traces, &mut failures);
        for failure in &mut failures.list {
            let has_limit = set_limit(failure);
            self.proofs.push(proof_of(recorded).filter(|_| has_limit));
            self.needs.push(need_of(process, failure));
        }
        let is_last_word = |failure: &Failure| {
            failure.witnesses.iter().any(|witness| Some(&witness.path) == process.exception.as_ref())
        };
        let ended: Vec<Ended<'_>> = failures
            .list
            .iter()
            .zip(served)
            .map(|(failure, is_served)| Ended { failure, is_last_word: is_last_word(failure), is_served })
            .collect();
        self.outcomes.extend(outcome::outcomes(&ended, end_of(recorded, process)));
        self.of_process.extend(std::iter::repeat_n(Some(number), failures.list.len()));
        let story = ProcessMoments::of(recorded, process, shown);
        self.held.extend(failures.list.iter().map(|failure| story.at_failure(failure)));
        self.killed.extend(story.when_killed());
        self.failures.append(failures);
    }

    /// Uses the user's limit for every pool, unless the input contradicts it.
    fn set_limit(&mut self, limit: Bytes) {
        for (failure, proof) in self.failures.list.iter_mut().zip(&mut self.proofs) {
            if witness::set_limit(failure, Some(SizeRange::exact(limit))) {
                *proof = Some(Proof { limit: Some(limit), by: "--limit".to_owned() });
            } else if let Some(own) = failure.limit {
                self.failures.warnings.add(
                    "another-limit",
                    format!("--limit is {} bytes, but the pool's own limit is {} bytes", limit.0, own.low.0),
                    "omit --limit, or pass the pool's own limit",
                );
            }
        }
    }
}

/// A lower bound of what a PyTorch program needs on the device of a failure.
fn need_of(process: &RecordedProcess, failure: &Failure) -> Option<LeastNeed> {
    let is_torch = matches!(failure.dialect, Dialect::PyTorch | Dialect::TorchAsynchronous);
    let listed = process.inventories.last().filter(|_| is_torch)?;
    LeastNeed::of(&listed.variables, failure.device.as_deref())
}

/// The failures in the history of a snapshot, and the history.
fn snapshot_failures(path: &Path, progress: &Arc<Progress>) -> Result<OutOfMemory, SourceError> {
    let mut all = OutOfMemory::default();
    for (path, history) in source::read(path, progress)?.histories {
        let host = Host { process: Some(0), ..Host::of(path, history) };
        let mut found = OutOfMemory::of(history::failures(&host.trace, &host.path), Some(0));
        found.hosts.push(host);
        all.append(found);
    }
    Ok(all)
}

/// Failed allocations of a process of a recording: its error messages, TensorFlow's dumps and PyTorch's snapshots, joined.
fn told_by(process: &RecordedProcess, moments: &[Host], progress: &Arc<Progress>) -> Failures {
    let mut failures = Failures::default();
    let read = |path: &Path, into: &mut Failures| match source::read_failures(path, progress) {
        Ok(found) => into.append(found),
        Err(error) => into.warnings.add("unreadable", error.to_string(), error.hint()),
    };
    process.exception.iter().for_each(|path| read(path, &mut failures));
    let of_exception = failures.list.len();
    for (number, path) in process.raised.iter().enumerate() {
        let mut raised = Failures::default();
        read(path, &mut raised);
        let micros = path.extension().and_then(|end| end.to_str()?.parse().ok());
        // The error that ended the process was raised too, last of all: it is told already, but for its moment.
        let told = if number + 1 == process.raised.len() { of_exception } else { 0 };
        raised.list.retain_mut(|failure| {
            failure.witnesses.iter_mut().for_each(|witness| witness.micros = micros);
            let known = failures.list.iter_mut().take(told).find(|known| is_same_request(known, failure));
            let is_new = known.is_none();
            known.into_iter().flat_map(|known| &mut known.witnesses).for_each(|known| known.micros = micros);
            is_new
        });
        failures.append(raised);
    }
    process.dumps.iter().for_each(|path| read(path, &mut failures));
    witness::join(&mut failures);
    moments::add_failures(&mut failures, moments);
    failures
}

/// What the traces and snapshots of a process show.
pub(super) struct Shown<'a> {
    pub(super) first: &'a [Host],
    pub(super) later: &'a [Host],
    pub(super) moments: &'a [Host],
}

/// Whether two texts are about the same request.
fn is_same_request(one: &Failure, other: &Failure) -> bool {
    (&one.allocator, one.requested, &one.shape, &one.device)
        == (&other.allocator, other.requested, &other.shape, &other.device)
}

/// How a process of a recording ended.
fn end_of(recorded: &Recorded, process: &RecordedProcess) -> ProcessEnd {
    let has_said_why = |process: &RecordedProcess| process.exception.is_some();
    let has_ended = process.marks.iter().any(|mark| mark.kind == RecordedMarkKind::End);
    let manifest = recorded.run_of(process).manifest;
    match manifest.and_then(|manifest| manifest.exit) {
        _ if has_said_why(process) => ProcessEnd::Exception,
        Some(Exit::Code(0)) => ProcessEnd::Done,
        // A program that catches everything and then gives up has ended in order.
        Some(_) if has_ended || recorded.processes.iter().any(has_said_why) => ProcessEnd::Unknown,
        Some(_) => ProcessEnd::Died,
        // A program that records itself has no parent that tells.
        None if has_ended && manifest.is_none() => ProcessEnd::Done,
        None => ProcessEnd::Unknown,
    }
}

/// TensorFlow's limit for its pool on the CPU.
const LIMIT_OF_CPU: &str = "TF_CPU_BFC_MEM_LIMIT_IN_MB";

/// The limit of a pool, as reported by the framework during the job, or as it was set.
fn limit_of(recorded: &Recorded, process: &RecordedProcess, allocator: &str) -> Option<Bytes> {
    let device = event::device_of(allocator);
    let counters = process.samples.iter().rev().filter_map(|sample| sample.counters.as_ref());
    let mut limits =
        counters.filter(|counters| counters.device == device).filter_map(|counters| counters.limit);
    if let Some(limit) = limits.next() {
        return u64::try_from(limit).ok().map(Bytes);
    }
    let told =
        recorded.run_of(process).manifest?.environment.get(LIMIT_OF_CPU).filter(|_| device == "CPU:0")?;
    told.parse::<u64>().ok()?.checked_mul(1 << 20).map(Bytes)
}

/// The evidence that a recorded job ran under a limit that was set.
fn proof_of(recorded: &Recorded) -> Option<Proof> {
    let manifest = recorded.manifest.as_ref()?;
    if let Some(limit) = manifest.settings.limit_bytes {
        return Some(Proof { limit: Some(limit), by: "vramline run --limit".to_owned() });
    }
    manifest.environment.get(LIMIT_OF_CPU).map(|_| Proof { limit: None, by: LIMIT_OF_CPU.to_owned() })
}
