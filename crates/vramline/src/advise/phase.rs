//! The peak of the run is not where one looks for it: in the first step, in validation, between steps.

use super::{Device, Finding, percent};
use crate::trace::Phase;
use crate::units::Bytes;

/// So much more than the steps that train, in percent.
const SHARE: u64 = 10;
/// And at least so much.
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
            "{}: the highest moment, {peak}, was in {place}; steps that train need {usual}. Without that moment {more} less would do",
            device.name
        ),
        fix: "look at what is held there: a first step builds optimizer state and tries kernels; validation may run larger \
              batches; a checkpoint may copy everything"
            .to_owned(),
        verify: "vramline report --at TIME shows who held what at any moment".to_owned(),
    })
}
