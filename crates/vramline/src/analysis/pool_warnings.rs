//! What the reader of a report should know of a pool's trace: what it does not show, and where it contradicts itself.

use super::held::HeldRows;
use super::reading::Host;
use crate::event::History;
use crate::trace::PoolTrace;
use crate::units::{Nanos, plural};
use crate::warning::Warning;

/// The warnings about a pool; `at` is the requested moment.
pub(super) fn warnings(
    host: &Host,
    pool: &PoolTrace,
    at_peak: Option<&HeldRows>,
    at: Option<Nanos>,
) -> Vec<Warning> {
    let (trace, name) = (&host.trace, host.pool_name(pool));
    let history = &trace.history;
    let mut warnings = Vec::new();
    let last = pool.last_time(&history.events).on_clock(history.origin);
    if at.is_some_and(|at| at > last) {
        let text = format!("{name}: the trace ends at {last}, so the report shows that moment");
        warnings.push(Warning { code: "after-the-trace", text, hint: String::new() });
    }
    let has_few_names = at_peak.is_some_and(|at| at.unnamed.0 > at.named.0 / 10);
    // A pool that is tiny compared with the largest needs no warning.
    let largest = trace.pools.first().and_then(PoolTrace::peak).map_or(0, |peak| peak.bytes.0);
    if pool.peak().is_some_and(|peak| peak.bytes.0 >= largest / 100) {
        warnings.extend(trace.why_little(pool, has_few_names));
        // A later window always begins late.
        let is_later = host.window.as_ref().is_some_and(|window| window.number > 1);
        warnings.extend(trace.why_before(pool).filter(|_| !is_later));
    }
    warnings.extend(doubts(history, pool, name));
    warnings
}

/// Warnings where the allocator's count and the events contradict each other.
fn doubts(history: &History, pool: &PoolTrace, name: &str) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if let Some(first) = pool.count.first_disagreement {
        doubts.push(Warning {
            code: "count-disagrees",
            text: format!(
                "the allocator's count contradicts {} of {} events of '{name}'; first at {} ns: {} bytes expected, {} found",
                pool.count.disagreements,
                pool.allocs + pool.frees,
                first.time.on_clock(history.origin).0,
                first.expected.0,
                first.found.0
            ),
            hint: "events are missing: the profiler dropped some, or the file was cut or merged. Peaks are correct because the allocator \
                   counts them; the rows may lack blocks"
                .to_owned(),
        });
    }
    if pool.lost_frees > 0 {
        doubts.push(Warning {
            code: "lost-frees",
            text: format!(
                "{} reused without a free event in the trace, in '{name}'",
                plural(pool.lost_frees, "block was", "blocks were")
            ),
            hint: String::new(),
        });
    }
    if pool.without_address > 0 {
        doubts.push(Warning {
            code: "no-address",
            text: format!(
                "{} no address in '{name}', so allocations and frees cannot be matched",
                plural(pool.without_address, "event has", "events have")
            ),
            hint: "record with TensorFlow 2.3 or newer".to_owned(),
        });
    }
    doubts
}
