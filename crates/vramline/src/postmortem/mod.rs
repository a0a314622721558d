//! *Internal.* Why an allocation failed: one verdict for each failure, with its arithmetic.
//!
//! With R the rounded request, U what the limit leaves unallocated, F the free bytes of chunks that the request may use and O what
//! other processes hold: *device* if U >= R, or if O covers what is missing; else *fragmented* if F + U >= R and F is at least a
//! twentieth of the pool; else *slack* if the rounding is at least R - F - U; else *exhausted*. *limit* replaces the last two
//! if the limit is known to be a setting. Sizes that a text rounds are ranges: if all values in the ranges give the same verdict, there is
//! one; otherwise all possible verdicts are named, likeliest first.
//!
//! [`others`] computes what other processes hold, [`need`] a lower bound of what the program needs. [`witness`] first joins a text and a binary dump of one failure, [`traced`] adds
//! what a trace of the process shows, and [`outcome`] finds the outcome of the request. [`bridge`] finds the blocks between free blocks.
//! [`headline`] says what happened, [`advice`] what to do.

pub mod advice;
pub mod bridge;
pub mod headline;
pub mod history;
pub mod need;
pub mod others;
pub mod outcome;
pub mod traced;
pub mod witness;

use crate::failure::{Dialect, Failure, SizeRange};
use crate::units::Bytes;

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The limit left enough, but the driver refused: another process or a context has the memory.
    Device,
    /// Enough is free, but fragmented.
    Fragmented,
    /// The rounding of blocks in use is as large as what is missing.
    Slack,
    /// The request does not fit with what is in use.
    Exhausted,
    /// The same, under a limit that was set.
    Limit,
}

words!(Verdict {
    Device => "device",
    Fragmented => "fragmented",
    Slack => "slack",
    Exhausted => "exhausted",
    Limit => "limit",
});

impl Verdict {
    /// The word for people. JSON keeps `slack`, which people know as rounding.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Verdict::Device => "device full",
            Verdict::Slack => "rounding",
            other => other.word(),
        }
    }
}

/// A limit that was set, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The limit; `None` if only its existence is known.
    pub limit: Option<Bytes>,
    /// Where it is set.
    pub by: String,
}

/// A verdict with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// R: the size of the block that was needed.
    pub request: Option<SizeRange>,
    /// F: free bytes in blocks that the request may use.
    pub free: Option<SizeRange>,
    /// U: what the limit leaves.
    pub unallocated: Option<SizeRange>,
    /// O: what other processes hold, if the text contains or implies it.
    pub others: Option<SizeRange>,
    /// Rounding: bytes of blocks in use beyond their requests.
    pub slack: Option<SizeRange>,
    /// R - F - U, or zero.
    pub short_by: Option<SizeRange>,
    /// The verdict, if the figures decide it; the likeliest if rounded figures allow several.
    pub verdict: Option<Verdict>,
    /// All verdicts that the figures allow, likeliest first.
    pub open: Vec<Verdict>,
    /// The evidence for the verdict `device`.
    pub device: Option<DeviceCause>,
    /// Why there is no verdict.
    pub why_none: Option<String>,
}

/// Why the device had no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCause {
    /// The driver refused what the limit left.
    Refused,
    /// Other processes hold what is missing.
    Neighbours,
    /// The device was full before the job began.
    AtStart,
}

/// The figures that decide.
#[derive(Clone, Copy, Debug)]
struct Figures {
    request: SizeRange,
    left: SizeRange,
    /// `None` if unknown.
    free: Option<SizeRange>,
    others: Option<SizeRange>,
    slack: Option<SizeRange>,
    pool: Option<SizeRange>,
    total: Option<SizeRange>,
    /// Whether the text itself says that the pool is fragmented.
    is_said_to_be_torn: bool,
    /// Whether a setting limits the pool, and the device has room for the request: then the device did not refuse it.
    has_device_room: bool,
}

/// A failure with everything that is known about it, for sentences and advice.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The failure.
    pub failure: &'a Failure,
    /// Why it failed.
    pub conclusion: &'a Conclusion,
    /// The evidence that its limit is a setting.
    pub proof: Option<&'a Proof>,
    /// A lower bound of what the program needs, if a recording shows it.
    pub need: Option<&'a need::LeastNeed>,
}

/// Draws the conclusion from a failure.
#[must_use]
pub fn conclude(failure: &Failure, proof: Option<&Proof>) -> Conclusion {
    let mut conclusion = Conclusion {
        request: failure.rounded,
        free: failure.free,
        unallocated: unallocated(failure),
        others: others::others(failure),
        slack: failure.slack(),
        short_by: None,
        verdict: None,
        open: Vec::new(),
        device: None,
        why_none: None,
    };
    match decide(&mut conclusion, failure) {
        Ok(open) => conclusion.open = open,
        Err(reason) => conclusion.why_none = Some(reason),
    }
    if proof.is_some() || is_bound_by_limit(failure) {
        for verdict in &mut conclusion.open {
            if matches!(verdict, Verdict::Slack | Verdict::Exhausted) {
                *verdict = Verdict::Limit;
            }
        }
        conclusion.open.dedup();
    }
    conclusion.verdict = conclusion.open.first().copied();
    if conclusion.verdict != Some(Verdict::Device) {
        conclusion.device = None;
    }
    conclusion
}

/// Whether the text says that a limit was set, and that limit leaves less than the device does.
fn is_bound_by_limit(failure: &Failure) -> bool {
    let is_tighter = match (failure.limit, failure.pool, failure.memory.free) {
        (Some(limit), Some(pool), Some(free)) => limit.minus(pool).low <= free.high,
        _ => true,
    };
    failure.is_limit_set && is_tighter
}

/// What the limit leaves to this process.
fn unallocated(failure: &Failure) -> Option<SizeRange> {
    let told = match failure.unallocated {
        Some(told) => told,
        // If the free memory is unknown too, it is at most what the pool leaves of the device.
        None => match (failure.dialect, failure.memory.total, failure.pool) {
            (Dialect::PyTorch, Some(total), Some(pool)) => {
                SizeRange { low: Bytes::ZERO, high: total.minus(pool).high }
            }
            _ => return None,
        },
    };
    // A pool of chunks grows by whole granules.
    Some(if failure.dialect.is_bfc() { told.in_granules() } else { told })
}

/// All verdicts that the figures allow, the likeliest first; or why there is none.
fn decide(conclusion: &mut Conclusion, failure: &Failure) -> Result<Vec<Verdict>, String> {
    let missing = |what: &str| format!("the input does not say {what}");
    if failure.is_of_host() {
        return Err("this is host memory, not device memory".to_owned());
    }
    if failure.is_at_start {
        conclusion.device = Some(DeviceCause::AtStart);
        return Ok(vec![Verdict::Device]);
    }
    // The program alone is too large.
    let is_beyond = |bound: Option<SizeRange>| {
        conclusion.request.zip(bound).is_some_and(|(request, bound)| request.low > bound.high)
    };
    if is_beyond(failure.program.map(|program| program.budget)) || is_beyond(failure.memory.total) {
        let most = failure.memory.total.or(failure.program.map(|program| program.budget));
        conclusion.short_by =
            conclusion.short_by.or(conclusion.request.zip(most).map(|(r, most)| r.minus(most)));
        return Ok(vec![Verdict::Exhausted]);
    }
    if let (Some(_), None) = (failure.refused, conclusion.unallocated) {
        conclusion.device = Some(DeviceCause::Refused);
        return Ok(vec![Verdict::Device]);
    }
    if failure.is_limit_set && conclusion.unallocated.is_none() {
        return Ok(vec![Verdict::Limit]);
    }
    let request = conclusion.request.ok_or_else(|| missing("how much was requested"))?;
    let Some(left) = conclusion.unallocated else { return without_pool(conclusion, failure, request) };
    let free = conclusion.free;
    let is_said_to_be_torn = failure.dialect == Dialect::Tpu
        && failure.largest_free.zip(free).is_some_and(|(largest, free)| largest.high < free.low);
    let figures = Figures {
        request,
        left,
        free,
        others: conclusion.others,
        // Other allocators do not report their rounding; they split blocks, so it is small.
        slack: conclusion.slack.filter(|_| failure.dialect.is_bfc()),
        pool: failure.pool.or_else(|| Some(failure.in_use?.plus(free?))),
        total: failure.memory.total,
        is_said_to_be_torn,
        has_device_room: failure.is_limit_set
            && failure.memory.free.is_some_and(|free| is_at_least(free, request) == Some(true)),
    };
    conclusion.short_by = free.map(|free| request.minus(free.plus(left)));
    let open = figures.open(&mut conclusion.device);
    let likely = figures.likely();
    // Unknown free memory may be any amount, so only a certain verdict counts.
    if free.is_none() && open.first() != Some(&Verdict::Device) {
        return Err(missing("how much of the pool was free"));
    }
    let mut open = open;
    open.sort_by_key(|verdict| *verdict != likely);
    Ok(open)
}

/// The verdicts if the pool's size is unknown: the limit minus what is in use is either free or unallocated.
fn without_pool(
    conclusion: &mut Conclusion,
    failure: &Failure,
    request: SizeRange,
) -> Result<Vec<Verdict>, String> {
    let at_hand = failure.limit.zip(failure.in_use).map(|(limit, in_use)| limit.minus(in_use));
    let at_hand = at_hand.ok_or_else(|| "the input does not say how much memory was left".to_owned())?;
    conclusion.short_by = Some(request.minus(at_hand));
    match is_at_least(at_hand, request) {
        Some(false) => match conclusion.slack.zip(conclusion.short_by) {
            Some((slack, short)) if is_at_least(slack, short) == Some(true) => Ok(vec![Verdict::Slack]),
            _ => Ok(vec![Verdict::Exhausted]),
        },
        _ => Err("either the device was full or the pool is fragmented; the input does not say how much the pool reserved".to_owned()),
    }
}

impl Figures {
    /// All verdicts that are possible, in the order of the rules.
    fn open(&self, device: &mut Option<DeviceCause>) -> Vec<Verdict> {
        let mut open = Vec::new();
        let refused = is_at_least(self.left, self.request);
        let neighbours = self.neighbours_hold_it();
        if !self.has_device_room && (refused != Some(false) || neighbours != Some(false)) {
            open.push(Verdict::Device);
            let is_neighbours = neighbours == Some(true) || (neighbours.is_none() && refused == Some(false));
            *device = Some(if is_neighbours { DeviceCause::Neighbours } else { DeviceCause::Refused });
            if refused == Some(true) || neighbours == Some(true) {
                return open;
            }
        }
        let Some(free) = self.free else { return open };
        let enough = is_at_least(free.plus(self.left), self.request);
        let torn = both(enough, self.is_torn(free));
        if torn != Some(false) {
            open.push(Verdict::Fragmented);
            if torn == Some(true) {
                return open;
            }
        }
        // If enough is free, rounding is not the cause.
        let short = self.request.minus(free.plus(self.left));
        let slack = self.slack.map_or(Some(false), |slack| is_at_least(slack, short));
        let slack = both(enough.map(|enough| !enough), slack);
        if slack != Some(false) {
            open.push(Verdict::Slack);
            if slack == Some(true) {
                return open;
            }
        }
        open.push(Verdict::Exhausted);
        open
    }

    /// The verdict for the middle of every range.
    fn likely(&self) -> Verdict {
        let middle = |told: SizeRange| SizeRange::exact(told.middle());
        let exact = Figures {
            request: middle(self.request),
            left: middle(self.left),
            free: self.free.map(middle),
            others: self.others.map(middle),
            slack: self.slack.map(middle),
            pool: self.pool.map(middle),
            total: self.total.map(middle),
            is_said_to_be_torn: self.is_said_to_be_torn,
            has_device_room: self.has_device_room,
        };
        exact.open(&mut None).first().copied().unwrap_or(Verdict::Exhausted)
    }

    /// Whether other processes hold what is missing. Less than a twentieth of the device does not count, because a desktop holds as much.
    fn neighbours_hold_it(&self) -> Option<bool> {
        let Some(others) = self.others else { return Some(false) };
        let enough = is_at_least(others.plus(self.left), self.request);
        let share = self.total.map_or(Some(true), |total| is_at_least(times_twenty(others), total));
        both(enough, share)
    }

    /// Whether the free bytes are at least a twentieth of the pool, so that fragmentation counts.
    fn is_torn(&self, free: SizeRange) -> Option<bool> {
        if self.is_said_to_be_torn {
            return Some(true);
        }
        self.pool.map_or(Some(true), |pool| is_at_least(times_twenty(free), pool))
    }
}

fn times_twenty(told: SizeRange) -> SizeRange {
    SizeRange { low: Bytes(told.low.0.saturating_mul(20)), high: Bytes(told.high.0.saturating_mul(20)) }
}

/// Whether both hold; `None` if unknown.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Whether one is at least the other; `None` if the ranges overlap.
fn is_at_least(one: SizeRange, other: SizeRange) -> Option<bool> {
    if one.low >= other.high {
        Some(true)
    } else if one.high < other.low {
        Some(false)
    } else {
        None
    }
}

/// Groups failures that differ only in their time, in the order of their first.
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
        // A log often repeats the last failures, so the last group is tried first.
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

    /// What is in use in addition to what is free.
    const IN_USE: u64 = 4096;

    fn failure(request: u64, free: u64, left: u64, slack: u64) -> Failure {
        let mut failure = Failure::new(Dialect::BfcC);
        failure.rounded = told(request, request);
        failure.free = told(free, free);
        failure.unallocated = told(left, left);
        failure.in_use = told(IN_USE, IN_USE);
        failure.requested_in_use = told(IN_USE - slack, IN_USE - slack);
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
    fn pieces_count_from_a_twentieth_of_the_pool_on() {
        let mut torn = failure(512, 512, 0, 0);
        torn.pool = told(512 * 20, 512 * 20);
        assert_eq!(conclude(&torn, None).verdict, Some(Verdict::Fragmented));
        torn.pool = told(512 * 20 + 1, 512 * 20 + 1);
        let full = conclude(&torn, None);
        assert_eq!((full.verdict, full.short_by), (Some(Verdict::Exhausted), told(0, 0)));
        // Slack is for what is missing; here nothing is.
        torn.requested_in_use = told(0, 0);
        assert_eq!(conclude(&torn, None).verdict, Some(Verdict::Exhausted));
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
    fn where_rounding_leaves_two_open_both_are_named() {
        let mut open = failure(1024, 256, 512, 0);
        open.requested_in_use = told(IN_USE - 300, IN_USE);
        let conclusion = conclude(&open, None);
        assert_eq!(conclusion.open, [Verdict::Exhausted, Verdict::Slack], "150 is likelier than 256");
        assert_eq!((conclusion.verdict, conclusion.short_by), (Some(Verdict::Exhausted), told(256, 256)));
        open.requested_in_use = told(IN_USE - 600, IN_USE - 200);
        assert_eq!(conclude(&open, None).open, [Verdict::Slack, Verdict::Exhausted]);
        open.rounded = None;
        let conclusion = conclude(&open, None);
        assert_eq!((conclusion.verdict, conclusion.open.len()), (None, 0));
        assert!(conclusion.why_none.is_some());
    }

    const GIB: u64 = 1 << 30;

    /// PyTorch's failure on a device of 16 GiB.
    fn of_torch(request: u64, device_free: u64, allocated: u64, cached: u64) -> Failure {
        let mut failure = Failure::new(Dialect::PyTorch);
        failure.rounded = told(request, request);
        failure.memory.total = told(16 * GIB, 16 * GIB);
        failure.memory.free = told(device_free, device_free);
        failure.unallocated = failure.memory.free;
        failure.in_use = told(allocated, allocated);
        failure.free = told(cached, cached);
        failure.pool = told(allocated + cached, allocated + cached);
        failure
    }

    #[test]
    fn up_to_two_gib_beside_the_pool_are_the_processs_own() {
        let own = of_torch(GIB, GIB / 2, 16 * GIB - GIB / 2 - 2 * GIB, 0);
        let conclusion = conclude(&own, None);
        assert_eq!((conclusion.verdict, conclusion.others), (Some(Verdict::Exhausted), None));
        let mut crowded = of_torch(GIB, GIB / 2, 16 * GIB - GIB / 2 - 2 * GIB - 2, 0);
        let conclusion = conclude(&crowded, None);
        assert_eq!(conclusion.verdict, Some(Verdict::Device));
        assert_eq!(conclusion.others, told(2 * GIB + 2, 2 * GIB + 2));
        assert_eq!(conclusion.device, Some(DeviceCause::Neighbours));
        // What the process says of itself needs no guess.
        crowded.memory.this_process = told(15 * GIB + GIB / 2, 15 * GIB + GIB / 2);
        let conclusion = conclude(&crowded, None);
        assert_eq!((conclusion.verdict, conclusion.others), (Some(Verdict::Exhausted), told(0, 0)));
    }

    #[test]
    fn a_neighbour_counts_where_it_holds_what_is_missing() {
        let mut failure = of_torch(2 * GIB, GIB, 13 * GIB, 0);
        let mut with = |own: u64| {
            failure.memory.this_process = told(own, own);
            conclude(&failure, None).verdict
        };
        assert_eq!(with(14 * GIB), Some(Verdict::Device), "1 GiB of a neighbour and 1 GiB free are enough");
        assert_eq!(with(14 * GIB + 1), Some(Verdict::Exhausted), "a byte is missing");
        // A desktop's share is no cause, though it is more than what is missing.
        let mut tiny = of_torch(8 << 20, 0, 15 * GIB, 0);
        tiny.memory.this_process = told(15 * GIB + GIB / 2, 15 * GIB + GIB / 2);
        assert_eq!(conclude(&tiny, None).verdict, Some(Verdict::Exhausted));
        // Alone on the device it would not fit either.
        let vast = of_torch(17 * GIB, 0, 0, 0);
        assert_eq!(conclude(&vast, None).verdict, Some(Verdict::Exhausted));
    }

    #[test]
    fn a_limit_in_the_text_counts_where_it_binds() {
        let mut failure = of_torch(GIB, 4 * GIB, 9 * GIB, 0);
        (failure.limit, failure.is_limit_set) = (told(9 * GIB + GIB / 2, 9 * GIB + GIB / 2), true);
        failure.unallocated = told(GIB / 2, GIB / 2);
        failure.memory.this_process = told(12 * GIB, 12 * GIB);
        assert_eq!(conclude(&failure, None).verdict, Some(Verdict::Limit));
        // 40 GiB would be allowed, and the device has none.
        (failure.limit, failure.memory.free) = (told(40 * GIB, 40 * GIB), told(0, 0));
        failure.unallocated = told(0, 0);
        failure.memory.this_process = told(16 * GIB, 16 * GIB);
        assert_eq!(conclude(&failure, None).verdict, Some(Verdict::Exhausted));
    }
}
