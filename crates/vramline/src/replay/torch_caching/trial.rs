//! Acts tried with other settings or another driver.

use super::{give, prepare, seed};
use crate::allocator::torch_caching::{Options, PoolId, Request, Ticket};
use crate::allocator::{Placed, Placement, Supplier};
use crate::replay::program::{Act, ActKind, Program};
use crate::replay::what_if::{Driven, Failure};
use crate::units::Bytes;

/// The most that other settings take from a driver that has enough.
pub(in super::super) fn most_taken(program: &Program, options: Options) -> Bytes {
    let supplier = &mut Placed::new(Placement::Ascending);
    let returns = Returns::default();
    drive(program, &program.acts, Before::Asked(&[]), options, &returns, supplier, |_, _| ()).pool
}

/// How what was there before the trace comes into a pool with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Before<'a> {
    /// It lies where it was.
    Seeded,
    /// It is asked for first, but for blocks in these slots.
    Asked(&'a [bool]),
}

/// What the program gave back without need.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Returns<'a> {
    /// The acts before which everything idle goes.
    pub(in super::super) flushes: &'a [usize],
    /// Private pools that are not used from an act on.
    pub(in super::super) unused_pools: &'a [(usize, PoolId)],
}

/// Runs acts with other settings or another driver until the first request that fails; one that failed in the trace may
/// fail again. Tells what is allocated after each request.
pub(in super::super) fn drive(
    program: &Program,
    acts: &[Act],
    before: Before<'_>,
    options: Options,
    returns: &Returns<'_>,
    supplier: &mut impl Supplier,
    mut tell: impl FnMut(usize, Bytes),
) -> Driven {
    let (mut allocator, lanes) = prepare(program, options);
    let mut tickets = vec![Ticket::NONE; program.slots];
    let mut failure = None;
    match before {
        Before::Seeded => seed(program, &mut allocator, &lanes, &mut tickets),
        Before::Asked(gone) => {
            for (segment, slots) in &program.driver.segments {
                let Some(&Some(lane)) = lanes.get(usize::from(segment.lane)) else { continue };
                for (&slot, &(_, size, requested)) in slots.iter().zip(&segment.held) {
                    if gone.get(slot as usize).copied().unwrap_or(false) {
                        continue;
                    }
                    let bytes = requested.unwrap_or(size);
                    match allocator.allocate(Request::of(bytes, lane), supplier) {
                        Ok(made) => {
                            if let Some(ticket) = tickets.get_mut(slot as usize) {
                                *ticket = made.ticket;
                            }
                        }
                        Err(_) => {
                            failure.get_or_insert(Failure::of(None, bytes, &allocator));
                        }
                    }
                }
            }
        }
    }
    let mut flushes = returns.flushes.iter().copied().peekable();
    let mut unused_pools = returns.unused_pools.iter().copied().peekable();
    let acts = if failure.is_none() { acts } else { &[] };
    'acts: for (at, &act) in acts.iter().enumerate() {
        while let Some((_, pool)) = unused_pools.next_if(|&(from, _)| from <= at) {
            allocator.release_pool(pool);
        }
        while flushes.next_if(|&flush| flush <= at).is_some() {
            allocator.empty_cache(supplier);
        }
        let Some(bytes) = act.asked() else {
            give(&mut allocator, &mut tickets, act);
            continue;
        };
        let Some(&Some(lane)) = lanes.get(act.lane()) else { continue };
        match allocator.allocate(Request::of(bytes, lane), supplier) {
            Ok(made) if act.kind() == ActKind::Fail => {
                // Nobody has it in the trace.
                let _ = allocator.free(made.ticket);
            }
            Ok(made) => {
                if let Some(ticket) = tickets.get_mut(act.slot()) {
                    *ticket = made.ticket;
                }
            }
            Err(_) => {
                failure.get_or_insert(Failure::of(Some(at), bytes, &allocator));
                if act.kind() == ActKind::Request {
                    break;
                }
            }
        }
        tell(at, Bytes(allocator.stats().allocated_bytes.current()));
        let mut brief = Vec::new();
        for &bytes in program.at_once(at) {
            match allocator.allocate(Request::of(bytes, lane), supplier) {
                Ok(made) => brief.push(made.ticket),
                Err(_) => {
                    failure.get_or_insert(Failure::of(Some(at), bytes, &allocator));
                    break 'acts;
                }
            }
        }
        if !brief.is_empty() {
            tell(at, Bytes(allocator.stats().allocated_bytes.current()));
        }
        for ticket in brief.into_iter().rev() {
            let _ = allocator.free(ticket);
        }
    }
    let stats = allocator.stats();
    Driven {
        peak: Bytes(stats.allocated_bytes.peak()),
        pool: Bytes(stats.reserved_bytes.peak()),
        retries: stats.num_alloc_retries,
        returned: stats.num_device_free,
        regions: allocator.growths().len(),
        failure,
        waits: None,
    }
}
