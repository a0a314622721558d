//! Most of the peak is one thing, or was asked for by nobody.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// One block that is so much of the peak, in percent.
const ONE_THING: u64 = 40;
/// Slack that is so much of the peak, in percent.
const SLACK: u64 = 15;
/// Small programs are always dominated by something.
const LEAST: Bytes = Bytes(64 << 20);

/// What a share is of.
fn whole(device: &Device) -> &'static str {
    if device.is_dump { "what was held at the dump" } else { "the peak" }
}

pub(super) fn one_thing(device: &Device) -> Option<Finding> {
    let (peak, largest) = (device.peak?, device.largest.as_ref()?);
    if largest.count != 1 || largest.bytes < LEAST || percent(largest.bytes, peak) < ONE_THING {
        return None;
    }
    Some(Finding {
        rule: "one-tensor",
        bytes: largest.bytes,
        text: format!(
            "{}: one block is {} % of {}: {}, {}",
            device.name,
            percent(largest.bytes, peak),
            whole(device),
            if largest.what.is_empty() { "it has no name" } else { &largest.what },
            largest.bytes
        ),
        fix: if largest.is_of_compiler {
            "the compiler tries kernels on the device, once: XLA_FLAGS=--xla_gpu_autotune_level=0 does without"
        } else {
            "compute it in pieces (a loop over chunks, a fused loss), in a smaller type, or not at all"
        }
        .to_owned(),
        verify: "vramline report shows the largest rows first".to_owned(),
    })
}

pub(super) fn slack(device: &Device) -> Option<Finding> {
    let (peak, slack) = (device.peak?, device.slack?);
    if slack < LEAST || percent(slack, peak) < SLACK {
        return None;
    }
    Some(Finding {
        rule: "slack",
        bytes: slack,
        text: format!(
            "{}: {} % of {} was asked for by nobody: {slack} of chunks larger than their requests, which the pool does not split",
            device.name,
            percent(slack, peak),
            whole(device)
        ),
        fix: "vramline replay PATH --what-if fragmentation=0.01 tells what splitting sooner would save"
            .to_owned(),
        verify: "the report's line \"slack\"".to_owned(),
    })
}
