//! PyTorch's pool keeps what was freed: it looks used from outside, and is not.

use super::{Device, Finding, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// Less than this is the ordinary reserve of a pool.
const LEAST: Bytes = Bytes(256 << 20);
/// So much of the pool, in percent.
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
            "{}: at the end the pool held {taken}, of which {in_use} was in use; {cached} is cache, which the driver counts as used",
            device.name
        ),
        fix: "nothing, if this process goes on training: it uses the cache again. For others on the device: \
              torch.cuda.empty_cache() after a phase that needed more"
            .to_owned(),
        verify: "with vramline.watch(\"empty_cache\") as w: torch.cuda.empty_cache(), then print(w)"
            .to_owned(),
    })
}
