//! The parts of a report that only a recording has: the job, its phases, epochs, marks and variables.
//!
//! The figures come from `trace::recorded`; here they become the rows of the document.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::{PoolView, StepView};
use crate::recording::manifest::Exit;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{Mark, Moment};
use crate::snapshot::Role;
use crate::trace::recorded::{self, RecordedStep};
use crate::trace::{Phase, Trace};
use crate::units::{Bytes, Nanos};

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct RunView {
    pub command: Vec<String>,
    pub exit: Option<String>,
    pub processes: Vec<ProcessView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct ProcessView {
    pub id: String,
    pub host: String,
    pub pid: u64,
    pub rank: Option<u64>,
    pub python: String,
    pub frameworks: Vec<String>,
    pub backend: Option<String>,
    pub forked_from: Option<String>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct EpochView {
    pub pool: String,
    pub host: String,
    pub pid: Option<u64>,
    pub epoch: u64,
    pub begin_ns: Nanos,
    pub peak_bytes: Option<Bytes>,
    pub current_bytes: Option<Bytes>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PhaseView {
    pub pool: String,
    pub host: String,
    pub pid: Option<u64>,
    pub phase: &'static str,
    pub how: &'static str,
    pub steps: u64,
    pub batches: u64,
    pub first_peak_bytes: Option<Bytes>,
    pub later_peak_bytes: Option<Bytes>,
    pub later_peaks_known: u64,
    pub current_bytes: Option<Bytes>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct MarkView {
    pub host: String,
    pub pid: Option<u64>,
    pub kind: String,
    pub label: String,
    pub step: Option<i64>,
    pub time_ns: Nanos,
    pub device: String,
    pub current_bytes: Option<Bytes>,
    pub peak_bytes: Option<Bytes>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct InventoryView {
    pub host: String,
    pub pid: Option<u64>,
    pub role: String,
    pub variables: u64,
    pub bytes: Bytes,
    pub in_pool_bytes: Option<Bytes>,
}

/// What the job was.
pub(super) fn job(recorded: &Recorded) -> RunView {
    let manifest = recorded.manifest.as_ref();
    RunView {
        command: manifest.map(|manifest| manifest.command.clone()).unwrap_or_default(),
        exit: manifest.and_then(|manifest| manifest.exit).map(|exit| match exit {
            Exit::Code(code) => format!("code {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        }),
        processes: recorded.processes.iter().map(process).collect(),
    }
}

fn process(process: &RecordedProcess) -> ProcessView {
    let facts = &process.facts;
    ProcessView {
        id: process.id.to_string(),
        host: process.id.host().to_owned(),
        pid: u64::from(process.id.pid()),
        rank: facts.rank,
        python: facts.python.clone(),
        frameworks: facts.frameworks.iter().map(|(name, version)| format!("{name} {version}")).collect(),
        backend: facts.backend.clone(),
        forked_from: facts.forked_from.clone(),
    }
}

/// One process of a recording with its trace, and what it is called in the rows.
pub(super) struct Whole<'a> {
    pub(super) process: &'a RecordedProcess,
    pub(super) trace: Option<&'a Trace>,
    /// The names of the pools that the trace shows, by device.
    pub(super) pools: BTreeMap<String, String>,
}

impl Whole<'_> {
    fn host(&self) -> String {
        self.process.id.host().to_owned()
    }

    fn pid(&self) -> Option<u64> {
        Some(u64::from(self.process.id.pid()))
    }

    /// The pool's name where a trace shows it, else the device.
    fn pool(&self, device: &str) -> String {
        self.pools.get(device).cloned().unwrap_or_else(|| device.to_owned())
    }

    /// On the trace's clock where there is one, else since the first mark.
    fn clock(&self, time: Moment) -> Nanos {
        let on_trace = self.trace.and_then(|trace| recorded::on_clock(&trace.history, time));
        let first = self.process.marks.first().map_or(0, |mark| mark.time.monotonic);
        on_trace.unwrap_or(Nanos(time.monotonic.saturating_sub(first)))
    }

    pub(super) fn steps(&self) -> Vec<RecordedStep> {
        recorded::steps(self.process, self.trace)
    }

    pub(super) fn step_view(&self, step: &RecordedStep) -> StepView {
        StepView {
            pool: self.pool(&step.device),
            host: self.host(),
            pid: self.pid(),
            step: step.number,
            batches: step.batches,
            epoch: step.epoch,
            phase: step.phase.word(),
            how: step.how.word(),
            name: step.label.clone(),
            begin_ns: self.clock(step.begin),
            peak_bytes: step.peak,
            current_bytes: step.current,
        }
    }

    pub(super) fn epochs(&self, steps: &[RecordedStep]) -> Vec<EpochView> {
        let view = |epoch: RecordedStep| {
            // Without a peak of its own an epoch has that of its steps, if each is known.
            let inside = steps.iter().filter(|step| {
                step.device == epoch.device
                    && step.end.monotonic <= epoch.end.monotonic
                    && step.begin.monotonic >= epoch.begin.monotonic
            });
            let of_steps = inside.map(|step| step.peak).collect::<Option<Vec<Bytes>>>();
            EpochView {
                pool: self.pool(&epoch.device),
                host: self.host(),
                pid: self.pid(),
                epoch: epoch.epoch.unwrap_or_default(),
                begin_ns: self.clock(epoch.begin),
                peak_bytes: epoch.peak.or_else(|| of_steps.and_then(|peaks| peaks.into_iter().max())),
                current_bytes: epoch.current,
            }
        };
        recorded::epochs(self.process, self.trace).into_iter().map(view).collect()
    }

    /// Steps by device and phase, the first of each apart: it builds what the others use.
    pub(super) fn phases(&self, steps: &[RecordedStep]) -> Vec<PhaseView> {
        let mut phases: Vec<PhaseView> = Vec::new();
        let mut add = |step: &RecordedStep, pool: String| {
            let known =
                phases.iter_mut().find(|phase| phase.pool == pool && phase.phase == step.phase.word());
            let Some(phase) = known else {
                phases.push(PhaseView {
                    pool,
                    host: self.host(),
                    pid: self.pid(),
                    phase: step.phase.word(),
                    how: step.how.word(),
                    steps: 1,
                    batches: step.batches,
                    first_peak_bytes: step.peak,
                    later_peak_bytes: None,
                    later_peaks_known: 0,
                    current_bytes: step.current,
                });
                return;
            };
            phase.steps += 1;
            phase.batches = phase.batches.saturating_add(step.batches);
            phase.current_bytes = step.current;
            if let Some(peak) = step.peak {
                phase.later_peak_bytes = phase.later_peak_bytes.max(Some(peak));
                phase.later_peaks_known += 1;
            }
        };
        for step in steps {
            add(step, self.pool(&step.device));
        }
        let rank = |word: &str| {
            [Phase::Train, Phase::Validation, Phase::Predict, Phase::Other]
                .iter()
                .position(|phase| phase.word() == word)
        };
        phases.sort_by(|a, b| (&a.pool, rank(a.phase)).cmp(&(&b.pool, rank(b.phase))));
        phases
    }

    /// What is neither a step nor an epoch: labels, settings, the trace's ends, exceptions.
    pub(super) fn marks(&self) -> Vec<MarkView> {
        let told = |mark: &&Mark| !matches!(mark.kind.as_str(), "step" | "call" | "epoch");
        let bytes = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).map(Bytes);
        let view = |mark: &Mark, device: &str, current, peak| MarkView {
            host: self.host(),
            pid: self.pid(),
            kind: mark.kind.clone(),
            label: mark.label.clone().unwrap_or_default(),
            step: mark.step,
            time_ns: self.clock(mark.time),
            device: device.to_owned(),
            current_bytes: bytes(current),
            peak_bytes: bytes(peak),
        };
        let mut views = Vec::new();
        for mark in self.process.marks.iter().filter(told) {
            if mark.counters.is_empty() {
                views.push(view(mark, "", None, None));
            }
            views.extend(mark.counters.iter().map(|read| view(mark, &read.device, read.current, read.peak)));
        }
        views
    }

    pub(super) fn inventory(&self) -> Vec<InventoryView> {
        let mut roles: BTreeMap<&str, (u64, Bytes)> = BTreeMap::new();
        let variables = self.process.inventories.last().map(|inventory| &inventory.variables);
        for variable in variables.into_iter().flatten() {
            let (count, bytes) = roles.entry(&variable.role).or_default();
            *count += 1;
            *bytes += variable.bytes;
        }
        let has_address = variables.into_iter().flatten().any(|variable| variable.address.is_some());
        let view = |(role, (variables, bytes)): (&str, (u64, Bytes))| InventoryView {
            host: self.host(),
            pid: self.pid(),
            role: role.to_owned(),
            variables,
            bytes,
            in_pool_bytes: self.trace.filter(|_| has_address).and_then(|trace| {
                let role = Role::ALL.into_iter().find(|known| known.word() == role)?;
                Some(trace.listed_bytes(role))
            }),
        };
        roles.into_iter().map(view).collect()
    }

    /// The highest figure that the framework told of each device, at any moment of the run.
    pub(super) fn lifetime_peaks(&self) -> BTreeMap<String, Option<Bytes>> {
        let marks = self.process.marks.iter().flat_map(|mark| &mark.counters);
        let samples = self.process.samples.iter().filter_map(|sample| sample.counters.as_ref());
        let mut peaks: BTreeMap<String, Option<Bytes>> = BTreeMap::new();
        for counters in marks.chain(samples) {
            let told =
                counters.peak.max(counters.current).and_then(|peak| u64::try_from(peak).ok()).map(Bytes);
            let highest = peaks.entry(counters.device.clone()).or_default();
            *highest = (*highest).max(told);
        }
        peaks
    }

    /// Why the framework told nothing of a device.
    pub(super) fn reason(&self, device: &str) -> Option<&str> {
        let samples = self.process.samples.iter().filter_map(|sample| sample.counters.as_ref());
        samples.filter(|read| read.device == device).find_map(|read| read.reason.as_deref())
    }

    pub(super) fn limit(&self, device: &str) -> Option<Bytes> {
        let samples = self.process.samples.iter().filter_map(|sample| sample.counters.as_ref());
        let told = samples.filter(|read| read.device == device).find_map(|read| read.limit);
        told.and_then(|limit| u64::try_from(limit).ok()).map(Bytes)
    }

    /// A pool that only counters are known of.
    pub(super) fn bare_pool(&self, device: &str, peak: Option<Bytes>) -> PoolView {
        PoolView {
            name: device.to_owned(),
            device: device.to_owned(),
            host: self.host(),
            pid: self.pid(),
            rank: self.process.facts.rank,
            from_start: None,
            limit_bytes: self.limit(device),
            allocs: None,
            frees: None,
            peak_bytes: peak,
            lifetime_peak_bytes: peak,
            peak_at_ns: None,
            at_peak: None,
            at: None,
            fragmentation_at_peak: None,
            before_recording: None,
            caching: None,
            replay: None,
            held_long: Vec::new(),
        }
    }
}
