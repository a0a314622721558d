//! Jobs of several ranks: each rank against a report on it alone, groups and outliers, clocks, who ran out of memory first, and what is missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramline::Reading;
use vramline::analysis::diff::{DiffOptions, Gate, RunSide, diff};
use vramline::analysis::ranks::clocks::AlignedBy;
use vramline::analysis::ranks::endings::RankEnd;
use vramline::analysis::ranks::groups::Grouping;
use vramline::analysis::ranks::{RankChoice, RanksAnalysis, read};
use vramline::analysis::redaction::Redaction;
use vramline::analysis::report::{ReportAnalysis, ReportOptions, report};
use vramline::event::{How, Phase};
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::gather::gather;
use vramline::recording::process::ProcessRecorder;
use vramline::recording::rows::{Counters, Mark, Moment, RecordedMarkKind, Sample};
use vramline::snapshot::Role;
use vramline::units::Bytes;
use vramline::view::report::Report;

use crate::fixture;

const SECOND: i64 = 1_000_000_000;
const MICRO: i64 = 1_000;
const DAY: i64 = 86_400 * SECOND;
const MIB: u64 = 1 << 20;

/// A rank of a job that is written here.
#[derive(Clone)]
struct Rank {
    rank: u64,
    host: &'static str,
    /// What its clocks show beside those of the first host.
    monotonic: i64,
    wall: i64,
    /// What its clock gains in a second.
    drift: i64,
    steps: i64,
    peak: u64,
    end: End,
    version: &'static str,
    attempt: u64,
}

#[derive(Clone)]
enum End {
    Done,
    Exception(&'static str, i64),
    Killed,
}

impl Rank {
    fn new(rank: u64, host: &'static str, peak_mib: u64) -> Rank {
        let (monotonic, wall, drift) = (0, 0, 0);
        let (end, version) = (End::Done, "0.2.0");
        Rank { rank, host, monotonic, wall, drift, steps: 20, peak: peak_mib * MIB, end, version, attempt: 0 }
    }

    fn on_clock(mut self, monotonic: i64, wall: i64) -> Rank {
        (self.monotonic, self.wall) = (monotonic, wall);
        self
    }

    fn ended(mut self, end: End) -> Rank {
        self.end = end;
        self
    }

    fn id(&self) -> ProcessId {
        ProcessId::new(self.host, 100 + u32::try_from(self.rank).unwrap(), 1_000 + self.attempt)
    }

    /// A moment of the job on the clocks of this rank.
    fn at(&self, time: i64) -> Moment {
        let drifted = time + time / SECOND * self.drift;
        Moment { monotonic: drifted + self.monotonic, wall: 1_790_000_000 * SECOND + time + self.wall }
    }

    fn write(&self, folder: &Path, world_size: u64) {
        let recorder = ProcessRecorder::new(folder, &self.id());
        let counters = |peak: u64| Counters {
            device: "GPU:0".to_owned(),
            current: i64::try_from(peak / 2).ok(),
            peak: i64::try_from(peak).ok(),
            ..Counters::default()
        };
        let limit = Counters { limit: Some(4 << 30), ..counters(self.peak) };
        recorder
            .samples(&[Sample { time: self.at(SECOND), counters: Some(limit), ..Sample::default() }])
            .unwrap();
        for step in 0..self.steps {
            // No two ranks end a step at the same moment.
            let late = i64::try_from(self.rank).unwrap() * 7 % 5 * MICRO + step % 3 * MICRO;
            recorder
                .mark(&Mark {
                    kind: RecordedMarkKind::Step,
                    phase: Some(Phase::Train),
                    how: Some(How::Api),
                    step: Some(step),
                    begin: Some(self.at(step * SECOND).monotonic),
                    time: self.at((step + 1) * SECOND + late),
                    counters: vec![counters(self.peak)],
                    ..Mark::default()
                })
                .unwrap();
        }
        let last = |kind: RecordedMarkKind, label: Option<&str>, time: i64| Mark {
            kind,
            label: label.map(str::to_owned),
            time: self.at(time),
            counters: vec![counters(self.peak)],
            ..Mark::default()
        };
        match self.end {
            End::Done => {
                recorder.mark(&last(RecordedMarkKind::End, None, (self.steps + 1) * SECOND)).unwrap();
            }
            End::Exception(text, at) => {
                recorder.mark(&last(RecordedMarkKind::Exception, Some(text), at)).unwrap();
                fs::write(folder.join(format!("exception-{}.txt", self.id())), text).unwrap();
                recorder.mark(&last(RecordedMarkKind::End, None, at + SECOND)).unwrap();
            }
            End::Killed => {}
        }
        recorder.close();
        write_facts(folder, &self.id(), self.rank, self.host, world_size, (self.version, self.attempt));
    }
}

fn write_facts(
    folder: &Path,
    id: &ProcessId,
    rank: u64,
    host: &str,
    world_size: u64,
    (version, attempt): (&str, u64),
) {
    let facts = serde_json::json!({
        "kind": "vramline-process", "schema": 1, "vramline": version, "python": "3.11.7", "frameworks": {"torch": "2.11.0"}, "rank": rank,
        "identity": {
            "job": "secret-job", "host": host, "boot_id": format!("boot of {host}"), "rank": rank, "local_rank": 0, "world_size": world_size,
            "attempt": attempt, "launcher": "torchrun",
        },
    });
    fs::write(folder.join(Part::Process.name(id)), facts.to_string()).unwrap();
}

fn job(ranks: &[Rank], world_size: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // With a failed run's manifest, a process without a last word was killed.
    let manifest = fs::read_to_string(fixture("tf221_cpu_keras.vram/run.json")).unwrap();
    let is_failed = ranks.iter().any(|rank| !matches!(rank.end, End::Done));
    let manifest = if is_failed { manifest.replace("\"code\": 0", "\"code\": 1") } else { manifest };
    fs::write(folder.path().join("run.json"), manifest).unwrap();
    ranks.iter().for_each(|rank| rank.write(folder.path(), world_size));
    folder
}

fn reading(folder: &Path, choice: &RankChoice) -> Reading {
    read(folder, choice, &Arc::default()).unwrap()
}

fn report_on(folder: &Path) -> ReportAnalysis {
    report(&reading(folder, &RankChoice::default()), &ReportOptions::default())
}

fn ranks_of(folder: &Path) -> RanksAnalysis {
    report_on(folder).ranks.unwrap()
}

fn codes(ranks: &RanksAnalysis) -> Vec<&'static str> {
    ranks.warnings.iter().map(|warning| warning.code).collect()
}

/// A real recording as a rank of a job.
fn copy(name: &str, of: &str, job: &Path, rank: u64, host: &str) {
    let id = ProcessId::new(host, 500 + u32::try_from(rank).unwrap(), 77);
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let from = entry.unwrap().path();
        let file = from.file_name().unwrap().to_str().unwrap();
        let to = job.join(file.replace(of, &id.to_string()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else if file.contains(of) || !to.exists() {
            fs::copy(&from, &to).unwrap();
        }
    }
    let path = job.join(Part::Process.name(&id));
    let mut facts: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    facts["rank"] = rank.into();
    facts["identity"] = serde_json::json!({ "host": host, "rank": rank, "world_size": 4 });
    fs::write(&path, facts.to_string()).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Three ranks of one recording, and one of another: on two hosts.
fn real_job() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        copy(
            "tf221_cpu_keras.vram",
            "vm-20013-1648239",
            folder.path(),
            rank,
            if rank < 2 { "a" } else { "b" },
        );
    }
    copy("tf215_cpu_keras2.vram", "vm-28105-1666648", folder.path(), 3, "b");
    folder
}

/// What a pool's peak is made of, and how high it is.
fn peak_of(report: &ReportAnalysis) -> (Option<Bytes>, BTreeMap<&'static str, Bytes>) {
    let pool = report.pools.first().unwrap();
    let by_role = pool.at_peak.iter().flat_map(|held| &held.by_role);
    (
        pool.highest(),
        by_role.map(|(role, bytes)| (role.word(), *bytes)).filter(|(_, bytes)| bytes.0 > 0).collect(),
    )
}

/// Reports on jobs that have every field of ranks between them.
pub(crate) fn samples() -> Vec<Report> {
    let failed = job(
        &[
            Rank::new(0, "a", 500).ended(End::Exception(TORCH_OOM, 21 * SECOND)),
            Rank::new(1, "b", 500).ended(End::Exception(TORCH_OOM, 21 * SECOND + 200)),
            Rank::new(2, "a", 500).ended(End::Exception(TORCH_OOM, 30 * SECOND)),
            Rank::new(3, "b", 500).ended(End::Exception(NCCL, 22 * SECOND)),
            Rank::new(4, "b", 900).ended(End::Killed),
        ],
        6,
    );
    [real_job(), failed].into_iter().map(|folder| Report::from(report_on(folder.path()))).collect()
}

/// A job of two ranks whose second one has this peak; for each peak a repeat.
pub(crate) fn sample_to_compare(repeats: &[u64]) -> RunSide {
    let report = |mib: &u64| report_on(job(&[Rank::new(0, "a", 500), Rank::new(1, "a", *mib)], 2).path());
    RunSide { name: format!("{repeats:?}"), reports: repeats.iter().map(report).collect() }
}

#[test]
fn each_rank_is_as_if_recorded_alone() {
    let folder = real_job();
    let job = report_on(folder.path());
    let ranks = job.ranks.as_ref().unwrap();
    assert_eq!(ranks.ranks.len(), 4);
    for rank in &ranks.ranks {
        let name = if rank.rank == 3 { "tf215_cpu_keras2.vram" } else { "tf221_cpu_keras.vram" };
        let alone = report(&vramline::read(&fixture(name)).unwrap(), &ReportOptions::default());
        let (peak, by_role) = peak_of(&alone);
        assert_eq!(rank.peak, peak, "rank {}", rank.rank);
        let held = rank.held.as_ref().unwrap();
        let mut parts: BTreeMap<&str, Bytes> = BTreeMap::new();
        held.iter().for_each(|part| *parts.entry(part.what).or_default() += part.bytes);
        let traced: Bytes = parts.values().copied().sum();
        assert_eq!(Some(traced), alone.pools.first().unwrap().peak);
        parts.retain(|what, _| !["rounding", "before the recording"].contains(what));
        assert_eq!(parts, by_role);
        let chosen = RankChoice { rank: Some(rank.rank), ..RankChoice::default() };
        let chosen = report(&reading(folder.path(), &chosen), &ReportOptions::default());
        assert!(chosen.ranks.is_none());
        assert_eq!(peak_of(&chosen), (peak, by_role));
        assert_eq!(chosen.steps.len(), alone.steps.len());
    }
    // The report explains the rank with the highest peak, and the parts of a difference add up to it.
    let highest = ranks.ranks.iter().map(|rank| rank.peak).max().unwrap();
    assert_eq!(job.answer.peak, highest);
    assert_eq!((ranks.grouping, ranks.outliers.len()), (Grouping::Alike, 1));
    let outlier = ranks.outliers.first().unwrap();
    assert_eq!((outlier.rank, outlier.compared_with), (3, 0));
    let parts = outlier.parts.as_ref().unwrap();
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<i64>(), outlier.difference);
    let peak = |rank: usize| i64::try_from(ranks.ranks.get(rank).unwrap().peak.unwrap().0).unwrap();
    assert_eq!(outlier.difference, peak(3) - peak(0));
}

/// A recording as if its launcher and its process had run on another host.
fn on_host(folder: &Path, name: &str, of: &str, host: &str) -> PathBuf {
    let to = folder.join(format!("{host}.vram"));
    copy_folder(&fixture(name), &to);
    for entry in fs::read_dir(&to).unwrap() {
        let from = entry.unwrap().path();
        let file = from.file_name().unwrap().to_str().unwrap();
        let number = of.split_once('-').unwrap().1;
        fs::rename(&from, to.join(file.replace(of, &format!("{host}-{number}")))).unwrap();
    }
    let manifest = to.join("run.json");
    let mut facts: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    facts["host"] = host.into();
    fs::write(&manifest, facts.to_string()).unwrap();
    to
}

#[test]
fn hosts_without_ranks_have_their_own_pools() {
    let folder = tempfile::tempdir().unwrap();
    let name = "tf221_cpu_keras.vram";
    // Both have the same process number and the same device.
    let parts = ["a", "b"].map(|host| on_host(folder.path(), name, "vm-20013-1648239", host));
    let job = folder.path().join("job.vram");
    gather(&parts, &job, Some("two"), |_| {}).unwrap();
    let job = report(&vramline::read(&job).unwrap(), &ReportOptions::default());
    let alone = report(&vramline::read(&fixture(name)).unwrap(), &ReportOptions::default());
    assert!(job.ranks.is_none());
    let pool = alone.pools.first().unwrap();
    let places: Vec<_> =
        job.pools.iter().map(|each| (each.host.as_str(), each.pid, each.highest())).collect();
    assert_eq!(places, [("a", pool.pid, pool.highest()), ("b", pool.pid, pool.highest())]);
    // Sentences on the pool are about one host.
    let about_pool = |report: &ReportAnalysis| -> Vec<String> {
        let sentences = report.answer.explanation.iter().cloned();
        sentences.filter(|sentence| sentence.contains("pool")).collect()
    };
    assert!(!about_pool(&alone).is_empty());
    assert_eq!(about_pool(&job), about_pool(&alone));
}

#[test]
fn ranks_of_one_small_host_are_all_there() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        copy("tf221_cpu_keras.vram", "vm-20013-1648239", folder.path(), rank, "a");
    }
    let job = report_on(folder.path());
    assert_eq!(job.pools.len(), 2);
    assert_eq!(job.ranks.unwrap().ranks.len(), 2);
    // A recording of one rank is read as ever.
    let alone = reading(&fixture("tf221_cpu_keras.vram"), &RankChoice::default());
    assert!(report(&alone, &ReportOptions::default()).ranks.is_none());
}

#[test]
fn the_job_is_answered_first() {
    let folder = job(
        &[Rank::new(0, "a", 900), Rank::new(1, "a", 500), Rank::new(2, "b", 500), Rank::new(3, "b", 500)],
        4,
    );
    let report = report_on(folder.path());
    let ranks = report.ranks.as_ref().unwrap();
    assert!(
        report.answer.headline.starts_with("Peaks of 4 ranks: 900 MiB on rank 0 to 500 MiB on rank 1"),
        "{}",
        report.answer.headline
    );
    assert_eq!(
        ranks.outliers.iter().map(|outlier| (outlier.rank, outlier.difference)).collect::<Vec<_>>(),
        [(0, 400 * (1 << 20))]
    );
    // Nothing shows what they held.
    assert_eq!(ranks.outliers.first().unwrap().parts, None);
    assert!(codes(ranks).is_empty(), "{:?}", ranks.warnings);
    assert_eq!(ranks.main, Some(0));
    let grid = ranks.grid.as_ref().unwrap();
    assert_eq!((grid.rows.len(), grid.steps.len(), grid.width), (4, 20, 1));
}

#[test]
fn a_clock_that_is_a_day_off_is_aligned() {
    let offset = 5_000 * SECOND;
    let mut late = Rank::new(1, "b", 500).on_clock(offset, DAY);
    late.drift = 12 * MICRO;
    let folder = job(&[Rank::new(0, "a", 500), late, Rank::new(2, "b", 500).on_clock(offset, DAY)], 3);
    let ranks = ranks_of(folder.path());
    let [first, second] = ranks.hosts.as_slice() else { panic!("{:?}", ranks.hosts) };
    assert_eq!((first.by, second.by, second.steps), (AlignedBy::Reference, AlignedBy::Steps, 20));
    let off = second.wall_ahead.unwrap() - DAY;
    assert!(off.abs() < 1_000 * MICRO, "{off}");
    assert!(second.residual.unwrap().0 < 1_000 * MICRO);
    assert_eq!(codes(&ranks), ["clock-off"]);
}

#[test]
fn a_drift_is_found() {
    let mut drifting = Rank::new(1, "b", 500).on_clock(-40 * SECOND, 0);
    (drifting.drift, drifting.steps) = (12 * MICRO, 60);
    let mut first = Rank::new(0, "a", 500);
    first.steps = 60;
    let folder = job(&[first.clone(), drifting.clone()], 2);
    let ranks = ranks_of(folder.path());
    let clock = ranks.hosts.get(1).unwrap();
    assert!((clock.drift - 12 * MICRO).abs() < MICRO, "{}", clock.drift);
    assert!(clock.residual.unwrap().0 <= 100 * MICRO, "{:?}", clock.residual);
    // A moment of the second host is that moment of the first.
    for time in [3, 30, 55] {
        let (own, expected) = (drifting.at(time * SECOND).monotonic, first.at(time * SECOND).monotonic);
        assert!((clock.aligned(own) - expected).abs() < 20 * MICRO);
    }
}

const TORCH_OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which \
                         1.00 GiB is free. Process 7 has 77.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and \
                         6.00 GiB is reserved by PyTorch but unallocated.";
const NCCL: &str =
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2044, remote process exited";

#[test]
fn the_first_to_run_out_is_named() {
    let (at, offset) = (21 * SECOND, 5_000 * SECOND);
    let folder = job(
        &[
            Rank::new(0, "a", 500).ended(End::Exception(TORCH_OOM, at + 5 * SECOND)),
            // By the dates of the hosts, this one would be a day later.
            Rank::new(1, "b", 500).on_clock(offset, DAY).ended(End::Exception(TORCH_OOM, at)),
            Rank::new(2, "b", 500).on_clock(offset, DAY).ended(End::Exception(NCCL, at + SECOND)),
            Rank::new(3, "b", 500).on_clock(offset, DAY).ended(End::Killed),
        ],
        4,
    );
    let report = report_on(folder.path());
    let ranks = report.ranks.as_ref().unwrap();
    let ends: Vec<RankEnd> = ranks.ranks.iter().map(|rank| rank.end).collect();
    assert_eq!(ends, [RankEnd::OutOfMemory, RankEnd::OutOfMemory, RankEnd::Collective, RankEnd::Killed]);
    let first = ranks.first_failure.as_ref().unwrap();
    assert_eq!((first.rank, first.host.as_str(), ranks.main), (1, "b", Some(1)));
    assert_eq!(
        (&first.later, &first.at_once, &first.lost_peers, &first.killed),
        (&vec![0], &vec![], &vec![2], &vec![3])
    );
    assert_eq!(report.answer.headline, "Rank 1 on b ran out of memory first.");
    assert!(
        ranks
            .sentences
            .get(1)
            .unwrap()
            .starts_with("After it, rank 0 ran out of memory later; rank 2 failed in an operation")
    );
}

/// Recorded by `tests/gpu/ranks.py` on an H200, two ranks of PyTorch's DistributedDataParallel on one GPU. PyTorch itself counted these peaks.
#[test]
fn ranks_of_pytorch_on_a_gpu_have_the_peaks_that_it_counted() {
    const COUNTED: [u64; 2] = [370_245_632, 168_919_040];
    // Under torchrun its launcher is recorded, too, and is no rank.
    for name in ["pair", "torchrun"] {
        let job = report_on(&fixture(&format!("ranks/{name}.vram")));
        let ranks = job.ranks.as_ref().unwrap();
        let peaks: Vec<_> = ranks.ranks.iter().map(|rank| (rank.rank, rank.peak, rank.end)).collect();
        let counted = [0, 1].map(|rank| (rank as u64, Some(Bytes(COUNTED[rank])), RankEnd::Done));
        assert_eq!(peaks, counted, "{name}");
        assert!(ranks.missing.is_empty(), "{name}");
        // Rank 0 kept a tensor of 192 MiB, and nothing else made the difference: DDP's buckets and cuBLAS are the same on both.
        let by_role = |rank: u64| {
            let pool = job.pools.iter().find(|pool| pool.rank == Some(rank) && pool.at_peak.is_some());
            pool.unwrap().at_peak.as_ref().unwrap().by_role.clone()
        };
        for ((role, first), (_, second)) in by_role(0).into_iter().zip(by_role(1)) {
            let kept = if role == Role::State { 192 * MIB } else { 0 };
            assert_eq!(first, second + Bytes(kept), "{name}: {role:?}");
        }
    }
}

#[test]
fn the_rank_of_pytorch_that_ran_out_first_is_named() {
    let job = report_on(&fixture("ranks/fails.vram"));
    let ranks = job.ranks.as_ref().unwrap();
    let first = ranks.first_failure.as_ref().unwrap();
    assert_eq!((first.rank, &first.lost_peers, &first.killed), (1, &vec![0], &vec![]));
    let ends: Vec<RankEnd> = ranks.ranks.iter().map(|rank| rank.end).collect();
    assert_eq!(ends, [RankEnd::Collective, RankEnd::OutOfMemory]);
}

#[test]
fn nobody_is_first_within_what_remains_of_the_clocks() {
    let at = 21 * SECOND;
    let folder = job(
        &[
            Rank::new(0, "a", 500).ended(End::Exception(TORCH_OOM, at)),
            Rank::new(1, "b", 500).on_clock(7 * SECOND, 0).ended(End::Exception(TORCH_OOM, at + 200)),
        ],
        2,
    );
    let ranks = ranks_of(folder.path());
    let first = ranks.first_failure.as_ref().unwrap();
    assert!(first.later.is_empty() && first.at_once.len() == 1, "{first:?}");
    assert!(ranks.sentences.first().unwrap().contains("which was first is unknown"), "{:?}", ranks.sentences);
}

#[test]
fn hosts_without_shared_steps_are_not_aligned() {
    let mut short = Rank::new(1, "b", 500).on_clock(7 * SECOND, 0);
    short.steps = 2;
    let ranks = ranks_of(job(&[Rank::new(0, "a", 500), short], 2).path());
    let clock = ranks.hosts.get(1).unwrap();
    assert_eq!((clock.by, clock.residual, clock.wall_ahead), (AlignedBy::WallClock, None, None));
    assert_eq!(codes(&ranks), ["clocks-not-aligned"]);
}

#[test]
fn what_is_missing_is_said() {
    let mut old = Rank::new(2, "b", 500);
    old.version = "0.1.0";
    let mut restarted = Rank::new(0, "a", 700);
    restarted.attempt = 1;
    let folder = job(&[Rank::new(0, "a", 900), restarted, Rank::new(1, "a", 500), old], 5);
    let ranks = ranks_of(folder.path());
    assert_eq!((ranks.missing.as_slice(), ranks.earlier_attempts, ranks.ranks.len()), (&[3, 4][..], 1, 3));
    assert_eq!(ranks.ranks.first().unwrap().peak, Some(Bytes(700 * MIB)), "the last attempt counts");
    assert_eq!(codes(&ranks), ["missing-ranks", "earlier-attempts", "mixed-versions"]);
    let texts: Vec<&str> = ranks.warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert!(
        texts.first().unwrap().contains("announced 5 ranks, and the recording has 3: ranks 3, 4 are missing"),
        "{texts:?}"
    );
}

#[test]
fn a_host_or_a_rank_can_be_chosen() {
    let folder = job(&[Rank::new(0, "a", 900), Rank::new(1, "a", 500), Rank::new(2, "b", 500)], 3);
    let host = RankChoice { host: Some("a".to_owned()), ..RankChoice::default() };
    let ranks = report(&reading(folder.path(), &host), &ReportOptions::default()).ranks.unwrap();
    assert_eq!(ranks.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
    assert!(ranks.missing.is_empty());
    let wrong =
        |choice: RankChoice, folder: &Path| read(folder, &choice, &Arc::default()).unwrap_err().to_string();
    let rank = RankChoice { rank: Some(7), ..RankChoice::default() };
    assert!(wrong(rank.clone(), folder.path()).ends_with("has no rank 7: it has ranks 0-2"));
    assert!(wrong(rank, &fixture("tf221_cpu_oom.log")).ends_with("is not a recording, so it has no ranks"));
    let host = RankChoice { host: Some("z".to_owned()), ..RankChoice::default() };
    assert!(wrong(host, folder.path()).ends_with("has no ranks of host 'z'; its hosts are a, b"));
}

#[test]
fn jobs_are_compared_rank_by_rank() {
    let before = job(&[Rank::new(0, "a", 900), Rank::new(1, "a", 500), Rank::new(2, "b", 500)], 3);
    let after = job(&[Rank::new(0, "a", 900), Rank::new(1, "a", 500), Rank::new(2, "b", 600)], 3);
    let side =
        |name: &str, folder: &Path| RunSide { name: name.to_owned(), reports: vec![report_on(folder)] };
    let sides = [side("before", before.path()), side("after", after.path())];
    let compared = diff(&sides, &DiffOptions { by: None, fail_over: Some("2%".parse().unwrap()) });
    let changes: Vec<(u64, Option<i64>)> =
        compared.ranks.iter().map(|change| (change.rank, change.delta(1))).collect();
    assert_eq!(changes, [(2, Some(100 << 20)), (0, Some(0)), (1, Some(0))]);
    // The pool of the rank that both explain did not grow, the worst rank did.
    assert_eq!(compared.gate.gate, Gate::Fail);
    let [alarm] = compared.gate.alarms.as_slice() else { panic!("{:?}", compared.gate.alarms) };
    assert_eq!((alarm.rank, alarm.more), (Some(2), Bytes(100 * MIB)));
    let allowed = diff(&sides, &DiffOptions { by: None, fail_over: Some("25%".parse().unwrap()) });
    assert_eq!(allowed.gate.gate, Gate::Pass);
}

#[test]
fn a_shared_report_names_nobody() {
    let folder = real_job();
    let mut shared = reading(folder.path(), &RankChoice::default());
    Redaction::default().reading(&mut shared);
    let text = serde_json::to_string(&Report::from(report(&shared, &ReportOptions::default()))).unwrap();
    for private in ["\"host\":\"a\"", "\"host\":\"b\"", "conv2d", "secret"] {
        assert!(!text.contains(private), "{private}");
    }
    assert!(text.contains("\"outliers\":[{\"rank\":3"));
    let written = job(&[Rank::new(0, "node-secret", 900), Rank::new(1, "other-secret", 500)], 2);
    let mut shared = reading(written.path(), &RankChoice::default());
    Redaction::default().reading(&mut shared);
    let text = serde_json::to_string(&Report::from(report(&shared, &ReportOptions::default()))).unwrap();
    assert!(!text.contains("secret"), "{text}");
}
