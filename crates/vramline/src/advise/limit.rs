//! Rule `limit-without-context`: a limit covers only the pool. The context and library allocations come on top of it.

use super::{Device, Finding};
use crate::units::Bytes;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (limit, held) = (device.limit?, device.held?);
    let over = Bytes(held.0.checked_sub(limit.0)?);
    if device.is_stand_in || over == Bytes::ZERO {
        return None;
    }
    let context = match device.context {
        Some(context) => format!("; the context of the process adds {context}"),
        None => String::new(),
    };
    Some(Finding {
        rule: "limit-without-context",
        bytes: over,
        text: format!(
            "The process of {} held {held} of the device, {over} more than its limit of {limit}. A limit covers only the pool{context}.",
            device.name
        ),
        fix: "when processes share a device, add the limits of all of them and one context for each"
            .to_owned(),
        verify: "see the line \"this job\" of the ledger".to_owned(),
    })
}
