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
    /// The allocator at three moments.
    pub moments: [(CachedWhen, Cached); 3],
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
    /// What was asked for, rounded up.
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
        CachingAnalysis {
            reserved_peak: caching.reserved_peak,
            reserved_peak_at: caching.reserved_peak_time.map(clock),
            active_peak: caching.active_peak,
            split_peak: caching.split_peak,
            moments: [
                (CachedWhen::Peak, caching.at_peak),
                (CachedWhen::ReservedPeak, caching.at_reserved_peak),
                (CachedWhen::End, caching.at_end),
            ],
            streams: caching.streams.clone(),
            failures: caching.failures.iter().map(failed).collect(),
        }
    }
}
