//! Fixes that reduce memory at a batch size, and what they save.

use super::PlanOptions;
use super::prediction::{BatchPrediction, NoFit};
use crate::event::Framework;
use crate::plan::{Fix, Fixed, Plan};
use crate::units::Bytes;

/// Why a fix has no figure.
pub(crate) const UNMEASURED: &str = "its effect cannot be computed from the requests; measure it";

/// A fix, or several together, and their effect.
#[derive(Clone, Debug)]
pub struct OfferedFix {
    /// The fixes.
    pub fixes: Vec<Fix>,
    /// The batch.
    pub batch: u64,
    /// The reduction of the peak; `None` if it cannot be computed.
    pub saves: Option<Bytes>,
    /// The peak with the fix; `None` if it cannot be computed.
    pub peak: Option<Bytes>,
    /// The pool with the fix; `None` if it cannot be computed.
    pub pool: Option<Bytes>,
    /// What is reduced.
    pub saving: Saving,
    /// Whether it fits the limit with the fix.
    pub fits: Result<bool, NoFit>,
    /// The ratio of step times; `None` if the probes do not show it.
    pub time_ratio: Option<f64>,
    /// Code or settings for the framework.
    pub snippet: String,
    /// The command that measures it; `None` if the code has to be changed.
    pub verify: Option<String>,
}

/// What a fix reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// The peak.
    Peak(Bytes),
    /// Only the pool.
    Pool(Bytes),
    /// Nothing or unknown; it has to be measured.
    ToMeasure,
}

/// The fixes for the first batch size, without those that save nothing. `fitting` is a smaller batch size that fits.
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
    let at_once = options.limit.and_then(|limit| plan.reserved_at_once(limit));
    let under_limit =
        |fixed: Fixed| Fixed { pool: at_once.or(fixed.pool).filter(|_| fixed.pool.is_some()), ..fixed };
    fixes.map(|fixed| offer(plan, under_limit(fixed), options, first, framework)).filter(saves_any).collect()
}

fn offer(
    plan: &Plan,
    fixed: Fixed,
    options: &PlanOptions,
    first: &BatchPrediction,
    framework: Option<Framework>,
) -> OfferedFix {
    let batch = first.taken.batch;
    let names: Vec<&str> = fixed.fixes.iter().map(|fix| fix.name()).collect();
    let snippets: Vec<String> = fixed.fixes.iter().map(|fix| fix.snippet(framework)).collect();
    let is_outside = fixed.fixes.iter().all(|&fix| plan.is_from_outside(fix));
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
        // Only the peak is known: how much room fragmentation needs is unknown with the fix.
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
