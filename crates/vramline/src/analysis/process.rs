//! One process of a recording: its steps, epochs, phases, marks and variables, on the clock that it has in a report.

use std::collections::BTreeMap;

use crate::recording::manifest::{Exit, RunManifest};
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{Counters, Mark, Moment, RecordedMarkKind};
use crate::snapshot::Role;
use crate::trace::recorded::{self, RecordedStep, TracedWindow};
use crate::trace::{How, Phase, PoolTrace, StepUse, Trace};
use crate::units::{Bytes, Nanos};

/// The job of a recording.
#[derive(Clone, Debug)]
pub struct JobFacts {
    /// What was run; empty for a program that records itself.
    pub command: Vec<String>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// How long it ran.
    pub lasted: Option<Nanos>,
    /// The devices of the machine that it could use.
    pub devices: Vec<JobDevice>,
    /// Its processes.
    pub processes: Vec<ProcessIdentity>,
}

/// A device that a job could use.
#[derive(Clone, Debug)]
pub struct JobDevice {
    /// The device, as pools name it: `GPU:0`.
    pub device: String,
    /// The product's name.
    pub name: Option<String>,
    /// All its memory.
    pub total: Option<Bytes>,
}

/// Who a process of a recording is.
#[derive(Clone, Debug)]
pub struct ProcessIdentity {
    /// Its name in the recording.
    pub id: String,
    /// The machine.
    pub host: String,
    /// Its number.
    pub pid: u64,
    /// Its rank in a distributed job.
    pub rank: Option<u64>,
    /// Python's version.
    pub python: String,
    /// Frameworks with their versions.
    pub frameworks: Vec<(String, String)>,
    /// The framework that Keras works on.
    pub backend: Option<String>,
    /// The process it was forked from.
    pub forked_from: Option<String>,
}

/// A step of a process, with the figures of one pool.
#[derive(Clone, Debug)]
pub struct PoolStep {
    /// The pool's name where a trace shows it, else the device.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// Its number.
    pub number: i64,
    /// How many batches it ran.
    pub batches: u64,
    /// The fit it belongs to, from 1.
    pub fit: Option<u64>,
    /// Its epoch.
    pub epoch: Option<u64>,
    /// What it did.
    pub phase: Phase,
    /// How it is known.
    pub how: How,
    /// What was called.
    pub name: String,
    /// When it began.
    pub begin: Nanos,
    /// The most in use during it.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
}

/// An epoch of a process, with the figures of one pool.
#[derive(Clone, Debug)]
pub struct PoolEpoch {
    /// As in a step.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// The fit it belongs to, from 1.
    pub fit: Option<u64>,
    /// Its number.
    pub epoch: u64,
    /// When it began.
    pub begin: Nanos,
    /// The most in use during it.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
}

/// The steps of a fit that did the same, or of a process outside of fits, with the figures of one pool; the first of them apart: it builds what the others use.
#[derive(Clone, Debug)]
pub struct PoolPhase {
    /// As in a step.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// The fit they belong to, from 1.
    pub fit: Option<u64>,
    /// What they did.
    pub phase: Phase,
    /// Who told of the first.
    pub how: How,
    /// How many.
    pub steps: u64,
    /// Their batches.
    pub batches: u64,
    /// The peak of the first.
    pub first_peak: Option<Bytes>,
    /// The highest peak of the others.
    pub later_peak: Option<Bytes>,
    /// How many of the others have a peak of their own.
    pub later_peaks_known: u64,
    /// In use at the end of the last.
    pub current: Option<Bytes>,
}

/// A mark that is neither a step nor an epoch, with the counters of one device.
#[derive(Clone, Debug)]
pub struct MarkFigures {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// What sort of mark.
    pub kind: RecordedMarkKind,
    /// What the program or Vramline says of it.
    pub label: String,
    /// The step it belongs to.
    pub step: Option<i64>,
    /// When.
    pub time: Nanos,
    /// The device; empty where no counters could be read.
    pub device: String,
    /// In use then.
    pub current: Option<Bytes>,
    /// The most in use until then.
    pub peak: Option<Bytes>,
}

/// The variables of one role that a process listed.
#[derive(Clone, Debug)]
pub struct RoleVariables {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// What they are for.
    pub role: Role,
    /// How many.
    pub variables: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// What of them lies in the pools that a trace shows.
    pub in_pool: Option<Bytes>,
}

impl JobFacts {
    pub(super) fn of(recorded: &Recorded) -> JobFacts {
        let manifest = recorded.manifest.as_ref();
        JobFacts {
            command: manifest.map(|manifest| manifest.command.clone()).unwrap_or_default(),
            exit: exit_of(recorded),
            lasted: manifest.and_then(|manifest| manifest.clocks.lasted()),
            devices: manifest.map(devices).unwrap_or_default(),
            processes: recorded.processes.iter().map(ProcessIdentity::of).collect(),
        }
    }
}

/// How the job ended: as the launcher did that failed, if there are several. `None` while one of them runs.
fn exit_of(recorded: &Recorded) -> Option<Exit> {
    let exits: Option<Vec<Exit>> = recorded.runs().map(|run| run.manifest?.exit).collect();
    let exits = exits?;
    exits.iter().find(|exit| **exit != Exit::Code(0)).or(exits.first()).copied()
}

/// The devices of a manifest, by the names that a process had for them.
pub(super) fn devices(manifest: &RunManifest) -> Vec<JobDevice> {
    let named = |number: usize| {
        let uuid = manifest.uuid_of_device(number)?;
        let device = manifest.devices.iter().find(|device| device.uuid.as_deref() == Some(&uuid))?;
        Some(JobDevice {
            device: format!("GPU:{number}"),
            name: device.name.clone(),
            total: device.total_bytes,
        })
    };
    (0..manifest.devices.len()).map_while(named).collect()
}

impl ProcessIdentity {
    fn of(process: &RecordedProcess) -> ProcessIdentity {
        let facts = &process.facts;
        ProcessIdentity {
            id: process.id.to_string(),
            host: process.id.host().to_owned(),
            pid: u64::from(process.id.pid()),
            rank: facts.rank,
            python: facts.python.clone(),
            frameworks: facts.frameworks.clone().into_iter().collect(),
            backend: facts.backend.clone(),
            forked_from: facts.forked_from.clone(),
        }
    }
}

/// One process of a recording with its trace.
pub(super) struct ProcessStory<'a> {
    pub(super) process: &'a RecordedProcess,
    pub(super) trace: Option<&'a Trace>,
    /// All its traces, the first among them.
    windows: Vec<TracedWindow<'a>>,
    /// The names of the pools that the trace shows, by device.
    pub(super) pools: BTreeMap<String, String>,
}

impl<'a> ProcessStory<'a> {
    pub(super) fn of(process: &'a RecordedProcess, trace: Option<&'a Trace>) -> ProcessStory<'a> {
        // The pool with the highest peak of a device stands for it; it comes first, and the last entry of a key counts.
        let named = trace.into_iter().flat_map(|trace| {
            let name =
                |pool: &PoolTrace| Some((trace.device_of(pool), trace.history.pool(pool.id)?.name.clone()));
            trace.pools.iter().rev().filter_map(name)
        });
        ProcessStory { process, trace, windows: Vec::new(), pools: named.collect() }
    }

    /// A process with all its traces; the steps that any of them covers get their peaks from it.
    pub(super) fn with_windows(
        process: &'a RecordedProcess,
        windows: Vec<TracedWindow<'a>>,
    ) -> ProcessStory<'a> {
        let trace = windows.first().map(|first| first.trace);
        let mut story = ProcessStory::of(process, trace);
        // A first trace that is over early may show no pool at all.
        for later in windows.iter().skip(1) {
            for (device, name) in ProcessStory::of(process, Some(later.trace)).pools {
                story.pools.entry(device).or_insert(name);
            }
        }
        ProcessStory { windows, ..story }
    }

    pub(super) fn host(&self) -> String {
        self.process.id.host().to_owned()
    }

    pub(super) fn pid(&self) -> u64 {
        u64::from(self.process.id.pid())
    }

    /// The pool's name where a trace shows it, else the device.
    fn pool(&self, device: &str) -> String {
        self.pools.get(device).cloned().unwrap_or_else(|| device.to_owned())
    }

    /// On the trace's clock where there is one, else since the first mark.
    pub(super) fn clock(&self, time: Moment) -> Nanos {
        let on_trace = self.trace.and_then(|trace| recorded::on_clock(&trace.history, time));
        let first = self.process.marks.first().map_or(0, |mark| mark.time.monotonic);
        on_trace.unwrap_or(Nanos(time.monotonic.saturating_sub(first)))
    }

    pub(super) fn recorded_steps(&self) -> Vec<RecordedStep> {
        recorded::steps(self.process, &self.windows)
    }

    /// The steps that the process announced, else those that the trace shows.
    pub(super) fn steps(&self, announced: &[RecordedStep]) -> Vec<PoolStep> {
        let step = |step: &RecordedStep| PoolStep {
            pool: self.pool(&step.device),
            host: self.host(),
            pid: Some(self.pid()),
            number: step.number,
            batches: step.batches,
            fit: step.fit,
            epoch: step.epoch,
            phase: step.phase,
            how: step.how,
            name: step.label.clone(),
            begin: self.clock(step.begin),
            peak: step.peak,
            current: step.current,
        };
        let traced = self.trace.filter(|_| announced.is_empty());
        let seen = traced.into_iter().flat_map(|trace| {
            let of_pool = trace.pools.iter().flat_map(|pool| traced_steps(trace, pool));
            of_pool.map(|step| PoolStep { pid: Some(self.pid()), ..step })
        });
        announced.iter().map(step).chain(seen).collect()
    }

    pub(super) fn epochs(&self, steps: &[RecordedStep]) -> Vec<PoolEpoch> {
        let of = |epoch: RecordedStep| {
            // Without a peak of its own an epoch has that of its steps, if each is known.
            let inside = steps.iter().filter(|step| {
                step.device == epoch.device
                    && step.end.monotonic <= epoch.end.monotonic
                    && step.begin.monotonic >= epoch.begin.monotonic
            });
            let of_steps = inside.map(|step| step.peak).collect::<Option<Vec<Bytes>>>();
            PoolEpoch {
                pool: self.pool(&epoch.device),
                host: self.host(),
                pid: Some(self.pid()),
                fit: epoch.fit,
                epoch: epoch.epoch.unwrap_or_default(),
                begin: self.clock(epoch.begin),
                peak: epoch.peak.or_else(|| of_steps.and_then(|peaks| peaks.into_iter().max())),
                current: epoch.current,
            }
        };
        recorded::epochs(self.process, &self.windows).into_iter().map(of).collect()
    }

    /// Steps by pool, fit and phase.
    pub(super) fn phases(&self, steps: &[RecordedStep]) -> Vec<PoolPhase> {
        let mut phases: Vec<PoolPhase> = Vec::new();
        for step in steps {
            let pool = self.pool(&step.device);
            let is_it = |phase: &&mut PoolPhase| {
                (&phase.pool, phase.fit, phase.phase) == (&pool, step.fit, step.phase)
            };
            let known = phases.iter_mut().find(is_it);
            let Some(phase) = known else {
                phases.push(PoolPhase {
                    pool,
                    host: self.host(),
                    pid: Some(self.pid()),
                    fit: step.fit,
                    phase: step.phase,
                    how: step.how,
                    steps: 1,
                    batches: step.batches,
                    first_peak: step.peak,
                    later_peak: None,
                    later_peaks_known: 0,
                    current: step.current,
                });
                continue;
            };
            phase.steps += 1;
            phase.batches = phase.batches.saturating_add(step.batches);
            phase.current = step.current;
            if let Some(peak) = step.peak {
                phase.later_peak = phase.later_peak.max(Some(peak));
                phase.later_peaks_known += 1;
            }
        }
        // Fits first, what stands alone after them.
        let order = |phase: &PoolPhase| (phase.fit.is_none(), phase.fit, phase.phase);
        phases.sort_by(|a, b| (&a.pool, order(a)).cmp(&(&b.pool, order(b))));
        phases
    }

    /// What is neither a step nor an epoch: labels, settings, the trace's ends, exceptions.
    pub(super) fn marks(&self) -> Vec<MarkFigures> {
        use RecordedMarkKind::{Call, Epoch, Step};
        let is_told = |mark: &&Mark| !matches!(mark.kind, Step | Call | Epoch);
        let bytes = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).map(Bytes);
        let figures = |mark: &Mark, device: &str, current, peak| MarkFigures {
            host: self.host(),
            pid: Some(self.pid()),
            kind: mark.kind.clone(),
            label: mark.label.clone().unwrap_or_default(),
            step: mark.step,
            time: self.clock(mark.time),
            device: device.to_owned(),
            current: bytes(current),
            peak: bytes(peak),
        };
        let mut marks = Vec::new();
        for mark in self.process.marks.iter().filter(is_told) {
            if mark.counters.is_empty() {
                marks.push(figures(mark, "", None, None));
            }
            let read = mark.counters.iter();
            marks.extend(read.map(|read| figures(mark, &read.device, read.current, read.peak)));
        }
        marks
    }

    pub(super) fn inventory(&self) -> Vec<RoleVariables> {
        // In the order of the words, as the rows always stood.
        let mut roles: BTreeMap<&str, (Role, u64, Bytes)> = BTreeMap::new();
        let variables = self.process.inventories.last().map(|inventory| &inventory.variables);
        for variable in variables.into_iter().flatten() {
            let none = (variable.role, 0, Bytes::ZERO);
            let (_, count, bytes) = roles.entry(variable.role.word()).or_insert(none);
            *count += 1;
            *bytes += variable.bytes;
        }
        let has_address = variables.into_iter().flatten().any(|variable| variable.address.is_some());
        let of = |(role, variables, bytes): (Role, u64, Bytes)| RoleVariables {
            host: self.host(),
            pid: Some(self.pid()),
            role,
            variables,
            bytes,
            in_pool: self.listed_bytes(role).filter(|_| has_address),
        };
        roles.into_values().map(of).collect()
    }

    /// Bytes of a role that the program lists and that a trace shows; of several traces the one that shows most.
    fn listed_bytes(&self, role: Role) -> Option<Bytes> {
        let windows = self.windows.iter().map(|window| window.trace);
        self.trace.into_iter().chain(windows).map(|trace| trace.listed_bytes(role)).max()
    }

    fn counters(&self) -> impl Iterator<Item = &'a Counters> {
        self.process.samples.iter().filter_map(|sample| sample.counters.as_ref())
    }

    /// The highest figure that the framework told of each device, at any moment of the run.
    pub(super) fn lifetime_peaks(&self) -> BTreeMap<String, Option<Bytes>> {
        let marks = self.process.marks.iter().flat_map(|mark| &mark.counters);
        let mut peaks: BTreeMap<String, Option<Bytes>> = BTreeMap::new();
        for counters in marks.chain(self.counters()) {
            let told =
                counters.peak.max(counters.current).and_then(|peak| u64::try_from(peak).ok()).map(Bytes);
            let highest = peaks.entry(counters.device.clone()).or_default();
            *highest = (*highest).max(told);
        }
        peaks
    }

    /// Why the framework told nothing of a device.
    pub(super) fn reason(&self, device: &str) -> Option<&'a str> {
        self.counters().filter(|read| read.device == device).find_map(|read| read.reason.as_deref())
    }

    pub(super) fn limit(&self, device: &str) -> Option<Bytes> {
        let limit = self.counters().filter(|read| read.device == device).find_map(|read| read.limit);
        limit.and_then(|limit| u64::try_from(limit).ok()).map(Bytes)
    }
}

/// The steps that a trace itself shows.
pub(super) fn traced_steps(trace: &Trace, pool: &PoolTrace) -> Vec<PoolStep> {
    let history = &trace.history;
    let step = |used: StepUse| PoolStep {
        pool: history.pool(pool.id).map_or("", |pool| &pool.name).to_owned(),
        host: history.host.clone(),
        pid: history.pid,
        number: used.step.number,
        batches: 1,
        fit: None,
        epoch: None,
        phase: used.step.phase,
        how: used.step.how,
        name: history.names.get(used.step.name).to_owned(),
        begin: used.step.begin.on_clock(history.origin),
        peak: Some(used.peak),
        current: Some(used.current),
    };
    trace.step_uses(pool).into_iter().map(step).collect()
}
