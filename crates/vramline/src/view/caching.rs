//! What a caching allocator keeps from the driver: the parts of a report that only PyTorch's snapshots have.

use serde::Serialize;

use crate::event::{Cached, Caching, History};
use crate::units::{Bytes, Nanos, Picos};

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct CachingView {
    pub reserved_peak_bytes: Bytes,
    pub reserved_peak_at_ns: Option<Nanos>,
    pub active_peak_bytes: Bytes,
    pub split_peak_bytes: Bytes,
    pub moments: Vec<CachedView>,
    pub streams: Vec<StreamView>,
    pub failures: Vec<FailureView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct CachedView {
    pub when: &'static str,
    pub reserved_bytes: Bytes,
    pub active_bytes: Bytes,
    pub allocated_bytes: Bytes,
    pub pending_bytes: Bytes,
    pub whole_segments_bytes: Bytes,
    pub split_remainders_bytes: Bytes,
    pub expandable_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct StreamView {
    pub stream: i64,
    pub private_pool: String,
    pub segments: u64,
    pub expandable_segments: u64,
    pub reserved_bytes: Bytes,
    pub allocated_bytes: Bytes,
    pub active_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FailureView {
    pub at_ns: Nanos,
    pub asked_bytes: Option<Bytes>,
    pub device_free_bytes: Option<Bytes>,
    pub allocated_bytes: Bytes,
    pub reserved_bytes: Bytes,
    pub op: String,
    pub stack: Vec<String>,
}

pub(crate) fn view(caching: &Caching, history: &History) -> CachingView {
    let clock = |time: Picos| time.on_clock(history.origin);
    let moments =
        [("peak", caching.at_peak), ("reserved-peak", caching.at_reserved_peak), ("end", caching.at_end)];
    CachingView {
        reserved_peak_bytes: caching.reserved_peak,
        reserved_peak_at_ns: caching.reserved_peak_time.map(clock),
        active_peak_bytes: caching.active_peak,
        split_peak_bytes: caching.split_peak,
        moments: moments.into_iter().map(|(when, cached)| moment(when, &cached)).collect(),
        streams: caching
            .streams
            .iter()
            .map(|used| StreamView {
                stream: used.stream,
                private_pool: used
                    .private_pool
                    .map_or(String::new(), |(one, other)| format!("{one}.{other}")),
                segments: used.segments,
                expandable_segments: used.expandable_segments,
                reserved_bytes: used.reserved,
                allocated_bytes: used.allocated,
                active_bytes: used.active,
            })
            .collect(),
        failures: caching
            .failures
            .iter()
            .map(|failure| FailureView {
                at_ns: clock(failure.time),
                asked_bytes: failure.asked,
                device_free_bytes: failure.device_free,
                allocated_bytes: failure.allocated,
                reserved_bytes: failure.reserved,
                op: history.names.get(failure.op).to_owned(),
                stack: history.stacks.texts(failure.stack, &history.names),
            })
            .collect(),
    }
}

fn moment(when: &'static str, cached: &Cached) -> CachedView {
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
