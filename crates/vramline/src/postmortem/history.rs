//! The failures that the history of a PyTorch snapshot tells of.
//!
//! An entry has what was asked for and what the driver had free; what was reserved and allocated then follows from the
//! entries before it. A cap is not told: where the driver had enough, all that is known of what the cap left is that it
//! was less than the segment that was wanted.

use std::path::Path;

use crate::allocator::torch_caching::Options;
use crate::event::OutOfMemory;
use crate::failure::{DeviceMemory, Dialect, Failure, Failures, SizeRange, Witness};
use crate::trace::Trace;
use crate::units::Bytes;

/// The failures of a trace, in order.
#[must_use]
pub fn failures(trace: &Trace, path: &Path) -> Failures {
    let mut failures = Failures::default();
    for pool in &trace.history.pools {
        let Some(caching) = &pool.caching else { continue };
        let is_expandable = caching.calls.settings.expandable;
        for told in &caching.failures {
            let mut failure = failure(told, is_expandable);
            failure.allocator = Some(pool.name.clone());
            let op = trace.history.names.get(told.op);
            failure.op = Some(op.to_owned()).filter(|op| !op.is_empty());
            let time = told.time.on_clock(trace.history.origin);
            let seconds = time.0.div_euclid(1_000_000_000);
            let micros = time.0.rem_euclid(1_000_000_000) / 1000;
            failure.witnesses.push(Witness {
                path: path.to_owned(),
                line: None,
                time: format!("{seconds}.{micros:06}s"),
                micros: None,
            });
            failures.list.push(failure);
        }
    }
    failures
}

fn failure(told: &OutOfMemory, is_expandable: bool) -> Failure {
    let mut failure = Failure::new(Dialect::TorchSnapshot);
    let wanted = told.asked.map(|asked| {
        // A segment that grows takes what is missing; others are taken whole.
        if is_expandable { asked } else { Options::default().segment(asked) }
    });
    failure.requested = told.asked.map(SizeRange::exact);
    failure.rounded = wanted.map(SizeRange::exact);
    failure.pool = Some(SizeRange::exact(told.reserved));
    failure.in_use = Some(SizeRange::exact(told.allocated));
    failure.free = Some(SizeRange::exact(told.reserved.saturating_sub(told.allocated)));
    failure.memory = DeviceMemory { free: told.device_free.map(SizeRange::exact), ..DeviceMemory::default() };
    failure.unallocated = wanted.zip(told.device_free).map(|(wanted, free)| {
        if free < wanted {
            return SizeRange::exact(free);
        }
        SizeRange { low: Bytes::ZERO, high: Bytes(wanted.0.saturating_sub(1)) }
    });
    failure
}
