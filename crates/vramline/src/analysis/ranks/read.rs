//! Reads the ranks of a recording one after the other: all into summaries, and one of them in full.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::clocks;
use super::endings::FirstFailure;
use super::groups::ranks_text;
use super::summary::{RankSummary, host_of};
use super::{JobRanks, RankChoice};
use crate::analysis::reading::{self, Reading};
use crate::recording::folder::ProcessId;
use crate::recording::identity::RankIdentity;
use crate::recording::reader::{self, ReadError, RecordedFolder, RecordedProcess};
use crate::source::{Progress, SourceError};
use crate::worker;

/// The maximum number of ranks that are all read in full, if they are of one host: then the report compares their devices too.
const MAX_IN_FULL: usize = 16;

/// The maximum number of ranks that are read at the same time. Each needs the memory of its traces.
const MAX_AT_ONCE: usize = 8;

/// Reads a path like [`read`](crate::read). Of a recording with several ranks it reads one in full: the one that ran out of memory
/// first, else the one with the least headroom. The others are summed up in what [`report`](crate::analysis::report::report) says of the ranks.
///
/// # Errors
///
/// As [`read`](crate::read); and if there is no rank or host as chosen.
pub fn read(path: &Path, choice: &RankChoice, progress: &Arc<Progress>) -> Result<Reading, SourceError> {
    if !reader::is_recording(path) {
        return match choice.is_all() {
            true => reading::read_watched(path, progress),
            false => Err(SourceError::Recording {
                text: format!("'{}' is not a recording, so it has no ranks", path.display()),
                hint: "leave out --rank and --host, or give a recording (NAME.vram)",
            }),
        };
    }
    let folder = RecordedFolder::open(path).map_err(|error| unreadable(&error))?;
    let mut job = Job::of(&folder);
    job.choose(choice, path)?;
    let read_of = |ids: &[&ProcessId]| {
        let recorded = folder.read_of(ids, true).map_err(|error| unreadable(&error))?;
        Ok(reading::reading_of(recorded, progress))
    };
    if let Some(rank) = choice.rank {
        return read_of(&job.ids_of(Some(rank)));
    }
    if job.ranks.len() < 2 {
        if choice.host.is_some() {
            return read_of(&job.ids_of(None));
        }
        let recorded = folder.read().map_err(|error| unreadable(&error))?;
        return Ok(reading::reading_of(recorded, progress));
    }
    let summaries = job.summaries(&folder, progress)?;
    let main = choice.main.filter(|main| job.ranks.contains_key(main)).or_else(|| main_of(&summaries));
    let hosts = || summaries.iter().map(|rank| (&rank.host, &rank.boot));
    let is_one_host = hosts().all(|host| Some(host) == hosts().next());
    let is_small = is_one_host && summaries.len() <= MAX_IN_FULL;
    let mut reading = read_of(&job.ids_of(main.filter(|_| !is_small)))?;
    reading.ranks = Some(JobRanks {
        job: job.name(),
        world_size: job.ranks.values().filter_map(|rank| rank.identity.world_size).max(),
        earlier_attempts: job.earlier_attempts,
        main,
        host: choice.host.clone(),
        versions: job.versions,
        ranks: summaries,
    });
    Ok(reading)
}

fn unreadable(error: &ReadError) -> SourceError {
    SourceError::Recording { text: error.to_string(), hint: error.hint() }
}

/// The rank that the report explains: one that ran out of memory, else the one with the least headroom, else the highest peak.
fn main_of(ranks: &[RankSummary]) -> Option<u64> {
    let hosts = clocks::aligned(ranks);
    if let Some(first) = FirstFailure::of(ranks, &hosts) {
        return Some(first.rank);
    }
    let tightest = ranks.iter().filter_map(|rank| Some((rank.headroom()?, rank.rank))).min();
    let highest = || {
        let first = |rank: &&RankSummary| (rank.peak, std::cmp::Reverse(rank.rank));
        ranks.iter().max_by_key(first).map(|rank| rank.rank)
    };
    tightest.map(|(_, rank)| rank).or_else(highest)
}

/// The processes of a job by rank.
#[derive(Default)]
struct Job {
    ranks: BTreeMap<u64, RankProcesses>,
    earlier_attempts: usize,
    versions: BTreeMap<String, usize>,
}

/// The processes of the last attempt of a rank.
#[derive(Default)]
struct RankProcesses {
    ids: Vec<ProcessId>,
    identity: RankIdentity,
    hosts: Vec<String>,
    version: String,
}

impl Job {
    fn of(folder: &RecordedFolder) -> Job {
        let mut attempts: BTreeMap<u64, BTreeMap<u64, RankProcesses>> = BTreeMap::new();
        for process in folder.processes().map(|id| folder.process(id)) {
            let Some(rank) = process.facts.identity.rank.or(process.facts.rank) else { continue };
            attempts.entry(rank).or_default().entry(process.attempt).or_default().add(process);
        }
        let mut job = Job::default();
        for (rank, mut of_rank) in attempts {
            let Some((_, last)) = of_rank.pop_last() else { continue };
            job.earlier_attempts += of_rank.len();
            *job.versions.entry(last.version.clone()).or_default() += 1;
            job.ranks.insert(rank, last);
        }
        job
    }

    /// The job's name, if all ranks agree.
    fn name(&self) -> Option<String> {
        let mut names = self.ranks.values().map(|rank| &rank.identity.job);
        let first = names.next()?;
        names.all(|name| name == first).then(|| first.clone()).flatten()
    }

    /// The processes of one rank, or of all.
    fn ids_of(&self, rank: Option<u64>) -> Vec<&ProcessId> {
        let wanted = self.ranks.iter().filter(|(number, _)| rank.is_none_or(|rank| rank == **number));
        wanted.flat_map(|(_, processes)| &processes.ids).collect()
    }

    fn choose(&mut self, choice: &RankChoice, path: &Path) -> Result<(), SourceError> {
        let known: Vec<u64> = self.ranks.keys().copied().collect();
        let known = match known.as_slice() {
            [] => "no rank is recorded".to_owned(),
            [one] => format!("it has rank {one}"),
            many => format!("it has ranks {}", ranks_text(many)),
        };
        if let Some(rank) = choice.rank.filter(|rank| !self.ranks.contains_key(rank)) {
            return Err(SourceError::Recording {
                text: format!("'{}' has no rank {rank}: {known}", path.display()),
                hint: "leave out --rank to see the whole job",
            });
        }
        if let Some(host) = &choice.host {
            let hosts: Vec<String> = self.hosts();
            self.ranks.retain(|_, rank| rank.hosts.contains(host));
            if self.ranks.is_empty() {
                let shown = hosts.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
                let more =
                    if hosts.len() > 8 { format!(" and {} more", hosts.len() - 8) } else { String::new() };
                return Err(SourceError::Recording {
                    text: format!(
                        "'{}' has no ranks of host '{host}'; its hosts are {shown}{more}",
                        path.display()
                    ),
                    hint: "leave out --host to see the whole job",
                });
            }
        }
        Ok(())
    }

    fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.ranks.values().flat_map(|rank| rank.hosts.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// A summary of each rank. A few ranks are read at the same time, and each is dropped before the next.
    fn summaries(
        &self,
        folder: &RecordedFolder,
        progress: &Arc<Progress>,
    ) -> Result<Vec<RankSummary>, SourceError> {
        let all: Vec<(u64, &RankProcesses)> = self.ranks.iter().map(|(rank, files)| (*rank, files)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some((rank, files)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                made.push(files.summary(*rank, folder, progress)?);
            }
            Ok(made)
        };
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_AT_ONCE));
        let made: Result<Vec<Vec<RankSummary>>, SourceError> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(worker::joined).collect()
        });
        let mut summaries: Vec<RankSummary> = made?.into_iter().flatten().collect();
        summaries.sort_by_key(|summary| summary.rank);
        Ok(summaries)
    }
}

impl RankProcesses {
    fn add(&mut self, process: RecordedProcess) {
        let host = host_of(&process);
        if !self.hosts.contains(&host) {
            self.hosts.push(host);
        }
        if self.ids.is_empty() {
            let facts = process.facts;
            self.version = facts.vramline;
            self.identity = RankIdentity { attempt: Some(process.attempt), ..facts.identity };
        }
        self.ids.push(process.id);
    }

    fn summary(
        &self,
        rank: u64,
        folder: &RecordedFolder,
        progress: &Arc<Progress>,
    ) -> Result<RankSummary, SourceError> {
        let ids: Vec<&ProcessId> = self.ids.iter().collect();
        let reading =
            reading::reading_of(folder.read_of(&ids, false).map_err(|error| unreadable(&error))?, progress);
        Ok(RankSummary::of(rank, self.identity.clone(), &reading))
    }
}
