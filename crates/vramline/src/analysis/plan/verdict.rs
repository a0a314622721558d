//! The answer of a plan: a word for the first batch, and a sentence that speaks of all of them.

use std::fmt::Write;

use super::PlanOptions;
use super::compiled::CompiledStep;
use super::prediction::{BatchPrediction, LargestBatch, NoLargest};
use crate::units::{Bytes, capitalised};

/// The answer of a plan, which is about the first batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanVerdict {
    /// Nearly every run passes under the limit.
    Fits,
    /// No run passes under the limit.
    DoesNotFit,
    /// Some runs pass under the limit.
    Edge,
    /// The plan rests on too little.
    NotCertain,
    /// There is no limit, only what it takes.
    Predicted,
    /// There is no run, only what a compiled program takes.
    Compiled,
    /// Nothing was asked for.
    Nothing,
}

words!(PlanVerdict {
    Fits => "fits",
    DoesNotFit => "does-not-fit",
    Edge => "edge",
    NotCertain => "not-certain",
    Predicted => "predicted",
    Compiled => "compiled",
    Nothing => "nothing",
});

/// What varies between the probes, as people call it.
#[must_use]
pub fn variable_title(variable: &str) -> &str {
    if variable == "batch" { "batch size" } else { variable }
}

/// The answer as a word and as a sentence.
pub(super) fn verdict(
    options: &PlanOptions,
    predictions: &[BatchPrediction],
    compiled: &[CompiledStep],
) -> (PlanVerdict, String) {
    let Some((first, others)) = predictions.split_first() else {
        return of_program(options, compiled.last());
    };
    let variable = variable_title(&options.variable);
    let (verdict, mut headline) = match options.limit {
        None => without_limit(variable, first, others),
        Some(limit) => under_limit(variable, first, limit),
    };
    if options.limit.is_some() {
        add_others(&mut headline, others);
    }
    (verdict, capitalised(&headline))
}

/// The answer from compiled programs alone.
fn of_program(options: &PlanOptions, last: Option<&CompiledStep>) -> (PlanVerdict, String) {
    let Some(last) = last else { return (PlanVerdict::Nothing, "No batch size was given.".to_owned()) };
    let about = format!(
        "The compiled program at {} {} needs {}: arguments {}, results {}, temporaries {}",
        variable_title(&options.variable),
        last.batch,
        last.peak,
        last.arguments,
        last.results,
        last.temporaries
    );
    match (last.fits, options.limit) {
        (Ok(false), Some(limit)) => {
            let more = last.peak.saturating_sub(limit);
            (PlanVerdict::DoesNotFit, format!("{about}. It does not fit in {limit}: it needs {more} more."))
        }
        _ => (PlanVerdict::Compiled, format!("{about}. The process needs more than that.")),
    }
}

/// The largest batch size under the limit, as a sentence; `None` without a limit.
pub(super) fn of_largest(options: &PlanOptions, largest: &LargestBatch) -> Option<String> {
    let limit = options.limit?;
    let name = variable_title(&options.variable);
    let predicted = |sure: u64| match largest.expected {
        Ok(expected) if expected > sure => format!("{expected} (predicted, not run), "),
        _ => String::new(),
    };
    Some(match (largest.sure, largest.likely) {
        (Ok(sure), likely) => {
            let edge = likely.ok().filter(|likely| *likely > sure);
            let edge =
                edge.map_or(String::new(), |edge| format!("; up to {edge} fits in most runs (likely)"));
            format!("Largest {name} for {limit}: {}{sure} (sure){edge}.", predicted(sure))
        }
        (Err(_), Ok(likely)) => {
            format!("Largest {name} for {limit}: none is sure; up to {likely} fits in most runs (likely).")
        }
        (Err(_), Err(NoLargest::NothingFits)) => format!("No {name} fits in {limit}."),
        (Err(_), Err(why)) => format!("The largest {name} for {limit} is unknown: {}.", why.reason()),
    })
}

/// What a batch takes, as the sentences begin.
fn about(variable: &str, first: &BatchPrediction) -> String {
    format!("{variable} {} peaks at about {}", first.taken.batch, first.taken.peak)
}

fn without_limit(
    variable: &str,
    first: &BatchPrediction,
    others: &[BatchPrediction],
) -> (PlanVerdict, String) {
    let verdict = if first.is_certain { PlanVerdict::Predicted } else { PlanVerdict::NotCertain };
    let about = format!("{} (between {} and {})", about(variable, first), first.taken.low, first.taken.high);
    let more: String =
        others.iter().map(|other| format!(", {} about {}", other.taken.batch, other.taken.peak)).collect();
    let unsure = batches_where(std::iter::once(first).chain(others), |each| !each.is_certain);
    let headline = match unsure {
        None => format!("{about}{more}."),
        Some(_) if others.is_empty() => {
            format!("Not certain: {about}, but the probes do not show enough; see the notes.")
        }
        Some(unsure) => format!("{about}{more}. Not certain: {unsure}; see the notes."),
    };
    (verdict, headline)
}

fn under_limit(variable: &str, first: &BatchPrediction, limit: Bytes) -> (PlanVerdict, String) {
    let batch = first.taken.batch;
    let minimum = first.minimum.unwrap_or(first.taken.high);
    let between = if minimum > limit { minimum.saturating_sub(limit) } else { limit.saturating_sub(minimum) };
    match first.fits {
        Ok(true) if minimum > limit => (
            PlanVerdict::Fits,
            format!(
                "{variable} {batch} fits in {limit}: all real runs passed. Without them the plan would call {minimum} sure."
            ),
        ),
        Ok(true) => (
            PlanVerdict::Fits,
            format!("{variable} {batch} fits in {limit}: the pool needs {minimum}, which leaves {between}."),
        ),
        Ok(false) => (
            PlanVerdict::DoesNotFit,
            format!(
                "{variable} {batch} does not fit in {limit}: the pool needs {minimum}, which is {between} too much."
            ),
        ),
        Err(_) if first.is_certain => (
            PlanVerdict::Edge,
            format!(
                "{variable} {batch} may or may not fit in {limit}: it needs {minimum} to pass every time, and its peak is {} to {} without a limit.",
                first.taken.low, first.taken.high
            ),
        ),
        Err(_) => (
            PlanVerdict::NotCertain,
            format!(
                "Not certain: {}, but the probes do not show enough; see the notes.",
                about(variable, first)
            ),
        ),
    }
}

/// Adds a sentence for each answer that the other batches have.
fn add_others(headline: &mut String, others: &[BatchPrediction]) {
    if let Some(fitting) = batches_where(others, |each| each.fits == Ok(true)) {
        let _ = write!(headline, " Fits: {fitting}.");
    }
    if let Some(failing) = batches_where(others, |each| each.fits == Ok(false)) {
        let _ = write!(headline, " Does not fit: {failing}.");
    }
    if let Some(at_edge) = batches_where(others, |each| each.fits.is_err() && each.is_certain) {
        let _ = write!(headline, " May or may not fit: {at_edge}.");
    }
    if let Some(unsure) = batches_where(others, |each| !each.is_certain) {
        let _ = write!(headline, " Not certain: {unsure}.");
    }
}

/// The batches of which something holds; `None` where there are none.
fn batches_where<'a>(
    predictions: impl IntoIterator<Item = &'a BatchPrediction>,
    is_it: impl Fn(&BatchPrediction) -> bool,
) -> Option<String> {
    let batches: Vec<String> =
        predictions.into_iter().filter(|each| is_it(each)).map(|each| each.taken.batch.to_string()).collect();
    (!batches.is_empty()).then(|| batches.join(", "))
}
