//! The pool took far more than was ever used: the framework maps nearly all memory when it begins.

use super::{Device, Finding, percent};
use crate::event::Framework;
use crate::units::Bytes;

/// Less than this is not missed by anybody.
const LEAST: Bytes = Bytes(1 << 30);
/// The pool is so many times what was used.
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
            "vramline run --growth on -- ..., or tf.config.experimental.set_memory_growth(gpu, True)"
        }
        Framework::Jax => "vramline run --growth on -- ..., or XLA_PYTHON_CLIENT_PREALLOCATE=false",
        // PyTorch takes what it needs; what it keeps is its cache.
        Framework::PyTorch => return None,
    };
    Some(Finding {
        rule: "preallocation",
        bytes: idle,
        text: format!(
            "{}: the pool took {taken} from the driver, and at most {peak} ({} %) was in use. nvidia-smi shows what was taken",
            device.name,
            percent(peak, taken)
        ),
        fix: format!("{fix}; it saves nothing for this job, but leaves {idle} to others"),
        verify: "the ledger's line \"cached free\" must shrink".to_owned(),
    })
}
