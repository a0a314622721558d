//! What each batch takes, whether it fits, and the largest that does; each with the reason where that is not known.

use std::collections::BTreeMap;

use super::{PlanOptions, UNMEASURED};
use crate::plan::{Basis, Chance, Doubt, Largest, Plan, Prediction};
use crate::snapshot::Role;
use crate::units::Bytes;

/// What a batch takes, and whether that fits.
#[derive(Clone, Debug)]
pub struct BatchPrediction {
    /// What it takes.
    pub taken: Prediction,
    /// What its process takes: the pool and what is beside it.
    pub process: Option<Bytes>,
    /// The least limit that every order passes with; `None` where none was found.
    pub minimum: Option<Bytes>,
    /// Whether no serious doubt speaks against it.
    pub is_certain: bool,
    /// Whether it fits the limit.
    pub fits: Result<bool, NoFit>,
    /// Requested bytes at the peak, of every role.
    pub by_role: BTreeMap<Role, Bytes>,
    /// The same by what the sizes rest on, of every basis.
    pub by_basis: BTreeMap<Basis, Bytes>,
}

/// Why it is not known whether something fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoFit {
    /// There is nothing to fit into.
    NoLimit,
    /// The plan is not certain.
    NotCertain,
    /// Some orders pass and others do not.
    Chance(Chance),
    /// A compiled program alone: what is beside it is not known.
    ProgramOnly,
    /// A fix: what becomes of the holes of its pool is not known.
    HolesUnknown,
    /// A fix that requests tell nothing of.
    Unmeasured,
}

impl NoFit {
    /// The sentence that tells it.
    #[must_use]
    pub fn reason(&self) -> String {
        let reason = match self {
            NoFit::NoLimit => "no limit was given",
            NoFit::NotCertain => "the plan is not certain; the warnings say why",
            NoFit::Chance(chance) => {
                return format!(
                    "{:.0} % of the orders pass two steps, {:.0} % of the runs all of them",
                    chance.short * 100.0,
                    chance.run * 100.0
                );
            }
            NoFit::ProgramOnly => "what the process takes beside the program is not known from it",
            NoFit::HolesUnknown => "how much a limit has to leave for holes is known once it is measured",
            NoFit::Unmeasured => UNMEASURED,
        };
        reason.to_owned()
    }
}

/// The largest batches under the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestBatch {
    /// Nearly every run passes, and the plan is certain of that.
    pub sure: Result<u64, NoLargest>,
    /// More runs pass than not.
    pub likely: Result<u64, NoLargest>,
}

/// Why no largest batch is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLargest {
    /// There is nothing to fit into.
    NoLimit,
    /// The plan is not certain there.
    NotCertain,
    /// No batch that was compiled is sure to fit.
    NotCompiled,
    /// Some of the runs fail at any batch.
    SomeRunsFail,
    /// Not even the smallest batch fits.
    NothingFits,
    /// There are compiled programs only.
    NoRun,
}

impl NoLargest {
    /// The sentence that tells it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            NoLargest::NoLimit => "no limit was given",
            NoLargest::NotCertain => "the plan is not certain; the warnings say why",
            NoLargest::NotCompiled => "no batch that was compiled is sure to fit; others are not known",
            NoLargest::SomeRunsFail => {
                "some of the runs fail at any batch, or leave no room for orders that no probe has shown"
            }
            NoLargest::NothingFits => "not even a batch of one fits",
            NoLargest::NoRun => "there is no run to tell what the process takes beside the program",
        }
    }
}

/// The answers of a plan, and the doubts that came up with them.
pub(super) struct Answers<'a> {
    plan: &'a Plan,
    options: &'a PlanOptions,
    /// Each once.
    pub(super) doubts: Vec<Doubt>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(plan: &'a Plan, options: &'a PlanOptions) -> Answers<'a> {
        Answers { plan, options, doubts: Vec::new() }
    }

    /// What a batch takes; `None`, with a doubt, where no pool can be that large.
    pub(super) fn prediction(&mut self, batch: u64, outside: Option<Bytes>) -> Option<BatchPrediction> {
        let Some(taken) = self.plan.predict(batch, self.options.steps) else {
            self.doubts.push(Doubt::TooLarge(batch));
            return None;
        };
        let is_certain = self.is_certain(&taken);
        let [_, pool, _] = taken.pool;
        Some(BatchPrediction {
            process: outside.map(|outside| outside + pool),
            minimum: self.plan.minimum(batch),
            is_certain,
            fits: self.fits(batch, is_certain),
            by_role: Role::ALL.into_iter().map(|role| (role, bytes_of(&taken.roles, role))).collect(),
            by_basis: Basis::ALL.into_iter().map(|basis| (basis, bytes_of(&taken.bases, basis))).collect(),
            taken,
        })
    }

    /// Adds what makes a prediction uncertain; whether it is certain nevertheless.
    fn is_certain(&mut self, prediction: &Prediction) -> bool {
        let mut new = self.plan.doubts(prediction.batch, prediction.exact_share());
        if self.options.variable == "batch" {
            new.extend(self.plan.not_in_shapes());
        }
        let is_certain = !new.iter().any(Doubt::is_serious);
        for doubt in new {
            if !self.doubts.contains(&doubt) {
                self.doubts.push(doubt);
            }
        }
        is_certain
    }

    fn fits(&self, batch: u64, is_certain: bool) -> Result<bool, NoFit> {
        let steps = self.options.steps;
        let limit = self.options.limit.ok_or(NoFit::NoLimit)?;
        if !is_certain {
            return Err(NoFit::NotCertain);
        }
        let chance = || NoFit::Chance(self.plan.chance(batch, limit, steps));
        self.plan.fits(batch, limit, steps).ok_or_else(chance)
    }

    /// The largest batches, of which those that are called sure stand for themselves, whatever else was asked for.
    pub(super) fn largest(
        &mut self,
        found: Option<Largest>,
        predictions: &[BatchPrediction],
    ) -> LargestBatch {
        let Some(Largest { sure, likely, .. }) = found else {
            return LargestBatch { sure: Err(NoLargest::NoLimit), likely: Err(NoLargest::NoLimit) };
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
        let sure = sure.filter(|&sure| self.is_certain_at(sure, predictions));
        if sure.is_some() && likely > Some(self.plan.farthest()) {
            self.doubts.push(Doubt::Beyond(self.plan.farthest()));
        }
        LargestBatch { sure: sure.ok_or(reason), likely: likely.ok_or(reason) }
    }

    fn is_certain_at(&mut self, batch: u64, predictions: &[BatchPrediction]) -> bool {
        if let Some(known) = predictions.iter().find(|known| known.taken.batch == batch) {
            return known.is_certain;
        }
        let prediction = self.plan.predict(batch, self.options.steps);
        prediction.is_some_and(|prediction| self.is_certain(&prediction))
    }
}

/// The bytes of a kind; those that are not there hold nothing.
fn bytes_of<Kind: PartialEq + Copy>(all: &[(Kind, Bytes)], kind: Kind) -> Bytes {
    all.iter().filter(|(other, _)| *other == kind).map(|(_, bytes)| *bytes).sum()
}
