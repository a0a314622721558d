//! What a running recording has told so far, bounded however long it runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::history::HeldPoints;
use crate::recording::folder::ProcessId;
use crate::recording::identity::RankIdentity;
use crate::recording::live::News;
use crate::recording::manifest::RunManifest;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Counters, Mark, Moment, RecordedMarkKind, Sample, Subject, TraceState};
use crate::recording::running::State;
use crate::snapshot::Role;
use crate::source;
use crate::trace::driver_holdings::DriverHoldings;
use crate::trace::{Phase, recorded};
use crate::units::{Bytes, Nanos};
use crate::warning::Warning;

/// Steps of a process that are remembered.
pub const MAX_STEPS_PER_PROCESS: usize = 200;

/// What a recording has told so far.
#[derive(Debug)]
pub struct LiveJob {
    /// Its folder.
    pub path: PathBuf,
    /// Whether it is still being written.
    pub state: State,
    /// The processes that write it, each with all of its numbers, its own here first.
    pub pids: Vec<(u32, Vec<u32>)>,
    /// What could not be read of it.
    pub warnings: Vec<Warning>,
    /// The monotonic clock of this machine, for news that was written a moment ago; `None` while what was written before is read.
    pub reads_at: Option<i64>,
    pub(super) manifest: Option<RunManifest>,
    /// The launchers that have joined.
    pub(super) joined: BTreeMap<ProcessId, RunManifest>,
    pub(super) processes: BTreeMap<ProcessId, LiveProcess>,
    /// What each device held, by the driver's name for it.
    pub(super) history: BTreeMap<String, HeldPoints>,
}

/// What a process of a recording has told so far.
#[derive(Debug)]
pub(super) struct LiveProcess {
    /// With the newest steps only.
    pub(super) recorded: RecordedProcess,
    has_steps: bool,
    is_cut: bool,
    /// By the framework's name for the device.
    pub(super) pools: BTreeMap<String, LivePool>,
    pub(super) roles: Vec<VariableRole>,
    /// What its driver calls made it hold.
    pub(super) holdings: Option<DriverHoldings>,
    resident: Option<i64>,
    /// When it last told anything, on the clocks of its machine.
    pub(super) last: Option<Moment>,
    /// When that was read, if this program was looking: on the monotonic clock of this machine.
    pub(super) heard: Option<i64>,
    pub(super) exception: Option<String>,
    /// The error that ended it.
    pub(super) failure: Option<ProcessFailure>,
    /// Number of steps that it has ended, forgotten ones included.
    pub(super) steps_seen: u64,
    pub(super) has_ended: bool,
    is_traced: bool,
}

/// The error that ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessFailure {
    /// Whether an allocation failed.
    pub is_out_of_memory: bool,
    /// When; Unix time.
    pub at: Nanos,
}

/// The newest figures of a framework's pool, each as old as it is.
#[derive(Debug, Default)]
pub(super) struct LivePool {
    pub(super) current: Option<i64>,
    pub(super) peak: Option<i64>,
    pub(super) taken: Option<i64>,
    pub(super) limit: Option<i64>,
    reason: Option<String>,
}

/// The variables of a process that have a role in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableRole {
    /// The role, as the framework's inventory names it.
    pub role: Role,
    /// How many variables.
    pub variables: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// A step of a process on one device.
#[derive(Clone, Debug)]
pub struct LiveStep {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: Phase,
    /// The epoch it belongs to.
    pub epoch: Option<u64>,
    /// When it ended; Unix time.
    pub end: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// The most in use during it.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
}

impl LivePool {
    fn take(&mut self, read: &Counters) {
        self.current = read.current.or(self.current);
        // A peak that was reset is not the highest of the run.
        self.peak = self.peak.max(read.peak).max(read.current);
        self.taken = read.pool.or(self.taken);
        self.limit = read.limit.or(self.limit);
        self.reason = read.reason.clone().or(self.reason.take());
    }
}

impl LiveJob {
    /// A recording that has told nothing yet.
    #[must_use]
    pub fn new(path: PathBuf) -> LiveJob {
        LiveJob {
            path,
            state: State::Running,
            pids: Vec::new(),
            warnings: Vec::new(),
            reads_at: None,
            manifest: None,
            joined: BTreeMap::new(),
            processes: BTreeMap::new(),
            history: BTreeMap::new(),
        }
    }

    /// What its launchers say, the first one first.
    pub fn manifests(&self) -> impl Iterator<Item = &RunManifest> {
        self.manifest.iter().chain(self.joined.values())
    }

    /// What the launcher of a process says.
    pub(super) fn manifest_of(&self, process: &RecordedProcess) -> Option<&RunManifest> {
        let run: Option<ProcessId> = process.facts.identity.run.as_deref().and_then(|name| name.parse().ok());
        run.and_then(|id| self.joined.get(&id)).or(self.manifest.as_ref())
    }

    /// Its processes.
    pub fn ids(&self) -> impl Iterator<Item = &ProcessId> {
        self.processes.keys()
    }

    /// Whether one of them has written a trace of its allocations, which tells roles.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.processes.values().any(|process| process.is_traced)
    }

    /// Goes on by what came.
    pub fn take(&mut self, news: News<'_>) {
        match news {
            News::Manifest(manifest) => self.manifest = Some(*manifest),
            News::Joined(id, manifest) => drop(self.joined.insert(id.clone(), *manifest)),
            News::Facts(id, facts) => self.process(id).recorded.facts = *facts,
            News::Marks(id, marks) => self.heard(id).marks(marks),
            News::Samples(id, samples) => self.heard(id).samples(&samples),
            News::Inventories(id, inventories) => {
                if let Some(newest) = inventories.last() {
                    let process = self.process(id);
                    process.roles.clear();
                    for variable in &newest.variables {
                        match process.roles.iter_mut().find(|known| known.role == variable.role) {
                            Some(known) => {
                                known.variables += 1;
                                known.bytes += variable.bytes;
                            }
                            None => process.roles.push(VariableRole {
                                role: variable.role,
                                variables: 1,
                                bytes: variable.bytes,
                            }),
                        }
                    }
                    process.roles.sort_by_key(|role| std::cmp::Reverse(role.bytes));
                }
            }
            News::DriverCalls(id, calls) => {
                let process = self.process(id);
                let mut holdings = DriverHoldings::of(&calls);
                if let Some(framework) = process.recorded.facts.known_framework() {
                    for device in holdings.devices() {
                        holdings.claim(device, framework, std::iter::empty(), &[]);
                    }
                }
                process.holdings = Some(holdings);
            }
            News::Trace(id, path) => self.process(id).recorded.trace = Some(path),
            News::Driver(rows) => {
                for row in rows.iter().filter(|row| row.subject == Subject::Device) {
                    let (Some(total), Some(free)) = (row.total, row.free) else { continue };
                    let points = self.history.entry(row.device.clone()).or_default();
                    points.push(row.time.monotonic, total.saturating_sub(free));
                }
            }
        }
    }

    /// A process that has just told something.
    fn heard(&mut self, id: &ProcessId) -> &mut LiveProcess {
        let at = self.reads_at;
        let process = self.process(id);
        process.heard = at.or(process.heard);
        process
    }

    fn process(&mut self, id: &ProcessId) -> &mut LiveProcess {
        self.processes.entry(id.clone()).or_insert_with(|| LiveProcess {
            recorded: RecordedProcess::new(id.clone()),
            has_steps: false,
            is_cut: false,
            pools: BTreeMap::new(),
            roles: Vec::new(),
            holdings: None,
            resident: None,
            last: None,
            heard: None,
            exception: None,
            failure: None,
            steps_seen: 0,
            has_ended: false,
            is_traced: false,
        })
    }

    /// Which job it is a part of. A program that records itself tells it in its processes.
    pub(super) fn identity(&self) -> RankIdentity {
        let processes = self.processes.values().map(|process| &process.recorded.facts.identity);
        let mut all = self.manifest.iter().map(|manifest| &manifest.identity).chain(processes);
        all.find(|identity| identity.job.is_some()).cloned().unwrap_or_default()
    }

    /// Its command line; empty where nobody told it.
    pub(super) fn command(&self) -> String {
        self.manifest.as_ref().map_or(String::new(), |manifest| manifest.command.join(" "))
    }
}

impl LiveProcess {
    fn marks(&mut self, marks: Vec<Mark>) {
        for mark in marks {
            self.told(mark.time);
            for read in &mark.counters {
                self.pools.entry(read.device.clone()).or_default().take(read);
            }
            match mark.kind {
                RecordedMarkKind::Step => {
                    self.has_steps = true;
                    self.steps_seen += 1;
                }
                RecordedMarkKind::Exception => {
                    let text = mark.label.clone().unwrap_or_default();
                    let is_out_of_memory = is_out_of_memory(&text);
                    self.failure = Some(ProcessFailure { is_out_of_memory, at: Nanos(mark.time.wall) });
                    self.exception = Some(text);
                }
                RecordedMarkKind::End => self.has_ended = true,
                RecordedMarkKind::Trace => self.is_traced |= mark.trace_state == Some(TraceState::Written),
                _ => {}
            }
            let is_call = mark.kind == RecordedMarkKind::Call;
            if mark.kind == RecordedMarkKind::Step || (is_call && !self.has_steps) {
                self.recorded.marks.push(mark);
            }
        }
        if self.has_steps {
            self.recorded.marks.retain(|mark| mark.kind == RecordedMarkKind::Step);
        }
        if self.recorded.marks.len() > 2 * MAX_STEPS_PER_PROCESS {
            let surplus = self.recorded.marks.len() - MAX_STEPS_PER_PROCESS - 1;
            self.recorded.marks.drain(..surplus);
            self.is_cut = true;
        }
    }

    fn told(&mut self, at: Moment) {
        if self.last.is_none_or(|last| last.monotonic < at.monotonic) {
            self.last = Some(at);
        }
    }

    fn samples(&mut self, samples: &[Sample]) {
        for sample in samples {
            self.told(sample.time);
            self.resident = sample.resident.or(self.resident);
            if let Some(read) = &sample.counters {
                self.pools.entry(read.device.clone()).or_default().take(read);
            }
        }
    }

    /// Its newest steps on a device, oldest first.
    pub(super) fn steps(&self, device: &str) -> Vec<LiveStep> {
        let all = recorded::steps(&self.recorded, &[]);
        let of_device: Vec<_> =
            all.into_iter().filter(|step| step.device == device || step.device.is_empty()).collect();
        // Of the first that is left, what came before is forgotten, and with it whether its peak is its own.
        let skipped = (of_device.len().saturating_sub(MAX_STEPS_PER_PROCESS)).max(usize::from(self.is_cut));
        let live = |step: &recorded::RecordedStep| LiveStep {
            number: step.number,
            phase: step.phase,
            epoch: step.epoch,
            end: Nanos(step.end.wall),
            duration: Nanos(step.end.monotonic.saturating_sub(step.begin.monotonic)),
            peak: step.peak,
            current: step.current,
        };
        of_device.iter().skip(skipped).map(live).collect()
    }
}

/// Whether the text of an error says that an allocation failed.
fn is_out_of_memory(text: &str) -> bool {
    source::read_failures_in(text.as_bytes(), Path::new("exception"))
        .is_ok_and(|found| !found.list.is_empty())
}
