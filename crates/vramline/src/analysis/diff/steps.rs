//! The steps of runs, compared by their numbers or, where these never meet, by their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::DiffBy;
use super::rows::{ComparedRow, Figure, RowSubject};
use super::slots::Comparison;
use crate::analysis::process::PoolStep;
use crate::trace::Phase;
use crate::warning::Warning;

/// What a step is known by in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComparedStep {
    /// What it did.
    pub phase: Phase,
    /// Its epoch.
    pub epoch: Option<u64>,
    /// Its number, or its position if the runs number steps differently.
    pub number: i64,
    /// The number of earlier steps of a run with the same phase, epoch and number.
    pub again: usize,
}

impl fmt::Display for ComparedStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(epoch) = self.epoch {
            write!(out, "epoch {epoch}, ")?;
        }
        write!(out, "{} step {}", self.phase.word(), self.number)?;
        if self.again > 0 {
            write!(out, " (occurrence {})", self.again + 1)?;
        }
        Ok(())
    }
}

type StepsOfRun<'a> = BTreeMap<ComparedStep, &'a PoolStep>;

/// What steps are matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepMatch {
    Number,
    Order,
}

impl<'a> Comparison<'a> {
    /// Steps by number, or by order with a warning if the runs have no numbers in common. Rows are in the order in which the steps ran.
    pub(super) fn steps(&self, slot: usize) -> (Vec<ComparedRow>, Option<Warning>) {
        let by_number = self.all_steps(slot, StepMatch::Number);
        let meets = |steps: &StepsOfRun<'_>| {
            by_number
                .first()
                .is_none_or(|first| first.is_empty() || first.keys().any(|key| steps.contains_key(key)))
        };
        let (all, warning) = if by_number.iter().all(|steps| steps.is_empty() || meets(steps)) {
            (by_number, None)
        } else {
            let text = format!(
                "the runs number the steps of '{}' differently, so steps are compared in order",
                self.label(slot)
            );
            let warning = Warning { code: "steps-by-order", text, hint: String::new() };
            (self.all_steps(slot, StepMatch::Order), Some(warning))
        };
        let row = |key: ComparedStep| {
            let has_peaks = all.iter().filter_map(|steps| steps.get(&key)).all(|step| step.peak.is_some());
            let figure = if has_peaks { Figure::Peak } else { Figure::InUse };
            self.row(slot, (DiffBy::Step, figure), RowSubject::Step(key), |report| {
                let step = all.get(report)?.get(&key)?;
                if has_peaks { step.peak } else { step.current }
            })
        };
        (as_they_ran(&all).into_iter().map(row).collect(), warning)
    }

    fn all_steps(&self, slot: usize, matched_by: StepMatch) -> Vec<StepsOfRun<'a>> {
        (0..self.reports.len()).map(|report| self.steps_of(slot, report, matched_by)).collect()
    }

    fn steps_of(&self, slot: usize, report: usize, matched_by: StepMatch) -> StepsOfRun<'a> {
        let mut found = BTreeMap::new();
        let (Some(pool), Some(all)) = (self.pool(slot, report), self.reports.get(report)) else {
            return found;
        };
        let mut seen: BTreeMap<ComparedStep, usize> = BTreeMap::new();
        let own = all.steps.iter().filter(|step| {
            step.pool == pool.name && (step.pid.is_none() || pool.pid.is_none() || step.pid == pool.pid)
        });
        let mut order: BTreeMap<Phase, i64> = BTreeMap::new();
        for step in own {
            let place = order.entry(step.phase).or_default();
            let (epoch, number) = match matched_by {
                StepMatch::Number => (step.epoch, step.number),
                StepMatch::Order => (None, *place),
            };
            *place += 1;
            let mut key = ComparedStep { phase: step.phase, epoch, number, again: 0 };
            let count = seen.entry(key).or_default();
            key.again = *count;
            *count += 1;
            found.insert(key, step);
        }
        found
    }
}

/// Every step of several runs once. Clocks differ, so each is put behind the step that ran before it in the first run that has it.
fn as_they_ran(all: &[StepsOfRun<'_>]) -> Vec<ComparedStep> {
    let mut order: Vec<ComparedStep> = Vec::new();
    let mut seen: BTreeSet<ComparedStep> = BTreeSet::new();
    for steps in all {
        let mut own: Vec<(ComparedStep, &PoolStep)> = steps.iter().map(|(key, step)| (*key, *step)).collect();
        own.sort_by_key(|(key, step)| (step.begin, key.phase.word(), *key));
        let mut behind: BTreeMap<Option<ComparedStep>, Vec<ComparedStep>> = BTreeMap::new();
        let mut before = None;
        for (key, _) in own {
            if seen.contains(&key) {
                before = Some(key);
            } else {
                behind.entry(before).or_default().push(key);
            }
        }
        if behind.is_empty() {
            continue;
        }
        seen.extend(behind.values().flatten());
        let begin = behind.remove(&None).unwrap_or_default();
        let rest = order.iter().flat_map(|key| {
            std::iter::once(*key).chain(behind.get(&Some(*key)).into_iter().flatten().copied())
        });
        order = begin.into_iter().chain(rest).collect();
    }
    order
}
