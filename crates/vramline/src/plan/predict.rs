//! What a batch takes: the peak and its spread, what the driver gives, who holds it, and the least that it passes with.

use rustc_hash::FxHashMap;

use super::draws::{Draws, Parts};
use super::probe::Part;
use super::size::Basis;
use super::{Irregular, Plan};
use crate::allocator::Placement;
use crate::replay::{LIMIT_STEP, Program, Rehearsal, Rehearsed};
use crate::snapshot::Role;
use crate::units::Bytes;

/// What a smaller probe's order counts, against one of twice the batch: scheduling noise rules where ops are short.
const HALF_AS_LARGE: f64 = 0.5;

/// What a variant counts that is shown as an end only.
const SELDOM: f64 = 0.25;

/// The chance of the ends of an interval.
const ENDS: (f64, f64) = (0.05, 0.95);

/// A batch that is called sure is smaller by one part in so many: the orders of a few probes are not all there are.
const SURE: u64 = 100;

/// What a part of a run takes.
#[derive(Clone, Debug)]
pub struct PartPeak {
    /// The part.
    pub part: Part,
    /// The lowest, the middle one and the highest of its draws.
    pub range: [Bytes; 3],
}

/// What a batch takes.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The batch.
    pub batch: u64,
    /// The most in use, in as many runs above as below.
    pub peak: Bytes,
    /// Nearly every run takes at least this.
    pub low: Bytes,
    /// Nearly no run takes more.
    pub high: Bytes,
    /// What is taken from the driver by a pool without a limit: least, middle, most.
    pub pool: [Bytes; 3],
    /// By part of the run.
    pub parts: Vec<PartPeak>,
    /// Requested bytes by role at the peak, of the order nearest to the middle.
    pub roles: Vec<(Role, Bytes)>,
    /// What its chunks are larger than the requests there.
    pub slack: Bytes,
    /// Bytes asked for at that peak by what their sizes rest on.
    pub bases: Vec<(Basis, Bytes)>,
}

impl Prediction {
    /// The share of the bytes at the peak whose size three probes agree on, or are the same as one of these.
    #[must_use]
    pub fn exact_share(&self) -> f64 {
        let sum = |wanted: &[Basis]| -> u64 {
            self.bases.iter().filter(|(basis, _)| wanted.contains(basis)).map(|(_, bytes)| bytes.0).sum()
        };
        let all = sum(&Basis::ALL);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = sum(&[Basis::Exact, Basis::Twin]) as f64 / all.max(1) as f64;
        share
    }
}

/// How many of the probes' orders pass under a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// As they come.
    pub plain: usize,
    /// Where requests that find no room wait for other threads.
    pub waiting: usize,
    /// How many there are.
    pub all: usize,
}

impl Passes {
    /// Whether it fits: every order does, none does, or some do.
    #[must_use]
    pub fn fits(self) -> Option<bool> {
        match self {
            passes if passes.is_sure() => Some(true),
            Passes { waiting: 0, .. } => Some(false),
            _ => None,
        }
    }

    /// Every order passes, and no more than half of them only by waiting: who waits for whom is known in part only.
    fn is_sure(self) -> bool {
        self.waiting == self.all && self.plain * 2 >= self.all
    }
}

/// The largest batches under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// Every order passes, at this and every smaller batch that was tried. `None` where not even the smallest probe's does.
    pub sure: Option<u64>,
    /// Some order passes, if need be by waiting.
    pub likely: Option<u64>,
}

impl Plan {
    /// What a batch takes in runs of so many steps.
    #[must_use]
    pub fn predict(&self, batch: u64, steps: u64) -> Option<Prediction> {
        let mut parts = Parts::default();
        let mut pools = Vec::new();
        let mut runs: Vec<(usize, Program, Rehearsed)> = Vec::new();
        for number in self.orders() {
            let probe = self.probes.get(number)?;
            let weight = self.weight(probe.batch);
            for (irregular, placement) in self.variants() {
                let program = self.program_at(number, batch, irregular)?;
                let rehearsed = self.rehearse(number, &program, placement)?;
                // What is held instead of scaled widens the interval, it does not move the middle.
                let weight = if irregular == Irregular::Held { weight * SELDOM } else { weight };
                for (stretch, &peak) in probe.stretches.iter().zip(&rehearsed.peaks) {
                    parts.add(stretch.part, peak, weight);
                }
                pools.push(rehearsed.pool);
                runs.push((number, program, rehearsed));
            }
        }
        let peak = parts.quantile(0.5, steps)?;
        let (low, high) = (parts.quantile(ENDS.0, steps)?, parts.quantile(ENDS.1, steps)?);
        pools.sort_unstable();
        let pool = [*pools.first()?, *pools.get(pools.len() / 2)?, *pools.last()?];
        let middle = runs.iter().min_by_key(|(_, _, run)| (run.peak.0.abs_diff(peak.0), run.peak))?;
        let (roles, bases, slack) = self.at_peak(middle.0, &middle.1, &middle.2);
        let of_part = |(part, draws): (Part, &Draws)| Some(PartPeak { part, range: draws.range()? });
        let parts = parts.iter().filter_map(of_part).collect();
        let (low, high) = self.widened(low, high);
        Some(Prediction { batch, peak, low, high, pool, parts, roles, slack, bases })
    }

    /// What an order counts: those of larger probes more.
    pub(super) fn weight(&self, batch: u64) -> f64 {
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let halvings = (largest as f64 / batch.max(1) as f64).log2();
        HALF_AS_LARGE.powf(halvings)
    }

    /// An interval with room for what no probe has shown.
    fn widened(&self, low: Bytes, high: Bytes) -> (Bytes, Bytes) {
        /// Three hundredths on each side: the orders of a few probes are not all there are.
        const SHARE: u64 = 3;
        if self.is_ordered {
            return (low, high);
        }
        (Bytes(low.0 - low.0 / 100 * SHARE), Bytes(high.0 + high.0 / 100 * SHARE))
    }

    /// Roles, bases and slack where a run is highest.
    fn at_peak(&self, number: usize, program: &Program, run: &Rehearsed) -> AtPeak {
        let (Some(probe), Some(sizes)) = (self.probes.get(number), self.sizes.get(number)) else {
            return AtPeak::default();
        };
        let highest = run.peaks.iter().zip(&run.peaks_at).max_by_key(|(peak, _)| **peak);
        let until = highest.map_or(0, |(_, &at)| at);
        let by_act: FxHashMap<usize, usize> =
            probe.asks.iter().enumerate().map(|(at, ask)| (ask.act, at)).collect();
        let mut live: Vec<Option<usize>> = vec![None; program.slots];
        for (at, act) in program.acts.iter().enumerate().take(until + 1) {
            if let Some(slot) = live.get_mut(act.slot()) {
                *slot = act.requested().map(|_| at);
            }
        }
        let mut roles: FxHashMap<Role, Bytes> = FxHashMap::default();
        let mut bases: FxHashMap<Basis, Bytes> = FxHashMap::default();
        let mut requested = Bytes::ZERO;
        for act in live.into_iter().flatten() {
            let bytes = program.acts.get(act).and_then(|act| act.requested()).unwrap_or_default();
            let Some(&ask) = by_act.get(&act) else { continue };
            let role = probe.asks.get(ask).map_or(Role::Unknown, |ask| ask.role);
            *roles.entry(role).or_default() += bytes;
            if let Some(size) = sizes.get(ask) {
                *bases.entry(size.basis).or_default() += bytes;
            }
            requested += bytes;
        }
        let roles = Role::ALL.iter().filter_map(|role| Some((*role, roles.remove(role)?))).collect();
        let bases = Basis::ALL.iter().filter_map(|basis| Some((*basis, bases.remove(basis)?))).collect();
        (roles, bases, run.peak.saturating_sub(requested))
    }

    /// How many orders pass under a limit.
    #[must_use]
    pub fn passes(&self, batch: u64, limit: Bytes) -> Passes {
        let mut passes = Passes::default();
        for number in self.orders() {
            let Some(probe) = self.probes.get(number) else { continue };
            for (irregular, placement) in self.variants() {
                let Some(program) = self.program_at(number, batch, irregular) else { continue };
                let run =
                    Rehearsal { program: &program, rules: &probe.ran.rules, limit: Some(limit), placement };
                let is_plain = run.passes();
                passes.all += 1;
                passes.plain += usize::from(is_plain);
                passes.waiting += usize::from(is_plain || run.passes_by_waiting());
            }
        }
        passes
    }

    /// The least limit that every order passes with, in whole MiB.
    #[must_use]
    pub fn minimum(&self, batch: u64) -> Option<Bytes> {
        let mut least = Bytes::ZERO;
        for number in self.orders() {
            let probe = self.probes.get(number)?;
            for (irregular, placement) in self.variants() {
                let program = self.program_at(number, batch, irregular)?;
                let run = |limit: u64| {
                    let limit = Some(Bytes(limit.saturating_mul(LIMIT_STEP.0)));
                    Rehearsal { program: &program, rules: &probe.ran.rules, limit, placement }.passes()
                };
                // Another order that needs more has answered already.
                let mut low = least.0 / LIMIT_STEP.0;
                if low > 0 && run(low) {
                    continue;
                }
                let mut high = self.rehearse(number, &program, placement)?.pool.0.div_ceil(LIMIT_STEP.0);
                while !run(high) {
                    high = high.checked_mul(2).filter(|&high| high < 1 << 30)?;
                }
                while low + 1 < high {
                    let middle = low.midpoint(high);
                    if run(middle) { high = middle } else { low = middle }
                }
                least = least.max(Bytes(high * LIMIT_STEP.0));
            }
        }
        Some(least)
    }

    /// The largest batches that pass under a limit. Fitting is not quite monotone in the batch, so below what bisection finds
    /// a few more are tried.
    #[must_use]
    pub fn largest(&self, limit: Bytes) -> Largest {
        let sure = self.largest_where(Passes::is_sure, limit).map(|batch| batch - batch / SURE);
        let likely = self.largest_where(|passes| passes.waiting > 0, limit);
        Largest { sure, likely }
    }

    fn largest_where(&self, holds: impl Fn(Passes) -> bool, limit: Bytes) -> Option<u64> {
        /// How far below, as a share, and in how many tries.
        const BELOW: u64 = 20;
        const TRIES: u64 = 8;
        /// Nobody has so large a batch.
        const MOST: u64 = 1 << 40;
        let fits = |batch: u64| holds(self.passes(batch, limit));
        let smallest = self.probes.first()?.batch;
        let mut low = if fits(smallest) { smallest } else { 1 };
        if !fits(low) {
            return None;
        }
        let mut high = low.saturating_mul(2);
        while high < MOST && fits(high) {
            low = high;
            high = high.saturating_mul(2);
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        // The largest such that all that were tried below it fit too.
        let step = (low / BELOW / TRIES).max(1);
        let tried =
            (1..=TRIES).map(|count| low.saturating_sub(count * step)).filter(|&batch| batch >= smallest);
        let lowest_failure = tried.filter(|&batch| !fits(batch)).min();
        Some(lowest_failure.map_or(low, |batch| batch.saturating_sub(1)))
    }

    /// The ways in which what is not known is filled in.
    pub(super) fn variants(&self) -> Vec<(Irregular, Placement)> {
        if self.is_ordered {
            let both = [Irregular::Scaled, Irregular::Held];
            both.into_iter()
                .flat_map(|irregular| Placement::ALL.map(|placement| (irregular, placement)))
                .collect()
        } else {
            vec![(Irregular::Scaled, Placement::Ascending)]
        }
    }

    /// The probes whose order is run: where the order is always the same, the largest; otherwise those whose requests are known at
    /// other batches too. A probe of which much is not, such as one that a compiler treated otherwise, would stand for itself only.
    pub(super) fn orders(&self) -> Vec<usize> {
        let largest = self.probes.last().map_or(0, |probe| probe.batch);
        let is_largest =
            |&number: &usize| self.probes.get(number).is_some_and(|probe| probe.batch == largest);
        let all = 0..self.probes.len();
        if self.is_ordered {
            return all.filter(is_largest).collect();
        }
        let known: Vec<usize> = all.clone().filter(|&number| self.is_known(number)).collect();
        if known.is_empty() { all.collect() } else { known }
    }

    /// Whether all but a twentieth of what a probe asks for has a size at other batches.
    fn is_known(&self, number: usize) -> bool {
        let (Some(probe), Some(sizes)) = (self.probes.get(number), self.sizes.get(number)) else {
            return false;
        };
        let bytes = |wanted: fn(Basis) -> bool| -> u64 {
            probe
                .asks
                .iter()
                .zip(sizes)
                .filter(|(_, size)| wanted(size.basis))
                .map(|(ask, _)| ask.bytes)
                .sum()
        };
        bytes(|basis| basis == Basis::Held).saturating_mul(20) <= bytes(|_| true)
    }
}

type AtPeak = (Vec<(Role, Bytes)>, Vec<(Basis, Bytes)>, Bytes);
