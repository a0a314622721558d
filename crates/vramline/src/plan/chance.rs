//! Whether a batch passes under a limit: how likely a run is to, what is sure, and the largest batches.
//!
//! Every step of every probe is one draw of an order, and so is every first step. A request that finds no room may wait for other
//! threads, as TensorFlow's do. Whether a draw passes flickers from batch to batch, since a granule more or less decides what fits
//! where; so the batches next to the one in question are drawn too.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::draws::times;
use super::probe::{Part, Probe};
use super::{Irregular, Plan, each};
use crate::allocator::Placement;
use crate::replay::{Fare, LIMIT_STEP, Rehearsal};
use crate::units::Bytes;

/// A run that passes with at least this chance is called sure to.
const SURE: f64 = 0.9;

/// And one with this chance likely.
const LIKELY: f64 = 0.5;

/// A run that passes with less does not.
const MIN_PASS_PROBABILITY: f64 = 0.01;

/// The room that a sure batch size leaves for orders that no probe has shown.
#[derive(Clone, Copy, Debug)]
struct Margin {
    /// A larger batch passes too: larger by one part in so many.
    batch_divisor: u64,
    /// A smaller limit does too: smaller by one part in so many. Of a model that holds much whatever the batch, a smaller batch alone
    /// leaves no room.
    limit_divisor: u64,
}

/// The margin where small probes show the orders.
const WIDE: Margin = Margin { batch_divisor: 20, limit_divisor: 32 };

/// The margin where as many steps as [`MANY_STEPS`] of runs near the batch show them.
const NARROW: Margin = Margin { batch_divisor: 25, limit_divisor: 40 };
const MANY_STEPS: usize = 20;

/// The margin of a batch where there is one order only.
const ORDERED_BATCH_MARGIN_DIVISOR: u64 = 100;

/// The distance to neighbouring batch sizes, as one part in this many.
const NEXT: u64 = 100;

/// Nobody has so large a batch.
const MAX_BATCH: u64 = 1 << 40;

/// How likely it is to pass under a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// A run of all its steps.
    pub run: f64,
    /// One of the first step and one more.
    pub short: f64,
}

/// The largest batches under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// Nearly every run passes, at this and every smaller batch that was tried, with some room and without threads that wait, and a
    /// probe is large enough to tell. `None` where not even the smallest does.
    pub sure: Option<u64>,
    /// The same where real runs at that very batch are to follow: it may lie farther beyond the probes.
    pub to_confirm: Option<u64>,
    /// The same if compiled programs take, between and beyond the batches that they were compiled at, what straight lines say.
    pub edge: Option<u64>,
    /// More runs pass than not.
    pub likely: Option<u64>,
}

/// Draws of one part of a run: how many weights passed, of how many.
#[derive(Clone, Copy, Debug)]
struct Share {
    part: Part,
    passed: f64,
    all: f64,
}

impl Plan {
    /// The probability that a run of `steps` steps passes under a limit.
    #[must_use]
    pub fn chance(&self, batch: u64, limit: Bytes, steps: u64) -> Chance {
        if self.is_ordered {
            let share = self.share_in_order(batch, limit);
            return Chance { run: share, short: share };
        }
        let next = (batch / NEXT).max(1);
        let mut batches = vec![batch.saturating_sub(next).max(1), batch, batch.saturating_add(next)];
        batches.dedup();
        let draws: Vec<(u64, usize)> = batches
            .iter()
            .flat_map(|&near| self.orders_near(batch).into_iter().map(move |order| (near, order)))
            .collect();
        let fares = each(&draws, |&(batch, order)| self.fares(order, batch, limit));
        let mut shares: Vec<Share> = Vec::new();
        for (&(_, order), fares) in draws.iter().zip(fares) {
            let Some(probe) = self.probes.get(order) else { continue };
            count(&mut shares, probe, &fares, self.weight(probe.batch));
        }
        let of = |steps: u64| {
            let chance = |share: &Share| {
                let times = i32::try_from(times(share.part, steps)).unwrap_or(i32::MAX);
                (share.passed / share.all).powi(times)
            };
            // Where every draw ends before the steps that there are, none of them passes.
            let is_step = |part: Part| part != Part::Start;
            let has_steps =
                self.probes.iter().any(|probe| probe.stretches.iter().any(|stretch| is_step(stretch.part)));
            let is_cut = shares.is_empty() || (has_steps && !shares.iter().any(|share| is_step(share.part)));
            if is_cut { 0.0 } else { shares.iter().map(chance).product() }
        };
        Chance { run: of(steps), short: of(steps.min(2)) }
    }

    /// Whether it fits: it is sure to; no run does; or some do.
    #[must_use]
    pub fn fits(&self, batch: u64, limit: Bytes, steps: u64) -> Option<bool> {
        if self.is_sure(batch, limit, &|batch, limit| self.chance(batch, limit, steps).run) {
            return Some(true);
        }
        (self.chance(batch, limit, steps).short < MIN_PASS_PROBABILITY).then_some(false)
    }

    /// The one criterion of what fits, for a batch under a limit, for the largest batch and for the smallest limit: every order passes without
    /// threads that wait, and nearly every run passes with a larger batch, and under a smaller limit where orders differ. `chance` is that
    /// of a run.
    fn is_sure(&self, batch: u64, limit: Bytes, chance: &dyn Fn(u64, Bytes) -> f64) -> bool {
        let margin = self.margin(batch);
        let with_room = batch.saturating_add(if self.is_ordered {
            batch / (ORDERED_BATCH_MARGIN_DIVISOR - 1)
        } else {
            batch.div_ceil(margin.batch_divisor - 1)
        });
        // In the one order there is, passing is no matter of chance.
        self.passes_in_every_order(batch, limit)
            && (self.is_ordered || chance(batch, margin.tighter(limit)) >= SURE)
            && (with_room == batch || chance(with_room, limit) >= SURE)
    }

    /// The largest batches that pass under a limit.
    #[must_use]
    pub fn largest(&self, limit: Bytes, steps: u64) -> Largest {
        let known: RefCell<FxHashMap<(u64, Bytes), f64>> = RefCell::default();
        let chance = |batch, limit| {
            *known.borrow_mut().entry((batch, limit)).or_insert_with(|| self.chance(batch, limit, steps).run)
        };
        let guess = self.on_the_line(limit);
        // Of a compiled program little is known between the batches that it was compiled at.
        let is_compiled = self.compiled_batches().is_some();
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        let from = if is_compiled { u64::MAX } else { largest };
        let passing = largest_where(guess, from, |batch| chance(batch, limit) >= SURE);
        let likely =
            largest_where(passing.unwrap_or(guess), u64::MAX, |batch| chance(batch, limit) >= LIKELY);
        let within = |most: u64| {
            // What passes farther beyond the probes than they tell is not called sure.
            let most = passing.map(|batch| self.less_room(batch))?.min(most);
            largest_where(most, from, |batch| batch <= most && self.is_sure(batch, limit, &chance))
        };
        let edge = within(self.farthest());
        let far = self.farthest_without_run();
        let near = if is_compiled || edge <= Some(far) { edge } else { within(far) };
        let known = |batch: Option<u64>| batch.and_then(|batch| self.known_at_most(batch));
        Largest { sure: known(near), to_confirm: known(edge), edge, likely }
    }

    /// About which batch a limit leaves room for: where the line through the probes' peaks meets it.
    fn on_the_line(&self, limit: Bytes) -> u64 {
        let peak = |probe: &Probe| (i128::from(probe.batch), i128::from(probe.ran.exact.peak.0));
        let (Some((first, low)), Some((last, high))) =
            (self.probes.first().map(peak), self.probes.last().map(peak))
        else {
            return 1;
        };
        let guess = ((i128::from(limit.0) - low) * (last - first))
            .checked_div(high - low)
            .filter(|_| high > low)
            .map_or(last, |more| first + more);
        u64::try_from(guess.clamp(1, i128::from(MAX_BATCH / 2))).unwrap_or(1)
    }

    /// What is called sure where a batch passes.
    fn less_room(&self, batch: u64) -> u64 {
        if self.is_ordered {
            batch - batch / ORDERED_BATCH_MARGIN_DIVISOR
        } else {
            (batch - batch.div_ceil(self.margin(batch).batch_divisor)).max(1)
        }
    }

    /// The room that a batch needs in order to be sure where orders differ.
    fn margin(&self, batch: u64) -> Margin {
        let is_near = |probe: &&Probe| probe.batch.saturating_mul(4) >= batch.saturating_mul(3);
        let stretches = self.probes.iter().filter(is_near).flat_map(|probe| &probe.stretches);
        let steps = stretches.filter(|stretch| stretch.part == Part::Step).count();
        if steps >= MANY_STEPS { NARROW } else { WIDE }
    }

    /// How the stretches of a probe's order fare at a batch.
    fn fares(&self, order: usize, batch: u64, limit: Bytes) -> Vec<Fare> {
        let Some(probe) = self.probes.get(order) else { return Vec::new() };
        let first = probe.stretches.iter().position(|stretch| stretch.part == Part::FirstStep).unwrap_or(0);
        let Some(program) = self.program_at(order, batch, Irregular::Scaled) else { return Vec::new() };
        let (rules, placement) = (&probe.ran.rules, Placement::Ascending);
        Rehearsal { program: &program, rules, limit: Some(limit), placement }.fares(&probe.cuts(), first)
    }

    /// The share of the ways to fill in what is not known in which the one order passes.
    fn share_in_order(&self, batch: u64, limit: Bytes) -> f64 {
        let ways = self.ways();
        let passed = each(&ways, |&(order, irregular, placement)| {
            let (Some(probe), Some(program)) =
                (self.probes.get(order), self.program_at(order, batch, irregular))
            else {
                return false;
            };
            Rehearsal { program: &program, rules: &probe.ran.rules, limit: Some(limit), placement }.passes()
        });
        let count = passed.iter().filter(|passed| **passed).count();
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = count as f64 / ways.len().max(1) as f64;
        share
    }

    /// Whether every order passes under a limit without waiting.
    fn passes_in_every_order(&self, batch: u64, limit: Bytes) -> bool {
        let passed = each(&self.ways_near(batch), |&(order, irregular, placement)| {
            let (probe, program) = (self.probes.get(order)?, self.program_at(order, batch, irregular)?);
            let rehearsal =
                Rehearsal { program: &program, rules: &probe.ran.rules, limit: Some(limit), placement };
            rehearsal.passes().then_some(())
        });
        passed.into_iter().collect::<Option<Vec<()>>>().is_some()
    }

    /// The smallest limit, in whole MiB, with which a batch fits: this one does, one MiB less does not, and those that were tried above do.
    /// `asked` is a limit that is not to be above it unless it fits, too.
    #[must_use]
    pub fn minimum(&self, batch: u64, steps: u64, asked: Option<Bytes>) -> Option<Bytes> {
        /// How far above the smallest others are tried, as one part in so many.
        const ABOVE: [u64; 3] = [u64::MAX, 64, 16];
        let is_sure = |mebibytes: u64| {
            let limit = Bytes(mebibytes.saturating_mul(LIMIT_STEP.0));
            self.is_sure(batch, limit, &|batch, limit| self.chance(batch, limit, steps).run)
        };
        let asked = asked.map(|asked| asked.0 / LIMIT_STEP.0);
        let mut high = self.least_for_every_order(batch)?.0 / LIMIT_STEP.0;
        let mut low = high.saturating_sub(1);
        loop {
            let mut stride = (high / 64).max(1);
            while !is_sure(high) {
                low = high;
                high = high.checked_add(stride).filter(|&high| high < 1 << 30)?;
                stride = stride.saturating_mul(2);
            }
            while low + 1 < high {
                let middle = low.midpoint(high);
                if is_sure(middle) { high = middle } else { low = middle }
            }
            let above = ABOVE.into_iter().map(|part| high + (high / part).max(1));
            let above = above.chain(asked.filter(|&asked| asked > high));
            let Some(hole) = above.filter(|&above| !is_sure(above)).max() else { break };
            (low, high) = (hole, hole + 1);
        }
        Some(Bytes(high * LIMIT_STEP.0))
    }

    /// The smallest limit, in whole MiB, with which every order passes without waiting.
    fn least_for_every_order(&self, batch: u64) -> Option<Bytes> {
        let known = AtomicU64::new(0);
        let least = each(&self.ways_near(batch), |&(order, irregular, placement)| {
            let probe = self.probes.get(order)?;
            let program = self.program_at(order, batch, irregular)?;
            let run = |limit: u64| {
                let limit = Some(Bytes(limit.saturating_mul(LIMIT_STEP.0)));
                Rehearsal { program: &program, rules: &probe.ran.rules, limit, placement }.passes()
            };
            // Another order that needs more has answered already.
            let most = known.load(Ordering::Relaxed);
            if most > 0 && run(most) {
                return Some(());
            }
            // Less than is in use at once is hardly ever enough, and what a pool without a limit takes nearly always.
            let free = self.rehearse(order, &program, placement)?;
            if free.failure.is_some() {
                return None;
            }
            let mut low = (free.peak.0 / LIMIT_STEP.0).saturating_sub(1);
            // But a large request may take less room in a smaller region, where what is left over is split off.
            if low > 0 && run(low) {
                low = 0;
            }
            let mut high = free.pool.0.div_ceil(LIMIT_STEP.0).max(1);
            while !run(high) {
                high = high.checked_mul(2).filter(|&high| high < 1 << 30)?;
            }
            while low + 1 < high {
                let middle = low.midpoint(high);
                if run(middle) { high = middle } else { low = middle }
            }
            known.fetch_max(high, Ordering::Relaxed);
            Some(())
        });
        least.into_iter().collect::<Option<()>>()?;
        Some(Bytes(known.into_inner() * LIMIT_STEP.0))
    }
}

impl Margin {
    /// A limit with room.
    fn tighter(self, limit: Bytes) -> Bytes {
        Bytes(limit.0 - limit.0 / self.limit_divisor)
    }
}

/// The smallest limit, in whole MiB, that leaves a run the room that [`Plan::fits`] asks for where orders differ: `least` is what its own order
/// passes with.
#[must_use]
pub fn with_room(least: Bytes) -> Bytes {
    let (step, divisor) = (u128::from(LIMIT_STEP.0), u128::from(WIDE.limit_divisor));
    let limit = (u128::from(least.0) * divisor).div_ceil(divisor - 1).next_multiple_of(step);
    Bytes(u64::try_from(limit).unwrap_or(u64::MAX))
}

/// The largest batch that something holds for, searched from a guess. Fitting is not monotone in the batch: regions double, and what
/// is left over in one depends on what went in. So below what bisection finds a few more are tried, close by and down to `from`.
fn largest_where(guess: u64, from: u64, mut fits: impl FnMut(u64) -> bool) -> Option<u64> {
    /// How far below, as a share, and in how many tries.
    const BELOW: u64 = 20;
    const TRIES: u64 = 4;
    /// In how many tries from there down to the other end.
    const FARTHER: u32 = 8;
    let (mut low, mut high) = (guess, guess);
    let mut stride = (guess / 16).max(1);
    if fits(guess) {
        while low == high || (high < MAX_BATCH && fits(high)) {
            low = high;
            high = high.saturating_add(stride);
            stride = stride.saturating_mul(2);
        }
    } else {
        while low == high || !fits(low) {
            if low <= 1 {
                return None;
            }
            high = low;
            low = low.saturating_sub(stride).max(1);
            stride = stride.saturating_mul(2);
        }
    }
    // To a two-hundredth: a batch more or less is below what is known.
    while low + 1 + low / 200 < high {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    // The largest such that all that were tried below it fit too.
    loop {
        let step = (low / BELOW / TRIES).max(1);
        let close = (1..=TRIES).map(|count| low.saturating_sub(count * step)).filter(|&batch| batch > 0);
        let far = between(from, low, FARTHER);
        let Some(failure) = close.chain(far).filter(|&batch| !fits(batch)).min() else { return Some(low) };
        low = failure - 1;
        while low > 0 && !fits(low) {
            low -= step.min(low);
        }
        if low == 0 {
            return None;
        }
    }
}

/// So many batches from one up to another, in even proportions.
fn between(from: u64, to: u64, count: u32) -> impl Iterator<Item = u64> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "batches to try"
    )]
    let at = move |number: u32| {
        let share = f64::from(number) / f64::from(count);
        (from as f64 * (to as f64 / from as f64).powf(share)).round() as u64
    };
    (0..count).map(at).filter(move |_| from < to)
}

/// Adds the draws of one order. A step weighs as much as its order, shared among its steps.
fn count(shares: &mut Vec<Share>, probe: &Probe, fares: &[Fare], weight: f64) {
    let parts: Vec<Part> = probe.stretches.iter().map(|stretch| stretch.part).collect();
    for (&part, &fare) in parts.iter().zip(fares) {
        let alike = parts.iter().zip(fares).filter(|(other, _)| **other == part).count();
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let weight = weight / alike as f64;
        let at = shares.iter().position(|share| share.part == part).unwrap_or_else(|| {
            shares.push(Share { part, passed: 0.0, all: 0.0 });
            shares.len() - 1
        });
        if let Some(share) = shares.get_mut(at) {
            share.all += weight;
            share.passed += if fare == Fare::Fails { 0.0 } else { weight };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_from_any_guess() {
        for guess in [1, 7, 99, 100, 101, 5000] {
            let found = largest_where(guess, 1, |batch| batch <= 100);
            assert!(found.is_some_and(|found| (99..=100).contains(&found)), "{guess}: {found:?}");
        }
        assert_eq!(largest_where(50, 1, |_| false), None);
    }

    #[test]
    fn no_smaller_batch_that_was_tried_fails() {
        // Regions that double leave room at 80 that is not there at 30 to 40.
        let fits = |batch: u64| batch <= 100 && !(30..=40).contains(&batch);
        let found = largest_where(90, 11, fits);
        assert!(found.is_some_and(|found| (20..30).contains(&found)), "{found:?}");
        // Without looking that far it is the upper end.
        let near = largest_where(90, u64::MAX, fits);
        assert!(near.is_some_and(|near| near > 90), "{near:?}");
    }

    #[test]
    fn room_is_left_and_not_a_step_more() {
        for least in [1, 100, 117, 4096].map(|mebibytes| Bytes(mebibytes << 20)) {
            let limit = with_room(least);
            assert!(WIDE.tighter(limit) >= least, "{least}");
            assert!(WIDE.tighter(Bytes(limit.0 - LIMIT_STEP.0)) < least, "{least}");
        }
        assert_eq!(with_room(Bytes(u64::MAX)), Bytes(u64::MAX));
    }

    #[test]
    fn batches_between_are_in_proportion() {
        assert_eq!(between(10, 160, 4).collect::<Vec<_>>(), [10, 20, 40, 80]);
        assert_eq!(between(10, 10, 4).count(), 0);
    }
}
