//! The gate: whether a run needs too much more than the first.

use super::ranks::{self, RankChange};
use super::rows::{ComparedRow, Figure, rows_of};
use super::slots::Comparison;
use super::threshold::Threshold;
use super::verdict::share_text;
use super::{DiffBy, RunSide};
use crate::units::Bytes;

/// What the gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No peak grew too much.
    Pass,
    /// A peak grew too much.
    Fail,
    /// No peak can be compared.
    Unknown,
    /// Nobody asked.
    None,
}

words!(Gate { Pass => "pass", Fail => "fail", Unknown => "unknown", None => "none" });

/// What the gate says, and why.
#[derive(Clone, Debug)]
pub struct GateAnalysis {
    /// What it says.
    pub gate: Gate,
    /// How much more is too much.
    pub fail_over: Option<Threshold>,
    /// The peaks that grew too much.
    pub alarms: Vec<PeakAlarm>,
    /// The peaks that did, but by no more than repeats of one run differ by, which is no alarm.
    pub tolerated: Vec<PeakAlarm>,
}

/// A peak that grew by more than the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakAlarm {
    /// The run.
    pub run: String,
    /// The pool; empty for a rank.
    pub pool: String,
    /// The rank; `None` for a pool.
    pub rank: Option<u64>,
    /// Which peak.
    pub figure: Figure,
    /// The first run's; zero where it has no such pool.
    pub base: Bytes,
    /// This run's.
    pub bytes: Bytes,
    /// The difference.
    pub more: Bytes,
    /// The same as a sentence.
    pub text: String,
}

impl GateAnalysis {
    /// Adds the worst rank of each run.
    pub(super) fn add_ranks(&mut self, changes: &[RankChange], sides: &[RunSide]) {
        let Some(threshold) = self.fail_over else { return };
        for (is_noise, alarm) in ranks::alarms(changes, sides, threshold) {
            let list = if is_noise { &mut self.tolerated } else { &mut self.alarms };
            list.push(alarm);
        }
        let is_compared =
            |change: &RankChange| (1..change.peaks.len()).all(|run| change.delta(run).is_some());
        self.gate = match self.gate {
            _ if !self.alarms.is_empty() => Gate::Fail,
            Gate::Unknown if changes.iter().any(is_compared) => Gate::Pass,
            gate => gate,
        };
    }
}

impl Comparison<'_> {
    pub(super) fn gate(
        &self,
        fail_over: Option<Threshold>,
        common: &[usize],
        rows: &[ComparedRow],
    ) -> GateAnalysis {
        let mut outcome =
            GateAnalysis { gate: Gate::None, fail_over, alarms: Vec::new(), tolerated: Vec::new() };
        let Some(threshold) = fail_over else { return outcome };
        let peaks = || rows.iter().filter(|row| row.by == DiffBy::Device);
        let largest = peaks().filter_map(|row| row.bytes(0)).max().unwrap_or_default();
        let mut is_certain = common
            .iter()
            .any(|&slot| rows_of(slot, rows, DiffBy::Device).any(ComparedRow::is_known_in_every_run));
        for row in peaks() {
            for (number, side) in self.sides.iter().enumerate().skip(1) {
                let (against, base, bytes) = match (row.bytes(0), row.bytes(number)) {
                    // A pool that only the new run has is measured against the first run's largest.
                    (None, Some(bytes)) if !common.is_empty() && !self.has_pool(0, row.slot) => {
                        (largest, Bytes::ZERO, bytes)
                    }
                    (Some(base), Some(bytes)) => (base, base, bytes),
                    (Some(_), None) if self.has_pool(number, row.slot) && row.figure == Figure::Peak => {
                        is_certain = false;
                        continue;
                    }
                    _ => continue,
                };
                let more = bytes.saturating_sub(base);
                if more == Bytes::ZERO || !threshold.is_exceeded(more, against) {
                    continue;
                }
                let noise = row.spread.filter(|&spread| more <= spread);
                let share = share_text(more, base);
                let what = format!(
                    "{} of {}: {bytes}, {more}{share} more than in the first run",
                    row.text(),
                    side.name
                );
                let text = match noise {
                    Some(spread) => format!("{what}, but repeats of one run differ by {spread}"),
                    None => format!("{what}; the allowed increase is {threshold}"),
                };
                let list = if noise.is_some() { &mut outcome.tolerated } else { &mut outcome.alarms };
                list.push(PeakAlarm {
                    run: side.name.clone(),
                    pool: row.pool.clone(),
                    rank: None,
                    figure: row.figure,
                    base,
                    bytes,
                    more,
                    text,
                });
            }
        }
        outcome.gate = match (outcome.alarms.is_empty(), is_certain) {
            (false, _) => Gate::Fail,
            (true, true) => Gate::Pass,
            (true, false) => Gate::Unknown,
        };
        outcome
    }
}
