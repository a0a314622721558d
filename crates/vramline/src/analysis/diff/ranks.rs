//! Jobs of several ranks compared rank by rank: by the numbers of the ranks, the largest growth first.

use std::collections::{BTreeMap, BTreeSet};

use super::RunSide;
use super::gate::PeakAlarm;
use super::rows::Figure;
use super::threshold::Threshold;
use super::verdict::share_text;
use crate::analysis::report::ReportAnalysis;
use crate::units::{Bytes, plural};

/// The peaks of one rank in each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankChange {
    /// The rank.
    pub rank: u64,
    /// By run: its peak, of repeats the median; `None` where the run has no such rank, or its memory is unknown.
    pub peaks: Vec<Option<Bytes>>,
    /// By run: the largest difference between repeats.
    spreads: Vec<Bytes>,
}

impl RankChange {
    /// What a run needs more than the first.
    #[must_use]
    pub fn delta(&self, run: usize) -> Option<i64> {
        let bytes = |run: usize| i64::try_from(self.peaks.get(run).copied().flatten()?.0).ok();
        bytes(run)?.checked_sub(bytes(0)?)
    }

    /// Whether the rank needs more in a later run than in the first.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.growth().is_some_and(|bytes| bytes > 0)
    }

    /// The largest growth over all runs; where nothing grew, the one that fell least.
    fn growth(&self) -> Option<i64> {
        (1..self.peaks.len()).filter_map(|run| self.delta(run)).max()
    }
}

/// The ranks of all runs; empty unless two runs have ranks.
pub(super) fn changes(sides: &[RunSide]) -> Vec<RankChange> {
    let of_sides: Vec<BTreeMap<u64, Vec<Bytes>>> = sides.iter().map(|side| peaks(&side.reports)).collect();
    if of_sides.iter().filter(|side| !side.is_empty()).count() < 2 {
        return Vec::new();
    }
    let ranks: BTreeSet<u64> = of_sides.iter().flat_map(|side| side.keys().copied()).collect();
    let change = |rank: u64| {
        let of = |side: &BTreeMap<u64, Vec<Bytes>>| {
            let peaks = side.get(&rank)?;
            Some((
                peaks.get((peaks.len().checked_sub(1)?) / 2).copied()?,
                peaks.last()?.saturating_sub(*peaks.first()?),
            ))
        };
        let told: Vec<Option<(Bytes, Bytes)>> = of_sides.iter().map(of).collect();
        RankChange {
            rank,
            peaks: told.iter().map(|told| told.map(|(peak, _)| peak)).collect(),
            spreads: told.iter().map(|told| told.map_or(Bytes::ZERO, |(_, spread)| spread)).collect(),
        }
    };
    let mut changes: Vec<RankChange> = ranks.into_iter().map(change).collect();
    changes.sort_by_key(|change| (std::cmp::Reverse(change.growth()), change.rank));
    changes
}

/// The peaks of each rank, the lowest first.
fn peaks(reports: &[ReportAnalysis]) -> BTreeMap<u64, Vec<Bytes>> {
    let mut peaks: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
    for rank in reports.iter().filter_map(|report| report.ranks.as_ref()).flat_map(|ranks| &ranks.ranks) {
        if let Some(peak) = rank.peak {
            peaks.entry(rank.rank).or_default().push(peak);
        }
    }
    peaks.values_mut().for_each(|peaks| peaks.sort_unstable());
    peaks
}

/// For each run the rank that grew most, if that is too much; true where repeats of one run differ by as much.
pub(super) fn alarms(
    changes: &[RankChange],
    sides: &[RunSide],
    threshold: Threshold,
) -> Vec<(bool, PeakAlarm)> {
    let of_run = |(run, side): (usize, &RunSide)| {
        let grown = |change: &RankChange| {
            let base = change.peaks.first().copied().flatten()?;
            let bytes = change.peaks.get(run).copied().flatten()?;
            let more = bytes.saturating_sub(base);
            (more > Bytes::ZERO && threshold.is_exceeded(more, base)).then_some((more, base, bytes))
        };
        let too_much: Vec<_> = changes.iter().filter_map(|change| Some((grown(change)?, change))).collect();
        let ((more, base, bytes), worst) = too_much.iter().max_by_key(|((more, ..), _)| *more)?;
        let others = match too_much.len() - 1 {
            0 => String::new(),
            more => format!("; {} too much as well", plural(more, "other rank grew", "other ranks grew")),
        };
        let spread = worst.spreads.iter().copied().max().unwrap_or_default();
        let is_noise = *more <= spread;
        let limit = if is_noise {
            format!("but repeats of one run differ by {spread}")
        } else {
            format!("the allowed increase is {threshold}{others}")
        };
        let share = share_text(*more, *base);
        let text = format!(
            "rank {} of {}: {bytes}, {more}{share} more than in the first run; {limit}",
            worst.rank, side.name
        );
        let (run, pool) = (side.name.clone(), String::new());
        let alarm = PeakAlarm {
            run,
            pool,
            rank: Some(worst.rank),
            figure: Figure::Ever,
            base: *base,
            bytes: *bytes,
            more: *more,
            text,
        };
        Some((is_noise, alarm))
    };
    sides.iter().enumerate().skip(1).filter_map(of_run).collect()
}
