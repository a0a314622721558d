//! The report: what each pool held at its peak, memory by step, the ledger of the device, and findings.

use rustc_hash::FxHashSet;

use super::accounts::{Accounts, DeviceHighest, DeviceLedger};
use super::caching::CachingAnalysis;
use super::headline::ReportAnswer;
use super::held::{GroupBy, HeldMoment, HeldRows, LongHeldBlock, NameTables};
use super::limit::{self, LimitSetter};
use super::oom;
use super::patterns::Patterns;
use super::pool_warnings;
use super::process::{
    JobFacts, MarkFigures, PoolEpoch, PoolPhase, PoolStep, ProcessStory, RoleVariables, traced_steps,
};
use super::ranks::RanksAnalysis;
use super::reading::{Host, Reading};
use super::replayed::{MAX_REPLAYED_EVENTS, Replayed};
use super::windows::{self, PeakPlace, WindowFacts};
use crate::advise::Finding;
use crate::event::{self, Framework, Hardware, History};
use crate::ledger::Line;
use crate::ledger::moments::HighestFigures;
use crate::recording::reader::Recorded;
use crate::recording::rows::PINNED;
use crate::recording::windows::RecordedWindow;
use crate::snapshot::Still;
use crate::trace::recorded::RecordedStep;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos, plural};
use crate::warning::Warning;

/// The options of [`report`](crate::report()).
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// How to group rows.
    pub by: GroupBy,
    /// Maximum number of rows per pool; the others are summed up.
    pub top: Option<usize>,
    /// Another moment on the source's clock to show.
    pub at: Option<Nanos>,
    /// Only pools whose name contains this.
    pub pool: Option<String>,
}

impl ReportOptions {
    pub(super) fn is_asked(&self, pool: &str) -> bool {
        self.pool.as_ref().is_none_or(|part| pool.contains(part.as_str()))
    }
}

/// The result of a report.
#[derive(Clone, Debug)]
pub struct ReportAnalysis {
    /// The answer.
    pub answer: ReportAnswer,
    /// What was read.
    pub source: SourceFacts,
    /// The pools; in a recording, highest peak first.
    pub pools: Vec<PoolAnalysis>,
    /// Steps, each with the figures of one pool.
    pub steps: Vec<PoolStep>,
    /// The job, if the source is a recording.
    pub job: Option<JobFacts>,
    /// Epochs.
    pub epochs: Vec<PoolEpoch>,
    /// Steps by phase.
    pub phases: Vec<PoolPhase>,
    /// Other marks.
    pub marks: Vec<MarkFigures>,
    /// Variables by role.
    pub inventory: Vec<RoleVariables>,
    /// One for each device of a recording, at the peak of its largest pool.
    pub ledgers: Vec<DeviceLedger>,
    /// One for each device whose driver calls were recorded, at the end of the job.
    pub ledgers_at_end: Vec<DeviceLedger>,
    /// The highest figures of each device of a recording over the run.
    pub highest: Vec<DeviceHighest>,
    /// The traces of a recording.
    pub windows: Vec<WindowFacts>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The ranks of the job, if there are several; all other fields are about one of them, or about those of one host.
    pub ranks: Option<RanksAnalysis>,
    /// Notes on the source.
    pub warnings: Vec<Warning>,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// The word for its format.
    pub format: &'static str,
    /// The framework that wrote it.
    pub framework: Option<Framework>,
    /// The files.
    pub files: Vec<String>,
    /// The zero point of its times.
    pub clock: SourceClock,
    /// Unix time of that zero point.
    pub wall_clock_zero: Option<Nanos>,
}

impl SourceFacts {
    /// The framework as people write it.
    #[must_use]
    pub(super) fn program(&self) -> &'static str {
        self.framework.map_or("The program", Framework::title)
    }
}

/// The zero point of the times of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceClock {
    /// The first entry of a snapshot's history.
    FirstEntry,
    /// The beginning of the profile.
    Profile,
    /// None: the file shows one moment.
    OneMoment,
    /// The first mark of each process.
    FirstMark,
}

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolAnalysis {
    /// The framework's name for the allocator; the device if only counters are known.
    pub name: String,
    /// Its device.
    pub device: String,
    /// What the source reports about that device.
    pub hardware: Option<Hardware>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// The process' rank in a distributed job.
    pub rank: Option<u64>,
    /// Whether the trace begins before the pool's first allocation.
    pub from_start: Option<bool>,
    /// The limit of the pool.
    pub limit: Option<Bytes>,
    /// The origin of the limit.
    pub limit_by: Option<LimitSetter>,
    /// Number of allocation events.
    pub allocs: Option<u64>,
    /// Number of free events.
    pub frees: Option<u64>,
    /// Peak bytes in use in the trace.
    pub peak: Option<Bytes>,
    /// Peak bytes in use since the process started.
    pub lifetime_peak: Option<Bytes>,
    /// When the peak was first reached.
    pub peak_at: Option<Nanos>,
    /// The moment of the peak and of the rows.
    pub moment: HeldMoment,
    /// What was allocated at that moment.
    pub at_peak: Option<HeldRows>,
    /// What was allocated at the requested moment.
    pub at: Option<HeldRows>,
    /// Share of the free bytes outside the largest free block.
    pub fragmentation_at_peak: Option<f32>,
    /// What was in use before the trace.
    pub before_recording: Option<BeforeRecording>,
    /// What only PyTorch snapshots contain.
    pub caching: Option<CachingAnalysis>,
    /// The replay.
    pub replay: Option<Replayed>,
    /// How its steps repeat each other.
    pub patterns: Option<Patterns>,
    /// The blocks with the largest product of bytes and seconds.
    pub held_long: Vec<LongHeldBlock>,
    /// The number of the trace that shows the peak, from 1.
    pub window: Option<u64>,
    /// Where in the program the peak was reached.
    pub peak_in: Option<PeakPlace>,
    /// Where in the program the peak of the run was reached, if no trace shows it.
    pub rose_in: Option<PeakPlace>,
    /// The position of its trace.
    trace: Option<TracePlace>,
}

/// The position of a pool's trace in a [`Reading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TracePlace {
    host: usize,
    pool: usize,
}

/// What was in use before the trace.
#[derive(Clone, Copy, Debug)]
pub struct BeforeRecording {
    /// Bytes in use when the trace begins.
    pub at_begin: Bytes,
    /// Bytes of those that were freed in the trace.
    pub freed: Bytes,
    /// Number of blocks that were freed.
    pub freed_blocks: u64,
}

impl PoolAnalysis {
    /// Its peak, as far as it is known.
    #[must_use]
    pub fn highest(&self) -> Option<Bytes> {
        self.lifetime_peak.max(self.peak)
    }

    /// The highest peak comes first. Pinned memory of the host comes after memory of devices.
    pub(super) fn order(&self) -> (bool, std::cmp::Reverse<Option<Bytes>>) {
        (self.device == PINNED, std::cmp::Reverse(self.highest()))
    }

    /// The device, or the pool's own name where that is unknown.
    #[must_use]
    pub(super) fn place(&self) -> &str {
        if self.device.is_empty() { &self.name } else { &self.device }
    }

    /// The limit that a peak is compared with. A built-in default is not one, because no memory backs it.
    #[must_use]
    pub fn binding_limit(&self) -> Option<Bytes> {
        self.limit.filter(|_| self.limit_by != Some(LimitSetter::BuiltIn))
    }

    /// The pool's trace in the reading.
    #[must_use]
    pub(crate) fn trace_in<'a>(&self, reading: &'a Reading) -> Option<(&'a Host, &'a PoolTrace)> {
        let place = self.trace?;
        let host = reading.hosts.iter().chain(&reading.later).nth(place.host)?;
        Some((host, host.trace.pools.get(place.pool)?))
    }
}

impl ReportAnalysis {
    /// The highest figures of a pool's device, if a recording has them.
    pub(crate) fn highest_of(&self, pool: &PoolAnalysis) -> Option<&HighestFigures> {
        let of_device = || self.highest.iter().filter(|each| each.device == pool.device);
        let here = of_device().find(|each| each.host.as_deref() == Some(&pool.host));
        here.or_else(|| of_device().next()).map(|each| &each.figures)
    }

    /// The ledgers of a pool's device. Other hosts may have a device of the same name; where the pool's host has no ledger by its name, all
    /// of them count.
    pub(crate) fn ledgers_of(&self, pool: &PoolAnalysis) -> impl Iterator<Item = &DeviceLedger> {
        let of_device = || self.ledgers.iter().filter(|each| each.ledger.device == pool.device);
        let is_here = |each: &&DeviceLedger| each.host.as_deref() == Some(&pool.host);
        let is_known = of_device().any(|each| is_here(&each));
        of_device().filter(move |each| !is_known || is_here(each))
    }

    /// The lines of these ledgers.
    pub(crate) fn ledger_lines(&self, pool: &PoolAnalysis) -> impl Iterator<Item = &Line> {
        self.ledgers_of(pool).flat_map(|each| &each.ledger.lines)
    }
}

/// Makes a report of a source.
#[must_use]
pub fn report(reading: &Reading, options: &ReportOptions) -> ReportAnalysis {
    let mut report = with_pools(reading, options, Depth::Full);
    if let Some(accounts) = Accounts::of(reading, &report.pools) {
        let (ledgers, highest) = (accounts.at_peaks(), accounts.highest());
        (report.ledgers, report.highest) = (ledgers, highest);
        report.ledgers_at_end = accounts.at_ends();
        report.add_pools_by_calls(&accounts);
    }
    report.ranks = reading.ranks.as_ref().map(RanksAnalysis::of);
    // What is missing of a job comes before notes on one of its ranks.
    let of_job: Vec<Warning> = report.ranks.iter().flat_map(|ranks| ranks.warnings.clone()).collect();
    report.warnings = of_job.into_iter().chain(report.warnings).collect();
    // What holds of several pools is said once.
    let mut said = FxHashSet::default();
    report.warnings.retain(|warning| said.insert((warning.code, warning.text.clone())));
    report.findings = super::findings::findings(&report, reading);
    report.answer = ReportAnswer::of(&report);
    report
}

/// The pools of a source as [`report`] has them, without what costs more than reading: replays, repetition, ledgers, findings.
pub(super) fn brief(reading: &Reading) -> ReportAnalysis {
    with_pools(reading, &ReportOptions::default(), Depth::Brief)
}

/// How much is computed of each pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Everything.
    Full,
    /// Peaks, limits and rows.
    Brief,
}

fn with_pools(reading: &Reading, options: &ReportOptions, depth: Depth) -> ReportAnalysis {
    let mut report = ReportAnalysis {
        answer: ReportAnswer::open(),
        source: source_facts(reading),
        pools: Vec::new(),
        steps: Vec::new(),
        job: reading.recorded.as_ref().map(JobFacts::of),
        epochs: Vec::new(),
        phases: Vec::new(),
        marks: Vec::new(),
        inventory: Vec::new(),
        ledgers: Vec::new(),
        ledgers_at_end: Vec::new(),
        highest: Vec::new(),
        windows: Vec::new(),
        findings: Vec::new(),
        ranks: None,
        warnings: source_warnings(reading),
    };
    let outdone = windows::outdone(reading);
    let traces = reading.hosts.iter().chain(&reading.later).zip(&outdone);
    for (number, (host, outdone)) in traces.enumerate() {
        report.add_trace(reading, (number, host), outdone, (options, depth));
    }
    for (_, still) in &reading.stills {
        report.add_still(still, options);
    }
    if let Some(recorded) = &reading.recorded {
        report.add_recorded(reading, recorded, options);
    }
    report.add_moments(reading, options);
    limit::name_setters(&mut report.pools, reading);
    report
}

fn source_facts(reading: &Reading) -> SourceFacts {
    let first = reading.hosts.first().map(|host| &host.trace.history);
    let still = reading.stills.first().map(|(_, still)| still);
    let recording = reading.recorded.iter().map(|recorded| &recorded.path);
    let stills = reading.stills.iter().map(|(path, _)| path);
    let traces = reading.hosts.iter().chain(&reading.later).map(|host| &host.path);
    let files = recording.chain(traces).chain(stills);
    let is_torch = first.is_some_and(|history| history.framework == Some(Framework::PyTorch));
    SourceFacts {
        format: match (&reading.recorded, first, still) {
            (Some(_), ..) => "recording",
            (_, None, Some(still)) => still.format,
            _ if is_torch => "torch-snapshot",
            _ => "xplane",
        },
        framework: match first {
            Some(history) => history.framework,
            None => still.and_then(|still| still.framework),
        },
        files: files.map(|path| path.display().to_string()).collect(),
        clock: match (first, still) {
            (Some(history), _) if is_torch && history.events.is_empty() => SourceClock::OneMoment,
            _ if is_torch => SourceClock::FirstEntry,
            (Some(_), _) => SourceClock::Profile,
            (None, Some(_)) => SourceClock::OneMoment,
            (None, None) => SourceClock::FirstMark,
        },
        wall_clock_zero: first.and_then(|history| history.wall_clock_zero),
    }
}

fn source_warnings(reading: &Reading) -> Vec<Warning> {
    let other = reading.other_runs.first().map(|other| Warning {
        code: "other-runs",
        text: format!(
            "the folder contains {}; the report shows the newest",
            plural(reading.other_runs.len(), "older profile run", "older profile runs")
        ),
        hint: format!("for another run, pass its folder, such as {}", other.display()),
    });
    let unreadable = reading.unreadable.iter().map(|error| Warning {
        code: "unreadable-host",
        text: error.to_string(),
        hint: error.hint().to_owned(),
    });
    let failure = reading.failures.as_ref().and_then(oom::in_short);
    other.into_iter().chain(unreadable).chain(failure).collect()
}

impl ReportAnalysis {
    /// Adds the pools of a trace, except those for which another trace of the same process shows a higher peak.
    fn add_trace(
        &mut self,
        reading: &Reading,
        (number, host): (usize, &Host),
        outdone: &[bool],
        (options, depth): (&ReportOptions, Depth),
    ) {
        let trace = &host.trace;
        self.warnings.extend(trace.history.warnings.as_slice().iter().cloned());
        // A short window without allocations needs no explanation.
        let is_later =
            host.window.as_ref().is_some_and(|window| window.number > 1 && !window.is_of_program());
        let is_of_program = host.window.as_ref().is_some_and(RecordedWindow::is_of_program);
        self.warnings.extend(trace.why_empty().filter(|_| !is_later).map(|why| match is_of_program {
            true => Warning { text: format!("in the program's own profile: {}", why.text), ..why },
            false => why,
        }));
        self.warnings.extend(trace.why_cut());
        for (place, (pool, is_outdone)) in trace.pools.iter().zip(outdone).enumerate() {
            // If the events do not show the peak, the report shows the state instead.
            if *is_outdone || trace.state_of(pool.id).is_some() || !options.is_asked(host.pool_name(pool)) {
                continue;
            }
            let mut analysed = self.pool(reading, host, pool, (options, depth));
            analysed.trace = Some(TracePlace { host: number, pool: place });
            // In a container, a profiler may know other names and numbers than the recording.
            if let Some(process) = reading.process_of(host) {
                (analysed.host, analysed.pid) = (process.id.host().to_owned(), Some(process.id.pid().into()));
                analysed.rank = process.facts.rank;
            }
            self.pools.push(analysed);
            // A recording knows the steps better.
            if self.job.is_none() {
                self.steps.extend(traced_steps(trace, pool));
            }
        }
        self.add_states(trace, options);
    }

    /// Adds the pools for which a snapshot shows only the moment of the dump.
    fn add_states(&mut self, trace: &Trace, options: &ReportOptions) {
        let history = &trace.history;
        let tables = NameTables::of_history(history);
        let states = history.pools.iter().filter_map(|pool| {
            let caching = pool.caching.as_ref()?;
            Some((pool, caching, caching.state.as_ref()?))
        });
        for (pool, caching, state) in states.filter(|(pool, ..)| options.is_asked(&pool.name)) {
            let snapshot = trace.dumped(state);
            self.warnings.push(Trace::why_state(&pool.name, state));
            self.pools.push(PoolAnalysis {
                host: history.host.clone(),
                pid: history.pid,
                peak: Some(snapshot.in_use),
                moment: HeldMoment::Dump,
                at_peak: Some(tables.rows(&snapshot, options.by, options.top)),
                caching: Some(CachingAnalysis::of(caching, history)),
                ..PoolAnalysis::bare(&pool.name, &event::device_of(&pool.name))
            });
            self.pools.sort_by_key(PoolAnalysis::order);
        }
    }

    fn pool(
        &mut self,
        reading: &Reading,
        host: &Host,
        pool: &PoolTrace,
        (options, depth): (&ReportOptions, Depth),
    ) -> PoolAnalysis {
        let (trace, name) = (&host.trace, host.pool_name(pool));
        let history = &trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let facts = history.pool(pool.id);
        let tables = NameTables::of_history(history);
        let at_peak = trace.at_peak(pool).map(|held| tables.rows(&held, options.by, options.top));
        let at = options.at.and_then(|at| {
            // Of several traces that which shows the moment.
            let (trace, pool) = trace_at(reading, host, pool, at);
            let time = Picos(at.0.saturating_sub(trace.history.origin.0).saturating_mul(1000));
            // A moment of whole nanoseconds holds what happened within it.
            let snapshot = trace.snapshot(pool, Picos(time.0.saturating_add(999)))?;
            Some(NameTables::of_history(&trace.history).rows(&snapshot, options.by, options.top))
        });
        self.warnings.extend(pool_warnings::warnings(host, pool, at_peak.as_ref(), options.at));
        let (replay, patterns) = match depth {
            Depth::Full => self.repeated(reading, host, pool),
            Depth::Brief => (None, None),
        };
        let long = if depth == Depth::Full { trace.held_longest(pool) } else { Vec::new() };
        let peak = pool.peak();
        let peak_time = peak.map(|peak| pool.time(&history.events, peak.position));
        PoolAnalysis {
            name: name.to_owned(),
            hardware: hardware_of(history, &trace.device_of(pool)),
            device: trace.device_of(pool),
            host: history.host.clone(),
            pid: history.pid,
            rank: None,
            from_start: pool.count.from_start,
            limit: facts.and_then(|facts| facts.limit),
            limit_by: None,
            allocs: Some(pool.allocs),
            frees: Some(pool.frees),
            peak: peak.map(|peak| peak.bytes),
            lifetime_peak: facts.and_then(|facts| facts.lifetime_peak),
            peak_at: peak_time.map(clock),
            moment: HeldMoment::Peak,
            fragmentation_at_peak: peak.and_then(|peak| pool.fragmentation(&history.events, peak.position)),
            at_peak,
            at,
            before_recording: Some(BeforeRecording {
                at_begin: pool.count.before,
                freed: pool.unmatched.iter().map(|free| free.chunk).sum(),
                freed_blocks: pool.unmatched.len() as u64,
            }),
            caching: facts
                .and_then(|facts| facts.caching.as_ref())
                .map(|caching| CachingAnalysis::of(caching, history)),
            replay,
            patterns,
            held_long: long.iter().map(|long| tables.long_held(long)).collect(),
            window: host.window.as_ref().map(|window| window.number),
            peak_in: None,
            rose_in: None,
            trace: None,
        }
    }

    /// The replay of a pool's first trace, and how its steps repeat each other.
    fn repeated(
        &mut self,
        reading: &Reading,
        host: &Host,
        pool: &PoolTrace,
    ) -> (Option<Replayed>, Option<Patterns>) {
        // Only a trace from the start can be replayed exactly.
        let (replayed, of_replayed) = first_trace(reading, host, pool);
        let replay =
            Replayed::of(replayed, of_replayed, host.version.as_deref()).unwrap_or_else(|too_many| {
                self.warnings.push(too_many);
                None
            });
        let patterns = match &replay {
            Some(replay) => replay.patterns.clone(),
            None if of_replayed.event_count() > MAX_REPLAYED_EVENTS => None,
            None => Patterns::of(replayed, of_replayed, None),
        };
        (replay, patterns)
    }

    /// Adds a file that shows one moment.
    fn add_still(&mut self, still: &Still, options: &ReportOptions) {
        self.warnings.extend(still.warnings.as_slice().iter().cloned());
        let tables = NameTables::of_still(still);
        for pool in still.pools.iter().filter(|pool| options.is_asked(&pool.name)) {
            self.pools.push(PoolAnalysis {
                limit: pool.limit,
                allocs: pool.allocs,
                peak: Some(pool.snapshot.in_use),
                lifetime_peak: pool.lifetime_peak,
                moment: match still.format {
                    "hlo" => HeldMoment::Program,
                    "memory-profile" => HeldMoment::Peak,
                    _ => HeldMoment::Dump,
                },
                at_peak: Some(tables.rows(&pool.snapshot, options.by, options.top)),
                fragmentation_at_peak: pool.fragmentation,
                ..PoolAnalysis::bare(&pool.name, &pool.device)
            });
        }
    }

    /// Adds what a recording contains in addition to its traces.
    fn add_recorded(&mut self, reading: &Reading, recorded: &Recorded, options: &ReportOptions) {
        self.warnings.extend(recorded.warnings.as_slice().iter().cloned());
        for (number, process) in recorded.processes.iter().enumerate() {
            let story = ProcessStory::with_windows(process, reading.windows_of(number));
            self.add_counted_pools(&story, options);
            let steps = story.recorded_steps();
            self.set_places(&story, &steps);
            self.steps.extend(story.steps(&steps));
            self.epochs.extend(story.epochs(&steps));
            self.phases.extend(story.phases(&steps));
            self.marks.extend(story.marks());
            self.inventory.extend(story.inventory());
            self.source.framework = self.source.framework.or_else(|| process.facts.known_framework());
        }
        self.pools.sort_by_key(PoolAnalysis::order);
        self.windows = windows::windows(reading, recorded);
        self.warnings.extend(windows::warnings(&self.windows, reading));
    }

    /// Sets where in the program the peaks of a process' pools were reached.
    fn set_places(&mut self, story: &ProcessStory<'_>, steps: &[RecordedStep]) {
        let (host, pid) = (story.host(), Some(story.pid()));
        for pool in self.pools.iter_mut().filter(|pool| pool.host == host && pool.pid == pid) {
            pool.peak_in = pool.peak_at.map(|at| story.place_at(at, &pool.device, steps));
            if pool.lifetime_peak > pool.peak {
                pool.rose_in = story.place_of_rise(&pool.device, steps);
            }
        }
    }

    /// Adds the framework's counters of each device of a process: for a traced pool the process and the peak of the run,
    /// otherwise a pool with nothing else.
    fn add_counted_pools(&mut self, story: &ProcessStory<'_>, options: &ReportOptions) {
        let (pid, rank) = (story.pid(), story.process.facts.rank);
        for (device, peak) in story.lifetime_peaks() {
            let name = story.pools.get(&device);
            if !options.is_asked(name.unwrap_or(&device)) {
                continue;
            }
            let is_it = |pool: &&mut PoolAnalysis| {
                Some(&pool.name) == name && pool.host == story.host() && pool.pid == Some(pid)
            };
            if let Some(pool) = self.pools.iter_mut().find(is_it) {
                pool.lifetime_peak = pool.lifetime_peak.max(peak);
                continue;
            }
            self.pools.push(PoolAnalysis {
                host: story.host(),
                pid: Some(pid),
                rank,
                limit: story.limit(&device),
                peak,
                lifetime_peak: peak,
                ..PoolAnalysis::bare(&device, &device)
            });
            if let (None, Some(reason)) = (peak, story.reason(&device)) {
                self.warnings.push(Warning {
                    code: "no-counters",
                    text: format!("process {pid}, {device}: {reason}"),
                    hint: String::new(),
                });
            }
        }
    }
}

impl PoolAnalysis {
    /// A pool of which only the name is known.
    pub(super) fn bare(name: &str, device: &str) -> PoolAnalysis {
        PoolAnalysis {
            name: name.to_owned(),
            device: device.to_owned(),
            hardware: None,
            host: String::new(),
            pid: None,
            rank: None,
            from_start: None,
            limit: None,
            limit_by: None,
            allocs: None,
            frees: None,
            peak: None,
            lifetime_peak: None,
            peak_at: None,
            moment: HeldMoment::Peak,
            at_peak: None,
            at: None,
            fragmentation_at_peak: None,
            before_recording: None,
            caching: None,
            replay: None,
            patterns: None,
            held_long: Vec::new(),
            window: None,
            peak_in: None,
            rose_in: None,
            trace: None,
        }
    }
}

fn hardware_of(history: &History, device: &str) -> Option<Hardware> {
    history.hardware.iter().find(|told| told.device == device).cloned()
}

/// A pool in the first trace of its process, if that trace has it.
fn first_trace<'a>(reading: &'a Reading, host: &'a Host, pool: &'a PoolTrace) -> (&'a Trace, &'a PoolTrace) {
    let first = host.process.and_then(|process| reading.host_of(process)).map_or(host, |(_, first)| first);
    let mut same = first.trace.pools.iter().filter(|each| first.pool_name(each) == host.pool_name(pool));
    same.next().map_or((&host.trace, pool), |same| (&first.trace, same))
}

/// A pool in the trace of its process that covers a moment; in `host` if no trace does.
fn trace_at<'a>(
    reading: &'a Reading,
    host: &'a Host,
    pool: &'a PoolTrace,
    at: Nanos,
) -> (&'a Trace, &'a PoolTrace) {
    let all = reading.hosts.iter().chain(&reading.later);
    let others = all.filter(|other| host.process.is_some() && other.process == host.process);
    let mut same = others.flat_map(|other| other.trace.pools.iter().map(move |pool| (other, pool)));
    let shows = |(other, each): &(&Host, &PoolTrace)| {
        let history = &other.trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let (first, last) = (each.time(&history.events, 0), each.last_time(&history.events));
        other.pool_name(each) == host.pool_name(pool) && clock(first) <= at && at <= clock(last)
    };
    same.find(shows).map_or((&host.trace, pool), |(other, each)| (&other.trace, each))
}
