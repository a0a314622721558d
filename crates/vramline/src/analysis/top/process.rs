//! Who holds memory of a device, and what a recording tells of that process.

use super::job::{LiveJob, LivePool, LiveProcess, LiveStep, ProcessFailure, VariableRole};
use super::sight::MachineSight;
use crate::ledger::{BesidePool, HeldLine, PoolFigures, SourcedBytes, Teller};
use crate::recording::folder::ProcessId;
use crate::recording::identity::RankIdentity;
use crate::recording::rows::HOST;
use crate::recording::running::State;
use crate::units::{Bytes, Nanos};

/// A process on a device, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct ProcessUse {
    /// Its number, as the driver or its recording tells it.
    pub pid: u32,
    /// The device; a framework's own name where no device of this machine is known to be meant, empty where none is used yet.
    pub device: String,
    /// Its pool, by the framework's name for the device; empty where none is known.
    pub pool: String,
    /// Whether it is a recorded process that runs on this machine.
    pub is_running_here: bool,
    /// Its job, by its place in the list.
    pub job: Option<usize>,
    /// Its rank in a distributed job.
    pub rank: Option<u64>,
    /// What else is known of its place in the job.
    pub identity: RankIdentity,
    /// Its command line; empty where it is not to be seen from here.
    pub command: String,
    /// The framework that holds the memory.
    pub framework: Option<ProcessFramework>,
    /// What it holds of the device.
    pub held: Option<Bytes>,
    /// What its pool has taken.
    pub taken: Option<Bytes>,
    /// Of the pool, in use.
    pub in_use: Option<Bytes>,
    /// Of the pool, not in use.
    pub cached: Option<Bytes>,
    /// The most that the pool may take.
    pub limit: Option<Bytes>,
    /// The most that was in use so far.
    pub peak: Option<Bytes>,
    /// By how much the peak could rise.
    pub headroom: Option<Bytes>,
    /// For how long it has told nothing.
    pub silent: Option<Nanos>,
    /// The exception that ended it.
    pub exception: Option<String>,
    /// The same as a fact, with its time.
    pub failure: Option<ProcessFailure>,
    /// Its variables, by role.
    pub roles: Vec<VariableRole>,
    /// What its driver calls took outside its pool, if they are recorded.
    pub outside: Vec<HeldLine>,
    /// Its newest steps on the device, oldest first.
    pub steps: Vec<LiveStep>,
    /// Number of steps that it has ended; `None` where it reports none.
    pub steps_seen: Option<u64>,
}

impl ProcessUse {
    /// The last step that has ended.
    #[must_use]
    pub fn newest_step(&self) -> Option<&LiveStep> {
        self.steps.last()
    }
}

/// A framework as a process names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFramework {
    /// The name of its module.
    pub name: String,
    /// Its version; empty where it does not say.
    pub version: String,
}

/// A process of a recording on a device of this machine.
pub(super) struct PlacedProcess<'a> {
    /// Its job, by its place in the list.
    pub(super) job: usize,
    pub(super) process: &'a LiveProcess,
    /// The framework's name for the device, and its pool; none before a device was used.
    pub(super) pool: Option<(&'a str, &'a LivePool)>,
    /// The driver's name for the device; [`HOST`] for the CPU.
    pub(super) uuid: Option<String>,
    /// All numbers that it may have in a driver's list.
    pub(super) pids: Vec<u32>,
}

impl PlacedProcess<'_> {
    pub(super) fn is(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// Whether it is among the running processes of its job on this machine.
    fn runs(&self, job: &LiveJob) -> bool {
        job.pids.iter().any(|(pid, all)| self.is(*pid) || all.iter().any(|pid| self.is(*pid)))
    }

    /// What is known of its pool, for a ledger.
    pub(super) fn figures(&self) -> PoolFigures {
        let told = |value: Option<i64>| Some(SourcedBytes { bytes: bytes(value)?, by: Teller::Framework });
        let (name, pool) =
            self.pool.map_or((String::new(), None), |(name, pool)| (name.to_owned(), Some(pool)));
        PoolFigures {
            name,
            taken: told(pool.and_then(|pool| pool.taken)),
            in_use: told(pool.and_then(|pool| pool.current)),
            ..PoolFigures::default()
        }
    }

    /// What its driver calls took outside its pool so far.
    fn outside(&self) -> Vec<HeldLine> {
        let number = self.pool.and_then(|(device, _)| device.strip_prefix("GPU:")?.parse::<u16>().ok());
        let Some((holdings, device)) = self.process.holdings.as_ref().zip(number) else { return Vec::new() };
        BesidePool::of(holdings, &holdings.at(device, i64::MAX), None, false).lines
    }

    /// What it holds of a device; `free` is what the device has left.
    pub(super) fn on_device(
        &self,
        sight: &MachineSight<'_>,
        device: String,
        held: Option<Bytes>,
        free: Option<Bytes>,
    ) -> ProcessUse {
        let job = sight.jobs.get(self.job);
        let process = self.process;
        let figure = |pick: fn(&LivePool) -> Option<i64>| self.pool.and_then(|(_, pool)| bytes(pick(pool)));
        let (in_use, taken) = (figure(|pool| pool.current), figure(|pool| pool.taken));
        let (limit, peak) = (figure(|pool| pool.limit), figure(|pool| pool.peak));
        // What the pool has, and what the device would still give it; no more than it may take.
        let given = taken.or(in_use).zip(free).map(|(has, free)| has + free);
        let reach = match (given, limit) {
            (Some(given), Some(limit)) => Some(given.min(limit)),
            (given, limit) => given.or(limit),
        };
        let is_running = job.is_some_and(|job| matches!(job.state, State::Running | State::Elsewhere));
        let seen = sight.seen_as(&self.pids).map(|seen| seen.command.clone());
        let command = seen.filter(|command| !command.is_empty()).or_else(|| job.map(LiveJob::command));
        let framework = process.recorded.facts.framework();
        ProcessUse {
            pid: process.recorded.id.pid(),
            device,
            pool: self.pool.map_or(String::new(), |(name, _)| name.to_owned()),
            is_running_here: job.is_some_and(|job| self.runs(job)),
            job: Some(self.job),
            rank: process.recorded.facts.identity.rank.or(process.recorded.facts.rank),
            identity: process.recorded.facts.identity.clone(),
            command: command.unwrap_or_default(),
            framework: framework.map(|(name, version)| ProcessFramework {
                name: name.to_owned(),
                version: version.to_owned(),
            }),
            held,
            taken,
            in_use,
            cached: taken.zip(in_use).and_then(|(taken, in_use)| taken.0.checked_sub(in_use.0)).map(Bytes),
            limit,
            peak,
            headroom: reach.zip(peak).filter(|_| is_running).map(|(reach, peak)| reach.saturating_sub(peak)),
            silent: process
                .last
                .filter(|_| is_running && !self.pids.is_empty())
                .map(|last| Nanos(sight.now.monotonic.saturating_sub(last.monotonic).max(0))),
            exception: process.exception.clone(),
            failure: process.failure,
            roles: process.roles.clone(),
            outside: self.outside(),
            steps: process.steps(self.pool.map_or("", |(device, _)| device)),
            steps_seen: Some(process.steps_seen).filter(|count| *count > 0),
        }
    }
}

/// A counter as bytes; a negative one is none.
pub(super) fn bytes(value: Option<i64>) -> Option<Bytes> {
    value.and_then(|value| u64::try_from(value).ok()).map(Bytes)
}

/// The processes of all recordings, once for each of their devices.
pub(super) fn placed<'a>(sight: &MachineSight<'a>) -> Vec<PlacedProcess<'a>> {
    let own = ProcessId::new(&sight.host, 0, 0);
    let mut all = Vec::new();
    for (number, job) in sight.jobs.iter().enumerate() {
        for (id, process) in &job.processes {
            let is_own_host = id.host() == own.host();
            let mut pids: Vec<u32> = vec![id.pid()];
            let others = job.pids.iter().filter(|(_, all)| all.contains(&id.pid()));
            pids.extend(others.flat_map(|(pid, all)| all.iter().copied().chain([*pid])));
            // A process of another machine may have any number.
            if !is_own_host && pids.len() == 1 {
                pids.clear();
            }
            let pools = shown_pools(process);
            if pools.is_empty() {
                all.push(PlacedProcess { job: number, process, pool: None, uuid: None, pids: pids.clone() });
            }
            for pool in pools {
                let uuid = uuid_of(job, process, pool.0, !pids.is_empty());
                all.push(PlacedProcess { job: number, process, pool: Some(pool), uuid, pids: pids.clone() });
            }
        }
    }
    all
}

/// The pools of a process that matter, by the framework's name for the device.
pub(super) fn shown_pools(process: &LiveProcess) -> Vec<(&str, &LivePool)> {
    let named = process.pools.iter().filter(|(device, _)| !device.is_empty());
    let pools: Vec<(&str, &LivePool)> = named.map(|(device, pool)| (device.as_str(), pool)).collect();
    // A framework tells of its pool on the CPU beside that of a GPU: what matters is the latter.
    let is_known = |pool: &LivePool| pool.current.is_some() || pool.taken.is_some();
    let has_gpu = pools.iter().any(|(device, pool)| !device.starts_with("CPU") && is_known(pool));
    let is_shown =
        |device: &str, pool: &LivePool| !has_gpu || !device.starts_with("CPU") || pool.current > Some(0);
    pools.into_iter().filter(|(device, pool)| is_shown(device, pool)).collect()
}

/// The driver's name for the device that a framework names; [`HOST`] for the CPU of this machine.
pub(super) fn uuid_of(job: &LiveJob, process: &LiveProcess, device: &str, is_here: bool) -> Option<String> {
    let (kind, number) = device.split_once(':')?;
    if kind == "CPU" {
        return is_here.then(|| HOST.to_owned());
    }
    job.manifest_of(&process.recorded)?.uuid_of_device(number.parse().ok()?)
}
