//! A plan as a document: what batches take, what fits, and how sure that is.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::analysis::plan::{
    BatchPrediction, CompiledStep, LargestBatch, NoFit, NoLargest, OfferedFix, PeakAtBatch, PlanAnalysis,
    PlanDocument, PlanDoubt, PlanVerdict, PlannedBatch, PlannedLargest, ProbeFacts, Saving, UNMEASURED,
};
use crate::document::{Document, Reason, Unknowns};
use crate::event::Framework;
use crate::plan::{Basis, Fix, Part, PartPeak};
use crate::snapshot::Role;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// What [`plan`](crate::plan()) answers: what each batch size takes, which is the largest that fits, and what would need less.
#[derive(Debug, Serialize, Document)]
pub struct PlanView {
    /// `plan`.
    pub kind: &'static str,
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
    pub verdict: PlanVerdictView,
    /// What differs between the probes: `batch`, or what --variable says.
    #[field(title = "varied")]
    pub variable: String,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null_with = Self::why_no_framework)]
    pub framework: Option<Framework>,
    /// The pool that is planned, as in a report.
    pub pool: String,
    /// Its device, as in a report.
    pub device: String,
    /// For how many steps a run is taken to go on; the highest of them counts.
    pub steps: u64,
    /// What --limit says.
    #[field(null = "none was given", switch = "--limit 16GiB")]
    pub limit_bytes: Option<Bytes>,
    /// What the process held beside its pools in the largest probe, as the driver counts it: context, libraries.
    #[field(
        title = "beside the pool",
        null = "no probe is a recording of a GPU whose driver told what the process holds"
    )]
    pub outside_bytes: Option<Bytes>,
    /// False where a warning says that the plan rests on too little for a batch that was asked for, or for one that would be called sure.
    pub certain: bool,
    /// The runs that the plan is made from.
    #[field(each)]
    pub probes: Vec<ProbeView>,
    /// Compiled programs.
    #[field(each)]
    pub compiled: Vec<CompiledView>,
    /// What each batch takes.
    #[field(each)]
    pub predictions: Vec<PredictionView>,
    /// The largest batch within the limit.
    pub largest_batch: LargestView,
    /// What would need less.
    #[field(each)]
    pub fixes: Vec<FixView>,
    /// What is often advised and does not help.
    #[field(unit = "text")]
    pub no_help: &'static str,
    /// Memory from batch to batch.
    pub curve: Vec<CurvePoint>,
    /// What the figures leave out.
    pub not_modelled: Vec<String>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct PlanVerdictView {
    /// `fits`, `does-not-fit`, `edge` (some runs pass), `not-certain`, `predicted` (no limit was given), `compiled` (only a compiled program is
    /// known), `nothing` (nothing was asked for).
    #[field(title = "verdict")]
    pub word: PlanVerdict,
    /// The batch that it is about: the first of `predictions`.
    #[field(null = "there is no prediction")]
    pub batch: Option<u64>,
    /// Its peak.
    #[field(null = "there is no prediction")]
    pub peak_bytes: Option<Bytes>,
    /// The limit.
    #[field(null = "none was given", switch = "--limit 16GiB")]
    pub limit_bytes: Option<Bytes>,
}

/// A run that the plan is made from.
#[derive(Debug, Serialize, Document)]
pub struct ProbeView {
    /// What was varied.
    pub batch: u64,
    /// The run.
    pub file: String,
    /// Training steps in its trace.
    pub steps: usize,
    /// Whether its own replay is exact, as in a replay.
    pub exact: bool,
    /// As in a report.
    #[field(null = "the trace does not tell")]
    pub from_start: Option<bool>,
    /// Its own peak.
    pub peak_bytes: Bytes,
}

/// A compiled program.
#[derive(Debug, Serialize, Document)]
pub struct CompiledView {
    /// A batch that XLA compiled a program for.
    pub batch: u64,
    /// What XLA wrote then.
    pub file: String,
    /// The module's name; of several the one that takes the most.
    pub program: String,
    /// What it is given; results that lie in there too.
    #[field(title = "arguments")]
    pub argument_bytes: Bytes,
    /// Results that lie elsewhere.
    #[field(title = "results")]
    pub result_bytes: Bytes,
    /// Asked for while it runs.
    #[field(title = "temporaries")]
    pub temporary_bytes: Bytes,
    /// Loaded with it.
    #[field(title = "constants")]
    pub constant_bytes: Bytes,
    /// The sum of the four: the program's own peak, not the process's.
    #[field(title = "in all")]
    pub peak_bytes: Bytes,
    /// False where the program alone takes more than the limit.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is not known.
    #[serde(skip)]
    no_fit: Option<NoFit>,
}

/// What a batch takes.
#[derive(Debug, Serialize, Document)]
pub struct PredictionView {
    /// The batch.
    pub batch: u64,
    /// The most in use where there is room: in as many runs more as less.
    #[field(title = "in use at the peak")]
    pub peak_bytes: Bytes,
    /// Nearly every run takes at least this.
    #[field(title = "lowest peak")]
    pub low_bytes: Bytes,
    /// Nearly no run takes more.
    #[field(title = "highest peak")]
    pub high_bytes: Bytes,
    /// What a pool without a limit takes, in the middle order.
    #[field(title = "taken from the driver")]
    pub pool_bytes: Bytes,
    /// The least over the orders.
    #[field(title = "least taken")]
    pub pool_low_bytes: Bytes,
    /// The most over the orders.
    #[field(title = "most taken")]
    pub pool_high_bytes: Bytes,
    /// What the driver would count for the process: `pool_bytes` and `outside_bytes`.
    #[field(null = "no probe is a recording of a GPU whose driver told what the process holds")]
    pub process_bytes: Option<Bytes>,
    /// With so large a limit every order passes; whole MiB.
    #[field(title = "least limit that passes", null = "no limit was found that it passes with")]
    pub minimum_bytes: Option<Bytes>,
    /// False where a warning says that the plan rests on too little for this batch: then it is not said whether it `fits`.
    pub certain: bool,
    /// Within the limit: true where nearly every run passes and there is room, false where none does, also by waiting.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is not known.
    #[serde(skip)]
    no_fit: Option<NoFit>,
    /// Of the bytes at the peak: those whose size three probes agree on, or a compiler tells, or another of the same size has.
    #[field(title = "exactly known", unit = "share")]
    pub exact_share: f64,
    /// Requested bytes by what their sizes are known from.
    #[serde(serialize_with = "bases_by_word")]
    pub bases: BTreeMap<Basis, Bytes>,
    /// Requested bytes by role at that peak.
    #[serde(serialize_with = "roles_by_word")]
    pub by_role: BTreeMap<Role, Bytes>,
    /// What the chunks at that peak are larger than the requests in them.
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
    /// The lowest peak of it over probes and steps.
    #[field(title = "lowest")]
    pub low_bytes: Bytes,
    /// The middle one.
    #[field(title = "middle")]
    pub median_bytes: Bytes,
    /// The highest.
    #[field(title = "highest")]
    pub high_bytes: Bytes,
}

/// Something that would need less.
#[derive(Debug, Serialize, Document)]
pub struct FixView {
    /// What `vramline verify --fix` takes; several joined by `+`.
    #[field(title = "fix")]
    pub name: String,
    /// What it does and costs.
    #[field(title = "what")]
    pub text: String,
    /// The batch it is for: the first of `predictions`.
    pub batch: u64,
    /// Off the peak, by editing the requests and running them again; null where that cannot tell.
    #[field(null_with = Self::why_unmeasured)]
    pub saves_bytes: Option<Bytes>,
    /// What it saves, and of what.
    #[serde(skip)]
    pub saving: Saving,
    /// The peak with it.
    #[field(title = "peak then", null_with = Self::why_unmeasured)]
    pub peak_bytes: Option<Bytes>,
    /// What a pool without a limit takes with it.
    #[field(title = "taken then", null_with = Self::why_unmeasured)]
    pub pool_bytes: Option<Bytes>,
    /// False where the peak with it is still above the limit.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Why that is not known.
    #[serde(skip)]
    no_fit: Option<NoFit>,
    /// How much longer an update takes, by the probes' step times.
    #[field(title = "time", unit = "ratio", null_with = Self::why_untimed)]
    pub time_ratio: Option<f64>,
    /// Code or a setting for this framework.
    #[field(title = "how")]
    pub snippet: String,
    /// The command that measures it; null where it needs a change of the code.
    #[field(null = "it is a change of the code")]
    pub verify: Option<String>,
}

/// A point of memory against batch.
#[derive(Debug, Serialize, Document)]
pub struct CurvePoint {
    /// With --curve: batches from the smallest probe on.
    pub batch: u64,
    /// As in `predictions`.
    pub peak_bytes: Bytes,
    /// The same.
    #[field(title = "lowest peak")]
    pub low_bytes: Bytes,
    /// The same.
    #[field(title = "highest peak")]
    pub high_bytes: Bytes,
}

/// The largest batch within the limit.
#[derive(Debug, Serialize, Document)]
pub struct LargestView {
    /// Nearly every run of `steps` steps passes within the limit, at this and every smaller batch that was tried, with room for orders that no probe has shown.
    #[field(null_with = Self::why_not_sure)]
    pub sure: Option<u64>,
    /// More runs pass than not, if need be by waiting.
    #[field(null_with = Self::why_not_likely)]
    pub likely: Option<u64>,
    /// Why none is sure.
    #[serde(skip)]
    not_sure: Option<NoLargest>,
    /// Why none is likely.
    #[serde(skip)]
    not_likely: Option<NoLargest>,
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

/// What does not belong into the table of fixes, and why.
const NO_HELP: &str = "Pruning and quantization make a trained model smaller; while it trains they save next to nothing, and \
    quantization-aware training costs more.";

impl From<PlanAnalysis> for PlanView {
    fn from(plan: PlanAnalysis) -> PlanView {
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
            largest_batch: plan.largest.into(),
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

impl From<LargestBatch> for LargestView {
    fn from(largest: LargestBatch) -> LargestView {
        LargestView {
            sure: largest.sure.ok(),
            likely: largest.likely.ok(),
            not_sure: largest.sure.err(),
            not_likely: largest.likely.err(),
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
    /// What it saves, in words: off the peak, or of what the pool takes where only that becomes less.
    #[must_use]
    pub fn saving_in_words(&self) -> String {
        match self.saving {
            Saving::Peak(bytes) => bytes.to_string(),
            Saving::Pool(bytes) => format!("{bytes} of the pool"),
            Saving::ToMeasure => "measure".to_owned(),
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

/// What would make known whether something fits.
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
        let text = if self.probes.is_empty() { "the programs do not tell" } else { "the traces do not tell" };
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

    fn why_not_likely(&self) -> Reason {
        self.not_likely.map(Reason::from).unwrap_or_default()
    }
}

impl FixView {
    /// What is not known of it is known when it is measured.
    fn reason(&self, text: impl Into<Cow<'static, str>>) -> Reason {
        Reason { text: text.into(), switch: self.verify.clone().map(Cow::Owned) }
    }

    fn why_unmeasured(&self) -> Reason {
        self.reason(UNMEASURED)
    }

    fn why_untimed(&self) -> Reason {
        self.reason("the probes do not tell what it costs in time")
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
        largest_batch: PlannedLargest { sure: plan.largest_batch.sure, likely: plan.largest_batch.likely },
        warnings,
    };
