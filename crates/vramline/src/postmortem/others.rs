//! What other processes hold of a device, from a failure's own figures.
//!
//! A text that says what this process has tells it exactly. Where it says only what the framework reserved, something lies beside that: the
//! process's own context and libraries, or somebody else's memory. Up to [`OWN_BESIDE`] counts as its own.

use crate::failure::{Dialect, Failure, SizeRange};
use crate::units::Bytes;

/// What a process may hold beside its framework's pool: context, kernels, libraries, communication.
pub const OWN_BESIDE: Bytes = Bytes(2 << 30);

/// What other processes hold; `None` where the text neither tells nor implies it.
#[must_use]
pub fn others(failure: &Failure) -> Option<SizeRange> {
    let memory = &failure.memory;
    let Some(used) = memory.total.zip(memory.free).map(|(total, free)| total.minus(free)) else {
        return memory.others;
    };
    if let Some(own) = memory.this_process {
        return Some(used.minus(own));
    }
    let tells_pool = !failure.dialect.is_bfc() && failure.dialect != Dialect::Tpu;
    let beside = used.minus(failure.pool.filter(|_| tells_pool)?);
    (beside.middle() > OWN_BESIDE).then_some(beside)
}
