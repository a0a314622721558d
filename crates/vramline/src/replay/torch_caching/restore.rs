//! Finds the requests with which PyTorch restores a private pool.
//!
//! `torch.compile` with CUDA graphs keeps checkpoints of its private pool and returns to one before it captures another branch. PyTorch
//! then frees every block of the pool, hands out each segment of the checkpoint again, block by block from its beginning to its end,
//! and frees the blocks that were free in the checkpoint. These requests do not search for the best block. Entries do not mark them; a
//! pool without live blocks whose segment is filled exactly, in order and without anything between, is taken for a restored one.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::event::caching::CallKind;
use crate::replay::program::{Act, ActKind, Program};

/// The state of private pools along a program.
#[derive(Default)]
struct Pools {
    /// Ends and pools of segments, by address.
    segments: BTreeMap<u64, (u64, u32)>,
    /// Live blocks by slot: their pool.
    slots: FxHashMap<usize, u32>,
    /// How many blocks are live, by pool.
    live: FxHashMap<u32, u64>,
}

impl Pools {
    fn step(&mut self, act: Act, pool: u32) {
        if act.requested().is_some() && pool != 0 {
            self.slots.insert(act.slot(), pool);
            *self.live.entry(pool).or_default() += 1;
        } else if act.ends()
            && let Some(pool) = self.slots.remove(&act.slot())
            && let Some(live) = self.live.get_mut(&pool)
        {
            *live -= 1;
        }
    }
}

/// The acts that restore private pools, in ascending order.
pub(super) fn restores(program: &Program) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let lanes = &program.driver.lanes;
    if lanes.iter().all(|lane| lane.0 == 0) {
        return found;
    }
    let pool_of = |act: Act| lanes.get(act.lane()).map_or(0, |lane| lane.0);
    let mut pools = Pools::default();
    for (segment, _) in &program.driver.segments {
        let pool = lanes.get(usize::from(segment.lane)).map_or(0, |lane| lane.0);
        pools.segments.insert(segment.base, (segment.base.saturating_add(segment.size.0), pool));
    }
    let mut calls = program.driver.calls.iter().peekable();
    let mut at = 0;
    while let Some(&act) = program.acts.get(at) {
        while let Some(call) = calls.next_if(|call| call.before as usize <= at) {
            match call.kind {
                CallKind::SegmentAlloc => {
                    let end = call.address.saturating_add(call.size);
                    pools.segments.insert(call.address, (end, pool_of(act)));
                }
                CallKind::SegmentFree => {
                    pools.segments.remove(&call.address);
                }
                _ => {}
            }
        }
        let pool = if act.requested().is_some() { pool_of(act) } else { 0 };
        let next_call = calls.peek().map_or(usize::MAX, |call| call.before as usize);
        let is_empty = pool != 0 && pools.live.get(&pool).is_none_or(|&live| live == 0);
        let mut end = at;
        while is_empty && let Some(filled) = fills(program, &pools, end, pool, next_call) {
            found.extend(u32::try_from(end).ok().zip(u32::try_from(filled).ok()).map(|(from, to)| from..to));
            end = filled;
            // The blocks that were free in the checkpoint.
            while program.acts.get(end).is_some_and(|act| act.kind() == ActKind::Free) {
                end += 1;
            }
        }
        end = end.max(at + 1);
        for &act in program.acts.get(at..end).unwrap_or_default() {
            pools.step(act, if act.requested().is_some() { pool_of(act) } else { 0 });
        }
        at = end;
    }
    found
}

/// The end of requests from an act on that fill a segment of a pool exactly.
fn fills(program: &Program, pools: &Pools, from: usize, pool: u32, next_call: usize) -> Option<usize> {
    let first = program.answers.get(from)?.address;
    let &(end, owner) = pools.segments.get(&first)?;
    if owner != pool {
        return None;
    }
    let mut address = first;
    let mut at = from;
    while address < end {
        let (act, answer) = (program.acts.get(at)?, program.answers.get(at)?);
        let lane = program.driver.lanes.get(act.lane())?;
        // A call to the driver before the first of them was made before.
        if answer.address != address || lane.0 != pool || at >= next_call {
            return None;
        }
        address = address.checked_add(act.requested()?.0)?;
        at += 1;
    }
    (address == end && at > from).then_some(at)
}
