//! What a caching allocator kept from the driver, of pools of PyTorch's snapshots.

use crate::event::{Cached, Caching, History, StreamUse};
use crate::units::{Bytes, Nanos, Picos};

/// What PyTorch took from the driver, and what of it was not in use.
#[derive(Clone, Debug)]
pub struct CachingAnalysis {
    /// The most that was reserved.
    pub reserved_peak: Bytes,
    /// When that was.
    pub reserved_peak_at: Option<Nanos>,
    /// The most in blocks that are allocated, or freed but held back for another stream.
    pub active_peak: Bytes,
    /// The most that was free beside blocks in use.
    pub split_peak: Bytes,
    /// The allocator at three moments; without a history that knows the peak, at the last only.
    pub moments: Vec<(CachedWhen, Cached)>,
    /// Free blocks at the end, where no history knows the peak.
    pub free_blocks: Option<u64>,
    /// Streams and private pools at the end.
    pub streams: Vec<StreamUse>,
    /// Requests that failed.
    pub failures: Vec<FailedRequest>,
}

/// A moment at which a caching allocator is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedWhen {
    /// The most was allocated.
    Peak,
    /// The most was reserved.
    ReservedPeak,
    /// The snapshot was taken.
    End,
}

words!(CachedWhen { Peak => "peak", ReservedPeak => "reserved-peak", End => "end" });

/// A request that failed, with its names.
#[derive(Clone, Debug)]
pub struct FailedRequest {
    /// When.
    pub at: Nanos,
    /// The requested bytes, rounded up.
    pub asked: Option<Bytes>,
    /// What the driver had left.
    pub device_free: Option<Bytes>,
    /// Allocated then.
    pub allocated: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// The place in the program.
    pub op: String,
    /// The same with its callers, innermost first.
    pub stack: Vec<String>,
}

impl CachingAnalysis {
    pub(super) fn of(caching: &Caching, history: &History) -> CachingAnalysis {
        let clock = |time: Picos| time.on_clock(history.origin);
        let failed = |failure: &crate::event::OutOfMemory| FailedRequest {
            at: clock(failure.time),
            asked: failure.asked,
            device_free: failure.device_free,
            allocated: failure.allocated,
            reserved: failure.reserved,
            op: history.names.get(failure.op).to_owned(),
            stack: history.stacks.texts(failure.stack, &history.names),
        };
        let at_end = caching.at_end;
        let (reserved, active, split) = match &caching.state {
            Some(_) => (at_end.reserved, at_end.active, at_end.split_remainders),
            None => (caching.reserved_peak, caching.active_peak, caching.split_peak),
        };
        CachingAnalysis {
            reserved_peak: reserved,
            reserved_peak_at: caching.reserved_peak_time.filter(|_| caching.state.is_none()).map(clock),
            active_peak: active,
            split_peak: split,
            moments: match &caching.state {
                Some(_) => vec![(CachedWhen::End, caching.at_end)],
                None => vec![
                    (CachedWhen::Peak, caching.at_peak),
                    (CachedWhen::ReservedPeak, caching.at_reserved_peak),
                    (CachedWhen::End, caching.at_end),
                ],
            },
            free_blocks: caching.state.as_ref().map(|state| state.free_blocks),
            streams: caching.streams.clone(),
            failures: caching.failures.iter().map(failed).collect(),
        }
    }
}
