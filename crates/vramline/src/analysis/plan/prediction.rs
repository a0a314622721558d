//! What each batch size needs, whether it fits, and the largest that fits; each with a reason if it is unknown.

use std::collections::BTreeMap;

use super::confirm::Confirmation;
use super::{PlanOptions, UNMEASURED};
use crate::plan::{Basis, Chance, Doubt, Largest, Plan, Prediction};
use crate::snapshot::Role;
use crate::units::Bytes;
use crate::warning::{Warning, Warnings};

/// What a batch size needs, and whether that fits.
#[derive(Clone, Debug)]
pub struct BatchPrediction {
    /// What it needs.
    pub taken: Prediction,
    /// What its process needs: the pool and memory outside it.
    pub process: Option<Bytes>,
    /// The smallest limit with which it fits; `None` if none was found.
    pub minimum: Option<Bytes>,
    /// Whether there is no serious doubt.
    pub is_certain: bool,
    /// Whether it fits the limit.
    pub fits: Result<bool, NoFit>,
    /// Requested bytes at the peak, by role.
    pub by_role: BTreeMap<Role, Bytes>,
    /// The same, by the basis of the sizes.
    pub by_basis: BTreeMap<Basis, Bytes>,
}

/// Why it is unknown whether something fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoFit {
    /// There is no limit.
    NoLimit,
    /// The plan is not certain.
    NotCertain,
    /// Some orders pass and others do not.
    Chance(Chance),
    /// A real run of this or a smaller batch size ran out of memory.
    RanOut,
    /// A compiled program alone: memory outside it is unknown.
    ProgramOnly,
    /// A fix: the fragmentation of its pool is unknown.
    HolesUnknown,
    /// A fix whose effect cannot be computed from requests.
    Unmeasured,
}

impl NoFit {
    /// The reason in words.
    #[must_use]
    pub fn reason(&self) -> String {
        let reason = match self {
            NoFit::NoLimit => "no limit was given",
            NoFit::NotCertain => "the plan is not certain; see the warnings",
            NoFit::Chance(chance) => {
                return format!(
                    "{:.0} % of op orders pass two steps, and {:.0} % of runs pass all steps",
                    chance.short * 100.0,
                    chance.run * 100.0
                );
            }
            NoFit::RanOut => {
                "a real run under the limit ran out of memory, at this batch size or a smaller one"
            }
            NoFit::ProgramOnly => "a compiled program does not show what the process needs outside it",
            NoFit::HolesUnknown => "how much room fragmentation needs is known only after a measurement",
            NoFit::Unmeasured => UNMEASURED,
        };
        reason.to_owned()
    }
}

/// The largest batches under the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestBatch {
    /// Nearly every run passes, and the plan is certain.
    pub sure: Result<u64, NoLargest>,
    /// What the plan would call sure if it ran: it may lie farther beyond the probes.
    pub expected: Result<u64, NoLargest>,
    /// More runs pass than not.
    pub likely: Result<u64, NoLargest>,
}

/// Why the largest batch size is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLargest {
    /// There is no limit.
    NoLimit,
    /// The plan is not certain there.
    NotCertain,
    /// No compiled batch size is sure to fit.
    NotCompiled,
    /// Some runs fail at any batch size.
    SomeRunsFail,
    /// Not even the smallest batch size fits.
    NothingFits,
    /// There are compiled programs only.
    NoRun,
    /// Real runs ran out of memory at every batch size that was tried.
    RanOut,
}

impl NoLargest {
    /// The reason in words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            NoLargest::NoLimit => "no limit was given",
            NoLargest::NotCertain => "the plan is not certain; see the warnings",
            NoLargest::NotCompiled => "no compiled batch size is sure to fit, and others were not compiled",
            NoLargest::SomeRunsFail => {
                "at any batch size some runs fail, or there is no room for orders of ops that no probe showed"
            }
            NoLargest::NothingFits => "not even batch size 1 fits",
            NoLargest::RanOut => "real runs under the limit ran out of memory",
            NoLargest::NoRun => "no run shows what the process needs outside the compiled program",
        }
    }
}

/// The answers of a plan, and the doubts that came up with them.
pub(super) struct Answers<'a> {
    plan: &'a Plan,
    options: &'a PlanOptions,
    confirmation: &'a Confirmation,
    /// Each once.
    pub(super) doubts: Vec<Doubt>,
    /// Doubts about batch sizes that real runs have confirmed: worth a note, and no more.
    settled: Vec<Doubt>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        options: &'a PlanOptions,
        confirmation: &'a Confirmation,
    ) -> Answers<'a> {
        let left_out = confirmation.left_out();
        let unlike = plan.probes.first().map_or(0, |probe| probe.batch);
        let doubts = (!left_out.is_empty()).then_some(Doubt::LeftOut { probes: left_out, unlike });
        Answers { plan, options, confirmation, doubts: doubts.into_iter().collect(), settled: Vec::new() }
    }

    /// The doubts as warnings, each once.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Warnings::default();
        let settled = self.settled.iter().filter(|doubt| !self.doubts.contains(doubt));
        for doubt in self.doubts.iter().chain(settled) {
            warnings.add(doubt.code(), doubt.text(), doubt.hint());
        }
        warnings.into_vec()
    }

    /// The plan that holds for a batch size.
    fn plan_of(&self, batch: u64) -> &'a Plan {
        self.confirmation.plan_below(self.plan, batch, self.options.steps).unwrap_or(self.plan)
    }

    /// What a batch size needs; `None`, with a doubt, if no pool can be that large.
    pub(super) fn prediction(&mut self, batch: u64, outside: Option<Bytes>) -> Option<BatchPrediction> {
        let plan = self.plan_of(batch);
        let Some(mut taken) = plan.predict(batch, self.options.steps) else {
            self.doubts.push(Doubt::TooLarge(batch));
            return None;
        };
        if let Some(pool) = self.options.limit.and_then(|limit| plan.reserved_at_once(limit)) {
            taken.pool = [pool; 3];
        }
        let is_certain = self.is_certain(&taken);
        let [_, pool, _] = taken.pool;
        Some(BatchPrediction {
            process: outside.map(|outside| outside + pool),
            minimum: plan.minimum(batch, self.options.steps, self.options.limit),
            is_certain,
            fits: self.fits(batch, is_certain),
            by_role: Role::ALL.into_iter().map(|role| (role, bytes_of(&taken.roles, role))).collect(),
            by_basis: Basis::ALL.into_iter().map(|basis| (basis, bytes_of(&taken.bases, basis))).collect(),
            taken,
        })
    }

    /// Adds what makes a prediction uncertain; whether it is certain nevertheless.
    fn is_certain(&mut self, prediction: &Prediction) -> bool {
        let plan = self.plan_of(prediction.batch);
        let mut new = plan.doubts(prediction);
        if self.options.variable == "batch" {
            new.extend(plan.not_in_shapes());
        }
        if self.options.limit.is_none() {
            new.extend(plan.over_pool(prediction));
        }
        // Whatever the plan does not know about a batch size, its runs have shown.
        let is_confirmed = self.confirmation.confirmed() == Some(prediction.batch);
        new.retain(|doubt| !is_confirmed || !matches!(doubt, Doubt::KernelMayChange(_)));
        let is_certain = is_confirmed || !new.iter().any(Doubt::is_serious);
        let known = if is_confirmed { &mut self.settled } else { &mut self.doubts };
        for doubt in new {
            if !known.contains(&doubt) {
                known.push(doubt);
            }
        }
        is_certain
    }

    fn fits(&self, batch: u64, is_certain: bool) -> Result<bool, NoFit> {
        let (plan, steps) = (self.plan_of(batch), self.options.steps);
        let limit = self.options.limit.ok_or(NoFit::NoLimit)?;
        let confirmation = self.confirmation;
        if confirmation.is_for_largest() && confirmation.confirmed() == Some(batch) {
            return Ok(true);
        }
        if confirmation.nearest_failure().is_some_and(|failed| failed <= batch) {
            return if plan.fits(batch, limit, steps) == Some(false) {
                Ok(false)
            } else {
                Err(NoFit::RanOut)
            };
        }
        if !is_certain {
            return Err(NoFit::NotCertain);
        }
        let chance = || NoFit::Chance(plan.chance(batch, limit, steps));
        plan.fits(batch, limit, steps).ok_or_else(chance)
    }

    /// The largest batches, of which those that are called sure stand for themselves, whatever else was asked for.
    pub(super) fn largest(
        &mut self,
        found: Option<Largest>,
        predictions: &[BatchPrediction],
    ) -> LargestBatch {
        let Some(Largest { sure, to_confirm, likely, .. }) = found else {
            let none = Err(NoLargest::NoLimit);
            return LargestBatch { sure: none, expected: none, likely: none };
        };
        let reason = if sure.is_some() {
            NoLargest::NotCertain
        } else if likely.is_none() {
            NoLargest::NothingFits
        } else if self.plan.compiled_batches().is_some() {
            NoLargest::NotCompiled
        } else {
            NoLargest::SomeRunsFail
        };
        let failed = self.confirmation.nearest_failure();
        // Where more real runs fail than pass, the edge is passed.
        let is_beyond =
            |failed: &u64| self.confirmation.failures(*failed) >= self.confirmation.passes(*failed);
        let most = failed.filter(is_beyond).map_or(u64::MAX, |failed| failed - 1);
        let likely = likely.map(|likely| likely.min(most)).filter(|&likely| likely > 0);
        if let Some(sure) = self.confirmation.confirmed().filter(|_| self.confirmation.is_for_largest()) {
            let _ = self.is_certain_at(sure, predictions);
            let likely = self.confirmation.likely().or(likely).map_or(sure, |likely| likely.max(sure));
            return LargestBatch { sure: Ok(sure), expected: Ok(sure), likely: Ok(likely) };
        }
        if failed.is_some_and(|failed| sure >= Some(failed)) {
            let none = Err(NoLargest::RanOut);
            return LargestBatch { sure: none, expected: none, likely: likely.ok_or(NoLargest::RanOut) };
        }
        let sure = sure.filter(|&sure| self.is_certain_at(sure, predictions));
        let far = self.plan.farthest_without_run();
        if sure.is_some() && likely > Some(far) && self.plan.compiled_batches().is_none() {
            self.doubts.push(Doubt::Beyond(far));
        }
        let expected = to_confirm.filter(|_| sure.is_some() || reason != NoLargest::NotCertain);
        LargestBatch {
            sure: sure.ok_or(reason),
            expected: expected.ok_or(reason),
            likely: likely.ok_or(reason),
        }
    }

    fn is_certain_at(&mut self, batch: u64, predictions: &[BatchPrediction]) -> bool {
        if let Some(known) = predictions.iter().find(|known| known.taken.batch == batch) {
            return known.is_certain;
        }
        let prediction = self.plan_of(batch).predict(batch, self.options.steps);
        prediction.is_some_and(|prediction| self.is_certain(&prediction))
    }
}

/// The bytes of a kind; those that are not there hold nothing.
fn bytes_of<Kind: PartialEq + Copy>(all: &[(Kind, Bytes)], kind: Kind) -> Bytes {
    all.iter().filter(|(other, _)| *other == kind).map(|(_, bytes)| *bytes).sum()
}
