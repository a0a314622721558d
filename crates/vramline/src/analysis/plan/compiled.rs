//! What compiled programs take: beside a plan from runs, and alone.

use std::collections::BTreeMap;

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
    /// Where from.
    pub file: String,
    /// The program's name.
    pub program: String,
    /// What it is given.
    pub arguments: Bytes,
    /// What it gives back.
    pub results: Bytes,
    /// What it takes while it runs.
    pub temporaries: Bytes,
    /// What is compiled into it.
    pub constants: Bytes,
    /// All of it.
    pub peak: Bytes,
    /// Whether it fits the limit: the program alone can only be too large.
    pub fits: Result<bool, NoFit>,
}

/// The largest program of each batch; of one batch what came last, as in the plan.
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

/// The plan from compiled programs alone, without any run: what a step takes while it runs, and no more than that.
#[must_use]
pub fn of_compiled(compiled: &[Compiled], options: &PlanOptions) -> PlanAnalysis {
    let compiled = steps(compiled, options.limit);
    let is_jax = compiled.iter().all(|one| one.program.starts_with("jit_"));
    let (verdict, headline) = verdict::verdict(options, &[], &compiled);
    let mut warnings = Warnings::default();
    warnings.add(
        "step-only",
        "these are the compiled program's own bytes: what else the process holds is not in them, and XLA may take more while it compiles and tries algorithms",
        "where the pool can be traced, probes of the same job tell the rest: vramline plan -- CMD {batch}",
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
        largest: LargestBatch { sure: Err(NoLargest::NoRun), likely: Err(NoLargest::NoRun) },
        fixes: Vec::new(),
        curve: Vec::new(),
        not_modelled: NotModelled::of(None, false),
        warnings: warnings.into_vec(),
    }
}
