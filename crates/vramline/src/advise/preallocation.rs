//! Rule `preallocation`: the pool reserved far more than was used, because the framework reserves nearly all memory at the start.

use super::{Device, Finding, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// The minimum unused memory.
const LEAST: Bytes = Bytes(1 << 30);
/// The minimum ratio of reserved to used memory.
const TIMES: u64 = 2;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (taken, peak) = (device.taken?, device.peak?);
    let idle = Bytes(taken.0.checked_sub(peak.0)?);
    if device.is_stand_in
        || idle < LEAST
        || taken.0 < peak.0.saturating_mul(TIMES)
        || device.grows == Some(true)
    {
        return None;
    }
    let fix = match device.framework? {
        Framework::TensorFlow => {
            "use `vramline run --growth on -- ...` or tf.config.experimental.set_memory_growth(gpu, True)"
        }
        Framework::Jax => "use `vramline run --growth on -- ...` or XLA_PYTHON_CLIENT_PREALLOCATE=false",
        // PyTorch reserves only what it needs; what it keeps is its cache.
        Framework::PyTorch => return None,
    };
    Some(Finding {
        rule: "preallocation",
        bytes: idle,
        text: format!(
            "{} reserved {taken}, but at most {peak} ({} % of it) was in use. nvidia-smi shows the reserved amount.",
            device.name,
            percent(peak, taken)
        ),
        fix: format!("{fix}. This leaves {idle} to other processes; this job's own use stays the same"),
        verify: "the cached memory in the ledger must shrink".to_owned(),
    })
}
