//! The devices of one job do not need the same: the fullest one decides what fits.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// So much more than the emptiest, in percent of the fullest.
const SHARE: u64 = 20;
/// And at least so much.
const LEAST: Bytes = Bytes(256 << 20);

pub(super) fn check(devices: &[Device]) -> Option<Finding> {
    let known: Vec<(&Device, Bytes)> = devices
        .iter()
        .filter(|device| !device.is_stand_in)
        .filter_map(|device| Some((device, device.peak?)))
        .collect();
    let (fullest, most) = known.iter().max_by_key(|(_, peak)| *peak)?;
    let (emptiest, least) = known.iter().min_by_key(|(_, peak)| *peak)?;
    let more = Bytes(most.0.checked_sub(least.0)?);
    if known.len() < 2 || more < LEAST || percent(more, *most) < SHARE {
        return None;
    }
    Some(Finding {
        rule: "imbalance",
        bytes: more,
        text: format!("{} needs {most}, {} only {least}: {more} apart", fullest.name, emptiest.name),
        fix: "move layers, optimizer state or the loss to the emptier device; a batch that fits is decided by the fullest".to_owned(),
        verify: "compare the peaks of the devices in the report".to_owned(),
    })
}
