//! A plan as a document: what batch sizes need, what fits, and how certain that is.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::analysis::plan::{
    BatchPrediction, CompiledStep, Confirmation, ConfirmationState, LargestBatch, NoFit, NoLargest,
    OfferedFix, PeakAtBatch, PlanAnalysis, PlanDocument, PlanDoubt, PlanVerdict, PlannedBatch,
    PlannedConfirmation, PlannedLargest, ProbeFacts, RealRun, Saving, UNMEASURED, variable_title,
};
use crate::document::{Document, Reason, Unknowns};
use crate::event::Framework;
use crate::plan::{Basis, Fix, NextProbe, Part, PartPeak};
use crate::snapshot::Role;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The answer of [`plan`](crate::plan()): what each batch size needs, the largest that fits, and fixes that need less.
#[derive(Debug, Serialize, Document)]
pub struct PlanView {
    /// `plan`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: PlanVerdictView,
    /// What differs between the probes: `batch`, or what --variable says.
    #[field(title = "varied")]
    pub variable: String,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null_with = Self::why_no_framework)]
    pub framework: Option<Framework>,
    /// The planned pool, as in a report.
    pub pool: String,
    /// Its device, as in a report.
    pub device: String,
    /// Number of steps of a run; the highest of them counts.
    pub steps: u64,
    /// The value of --limit.
    #[field(null = "no limit was given", switch = "--limit 16GiB")]
    pub limit_bytes: Option<Bytes>,
    /// Memory of the process outside its pools in the largest probe, as counted by the driver: context, libraries.
    #[field(
        title = "outside the pool",
        null = "no probe is a recording on a GPU with driver figures for the process"
    )]
    pub outside_bytes: Option<Bytes>,
    /// False if a warning makes a requested batch size, or one that would be called sure, uncertain.
    pub certain: bool,
    /// The runs that the plan is based on.
    #[field(each)]
    pub probes: Vec<ProbeView>,
    /// Compiled programs.
    #[field(each)]
    pub compiled: Vec<CompiledView>,
    /// What each batch size needs.
    #[field(each)]
    pub predictions: Vec<PredictionView>,
    /// The largest batch size within the limit.
    pub largest_batch: LargestView,
    /// Real runs under the limit: whether they confirm the answer.
    pub confirmation: ConfirmationView,
    /// One more probe that would narrow the range of reserved memory most.
    #[field(
        null = "the ranges are narrow, or there is no room between the largest probe and the batch size"
    )]
    pub next_probe: Option<NextProbeView>,
    /// Fixes that need less memory.
    #[field(each)]
    pub fixes: Vec<FixView>,
    /// What is often recommended but does not help.
    #[field(unit = "text")]
    pub no_help: &'static str,
    /// Memory by batch size.
    pub curve: Vec<CurvePoint>,
    /// What the figures do not include.
    pub not_modelled: Vec<String>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct PlanVerdictView {
    /// `fits`, `does-not-fit`, `edge` (some runs pass), `not-certain`, `predicted` (no limit was given), `compiled` (only a compiled program is
    /// known), `nothing` (no batch size was requested).
    #[field(title = "verdict")]
    pub word: PlanVerdict,
    /// Its batch size: the first of `predictions`.
    #[field(null = "there is no prediction")]
    pub batch: Option<u64>,
    /// Its peak.
    #[field(null = "there is no prediction")]
    pub peak_bytes: Option<Bytes>,
    /// The limit.
    #[field(null = "no limit was given", switch = "--limit 16GiB")]
    pub limit_bytes: Option<Bytes>,
}

/// A probe that would narrow the range of a prediction.
#[derive(Debug, Serialize, Document)]
pub struct NextProbeView {
    /// The batch size to probe.
    pub batch: u64,
    /// The batch size whose range it narrows: the first of `predictions`.
    pub predicted_batch: u64,
    /// The width of the range of reserved memory, as a share of the prediction.
    #[field(unit = "share")]
    pub width: f64,
    /// The width that Vramline expects with the probe.
    #[field(unit = "share")]
    pub expected_width: f64,
    /// The same as a sentence.
    pub text: String,
}

impl NextProbeView {
    fn of(next: NextProbe, variable: &str) -> NextProbeView {
        let text = next.sentence(variable_title(variable));
        let NextProbe { batch, predicted, width, expected } = next;
        let rounded = |share: f64| (share * 1e4).round() / 1e4;
        let (width, expected_width) = (rounded(width), rounded(expected));
        NextProbeView { batch, predicted_batch: predicted, width, expected_width, text }
    }
}

/// A run that the plan is based on.
#[derive(Debug, Serialize, Document)]
pub struct ProbeView {
    /// Its batch size.
    pub batch: u64,
    /// The run.
    pub file: String,
    /// Training steps in its trace.
    pub steps: usize,
    /// Whether its replay is exact.
    pub exact: bool,
    /// As in a report.
    #[field(null = "the trace does not show it")]
    pub from_start: Option<bool>,
    /// Its measured peak.
    pub peak_bytes: Bytes,
}

/// A compiled program.
#[derive(Debug, Serialize, Document)]
pub struct CompiledView {
    /// The batch size that XLA compiled the program for.
    pub batch: u64,
    /// The XLA dump.
    pub file: String,
    /// The name of the module; of several, the one that needs the most.
    pub program: String,
    /// Arguments, including results that reuse their memory.
    #[field(title = "arguments")]
    pub argument_bytes: Bytes,
    /// Results in their own memory.
    #[field(title = "results")]
    pub result_bytes: Bytes,
    /// Requested while it runs.
    #[field(title = "temporaries")]
    pub temporary_bytes: Bytes,
    /// Constants that are loaded with it.
    #[field(title = "constants")]
    pub constant_bytes: Bytes,
    /// The sum of the four: the peak of the program, not of the process.
    #[field(title = "total")]
    pub peak_bytes: Bytes,
    /// False if the program alone needs more than the limit.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is unknown.
    #[serde(skip)]
    no_fit: Option<NoFit>,
}

/// What a batch size needs.
#[derive(Debug, Serialize, Document)]
pub struct PredictionView {
    /// The batch size.
    pub batch: u64,
    /// Median of the peak over runs, without a limit.
    #[field(title = "peak in use")]
    pub peak_bytes: Bytes,
    /// Lower bound: nearly every run needs at least this.
    #[field(title = "lowest peak")]
    pub low_bytes: Bytes,
    /// Upper bound: nearly no run needs more.
    #[field(title = "highest peak")]
    pub high_bytes: Bytes,
    /// What the pool reserves, as the median over op orders: under the limit that it has in the probes, and if it reserves its memory at once
    /// (TensorFlow and JAX on a GPU, unless they grow) under --limit.
    #[field(title = "reserved")]
    pub pool_bytes: Bytes,
    /// The minimum over op orders.
    #[field(title = "lowest reserved")]
    pub pool_low_bytes: Bytes,
    /// The maximum over op orders.
    #[field(title = "highest reserved")]
    pub pool_high_bytes: Bytes,
    /// What the driver would count for the process: `pool_bytes` + `outside_bytes`.
    #[field(null = "no probe is a recording on a GPU with driver figures for the process")]
    pub process_bytes: Option<Bytes>,
    /// The smallest limit, in whole MiB, with which `fits` is true: by the same criterion, before any real run.
    #[field(title = "smallest limit that fits", null = "no limit was found with which it fits")]
    pub minimum_bytes: Option<Bytes>,
    /// False if a warning makes this batch size uncertain; `fits` is then null.
    pub certain: bool,
    /// Whether it fits the limit: true if every op order passes and nearly every run does with room to spare, false if none does, even if threads
    /// wait.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is unknown.
    #[serde(skip)]
    no_fit: Option<NoFit>,
    /// Share of bytes at the peak with an exact size: three probes agree on it, or the compiler reports it for this batch size.
    #[field(title = "sizes known exactly", unit = "share")]
    pub exact_share: f64,
    /// Requested bytes, by how their size is known.
    #[serde(serialize_with = "bases_by_word")]
    pub bases: BTreeMap<Basis, Bytes>,
    /// Requested bytes at that peak, by role.
    #[serde(serialize_with = "roles_by_word")]
    pub by_role: BTreeMap<Role, Bytes>,
    /// Rounding at that peak.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// Peaks of the parts of a run.
    pub parts: Vec<PartView>,
}

/// The peaks of one part of a run.
#[derive(Debug, Serialize, Document)]
pub struct PartView {
    /// `start`, `first-step`, `step`, `validation`, `predict` or `other`.
    #[field(title = "part of the run")]
    pub part: Part,
    /// Its lowest peak over probes and steps.
    #[field(title = "lowest")]
    pub low_bytes: Bytes,
    /// The median.
    #[field(title = "median")]
    pub median_bytes: Bytes,
    /// The highest.
    #[field(title = "highest")]
    pub high_bytes: Bytes,
}

/// A fix that needs less memory.
#[derive(Debug, Serialize, Document)]
pub struct FixView {
    /// The name for `vramline verify --fix`; several are joined by `+`.
    #[field(title = "fix")]
    pub name: String,
    /// What it does and costs.
    #[field(title = "what")]
    pub text: String,
    /// Its batch size: the first of `predictions`.
    pub batch: u64,
    /// Reduction of the peak, computed by editing the requests and replaying them; null if that is not possible.
    #[field(null_with = Self::why_unmeasured)]
    pub saves_bytes: Option<Bytes>,
    /// What it saves: of the peak or of the pool.
    #[serde(skip)]
    pub saving: Saving,
    /// The peak with the fix.
    #[field(title = "new peak", null_with = Self::why_unmeasured)]
    pub peak_bytes: Option<Bytes>,
    /// What the pool reserves with the fix, as in `predictions`.
    #[field(title = "new reserved", null_with = Self::why_unmeasured)]
    pub pool_bytes: Option<Bytes>,
    /// False if the peak with the fix is still above the limit.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is unknown.
    #[serde(skip)]
    no_fit: Option<NoFit>,
    /// Ratio of update times with and without the fix, from the step times of the probes.
    #[field(title = "time", unit = "ratio", null_with = Self::why_untimed)]
    pub time_ratio: Option<f64>,
    /// Code or a setting for this framework.
    #[field(title = "how")]
    pub snippet: String,
    /// The command that measures it; null if the fix needs a change of the code.
    #[field(null = "the fix is a change of the code")]
    pub verify: Option<String>,
}

/// A point of the curve of memory by batch size.
#[derive(Debug, Serialize, Document)]
pub struct CurvePoint {
    /// The batch size, from the smallest probe on; only with --curve.
    pub batch: u64,
    /// As in `predictions`.
    pub peak_bytes: Bytes,
    /// As in `predictions`.
    #[field(title = "lowest peak")]
    pub low_bytes: Bytes,
    /// As in `predictions`.
    #[field(title = "highest peak")]
    pub high_bytes: Bytes,
}

/// The largest batch size within the limit.
#[derive(Debug, Serialize, Document)]
pub struct LargestView {
    /// The largest batch size with which nearly every run of `steps` steps passes, as do all smaller ones that were tried, without threads that wait, and with room for op orders that no probe showed. Without a run at it (`confirmation`), at most 4 times the largest probe.
    #[field(null_with = Self::why_not_sure)]
    pub sure: Option<u64>,
    /// The largest batch size that would be called sure if it ran: it may lie farther beyond the probes than `sure`.
    #[field(null_with = Self::why_not_expected)]
    pub expected: Option<u64>,
    /// The largest batch size with which more runs pass than fail, even if threads have to wait.
    #[field(null_with = Self::why_not_likely)]
    pub likely: Option<u64>,
    /// The same as a sentence.
    #[field(null_with = Self::why_not_likely)]
    pub text: Option<String>,
    /// Why there is no sure one.
    #[serde(skip)]
    not_sure: Option<NoLargest>,
    /// Why none is expected.
    #[serde(skip)]
    not_expected: Option<NoLargest>,
    /// Why there is no likely one.
    #[serde(skip)]
    not_likely: Option<NoLargest>,
}

/// Real runs under the limit at the batch size of the answer: the first of --batch, else the largest that is sure.
#[derive(Debug, Serialize, Document)]
pub struct ConfirmationView {
    /// True if all runs at `batch` passed under the limit.
    pub confirmed: bool,
    /// `confirmed`, or why nothing is: `no-command`, `switched-off`, `no-limit`, `nothing-to-try`, `ran-out-of-memory`, `other-failure` (a run
    /// failed for another reason than memory), `few-steps`, `not-started`, `not-a-probe`.
    pub state: ConfirmationState,
    /// The result as a sentence.
    pub text: String,
    /// The batch size that ran: the confirmed one, else the last.
    #[field(null = "nothing ran")]
    pub batch: Option<u64>,
    /// Number of runs under the limit that a batch size has to pass.
    pub wanted_runs: u32,
    /// Runs at `batch` that passed under the limit.
    pub passes: u64,
    /// Runs at `batch` that ran out of memory.
    pub failures: u64,
    /// Training steps of each run that passed, at least.
    #[field(null = "no run passed")]
    pub steps: Option<usize>,
    /// The smallest batch size at which a run ran out of memory.
    #[field(null = "no run ran out of memory")]
    pub nearest_failure_batch: Option<u64>,
    /// All runs, in their order.
    pub runs: Vec<RealRunView>,
}

/// A real run at a batch size.
#[derive(Debug, Serialize, Document)]
pub struct RealRunView {
    /// Its batch size.
    pub batch: u64,
    /// The limit that it ran under; more than --limit if it only measured.
    pub limit_bytes: Bytes,
    /// Its recording.
    pub file: String,
    /// Its training steps.
    pub steps: usize,
    /// False if it ran out of memory.
    pub passed: bool,
    /// Its peak in use.
    #[field(null = "it has no trace, and the framework counted nothing")]
    pub peak_bytes: Option<Bytes>,
    /// Whether it only measured, as a probe near the answer, and does not count as a pass.
    pub only_measured: bool,
}

/// Bytes by basis, in the order of the words.
fn bases_by_word<S: Serializer>(bases: &BTreeMap<Basis, Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    by_word(bases.iter().map(|(basis, bytes)| (basis.word(), *bytes)).collect(), serializer)
}

/// Bytes by role, in the order of the words.
fn roles_by_word<S: Serializer>(roles: &BTreeMap<Role, Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    by_word(roles.iter().map(|(role, bytes)| (role.word(), *bytes)).collect(), serializer)
}

fn by_word<S: Serializer>(bytes: BTreeMap<&str, Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(bytes)
}

/// What is not in the table of fixes, and why.
const NO_HELP: &str = "Pruning and quantization make a trained model smaller. They save almost nothing during training, and \
    quantization-aware training needs more.";

impl From<PlanAnalysis> for PlanView {
    fn from(plan: PlanAnalysis) -> PlanView {
        let confirmation = ConfirmationView::of(plan.confirmation, &plan.variable);
        let next_probe = plan.next_probe.map(|next| NextProbeView::of(next, &plan.variable));
        let mut document = PlanView {
            kind: "plan",
            verdict: PlanVerdictView {
                word: plan.verdict,
                batch: plan.predictions.first().map(|first| first.taken.batch),
                peak_bytes: plan.predictions.first().map(|first| first.taken.peak),
                limit_bytes: plan.limit,
            },
            headline: plan.headline,
            variable: plan.variable,
            framework: plan.framework,
            pool: plan.pool,
            device: plan.device,
            steps: plan.steps,
            limit_bytes: plan.limit,
            outside_bytes: plan.outside,
            certain: plan.is_certain,
            probes: plan.probes.into_iter().map(ProbeView::from).collect(),
            compiled: plan.compiled.into_iter().map(CompiledView::from).collect(),
            predictions: plan.predictions.into_iter().map(PredictionView::from).collect(),
            largest_batch: LargestView::of(plan.largest, plan.largest_text),
            confirmation,
            next_probe,
            fixes: plan.fixes.into_iter().map(FixView::from).collect(),
            no_help: NO_HELP,
            curve: plan.curve.into_iter().map(CurvePoint::from).collect(),
            not_modelled: plan.not_modelled.into_iter().map(|one| one.text().to_owned()).collect(),
            warnings: plan.warnings,
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<ProbeFacts> for ProbeView {
    fn from(probe: ProbeFacts) -> ProbeView {
        ProbeView {
            batch: probe.batch,
            file: probe.file,
            steps: probe.steps,
            exact: probe.is_exact,
            from_start: probe.from_start,
            peak_bytes: probe.peak,
        }
    }
}

impl From<CompiledStep> for CompiledView {
    fn from(step: CompiledStep) -> CompiledView {
        CompiledView {
            batch: step.batch,
            file: step.file,
            program: step.program,
            argument_bytes: step.arguments,
            result_bytes: step.results,
            temporary_bytes: step.temporaries,
            constant_bytes: step.constants,
            peak_bytes: step.peak,
            fits: step.fits.ok(),
            no_fit: step.fits.err(),
        }
    }
}

impl From<BatchPrediction> for PredictionView {
    fn from(prediction: BatchPrediction) -> PredictionView {
        let taken = prediction.taken;
        let [pool_low_bytes, pool_bytes, pool_high_bytes] = taken.pool;
        PredictionView {
            batch: taken.batch,
            peak_bytes: taken.peak,
            low_bytes: taken.low,
            high_bytes: taken.high,
            pool_bytes,
            pool_low_bytes,
            pool_high_bytes,
            process_bytes: prediction.process,
            minimum_bytes: prediction.minimum,
            certain: prediction.is_certain,
            fits: prediction.fits.ok(),
            no_fit: prediction.fits.err(),
            exact_share: (taken.exact_share() * 1e6).round() / 1e6,
            bases: prediction.by_basis,
            by_role: prediction.by_role,
            slack_bytes: taken.slack,
            parts: taken.parts.into_iter().map(PartView::from).collect(),
        }
    }
}

impl From<PartPeak> for PartView {
    fn from(part: PartPeak) -> PartView {
        let [low_bytes, median_bytes, high_bytes] = part.range;
        PartView { part: part.part, low_bytes, median_bytes, high_bytes }
    }
}

impl LargestView {
    fn of(largest: LargestBatch, text: Option<String>) -> LargestView {
        LargestView {
            sure: largest.sure.ok(),
            expected: largest.expected.ok(),
            likely: largest.likely.ok(),
            text,
            not_sure: largest.sure.err(),
            not_expected: largest.expected.err(),
            not_likely: largest.likely.err(),
        }
    }
}

impl ConfirmationView {
    fn of(confirmation: Confirmation, variable: &str) -> ConfirmationView {
        let (batch, state) = (confirmation.batch(), confirmation.state());
        ConfirmationView {
            confirmed: state == ConfirmationState::Confirmed,
            state,
            text: confirmation.sentence(variable),
            batch,
            wanted_runs: confirmation.wanted,
            passes: batch.map_or(0, |batch| confirmation.passes(batch)),
            failures: batch.map_or(0, |batch| confirmation.failures(batch)),
            steps: batch.and_then(|batch| confirmation.steps(batch)),
            nearest_failure_batch: confirmation.nearest_failure(),
            runs: confirmation.runs.into_iter().map(RealRunView::from).collect(),
        }
    }
}

impl From<RealRun> for RealRunView {
    fn from(run: RealRun) -> RealRunView {
        RealRunView {
            batch: run.trial.batch,
            limit_bytes: run.trial.limit,
            file: run.file,
            steps: run.steps,
            passed: !run.ran_out,
            peak_bytes: run.peak,
            only_measured: run.trial.only_measures,
        }
    }
}

impl From<OfferedFix> for FixView {
    fn from(fix: OfferedFix) -> FixView {
        let names: Vec<&str> = fix.fixes.iter().map(|fix| fix.name()).collect();
        let texts: Vec<String> = fix.fixes.iter().copied().map(Fix::text).collect();
        FixView {
            name: names.join("+"),
            text: texts.join("; "),
            batch: fix.batch,
            saves_bytes: fix.saves,
            saving: fix.saving,
            peak_bytes: fix.peak,
            pool_bytes: fix.pool,
            fits: fix.fits.ok(),
            no_fit: fix.fits.err(),
            time_ratio: fix.time_ratio,
            snippet: fix.snippet,
            verify: fix.verify,
        }
    }
}

impl FixView {
    /// What it saves, in words: of the peak, or of the pool if only the pool shrinks.
    #[must_use]
    pub fn saving_in_words(&self) -> String {
        match self.saving {
            Saving::Peak(bytes) => bytes.to_string(),
            Saving::Pool(bytes) => format!("{bytes} of the pool"),
            Saving::ToMeasure => "unknown".to_owned(),
        }
    }
}

impl From<PeakAtBatch> for CurvePoint {
    fn from(point: PeakAtBatch) -> CurvePoint {
        CurvePoint {
            batch: point.batch,
            peak_bytes: point.peak,
            low_bytes: point.low,
            high_bytes: point.high,
        }
    }
}

/// The option that shows whether something fits.
const LIMIT: &str = "--limit 16GiB";

impl From<NoFit> for Reason {
    fn from(why: NoFit) -> Reason {
        Reason::new(why.reason(), (why == NoFit::NoLimit).then_some(LIMIT))
    }
}

impl From<NoLargest> for Reason {
    fn from(why: NoLargest) -> Reason {
        Reason::new(why.reason(), (why == NoLargest::NoLimit).then_some(LIMIT))
    }
}

impl PlanView {
    fn why_no_framework(&self) -> Reason {
        let text =
            if self.probes.is_empty() { "the programs do not show it" } else { "the traces do not show it" };
        Reason::new(text, None)
    }
}

impl CompiledView {
    fn why_open(&self) -> Reason {
        self.no_fit.map(Reason::from).unwrap_or_default()
    }
}

impl PredictionView {
    fn why_open(&self) -> Reason {
        self.no_fit.map(Reason::from).unwrap_or_default()
    }
}

impl LargestView {
    fn why_not_sure(&self) -> Reason {
        self.not_sure.map(Reason::from).unwrap_or_default()
    }

    fn why_not_expected(&self) -> Reason {
        self.not_expected.map(Reason::from).unwrap_or_default()
    }

    fn why_not_likely(&self) -> Reason {
        self.not_likely.map(Reason::from).unwrap_or_default()
    }
}

impl FixView {
    /// A reason whose setting is the command that measures the fix.
    fn reason(&self, text: impl Into<Cow<'static, str>>) -> Reason {
        Reason { text: text.into(), switch: self.verify.clone().map(Cow::Owned) }
    }

    fn why_unmeasured(&self) -> Reason {
        self.reason(UNMEASURED)
    }

    fn why_untimed(&self) -> Reason {
        self.reason("the probes do not show its effect on time")
    }

    fn why_open(&self) -> Reason {
        self.reason(self.no_fit.map(|why| why.reason()).unwrap_or_default())
    }
}

// What `verify`, `pack` and `fit_within` look for when they read this document is written here.
const _: fn(&PredictionView) -> PlannedBatch = |each| PlannedBatch {
    batch: each.batch,
    peak_bytes: each.peak_bytes,
    low_bytes: each.low_bytes,
    high_bytes: each.high_bytes,
    minimum_bytes: each.minimum_bytes,
    certain: Some(each.certain),
    fits: each.fits,
};
const _: fn(&PlanView, Vec<PlannedBatch>, Vec<PlanDoubt>) -> PlanDocument =
    |plan, predictions, warnings| PlanDocument {
        headline: plan.headline.clone(),
        variable: plan.variable.clone(),
        framework: plan.framework,
        limit_bytes: plan.limit_bytes,
        outside_bytes: plan.outside_bytes,
        certain: plan.certain,
        predictions,
        largest_batch: PlannedLargest {
            sure: plan.largest_batch.sure,
            expected: plan.largest_batch.expected,
            likely: plan.largest_batch.likely,
        },
        confirmation: PlannedConfirmation {
            confirmed: plan.confirmation.confirmed,
            batch: plan.confirmation.batch,
            passes: plan.confirmation.passes,
        },
        warnings,
    };
