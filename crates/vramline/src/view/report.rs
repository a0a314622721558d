//! The report: what each pool held at its peak, and how sure we are.
//!
//! These structures are the JSON document (`docs/json.md`); the terminal prints the same values. In every pool
//! `named + unnamed + slack + before_recording = peak`, and the roles add up to `named + unnamed`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::caching::{self, CachingView};
use super::findings::{self, FindingView};
use super::ledger::{self, LedgerView};
use super::oom;
use super::replayed::{self, ReplayedView};
use super::run::{self, EpochView, InventoryView, MarkView, PhaseView, RunView, Whole};
use crate::Reading;
use crate::event::{Framework, History, OpTime};
use crate::names::{Name, Names};
use crate::recording::reader::Recorded;
use crate::snapshot::{Held, Role, Snapshot, Still};
use crate::stack::{Stack, Stacks};
use crate::trace::{LongHeld, PoolTrace, StepUse, Trace};
use crate::units::{Bytes, Nanos, Picos};
use crate::warning::{Unknown, Warning};

/// How the rows at the peak are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One row for each op, shape and type.
    #[default]
    Op,
    /// One row for each model layer.
    Layer,
    /// One row for each role.
    Role,
    /// One row for each call stack.
    Stack,
}

/// What a report is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// How to group rows.
    pub by: By,
    /// At most so many rows a pool; the others are summed up.
    pub top: Option<usize>,
    /// Also what was held at this moment of the source's clock.
    pub at: Option<Nanos>,
    /// Only pools whose name contains this.
    pub pool: Option<String>,
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Report {
    pub kind: &'static str,
    pub source: SourceView,
    pub pools: Vec<PoolView>,
    pub steps: Vec<StepView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    pub epochs: Vec<EpochView>,
    pub phases: Vec<PhaseView>,
    pub marks: Vec<MarkView>,
    pub inventory: Vec<InventoryView>,
    pub ledger: Vec<LedgerView>,
    pub findings: Vec<FindingView>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct SourceView {
    pub format: &'static str,
    pub framework: Option<&'static str>,
    pub files: Vec<String>,
    pub clock: &'static str,
    pub wall_clock_zero_ns: Option<Nanos>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PoolView {
    pub name: String,
    pub device: String,
    pub host: String,
    pub pid: Option<u64>,
    pub rank: Option<u64>,
    pub from_start: Option<bool>,
    pub limit_bytes: Option<Bytes>,
    pub allocs: Option<u64>,
    pub frees: Option<u64>,
    pub peak_bytes: Option<Bytes>,
    pub lifetime_peak_bytes: Option<Bytes>,
    pub peak_at_ns: Option<Nanos>,
    pub at_peak: Option<HeldView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<HeldView>,
    pub fragmentation_at_peak: Option<f32>,
    pub before_recording: Option<BeforeView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching: Option<CachingView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayedView>,
    pub held_long: Vec<LongView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct HeldView {
    pub time_ns: Option<Nanos>,
    pub in_use_bytes: Bytes,
    pub named_bytes: Bytes,
    pub unnamed_bytes: Bytes,
    pub slack_bytes: Bytes,
    pub before_recording_bytes: Bytes,
    pub by_role: ByRole,
    pub rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
}

/// Bytes of every role, in the order of [`Role::ALL`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ByRole(BTreeMap<Role, Bytes>);

impl ByRole {
    /// The bytes of a role.
    #[must_use]
    pub fn get(&self, role: Role) -> Bytes {
        self.0.get(&role).copied().unwrap_or_default()
    }
}

impl Serialize for ByRole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Role::ALL.len()))?;
        for role in Role::ALL {
            map.serialize_entry(role.word(), &self.get(role))?;
        }
        map.end()
    }
}

#[derive(Debug, Serialize, Clone)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Row {
    pub bytes: Bytes,
    pub count: u64,
    pub op: String,
    pub layer: String,
    pub role: &'static str,
    pub shape: String,
    pub dtype: &'static str,
    pub source: String,
    pub evidence: &'static str,
    pub variable: String,
    pub stack: Vec<String>,
    pub slack_bytes: Bytes,
    pub age_ns: Option<u64>,
    pub op_calls: Option<u64>,
    pub op_time_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Rest {
    pub rows: usize,
    pub bytes: Bytes,
    pub count: u64,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct BeforeView {
    pub at_begin_bytes: Bytes,
    pub freed_bytes: Bytes,
    pub freed_blocks: u64,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct LongView {
    pub bytes: Bytes,
    pub op: String,
    pub layer: String,
    pub role: &'static str,
    pub shape: String,
    pub dtype: &'static str,
    pub born_ns: Nanos,
    pub freed_ns: Option<Nanos>,
    pub held_ns: u64,
    pub byte_seconds: f64,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct StepView {
    pub pool: String,
    pub host: String,
    pub pid: Option<u64>,
    pub step: i64,
    pub batches: u64,
    pub epoch: Option<u64>,
    pub phase: &'static str,
    pub how: &'static str,
    pub name: String,
    pub begin_ns: Nanos,
    pub peak_bytes: Option<Bytes>,
    pub current_bytes: Option<Bytes>,
}

/// Makes a report of everything that a source held.
#[must_use]
pub fn report(reading: &Reading, wanted: &Wanted) -> Report {
    let mut warnings = Vec::new();
    if let Some(other) = reading.other_runs.first() {
        let more = reading.other_runs.len();
        warnings.push(Warning {
            code: "other-runs",
            text: format!("the folder holds {more} more profile runs; this is the newest"),
            hint: format!("for another run give its folder, such as {}", other.display()),
        });
    }
    warnings.extend(reading.unreadable.iter().map(|error| Warning {
        code: "unreadable-host",
        text: error.to_string(),
        hint: error.hint().to_owned(),
    }));
    warnings.extend(reading.failures.as_ref().and_then(oom::in_short));
    let first = reading.hosts.first().map(|host| &host.trace.history);
    let recording = reading.recorded.iter().map(|recorded| &recorded.path);
    let stills = reading.stills.iter().map(|(path, _)| path);
    let files = recording.chain(reading.hosts.iter().map(|host| &host.path)).chain(stills);
    let still = reading.stills.first().map(|(_, still)| still);
    let mut report = Report {
        kind: "report",
        source: SourceView {
            format: match (&reading.recorded, first, still) {
                (Some(_), ..) => "recording",
                (_, None, Some(still)) => still.format,
                (_, Some(history), _) if history.framework == Some(Framework::PyTorch) => "torch-snapshot",
                _ => "xplane",
            },
            framework: first
                .map_or_else(|| still.and_then(|still| still.framework), |history| history.framework)
                .map(Framework::word),
            files: files.map(|path| path.display().to_string()).collect(),
            clock: match (first, still) {
                (Some(history), _) if history.framework == Some(Framework::PyTorch) => {
                    "nanoseconds since the first entry of the snapshot's history"
                }
                (Some(_), _) => "nanoseconds since the profile began, as the profiler wrote them",
                (None, Some(_)) => "none: the file knows one moment",
                (None, None) => "nanoseconds since the first mark of each process",
            },
            wall_clock_zero_ns: first.and_then(|history| history.wall_clock_zero),
        },
        pools: Vec::new(),
        steps: Vec::new(),
        run: reading.recorded.as_ref().map(run::job),
        epochs: Vec::new(),
        phases: Vec::new(),
        marks: Vec::new(),
        inventory: Vec::new(),
        ledger: Vec::new(),
        findings: Vec::new(),
        warnings,
        unknowns: Vec::new(),
    };
    for host in &reading.hosts {
        report.add(&host.trace, wanted, host.version.as_deref());
    }
    for (_, still) in &reading.stills {
        report.add_still(still, wanted);
    }
    if let Some(recorded) = &reading.recorded {
        report.add_recorded(reading, recorded, wanted);
    }
    report.ledger = ledger::ledger(&report, reading);
    report.findings = findings::findings(&report, reading);
    report.explain_nulls();
    report
}

impl Report {
    fn add(&mut self, trace: &Trace, wanted: &Wanted, version: Option<&str>) {
        self.warnings.extend(trace.history.warnings.as_slice().iter().cloned());
        self.warnings.extend(trace.why_empty());
        for pool in &trace.pools {
            let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
            if wanted.pool.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
                continue;
            }
            self.add_pool(trace, pool, name, wanted, version);
        }
    }

    fn add_pool(
        &mut self,
        trace: &Trace,
        pool: &PoolTrace,
        name: &str,
        wanted: &Wanted,
        version: Option<&str>,
    ) {
        let history = &trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let facts = history.pool(pool.id);
        let words = Words::of(history);
        let view = |snapshot: &Snapshot| held_view(words, snapshot, wanted);
        let at_peak = trace.at_peak(pool).as_ref().map(view);
        let at = wanted.at.and_then(|at| {
            let time = Picos(at.0.saturating_sub(history.origin.0).saturating_mul(1000));
            // A moment of whole nanoseconds holds what happened within it.
            trace.snapshot(pool, Picos(time.0.saturating_add(999))).as_ref().map(view)
        });
        let last = clock(pool.last_time(&history.events));
        if wanted.at.is_some_and(|at| at > last) {
            let text = format!("{name}: the trace ends at {last}; what was held then is shown");
            self.warnings.push(Warning { code: "after-the-trace", text, hint: String::new() });
        }
        let peak = pool.peak();
        let few_names = at_peak.as_ref().is_some_and(|at| at.unnamed_bytes.0 > at.named_bytes.0 / 10);
        // A pool of a few bytes beside one of gigabytes needs no excuse.
        let largest = trace.pools.first().and_then(PoolTrace::peak).map_or(0, |peak| peak.bytes.0);
        if peak.is_some_and(|peak| peak.bytes.0 >= largest / 100) {
            self.warnings.extend(trace.why_little(pool, few_names));
            self.warnings.extend(trace.why_before(pool));
        }
        self.warnings.extend(doubts(history, pool, name));
        let replay = replayed::view(trace, pool, version).unwrap_or_else(|too_many| {
            self.warnings.push(too_many);
            None
        });
        let peak_time = peak.map(|peak| pool.time(&history.events, peak.position));
        let freed: Bytes = pool.unmatched.iter().map(|free| free.chunk).sum();
        self.pools.push(PoolView {
            name: name.to_owned(),
            device: trace.device_of(pool),
            host: history.host.clone(),
            pid: history.pid,
            rank: None,
            from_start: pool.count.from_start,
            limit_bytes: facts.and_then(|facts| facts.limit),
            allocs: Some(pool.allocs),
            frees: Some(pool.frees),
            peak_bytes: peak.map(|peak| peak.bytes),
            lifetime_peak_bytes: facts.and_then(|facts| facts.lifetime_peak),
            peak_at_ns: peak_time.map(clock),
            fragmentation_at_peak: peak.and_then(|peak| pool.fragmentation(&history.events, peak.position)),
            at_peak,
            at,
            before_recording: Some(BeforeView {
                at_begin_bytes: pool.count.before,
                freed_bytes: freed,
                freed_blocks: pool.unmatched.len() as u64,
            }),
            caching: facts
                .and_then(|facts| facts.caching.as_ref())
                .map(|caching| caching::view(caching, history)),
            replay,
            held_long: trace.held_longest(pool).iter().map(|long| long_view(words, long)).collect(),
        });
        // A recording knows the steps better.
        if self.run.is_some() {
            return;
        }
        self.steps.extend(traced_steps(trace, pool));
    }

    /// A file that knows one moment: there, every pool stands at its peak.
    fn add_still(&mut self, still: &Still, wanted: &Wanted) {
        self.warnings.extend(still.warnings.as_slice().iter().cloned());
        let words =
            Words { names: &still.names, stacks: &still.stacks, op_times: None, origin: Nanos::default() };
        for pool in &still.pools {
            if wanted.pool.as_ref().is_some_and(|part| !pool.name.contains(part.as_str())) {
                continue;
            }
            self.pools.push(PoolView {
                name: pool.name.clone(),
                device: pool.device.clone(),
                host: String::new(),
                pid: None,
                rank: None,
                from_start: None,
                limit_bytes: pool.limit,
                allocs: pool.allocs,
                frees: None,
                peak_bytes: Some(pool.snapshot.in_use),
                lifetime_peak_bytes: pool.lifetime_peak,
                peak_at_ns: None,
                at_peak: Some(held_view(words, &pool.snapshot, wanted)),
                at: None,
                fragmentation_at_peak: pool.fragmentation,
                before_recording: None,
                caching: None,
                replay: None,
                held_long: Vec::new(),
            });
        }
    }

    /// What a recording knows beyond its traces.
    fn add_recorded(&mut self, reading: &Reading, recorded: &Recorded, wanted: &Wanted) {
        self.warnings.extend(recorded.warnings.as_slice().iter().cloned());
        for (number, process) in recorded.processes.iter().enumerate() {
            let host = reading.hosts.iter().find(|host| host.process == Some(number));
            let trace = host.map(|host| &host.trace);
            let of_trace = trace.map_or(&[][..], |trace| &trace.pools);
            // The pool with the highest peak of a device stands for it; it comes first.
            let named = of_trace.iter().rev().filter_map(|pool| {
                let trace = trace?;
                let name = &trace.history.pool(pool.id)?.name;
                Some((trace.device_of(pool), name.clone()))
            });
            let whole = Whole { process, trace, pools: named.collect() };
            let pid = u64::from(process.id.pid());
            for (device, peak) in whole.lifetime_peaks() {
                let name = whole.pools.get(&device);
                if wanted.pool.as_ref().is_some_and(|part| !name.unwrap_or(&device).contains(part.as_str())) {
                    continue;
                }
                let known = self
                    .pools
                    .iter_mut()
                    .find(|pool| Some(&pool.name) == name && pool.pid.is_none_or(|of| of == pid));
                if let Some(pool) = known {
                    pool.pid = Some(pid);
                    pool.rank = process.facts.rank;
                    pool.lifetime_peak_bytes = pool.lifetime_peak_bytes.max(peak);
                } else {
                    self.pools.push(whole.bare_pool(&device, peak));
                    if let (None, Some(reason)) = (peak, whole.reason(&device)) {
                        self.warnings.push(Warning {
                            code: "no-counters",
                            text: format!("process {pid}, {device}: {reason}"),
                            hint: String::new(),
                        });
                    }
                }
            }
            let steps = whole.steps();
            self.steps.extend(steps.iter().map(|step| whole.step_view(step)));
            if let (true, Some(trace)) = (steps.is_empty(), trace) {
                let seen = trace.pools.iter().flat_map(|pool| traced_steps(trace, pool));
                self.steps.extend(seen.map(|step| StepView { pid: Some(pid), ..step }));
            }
            self.epochs.extend(whole.epochs(&steps));
            self.phases.extend(whole.phases(&steps));
            self.marks.extend(whole.marks());
            self.inventory.extend(whole.inventory());
            if self.source.framework.is_none() {
                let framework = match process.facts.framework() {
                    Some(("tensorflow", _)) => Some(Framework::TensorFlow),
                    Some(("jax", _)) => Some(Framework::Jax),
                    Some(("torch", _)) => Some(Framework::PyTorch),
                    _ => None,
                };
                self.source.framework = framework.map(Framework::word);
            }
        }
        self.pools.sort_by_key(|pool| std::cmp::Reverse(pool.lifetime_peak_bytes.max(pool.peak_bytes)));
    }

    /// A reason for each null.
    fn explain_nulls(&mut self) {
        let mut unknowns = Vec::new();
        let mut add = |path: String, reason: &str, switch: Option<&str>| {
            unknowns.push(Unknown { path, reason: reason.to_owned(), switch: switch.map(str::to_owned) });
        };
        if self.source.framework.is_none() {
            add("source.framework".into(), "nothing in the trace shows which framework wrote it", None);
        }
        if self.source.wall_clock_zero_ns.is_none() {
            add("source.wall_clock_zero_ns".into(), "the file does not tell when it began", None);
        }
        for (i, pool) in self.pools.iter().enumerate() {
            let at = |field: &str| format!("pools[{i}].{field}");
            if pool.pid.is_none() {
                add(at("pid"), "the file does not tell the process", None);
            }
            if pool.rank.is_none() {
                add(at("rank"), "no variable of a launcher told the process' rank", None);
            }
            if pool.at_peak.is_none() {
                let reason = "no trace of this process shows what the pool held";
                let switch = Some("vramline run --trace auto");
                add(at("at_peak"), reason, switch);
            }
            for (field, is_null) in [
                ("peak_at_ns", pool.peak_at_ns.is_none()),
                ("at_peak.time_ns", pool.at_peak.as_ref().is_some_and(|at| at.time_ns.is_none())),
                ("allocs", pool.allocs.is_none()),
                ("frees", pool.frees.is_none()),
                ("before_recording", pool.before_recording.is_none()),
            ] {
                if is_null {
                    add(at(field), "there is no history of this pool", Some("vramline run --trace auto"));
                }
            }
            if pool.peak_bytes.is_none() {
                add(at("peak_bytes"), "the framework does not count this device's memory", None);
            }
            if pool.from_start.is_none() {
                add(at("from_start"), "no first event tells the allocator's counts", None);
            }
            if pool.limit_bytes.is_none() {
                add(at("limit_bytes"), "nothing tells how much is available", None);
            }
            if pool.lifetime_peak_bytes.is_none() {
                add(at("lifetime_peak_bytes"), "nothing tells a high-water mark", None);
            }
            if pool.fragmentation_at_peak.is_none() {
                add(
                    at("fragmentation_at_peak"),
                    "the allocator told none: nothing was free, or it does not measure it",
                    None,
                );
            }
            if let Some(caching) = &pool.caching {
                if caching.reserved_peak_at_ns.is_none() {
                    add(at("caching.reserved_peak_at_ns"), "it was so before the first entry", None);
                }
                for (field, is_null) in [
                    ("asked_bytes", caching.failures.iter().any(|failure| failure.asked_bytes.is_none())),
                    ("device_free_bytes", caching.failures.iter().any(|one| one.device_free_bytes.is_none())),
                ] {
                    if is_null {
                        add(at(&format!("caching.failures[].{field}")), "the entry does not tell it", None);
                    }
                }
            }
            let rows = pool.at_peak.iter().flat_map(|at| &at.rows);
            if rows.clone().any(|row| row.op_time_ns.is_none()) {
                let reason = "the trace times no op of that name (a row may have no op, or several)";
                add(at("at_peak.rows[].op_time_ns"), reason, None);
                add(at("at_peak.rows[].op_calls"), reason, None);
            }
            if rows.clone().any(|row| row.age_ns.is_none()) {
                add(at("at_peak.rows[].age_ns"), "no event shows the allocation", None);
            }
            if pool.held_long.iter().any(|long| long.freed_ns.is_none()) {
                add(at("held_long[].freed_ns"), "the trace ends before the block was freed", None);
            }
        }
        let mut add_if = |is_null: bool, path: &str, reason: &str, switch: Option<&str>| {
            if is_null {
                add(path.to_owned(), reason, switch);
            }
        };
        const NO_EPOCH: &str = "the step belongs to no epoch, or nobody told";
        const OWN_PEAK: &str =
            "the framework's peak counts from the start of the process, and was not reset when this began";
        const NO_FIGURE: &str = "the framework told no figure at that moment";
        const NO_PROCESS: &str = "the trace does not tell the process";
        let own_peak = Some("vramline run --step-peaks, or rec.step");
        add_if(self.steps.iter().any(|step| step.epoch.is_none()), "steps[].epoch", NO_EPOCH, None);
        add_if(self.steps.iter().any(|step| step.pid.is_none()), "steps[].pid", NO_PROCESS, None);
        add_if(
            self.steps.iter().any(|step| step.peak_bytes.is_none()),
            "steps[].peak_bytes",
            OWN_PEAK,
            own_peak,
        );
        add_if(
            self.steps.iter().any(|step| step.current_bytes.is_none()),
            "steps[].current_bytes",
            NO_FIGURE,
            None,
        );
        add_if(
            self.epochs.iter().any(|epoch| epoch.peak_bytes.is_none()),
            "epochs[].peak_bytes",
            OWN_PEAK,
            own_peak,
        );
        add_if(
            self.epochs.iter().any(|epoch| epoch.current_bytes.is_none()),
            "epochs[].current_bytes",
            NO_FIGURE,
            None,
        );
        for (is_null, path) in [
            (self.phases.iter().any(|phase| phase.first_peak_bytes.is_none()), "phases[].first_peak_bytes"),
            (self.phases.iter().any(|phase| phase.later_peak_bytes.is_none()), "phases[].later_peak_bytes"),
        ] {
            add_if(is_null, path, "no such step has a peak of its own that is known", own_peak);
        }
        add_if(
            self.phases.iter().any(|phase| phase.current_bytes.is_none()),
            "phases[].current_bytes",
            NO_FIGURE,
            None,
        );
        add_if(self.marks.iter().any(|mark| mark.step.is_none()), "marks[].step", "it is of no step", None);
        for (is_null, path) in [
            (self.marks.iter().any(|mark| mark.current_bytes.is_none()), "marks[].current_bytes"),
            (self.marks.iter().any(|mark| mark.peak_bytes.is_none()), "marks[].peak_bytes"),
        ] {
            add_if(is_null, path, NO_FIGURE, None);
        }
        let no_trace = "no trace shows the pools, or the framework does not tell where the variables lie";
        let is_null = self.inventory.iter().any(|entry| entry.in_pool_bytes.is_none());
        add_if(is_null, "inventory[].in_pool_bytes", no_trace, Some("vramline run --trace auto"));
        if let Some(run) = &self.run {
            add_if(
                run.exit.is_none(),
                "run.exit",
                "the job still runs, its launcher was killed, or it had none",
                None,
            );
            let any = |is_null: fn(&run::ProcessView) -> bool| run.processes.iter().any(is_null);
            let rank = "no variable of a launcher told the process' rank";
            add_if(any(|process| process.rank.is_none()), "run.processes[].rank", rank, None);
            add_if(
                any(|process| process.backend.is_none()),
                "run.processes[].backend",
                "Keras was not used",
                None,
            );
            let root = "the process was not forked from a recorded one";
            add_if(any(|process| process.forked_from.is_none()), "run.processes[].forked_from", root, None);
        }
        let ledger = &self.ledger;
        add_if(ledger.is_empty(), "ledger", "only recordings have one", Some("vramline run -- CMD"));
        let reasons = "each line says why in its `reason`";
        add_if(ledger.iter().any(|line| line.bytes.is_none()), "ledger[].bytes", reasons, None);
        add_if(!ledger.is_empty(), "ledger[].part_of", "the whole device is part of nothing", None);
        self.unknowns = unknowns;
    }
}

/// Where the allocator's count and the events do not agree.
fn doubts(history: &History, pool: &PoolTrace, name: &str) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if let Some(first) = pool.count.first_disagreement {
        doubts.push(Warning {
            code: "count-disagrees",
            text: format!(
                "at {} of {} events of '{name}' the allocator's count does not follow from the event before; first at {} ns: \
                 {} bytes expected, {} found",
                pool.count.disagreements,
                pool.allocs + pool.frees,
                first.time.on_clock(history.origin).0,
                first.expected.0,
                first.found.0
            ),
            hint: "events are missing: the profiler dropped some, or the file was cut or merged. Peaks are the allocator's \
                   own and hold; the rows may lack blocks"
                .to_owned(),
        });
    }
    if pool.lost_frees > 0 {
        doubts.push(Warning {
            code: "lost-frees",
            text: format!(
                "{} blocks of '{name}' were handed out again without a free in the trace",
                pool.lost_frees
            ),
            hint: String::new(),
        });
    }
    if pool.without_address > 0 {
        doubts.push(Warning {
            code: "no-address",
            text: format!(
                "{} events of '{name}' tell no address: allocations and frees cannot be paired",
                pool.without_address
            ),
            hint: "record with TensorFlow 2.3 or newer".to_owned(),
        });
    }
    doubts
}

/// What turns the names and times of a source into text and into its clock.
#[derive(Clone, Copy)]
struct Words<'a> {
    names: &'a Names,
    stacks: &'a Stacks,
    op_times: Option<&'a FxHashMap<Name, OpTime>>,
    origin: Nanos,
}

impl Words<'_> {
    fn of(history: &History) -> Words<'_> {
        let History { names, stacks, op_times, origin, .. } = history;
        Words { names, stacks, op_times: Some(op_times), origin: *origin }
    }
}

/// What a pool held at a moment of a history.
pub(super) fn of_snapshot(history: &History, snapshot: &Snapshot, wanted: &Wanted) -> HeldView {
    held_view(Words::of(history), snapshot, wanted)
}

/// Sums up the rows beyond the first `top`.
pub(super) fn fold(held: &mut HeldView, top: usize) {
    if top >= held.rows.len() {
        return;
    }
    let folded = held.rows.split_off(top);
    let rest = held.rest.get_or_insert(Rest { rows: 0, bytes: Bytes::ZERO, count: 0 });
    rest.rows += folded.len();
    rest.bytes += folded.iter().map(|row| row.bytes).sum();
    rest.count += folded.iter().map(|row| row.count).sum::<u64>();
}

fn held_view(words: Words<'_>, snapshot: &Snapshot, wanted: &Wanted) -> HeldView {
    let named = snapshot.held.iter().filter(|held| held.is_named()).map(|held| held.requested).sum();
    let unnamed = snapshot.held.iter().filter(|held| !held.is_named()).map(|held| held.requested).sum();
    let mut by_role = ByRole::default();
    for held in &snapshot.held {
        *by_role.0.entry(held.role).or_default() += held.requested;
    }
    let mut held = HeldView {
        time_ns: snapshot.time.map(|time| time.on_clock(words.origin)),
        in_use_bytes: snapshot.in_use,
        named_bytes: named,
        unnamed_bytes: unnamed,
        slack_bytes: snapshot.slack(),
        before_recording_bytes: snapshot.before_recording,
        by_role,
        rows: rows(words, &snapshot.held, wanted.by),
        rest: None,
    };
    if let Some(top) = wanted.top {
        fold(&mut held, top);
    }
    held
}

fn rows(words: Words<'_>, held: &[Held], by: By) -> Vec<Row> {
    type Key<'a> = (Name, Name, &'a str, &'a str, Option<Role>, &'static str, &'a str, &'a str, Bytes, Stack);
    let mut groups: FxHashMap<Key<'_>, Row> = FxHashMap::default();
    for held in held {
        let key: Key<'_> = match by {
            By::Op => (
                held.op,
                held.shape,
                held.dtype.word(),
                &held.layer,
                Some(held.role),
                held.evidence,
                held.source.as_str(),
                held.variable.as_str(),
                // Of a block without a name the size is the best that is known.
                if held.op.is_empty() { held.requested } else { Bytes::ZERO },
                Stack::EMPTY,
            ),
            By::Layer => {
                (Name::EMPTY, Name::EMPTY, "", &held.layer, None, "", "", "", Bytes::ZERO, Stack::EMPTY)
            }
            By::Role => {
                (Name::EMPTY, Name::EMPTY, "", "", Some(held.role), "", "", "", Bytes::ZERO, Stack::EMPTY)
            }
            By::Stack => (Name::EMPTY, Name::EMPTY, "", "", None, "", "", "", Bytes::ZERO, held.stack),
        };
        let row = row_of(words, held);
        match groups.entry(key) {
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(row);
            }
            std::collections::hash_map::Entry::Occupied(mut slot) => slot.get_mut().join(&row),
        }
    }
    let mut rows: Vec<Row> = groups.into_values().collect();
    rows.sort_by(|a, b| {
        let key =
            |row: &Row| (std::cmp::Reverse(row.bytes), row.op.clone(), row.shape.clone(), row.layer.clone());
        key(a).cmp(&key(b)).then_with(|| {
            let key = |row: &Row| (row.role, row.evidence, row.source.clone(), row.variable.clone());
            key(a).cmp(&key(b)).then_with(|| a.stack.cmp(&b.stack))
        })
    });
    rows
}

fn row_of(words: Words<'_>, held: &Held) -> Row {
    let time = words.op_times.and_then(|times| times.get(&held.op)).filter(|_| !held.op.is_empty());
    Row {
        bytes: held.requested,
        count: held.count,
        op: words.names.get(held.op).to_owned(),
        layer: held.layer.clone(),
        role: held.role.word(),
        shape: words.names.get(held.shape).to_owned(),
        dtype: held.dtype.word(),
        source: held.source.clone(),
        evidence: held.evidence,
        variable: held.variable.clone(),
        stack: words.stacks.texts(held.stack, words.names),
        slack_bytes: held.slack(),
        age_ns: held.age.map(|age| age.nanos()),
        op_calls: time.map(|time| time.calls),
        op_time_ns: time.map(|time| time.total.nanos()),
    }
}

impl Row {
    /// Adds another row to this one; what the two do not share is left empty.
    fn join(&mut self, other: &Row) {
        self.bytes += other.bytes;
        self.count += other.count;
        self.slack_bytes += other.slack_bytes;
        self.age_ns = self.age_ns.max(other.age_ns);
        if self.op != other.op {
            self.op.clear();
            (self.op_calls, self.op_time_ns) = (None, None);
        }
        let keep = |mine: &mut String, theirs: &String| {
            if mine != theirs {
                mine.clear();
            }
        };
        keep(&mut self.layer, &other.layer);
        keep(&mut self.shape, &other.shape);
        keep(&mut self.source, &other.source);
        keep(&mut self.variable, &other.variable);
        if self.stack != other.stack {
            self.stack.clear();
        }
        let keep = |mine: &mut &'static str, theirs: &'static str| {
            if *mine != theirs {
                *mine = "";
            }
        };
        keep(&mut self.role, other.role);
        keep(&mut self.dtype, other.dtype);
        keep(&mut self.evidence, other.evidence);
    }
}

/// The steps that a trace itself shows.
fn traced_steps(trace: &Trace, pool: &PoolTrace) -> Vec<StepView> {
    let history = &trace.history;
    let view = |used: StepUse| StepView {
        pool: history.pool(pool.id).map_or("", |pool| &pool.name).to_owned(),
        host: history.host.clone(),
        pid: history.pid,
        step: used.step.number,
        batches: 1,
        epoch: None,
        phase: used.step.phase.word(),
        how: used.step.how.word(),
        name: history.names.get(used.step.name).to_owned(),
        begin_ns: used.step.begin.on_clock(history.origin),
        peak_bytes: Some(used.peak),
        current_bytes: Some(used.current),
    };
    trace.step_uses(pool).into_iter().map(view).collect()
}

fn long_view(words: Words<'_>, long: &LongHeld) -> LongView {
    let clock = |time: Picos| time.on_clock(words.origin);
    LongView {
        bytes: long.held.requested,
        op: words.names.get(long.held.op).to_owned(),
        layer: long.held.layer.clone(),
        role: long.held.role.word(),
        shape: words.names.get(long.held.shape).to_owned(),
        dtype: long.held.dtype.word(),
        born_ns: clock(long.born),
        freed_ns: long.freed.map(clock),
        held_ns: long.held.age.map_or(0, |age| age.nanos()),
        byte_seconds: long.byte_seconds,
    }
}
