//! Rule `first-launch`: the first launch of one kernel took much memory, which stays until the context ends.

use super::{Device, Finding, held_share};
use crate::ledger::LineKind;
use crate::units::Bytes;

/// The minimum memory of one launch; code of a kernel takes one or two pages of 2 MiB.
const LEAST: Bytes = Bytes(32 << 20);
/// The minimum share of what the process holds, in percent.
const SHARE: u64 = 5;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (line, bytes, percent) =
        held_share(device, |line| line.kind == LineKind::FirstLaunches, LEAST, SHARE)?;
    let largest = Bytes(u64::try_from(line.largest).ok()?);
    if largest < LEAST {
        return None;
    }
    let place = line.place.as_ref().map_or(String::new(), |place| format!(" ({place})"));
    Some(Finding {
        rule: "first-launch",
        bytes,
        text: format!(
            "First launches of kernels of {} took {bytes} ({percent} % of the process) on {}, one of them {largest}{place}. The driver \
             takes local memory for every thread that the device can run when a kernel first needs it, and keeps it.",
            line.library.name, device.name
        ),
        fix: "leave room for it when you set a limit, which covers only the pool. The memory stays until the process ends".to_owned(),
        verify: "see the line \"local memory and code at first launches\" of the ledger, recorded with --driver-trace on"
            .to_owned(),
    })
}
