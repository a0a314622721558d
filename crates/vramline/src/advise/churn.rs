//! Ops ask for other sizes in each step: the pool keeps holes that the next size does not fit, and takes more from the driver.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// The rule's name.
pub(super) const RULE: &str = "shape-churn";

/// What constant shapes would save, at least, and in percent of the pool.
const LEAST: Bytes = Bytes(16 << 20);
const SHARE: u64 = 10;

/// What constant shapes would save by replay, where that is worth a word.
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
            "{}: {} ops ask for other sizes in most steps: {}. By replay, the pool takes {} from the driver; with these ops at their \
             largest sizes in every step it would take {}",
            device.name,
            churn.count,
            ops.join(", "),
            churn.pool,
            churn.padded
        ),
        fix: "give every step the same shapes: pad to the largest, or to a few lengths (tf.data's bucket_by_sequence_length), and drop the \
              last, smaller batch (drop_remainder=True)"
            .to_owned(),
        verify: "vramline report on the next recording: its line of steps that repeat".to_owned(),
    })
}
