//! What the trace of a process knows of its failures: the ops of the chunks that a dump lists, and which refused requests were served
//! later.
//!
//! A dump has the moment in its name and addresses without ops; the trace has an op for each address at that moment. A thread that
//! waits for memory does nothing else: the request that it waits with is the thread's next event, and there was no room for it then.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::EventRef;
use crate::failure::{Dialect, Failure, Failures, SizeRange, rounded};
use crate::names::{Name, Names};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};

/// Failures whose chunks are named; more of one process tell of the same blocks.
const MOST_NAMED: usize = 64;

/// A request waits ten seconds for others to free memory, and a little passes until it is served.
const LONGEST_WAIT_PICOS: i64 = 12 * 1_000_000_000_000;

/// How far an event may stand from where its time puts it: the pool's lock and the clock are not taken at once.
const FARTHEST: usize = 64;

/// Adds to failures what the traces of their process know. Says of each whether a trace shows that it was served later; attempts of one
/// request become one failure.
pub fn explain(traces: &[&Trace], failures: &mut Failures) -> Vec<bool> {
    let mut served_by: Vec<Option<(usize, usize)>> = vec![None; failures.list.len()];
    let Failures { list, names, .. } = &mut *failures;
    let mut named = 0;
    for (failure, served_by) in list.iter_mut().zip(&mut served_by) {
        for (number, &trace) in traces.iter().enumerate() {
            let Some(pool) = pool_of(trace, failure) else { continue };
            if failure.layout.is_some()
                && named < MOST_NAMED
                && let Some(position) = position(trace, pool, failure)
            {
                named += 1;
                name_chunks(trace, pool, position, failure, names);
            }
            if failure.dialect == Dialect::MemoryDump && served_by.is_none() {
                *served_by = serve(trace, pool, failure).map(|request| (number, request));
            }
        }
    }
    join_attempts(failures, &mut served_by);
    served_by.iter().map(Option::is_some).collect()
}

/// The pool of a failure in a trace of its process.
pub(crate) fn pool_of<'a>(trace: &'a Trace, failure: &Failure) -> Option<&'a PoolTrace> {
    let name = failure.allocator.as_deref()?;
    let is_it = |pool: &&PoolTrace| trace.history.pool(pool.id).is_some_and(|facts| facts.name == name);
    trace.pools.iter().find(is_it)
}

/// The moment of the last dump on the trace's clock.
fn moment(trace: &Trace, failure: &Failure) -> Option<Picos> {
    let history = &trace.history;
    let wall = i64::try_from(failure.last_dump_micros()?).ok()?.checked_mul(1000)?;
    let since = wall.checked_sub(history.wall_clock_zero?.0)?.checked_sub(history.origin.0)?;
    Some(Picos(since.checked_mul(1000)?))
}

/// The position in the pool's events at which the request failed: at that moment, and with what the pool says was in use. Without a
/// moment, the last position with that much in use. `None` where the trace does not show it.
pub(crate) fn position(trace: &Trace, pool: &PoolTrace, failure: &Failure) -> Option<usize> {
    let events = &trace.history.events;
    let in_use = failure.in_use.and_then(SizeRange::value)?;
    let count = pool.event_count();
    let is_it = |at: &usize| *at < count && pool.in_use_at(events, *at) == in_use;
    let Some(time) = moment(trace, failure) else { return (0..count).rev().find(is_it) };
    let near = pool.position_at(events, time)?;
    let around = (0..=FARTHEST).flat_map(|far| [near.checked_sub(far), near.checked_add(far)]);
    around.flatten().find(is_it)
}

/// Names the chunks of a dump by the allocations that the trace has there at that moment.
fn name_chunks(trace: &Trace, pool: &PoolTrace, position: usize, failure: &mut Failure, names: &mut Names) {
    let history = &trace.history;
    let ops: FxHashMap<(u64, Bytes), Name> = pool
        .live_at(position)
        .filter_map(|event| {
            let event = history.events.at(event);
            Some(((event.address()?, event.chunk()?), event.op_or_scope()))
        })
        .collect();
    let regions = failure.layout.iter_mut().flat_map(|layout| &mut layout.regions);
    let chunks = regions.flat_map(|region| &mut region.chunks);
    for chunk in chunks.filter(|chunk| chunk.in_use && chunk.op == Name::EMPTY) {
        if let Some(&op) = ops.get(&(chunk.address, chunk.size)) {
            chunk.op = names.intern(history.names.get(op));
        }
    }
}

/// Looks for the request that a dump is of, among those that the trace shows to be served after it; gives its place.
fn serve(trace: &Trace, pool: &PoolTrace, failure: &mut Failure) -> Option<usize> {
    let time = moment(trace, failure)?;
    let position = pool.position_at(&trace.history.events, time)?;
    // What would have been served at once.
    let left = failure.unallocated?.in_granules().high;
    let room = failure.largest_free?.high.max(left);
    let events = &trace.history.events;
    let mut has_gone_on: FxHashSet<Name> = FxHashSet::default();
    for (number, event) in pool.events_in_order().enumerate().skip(position + 1) {
        let event = events.at(event);
        if event.time().0.saturating_sub(time.0) > LONGEST_WAIT_PICOS {
            break;
        }
        let is_next = has_gone_on.insert(event.thread());
        let Some(asked) = asked(event).filter(|&asked| is_next && rounded(asked) > room) else { continue };
        failure.requested = Some(SizeRange::exact(asked));
        failure.rounded = Some(SizeRange::exact(rounded(asked)));
        let op = trace.history.names.get(event.op_or_scope());
        failure.op = failure.op.take().or_else(|| Some(op.to_owned()).filter(|op| !op.is_empty()));
        return Some(number);
    }
    None
}

fn asked(event: EventRef<'_>) -> Option<Bytes> {
    event.requested().or(event.chunk()).filter(|_| event.is_alloc())
}

/// Dumps of one request in different states of the pool are its attempts: the first tells the failure.
fn join_attempts(failures: &mut Failures, served_by: &mut Vec<Option<(usize, usize)>>) {
    let mut first: FxHashMap<(Option<String>, (usize, usize)), usize> = FxHashMap::default();
    let mut kept: Vec<Failure> = Vec::new();
    let mut kept_by = Vec::new();
    for (failure, by) in std::mem::take(&mut failures.list).into_iter().zip(served_by.drain(..)) {
        if let Some(by) = by {
            let at = *first.entry((failure.allocator.clone(), by)).or_insert(kept.len());
            if let Some(known) = kept.get_mut(at) {
                known.attempts = known.attempts.saturating_add(failure.attempts);
                known.witnesses.extend(failure.witnesses);
                continue;
            }
        }
        kept.push(failure);
        kept_by.push(by);
    }
    failures.list = kept;
    *served_by = kept_by;
}
