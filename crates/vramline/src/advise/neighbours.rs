//! Rule `other-processes`: other processes hold memory of the same device.

use super::{Device, Finding, percent};
use crate::units::{Bytes, plural};

/// The minimum that others hold; a display or a monitoring tool holds less.
const LEAST: Bytes = Bytes(256 << 20);

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (count, held) = device.others?;
    if device.is_stand_in || held < LEAST {
        return None;
    }
    let hold = if count == 1 { "holds" } else { "hold" };
    let own = match device.held {
        Some(own) => format!(
            "; this job holds {own} ({} % of both)",
            percent(own, Bytes(own.0.saturating_add(held.0)))
        ),
        None => String::new(),
    };
    Some(Finding {
        rule: "other-processes",
        bytes: held,
        text: format!(
            "{} {hold} {held} on the device of {}{own}.",
            plural(count, "other process", "other processes"),
            device.name
        ),
        fix:
            "use a free device (vramline run --gpus N -- ...), or give each process a limit (vramline run --limit)"
                .to_owned(),
        verify: "`vramline doctor` lists the processes on each device".to_owned(),
    })
}
