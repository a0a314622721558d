//! *Internal.* Why an allocation failed: one verdict for each failure, with its arithmetic.
//!
//! With R the rounded request, U what the limit leaves unallocated and F the free bytes of chunks that the request may use:
//! *device* when U >= R, else *fragmented* when F + U >= R, else *slack* when the slack is at least R - F - U, else
//! *exhausted*. *limit* takes the place of the last two where a setting of the user's is proved. Sizes that a text rounds
//! are ranges: a verdict stands only where both ends of every range agree on it.
//!
//! [`witness`] joins a text and a binary dump of the same failure first, [`traced`] adds what a trace of the process knows, and
//! [`outcome`] says what became of the request. [`bridge`] finds what keeps holes apart. What to do is in [`advice`].

pub mod advice;
pub mod bridge;
pub mod history;
pub mod outcome;
pub mod traced;
pub mod witness;

use crate::failure::{Dialect, Failure, SizeRange};
use crate::units::Bytes;

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The limit left enough, and the driver refused: a neighbour or a context has the memory.
    Device,
    /// Enough is free, in pieces.
    Fragmented,
    /// Enough is taken by chunks beyond what was asked for.
    Slack,
    /// What is asked for does not fit beside what is held.
    Exhausted,
    /// It would not fit, under a limit that the user set.
    Limit,
}

words!(Verdict {
    Device => "device",
    Fragmented => "fragmented",
    Slack => "slack",
    Exhausted => "exhausted",
    Limit => "limit",
});

/// A limit that the user set, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The limit; `None` where it is proved that there is one, but not which.
    pub limit: Option<Bytes>,
    /// Where it is set.
    pub by: String,
}

/// A verdict with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// R: what had to be found in one piece.
    pub request: Option<SizeRange>,
    /// F: free in chunks that the request may use.
    pub free: Option<SizeRange>,
    /// U: what the limit leaves.
    pub unallocated: Option<SizeRange>,
    /// What chunks in use hold beyond what was asked for.
    pub slack: Option<SizeRange>,
    /// R - F - U, or nothing.
    pub short_by: Option<SizeRange>,
    /// The verdict, where the figures decide one.
    pub verdict: Option<Verdict>,
    /// Why there is none.
    pub why_none: Option<String>,
}

/// Draws the conclusion from a failure.
#[must_use]
pub fn conclude(failure: &Failure, proof: Option<&Proof>) -> Conclusion {
    let mut conclusion = Conclusion {
        request: failure.rounded,
        free: failure.free,
        unallocated: unallocated(failure),
        slack: failure.slack(),
        short_by: None,
        verdict: None,
        why_none: None,
    };
    match decide(&mut conclusion, failure.dialect) {
        Ok(Verdict::Slack | Verdict::Exhausted) if proof.is_some() => {
            conclusion.verdict = Some(Verdict::Limit);
        }
        Ok(verdict) => conclusion.verdict = Some(verdict),
        Err(reason) => conclusion.why_none = Some(reason),
    }
    conclusion
}

/// What the limit leaves to this process.
fn unallocated(failure: &Failure) -> Option<SizeRange> {
    let told = failure.unallocated?;
    match failure.dialect {
        // Without a limit of its own PyTorch may have all that its neighbours leave, or would leave.
        Dialect::PyTorch if failure.limit.is_none() => {
            Some(failure.memory.others.map_or(told, |others| told.plus(others)))
        }
        Dialect::PyTorch | Dialect::TorchSnapshot | Dialect::CudaMallocAsync => Some(told),
        // A pool grows by whole granules.
        _ => Some(told.in_granules()),
    }
}

fn decide(conclusion: &mut Conclusion, dialect: Dialect) -> Result<Verdict, String> {
    let missing = |what: &str| format!("{what} is not told");
    let request = conclusion.request.ok_or_else(|| missing("how much was asked for"))?;
    let left = conclusion.unallocated.ok_or_else(|| missing("what the pool's limit leaves"))?;
    let undecided = |what: &str| format!("sizes are told rounded: {what} cannot be decided");
    if is_at_least(left, request).ok_or_else(|| undecided("whether the limit left enough"))? {
        conclusion.short_by = Some(SizeRange::exact(Bytes::ZERO));
        return Ok(Verdict::Device);
    }
    let free = conclusion.free.ok_or_else(|| missing("how much of the pool is free"))?;
    let at_hand = free.plus(left);
    let short_by = request.minus(at_hand);
    conclusion.short_by = Some(short_by);
    if is_at_least(at_hand, request).ok_or_else(|| undecided("whether enough is free"))? {
        conclusion.short_by = Some(SizeRange::exact(Bytes::ZERO));
        return Ok(Verdict::Fragmented);
    }
    // Others do not tell their slack; they split what they hand out, so that it is small.
    if !dialect.is_bfc() {
        return Ok(Verdict::Exhausted);
    }
    let slack = conclusion.slack.ok_or_else(|| {
        format!("slack or exhausted: {}", missing("what was asked for by the chunks in use"))
    })?;
    match is_at_least(slack, short_by) {
        Some(true) => Ok(Verdict::Slack),
        Some(false) => Ok(Verdict::Exhausted),
        None => Err(format!("slack or exhausted: {}", undecided("which"))),
    }
}

/// Whether one is at least the other; `None` where the ranges do not tell.
fn is_at_least(one: SizeRange, other: SizeRange) -> Option<bool> {
    if one.low >= other.high {
        Some(true)
    } else if one.high < other.low {
        Some(false)
    } else {
        None
    }
}

/// Failures that are the same but for when they happened, in the order of their first.
#[must_use]
pub fn groups(failures: &[&Failure], conclusions: &[Conclusion]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let alike = |one: usize, other: usize| {
        let (Some(a), Some(b)) = (failures.get(one), failures.get(other)) else { return false };
        let verdict = |at: usize| conclusions.get(at).and_then(|conclusion| conclusion.verdict);
        (&a.allocator, a.requested, a.rounded, &a.op, &a.shape, &a.device)
            == (&b.allocator, b.requested, b.rounded, &b.op, &b.shape, &b.device)
            && verdict(one) == verdict(other)
    };
    let mut last_found = 0;
    for at in 0..failures.len() {
        // A log that repeats itself does so in turns: the last place is the first to look.
        let start = groups.get(last_found).and_then(|group| group.first()).copied();
        let found = match start.filter(|&first| alike(first, at)) {
            Some(_) => Some(last_found),
            None => {
                groups.iter().take(200).position(|group| group.first().is_some_and(|&first| alike(first, at)))
            }
        };
        match found.and_then(|found| groups.get_mut(found).map(|group| (found, group))) {
            Some((found, group)) => {
                group.push(at);
                last_found = found;
            }
            None => {
                groups.push(vec![at]);
                last_found = groups.len() - 1;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(low: u64, high: u64) -> Option<SizeRange> {
        Some(SizeRange { low: Bytes(low), high: Bytes(high) })
    }

    fn failure(request: u64, free: u64, left: u64, slack: u64) -> Failure {
        let mut failure = Failure::new(Dialect::BfcC);
        failure.rounded = told(request, request);
        failure.free = told(free, free);
        failure.unallocated = told(left, left);
        failure.in_use = told(1 << 20, 1 << 20);
        failure.requested_in_use = told((1 << 20) - slack, (1 << 20) - slack);
        failure
    }

    #[test]
    fn the_definitions_at_their_edges() {
        let verdict = |failure: &Failure| conclude(failure, None).verdict;
        assert_eq!(verdict(&failure(1024, 0, 1024, 0)), Some(Verdict::Device));
        assert_eq!(verdict(&failure(1024, 512, 1023, 0)), Some(Verdict::Fragmented), "768 in granules");
        assert_eq!(verdict(&failure(1024, 256, 768, 0)), Some(Verdict::Fragmented));
        assert_eq!(verdict(&failure(1024, 256, 512, 256)), Some(Verdict::Slack));
        assert_eq!(verdict(&failure(1024, 256, 512, 255)), Some(Verdict::Exhausted));
        let short = conclude(&failure(1024, 256, 512, 256), None).short_by;
        assert_eq!(short, told(256, 256));
    }

    #[test]
    fn a_limit_must_be_proved_and_hides_nothing_else() {
        let proof = Proof { limit: Some(Bytes(1 << 20)), by: "a test".to_owned() };
        let verdict = |failure: &Failure| conclude(failure, Some(&proof)).verdict;
        assert_eq!(verdict(&failure(1024, 256, 512, 256)), Some(Verdict::Limit));
        assert_eq!(verdict(&failure(1024, 256, 512, 0)), Some(Verdict::Limit));
        assert_eq!(verdict(&failure(1024, 256, 768, 0)), Some(Verdict::Fragmented));
        assert_eq!(verdict(&failure(1024, 0, 1024, 0)), Some(Verdict::Device));
    }

    #[test]
    fn ranges_that_do_not_decide_give_no_verdict() {
        let mut open = failure(1024, 256, 512, 0);
        open.requested_in_use = told((1 << 20) - 300, 1 << 20);
        let conclusion = conclude(&open, None);
        assert_eq!(conclusion.verdict, None);
        assert_eq!(conclusion.short_by, told(256, 256));
        assert!(conclusion.why_none.unwrap().contains("slack or exhausted"));
        open.rounded = None;
        assert_eq!(conclude(&open, None).verdict, None);
    }
}
