//! Rules `one-tensor` and `slack`: much of the peak is one block, or is rounding.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// The minimum share of one block in the peak, in percent.
const ONE_THING: u64 = 40;
/// The minimum share of rounding in the peak, in percent.
const SLACK: u64 = 15;
/// The minimum size of the block or of the rounding; in small programs something always dominates.
const LEAST: Bytes = Bytes(64 << 20);

/// What a share is a share of.
fn whole(device: &Device) -> String {
    if device.is_dump {
        format!("what {} held at the dump", device.name)
    } else {
        format!("the peak of {}", device.name)
    }
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
            "One block takes {}, {} % of {}: {}.",
            largest.bytes,
            percent(largest.bytes, peak),
            whole(device),
            if largest.what.is_empty() { "its name is unknown" } else { &largest.what }
        ),
        fix: if largest.is_of_compiler {
            "XLA's compiler allocates it once, to try kernels on the device: XLA_FLAGS=--xla_gpu_autotune_level=0 turns that off"
        } else {
            "compute it in parts (a loop over slices, a fused loss), use a smaller dtype, or avoid it"
        }
        .to_owned(),
        verify: "`vramline report` on the next run: the largest rows come first".to_owned(),
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
            "{slack} of {} ({} %) is rounding: the allocator handed out blocks larger than requested, without splitting them.",
            whole(device),
            percent(slack, peak)
        ),
        fix: "to predict what smaller blocks would save, run `vramline replay` on this file with --what-if fragmentation=0.01"
            .to_owned(),
        verify: "the rounding in the next report must shrink".to_owned(),
    })
}
