//! The ranks of a job: how their peaks compare, which of them differ and in what, whose clock is off, and who ran out of memory first.
//!
//! [`read`] reads rank after rank into a [`RankSummary`] each and keeps in full only the rank that the report explains, so that a
//! job of a thousand ranks needs the memory of a few. Everything else here is a pure function of the summaries.

pub mod clocks;
pub mod difference;
pub mod endings;
pub mod groups;
#[cfg(feature = "recording")]
mod read;
mod sentences;
pub mod steps;
pub mod summary;

#[cfg(feature = "recording")]
pub use read::read;

use std::collections::{BTreeMap, BTreeSet};

use clocks::HostClock;
use difference::Difference;
use endings::FirstFailure;
use groups::{Grouping, RankGroup};
use steps::StepGrid;
use summary::RankSummary;

use crate::units::Bytes;
use crate::warning::Warning;

/// Which ranks of a job to report on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankChoice {
    /// Only this rank, as if it were recorded alone.
    pub rank: Option<u64>,
    /// Only the ranks of this host.
    pub host: Option<String>,
    /// The rank to read in full, if it exists: so that two jobs can be compared in the same rank.
    pub main: Option<u64>,
}

impl RankChoice {
    /// Whether all ranks are wanted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.rank.is_none() && self.host.is_none()
    }
}

/// What was read of the ranks of a job.
#[derive(Clone, Debug)]
pub struct JobRanks {
    /// One for each rank, in the order of ranks; of several attempts the last.
    pub ranks: Vec<RankSummary>,
    /// The job's name by its launcher.
    pub job: Option<String>,
    /// The number of ranks that the launcher announced; of several numbers the largest.
    pub world_size: Option<u64>,
    /// Attempts of ranks before the last.
    pub earlier_attempts: usize,
    /// The rank that is read in full.
    pub main: Option<u64>,
    /// The host that was chosen.
    pub host: Option<String>,
    /// The versions of Vramline that wrote the files, each with its ranks.
    pub versions: BTreeMap<String, usize>,
}

/// What a report says of the ranks of a job.
#[derive(Clone, Debug)]
pub struct RanksAnalysis {
    /// The job's name by its launcher.
    pub job: Option<String>,
    /// The number of ranks that the launcher announced.
    pub world_size: Option<u64>,
    /// Ranks that the launcher announced and that the recording lacks.
    pub missing: Vec<u64>,
    /// Hosts, in the order of their lowest ranks.
    pub hosts: Vec<HostClock>,
    /// The rank that the rest of the report explains.
    pub main: Option<u64>,
    /// Attempts of ranks before the last, which the report leaves out.
    pub earlier_attempts: usize,
    /// The rank with the highest peak.
    pub highest: Option<RankPeak>,
    /// The rank with the lowest peak.
    pub lowest: Option<RankPeak>,
    /// The rank with the least headroom.
    pub tightest: Option<RankPeak>,
    /// How the peaks of the ranks relate to each other.
    pub grouping: Grouping,
    /// Ranks with like peaks.
    pub groups: Vec<RankGroup>,
    /// Ranks that differ from their group.
    pub outliers: Vec<Outlier>,
    /// The failure that came first.
    pub first_failure: Option<FirstFailure>,
    /// All ranks.
    pub ranks: Vec<RankSummary>,
    /// Memory of each rank by step.
    pub grid: Option<StepGrid>,
    /// The answer over the job, a sentence each.
    pub sentences: Vec<String>,
    /// Notes on the job.
    pub warnings: Vec<Warning>,
}

/// The peak of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPeak {
    /// The rank.
    pub rank: u64,
    /// Its peak.
    pub peak: Bytes,
    /// What is free of its limit or device at the peak.
    pub headroom: Option<Bytes>,
}

/// A rank that differs from the ranks of its group.
#[derive(Clone, Debug)]
pub struct Outlier {
    /// The rank.
    pub rank: u64,
    /// The rank of the group that it is compared with: the one whose peak is the group's median.
    pub compared_with: u64,
    /// Its peak minus that rank's.
    pub difference: i64,
    /// What makes the difference; `None` where the traces of the two do not show both peaks.
    pub parts: Option<Vec<Difference>>,
}

impl RanksAnalysis {
    /// What the ranks of a job tell together.
    #[must_use]
    pub fn of(job: &JobRanks) -> RanksAnalysis {
        let ranks = &job.ranks;
        let known: Vec<RankPeak> = ranks.iter().filter_map(RankPeak::of).collect();
        let peaks: Vec<(u64, Bytes)> = known.iter().map(|known| (known.rank, known.peak)).collect();
        let (grouping, groups) = groups::grouped(&peaks, job.world_size);
        let hosts = clocks::aligned(ranks);
        let outliers = groups.iter().flat_map(|group| {
            let typical = ranks.iter().find(|rank| rank.rank == group.typical);
            let each = move |&rank: &u64| Outlier::of(ranks.iter().find(|one| one.rank == rank)?, typical?);
            group.outliers.iter().filter_map(each)
        });
        let mut outliers: Vec<Outlier> = outliers.collect();
        outliers.sort_by_key(|outlier| (std::cmp::Reverse(outlier.difference.unsigned_abs()), outlier.rank));
        // The lowest rank of several with the same peak stands for them.
        let first_of = |peaks: &[RankPeak], order: &dyn Fn(&RankPeak) -> i128| {
            peaks.iter().min_by_key(|one| (order(one), one.rank)).copied()
        };
        let with_headroom: Vec<RankPeak> =
            known.iter().filter(|one| one.headroom.is_some()).copied().collect();
        let first_failure = FirstFailure::of(ranks, &hosts);
        let mut analysis = RanksAnalysis {
            job: job.job.clone(),
            world_size: job.world_size,
            missing: missing(job),
            main: job.main,
            earlier_attempts: job.earlier_attempts,
            highest: first_of(&known, &|one| -i128::from(one.peak.0)),
            lowest: first_of(&known, &|one| i128::from(one.peak.0)),
            tightest: first_of(&with_headroom, &|one| i128::from(one.headroom.unwrap_or_default().0)),
            grouping,
            groups,
            outliers,
            first_failure,
            grid: StepGrid::of(ranks),
            hosts,
            ranks: ranks.clone(),
            sentences: Vec::new(),
            warnings: Vec::new(),
        };
        analysis.sentences = sentences::of(&analysis);
        analysis.warnings = sentences::warnings(&analysis, job);
        analysis
    }
}

impl RankPeak {
    fn of(rank: &RankSummary) -> Option<RankPeak> {
        Some(RankPeak { rank: rank.rank, peak: rank.peak?, headroom: rank.headroom() })
    }
}

impl Outlier {
    fn of(rank: &RankSummary, typical: &RankSummary) -> Option<Outlier> {
        let signed = |bytes: Option<Bytes>| i64::try_from(bytes?.0).ok();
        Some(Outlier {
            rank: rank.rank,
            compared_with: typical.rank,
            difference: signed(rank.peak)?.checked_sub(signed(typical.peak)?)?,
            parts: difference::between(rank, typical),
        })
    }
}

/// More missing ranks than this are not listed.
const MAX_MISSING: u64 = 1 << 20;

fn missing(job: &JobRanks) -> Vec<u64> {
    // Of one host the others are not expected.
    let Some(size) = job.world_size.filter(|_| job.host.is_none()) else { return Vec::new() };
    let present: BTreeSet<u64> = job.ranks.iter().map(|rank| rank.rank).collect();
    (0..size.min(MAX_MISSING)).filter(|rank| !present.contains(rank)).collect()
}

/// What is free of a limit at a peak, else of the device.
fn headroom(peak: Option<Bytes>, limit: Option<Bytes>, device_total: Option<Bytes>) -> Option<Bytes> {
    let room = limit.into_iter().chain(device_total).min()?;
    Some(room.saturating_sub(peak?))
}
