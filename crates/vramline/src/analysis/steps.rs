//! The steps of a pool in a sentence: how many of each phase, their peaks, and whether memory grows.

use super::growth::step_figures;
use super::process::{PoolPhase, PoolStep};
use super::report::{PoolAnalysis, ReportAnalysis};
use crate::advise;
use crate::trace::Phase;
use crate::units::{Bytes, counted};

/// The steps in which a pool's memory is known, in a sentence. `None` without steps.
pub(super) fn sentence(report: &ReportAnalysis, pool: &PoolAnalysis) -> Option<String> {
    let is_of_pool = |name: &str, pid: Option<u64>| name == pool.name && pid == pool.pid;
    let phases: Vec<&PoolPhase> =
        report.phases.iter().filter(|phase| is_of_pool(&phase.pool, phase.pid)).collect();
    let steps: Vec<&PoolStep> = report.steps.iter().filter(|step| is_of_pool(&step.pool, step.pid)).collect();
    let counts: Vec<String> = if phases.is_empty() {
        of_trace(&steps).into_iter().collect()
    } else {
        [Phase::Train, Phase::Validation, Phase::Predict, Phase::Other]
            .into_iter()
            .filter_map(|phase| of_phase(&phases, phase))
            .collect()
    };
    let listed = (!counts.is_empty()).then(|| counts.join("; "))?;
    Some(format!("{listed}.{}", growth(report, &steps)))
}

fn of_phase(phases: &[&PoolPhase], phase: Phase) -> Option<String> {
    let mut of_phase = phases.iter().filter(|each| each.phase == phase).peekable();
    let first = of_phase.peek()?.first_peak;
    let of_phase: Vec<_> = of_phase.collect();
    let count: u64 = of_phase.iter().map(|each| each.steps).sum();
    let later: Option<Bytes> = of_phase
        .iter()
        .flat_map(|each| [each.later_peak, each.first_peak.filter(|_| each.fit > Some(1))])
        .flatten()
        .max();
    let name = match phase {
        Phase::Train => "training step",
        Phase::Validation => "validation step",
        Phase::Predict => "prediction step",
        Phase::Other => "step",
    };
    // The peak of a step is known only from a trace or with --step-peaks.
    let known: u64 = of_phase.iter().map(|each| each.later_peaks_known).sum();
    let ones = if known + 1 < count { "later traced ones" } else { "later ones" };
    let peaks = match (first, later) {
        (Some(first), Some(later)) if count > 1 => {
            format!(": the first peaks at {first}, {ones} at {later}")
        }
        (Some(first), _) if count > 1 => format!(": the first peaks at {first}"),
        (Some(peak), _) => format!(": its peak is {peak}"),
        (None, Some(later)) => format!(": the highest peak is {later}"),
        (None, None) => String::new(),
    };
    Some(format!("{}{peaks}", counted(count, name)))
}

/// Steps that a trace alone shows.
fn of_trace(steps: &[&PoolStep]) -> Option<String> {
    let highest = steps.iter().max_by_key(|step| step.peak)?;
    let lowest = steps.iter().min_by_key(|step| step.peak)?;
    let count = counted(steps.len(), "traced step");
    Some(match (lowest.peak, highest.peak) {
        (Some(low), Some(high)) if low != high => {
            format!("{count}: peaks from {low} (step {}) to {high} (step {})", lowest.number, highest.number)
        }
        (_, Some(high)) if steps.len() == 1 => format!("{count}: its peak is {high}"),
        (_, Some(high)) => format!("{count}: each peaks at {high}"),
        _ => count,
    })
}

/// Whether memory grows from step to step, where enough steps are known to say that it does not.
fn growth(report: &ReportAnalysis, steps: &[&PoolStep]) -> String {
    let known = steps.iter().filter(|step| step.phase == Phase::Train && step.current.is_some()).count();
    let is_growing = report.findings.iter().any(|finding| advise::GROWTH_RULES.contains(&finding.rule));
    let figures: Vec<advise::StepFigures> = steps.iter().map(|step| step_figures(step)).collect();
    if is_growing
        || advise::leak::has_risen(&figures)
        || known < advise::leak::FEWEST + advise::leak::WARM_UP.1
    {
        String::new()
    } else {
        " No growth from step to step.".to_owned()
    }
}
