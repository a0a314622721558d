//! The state of a caching allocator: the parts of a report that only PyTorch snapshots have.

use serde::Serialize;

use crate::analysis::caching::{CachedWhen, CachingAnalysis, FailedRequest};
use crate::document::Document;
use crate::event::{Cached, StreamUse};
use crate::units::{Bytes, Nanos};

/// What PyTorch reserves from the driver.
#[derive(Debug, Serialize, Document)]
pub struct CachingView {
    /// Peak bytes that PyTorch reserved from the driver; if the pool's `moment` is `dump`, the reserved bytes at the dump. Only PyTorch snapshots have `caching`.
    #[field(title = "reserved")]
    pub reserved_peak_bytes: Bytes,
    /// Time of that peak.
    #[field(title = "at", null = "the peak was before the first entry, or the snapshot has no history")]
    pub reserved_peak_at_ns: Option<Nanos>,
    /// Peak bytes of active blocks: allocated, or freed but still used by another stream.
    #[field(title = "active")]
    pub active_peak_bytes: Bytes,
    /// Peak of free bytes in segments that also have a block in use (PyTorch's inactive_split_bytes).
    #[field(title = "split")]
    pub split_peak_bytes: Bytes,
    /// The allocator at three moments; if the pool's `moment` is `dump`, at `end` only.
    pub moments: Vec<CachedView>,
    /// Streams and private pools at the end, largest first.
    pub streams: Vec<StreamView>,
    /// Requests that failed.
    pub failures: Vec<CachingFailureView>,
}

/// A caching allocator at one moment.
#[derive(Debug, Serialize, Document)]
pub struct CachedView {
    /// `peak`: peak of the allocated bytes; `reserved-peak`: peak of the reserved bytes; `end`: when the snapshot was taken.
    pub when: CachedWhen,
    /// Reserved from the driver: active + whole_segments + split_remainders + expandable.
    pub reserved_bytes: Bytes,
    /// Allocated + pending.
    pub active_bytes: Bytes,
    /// Bytes of blocks that the program holds.
    pub allocated_bytes: Bytes,
    /// Bytes of blocks that were freed but are still used by another stream.
    pub pending_bytes: Bytes,
    /// Cached bytes in segments without a block in use: `torch.cuda.empty_cache()` returns them.
    pub whole_segments_bytes: Bytes,
    /// Cached bytes in segments with a block in use: `empty_cache()` does not return them.
    pub split_remainders_bytes: Bytes,
    /// Free bytes in expandable segments: `empty_cache()` returns whole pages of them.
    pub expandable_bytes: Bytes,
}

/// The memory of one stream.
#[derive(Debug, Serialize, Document)]
pub struct StreamView {
    /// The handle of the stream; 0 is the default stream.
    pub stream: i64,
    /// The id of a private pool, such as that of a CUDA graph; empty for the default pool.
    pub private_pool: String,
    /// Number of segments.
    pub segments: u64,
    /// Number of expandable segments.
    #[field(title = "expandable")]
    pub expandable_segments: u64,
    /// Reserved from the driver.
    pub reserved_bytes: Bytes,
    /// Bytes of blocks that the program holds.
    pub allocated_bytes: Bytes,
    /// Allocated or pending.
    pub active_bytes: Bytes,
}

/// A request that failed.
#[derive(Debug, Serialize, Document)]
pub struct CachingFailureView {
    /// Time of the failed request.
    pub at_ns: Nanos,
    /// Requested bytes, rounded up.
    #[field(title = "requested", null = "the entry does not contain it")]
    pub asked_bytes: Option<Bytes>,
    /// Free bytes on the device at that time.
    #[field(title = "free", null = "the entry does not contain it")]
    pub device_free_bytes: Option<Bytes>,
    /// Allocated bytes at that time.
    pub allocated_bytes: Bytes,
    /// Reserved bytes at that time.
    pub reserved_bytes: Bytes,
    /// The source location, as in rows.
    pub op: String,
    /// The call stack, innermost frame first.
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
