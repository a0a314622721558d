//! The edge: how the chance that a run fails under a limit grows with the batch size, as the runs so far show it.
//!
//! Threads order ops differently in each run, so there is no batch size up to which all runs pass and above which all fail. The chance is
//! a logistic function of the logarithm of the batch size, with two unknowns: the middle, where half of the runs fail, and the width. Bayes'
//! rule weighs all pairs of a grid by the runs. Not its job: choosing what to run.

use super::confirm::RealRun;

/// Widths of edges, as a share of the batch size, and how likely each one is before anything ran. At three widths above the middle, 95 % of the
/// runs fail. The weights were chosen by hand after looking at the edges of five Keras models (benches/sure.py), and were not fitted.
const WIDTHS: [(f64, f64); 7] =
    [(0.002, 1.0), (0.004, 2.0), (0.007, 2.0), (0.012, 2.5), (0.02, 2.5), (0.033, 1.5), (0.055, 0.5)];

/// Places of the middle: from this share of the smallest batch size that ran to as many times the largest.
const REACH: f64 = 2.0;
const PLACES: u32 = 200;

/// What the runs say about the edge.
#[derive(Debug)]
pub(super) struct Edge {
    /// For each place of the middle and each width: the logarithm of the middle, the width, and the weight. Weights add up to 1.
    pairs: Vec<(f64, f64, f64)>,
    /// The largest batch size that an answer may have.
    most: u64,
}

impl Edge {
    /// The edge by all runs that passed under the limit or failed; `None` without any. A run that failed with more memory than the limit
    /// counts as a failure under it.
    pub(super) fn of(runs: &[RealRun]) -> Option<Edge> {
        let seen: Vec<(f64, bool)> = runs
            .iter()
            .filter(|run| run.ran_out || run.is_pass())
            .map(|run| (logarithm(run.trial.batch), run.ran_out))
            .collect();
        let (least, most) =
            seen.iter().fold((f64::MAX, f64::MIN), |(least, most), &(at, _)| (least.min(at), most.max(at)));
        if seen.is_empty() {
            return None;
        }
        let (low, high) = (least - REACH.ln(), most + REACH.ln());
        let middle = |place: u32| low + (high - low) * f64::from(place) / f64::from(PLACES);
        let mut pairs: Vec<(f64, f64, f64)> = (0..=PLACES)
            .flat_map(|place| WIDTHS.map(|(width, prior)| (middle(place), width, prior.ln())))
            .collect();
        for (middle, width, weight) in &mut pairs {
            for &(at, ran_out) in &seen {
                let chance = chance_of_failure(at, *middle, *width);
                *weight += if ran_out { chance } else { 1.0 - chance }.max(f64::MIN_POSITIVE).ln();
            }
        }
        let highest = pairs.iter().fold(f64::MIN, |highest, &(_, _, weight)| highest.max(weight));
        for (_, _, weight) in &mut pairs {
            *weight = (*weight - highest).exp();
        }
        let sum: f64 = pairs.iter().map(|&(_, _, weight)| weight).sum();
        for (_, _, weight) in &mut pairs {
            *weight /= sum;
        }
        let most = runs.iter().map(|run| run.trial.batch).max().unwrap_or_default();
        Some(Edge { pairs, most: most.saturating_mul(2) })
    }

    /// The chance that a run at a batch size fails.
    pub(super) fn chance(&self, batch: u64) -> f64 {
        let at = logarithm(batch);
        self.pairs.iter().map(|&(middle, width, weight)| weight * chance_of_failure(at, middle, width)).sum()
    }

    /// The largest batch size at which a run fails with at most this chance; 0 if there is none.
    pub(super) fn largest(&self, chance: f64) -> u64 {
        let (mut fits, mut fails) = (0, self.most.saturating_add(1));
        while fails - fits > 1 {
            let middle = fits.midpoint(fails);
            *if self.chance(middle) <= chance { &mut fits } else { &mut fails } = middle;
        }
        fits
    }
}

fn chance_of_failure(at: f64, middle: f64, width: f64) -> f64 {
    1.0 / (1.0 + ((middle - at) / width).exp())
}

#[expect(clippy::cast_precision_loss, reason = "shares of a percent do not matter")]
fn logarithm(batch: u64) -> f64 {
    (batch.max(1) as f64).ln()
}
