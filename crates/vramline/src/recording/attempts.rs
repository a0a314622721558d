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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recording::folder::ProcessId;
    use crate::recording::reader::{RecordedProcess, RecordedRun};

    const SECOND: i64 = 1_000_000_000;

    /// A launcher that ran from one second to another.
    fn run(id: &ProcessId, identity: RankIdentity, began: i64, ended: Option<i64>) -> RecordedRun {
        let clock = |seconds: i64| json!({"realtime_ns": seconds * SECOND, "monotonic_ns": seconds * SECOND});
        let identity = RankIdentity { run: Some(id.to_string()), ..identity };
        let manifest = json!({
            "kind": "vramline-recording", "schema": 1, "vramline": "", "command": [], "cwd": "", "host": id.host(),
            "parent_pid": id.pid(), "identity": identity, "environment": {}, "devices": [], "exit": null,
            "clocks": {"begin": clock(began), "end": ended.map(clock)},
            "settings": {
                "trace": "auto", "trace_seconds": 60, "rate": 10.0, "step_peaks": false, "gpus": null, "growth": null,
                "limit_bytes": null, "allocator": null, "stand_in": "not-needed",
            },
        });
        RecordedRun {
            id: id.clone(),
            manifest: Some(serde_json::from_value(manifest).unwrap()),
            driver: Vec::new(),
        }
    }

    fn process(pid: u32, run: &ProcessId, identity: RankIdentity) -> RecordedProcess {
        let mut process = RecordedProcess::new(ProcessId::new(run.host(), pid, 1));
        process.facts.identity = RankIdentity { run: Some(run.to_string()), ..identity };
        process
    }

    /// The attempts of processes, in their order.
    fn attempts(mut runs: Vec<RecordedRun>, processes: Vec<RecordedProcess>) -> Vec<u64> {
        let first = runs.remove(0);
        let mut recorded =
            Recorded { manifest: first.manifest, others: runs, processes, ..Recorded::default() };
        number(&mut recorded);
        recorded.processes.iter().map(|process| process.attempt).collect()
    }

    fn id(host: &str, pid: u32) -> ProcessId {
        ProcessId::new(host, pid, 1)
    }

    fn rank(rank: u64) -> RankIdentity {
        RankIdentity { rank: Some(rank), launcher: Some(Launcher::TfConfig), ..RankIdentity::default() }
    }

    #[test]
    fn a_rank_that_starts_again_is_the_next_attempt() {
        let [a, b, again] = [id("a", 1), id("b", 2), id("c", 3)];
        // It moved to another host, and the launcher of the first attempt was killed.
        let runs = vec![
            run(&a, rank(0), 10, Some(90)),
            run(&b, rank(1), 10, None),
            run(&again, rank(1), 50, Some(90)),
        ];
        let processes = vec![
            process(11, &a, rank(0)),
            process(12, &b, rank(1)),
            process(13, &again, rank(1)),
            process(14, &again, rank(1)),
        ];
        assert_eq!(attempts(runs, processes), [0, 0, 1, 1]);
    }

    #[test]
    fn a_requeue_is_counted_even_if_the_clock_was_set_back() {
        let slurm =
            |count: Option<u64>| RankIdentity { attempt: count, launcher: Some(Launcher::Slurm), ..rank(0) };
        let [first, second] = [id("a", 1), id("b", 2)];
        let runs =
            vec![run(&first, slurm(None), 1000, Some(1010)), run(&second, slurm(Some(2)), 10, Some(20))];
        let processes = vec![process(11, &first, slurm(None)), process(12, &second, slurm(Some(2)))];
        // The attempt between them recorded nothing.
        assert_eq!(attempts(runs, processes), [0, 2]);
    }

    #[test]
    fn restarts_inside_a_launcher_add_up() {
        let node =
            |attempt| RankIdentity { node_rank: Some(0), attempt, launcher: None, ..RankIdentity::default() };
        let torch =
            |count| RankIdentity { launcher: Some(Launcher::Torchrun), attempt: Some(count), ..rank(3) };
        let [first, second] = [id("a", 1), id("a", 2)];
        let runs = vec![run(&first, node(None), 10, Some(20)), run(&second, node(Some(1)), 30, None)];
        let processes = vec![
            process(11, &first, torch(0)),
            process(12, &first, torch(1)),
            process(13, &first, torch(2)),
            process(14, &second, torch(0)),
            process(15, &second, torch(1)),
        ];
        assert_eq!(attempts(runs, processes), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_launcher_inside_torchrun_is_not_counted_twice() {
        let torch =
            |count| RankIdentity { launcher: Some(Launcher::Torchrun), attempt: Some(count), ..rank(3) };
        let [first, second] = [id("a", 1), id("a", 2)];
        let runs = vec![run(&first, torch(0), 10, Some(20)), run(&second, torch(1), 30, None)];
        let processes = vec![process(11, &first, torch(0)), process(12, &second, torch(1))];
        assert_eq!(attempts(runs, processes), [0, 1]);
    }

    #[test]
    fn launchers_of_a_host_that_run_at_once_are_one_attempt() {
        let none = RankIdentity::default;
        let [one, two, later] = [id("a", 1), id("a", 2), id("a", 3)];
        let runs = vec![
            run(&one, none(), 10, Some(20)),
            run(&two, none(), 11, Some(21)),
            run(&later, none(), 30, Some(40)),
        ];
        let processes =
            vec![process(11, &one, none()), process(12, &two, none()), process(13, &later, none())];
        assert_eq!(attempts(runs, processes), [0, 0, 1]);
    }

    #[test]
    fn without_a_launcher_the_count_of_the_process_holds() {
        let mut recorded = Recorded {
            processes: vec![process(1, &id("a", 9), RankIdentity { attempt: Some(4), ..rank(0) })],
            ..Recorded::default()
        };
        number(&mut recorded);
        assert_eq!(recorded.processes[0].attempt, 4);
    }
}
