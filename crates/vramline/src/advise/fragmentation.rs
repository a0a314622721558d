//! The pool took more than was ever in use at once, because what was free lay in pieces.

use super::{Device, Finding, churn, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// So much of the pool, in percent.
const SHARE: u64 = 15;
/// And at least so much.
const LEAST: Bytes = Bytes(64 << 20);

/// What a pool lost, where that is worth a word: then it is worth asking for the cause, too.
pub(crate) fn lost(pool: Bytes, peak: Bytes) -> Option<Bytes> {
    let wasted = Bytes(pool.0.checked_sub(peak.0)?);
    (wasted >= LEAST && percent(wasted, pool) >= SHARE).then_some(wasted)
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let fragments = device.fragments.as_ref()?;
    // The other rule says what it costs and which ops it is.
    if churn::saved(device).is_some() {
        return None;
    }
    let wasted = lost(fragments.pool, fragments.peak)?;
    let cause = fragments.cause.as_ref().map_or(String::new(), |cause| format!(": {cause}"));
    let (rule, fix) = match (&fragments.churn, device.framework) {
        (Some((bytes, op)), _) => (
            churn::RULE,
            format!("sizes that keep changing cost {bytes}, most of them asked for by {op}: pad or bucket shapes"),
        ),
        (None, Some(Framework::PyTorch)) => (
            "fragmentation",
            "vramline replay PATH --what-if expandable=on tells what PYTORCH_ALLOC_CONF=expandable_segments:True would save"
                .to_owned(),
        ),
        (None, _) => (
            "fragmentation",
            "vramline replay PATH --what-if growth=off --what-if gc=on tells what other settings would save".to_owned(),
        ),
    };
    Some(Finding {
        rule,
        bytes: wasted,
        text: format!(
            "{}: the pool took {} though never more than {} was in use; {wasted} was lost to fragmentation{cause}",
            device.name, fragments.pool, fragments.peak
        ),
        fix,
        verify: "vramline replay on the next recording".to_owned(),
    })
}
