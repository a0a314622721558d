//! The plan: what batch sizes need, what fits, which fixes need less, and how certain that is.

mod climb;
mod compiled;
mod confirm;
mod document;
mod edge;
mod fix;
mod prediction;
mod verdict;

pub use compiled::{CompiledStep, of_compiled};
pub use confirm::{
    Confirmation, ConfirmationState, MAX_BATCHES, RealRun, Trial, peak_of, ran_out, training_steps,
};
pub use document::{NotAPlan, PlanDocument, PlanDoubt, PlannedBatch, PlannedConfirmation, PlannedLargest};
pub(crate) use fix::UNMEASURED;
pub use fix::{OfferedFix, Saving};
pub use prediction::{BatchPrediction, LargestBatch, NoFit, NoLargest};
pub use verdict::{PlanVerdict, variable_title};

use super::reading::Reading;
use crate::event::Framework;
use crate::plan::{Doubt, Largest, NextProbe, NotPlanned, Plan, Prediction, Probe, Source, threads_at_once};
use crate::recording::rows::{DriverRow, Subject};
use crate::units::Bytes;
use crate::warning::Warning;
use prediction::Answers;

/// The options of [`plan`](crate::plan()).
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The batch sizes to predict; if empty, the largest that fits the limit.
    pub batches: Vec<u64>,
    /// The limit of the pool.
    pub limit: Option<Bytes>,
    /// Number of steps of a run, 1000 by default; the highest of its steps counts.
    pub steps: u64,
    /// Only a pool whose name contains this.
    pub pool: Option<String>,
    /// What is varied: `batch` by default.
    pub variable: String,
    /// Whether to compute the curve of memory by batch size.
    pub curve: bool,
    /// Whether to search for fixes.
    pub fixes: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            batches: Vec::new(),
            limit: None,
            steps: 1000,
            pool: None,
            variable: "batch".to_owned(),
            curve: false,
            fixes: false,
        }
    }
}

/// A probe as it was read: a short run of the job at one batch size, traced from its start.
#[derive(Debug)]
pub struct ProbeRead {
    /// The batch size.
    pub batch: u64,
    /// The file it was read from, for messages.
    pub file: String,
    /// What was read.
    pub reading: Reading,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// A probe without a pool.
    #[error("'{file}' contains no trace of a memory pool")]
    NoPool {
        /// The file.
        file: String,
    },
    /// No plan can be made from the probes.
    #[error(transparent)]
    NotPlanned(#[from] NotPlanned),
}

impl NoPlan {
    /// Whether probes differ as those of other programs do: a larger run may use other kernels.
    #[must_use]
    pub fn is_other_program(&self) -> bool {
        matches!(self, NoPlan::NotPlanned(NotPlanned::Different { .. } | NotPlanned::KeepsOthers { .. }))
    }

    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            NoPlan::NoPool { .. } => {
                "record the probe with `vramline run --trace steps=5 -- ...`; `vramline report` says what is in it. JAX has no such pool on the CPU: --compile-only reports what its programs need"
            }
            NoPlan::NotPlanned(why) => why.hint(),
        }
    }
}

/// The result of a plan.
#[derive(Clone, Debug)]
pub struct PlanAnalysis {
    /// What the plan is based on.
    pub made_from: PlanBasis,
    /// The answer as a word.
    pub verdict: PlanVerdict,
    /// The answer as a sentence.
    pub headline: String,
    /// The name of the varied quantity.
    pub variable: String,
    /// The framework of the job.
    pub framework: Option<Framework>,
    /// The planned pool; empty if there is no run.
    pub pool: String,
    /// Its device; empty if there is no run.
    pub device: String,
    /// Number of steps of a run.
    pub steps: u64,
    /// The limit of the pool.
    pub limit: Option<Bytes>,
    /// Memory of the process outside its pool.
    pub outside: Option<Bytes>,
    /// Whether there is no serious doubt.
    pub is_certain: bool,
    /// The probes, ordered by batch size.
    pub probes: Vec<ProbeFacts>,
    /// The programs that XLA compiled, ordered by batch size.
    pub compiled: Vec<CompiledStep>,
    /// What the requested batch sizes need.
    pub predictions: Vec<BatchPrediction>,
    /// The largest batch sizes under the limit.
    pub largest: LargestBatch,
    /// The same as a sentence; `None` without a limit, or without a run.
    pub largest_text: Option<String>,
    /// The real runs that confirm the answer.
    pub confirmation: Confirmation,
    /// The probe that would narrow the interval of the first batch size most.
    pub next_probe: Option<NextProbe>,
    /// Fixes for the first batch size.
    pub fixes: Vec<OfferedFix>,
    /// Memory by batch size.
    pub curve: Vec<PeakAtBatch>,
    /// What the figures do not include.
    pub not_modelled: Vec<NotModelled>,
    /// What makes the plan uncertain.
    pub warnings: Vec<Warning>,
}

/// What a plan is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanBasis {
    /// Runs with a few batch sizes.
    Runs,
    /// Compiled programs alone, without any run.
    Programs,
}

/// Whether all requested batch sizes fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanGate {
    /// They do; or there is no limit, and the plan is certain.
    Pass,
    /// One does not.
    Fail,
    /// It is unknown for at least one, and none is known not to fit.
    NotCertain,
}

/// A probe of a plan.
#[derive(Clone, Debug)]
pub struct ProbeFacts {
    /// The batch size.
    pub batch: u64,
    /// The file it was read from.
    pub file: String,
    /// Number of its training steps.
    pub steps: usize,
    /// Whether its replay is exact.
    pub is_exact: bool,
    /// Whether its trace begins before the pool's first allocation.
    pub from_start: Option<bool>,
    /// Peak bytes in use.
    pub peak: Bytes,
}

/// A point of the curve of memory by batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakAtBatch {
    /// The batch size.
    pub batch: u64,
    /// Peak bytes in use.
    pub peak: Bytes,
    /// Lower bound: nearly every run needs at least this.
    pub low: Bytes,
    /// Upper bound: nearly no run needs more.
    pub high: Bytes,
}

/// What the replay of requests cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotModelled {
    /// Memory of the process outside its pool.
    BesidePool,
    /// Parts of the run that no probe reached.
    OtherParts,
    /// Orders of ops that no probe showed.
    OtherOrders,
    /// Scratch memory whose size a library chooses.
    LibraryScratch,
    /// Programs that are recompiled for another batch size.
    Recompilation,
}

impl NotModelled {
    /// Its description.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            NotModelled::BesidePool => {
                "memory of the process outside its pool: context, loaded code, other libraries"
            }
            NotModelled::OtherParts => {
                "parts of the run that no probe reached, such as validation or checkpoints"
            }
            NotModelled::OtherOrders => {
                "orders of ops that no probe showed; under a limit TensorFlow may also choose orders that need less"
            }
            NotModelled::LibraryScratch => "workspaces whose size cuDNN and cuBLAS choose",
            NotModelled::Recompilation => {
                "recompilation: JAX compiles another program for another batch size, which may need more or less"
            }
        }
    }

    /// What the figures of a job do not include.
    fn of(framework: Option<Framework>, knows_process: bool) -> Vec<NotModelled> {
        let of_framework: &[NotModelled] = match framework {
            Some(Framework::TensorFlow) => &[NotModelled::OtherParts, NotModelled::OtherOrders],
            Some(Framework::PyTorch) => &[NotModelled::LibraryScratch, NotModelled::OtherParts],
            Some(Framework::Jax) => &[NotModelled::Recompilation],
            None => &[],
        };
        let process = (!knows_process).then_some(NotModelled::BesidePool);
        process.into_iter().chain(of_framework.iter().copied()).collect()
    }
}

/// Makes a plan from probes.
pub fn prepare(probes: &[ProbeRead], options: &PlanOptions) -> Result<Plan, NoPlan> {
    let pools = probes.iter().map(|probe| {
        let (host, pool) = probe
            .reading
            .highest_pool(options.pool.as_deref())
            .ok_or_else(|| NoPlan::NoPool { file: probe.file.clone() })?;
        let failures = probe.reading.failures.as_ref().zip(host.process);
        let ended_early = failures.is_some_and(|(read, process)| read.that_ended(process).is_some());
        let (batch, trace, version) = (probe.batch, &host.trace, host.version.as_deref());
        let threads = threads_of(&probe.reading, &host.trace.device_of(pool));
        Ok(Source { batch, trace, pool, version, ended_early, threads })
    });
    let sources = pools.collect::<Result<Vec<Source<'_>>, NoPlan>>()?;
    let mut plan = Plan::new(&sources)?;
    for one in plan.compiled.iter_mut().filter(|one| one.file.is_empty()) {
        let probe = probes.iter().find(|probe| probe.batch == one.batch);
        one.file = probe.map_or(String::new(), |probe| probe.file.clone());
    }
    Ok(plan)
}

/// The threads that a device of a recorded job runs at once.
fn threads_of(reading: &Reading, device: &str) -> Option<u64> {
    let number = device.strip_prefix("GPU:")?.parse().ok()?;
    let manifest = reading.recorded.as_ref()?.manifest.as_ref()?;
    let uuid = manifest.uuid_of_device(number)?;
    let device = manifest.devices.iter().find(|device| device.uuid.as_ref() == Some(&uuid))?;
    // A part of a divided device has fewer.
    if device.is_divided == Some(true) || device.part.is_some() {
        return None;
    }
    threads_at_once(device.name.as_deref()?, device.capability)
}

/// Answers the options with a plan; `probes` are those that it was made from.
#[must_use]
pub fn plan(prepared: &Plan, probes: &[ProbeRead], options: &PlanOptions) -> PlanAnalysis {
    let why = if options.limit.is_none() { ConfirmationState::NoLimit } else { ConfirmationState::NoCommand };
    plan_confirmed(prepared, probes, options, Confirmation::none(why))
}

/// Answers the options with a plan and with real runs at the batch sizes that it answers with.
#[must_use]
pub fn plan_confirmed(
    prepared: &Plan,
    probes: &[ProbeRead],
    options: &PlanOptions,
    confirmation: Confirmation,
) -> PlanAnalysis {
    let first = probes.iter().find_map(|probe| probe.reading.highest_pool(options.pool.as_deref()));
    let framework = first.and_then(|(host, _)| host.trace.history.framework);
    let outside = beside_pools(prepared, probes, options);
    let found = options.limit.map(|limit| prepared.largest(limit, options.steps));
    let batches = batches(prepared, options, found, &confirmation);
    let mut answers = Answers::new(prepared, options, &confirmation);
    let predictions: Vec<BatchPrediction> =
        batches.iter().filter_map(|&batch| answers.prediction(batch, outside)).collect();
    let largest = answers.largest(found, &predictions);
    let largest_text = verdict::of_largest(options, &largest);
    let fixes = match predictions.first() {
        Some(first) if options.fixes => {
            let fitting = largest.expected.ok().or(found.and_then(|largest| largest.to_confirm));
            fix::offered(prepared, options, first, fitting, framework)
        }
        _ => Vec::new(),
    };
    let next_probe = predictions.first().and_then(|first| prepared.next_probe(&first.taken));
    let compiled = compiled::steps(&prepared.compiled, options.limit);
    let (verdict, headline) = verdict::verdict(options, &predictions, &compiled);
    let is_certain = !answers.doubts.iter().any(Doubt::is_serious);
    let warnings = answers.warnings().into_iter().chain(confirmation.disturbed()).collect();
    PlanAnalysis {
        made_from: PlanBasis::Runs,
        verdict,
        headline,
        variable: options.variable.clone(),
        framework,
        pool: first.map_or(String::new(), |(host, pool)| host.pool_name(pool).to_owned()),
        device: first.map_or(String::new(), |(host, pool)| host.trace.device_of(pool)),
        steps: options.steps,
        limit: options.limit,
        outside,
        is_certain,
        probes: probe_facts(prepared, probes),
        compiled,
        predictions,
        largest,
        largest_text,
        confirmation,
        next_probe,
        fixes,
        curve: if options.curve { curve(prepared, options, &batches, found) } else { Vec::new() },
        not_modelled: NotModelled::of(framework, outside.is_some()),
        warnings,
    }
}

impl PlanAnalysis {
    /// Whether all requested batch sizes fit. One that does not fit outweighs uncertain ones.
    #[must_use]
    pub fn gate(&self) -> PlanGate {
        if self.made_from == PlanBasis::Programs && self.compiled.iter().any(|one| one.fits == Ok(false)) {
            return PlanGate::Fail;
        }
        if self.limit.is_none() {
            return if self.is_certain { PlanGate::Pass } else { PlanGate::NotCertain };
        }
        if self.predictions.iter().any(|prediction| prediction.fits == Ok(false)) {
            PlanGate::Fail
        } else if self.predictions.is_empty() || self.predictions.iter().any(|each| each.fits.is_err()) {
            PlanGate::NotCertain
        } else {
            PlanGate::Pass
        }
    }
}

/// The next probe to make with a command, for the first requested batch size; `None` if its interval is narrow.
#[must_use]
pub fn next_probe(prepared: &Plan, options: &PlanOptions) -> Option<NextProbe> {
    let prediction = prepared.predict(*options.batches.first()?, options.steps)?;
    prepared.next_probe(&prediction)
}

/// The batch sizes to predict: the requested ones, else the largest that is sure to fit, else that of the largest probe.
fn batches(
    prepared: &Plan,
    options: &PlanOptions,
    found: Option<Largest>,
    confirmation: &Confirmation,
) -> Vec<u64> {
    if !options.batches.is_empty() {
        return options.batches.clone();
    }
    let failed = confirmation.nearest_failure();
    let sure =
        found.and_then(|largest| largest.sure).filter(|sure| failed.is_none_or(|failed| *sure < failed));
    let sure = confirmation.confirmed().or(sure);
    sure.or(prepared.probes.last().map(|probe| probe.batch)).into_iter().collect()
}

/// Each probe as it was read, with the plan's version of it.
fn in_order<'a>(
    prepared: &'a Plan,
    probes: &'a [ProbeRead],
) -> impl DoubleEndedIterator<Item = (&'a ProbeRead, &'a Probe)> {
    let mut order: Vec<&ProbeRead> = probes.iter().collect();
    order.sort_by_key(|probe| probe.batch);
    order.into_iter().zip(&prepared.probes)
}

fn probe_facts(prepared: &Plan, probes: &[ProbeRead]) -> Vec<ProbeFacts> {
    let facts = |(read, probe): (&ProbeRead, &Probe)| ProbeFacts {
        batch: probe.batch,
        file: read.file.clone(),
        steps: probe.steps,
        is_exact: probe.ran.is_exact(),
        from_start: probe.ran.from_start,
        peak: probe.ran.exact.peak,
    };
    in_order(prepared, probes).map(facts).collect()
}

/// Memory of the job outside its pool: the driver's peak minus the peak of its pool, in the largest probe that has both. Neither
/// shrinks in a short run.
fn beside_pools(prepared: &Plan, probes: &[ProbeRead], options: &PlanOptions) -> Option<Bytes> {
    let of = |(read, probe): (&ProbeRead, &Probe)| {
        let (host, pool) = read.reading.highest_pool(options.pool.as_deref())?;
        let device = host.trace.device_of(pool);
        let number = device.strip_prefix("GPU:")?.parse().ok()?;
        let recorded = read.reading.recorded.as_ref()?;
        let uuid = recorded.manifest.as_ref()?.uuid_of_device(number)?;
        let is_it = |row: &&DriverRow| {
            row.subject == Subject::Process && row.is_job == Some(true) && row.device == uuid
        };
        let held = recorded.driver.iter().filter(is_it).filter_map(|row| row.used).max()?;
        held.0.checked_sub(probe.ran.exact.pool.0).map(Bytes)
    };
    in_order(prepared, probes).rev().find_map(of)
}

/// Memory from the smallest probe to beyond the largest requested batch size, in even steps.
fn curve(
    prepared: &Plan,
    options: &PlanOptions,
    batches: &[u64],
    found: Option<Largest>,
) -> Vec<PeakAtBatch> {
    const POINTS: u64 = 16;
    let smallest = prepared.probes.first().map_or(1, |probe| probe.batch);
    let likely = found.and_then(|largest| largest.likely).map(|likely| likely.saturating_add(likely / 4));
    let probed = prepared.probes.last().map(|probe| probe.batch);
    let last = batches.iter().copied().chain(likely).chain(probed).max().unwrap_or(smallest);
    let step = last.saturating_sub(smallest).div_ceil(POINTS).max(1);
    let mut drawn: Vec<u64> =
        (0..=POINTS).map(|at| smallest.saturating_add(at.saturating_mul(step))).collect();
    drawn.extend_from_slice(batches);
    drawn.sort_unstable();
    drawn.dedup();
    let point = |batch: u64| {
        let Prediction { peak, low, high, .. } = prepared.predict(batch, options.steps)?;
        Some(PeakAtBatch { batch, peak, low, high })
    };
    drawn.into_iter().filter_map(point).collect()
}
