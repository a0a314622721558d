//! The climb: from a batch size that passed under the limit, larger ones are tried until the edge is known. Threads order ops differently in
//! each run, so what fits is found by running, and the plan only says where to begin.
//!
//! Larger batch sizes run until one fails, then some between, then a few near the edge, because how sharp it is decides how far below it the
//! answer has to be. Not its job: deciding whether to climb, or what the runs mean otherwise.

use std::collections::BTreeSet;

use super::confirm::RealRun;
use super::edge::Edge;

/// The first batch size to try above one that passed is larger by one part in so many, unless a larger one is likely to pass. Each further
/// one is twice as far away.
const FIRST_DIVISOR: u64 = 32;

/// The search for the edge ends where the smallest failure is above the largest pass by at most one part in so many, or after so many runs.
const EDGE_DIVISOR: u64 = 24;
const MAX_SEARCH_RUNS: usize = 8;

/// Runs near the edge show how sharp it is. They end after so many runs, where a batch size has passed so often, or where the answer is so
/// close to the middle of the edge that more runs would gain little.
const MAX_LEARNING_RUNS: usize = 14;
const MAX_LEARNING_PASSES: u64 = 10;
const CLOSE_SHARE: f64 = 0.04;
const LEARNING_CHANCE: f64 = 0.2;

/// The climb ends after so many runs in any case.
const MAX_RUNS: usize = 28;

/// At the answer, a run fails with at most this chance.
const SURE_CHANCE: f64 = 0.003;

/// At what is likely to pass, half of the runs do.
const LIKELY_CHANCE: f64 = 0.5;

/// A batch size that has begun to pass is the answer, if it is smaller than what the edge allows by at most one part in so many.
const BEGUN_DIVISOR: u64 = 64;

/// Number of passes of a batch size above the answer that are worth a word.
const TOP_PASSES: u64 = 2;

/// A climb that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    /// Number of runs before it began.
    pub(super) runs_before: usize,
}

impl Climb {
    /// The next batch size to run; `None` when the answer has passed as often as wanted, or there is none.
    pub(super) fn next(self, runs: &[RealRun], likely: Option<u64>, wanted: u64) -> Option<u64> {
        let made = runs.len() - self.runs_before;
        let edge = Edge::of(runs).filter(|_| made < MAX_RUNS)?;
        if made < MAX_SEARCH_RUNS {
            match (highest_pass(runs), nearest_failure(runs)) {
                (Some(top), None) => return Some(above(runs, top, likely)),
                (Some(top), Some(failed)) if failed - top > (top / EDGE_DIVISOR).max(1) => {
                    return Some(top.midpoint(failed));
                }
                _ => {}
            }
        }
        let answer = answer(runs, &edge);
        if made < MAX_LEARNING_RUNS && passes(runs, answer) < wanted {
            let middle = edge.largest(LIKELY_CHANCE);
            let learning = edge.largest(LEARNING_CHANCE);
            let is_known = passes(runs, learning) >= MAX_LEARNING_PASSES;
            if learning > answer && !is_known && !is_close(answer, middle) {
                return Some(learning);
            }
        }
        Some(answer).filter(|&answer| answer > 0 && passes(runs, answer) < wanted)
    }
}

/// The largest batch size that the runs allow as an answer. Whether it passed is another question.
pub(super) fn most(runs: &[RealRun]) -> u64 {
    Edge::of(runs).map_or(0, |edge| edge.largest(SURE_CHANCE))
}

/// The largest batch size at which about half of the runs pass.
pub(super) fn likely(runs: &[RealRun]) -> Option<u64> {
    Edge::of(runs).map(|edge| edge.largest(LIKELY_CHANCE))
}

/// The answer to confirm: the most that the edge allows, or a little less that has begun to pass.
fn answer(runs: &[RealRun], edge: &Edge) -> u64 {
    let most = edge.largest(SURE_CHANCE);
    let begun = passed(runs).range(most - most / BEGUN_DIVISOR..=most).next_back().copied();
    begun.unwrap_or(most)
}

#[expect(clippy::cast_precision_loss, reason = "a share of a batch size")]
fn is_close(answer: u64, middle: u64) -> bool {
    answer as f64 >= middle as f64 * (1.0 - CLOSE_SHARE)
}

/// A batch size above the largest that passed.
fn above(runs: &[RealRun], top: u64, likely: Option<u64>) -> u64 {
    let step = top.div_ceil(FIRST_DIVISOR);
    if let Some(likely) = likely.filter(|&likely| likely > top.saturating_add(step)) {
        return likely;
    }
    let climbed = u32::try_from(passed(runs).len().saturating_sub(1)).unwrap_or(u32::MAX);
    top.saturating_add(step.saturating_mul(1 << climbed.min(u64::BITS / 2)))
}

/// Batch sizes with a run that passed under the limit.
fn passed(runs: &[RealRun]) -> BTreeSet<u64> {
    runs.iter().filter(|run| run.is_pass()).map(|run| run.trial.batch).collect()
}

/// The runs of a batch size that passed under the limit.
pub(super) fn passes(runs: &[RealRun], batch: u64) -> u64 {
    runs.iter().filter(|run| run.trial.batch == batch && run.is_pass()).count() as u64
}

/// The smallest batch size at which a run ran out of memory.
pub(super) fn nearest_failure(runs: &[RealRun]) -> Option<u64> {
    runs.iter().filter(|run| run.ran_out).map(|run| run.trial.batch).min()
}

/// The largest batch size with a run that passed under the limit, below every failure.
pub(super) fn highest_pass(runs: &[RealRun]) -> Option<u64> {
    let failed = nearest_failure(runs).unwrap_or(u64::MAX);
    passed(runs).range(..failed).next_back().copied()
}

/// The largest batch size that passed more than once, below every failure.
pub(super) fn top(runs: &[RealRun]) -> Option<u64> {
    highest_pass(runs).filter(|&top| passes(runs, top) >= TOP_PASSES)
}
