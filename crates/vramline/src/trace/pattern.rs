//! Whether steps repeat each other: which requests come again in every step, and which ops ask for other sizes each time.
//!
//! Two requests are the same when the same op asks for the same number of bytes. A step is compared with the few before it as a whole:
//! threads ask in another order each time, so what counts is which requests a step makes and how many, not in which order. Programs that
//! take turns (a generator, a discriminator) repeat a step that is not the last one.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Phase, PoolTrace, Step, Trace};
use crate::names::Name;
use crate::units::Bytes;

/// Fewer steps than this show no pattern: the first builds what the others use.
const FEWEST_STEPS: usize = 4;
/// The number of earlier steps that a step is compared with.
const LOOK_BACK: usize = 4;
/// A step repeats earlier ones if at least this share of its bytes, in percent, is requested in their sizes.
const STEADY_PERCENT: u128 = 99;
/// An op with fewer sizes than this takes turns between a few shapes, which a pool serves from what it has.
const FEWEST_SIZES: usize = 3;
/// The number of different sizes that are counted for one op.
const MAX_SIZES: usize = 4096;

/// Requests with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) bytes: Bytes,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += Bytes(bytes);
    }
}

/// What the steps of a pool have in common.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// How many steps were compared.
    pub(crate) steps: usize,
    /// The requested bytes of all steps but the first.
    pub(crate) asked: Tally,
    /// The part of it that an earlier step requested too.
    pub(crate) repeated: Tally,
    /// The number of the step from which on hardly any new size comes. Which op asks for a block may change from step to step: an op
    /// takes over the block of its input where no other still reads it.
    pub(crate) steady_from: Option<i64>,
    /// Ops that ask for other sizes in most steps; the most bytes first.
    pub(crate) churning: Vec<OpSizes>,
    /// Ops that ask for more in every step than in the one before; those that grew most first.
    pub(crate) growing: Vec<OpSizes>,
}

/// The requests of an op in steps after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpSizes {
    pub(crate) op: Name,
    /// Steps in which it asked.
    pub(crate) steps: usize,
    /// Different sizes.
    pub(crate) sizes: usize,
    pub(crate) smallest: Bytes,
    pub(crate) largest: Bytes,
    /// In all steps together.
    pub(crate) total: Bytes,
    /// In the first and in the last of those steps.
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
}

/// An op while the steps go by.
#[derive(Default)]
struct OpCourse {
    steps: usize,
    changes: usize,
    rises: usize,
    sizes: FxHashSet<u64>,
    smallest: u64,
    largest: u64,
    total: u64,
    first: u64,
    last: u64,
    last_sizes: Vec<u64>,
}

impl OpCourse {
    fn take(&mut self, sizes: &[u64]) {
        let sum = sizes.iter().fold(0_u64, |sum, &size| sum.saturating_add(size));
        if self.steps == 0 {
            (self.first, self.smallest) = (sum, u64::MAX);
        } else {
            self.changes += usize::from(self.last_sizes != sizes);
            self.rises += usize::from(sum > self.last);
        }
        for &size in sizes {
            (self.smallest, self.largest) = (self.smallest.min(size), self.largest.max(size));
            if self.sizes.len() < MAX_SIZES {
                self.sizes.insert(size);
            }
        }
        self.steps += 1;
        self.total = self.total.saturating_add(sum);
        self.last = sum;
        self.last_sizes.clear();
        self.last_sizes.extend_from_slice(sizes);
    }

    fn is_churning(&self) -> bool {
        self.steps >= FEWEST_SIZES && self.sizes.len() >= FEWEST_SIZES && self.changes * 2 >= self.steps
    }

    fn is_growing(&self) -> bool {
        self.steps >= FEWEST_SIZES && self.rises + 1 == self.steps
    }

    fn sizes(&self, op: Name) -> OpSizes {
        OpSizes {
            op,
            steps: self.steps,
            sizes: self.sizes.len(),
            smallest: Bytes(self.smallest),
            largest: Bytes(self.largest),
            total: Bytes(self.total),
            first: Bytes(self.first),
            last: Bytes(self.last),
        }
    }
}

impl Trace {
    /// The steps that are compared: those that train where there are any, else all.
    pub(crate) fn compared_steps(&self) -> Vec<&Step> {
        let trains: Vec<&Step> = self.steps.iter().filter(|step| step.phase == Phase::Train).collect();
        if trains.is_empty() { self.steps.iter().collect() } else { trains }
    }

    /// How the requests of steps repeat; `None` where there are too few steps to tell.
    pub(crate) fn pattern(&self, pool: &PoolTrace) -> Option<Pattern> {
        let steps = self.compared_steps();
        let requests = self.requests_of(pool, &steps);
        // Steps of which the pool shows nothing lie before or after its trace.
        let seen: Vec<(&Step, Vec<(Name, u64)>)> =
            steps.into_iter().zip(requests).filter(|(_, made)| !made.is_empty()).collect();
        if seen.len() < FEWEST_STEPS {
            return None;
        }
        let (mut asked, mut repeated) = (Tally::default(), Tally::default());
        let mut steady_from = None;
        let mut known: FxHashSet<u64> =
            seen.first().iter().flat_map(|(_, made)| made).map(|&(_, bytes)| bytes).collect();
        for (place, (step, made)) in seen.iter().enumerate().skip(1) {
            let earlier = seen.get(place.saturating_sub(LOOK_BACK)..place).unwrap_or_default();
            let again = earlier.iter().map(|(_, before)| common(before, made));
            let again = again.max_by_key(|tally| tally.bytes).unwrap_or_default();
            let mut all = Tally::default();
            made.iter().for_each(|&(_, bytes)| all.add(bytes));
            let known_bytes = made
                .iter()
                .filter(|(_, bytes)| known.contains(bytes))
                .fold(0, |sum, &(_, bytes)| sum + u128::from(bytes));
            known.extend(made.iter().map(|&(_, bytes)| bytes));
            let is_steady = known_bytes * 100 >= u128::from(all.bytes.0) * STEADY_PERCENT;
            steady_from = if is_steady { steady_from.or(Some(step.number)) } else { None };
            asked = Tally { requests: asked.requests + all.requests, bytes: asked.bytes + all.bytes };
            repeated =
                Tally { requests: repeated.requests + again.requests, bytes: repeated.bytes + again.bytes };
        }
        let courses = self.courses(seen.iter().skip(1).map(|(_, made)| made.as_slice()));
        let of = |is: fn(&OpCourse) -> bool| {
            courses.iter().filter(move |(_, course)| is(course)).map(|(&op, course)| course.sizes(op))
        };
        let mut churning: Vec<OpSizes> = of(OpCourse::is_churning).collect();
        churning.sort_by_key(|op| (std::cmp::Reverse(op.total), op.op));
        let mut growing: Vec<OpSizes> = of(OpCourse::is_growing).collect();
        growing.sort_by_key(|op| (std::cmp::Reverse(op.last.saturating_sub(op.first)), op.op));
        Some(Pattern { steps: seen.len(), asked, repeated, steady_from, churning, growing })
    }

    /// What each step asks for, ordered by op and size.
    fn requests_of(&self, pool: &PoolTrace, steps: &[&Step]) -> Vec<Vec<(Name, u64)>> {
        let events = &self.history.events;
        let mut requests: Vec<Vec<(Name, u64)>> = vec![Vec::new(); steps.len()];
        for birth in pool.births() {
            let event = events.at(birth);
            let after = steps.partition_point(|step| step.begin <= event.time());
            let Some(place) = after.checked_sub(1) else { continue };
            let is_inside = steps.get(place).is_some_and(|step| event.time() < step.until);
            if let (true, Some(made)) = (is_inside, requests.get_mut(place)) {
                let bytes = event.requested().or(event.size()).unwrap_or_default();
                made.push((event.op_or_scope(), bytes.0));
            }
        }
        requests.iter_mut().for_each(|made| made.sort_unstable());
        requests
    }

    fn courses<'a>(&self, steps: impl Iterator<Item = &'a [(Name, u64)]>) -> FxHashMap<Name, OpCourse> {
        let mut courses: FxHashMap<Name, OpCourse> = FxHashMap::default();
        let mut sizes = Vec::new();
        for made in steps {
            for same in made.chunk_by(|one, two| one.0 == two.0) {
                let Some(&(op, _)) = same.first().filter(|(op, _)| !op.is_empty()) else { continue };
                sizes.clear();
                sizes.extend(same.iter().map(|&(_, bytes)| bytes));
                courses.entry(op).or_default().take(&sizes);
            }
        }
        courses
    }
}

/// What two steps have in common, each ordered.
fn common(before: &[(Name, u64)], now: &[(Name, u64)]) -> Tally {
    let mut tally = Tally::default();
    let mut before = before.iter().peekable();
    for request in now {
        while before.next_if(|earlier| *earlier < request).is_some() {}
        if before.next_if(|earlier| *earlier == request).is_some() {
            tally.add(request.1);
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(steps: &[&[u64]]) -> OpCourse {
        let mut course = OpCourse::default();
        steps.iter().for_each(|sizes| course.take(sizes));
        course
    }

    #[test]
    fn an_op_churns_when_most_steps_bring_other_sizes() {
        let churning = course(&[&[10, 4], &[20, 4], &[15, 4], &[30, 4]]);
        assert!(churning.is_churning() && !churning.is_growing());
        let sizes = churning.sizes(Name(1));
        assert_eq!((sizes.sizes, sizes.smallest, sizes.largest), (5, Bytes(4), Bytes(30)));
        assert_eq!((sizes.first, sizes.last, sizes.total), (Bytes(14), Bytes(34), Bytes(91)));
        // The same sizes, two shapes in turn, one odd step, and too few steps.
        assert!(!course(&[&[10, 4], &[10, 4], &[10, 4], &[10, 4]]).is_churning());
        assert!(!course(&[&[10], &[20], &[10], &[20], &[10]]).is_churning());
        assert!(!course(&[&[10], &[10], &[10], &[10], &[10], &[12], &[10], &[10]]).is_churning());
        assert!(!course(&[&[10], &[20]]).is_churning());
        assert!(course(&[&[10], &[20], &[30]]).is_growing());
        assert!(!course(&[&[10], &[20], &[20]]).is_growing());
    }

    #[test]
    fn steps_are_compared_as_wholes() {
        let request = |op: u32, bytes| (Name(op), bytes);
        let before = [request(1, 10), request(1, 10), request(2, 5), request(3, 7)];
        let now = [request(1, 10), request(2, 5), request(2, 5), request(3, 8)];
        assert_eq!(common(&before, &now), Tally { requests: 2, bytes: Bytes(15) });
        assert_eq!(common(&before, &before), Tally { requests: 4, bytes: Bytes(32) });
        assert_eq!(common(&[], &now), Tally::default());
    }
}
