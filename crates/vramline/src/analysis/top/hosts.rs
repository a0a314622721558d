//! The hosts of recorded jobs: which ranks each has, how far they are, which of them is tightest, and how old that news is.
//!
//! A job of many hosts is one recording on a shared folder. What its processes told last is all that another machine knows of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::job::{LiveJob, LivePool, LiveProcess};
use super::process::{bytes, shown_pools, uuid_of};
use crate::analysis::limit;
use crate::recording::manifest::{Exit, RunManifest};
use crate::recording::rows::{Moment, RecordedMarkKind};
use crate::recording::running::State;
use crate::units::{Bytes, Nanos};

/// A host of another machine that has told nothing for longer is called silent. A client of NFS may show news up to a minute late.
const SILENT_AFTER: Nanos = Nanos(60_000_000_000);
/// The maximum number of ranks of a job that are listed as unseen.
const MAX_UNSEEN: u64 = 1 << 16;

/// A host of a job, and what its ranks told last.
#[derive(Clone, Debug)]
pub struct HostUse {
    /// Its job, by its place in the list.
    pub job: usize,
    /// The name of the job, by `--job` or its launcher.
    pub job_name: Option<String>,
    /// Its name; `None` for ranks that no host has shown.
    pub host: Option<String>,
    /// Its ranks.
    pub ranks: BTreeSet<u64>,
    /// The number of ranks that the launcher announced.
    pub world_size: Option<u64>,
    /// The last steps of its ranks: the lowest number and the highest.
    pub steps: Option<(i64, i64)>,
    /// The most that a pool of its ranks has in use now.
    pub in_use: Option<Bytes>,
    /// The highest peak of its ranks.
    pub peak: Option<HostFigure>,
    /// The least headroom of its ranks.
    pub headroom: Option<HostFigure>,
    /// The age of the newest news.
    pub age: Option<Nanos>,
    /// What it does.
    pub state: HostState,
    /// How its part of the job ended.
    pub exit: Option<Exit>,
}

/// A figure of a host, and the rank that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFigure {
    /// The figure.
    pub bytes: Bytes,
    /// The rank; `None` if the process does not report one.
    pub rank: Option<u64>,
}

/// What a host of a job does. What needs attention comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostState {
    /// The launcher announced these ranks, and no host has shown them.
    Unseen,
    /// It has told nothing for a while, and has not ended.
    Silent,
    /// All its processes have ended, and the exit was not recorded.
    Gone,
    /// It runs.
    Running,
    /// It runs on another machine, and its news has no known age.
    Elsewhere,
    /// It has ended.
    Ended,
}

words!(HostState {
    Unseen => "unseen",
    Silent => "silent",
    Gone => "gone",
    Running => "running",
    Elsewhere => "elsewhere",
    Ended => "ended",
});

/// What one host has of a job.
#[derive(Default)]
struct Part<'a> {
    runs: Vec<&'a RunManifest>,
    processes: Vec<&'a LiveProcess>,
}

/// The hosts of all jobs; those of a job in the order of what needs attention, then of their lowest ranks.
pub(super) fn hosts(jobs: &[LiveJob], now: Moment, own: &str) -> Vec<HostUse> {
    jobs.iter().enumerate().flat_map(|(number, job)| of_job(number, job, now, own)).collect()
}

fn of_job(number: usize, job: &LiveJob, now: Moment, own: &str) -> Vec<HostUse> {
    let mut parts: BTreeMap<&str, Part<'_>> = BTreeMap::new();
    for run in newest(job.manifests(), |run| (run.identity.rank, run.clocks.begin.realtime_ns.0)) {
        parts.entry(&run.host).or_default().runs.push(run);
    }
    // A rank that was started again counts once, on the host where it is now.
    for process in
        newest(job.processes.values(), |one| (one.rank(), one.last.map_or(i64::MIN, |last| last.wall)))
    {
        parts.entry(process.host()).or_default().processes.push(process);
    }
    let identities = || {
        let of_processes = job.processes.values().map(|process| &process.recorded.facts.identity);
        job.manifests().map(|run| &run.identity).chain(of_processes)
    };
    let world_size = identities().filter_map(|identity| identity.world_size).max();
    let job_name = job.identity().job;
    let nothing = HostUse {
        job: number,
        job_name,
        host: None,
        ranks: BTreeSet::new(),
        world_size,
        steps: None,
        in_use: None,
        peak: None,
        headroom: None,
        age: None,
        state: HostState::Unseen,
        exit: None,
    };
    let mut all: Vec<HostUse> =
        parts.iter().map(|(host, part)| part.used(job, host, now, *host == own, nothing.clone())).collect();
    let seen: BTreeSet<u64> = all.iter().flat_map(|host| host.ranks.iter().copied()).collect();
    let unseen: BTreeSet<u64> =
        (0..world_size.unwrap_or(0).min(MAX_UNSEEN)).filter(|rank| !seen.contains(rank)).collect();
    if !unseen.is_empty() {
        all.push(HostUse { ranks: unseen, ..nothing });
    }
    all.sort_by_cached_key(|host| (host.urgency(), host.ranks.first().copied(), host.host.clone()));
    all
}

/// Of those with a rank the newest of each rank; all others.
fn newest<'a, T>(all: impl Iterator<Item = &'a T>, of: impl Fn(&T) -> (Option<u64>, i64)) -> Vec<&'a T> {
    let (mut of_rank, mut others) = (BTreeMap::new(), Vec::new());
    for one in all {
        match of(one) {
            (None, _) => others.push(one),
            (Some(rank), at) => {
                let known = of_rank.entry(rank).or_insert((at, one));
                if at > known.0 {
                    *known = (at, one);
                }
            }
        }
    }
    others.extend(of_rank.into_values().map(|(_, one)| one));
    others
}

impl HostUse {
    /// What needs attention comes first: what is missing or silent, and what has failed.
    fn urgency(&self) -> (bool, HostState) {
        let is_in_order = match self.exit {
            Some(exit) => exit == Exit::Code(0),
            None => matches!(self.state, HostState::Running | HostState::Elsewhere | HostState::Ended),
        };
        (is_in_order, self.state)
    }
}

impl Part<'_> {
    fn used(&self, job: &LiveJob, host: &str, now: Moment, is_own: bool, nothing: HostUse) -> HostUse {
        let steps = || self.processes.iter().filter_map(|process| process.last_step());
        let pools: Vec<(&LiveProcess, &str, &LivePool)> = self
            .processes
            .iter()
            .flat_map(|process| {
                shown_pools(process).into_iter().map(|(device, pool)| (*process, device, pool))
            })
            .collect();
        let peak = |&(process, _, pool): &(&LiveProcess, &str, &LivePool)| {
            Some(HostFigure { bytes: bytes(pool.peak)?, rank: process.rank() })
        };
        let headroom = |of: &(&LiveProcess, &str, &LivePool)| {
            let left = reach(job, of.0, of.1, of.2)?.saturating_sub(bytes(of.2.peak)?);
            Some(HostFigure { bytes: left, rank: of.0.rank() })
        };
        let age = self.age(now);
        let exit = self.exit();
        HostUse {
            host: Some(host.to_owned()),
            ranks: self.processes.iter().filter_map(|process| process.rank()).collect(),
            steps: steps().min().zip(steps().max()),
            in_use: pools.iter().filter_map(|(_, _, pool)| bytes(pool.current)).max(),
            // The lowest rank of several with the same figure stands for them.
            peak: pools.iter().filter_map(peak).min_by_key(|one| (Reverse(one.bytes), one.rank)),
            headroom: pools.iter().filter_map(headroom).min_by_key(|one| (one.bytes, one.rank)),
            state: self.state(job, age, is_own),
            age,
            exit,
            ..nothing
        }
    }

    /// How the part ended; of several runs that which failed tells more.
    fn exit(&self) -> Option<Exit> {
        let exits: Option<Vec<Exit>> = self.runs.iter().map(|run| run.exit).collect();
        exits?.into_iter().min_by_key(|exit| *exit == Exit::Code(0))
    }

    fn state(&self, job: &LiveJob, age: Option<Nanos>, is_own: bool) -> HostState {
        let has_ended = match self.runs.as_slice() {
            // Programs that record themselves, or that a run on another host started.
            [] => self.processes.iter().all(|process| {
                let run = job.manifest_of(&process.recorded);
                process.has_ended || run.is_some_and(|run| run.exit.is_some())
            }),
            runs => runs.iter().all(|run| run.exit.is_some()),
        };
        match (job.state, age) {
            _ if has_ended => HostState::Ended,
            (State::Running, _) if is_own => HostState::Running,
            _ if is_own => HostState::Gone,
            (_, None) => HostState::Elsewhere,
            (_, Some(age)) if age > SILENT_AFTER => HostState::Silent,
            _ => HostState::Running,
        }
    }

    /// The age of the newest news. It was told by the clock of that host; what came while this program looked, by the clock here.
    fn age(&self, now: Moment) -> Option<Nanos> {
        let here = self.processes.iter().filter_map(|process| process.heard).max();
        let here = here.map(|heard| now.monotonic.saturating_sub(heard));
        let told = self.processes.iter().filter_map(|process| Some(process.last?.wall));
        let runs = self.runs.iter().flat_map(|run| {
            let clocks = &run.clocks;
            [Some(clocks.begin.realtime_ns.0), clocks.end.as_ref().map(|end| end.realtime_ns.0)]
        });
        let told = told.chain(runs.flatten()).max().and_then(|told| now.wall.checked_sub(told));
        // A clock that is ahead does not tell an age.
        here.into_iter().chain(told).filter(|age| *age >= 0).min().map(Nanos)
    }
}

/// What the peak of a pool may reach: its limit, else the memory of its device. What is free there is known on that host only.
fn reach(job: &LiveJob, process: &LiveProcess, device: &str, pool: &LivePool) -> Option<Bytes> {
    let run = job.manifest_of(&process.recorded);
    let limit = bytes(pool.limit).filter(|limit| !limit::is_built_in(device, *limit, run));
    let total = || {
        let uuid = uuid_of(job, process, device, false)?;
        let known = run?.devices.iter().find(|known| known.uuid.as_ref() == Some(&uuid))?;
        known.total_bytes
    };
    limit.into_iter().chain(total()).min()
}

impl LiveProcess {
    fn rank(&self) -> Option<u64> {
        self.recorded.facts.identity.rank.or(self.recorded.facts.rank)
    }

    /// Its machine, as the kernel names it.
    fn host(&self) -> &str {
        self.recorded.facts.identity.host.as_deref().unwrap_or(self.recorded.id.host())
    }

    /// The number of the last step that has ended.
    fn last_step(&self) -> Option<i64> {
        self.recorded.marks.iter().rev().find(|mark| mark.kind == RecordedMarkKind::Step)?.step
    }
}
