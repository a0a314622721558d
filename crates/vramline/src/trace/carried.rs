//! Variables that were in a pool before a window began: in use, but without an allocation event.
//!
//! The program lists its variables with their addresses. A variable counts as a block from before the window if it was listed while the
//! window was open, or at the same address before and after it, and no event of the window put another block there. Only the bytes of its
//! value are known; the rounding of its chunk stays with the other bytes from before the window.

use rustc_hash::{FxHashMap, FxHashSet};

use super::PoolTrace;
use super::owners::{LayerNames, Owner};
use super::recorded::{last_roles, moment, owner_of};
use crate::event::{Dtype, History, PoolId};
use crate::names::Name;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Inventory, Variable};
use crate::snapshot::Held;
use crate::units::{Bytes, Picos};

const SINCE_BEFORE: &str =
    "in the program's list of variables, at an address that was in use before the recording";

/// Every block of the pool allocator begins at a multiple of this from the start of its region.
const CHUNK_STEP: u64 = 256;

/// A variable in a pool since before the trace.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pool: PoolId,
    pub(super) owner: Owner,
    shape: Name,
    dtype: Dtype,
    /// The position at which it is freed.
    freed_at: Option<usize>,
}

impl Carried {
    /// Whether it is there at a position of a pool.
    pub(super) fn is_at(&self, pool: &PoolTrace, position: usize) -> bool {
        self.pool == pool.id && self.freed_at.is_none_or(|freed| position < freed)
    }

    /// The bytes of its value.
    pub(super) fn bytes(&self) -> Bytes {
        self.owner.bytes.unwrap_or_default()
    }

    pub(super) fn held(&self) -> Held {
        Held {
            role: self.owner.role,
            shape: self.shape,
            dtype: self.dtype,
            variable: self.owner.variable.clone(),
            variable_number: self.owner.number,
            layer: self.owner.layer.clone(),
            source: self.owner.source.clone(),
            ..Held::bare(self.bytes(), self.bytes(), SINCE_BEFORE)
        }
    }
}

/// The variables that lay in the pools of a trace since before it began, the largest first.
pub(super) fn carried(
    process: &RecordedProcess,
    history: &History,
    pools: &[PoolTrace],
    device_of: impl Fn(&PoolTrace) -> String,
    end: Option<Picos>,
    earlier: &[PoolRange],
) -> Vec<Carried> {
    let layers = LayerNames::of(process, history);
    let roles = last_roles(process, &layers);
    let mut found = Vec::new();
    for pool in pools.iter().filter(|pool| pool.count.from_start == Some(false)) {
        let device = device_of(pool);
        let mut seen = SeenBlocks::of(history, pool, device.clone());
        // A short trace touches only a part of its pool.
        earlier.iter().filter(|range| range.device == device).for_each(|range| seen.range.widen(range));
        let mut taken: FxHashSet<u64> = FxHashSet::default();
        for (variable, told_at) in candidates(&process.inventories, history, pool, end) {
            let Some(address) = variable.address else { continue };
            let is_here = variable.device.as_deref() == Some(device.as_str()) && variable.bytes > Bytes::ZERO;
            let is_possible = is_here && (!device.starts_with("CPU") || seen.range.has(address));
            let Some(freed_at) = seen.since_before(address, variable.bytes, told_at).filter(|_| is_possible)
            else {
                continue;
            };
            // Several variables may share one value.
            if taken.insert(address) {
                let mut owner = owner_of(variable, &layers);
                owner.role = roles.get(&owner.identity()).copied().unwrap_or(owner.role);
                let dtype = variable.dtype.as_deref().unwrap_or_default();
                found.push(Carried {
                    pool: pool.id,
                    owner,
                    shape: variable
                        .shape
                        .as_deref()
                        .and_then(|shape| history.names.find(shape))
                        .unwrap_or(Name::EMPTY),
                    dtype: Dtype::ALL.into_iter().find(|known| known.word() == dtype).unwrap_or_default(),
                    freed_at,
                });
            }
        }
    }
    found.sort_by_key(|carried| std::cmp::Reverse(carried.bytes()));
    found
}

/// Variables that may be from before a trace, each with the position of the pool at which it was listed; `None` where it was listed in the
/// same place before the trace and after it.
fn candidates<'a>(
    inventories: &'a [Inventory],
    history: &History,
    pool: &PoolTrace,
    end: Option<Picos>,
) -> Vec<(&'a Variable, Option<usize>)> {
    let begin = Picos(0).min(pool.time(&history.events, 0));
    let end = end.unwrap_or_else(|| pool.last_time(&history.events)).max(pool.last_time(&history.events));
    let (mut within, mut before, mut after) = (Vec::new(), None, None);
    for inventory in inventories {
        let Some(time) = moment(history, inventory.time) else { continue };
        if time < begin {
            before = Some(inventory);
        } else if time <= end {
            within.push((inventory, pool.position_at(&history.events, time).unwrap_or(0)));
        } else {
            after = after.or(Some(inventory));
        }
    }
    // A variable may be given another value in the trace: where it lay before, an earlier list says.
    if !within.is_empty() {
        let listed = within.into_iter().rev().flat_map(|(inventory, position)| {
            inventory.variables.iter().map(move |variable| (variable, Some(position)))
        });
        return listed.collect();
    }
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let key = |variable: &'a Variable| (variable.address, variable.name.as_str(), variable.bytes);
    let later: FxHashSet<_> = after.variables.iter().map(key).collect();
    let stayed = before.variables.iter().filter(|variable| later.contains(&key(variable)));
    stayed.map(|variable| (variable, None)).collect()
}

/// What the events of a pool show about addresses.
struct SeenBlocks {
    /// By address: the position of the first event there, and whether it frees.
    first: FxHashMap<u64, (usize, bool)>,
    /// Where blocks were allocated, in order of addresses, each with its end.
    allocated: Vec<(u64, u64)>,
    range: PoolRange,
}

/// Where a pool lies, as far as events show.
#[derive(Clone, Debug)]
pub(crate) struct PoolRange {
    device: String,
    lowest: u64,
    highest: u64,
    /// What is left of its addresses after a division by [`CHUNK_STEP`].
    remainders: FxHashSet<u64>,
}

impl PoolRange {
    fn nothing(device: String) -> PoolRange {
        PoolRange { device, lowest: u64::MAX, highest: 0, remainders: FxHashSet::default() }
    }

    /// The range of a pool in a trace.
    pub(super) fn of(history: &History, pool: &PoolTrace, device: String) -> PoolRange {
        let mut range = PoolRange::nothing(device);
        for event in pool.events_in_order() {
            let event = history.events.at(event);
            if let Some(address) = event.address() {
                range.add(address, address.saturating_add(event.size().unwrap_or_default().0));
            }
        }
        range
    }

    fn add(&mut self, address: u64, end: u64) {
        self.lowest = self.lowest.min(address);
        self.highest = self.highest.max(end);
        self.remainders.insert(address % CHUNK_STEP);
    }

    fn widen(&mut self, other: &PoolRange) {
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.remainders.extend(&other.remainders);
    }

    /// Whether an address of host memory may be one of the pool's: tensors on the host may also lie elsewhere.
    fn has(&self, address: u64) -> bool {
        (self.lowest..self.highest).contains(&address) && self.remainders.contains(&(address % CHUNK_STEP))
    }
}

impl SeenBlocks {
    fn of(history: &History, pool: &PoolTrace, device: String) -> SeenBlocks {
        let mut seen = SeenBlocks {
            first: FxHashMap::default(),
            allocated: Vec::new(),
            range: PoolRange::nothing(device),
        };
        for (position, event) in pool.events_in_order().enumerate() {
            let event = history.events.at(event);
            let Some(address) = event.address() else { continue };
            let end = address.saturating_add(event.size().unwrap_or_default().0);
            seen.first.entry(address).or_insert((position, !event.is_alloc()));
            if event.is_alloc() {
                seen.allocated.push((address, end));
            }
            seen.range.add(address, end);
        }
        // Of blocks one after another in the same place the largest counts.
        seen.allocated.sort_unstable();
        let mut reach = 0;
        for (_, end) in &mut seen.allocated {
            reach = reach.max(*end);
            *end = reach;
        }
        seen
    }

    /// Where a block that lay at an address when the position `told_at` was reached lies since before the trace: where it is freed in
    /// the trace. `None` where it does not.
    fn since_before(&self, address: u64, bytes: Bytes, told_at: Option<usize>) -> Option<Option<usize>> {
        let end = address.saturating_add(bytes.0);
        match self.first.get(&address) {
            // The first that is heard of it is its end.
            Some(&(freed_at, true)) => told_at.is_some_and(|told| told < freed_at).then_some(Some(freed_at)),
            Some((_, false)) => None,
            None => {
                // The last block that begins before its end must end before it begins.
                let before = self.allocated.partition_point(|&(begin, _)| begin < end);
                let is_free = before
                    .checked_sub(1)
                    .and_then(|at| self.allocated.get(at))
                    .is_none_or(|&(_, reach)| reach <= address);
                is_free.then_some(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_reaches_as_far_as_all_traces_saw_it() {
        let mut short = PoolRange::nothing("CPU:0".to_owned());
        short.add(0x4000, 0x5000);
        let mut first = PoolRange::nothing("CPU:0".to_owned());
        first.add(0x1000, 0x1100);
        first.add(0x9040, 0x9100);
        assert!(short.has(0x4f00) && !short.has(0x1000) && !short.has(0x9000));
        short.widen(&first);
        assert!(short.has(0x1000) && short.has(0x9000) && short.has(0x2040));
        // Blocks of the pool begin elsewhere within their steps.
        assert!(!short.has(0x2080) && !short.has(0x9100) && !short.has(0xf00));
    }
}
