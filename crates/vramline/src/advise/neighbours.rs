//! Other processes hold memory of the same device.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// Less than this is a display or a monitor.
const LEAST: Bytes = Bytes(256 << 20);

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (count, held) = device.others?;
    if device.is_stand_in || held < LEAST {
        return None;
    }
    let beside = match device.held {
        Some(own) => format!(
            ", beside the {own} of this job ({} %)",
            percent(own, Bytes(own.0.saturating_add(held.0)))
        ),
        None => String::new(),
    };
    Some(Finding {
        rule: "other-processes",
        bytes: held,
        text: format!("{}: {count} other processes hold {held}{beside}", device.name),
        fix:
            "vramline run --gpus N -- ... on a free device; or limits for all of them (vramline run --limit)"
                .to_owned(),
        verify: "vramline doctor lists who is on a device".to_owned(),
    })
}
