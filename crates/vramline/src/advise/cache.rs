//! Rule `cache-not-returned`: PyTorch's pool keeps freed memory. Other processes cannot use it.

use super::{Device, Finding, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// The minimum cached memory; every pool keeps some.
const LEAST: Bytes = Bytes(256 << 20);
/// The minimum share of the pool, in percent.
const SHARE: u64 = 25;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (taken, in_use) = device.at_end?;
    let cached = Bytes(taken.0.checked_sub(in_use.0)?);
    if device.framework? != Framework::PyTorch || cached < LEAST || percent(cached, taken) < SHARE {
        return None;
    }
    Some(Finding {
        rule: "cache-not-returned",
        bytes: cached,
        text: format!(
            "PyTorch keeps {cached} of {} cached at the end: {} % of the {taken} reserved, with {in_use} in use. Other processes cannot \
             use it.",
            device.name,
            percent(cached, taken)
        ),
        fix: "nothing if this process continues to train: PyTorch reuses the cache. To free it for other processes, call \
              torch.cuda.empty_cache() after a phase that needed more"
            .to_owned(),
        verify: "with vramline.watch(\"empty_cache\") as w: torch.cuda.empty_cache(), then print(w)"
            .to_owned(),
    })
}
