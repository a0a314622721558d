//! Which attempt of its part of the job each process of a recording belongs to.
//!
//! Launchers restart parts of a job: torchrun all workers of a host, Slurm the job, a person one worker. Some count their restarts and tell
//! the count; for the others the folder holds one launcher (`vramline run`) for each start. Both are put together here, when a recording is
//! read, so that nobody has to look for the earlier attempts while a job starts.

use std::collections::BTreeMap;

use super::identity::{Launcher, RankIdentity, TaskRole};
use super::reader::Recorded;

/// A part of a job that one launcher starts. The next launcher of the same part is its next attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Rank(u64),
    Task(TaskRole, Option<u64>),
    Node(u64),
    Host(String),
}

impl Slot {
    fn of(identity: &RankIdentity, host: &str) -> Slot {
        match *identity {
            RankIdentity { rank: Some(rank), .. } => Slot::Rank(rank),
            RankIdentity { role: Some(role), task_index, .. } => Slot::Task(role, task_index),
            RankIdentity { node_rank: Some(node), .. } => Slot::Node(node),
            _ => Slot::Host(host.to_owned()),
        }
    }
}

/// One start of a part of the job.
struct Start {
    run: usize,
    slot: Slot,
    began: i64,
    ended: Option<i64>,
    /// The restarts that the launcher counted.
    told: u64,
    is_torchrun: bool,
}

/// Numbers the attempts of all processes, from zero.
pub(super) fn number(recorded: &mut Recorded) {
    let mut starts: Vec<Start> = Vec::new();
    for (run, view) in recorded.runs().enumerate() {
        let Some(manifest) = view.manifest else { continue };
        starts.push(Start {
            run,
            slot: Slot::of(&manifest.identity, &manifest.host),
            began: manifest.clocks.begin.realtime_ns.0,
            ended: manifest.clocks.end.map(|end| end.realtime_ns.0),
            told: manifest.identity.attempt.unwrap_or(0),
            is_torchrun: manifest.identity.launcher == Some(Launcher::Torchrun),
        });
    }
    // The launcher's count first: it holds even if the clocks of two hosts differ.
    starts.sort_by_key(|start| (start.slot.clone(), start.told, start.began));
    let runs: Vec<usize> = recorded.processes.iter().map(|process| recorded.run_number(process)).collect();
    let outside: BTreeMap<usize, bool> = starts.iter().map(|start| (start.run, start.is_torchrun)).collect();
    // What torchrun restarted inside one start.
    let within: Vec<u64> = std::iter::zip(&recorded.processes, &runs)
        .map(|(process, run)| {
            let identity = &process.facts.identity;
            let is_outside = outside.get(run) == Some(&true);
            let counts = identity.launcher == Some(Launcher::Torchrun) && !is_outside;
            identity.attempt.filter(|_| counts).unwrap_or(0)
        })
        .collect();
    let mut most: BTreeMap<usize, u64> = BTreeMap::new();
    for (run, within) in runs.iter().zip(&within) {
        let known = most.entry(*run).or_default();
        *known = (*known).max(*within);
    }
    let mut bases: BTreeMap<usize, u64> = BTreeMap::new();
    let mut before: Option<(&Start, u64)> = None;
    for start in &starts {
        let base = match before.filter(|(last, _)| last.slot == start.slot) {
            // Several launchers of one host that run at once are parts of one attempt.
            Some((last, base)) if matches!(start.slot, Slot::Host(_)) && !last.ended_before(start) => base,
            Some((last, base)) => {
                base.saturating_add(most.get(&last.run).copied().unwrap_or(0)).saturating_add(1)
            }
            None => 0,
        };
        let base = base.max(start.told);
        bases.insert(start.run, base);
        before = Some((start, base));
    }
    for ((process, run), within) in recorded.processes.iter_mut().zip(&runs).zip(&within) {
        let told = || process.facts.identity.attempt.unwrap_or(0);
        process.attempt = bases.get(run).map_or_else(told, |base| base.saturating_add(*within));
    }
}

impl Start {
    fn ended_before(&self, next: &Start) -> bool {
        self.ended.is_some_and(|ended| ended <= next.began)
    }
}
