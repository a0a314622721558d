//! Rule `shape-churn`: ops request different sizes in each step. The pool keeps free blocks that the next size does not fit, and reserves
//! more.

use super::{Device, Finding, percent};
use crate::units::{Bytes, plural};

/// The rule's name.
pub(super) const RULE: &str = "shape-churn";

/// The minimum that constant shapes save, in bytes and in percent of the pool.
const LEAST: Bytes = Bytes(16 << 20);
const SHARE: u64 = 10;

/// What constant shapes save according to a replay, if it is above both thresholds.
pub(super) fn saved(device: &Device) -> Option<Bytes> {
    let churn = device.churn.as_ref()?;
    let saved = Bytes(churn.pool.0.checked_sub(churn.padded.0)?);
    (saved >= LEAST && percent(saved, churn.pool) >= SHARE).then_some(saved)
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let saved = saved(device)?;
    let churn = device.churn.as_ref()?;
    let ops: Vec<String> = churn
        .ops
        .iter()
        .take(3)
        .map(|op| format!("{} ({} sizes, {} to {})", op.op, op.sizes, op.smallest, op.largest))
        .collect();
    Some(Finding {
        rule: RULE,
        bytes: saved,
        text: format!(
            "Changing shapes cost {saved} ({} % of {} reserved) in {}: with constant shapes the replay needs {}. {} different sizes in \
             most steps: {}.",
            percent(saved, churn.pool),
            churn.pool,
            device.name,
            churn.padded,
            plural(churn.count, "op requests", "ops request"),
            ops.join(", ")
        ),
        fix: "use the same shapes in every step: pad to the largest or to a few lengths (tf.data's bucket_by_sequence_length), and drop \
              the last, smaller batch (drop_remainder=True)"
            .to_owned(),
        verify: "`vramline report` on the next recording says how many steps repeat exactly".to_owned(),
    })
}
