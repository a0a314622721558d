//! Rule `fragmentation`: the pool reserved more than was in use at any time, because its free memory was fragmented.

use super::{Device, Finding, churn, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// The minimum loss, in percent of the pool.
const SHARE: u64 = 15;
/// The minimum loss in bytes.
const LEAST: Bytes = Bytes(64 << 20);

/// What a pool lost to fragmentation, if it is above both thresholds.
pub(crate) fn lost(pool: Bytes, peak: Bytes) -> Option<Bytes> {
    let wasted = Bytes(pool.0.checked_sub(peak.0)?);
    (wasted >= LEAST && percent(wasted, pool) >= SHARE).then_some(wasted)
}

pub(super) const RULE: &str = "fragmentation";

pub(super) fn check(device: &Device) -> Option<Finding> {
    let fragments = device.fragments.as_ref()?;
    // Rule `shape-churn` reports the cost and the ops.
    if churn::saved(device).is_some() {
        return None;
    }
    let wasted = lost(fragments.pool, fragments.peak)?;
    let cause = fragments.cause.as_ref().map_or(String::new(), |cause| format!(" Cause: {cause}."));
    let (rule, fix) = match (&fragments.churn, device.framework) {
        (Some((bytes, op)), _) => (
            churn::RULE,
            format!("pad or bucket shapes: request sizes that keep changing, most of them from {op}, cost {bytes}"),
        ),
        (None, Some(Framework::PyTorch)) => (
            RULE,
            "set PYTORCH_ALLOC_CONF=expandable_segments:True; to predict the effect, run `vramline replay` on this file with --what-if expandable=on"
                .to_owned(),
        ),
        (None, _) => (
            RULE,
            "try other allocator settings; to predict the effect, run `vramline replay` on this file with --what-if growth=off --what-if gc=on"
                .to_owned(),
        ),
    };
    Some(Finding {
        rule,
        bytes: wasted,
        text: format!(
            "{} reserved {}, but at most {} was in use at once: {wasted} ({} % of the pool) more than the tensors needed.{cause}",
            device.name,
            fragments.pool,
            fragments.peak,
            percent(wasted, fragments.pool)
        ),
        fix,
        verify: "run `vramline replay` on the next recording".to_owned(),
    })
}
