//! What a caching allocator keeps from the driver: the parts of a report that only PyTorch's snapshots have.

use serde::Serialize;

use crate::analysis::caching::{CachedWhen, CachingAnalysis, FailedRequest};
use crate::document::Document;
use crate::event::{Cached, StreamUse};
use crate::units::{Bytes, Nanos};

/// What PyTorch keeps from the driver.
#[derive(Debug, Serialize, Document)]
pub struct CachingView {
    /// The most that PyTorch took from the driver; of a pool whose `moment` is `dump`, what it had then. `caching` is there for PyTorch's snapshots only.
    #[field(title = "reserved")]
    pub reserved_peak_bytes: Bytes,
    /// When that was.
    #[field(title = "at", null = "it was so before the first entry, or no history knows the peak")]
    pub reserved_peak_at_ns: Option<Nanos>,
    /// The most in blocks that are allocated, or freed but held back for another stream.
    #[field(title = "active")]
    pub active_peak_bytes: Bytes,
    /// The most that was free beside blocks in use (PyTorch's inactive_split_bytes).
    #[field(title = "split")]
    pub split_peak_bytes: Bytes,
    /// The allocator at three moments; of a pool whose `moment` is `dump`, at `end` only.
    pub moments: Vec<CachedView>,
    /// Streams and private pools at the end, the largest first.
    pub streams: Vec<StreamView>,
    /// Requests that failed.
    pub failures: Vec<CachingFailureView>,
}

/// A caching allocator at one moment.
#[derive(Debug, Serialize, Document)]
pub struct CachedView {
    /// `peak`: the most was allocated; `reserved-peak`: the most was reserved; `end`: the snapshot was taken.
    pub when: CachedWhen,
    /// Taken from the driver: active + whole_segments + split_remainders + expandable.
    pub reserved_bytes: Bytes,
    /// Allocated + pending.
    pub active_bytes: Bytes,
    /// In blocks that the program holds.
    pub allocated_bytes: Bytes,
    /// In blocks that were freed but wait until another stream is done with them.
    pub pending_bytes: Bytes,
    /// Cached in segments without a block in use: `torch.cuda.empty_cache()` returns them.
    pub whole_segments_bytes: Bytes,
    /// Cached beside blocks in use: `empty_cache()` does not return them.
    pub split_remainders_bytes: Bytes,
    /// Free in expandable segments: `empty_cache()` returns whole pages of it.
    pub expandable_bytes: Bytes,
}

/// What one stream holds.
#[derive(Debug, Serialize, Document)]
pub struct StreamView {
    /// The handle of the stream that the segments are of, at the end; 0 is the default stream.
    pub stream: i64,
    /// The id of a private pool, such as a CUDA graph's; empty for the usual one.
    pub private_pool: String,
    /// How many segments.
    pub segments: u64,
    /// How many of them grow.
    #[field(title = "expandable")]
    pub expandable_segments: u64,
    /// Taken from the driver.
    pub reserved_bytes: Bytes,
    /// In blocks that the program holds.
    pub allocated_bytes: Bytes,
    /// Allocated or pending.
    pub active_bytes: Bytes,
}

/// A request that failed.
#[derive(Debug, Serialize, Document)]
pub struct CachingFailureView {
    /// When a request failed: out of memory.
    pub at_ns: Nanos,
    /// What was asked for, rounded up.
    #[field(null = "the entry does not tell it")]
    pub asked_bytes: Option<Bytes>,
    /// What the driver had left on the device then.
    #[field(title = "free", null = "the entry does not tell it")]
    pub device_free_bytes: Option<Bytes>,
    /// Allocated then.
    pub allocated_bytes: Bytes,
    /// Reserved then.
    pub reserved_bytes: Bytes,
    /// The place in the program, as in rows.
    pub op: String,
    /// The same with its callers, innermost first.
    pub stack: Vec<String>,
}

impl From<CachingAnalysis> for CachingView {
    fn from(caching: CachingAnalysis) -> CachingView {
        CachingView {
            reserved_peak_bytes: caching.reserved_peak,
            reserved_peak_at_ns: caching.reserved_peak_at,
            active_peak_bytes: caching.active_peak,
            split_peak_bytes: caching.split_peak,
            moments: caching.moments.into_iter().map(CachedView::of).collect(),
            streams: caching.streams.into_iter().map(StreamView::from).collect(),
            failures: caching.failures.into_iter().map(CachingFailureView::from).collect(),
        }
    }
}

impl CachedView {
    fn of((when, cached): (CachedWhen, Cached)) -> CachedView {
        CachedView {
            when,
            reserved_bytes: cached.reserved,
            active_bytes: cached.active,
            allocated_bytes: cached.allocated,
            pending_bytes: cached.pending,
            whole_segments_bytes: cached.whole_segments,
            split_remainders_bytes: cached.split_remainders,
            expandable_bytes: cached.expandable,
        }
    }
}

impl From<StreamUse> for StreamView {
    fn from(used: StreamUse) -> StreamView {
        StreamView {
            stream: used.stream,
            private_pool: used.private_pool.map_or(String::new(), |(one, other)| format!("{one}.{other}")),
            segments: used.segments,
            expandable_segments: used.expandable_segments,
            reserved_bytes: used.reserved,
            allocated_bytes: used.allocated,
            active_bytes: used.active,
        }
    }
}

impl From<FailedRequest> for CachingFailureView {
    fn from(failure: FailedRequest) -> CachingFailureView {
        CachingFailureView {
            at_ns: failure.at,
            asked_bytes: failure.asked,
            device_free_bytes: failure.device_free,
            allocated_bytes: failure.allocated,
            reserved_bytes: failure.reserved,
            op: failure.op,
            stack: failure.stack,
        }
    }
}
