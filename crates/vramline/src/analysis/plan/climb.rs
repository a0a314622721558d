//! The climb: from a batch size that passed under the limit, larger ones are tried until one fails. Threads order ops differently in each run,
//! so what fits is found by running, and the plan only says where to begin.
//!
//! Each batch size on the way runs once. The answer keeps its distance from what was seen: from the smallest that failed, and from a larger
//! one that passed. Not its job: deciding whether to climb, or what the runs mean otherwise.

use std::collections::BTreeSet;

use super::confirm::RealRun;

/// The first batch size to try above one that passed is larger by one part in so many, unless a larger one is likely to pass. Each further
/// one is twice as far away.
const FIRST_DIVISOR: u64 = 32;

/// The search for the edge ends where the smallest failure is above the largest pass by at most one part in so many, or after so many runs.
const EDGE_DIVISOR: u64 = 24;
const MAX_EDGE_RUNS: usize = 8;

/// The climb ends after so many runs in any case.
const MAX_RUNS: usize = 24;

/// The answer is smaller by at least one part in so many than every batch size that failed, and than one that passed [`TOP_PASSES`] times.
const BELOW_FAILURE_DIVISOR: u64 = 13;
const BELOW_PASS_DIVISOR: u64 = 18;

/// Number of runs that the batch size above the answer has to pass.
const TOP_PASSES: u64 = 2;

/// A climb that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    /// The batch size that the plan calls sure, if it does: nothing larger has to pass for it.
    pub(super) planned: Option<u64>,
    /// Number of runs before it began.
    pub(super) runs_before: usize,
}

impl Climb {
    /// The next batch size to run; `None` when the answer has passed as often as wanted, or there is none.
    pub(super) fn next(&self, runs: &[RealRun], likely: Option<u64>, wanted: u64) -> Option<u64> {
        let made = runs.len() - self.runs_before;
        if made >= MAX_RUNS {
            return None;
        }
        let (top, failed) = (highest_pass(runs), nearest_failure(runs));
        let Some(top) = top else {
            return failed.map(|failed| below(failed, BELOW_FAILURE_DIVISOR)).filter(|&batch| batch > 0);
        };
        if made < MAX_EDGE_RUNS {
            match failed {
                None => return Some(above(runs, top, likely)),
                Some(failed) if failed - top > (top / EDGE_DIVISOR).max(1) => {
                    return Some(top.midpoint(failed));
                }
                Some(_) => {}
            }
        }
        if self.planned.is_none_or(|planned| top > planned) && passes(runs, top) < TOP_PASSES {
            return Some(top);
        }
        let answer = self.most(runs);
        Some(answer).filter(|&answer| answer > 0 && passes(runs, answer) < wanted)
    }

    /// The largest batch size that the runs allow as an answer. Whether it passed is another question.
    pub(super) fn most(&self, runs: &[RealRun]) -> u64 {
        let below_pass = self.top(runs).map_or(0, |top| below(top, BELOW_PASS_DIVISOR));
        let most = below_pass.max(self.planned.unwrap_or(0));
        let Some(failed) = nearest_failure(runs) else { return most };
        // Where larger ones passed than failed, runs differ by at least that much.
        let spread = passed(runs).last().map_or(0, |highest| highest.saturating_sub(failed));
        most.min(below(failed, BELOW_FAILURE_DIVISOR).saturating_sub(spread))
    }

    /// The largest batch size below every failure that passed [`TOP_PASSES`] times.
    pub(super) fn top(&self, runs: &[RealRun]) -> Option<u64> {
        highest_pass(runs).filter(|&top| passes(runs, top) >= TOP_PASSES)
    }
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

fn below(batch: u64, divisor: u64) -> u64 {
    batch - batch.div_ceil(divisor)
}
