//! A limit on the pool is none on the process: the context and what libraries take come on top.

use super::{Device, Finding};
use crate::units::Bytes;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (limit, held) = (device.limit?, device.held?);
    let over = Bytes(held.0.checked_sub(limit.0)?);
    if device.is_stand_in || over == Bytes::ZERO {
        return None;
    }
    let context = match device.context {
        Some(context) => format!("; {context} is the context, with which every process begins"),
        None => String::new(),
    };
    Some(Finding {
        rule: "limit-without-context",
        bytes: over,
        text: format!(
            "{}: the limit is {limit}, and the process held {held} of the device: {over} more. A limit binds the pool only{context}",
            device.name
        ),
        fix: "add up the limits of all processes and a context for each when sharing a device".to_owned(),
        verify: "the ledger's line \"this job\"".to_owned(),
    })
}
