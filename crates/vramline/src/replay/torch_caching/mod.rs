//! PyTorch's own history through its allocator: is it reproduced, when did it grow and why, what would other settings do.
//!
//! A snapshot tells requests, frees and every call to the driver, in order. The driver's calls are followed in lock-step:
//! it gives what the trace says it gave, where the trace says so, and refuses where the trace gave something back first.
//! Everything else is computed: addresses, when to ask the driver and for how much, what to give back and in which order.
//! Each of these that differs from the trace is counted.
//!
//! Two things are not in a trace and are inferred. Memory that goes back without a request that needs it, or before one
//! that a free block could serve, was given back by `empty_cache()`. A block whose free completes later than it was
//! requested was used by another stream.

mod driver;
mod heap;
mod pools;
mod program;
mod restore;
mod run;
#[cfg(test)]
mod tests;
mod trial;

use rustc_hash::FxHashMap;

use super::program::{Act, ActKind, Program};
use crate::allocator::torch_caching::{Divisions, Lane, Options, PoolId, PoolOptions, Ticket, TorchCaching};
use crate::event::caching::{CallKind, CallSettings, Calls, EarlierSegment};
use crate::units::{Bytes, plural};
pub use driver::DriverExact;
pub(super) use program::other_program;
pub use program::program;
pub(crate) use run::Run;
pub use run::compare;
pub(super) use trial::{Before, Returns, drive, most_taken};

/// An allocator with every lane.
fn prepare(program: &Program, options: Options) -> (TorchCaching, Vec<Option<Lane>>) {
    let mut allocator = TorchCaching::new(options);
    let mut pools: FxHashMap<u32, PoolId> = FxHashMap::default();
    pools.insert(0, PoolId::DEFAULT);
    let mut lanes = Vec::with_capacity(program.driver.lanes.len());
    for &(pool, stream) in &program.driver.lanes {
        let pool = *pools.entry(pool).or_insert_with(|| allocator.add_pool(PoolOptions::default()));
        lanes.push(allocator.lane(pool, stream));
    }
    (allocator, lanes)
}

/// Restores the blocks from before the trace.
fn seed(program: &Program, allocator: &mut TorchCaching, lanes: &[Option<Lane>], tickets: &mut [Ticket]) {
    for (segment, slots) in &program.driver.segments {
        let Some(&Some(lane)) = lanes.get(usize::from(segment.lane)) else { continue };
        let EarlierSegment { is_small, base, size, ref held, .. } = *segment;
        let seeded = allocator.seed(lane, is_small, base, size, held).unwrap_or_default();
        for (&slot, ticket) in slots.iter().zip(seeded) {
            if let Some(place) = tickets.get_mut(slot as usize) {
                *place = ticket;
            }
        }
    }
}

/// The assumptions for a trace that begins late, in words.
#[must_use]
pub(super) fn assumed_before(calls: &Calls) -> Vec<String> {
    let held = calls.earlier.iter().flat_map(|segment| &segment.held);
    let (mut blocks, mut bytes) = (0_u64, Bytes::ZERO);
    for (_, size, _) in held {
        blocks += 1;
        bytes += *size;
    }
    let taken: Bytes = calls.earlier.iter().map(|segment| segment.size).sum();
    let mut words = vec![format!(
        "before the trace: {} ({taken}) with {bytes} in {}. This is the state at the end of the snapshot minus the changes in the trace",
        plural(calls.earlier.len(), "segment", "segments"),
        plural(blocks, "block", "blocks")
    )];
    if calls.earlier_expandable > Bytes::ZERO {
        words.push(format!(
            "{} in expandable segments before the trace are not modelled: their layout is unknown",
            calls.earlier_expandable
        ));
    }
    words
}

/// What is inferred about private pools, in words.
#[must_use]
pub(super) fn inferred_pools(program: &Program, driver: &DriverExact) -> Vec<String> {
    let mut words = Vec::new();
    if program.driver.inferred > 0 {
        words.push(format!(
            "the private pools of {} are inferred, because the snapshot only names the pools of segments that exist at its end",
            plural(program.driver.inferred, "segment that was returned", "segments that were returned")
        ));
    }
    if driver.restored > 0 {
        words.push(format!(
            "{} restored a private pool to a checkpoint: PyTorch does not search for a block then, so the addresses come from the trace",
            plural(driver.restored, "allocation", "allocations")
        ));
    }
    words
}

/// The options of an allocator with a snapshot's settings. A snapshot has neither the version, which decides between
/// equal blocks, nor a cap.
#[must_use]
pub fn options(settings: &CallSettings) -> Options {
    let mut divisions = Divisions::default();
    for (power, &parts) in settings.divisions.iter().enumerate().take(u64::BITS as usize) {
        let parts = u32::try_from(parts).ok().filter(|parts| parts.is_power_of_two());
        divisions.set(1 << power, parts.unwrap_or_default());
    }
    Options {
        max_split: settings.max_split,
        divisions,
        garbage_collection_threshold: settings.garbage_collection_threshold,
        expandable: settings.expandable,
        ..Options::default()
    }
}

/// A device's memory, as the addresses of segments that grow tell it: each has address space for nine eighths of it.
#[must_use]
pub(super) fn device_total(program: &Program) -> Option<Bytes> {
    /// What lies farther apart than this is not one segment, in all likelihood.
    const APART: u64 = 4 << 30;
    let maps = program.driver.calls.iter().filter(|call| call.kind == CallKind::SegmentMap);
    let mut maps: Vec<(u64, u64)> = maps.map(|call| (call.address, call.size)).collect();
    maps.sort_unstable();
    let mut base = maps.first()?.0;
    let mut end = base;
    let mut space: Option<u64> = None;
    for (address, size) in maps {
        if address.saturating_sub(end) > APART {
            let apart = address.saturating_sub(base);
            space = Some(space.map_or(apart, |least| least.min(apart)));
            base = address;
        }
        end = end.max(address.saturating_add(size));
    }
    // Rounded up to whole pages, it may take a page more.
    space.map(|space| Bytes(space.saturating_sub(32 << 20) / 9 * 8))
}

/// Frees, lets go of, or completes what is in a slot.
#[inline]
fn give(allocator: &mut TorchCaching, tickets: &mut [Ticket], act: Act) {
    let Some(ticket) = tickets.get_mut(act.slot()) else { return };
    // A block that found no room has nothing to free, and one may have been waited for already.
    let _ = match act.kind() {
        ActKind::LetGo => allocator.request_free(*ticket),
        ActKind::Complete => allocator.complete_free(std::mem::replace(ticket, Ticket::NONE)),
        _ => allocator.free(std::mem::replace(ticket, Ticket::NONE)),
    };
}
