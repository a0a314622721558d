//! How well a plan predicts: the largest probe, predicted from the smaller ones, against what it took.
//!
//! Libraries choose kernels by size, and a kernel may need scratch memory that no smaller batch shows. Whether a program has such kernels,
//! and what they cost, shows where one probe is predicted from the others. What that prediction missed widens the intervals of all others.
//! It is done for programs that request in the same order every time: for others, their many orders make the interval.

use super::{Plan, Prediction, Source};
use crate::units::Bytes;

/// Margins on each side, as shares: of the peak, and of the memory reserved from the driver.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Margins {
    peak: f64,
    pool: f64,
}

/// The least margins if the largest probe is not predicted to the byte: once, and once more for each doubling of the largest probe. Fitted to
/// 64 predictions of 16 cases on an H200, of which the worst were 1.1 % off at 8 times the largest probe.
const LEAST: Margins = Margins { peak: 0.0035, pool: 0.0375 };
/// The same if it is: what small batches show exactly may still change at large ones.
const LEAST_OF_EXACT: Margins = Margins { peak: 0.0005, pool: 0.005 };
/// Where more than this share of the peak is scratch, an exact prediction of the largest probe may be chance.
const LITTLE_SCRATCH: f64 = 0.01;
/// If a library chooses another algorithm, scratch at the peak may be smaller by this share (copies of one tensor instead of two) and larger by
/// that one (the scratch of a layer that no longer changes its algorithm before twice the batch).
const SCRATCH_LESS: f64 = 0.5;
const SCRATCH_MORE: f64 = 1.0;
/// Below this share of sizes that are known, the fragmentation of the pool is not predicted.
const LEAST_KNOWN_SHARE: f64 = 0.95;

/// An interval that is wider than this share is worth another probe.
const WIDE: f64 = 0.1;

/// A probe that would narrow the interval of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextProbe {
    /// The batch size to probe.
    pub batch: u64,
    /// The batch size whose interval it narrows.
    pub predicted: u64,
    /// The width of the interval of reserved memory there, as a share.
    pub width: f64,
    /// The width that is expected with the probe.
    pub expected: f64,
}

impl NextProbe {
    /// What to do, in a sentence. `name` is what varies between the probes.
    #[must_use]
    pub fn sentence(&self, name: &str) -> String {
        let NextProbe { batch, predicted, width, expected } = self;
        format!(
            "Add a probe with {name} {batch}: it narrows the range of reserved memory at {predicted} from {:.0} % to about {:.0} %.",
            width * 100.0,
            expected * 100.0
        )
    }
}

/// What the prediction of the largest probe missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Check {
    /// The errors of the plan, as shares.
    plan: Margins,
    /// The errors of straight lines through the totals of the probes; `None` for fewer than two smaller batch sizes.
    line: Option<Margins>,
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
        let errors = |peak: Bytes, pool: Bytes| Margins {
            peak: error(peak, actual.peak),
            pool: error(pool, actual.pool[1]),
        };
        let line = before.lines_at(largest).map(|(peak, pool)| errors(peak, pool));
        Some(Check { plan: errors(predicted.peak, predicted.pool[1]), line })
    }

    fn is_exact(self) -> bool {
        self.plan == Margins { peak: 0.0, pool: 0.0 }
    }
}

impl Plan {
    /// The straight lines through what the two largest batch sizes that were probed took: at the peak, and from the driver.
    fn lines_at(&self, batch: u64) -> Option<(Bytes, Bytes)> {
        let whole = || self.probes.iter().rev().filter(|probe| !probe.lacks_state);
        let high = whole().next()?;
        let low = whole().find(|probe| probe.batch < high.batch)?;
        let line = |low_bytes: Bytes, high_bytes: Bytes| {
            super::Form::Known(vec![(low.batch, low_bytes.0), (high.batch, high_bytes.0)]).at(batch)
        };
        let (low, high) = (&low.ran.exact, &high.ran.exact);
        Some((line(low.peak, high.peak), line(low.pool, high.pool)))
    }

    /// Sets the intervals of a program that requests in the same order every time, with room for what the plan has missed before, and for
    /// the straight line where that missed less.
    pub(super) fn set_margins(&self, prediction: &mut Prediction) {
        let batch = prediction.batch;
        if self.is_probed(batch) {
            return;
        }
        let scratch = prediction.scratch_share();
        let is_exact = scratch <= LITTLE_SCRATCH && self.check.is_some_and(Check::is_exact);
        let least = if is_exact { LEAST_OF_EXACT } else { LEAST };
        let missed = self.check.map_or(Margins { peak: 0.0, pool: 0.0 }, |check| check.plan);
        let times = 1.0 + self.doublings(batch);
        let peak = missed.peak.max(times * least.peak);
        let pool = missed.pool.max(times * least.pool);
        // Scratch that is larger finds no cached block as large, so it adds to what the pool takes otherwise.
        let more_scratch = part_of(prediction.high, scratch * SCRATCH_MORE);
        let [low, middle, high] = prediction.pool;
        // A pool holds at least what is in use.
        let least = if prediction.known_share() < LEAST_KNOWN_SHARE { prediction.low } else { low };
        prediction.pool =
            [part_of(low, 1.0 - pool).min(least), middle, part_of(high, 1.0 + pool) + more_scratch];
        prediction.low = part_of(prediction.low, 1.0 - peak.max(scratch * SCRATCH_LESS));
        prediction.high = part_of(prediction.high, 1.0 + peak.max(scratch * SCRATCH_MORE));
        if let (Some(Check { plan, line: Some(line) }), Some((peak, pool))) =
            (self.check, self.lines_at(batch))
        {
            if line.peak < plan.peak {
                (prediction.low, prediction.high) = (prediction.low.min(peak), prediction.high.max(peak));
            }
            if line.pool < plan.pool {
                let [low, middle, high] = prediction.pool;
                prediction.pool = [low.min(pool), middle, high.max(pool)];
            }
        }
    }

    /// The probe that narrows the interval of a prediction most, of those that need about half its memory at most. `None` if the interval is
    /// narrow, or if there is no room between the probes and the batch size.
    #[must_use]
    pub fn next_probe(&self, prediction: &Prediction) -> Option<NextProbe> {
        let [low, middle, high] = prediction.pool;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let width = high.saturating_sub(low).0 as f64 / middle.0.max(1) as f64;
        let (predicted, batch) = (prediction.batch, prediction.batch / 2);
        let largest = self.probes.last()?.batch;
        if !self.is_ordered || width < WIDE || batch <= largest.saturating_add(largest / 4) {
            return None;
        }
        // The margins grow with each doubling of the largest probe, on both sides.
        let saved = 2.0 * LEAST.pool * (self.doublings(predicted) - 1.0);
        Some(NextProbe { batch, predicted, width, expected: (width - saved).max(0.0) })
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
