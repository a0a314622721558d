//! Rule `peak-elsewhere`: the peak of the run is not in an ordinary training step, but in the first step, in validation or before the
//! first step.

use super::{Device, Finding, percent};
use crate::trace::Phase;
use crate::units::Bytes;

/// The minimum difference to the training steps, in percent of their peak.
const SHARE: u64 = 10;
/// The minimum difference in bytes.
const LEAST: Bytes = Bytes(16 << 20);

pub(super) fn check(device: &Device) -> Option<Finding> {
    let peak = device.peak?;
    let place = device.peak_in.as_ref()?;
    let trains = device.steps.iter().filter(|step| step.phase == Phase::Train).skip(1);
    let usual = trains.filter_map(|step| step.peak).max()?;
    let more = Bytes(peak.0.checked_sub(usual.0)?);
    if more < LEAST || percent(more, usual) < SHARE {
        return None;
    }
    Some(Finding {
        rule: "peak-elsewhere",
        bytes: more,
        text: format!(
            "{} peaks at {peak} in {place}. Other training steps need at most {usual}, {more} less.",
            device.name
        ),
        fix: "check what is allocated there: a first step builds optimizer state and tries kernels, validation may use larger \
              batches, and a checkpoint may copy all weights"
            .to_owned(),
        verify: "`vramline report --at TIME` shows what was allocated at any moment".to_owned(),
    })
}
