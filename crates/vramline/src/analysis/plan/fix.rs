//! What would need less at a batch, and what it saves.

use super::PlanOptions;
use super::prediction::{BatchPrediction, NoFit};
use crate::event::Framework;
use crate::plan::{Fix, Fixed, Plan};
use crate::units::Bytes;

/// Why a fix has no figure.
pub(crate) const UNMEASURED: &str = "requests do not tell what it would do: it is to be measured";

/// A fix, or several together, and what they would do.
#[derive(Clone, Debug)]
pub struct OfferedFix {
    /// The fixes.
    pub fixes: Vec<Fix>,
    /// The batch.
    pub batch: u64,
    /// What the peak is less; `None` where requests do not tell.
    pub saves: Option<Bytes>,
    /// The peak then; `None` where requests do not tell.
    pub peak: Option<Bytes>,
    /// What the pool takes then; `None` where requests do not tell.
    pub pool: Option<Bytes>,
    /// What becomes less.
    pub saving: Saving,
    /// Whether it fits the limit then.
    pub fits: Result<bool, NoFit>,
    /// How much longer an update takes; `None` where the probes do not tell.
    pub time_ratio: Option<f64>,
    /// Code or settings for the framework.
    pub snippet: String,
    /// The command that measures it; `None` where the code has to be changed.
    pub verify: Option<String>,
}

/// What a fix makes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// The peak.
    Peak(Bytes),
    /// Only what the pool takes.
    Pool(Bytes),
    /// Nothing to speak of, or not known: it is to be measured.
    ToMeasure,
}

/// The fixes for the first batch, without those that make nothing less. `fitting` is a smaller batch that fits.
pub(super) fn offered(
    plan: &Plan,
    options: &PlanOptions,
    first: &BatchPrediction,
    fitting: Option<u64>,
    framework: Option<Framework>,
) -> Vec<OfferedFix> {
    let [_, pool, _] = first.taken.pool;
    let saves_any =
        |fix: &OfferedFix| fix.saves != Some(Bytes::ZERO) || fix.pool.is_none_or(|then| then < pool);
    let fixes = plan.fixes(first.taken.batch, fitting, options.steps).into_iter();
    fixes.map(|fixed| offer(fixed, options, first, framework)).filter(saves_any).collect()
}

fn offer(
    fixed: Fixed,
    options: &PlanOptions,
    first: &BatchPrediction,
    framework: Option<Framework>,
) -> OfferedFix {
    let batch = first.taken.batch;
    let names: Vec<&str> = fixed.fixes.iter().map(|fix| fix.name()).collect();
    let snippets: Vec<String> = fixed.fixes.iter().map(|fix| fix.snippet(framework)).collect();
    let is_outside = fixed.fixes.iter().all(|fix| fix.is_from_outside());
    let verify = || {
        let braces = format!("{{{}}}", options.variable);
        format!("vramline verify --fix {} --batch {batch} -- CMD {braces}", names.join("+"))
    };
    let saves = fixed.peak.map(|peak| first.taken.peak.saturating_sub(peak));
    let [_, pool, _] = first.taken.pool;
    OfferedFix {
        batch,
        saves,
        peak: fixed.peak,
        pool: fixed.pool,
        saving: match (saves, fixed.pool) {
            (Some(Bytes::ZERO), Some(then)) => Saving::Pool(pool.saturating_sub(then)),
            (None | Some(Bytes::ZERO), _) => Saving::ToMeasure,
            (Some(saves), _) => Saving::Peak(saves),
        },
        // The peak alone: how much a limit has to leave for pieces is not known with it.
        fits: match (fixed.peak, options.limit) {
            (None, _) => Err(NoFit::Unmeasured),
            (Some(_), None) => Err(NoFit::NoLimit),
            (Some(peak), Some(limit)) if peak > limit => Ok(false),
            (Some(_), Some(_)) => Err(NoFit::HolesUnknown),
        },
        time_ratio: fixed.time_ratio,
        snippet: snippets.join("; "),
        verify: is_outside.then(verify),
        fixes: fixed.fixes,
    }
}
