//! Pools of frameworks by driver calls: which memory that a process took from the driver is the pool, and the peak where only calls tell it.
//!
//! A block of the pool lies in memory that the pool reserved. What was reserved while no trace was written is recognised by the library
//! that reserved it.

use super::accounts::Accounts;
use super::headline::SILENT_ALLOCATORS;
use super::report::{PoolAnalysis, ReportAnalysis};
use crate::event::caching::{Call, CallKind};
use crate::recording::reader::RecordedProcess;
use crate::trace::driver_holdings::DriverHoldings;
use crate::trace::{PoolTrace, Trace};
use crate::units::Picos;
use crate::warning::Warning;

/// Marks the framework's pool on a device among everything that the process took from the driver.
pub(super) fn claim(
    holdings: &mut DriverHoldings,
    device: u16,
    traces: &[&Trace],
    process: Option<&RecordedProcess>,
) {
    let Some(framework) = process.and_then(|process| process.facts.known_framework()) else { return };
    let name = format!("GPU:{device}");
    let all = traces.iter().flat_map(|&trace| trace.pools.iter().map(move |pool| (trace, pool)));
    let pools: Vec<(&Trace, &PoolTrace)> =
        all.filter(|(trace, pool)| trace.device_of(pool) == name).collect();
    let shown: Vec<(i64, i64)> = pools.iter().filter_map(|(trace, pool)| span(trace, pool)).collect();
    let segments = pools.iter().flat_map(|(trace, pool)| segments(trace, pool));
    let blocks = pools.iter().flat_map(|(trace, pool)| blocks(trace, pool));
    let segments = segments.map(|address| (address, None));
    let blocks = blocks.map(|(address, time)| (address, Some(time)));
    holdings.claim(device, framework, segments.chain(blocks), &shown);
}

/// A moment of a trace on the monotonic clock.
fn monotonic(trace: &Trace, time: Picos) -> Option<i64> {
    let zero = trace.history.monotonic_zero?;
    Some(zero.0.saturating_add(time.on_clock(trace.history.origin).0))
}

/// From when to when a trace shows every block of a pool.
fn span(trace: &Trace, pool: &PoolTrace) -> Option<(i64, i64)> {
    let events = &trace.history.events;
    let first = monotonic(trace, pool.time(events, 0))?;
    Some((first, monotonic(trace, pool.last_time(events))?))
}

/// Where a caching allocator reserved memory, as far as its history tells.
fn segments<'a>(trace: &'a Trace, pool: &PoolTrace) -> impl Iterator<Item = u64> + 'a {
    let facts = trace.history.pool(pool.id).and_then(|pool| pool.caching.as_ref());
    let earlier = facts.into_iter().flat_map(|caching| &caching.calls.earlier).map(|segment| segment.base);
    let is_segment = |call: &&Call| matches!(call.kind, CallKind::SegmentAlloc | CallKind::SegmentMap);
    let later = facts.into_iter().flat_map(|caching| &caching.calls.list).filter(is_segment);
    earlier.chain(later.map(|call| call.address))
}

/// Where blocks of a pool lay, and when they were allocated.
fn blocks<'a>(trace: &'a Trace, pool: &'a PoolTrace) -> impl Iterator<Item = (u64, i64)> + 'a {
    let of_event = move |event: usize| {
        let event = trace.history.events.at(event);
        Some((event.address()?, monotonic(trace, event.time())?))
    };
    pool.births().filter_map(of_event)
}

impl ReportAnalysis {
    /// Gives pools the peak that only driver calls tell: those of `cudaMallocAsync`, which records no events.
    pub(super) fn add_pools_by_calls(&mut self, accounts: &Accounts<'_>) {
        for (device, pid, most) in accounts.used_by_calls() {
            let is_it = |pool: &&mut PoolAnalysis| {
                pool.device == device && pool.pid.is_none_or(|of| of == u64::from(pid))
            };
            match self.pools.iter_mut().find(is_it) {
                Some(pool) => pool.peak = pool.peak.or(Some(most)),
                None => {
                    let mut pool = PoolAnalysis::bare(device, device);
                    (pool.pid, pool.peak) = (Some(u64::from(pid)), Some(most));
                    self.pools.push(pool);
                }
            }
            // The pool is known after all.
            self.warnings.retain(|warning| !SILENT_ALLOCATORS.contains(&warning.code));
            self.warnings.push(Warning {
                code: "pool-by-calls",
                text: format!(
                    "{device}: the program allocates with cudaMallocAsync, which records no events; the size of the pool and the bytes \
                     in use are those of recorded driver calls, so a short peak between two of them is not visible"
                ),
                hint: String::new(),
            });
        }
        self.pools.sort_by_key(PoolAnalysis::order);
    }
}
