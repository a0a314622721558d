//! The ranks of a job as a part of the report's document: peaks, groups, outliers with what makes the difference, clocks, and how each rank ended.

use serde::Serialize;

use super::windows::PeakPlaceView;
use crate::analysis::ranks::clocks::{AlignedBy, HostClock};
use crate::analysis::ranks::difference::Difference;
use crate::analysis::ranks::endings::{FirstFailure, RankEnd};
use crate::analysis::ranks::groups::{Grouping, RankGroup};
use crate::analysis::ranks::summary::RankSummary;
use crate::analysis::ranks::{Outlier, RankPeak, RanksAnalysis};
use crate::document::Document;
use crate::recording::identity::{Launcher, TaskRole};
use crate::units::{Bytes, Nanos};

/// The ranks of a job. The other fields of the report are about the rank `main`; of up to 16 ranks on one host, about all of them.
#[derive(Debug, Serialize, Document)]
pub struct RanksView {
    /// The job's name, by `vramline run --job` or its launcher.
    #[field(null = "neither --job nor the launcher names the job, or ranks disagree")]
    pub job: Option<String>,
    /// The number of ranks that the launcher announced.
    #[field(unit = "number", null = "no launcher variable contains the number of ranks")]
    pub world_size: Option<u64>,
    /// Ranks that the launcher announced and that the recording lacks.
    pub missing: Vec<u64>,
    /// The rank that the report explains: the one that ran out of memory first, else the one with the least headroom, else the one with the
    /// highest peak.
    #[field(null = "no rank is known")]
    pub main: Option<u64>,
    /// Attempts of ranks before their last, which the report leaves out.
    pub earlier_attempts: usize,
    /// The rank with the highest peak.
    #[field(null = "the memory of no rank is known")]
    pub highest: Option<RankPeakView>,
    /// The rank with the lowest peak.
    #[field(null = "the memory of no rank is known")]
    pub lowest: Option<RankPeakView>,
    /// The rank with the least headroom.
    #[field(null = "neither limits nor devices are known")]
    pub tightest: Option<RankPeakView>,
    /// How the peaks relate to each other: `alike`; `regular`: groups of ranks that are regular in their numbers, such as stages of a
    /// pipeline or experts; `varied`: without a rule; `few`: fewer than three ranks.
    pub grouping: Grouping,
    /// Groups of ranks whose peaks are alike: within 1 % or 1 MiB of the median.
    pub groups: Vec<RankGroupView>,
    /// Ranks that differ from their group, the largest difference first.
    pub outliers: Vec<OutlierView>,
    /// The rank that ran out of memory first, and what followed.
    #[field(null = "no rank ran out of memory")]
    pub first_failure: Option<FirstFailureView>,
    /// The clocks of the hosts.
    pub hosts: Vec<HostClockView>,
    /// The ranks in order.
    pub ranks: Vec<RankView>,
    /// The answer over the job, a sentence each.
    pub sentences: Vec<String>,
}

/// The peak of a rank.
#[derive(Clone, Debug, Serialize, Document)]
pub struct RankPeakView {
    /// The rank.
    pub rank: u64,
    /// Its peak.
    #[field(title = "peak")]
    pub peak_bytes: Bytes,
    /// The limit of its pool minus the peak; without a limit, the memory of its device minus the peak. Context and libraries are not included.
    #[field(title = "headroom", null = "neither a limit nor the memory of the device is known")]
    pub headroom_bytes: Option<Bytes>,
}

/// Ranks with like peaks.
#[derive(Debug, Serialize, Document)]
pub struct RankGroupView {
    /// The ranks without the outliers.
    pub ranks: Vec<u64>,
    /// Ranks whose numbers belong to the group, and whose peaks do not.
    pub outliers: Vec<u64>,
    /// The lowest peak of the ranks.
    pub lowest_bytes: Bytes,
    /// The highest.
    pub highest_bytes: Bytes,
    /// The rank with the median peak.
    pub typical: u64,
}

/// A rank that differs from its group.
#[derive(Debug, Serialize, Document)]
pub struct OutlierView {
    /// The rank.
    pub rank: u64,
    /// The rank that it is compared with: the one with the median peak of the group.
    pub compared_with: u64,
    /// Its peak minus that rank's.
    #[field(unit = "bytes")]
    pub difference_bytes: i64,
    /// What makes the difference. The parts add up to `difference_bytes`.
    #[field(null = "no trace shows what one of the two ranks held", switch = "vramline run --trace auto")]
    pub parts: Option<Vec<DifferenceView>>,
}

/// A part of the difference between two ranks.
#[derive(Debug, Serialize, Document)]
pub struct DifferenceView {
    /// A role, `rounding`, `before the recording`, or `beyond the trace`: what the peak of the process exceeds the traced peak by.
    #[field(unit = "text")]
    pub what: &'static str,
    /// The layer, else the variable or op; empty if unknown, or if it sums up several.
    pub owner: String,
    /// The bytes of the one rank minus those of the other.
    #[field(unit = "bytes")]
    pub bytes: i64,
}

/// The rank that ran out of memory first, and the others that failed.
#[derive(Debug, Serialize, Document)]
pub struct FirstFailureView {
    /// The rank.
    pub rank: u64,
    /// Its host.
    pub host: String,
    /// Others that ran out of memory, so close to it that their order is unknown.
    pub at_once: Vec<u64>,
    /// Others that ran out of memory later.
    pub later: Vec<u64>,
    /// Ranks whose operations with other ranks failed, such as those of NCCL.
    pub lost_peers: Vec<u64>,
    /// Ranks that ended without a last word while the job failed.
    pub killed: Vec<u64>,
    /// What moments of the first rank's host and of that of the next can differ by without a known order; 0 on one machine.
    #[field(null = "only one rank ran out of memory, or the clocks of the hosts cannot be aligned")]
    pub clock_residual_ns: Option<Nanos>,
}

/// The clock of a host.
#[derive(Debug, Serialize, Document)]
pub struct HostClockView {
    /// The host.
    pub host: String,
    /// The number of its ranks.
    #[field(title = "ranks")]
    pub ranks: usize,
    /// How it is aligned: `reference`: the others are compared with it; `steps`: by the ends of steps that its ranks share with those of the
    /// first host; `same-machine`: it is the same clock; `wall-clock`: by its own date and time, because it shares too few steps.
    pub by: AlignedBy,
    /// The number of shared steps.
    pub steps: usize,
    /// What its date and time are ahead of those of the first host.
    #[field(unit = "ns", null = "the hosts share too few steps")]
    pub wall_ahead_ns: Option<i64>,
    /// What its clock gains on that of the first host in a second; 0 if the steps show no drift.
    #[field(unit = "ns a second")]
    pub drift_ns: i64,
    /// What the ends of shared steps still differ by after the alignment: 95 % of them are within it. At least what the ends of a step on one
    /// host differ by, and at least 0.1 ms; 0 for one clock.
    #[field(title = "residual", null = "the hosts share too few steps")]
    pub residual_ns: Option<Nanos>,
}

/// A rank.
#[derive(Debug, Serialize, Document)]
pub struct RankView {
    /// Its number.
    pub rank: u64,
    /// Its host.
    pub host: String,
    /// Its number on its host.
    #[field(null = "no launcher variable contains it")]
    pub local_rank: Option<u64>,
    /// The number of its host in the job.
    #[field(null = "no launcher variable contains it")]
    pub node_rank: Option<u64>,
    /// How many times it had been started before.
    #[field(unit = "number", null = "the recording does not show it")]
    pub attempt: Option<u64>,
    /// Its task in a cluster of TensorFlow.
    #[field(title = "role", null = "there is no TF_CONFIG")]
    pub task_role: Option<TaskRole>,
    /// Who told the rank.
    #[field(null = "an older version recorded it, which does not say")]
    pub launcher: Option<Launcher>,
    /// Its processes, the one with the highest peak first.
    pub pids: Vec<u64>,
    /// Its pool with the highest peak.
    #[field(null = "the memory of the rank is unknown")]
    pub pool: Option<String>,
    /// The device of that pool.
    #[field(null = "the memory of the rank is unknown")]
    pub device: Option<String>,
    /// The peak of that pool, as the report on the rank alone has it.
    #[field(title = "peak", null = "the framework does not count the memory of this device")]
    pub peak_bytes: Option<Bytes>,
    /// Where in the program the peak was reached.
    #[field(null = "the marks of the recording do not show it")]
    pub peak_in: Option<PeakPlaceView>,
    /// The limit of the pool, unless that is a built-in default.
    #[field(title = "limit", null = "the limit is unknown, or it is only the framework's built-in default")]
    pub limit_bytes: Option<Bytes>,
    /// The limit of the pool minus the peak; without a limit, the memory of the device minus the peak.
    #[field(title = "headroom", null = "neither a limit nor the memory of the device is known")]
    pub headroom_bytes: Option<Bytes>,
    /// The number of its training steps.
    pub steps: u64,
    /// How it ended: `done`, `out-of-memory`, `collective` (an operation with other ranks failed), `exception` (another one), `killed` (without a
    /// last word while the job failed) or `unknown`.
    pub end: RankEnd,
}

impl From<RanksAnalysis> for RanksView {
    fn from(ranks: RanksAnalysis) -> RanksView {
        let peak = |peak: &RankPeak| RankPeakView {
            rank: peak.rank,
            peak_bytes: peak.peak,
            headroom_bytes: peak.headroom,
        };
        RanksView {
            highest: ranks.highest.as_ref().map(peak),
            lowest: ranks.lowest.as_ref().map(peak),
            tightest: ranks.tightest.as_ref().map(peak),
            job: ranks.job,
            world_size: ranks.world_size,
            missing: ranks.missing,
            main: ranks.main,
            earlier_attempts: ranks.earlier_attempts,
            grouping: ranks.grouping,
            groups: ranks.groups.into_iter().map(RankGroupView::from).collect(),
            outliers: ranks.outliers.into_iter().map(OutlierView::from).collect(),
            first_failure: ranks.first_failure.map(FirstFailureView::from),
            hosts: ranks.hosts.into_iter().map(HostClockView::from).collect(),
            ranks: ranks.ranks.into_iter().map(RankView::from).collect(),
            sentences: ranks.sentences,
        }
    }
}

impl From<RankGroup> for RankGroupView {
    fn from(group: RankGroup) -> RankGroupView {
        RankGroupView {
            ranks: group.ranks,
            outliers: group.outliers,
            lowest_bytes: group.lowest,
            highest_bytes: group.highest,
            typical: group.typical,
        }
    }
}

impl From<Outlier> for OutlierView {
    fn from(outlier: Outlier) -> OutlierView {
        let parts = |parts: Vec<Difference>| parts.into_iter().map(DifferenceView::from).collect();
        OutlierView {
            rank: outlier.rank,
            compared_with: outlier.compared_with,
            difference_bytes: outlier.difference,
            parts: outlier.parts.map(parts),
        }
    }
}

impl From<Difference> for DifferenceView {
    fn from(part: Difference) -> DifferenceView {
        DifferenceView { what: part.what, owner: part.owner, bytes: part.bytes }
    }
}

impl From<FirstFailure> for FirstFailureView {
    fn from(first: FirstFailure) -> FirstFailureView {
        FirstFailureView {
            rank: first.rank,
            host: first.host,
            at_once: first.at_once,
            later: first.later,
            lost_peers: first.lost_peers,
            killed: first.killed,
            clock_residual_ns: first.clock_residual,
        }
    }
}

impl From<HostClock> for HostClockView {
    fn from(clock: HostClock) -> HostClockView {
        HostClockView {
            host: clock.host,
            ranks: clock.ranks,
            by: clock.by,
            steps: clock.steps,
            wall_ahead_ns: clock.wall_ahead,
            drift_ns: clock.drift,
            residual_ns: clock.residual,
        }
    }
}

impl From<RankSummary> for RankView {
    fn from(rank: RankSummary) -> RankView {
        RankView {
            headroom_bytes: rank.headroom(),
            rank: rank.rank,
            host: rank.host,
            local_rank: rank.identity.local_rank,
            node_rank: rank.identity.node_rank,
            attempt: rank.identity.attempt,
            task_role: rank.identity.role,
            launcher: rank.identity.launcher,
            pids: rank.pids,
            pool: rank.pool,
            device: rank.device,
            peak_bytes: rank.peak,
            peak_in: rank.peak_in.map(PeakPlaceView::from),
            limit_bytes: rank.limit,
            steps: rank.steps.count,
            end: rank.end,
        }
    }
}
