//! What a batch takes: the peak and its spread, what the driver gives, who holds it, and the least that it passes with.

use rustc_hash::FxHashMap;

use super::draws::{Draws, Parts};
use super::probe::{Part, Probe};
use super::size::Basis;
use super::{Irregular, Plan, each};
use crate::allocator::Placement;
use crate::replay::{Program, Rehearsal, Rehearsed, Rules};
use crate::snapshot::Role;
use crate::units::Bytes;

/// What a smaller probe's order counts, against one of twice the batch: scheduling noise rules where ops are short.
const HALF_AS_LARGE: f64 = 0.5;

/// What a variant counts that is shown as an end only.
const SELDOM: f64 = 0.25;

/// The chance of the ends of an interval.
const ENDS: (f64, f64) = (0.05, 0.97);

/// Nothing is predicted where more is asked for at once: sums of sizes end somewhere.
const MAX_PREDICTED_BYTES: Bytes = Bytes(1 << 55);

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
    /// What is taken from the driver by a pool under the limit of the probes: least, middle, most.
    pub pool: [Bytes; 3],
    /// By part of the run.
    pub parts: Vec<PartPeak>,
    /// Requested bytes by role at the peak, of the order nearest to the middle.
    pub roles: Vec<(Role, Bytes)>,
    /// What its chunks are larger than the requests there.
    pub slack: Bytes,
    /// Bytes requested at that peak, by how their sizes are known.
    pub bases: Vec<(Basis, Bytes)>,
    /// Of these, bytes whose size is exact at this batch.
    pub exact: Bytes,
}

impl Prediction {
    /// The share of the bytes at the peak whose size three probes agree on, or that a compiler told at this very batch. Scratch that a
    /// library may choose otherwise is not exact.
    #[must_use]
    pub fn exact_share(&self) -> f64 {
        self.share_of(self.exact)
    }

    /// The share whose size is exact or compiled at some batches, or as large as one of these in its own probe, and scratch that the
    /// probes agree on.
    pub(super) fn known_share(&self) -> f64 {
        self.share_with(&[Basis::Exact, Basis::Compiled, Basis::Twin, Basis::Scratch, Basis::Padded])
    }

    /// The share of the bytes at the peak that libraries choose by size.
    pub(super) fn scratch_share(&self) -> f64 {
        self.share_with(&[Basis::Scratch, Basis::Irregular])
    }

    fn share_with(&self, bases: &[Basis]) -> f64 {
        self.share_of(
            self.bases.iter().filter(|(basis, _)| bases.contains(basis)).map(|(_, bytes)| *bytes).sum(),
        )
    }

    fn share_of(&self, bytes: Bytes) -> f64 {
        let all: Bytes = self.bases.iter().map(|(_, bytes)| *bytes).sum();
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = bytes.0 as f64 / all.0.max(1) as f64;
        share
    }
}

impl Plan {
    /// What a batch takes in runs of so many steps; `None` where that is more than any pool can have.
    #[must_use]
    pub fn predict(&self, batch: u64, steps: u64) -> Option<Prediction> {
        let mut prediction = self.predict_orders(batch, steps)?;
        if self.is_ordered {
            self.set_margins(&mut prediction);
            self.widen_by_copies(&mut prediction);
        } else {
            (prediction.low, prediction.high) = widened(prediction.low, prediction.high);
            self.widen_by_kernels(&mut prediction);
        }
        Some(prediction)
    }

    /// Widens the range of what a growing pool takes if XLA tries kernels at a batch that it did not try in the probes: one region more
    /// doubles the pool, one less halves it.
    fn widen_by_kernels(&self, prediction: &mut Prediction) {
        let Some(probe) = self.probes.last().filter(|probe| probe.batch < prediction.batch) else { return };
        let grows = matches!(&probe.ran.rules, Rules::Bfc(preset) if preset.options.growth);
        if !grows || !probe.asks.iter().any(|ask| ask.tries_kernels) {
            return;
        }
        let [least, _, most] = &mut prediction.pool;
        let doubled = Bytes(most.0.saturating_mul(2));
        *most = probe.own_limit().map_or(doubled, |limit| doubled.min(limit.max(*most)));
        *least = (*least).min(prediction.low.max(Bytes(least.0 / 2)));
    }

    /// What a batch takes in as many steps as a probe has, as the orders of the probes show it.
    pub(super) fn predict_as_is(&self, batch: u64) -> Option<Prediction> {
        let order = self.probes.get(*self.orders().last()?)?;
        let steps = order.stretches.iter().filter(|stretch| stretch.part == Part::Step).count();
        self.predict_orders(batch, 1 + u64::try_from(steps).ok()?)
    }

    fn predict_orders(&self, batch: u64, steps: u64) -> Option<Prediction> {
        let mut parts = Parts::default();
        let mut taken: Vec<((usize, Placement), Irregular, Bytes)> = Vec::new();
        let mut runs: Vec<(usize, Program, Rehearsed)> = Vec::new();
        let ways = self.ways();
        let rehearsed = each(&ways, |&(number, irregular, placement)| {
            let program = self.program_at(number, batch, irregular)?;
            let asked = program.acts.iter().filter_map(|act| act.requested()).max().unwrap_or_default();
            if asked > MAX_PREDICTED_BYTES {
                return None;
            }
            let rehearsed = self.rehearse(number, &program, placement)?;
            (rehearsed.failure.is_none() && rehearsed.peak <= MAX_PREDICTED_BYTES)
                .then_some((program, rehearsed))
        });
        for (&(number, irregular, placement), rehearsed) in ways.iter().zip(rehearsed) {
            let (program, rehearsed) = rehearsed?;
            let probe = self.probes.get(number)?;
            // What is held instead of scaled widens the interval, it does not move the middle.
            let seldom = if irregular == Irregular::Held { SELDOM } else { 1.0 };
            for (stretch, &peak) in probe.stretches.iter().zip(&rehearsed.peaks) {
                parts.add(stretch.part, peak, self.weight(probe.batch) * seldom);
            }
            taken.push(((number, placement), irregular, reserved(probe, &program, placement, &rehearsed)));
            runs.push((number, program, rehearsed));
        }
        let peak = parts.quantile(0.5, steps)?;
        let (low, high) = (parts.quantile(ENDS.0, steps)?, parts.quantile(ENDS.1, steps)?);
        let pool = middle_pool(&taken)?;
        let middle = runs.iter().min_by_key(|(_, _, run)| (run.peak.0.abs_diff(peak.0), run.peak))?;
        let AtPeak { roles, bases, slack, exact } = self.at_peak(middle.0, &middle.1, &middle.2, batch);
        let of_part = |(part, draws): (Part, &Draws)| Some(PartPeak { part, range: draws.range()? });
        let parts = parts.iter().filter_map(of_part).collect();
        Some(Prediction { batch, peak, low, high, pool, parts, roles, slack, bases, exact })
    }

    /// What the pool takes from the driver under a limit, if it reserves all of that at once.
    #[must_use]
    pub(crate) fn reserved_at_once(&self, limit: Bytes) -> Option<Bytes> {
        match &self.probes.last()?.ran.rules {
            Rules::Bfc(preset) if !preset.options.growth => Some(preset.options.limit(limit)),
            _ => None,
        }
    }

    /// What an order counts: those of larger probes more.
    pub(super) fn weight(&self, batch: u64) -> f64 {
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let halvings = (largest as f64 / batch.max(1) as f64).log2();
        HALF_AS_LARGE.powf(halvings)
    }

    /// Roles, bases and slack where a run is highest.
    fn at_peak(&self, number: usize, program: &Program, run: &Rehearsed, batch: u64) -> AtPeak {
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
        let (mut requested, mut exact) = (Bytes::ZERO, Bytes::ZERO);
        for act in live.into_iter().flatten() {
            let bytes = program.acts.get(act).and_then(|act| act.requested()).unwrap_or_default();
            let Some(&ask) = by_act.get(&act) else { continue };
            let mut role = probe.asks.get(ask).map_or(Role::Unknown, |ask| ask.role);
            if let Some(size) = sizes.get(ask) {
                *bases.entry(size.basis).or_default() += bytes;
                exact += if size.is_exact_at(batch) { bytes } else { Bytes::ZERO };
                // Whatever lies in it, it is there while the program runs.
                if size.basis == Basis::Compiled && role == Role::Unknown {
                    role = Role::Temporaries;
                }
            }
            *roles.entry(role).or_default() += bytes;
            requested += bytes;
        }
        for &bytes in program.at_once(until) {
            *roles.entry(Role::Temporaries).or_default() += bytes;
            *bases.entry(Basis::Scratch).or_default() += bytes;
            requested += bytes;
        }
        let roles = Role::ALL.iter().filter_map(|role| Some((*role, roles.remove(role)?))).collect();
        let bases = Basis::ALL.iter().filter_map(|basis| Some((*basis, bases.remove(basis)?))).collect();
        AtPeak { roles, bases, slack: run.peak.saturating_sub(requested), exact }
    }

    /// What is rehearsed: each order, in each way to fill in what is not known.
    pub(super) fn ways(&self) -> Vec<(usize, Irregular, Placement)> {
        self.ways_of(self.orders())
    }

    /// The same with the orders that a batch may have.
    pub(super) fn ways_near(&self, batch: u64) -> Vec<(usize, Irregular, Placement)> {
        self.ways_of(self.orders_near(batch))
    }

    fn ways_of(&self, orders: Vec<usize>) -> Vec<(usize, Irregular, Placement)> {
        let fillings: Vec<(Irregular, Placement)> = if self.is_ordered {
            let both = [Irregular::Scaled, Irregular::Held];
            both.into_iter()
                .flat_map(|irregular| Placement::ON_GPU.map(|placement| (irregular, placement)))
                .collect()
        } else {
            vec![(Irregular::Scaled, Placement::Ascending)]
        };
        let orders = orders.into_iter();
        orders.flat_map(|order| fillings.iter().map(move |&(one, other)| (order, one, other))).collect()
    }

    /// The probes whose order a batch may have. Where ops are short, threads order them in ways that larger batches do not show, so once a
    /// probe is at least half as large as the batch, smaller ones do not count.
    pub(super) fn orders_near(&self, batch: u64) -> Vec<usize> {
        let mut orders = self.orders();
        let is_near = |order: &usize| {
            self.probes.get(*order).is_some_and(|probe| probe.batch.saturating_mul(2) >= batch)
        };
        if orders.iter().any(is_near) {
            orders.retain(is_near);
        }
        orders
    }

    /// The probes whose order is run: where the order is always the same, the largest that has its optimizer state; otherwise those whose requests are known at
    /// other batches too. A probe of which much is not, such as one that a compiler treated otherwise, would stand for itself only.
    pub(super) fn orders(&self) -> Vec<usize> {
        let all = 0..self.probes.len();
        if self.is_ordered {
            let whole = |number: &usize| self.probes.get(*number).is_some_and(|probe| !probe.lacks_state);
            let batch = |number: usize| self.probes.get(number).map(|probe| probe.batch);
            let largest = all.clone().filter(whole).filter_map(batch).max();
            return all.filter(whole).filter(|&number| batch(number) == largest).collect();
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
            let asks = probe.asks.iter().zip(sizes).filter(|(_, size)| wanted(size.basis));
            asks.map(|(ask, _)| Bytes(ask.bytes)).sum::<Bytes>().0
        };
        bytes(|basis| basis == Basis::Held).saturating_mul(20) <= bytes(|_| true)
    }
}

/// The least, the middle and the most that a pool takes. What is held instead of scaled requests less; if the pool takes more for that, it
/// is by chance, so only the most counts it.
fn middle_pool(taken: &[((usize, Placement), Irregular, Bytes)]) -> Option<[Bytes; 3]> {
    let scaled = |way: &(usize, Placement)| {
        let scaled =
            taken.iter().find(|(other, irregular, _)| other == way && *irregular == Irregular::Scaled);
        scaled.map(|(_, _, pool)| *pool)
    };
    let capped = taken.iter().map(|(way, _, pool)| scaled(way).map_or(*pool, |scaled| scaled.min(*pool)));
    let mut capped: Vec<Bytes> = capped.collect();
    capped.sort_unstable();
    let most = taken.iter().map(|(_, _, pool)| *pool).max()?;
    Some([*capped.first()?, *capped.get(capped.len() / 2)?, most])
}

/// An interval with room for orders that no probe has shown.
fn widened(low: Bytes, high: Bytes) -> (Bytes, Bytes) {
    /// In thousandths, on each side: the orders of a few probes are not all there are.
    const MARGIN_PER_MILLE: u64 = 15;
    /// Or this part of what these orders differ by, if it is more.
    const SPREAD_DIVISOR: u64 = 4;
    let of_spread = high.saturating_sub(low).0 / SPREAD_DIVISOR;
    let margin = |of: Bytes| (of.0 / 1000 * MARGIN_PER_MILLE).max(of_spread);
    (Bytes(low.0.saturating_sub(margin(low))), Bytes(high.0.saturating_add(margin(high))))
}

/// What a pool takes from the driver: never more than it may. One that reserves its memory at once takes all of it, whatever the batch; one
/// that grows takes smaller steps near its limit, and all of it before a request fails.
pub(super) fn reserved(
    probe: &Probe,
    program: &Program,
    placement: Placement,
    rehearsed: &Rehearsed,
) -> Bytes {
    let rules = &probe.ran.rules;
    let Rules::Bfc(preset) = rules else { return rehearsed.pool };
    if !preset.options.growth {
        return probe.ran.limit.unwrap_or(rehearsed.peak);
    }
    match probe.own_limit().filter(|&limit| limit < rehearsed.pool) {
        None => rehearsed.pool,
        Some(limit) => Rehearsal { program, rules, limit: Some(limit), placement }
            .run(&[])
            .filter(|under| under.failure.is_none())
            .map_or(limit, |under| under.pool),
    }
}

/// What is there where a run is highest, as in a [`Prediction`].
#[derive(Default)]
struct AtPeak {
    roles: Vec<(Role, Bytes)>,
    bases: Vec<(Basis, Bytes)>,
    slack: Bytes,
    exact: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_takes_more_for_less_moves_only_the_upper_end() {
        let [driver, above, below] = Placement::ON_GPU;
        let taken = |scaled: [u64; 3], held: [u64; 3]| {
            let ways = |irregular, pools: [u64; 3]| {
                let places = [driver, above, below].into_iter().zip(pools);
                places.map(move |(place, pool)| ((0, place), irregular, Bytes(pool)))
            };
            let all = ways(Irregular::Scaled, scaled).chain(ways(Irregular::Held, held));
            middle_pool(&all.collect::<Vec<_>>()).unwrap().map(|bytes| bytes.0)
        };
        assert_eq!(taken([100, 102, 100], [130; 3]), [100, 100, 130]);
        assert_eq!(taken([100, 102, 104], [90; 3]), [90, 100, 104]);
        assert_eq!(middle_pool(&[]), None);
    }
}
