//! What compiled programs need: in addition to a plan from runs, and alone.

use std::collections::BTreeMap;

use super::confirm::{Confirmation, ConfirmationState};
use super::prediction::{LargestBatch, NoFit, NoLargest};
use super::{NotModelled, PlanAnalysis, PlanBasis, PlanOptions, verdict};
use crate::event::Framework;
use crate::executable::Purpose;
use crate::plan::Compiled;
use crate::units::Bytes;
use crate::warning::Warnings;

/// The largest program that XLA compiled at a batch.
#[derive(Clone, Debug)]
pub struct CompiledStep {
    /// The batch.
    pub batch: u64,
    /// The file it was read from.
    pub file: String,
    /// The program's name.
    pub program: String,
    /// Bytes of its arguments.
    pub arguments: Bytes,
    /// Bytes of its results.
    pub results: Bytes,
    /// Bytes that it needs while it runs.
    pub temporaries: Bytes,
    /// Bytes of its constants.
    pub constants: Bytes,
    /// The total.
    pub peak: Bytes,
    /// Whether it fits the limit. The program alone can only prove that it does not.
    pub fits: Result<bool, NoFit>,
}

/// The largest program of each batch size; if a batch size occurs twice, the last one counts, as in the plan.
pub(super) fn steps(compiled: &[Compiled], limit: Option<Bytes>) -> Vec<CompiledStep> {
    let by_batch: BTreeMap<u64, &Compiled> = compiled.iter().map(|one| (one.batch, one)).collect();
    let step = |one: &Compiled| {
        let (program, taken) = one.largest()?;
        Some(CompiledStep {
            batch: one.batch,
            file: one.file.clone(),
            program: program.name.clone(),
            arguments: program.total(|purpose| matches!(purpose, Purpose::Parameter { .. })),
            results: program.total(|purpose| *purpose == Purpose::Output),
            temporaries: program.total(|purpose| *purpose == Purpose::Temporary),
            constants: program.total(|purpose| *purpose == Purpose::Constant),
            peak: taken,
            fits: match limit {
                None => Err(NoFit::NoLimit),
                Some(limit) if taken > limit => Ok(false),
                Some(_) => Err(NoFit::ProgramOnly),
            },
        })
    };
    by_batch.into_values().filter_map(step).collect()
}

/// The plan from compiled programs alone, without any run: only what a step needs while it runs.
#[must_use]
pub fn of_compiled(compiled: &[Compiled], options: &PlanOptions) -> PlanAnalysis {
    let compiled = steps(compiled, options.limit);
    let is_jax = compiled.iter().all(|one| one.program.starts_with("jit_"));
    let (verdict, headline) = verdict::verdict(options, &[], &compiled);
    let mut warnings = Warnings::default();
    warnings.add(
        "step-only",
        "the figures include only the compiled program: the process needs more, and XLA may need more while it compiles and tries algorithms",
        "on a device whose pool can be traced, use probes of the same job: vramline plan -- CMD {batch}",
    );
    PlanAnalysis {
        made_from: PlanBasis::Programs,
        verdict,
        headline,
        variable: options.variable.clone(),
        framework: is_jax.then_some(Framework::Jax),
        pool: String::new(),
        device: String::new(),
        steps: options.steps,
        limit: options.limit,
        outside: None,
        is_certain: false,
        probes: Vec::new(),
        compiled,
        predictions: Vec::new(),
        confirmation: Confirmation::none(ConfirmationState::NothingToTry),
        next_probe: None,
        largest: LargestBatch {
            sure: Err(NoLargest::NoRun),
            expected: Err(NoLargest::NoRun),
            likely: Err(NoLargest::NoRun),
        },
        largest_text: None,
        fixes: Vec::new(),
        curve: Vec::new(),
        not_modelled: NotModelled::of(None, false),
        warnings: warnings.into_vec(),
    }
}
