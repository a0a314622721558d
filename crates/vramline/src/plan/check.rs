//! How well a plan predicts: the largest probe, predicted from the smaller ones, against what it took.
//!
//! Libraries choose kernels by size, and a kernel may need scratch memory that no smaller batch shows. Whether a program has such kernels,
//! and what they cost, shows where one probe is predicted from the others. What that prediction missed widens the intervals of all others.
//! It is done for programs that request in the same order every time: for others, their many orders make the interval.

use super::{Plan, Prediction, Source};
use crate::units::Bytes;

/// The least margin around the peak, as a share, if the largest probe is not predicted to the byte: once, and once more for each doubling of
/// the largest probe. Fitted to 64 predictions of 13 models on an H200, whose worst error was 1.1 % at 8 times the largest probe.
const LEAST_PEAK_MARGIN: f64 = 0.0035;
/// The same for memory reserved from the driver, fitted to the same predictions.
const LEAST_POOL_MARGIN: f64 = 0.0375;
/// Below this share of sizes that are known, the fragmentation of the pool is not predicted.
const LEAST_KNOWN_SHARE: f64 = 0.95;

/// What the prediction of the largest probe missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Check {
    /// The error of the peak, as a share of it.
    peak: f64,
    /// The error of what is reserved from the driver.
    pool: f64,
    /// Whether a straight line through the peaks of the probes missed less.
    is_line_better: bool,
}

impl Check {
    /// Predicts the largest probe from the others; `None` if these are of one batch size only, or show too little.
    pub(super) fn of(plan: &Plan, sources: &[Source<'_>]) -> Option<Check> {
        let largest = plan.probes.get(*plan.orders().last()?)?.batch;
        let smaller: Vec<Source<'_>> =
            sources.iter().copied().filter(|source| source.batch < largest).collect();
        if !plan.is_ordered || smaller.is_empty() {
            return None;
        }
        let before = Plan::aligned(&smaller).ok()?;
        let (predicted, actual) = (before.predict_as_is(largest)?, plan.predict_as_is(largest)?);
        let error = |predicted: Bytes, actual: Bytes| -> f64 {
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let error = predicted.0.abs_diff(actual.0) as f64 / actual.0.max(1) as f64;
            error
        };
        let peak = error(predicted.peak, actual.peak);
        let line = before.line_at(largest).map(|line| error(line, actual.peak));
        Some(Check {
            peak,
            pool: error(predicted.pool[1], actual.pool[1]),
            is_line_better: line.is_some_and(|line| line < peak),
        })
    }
}

impl Plan {
    /// The straight line through the peaks of the two largest batch sizes that were probed.
    fn line_at(&self, batch: u64) -> Option<Bytes> {
        let last = self.probes.last()?.batch;
        let before = self.probes.iter().rev().find(|probe| probe.batch < last)?.batch;
        let (low, high) = (self.predict_as_is(before)?.peak, self.predict_as_is(last)?.peak);
        let form = super::Form::Known(vec![(before, low.0), (last, high.0)]);
        Some(form.at(batch))
    }

    /// Sets the intervals of a program that requests in the same order every time, with room for what the plan has missed before.
    pub(super) fn set_margins(&self, prediction: &mut Prediction) {
        let batch = prediction.batch;
        let is_exact = self.check.is_some_and(|check| check.peak == 0.0 && check.pool == 0.0);
        if is_exact || self.is_probed(batch) {
            return;
        }
        let missed = |of: fn(Check) -> f64| self.check.map_or(0.0, of);
        let (peak, pool) = (missed(|check| check.peak), missed(|check| check.pool));
        let times = 1.0 + self.doublings(batch);
        let (peak, pool) = (peak.max(times * LEAST_PEAK_MARGIN), pool.max(times * LEAST_POOL_MARGIN));
        if let Some(line) =
            self.line_at(batch).filter(|_| self.check.is_some_and(|check| check.is_line_better))
        {
            (prediction.low, prediction.high) = (prediction.low.min(line), prediction.high.max(line));
        }
        prediction.low = part_of(prediction.low, 1.0 - peak);
        prediction.high = part_of(prediction.high, 1.0 + peak);
        let [low, middle, high] = prediction.pool;
        // A pool holds at least what is in use.
        let least = if prediction.known_share() < LEAST_KNOWN_SHARE { prediction.low } else { low };
        prediction.pool = [part_of(low, 1.0 - pool).min(least), middle, part_of(high, 1.0 + pool)];
    }

    /// How often the largest probe must be doubled to reach a batch size.
    fn doublings(&self, batch: u64) -> f64 {
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a margin")]
        let doublings = (batch as f64 / largest as f64).log2();
        doublings.max(0.0)
    }

    fn is_probed(&self, batch: u64) -> bool {
        self.probes.iter().any(|probe| probe.batch == batch)
    }
}

/// A share of bytes, which may be more than all.
fn part_of(bytes: Bytes, share: f64) -> Bytes {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    let part = (bytes.0 as f64 * share.max(0.0)).round() as u64;
    // A margin of nothing changes nothing, however large the number.
    if share == 1.0 { bytes } else { Bytes(part) }
}
