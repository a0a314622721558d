//! The size of a pool over time: what its snapshot or its replay knows, and readings of a counter only where neither does.

use super::counted::{BytesOverTime, LineSubject};
use crate::analysis::reading::Reading;
use crate::analysis::report::PoolAnalysis;
use crate::event::caching::{CallKind, Calls};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};

/// What a pool reserved over its trace, with the source that knows it; `None` where neither the trace nor an exact replay does.
pub(super) fn reserved(reading: &Reading, pool: &PoolAnalysis) -> Option<(LineSubject, BytesOverTime)> {
    let (host, traced) = pool.trace_in(reading)?;
    let trace = &host.trace;
    let clock = |time: Picos| time.on_clock(trace.history.origin).0;
    if let Some(caching) = trace.history.pool(traced.id).and_then(|facts| facts.caching.as_ref()) {
        let points = by_calls(trace, traced, &caching.calls);
        return Some((
            LineSubject::ReservedBySnapshot,
            points.map(|(time, bytes)| (clock(time), bytes)).collect(),
        ));
    }
    let replayed = pool.replay.as_ref().filter(|replayed| replayed.is_exact)?;
    // A report replays the first trace of a process; a later one begins with a pool of unknown size.
    let first = host.process.and_then(|process| reading.host_of(process)).map_or(host, |(_, first)| first);
    if !std::ptr::eq(first, host) || replayed.taken.is_empty() {
        return None;
    }
    // Regions that went back to the driver are not subtracted from the growths.
    let point = |&(time, bytes): &(Picos, Bytes)| (clock(time), bytes.min(replayed.pool).0);
    Some((LineSubject::ReservedByReplay, replayed.taken.iter().map(point).collect()))
}

/// The reserved bytes of a caching allocator from the first event on, after each of its calls to the driver.
///
/// A call has no time of its own, only the event that follows it: a segment is there from that event on.
fn by_calls(trace: &Trace, pool: &PoolTrace, calls: &Calls) -> impl Iterator<Item = (Picos, u64)> {
    let events = &trace.history.events;
    let earlier: Bytes = calls.earlier.iter().map(|segment| segment.size).sum();
    let mut reserved = earlier.0.saturating_add(calls.earlier_expandable.0);
    let last = pool.event_count().saturating_sub(1);
    let begin = (pool.time(events, 0), reserved);
    let after = calls.list.iter().filter_map(move |call| {
        reserved = match call.kind {
            CallKind::SegmentAlloc | CallKind::SegmentMap => reserved.saturating_add(call.size.0),
            CallKind::SegmentFree | CallKind::SegmentUnmap => reserved.saturating_sub(call.size.0),
            CallKind::LetGo | CallKind::Complete | CallKind::OutOfMemory => return None,
        };
        Some((pool.time(events, (call.event as usize).min(last)), reserved))
    });
    std::iter::once(begin).chain(after)
}
