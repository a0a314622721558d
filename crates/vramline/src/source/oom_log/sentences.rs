//! A sentence made into a failure: which of its figures are the pool's, and what they leave.

use super::said::Sentence;
use crate::failure::{Dialect, Failure, SizeRange, Witness};
use crate::units::Bytes;

/// The failure that a sentence tells.
pub(crate) fn failure_of(sentence: &Sentence, witness: Witness) -> Failure {
    let mut failure = Failure::new(sentence.dialect);
    failure.witnesses.push(witness);
    failure.platform = sentence.platform;
    failure.library = sentence.library;
    failure.is_at_start = sentence.is_at_start;
    failure.is_inferred = sentence.is_inferred;
    failure.program = sentence.program;
    failure.requested = sentence.requested;
    // What PyTorch asked the driver for: the tensor may be smaller. Others do not tell how they round.
    failure.rounded = sentence.tried.or(sentence.requested);
    failure.device.clone_from(&sentence.device);
    (failure.limit, failure.is_limit_set) = (sentence.limit, sentence.is_limit_set);
    failure.memory = sentence.memory;
    failure.in_use = sentence.allocated;
    failure.largest_free = sentence.largest;
    failure.free = match (sentence.cached, sentence.reserved, sentence.allocated) {
        (Some(told), ..) => Some(told),
        (None, Some(reserved), Some(allocated)) => Some(reserved.minus(allocated)),
        _ => None,
    };
    failure.pool = match (sentence.reserved, sentence.allocated, sentence.cached) {
        (Some(told), ..) => Some(told),
        (None, Some(allocated), Some(cached)) => Some(allocated.plus(cached)),
        // What is cached is not told.
        (None, allocated, _) => allocated,
    };
    let under_limit = sentence.limit.zip(failure.pool).map(|(limit, pool)| limit.minus(pool));
    failure.unallocated = sentence.left.or(match (under_limit, sentence.memory.free) {
        (Some(a), Some(b)) => Some(SizeRange { low: a.low.min(b.low), high: a.high.min(b.high) }),
        (a, b) => a.or(b),
    });
    let tells_pool = failure.pool.is_some() || sentence.left.is_some();
    if failure.free.is_none() && tells_pool && sentence.dialect != Dialect::PyTorch {
        // Such pools join what they have, or do not tell of it.
        failure.free = Some(SizeRange::exact(Bytes::ZERO));
    }
    failure
}
