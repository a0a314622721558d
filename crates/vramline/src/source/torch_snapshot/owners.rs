//! Pool and stream of every segment at every moment of a trace.
//!
//! A snapshot names the pools of the segments that exist at its end. The driver gives addresses out again, so an address may have
//! belonged to another pool before. The trace is therefore walked backwards once, by its calls to the driver only: a segment of the
//! end begins with the last call that took its address, and what was returned before belonged to someone else. Whose that was is not
//! in the snapshot if its entries do not name pools; such a segment counts to the default pool here, and a replay decides.

use std::collections::BTreeMap;

use super::reading::Segment;
use super::value::{ABSENT, Action};

/// Ranges of one expandable segment lie closer together than this, and two such segments farther apart: each has address space for
/// more than the memory of the device.
const APART: u64 = 4 << 30;

/// A range of addresses with its pool and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    end: u64,
    pub(super) pool: u32,
    pub(super) stream: u64,
}

/// A call to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverEntry {
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Its pool and stream, if the entry has them.
    pub(super) pool: Option<u32>,
    pub(super) stream: Option<u64>,
}

/// Whether an entry is a call to the driver.
pub(super) fn is_driver_call(action: Action) -> bool {
    matches!(action, Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap)
}

/// The owners of segments, moving along the trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    now: BTreeMap<u64, Owner>,
    /// Pools of the segments that are still to be taken, the next one last.
    coming: Vec<u32>,
}

impl Owners {
    /// The owners at the end of a trace. Pools are numbers; 0 is the default pool.
    pub(super) fn at_end<'a>(segments: impl Iterator<Item = (&'a Segment, u32)>) -> Owners {
        let mut owners = Owners::default();
        for (segment, pool) in segments {
            let stream = segment.stream.unwrap_or_default().cast_unsigned();
            let end = segment.address.saturating_add(segment.total);
            owners.now.insert(segment.address, Owner { end, pool, stream });
        }
        owners
    }

    /// Undoes a call to the driver; the calls come last one first.
    pub(super) fn undo(&mut self, entry: &DriverEntry) {
        let DriverEntry { action, address, size, .. } = *entry;
        if address == ABSENT || size == ABSENT {
            return;
        }
        let end = address.saturating_add(size);
        match action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let known = self.at(address).map(|owner| owner.pool);
                self.coming.push(entry.pool.or(known).unwrap_or_default());
                self.cut(address, end);
            }
            Action::SegmentFree => self.insert(address, end, entry.pool.unwrap_or_default(), entry),
            Action::SegmentUnmap => {
                let beside = self.beside(address, end, entry.stream).map(|owner| owner.pool);
                self.insert(address, end, entry.pool.or(beside).unwrap_or_default(), entry);
            }
            _ => {}
        }
    }

    /// Makes a call to the driver; the calls come first one first, and each was undone before.
    pub(super) fn redo(&mut self, entry: &DriverEntry) {
        let DriverEntry { action, address, size, .. } = *entry;
        if address == ABSENT || size == ABSENT {
            return;
        }
        let end = address.saturating_add(size);
        match action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let pool = self.coming.pop().unwrap_or_default();
                self.insert(address, end, pool, entry);
            }
            Action::SegmentFree | Action::SegmentUnmap => self.cut(address, end),
            _ => {}
        }
    }

    /// The owner of an address now.
    pub(super) fn at(&self, address: u64) -> Option<Owner> {
        let (_, &owner) = self.now.range(..=address).next_back()?;
        (address < owner.end).then_some(owner)
    }

    fn insert(&mut self, begin: u64, end: u64, pool: u32, entry: &DriverEntry) {
        self.cut(begin, end);
        if begin < end {
            self.now.insert(begin, Owner { end, pool, stream: entry.stream.unwrap_or_default() });
        }
    }

    /// Removes a range, and keeps what is left of the ranges that it cuts.
    fn cut(&mut self, begin: u64, end: u64) {
        let first = self.now.range(..begin).next_back().map_or(begin, |(&first, _)| first);
        let touched: Vec<(u64, Owner)> =
            self.now.range(first..end).map(|(&from, &owner)| (from, owner)).collect();
        for (from, owner) in touched.into_iter().filter(|(_, owner)| owner.end > begin) {
            self.now.remove(&from);
            if from < begin {
                self.now.insert(from, Owner { end: begin, ..owner });
            }
            if owner.end > end {
                self.now.insert(end, owner);
            }
        }
    }

    /// The owner of the nearest range of the same expandable segment.
    fn beside(&self, begin: u64, end: u64, stream: Option<u64>) -> Option<Owner> {
        let is_same = |owner: &Owner| stream.is_none_or(|stream| owner.stream == stream);
        let below = self.now.range(..begin).next_back().map(|(_, &owner)| owner);
        let below = below.filter(|owner| begin.saturating_sub(owner.end) < APART && is_same(owner));
        let above = || self.now.range(end..).next().map(|(&from, &owner)| (from, owner));
        let above = || above().filter(|(from, owner)| from.saturating_sub(end) < APART && is_same(owner));
        below.or_else(|| above().map(|(_, owner)| owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn entry(action: Action, address: u64, size: u64, stream: u64) -> DriverEntry {
        DriverEntry { action, address, size, pool: None, stream: Some(stream) }
    }

    fn owner(owners: &Owners, address: u64) -> Option<(u32, u64)> {
        owners.at(address).map(|owner| (owner.pool, owner.stream))
    }

    /// An address that the default pool returned belongs to a private pool afterwards, and not before.
    #[test]
    fn an_address_has_another_owner_at_another_time() {
        let calls = [
            entry(Action::SegmentAlloc, 100 * MIB, 20 * MIB, 0),
            entry(Action::SegmentFree, 100 * MIB, 20 * MIB, 0),
            entry(Action::SegmentAlloc, 110 * MIB, 2 * MIB, 7),
        ];
        let mut owners = Owners::default();
        owners.now.insert(110 * MIB, Owner { end: 112 * MIB, pool: 1, stream: 7 });
        calls.iter().rev().for_each(|call| owners.undo(call));
        assert_eq!(owner(&owners, 110 * MIB), None);
        owners.redo(&calls[0]);
        assert_eq!(owner(&owners, 111 * MIB), Some((0, 0)));
        owners.redo(&calls[1]);
        assert_eq!(owner(&owners, 111 * MIB), None);
        owners.redo(&calls[2]);
        assert_eq!(owner(&owners, 111 * MIB), Some((1, 7)));
        assert_eq!(owner(&owners, 113 * MIB), None);
    }

    /// Pages that an expandable segment returned belonged to the pool of the rest of it.
    #[test]
    fn returned_pages_are_of_their_segment() {
        let calls = [
            entry(Action::SegmentMap, 1 << 40, 40 * MIB, 7),
            entry(Action::SegmentUnmap, (1 << 40) + 20 * MIB, 20 * MIB, 7),
        ];
        let mut owners = Owners::default();
        owners.now.insert(1 << 40, Owner { end: (1 << 40) + 20 * MIB, pool: 3, stream: 7 });
        calls.iter().rev().for_each(|call| owners.undo(call));
        assert!(owners.now.is_empty());
        owners.redo(&calls[0]);
        assert_eq!(owner(&owners, (1 << 40) + 30 * MIB), Some((3, 7)));
        owners.redo(&calls[1]);
        assert_eq!(owner(&owners, (1 << 40) + 30 * MIB), None);
        assert_eq!(owner(&owners, (1 << 40) + 10 * MIB), Some((3, 7)));
    }
}
