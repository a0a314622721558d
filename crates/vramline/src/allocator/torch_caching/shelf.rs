//! Free blocks of one pool, stream and size class, in the order in which they are tried.
//!
//! The order is size, then the segment's number where the version looks at it, then address. A shelf is sets by power of
//! two, a set is a list of short lists, each in descending order: what is taken most, the smallest that fits, stands at
//! an end. Most sets have a handful of blocks, where nothing is faster; a set of many is never moved as a whole.

use std::collections::BTreeMap;

use super::block::Handle;

const LARGEST_LEAF: usize = 128;
const SETS: usize = 48;

/// Where a free block stands in the order: size, then rank. One number compares without a branch.
pub(super) type Key = u128;

/// A free block, as far as choosing needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) size: u64,
    /// What parts blocks of the same size: an address, or a segment's number and an offset.
    pub(super) rank: u64,
    pub(super) handle: Handle,
}

impl Free {
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        (u128::from(self.size) << 64) | u128::from(self.rank)
    }
}

#[inline(always)]
fn size_of(key: Key) -> u64 {
    (key >> 64) as u64
}

/// Free blocks in descending order, in lists none of which is empty.
#[derive(Clone, Debug, Default)]
struct Set {
    leaves: Vec<Vec<Free>>,
}

impl Set {
    /// The list that holds or would hold a key.
    #[inline]
    fn leaf_of(&self, key: Key) -> usize {
        if self.leaves.len() <= 1 {
            return 0;
        }
        let after = self.leaves.partition_point(|leaf| leaf.first().is_some_and(|first| first.key() >= key));
        after.saturating_sub(1)
    }

    #[inline]
    fn insert(&mut self, free: Free) {
        let number = self.leaf_of(free.key());
        let Some(leaf) = self.leaves.get_mut(number) else {
            let mut leaf = Vec::with_capacity(8);
            leaf.push(free);
            self.leaves.push(leaf);
            return;
        };
        let at = leaf.partition_point(|other| other.key() > free.key());
        leaf.insert(at, free);
        if leaf.len() > LARGEST_LEAF {
            let half = leaf.split_off(LARGEST_LEAF / 2);
            self.leaves.insert(number + 1, half);
        }
    }

    #[inline]
    fn remove(&mut self, key: Key) -> bool {
        let number = self.leaf_of(key);
        let Some(leaf) = self.leaves.get_mut(number) else { return false };
        let at = leaf.partition_point(|other| other.key() > key);
        if leaf.get(at).is_none_or(|found| found.key() != key) {
            return false;
        }
        leaf.remove(at);
        // The last list stays, empty, so that it need not be made again.
        if leaf.is_empty() && self.leaves.len() > 1 {
            self.leaves.remove(number);
        }
        true
    }

    /// Takes the first of at least `size` out.
    #[inline]
    fn take_best(&mut self, size: u64) -> Option<Free> {
        let number = match self.leaves.len() {
            0 => return None,
            1 => 0,
            _ => {
                let fits = |leaf: &Vec<Free>| leaf.first().is_some_and(|first| first.size >= size);
                self.leaves.partition_point(fits).checked_sub(1)?
            }
        };
        let leaf = self.leaves.get_mut(number)?;
        let at = leaf.partition_point(|free| free.size >= size).checked_sub(1)?;
        let found = leaf.remove(at);
        if leaf.is_empty() && self.leaves.len() > 1 {
            self.leaves.remove(number);
        }
        Some(found)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.leaves.first().is_none_or(Vec::is_empty)
    }

    /// The first of at least `size`.
    #[inline]
    fn best(&self, size: u64) -> Option<&Free> {
        let number = match self.leaves.len() {
            0 => return None,
            1 => 0,
            _ => {
                let fits = |leaf: &Vec<Free>| leaf.first().is_some_and(|first| first.size >= size);
                self.leaves.partition_point(fits).checked_sub(1)?
            }
        };
        let leaf = self.leaves.get(number)?;
        let after = leaf.partition_point(|free| free.size >= size);
        leaf.get(after.checked_sub(1)?)
    }

    #[inline]
    fn first(&self) -> Option<&Free> {
        self.leaves.last()?.last()
    }

    fn last(&self) -> Option<&Free> {
        self.leaves.first()?.first()
    }

    fn ascending(&self) -> impl DoubleEndedIterator<Item = &Free> {
        self.leaves.iter().flatten().rev()
    }
}

#[inline]
fn set_of(size: u64) -> usize {
    (((size >> 9) | 1).ilog2() as usize).min(SETS - 1)
}

/// The free blocks of one pool, stream and size class, and the unmapped parts of its expandable segments.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    /// The pool's number in its table.
    pub(super) pool: u32,
    pub(super) stream: u64,
    pub(super) is_small: bool,
    pub(super) unmapped: BTreeMap<u64, Handle>,
    sets: Vec<Set>,
    /// A bit for each set that is not empty.
    filled: u64,
    free: u64,
}

impl Shelf {
    pub(super) fn new(pool: u32, stream: u64, is_small: bool) -> Shelf {
        let sets = vec![Set::default(); SETS];
        Shelf { pool, stream, is_small, unmapped: BTreeMap::new(), sets, filled: 0, free: 0 }
    }

    /// The bytes of all its free blocks.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    #[inline]
    pub(super) fn insert(&mut self, free: Free) {
        let number = set_of(free.size);
        if let Some(set) = self.sets.get_mut(number) {
            set.insert(free);
            self.filled |= 1 << number;
            self.free = self.free.saturating_add(free.size);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, key: Key) {
        let size = size_of(key);
        let number = set_of(size);
        if let Some(set) = self.sets.get_mut(number)
            && set.remove(key)
        {
            self.free = self.free.saturating_sub(size);
            if set.is_empty() {
                self.filled &= !(1 << number);
            }
        }
    }

    /// Takes the first block of at least `size` off the shelf.
    #[inline]
    pub(super) fn take_best(&mut self, size: u64) -> Option<Free> {
        let mut number = set_of(size);
        let mut found = None;
        if self.filled & (1 << number) != 0 {
            found = self.sets.get_mut(number)?.take_best(size);
        }
        if found.is_none() {
            let above = self.filled & !((2 << number) - 1);
            number = above.trailing_zeros() as usize;
            found = self.sets.get_mut(number)?.take_best(0);
        }
        let found = found?;
        self.free = self.free.saturating_sub(found.size);
        if self.sets.get(number).is_some_and(Set::is_empty) {
            self.filled &= !(1 << number);
        }
        Some(found)
    }

    /// The first block of at least `size`.
    #[inline]
    pub(super) fn best(&self, size: u64) -> Option<Free> {
        let number = set_of(size);
        if self.filled & (1 << number) != 0
            && let Some(free) = self.sets.get(number).and_then(|set| set.best(size))
        {
            return Some(*free);
        }
        let above = self.filled & !((2 << number) - 1);
        self.sets.get(above.trailing_zeros() as usize)?.first().copied()
    }

    /// The block after one in the order.
    pub(super) fn after(&self, key: Key) -> Option<Free> {
        let first = self.sets.get(set_of(size_of(key))..)?;
        // Only the first set has blocks before the key, and there the lists are skipped whole.
        first.iter().enumerate().find_map(|(number, set)| {
            let leaves = set.leaves.iter().rev();
            let leaves = leaves
                .skip_while(|leaf| number == 0 && leaf.first().is_none_or(|largest| largest.key() <= key));
            leaves.flat_map(|leaf| leaf.iter().rev()).find(|free| free.key() > key).copied()
        })
    }

    /// The largest block's size; 0 where there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 63u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).and_then(Set::last).map_or(0, |free| free.size)
    }

    /// Every block, in the order in which they are tried.
    pub(super) fn ascending(&self) -> impl DoubleEndedIterator<Item = &Free> {
        self.sets.iter().flat_map(Set::ascending)
    }
}
