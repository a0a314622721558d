//! The free blocks of one pool, stream and size class, in the order in which they are tried.
//!
//! The order is size, then rank: an address, or a segment's age and then the address. A shelf is sets by power of two.

use std::collections::BTreeMap;

use super::block::Blocks;
use crate::allocator::free_set::{Free, Key, Set, key_from, size_of};
use crate::allocator::slab::Handle;

const SETS: usize = 48;

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

    /// The total size of its free blocks.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    #[inline]
    pub(super) fn insert(&mut self, free: Free, blocks: &mut Blocks) {
        let number = set_of(free.size);
        if let Some(set) = self.sets.get_mut(number) {
            set.insert(free, blocks);
            self.filled |= 1 << number;
            self.free = self.free.saturating_add(free.size);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, free: Free, blocks: &mut Blocks) {
        let number = set_of(free.size);
        let place = blocks.at(free.handle).place;
        if let Some(set) = self.sets.get_mut(number)
            && set.remove(free.key(), place, blocks)
        {
            self.free = self.free.saturating_sub(free.size);
            if set.is_empty() {
                self.filled &= !(1 << number);
            }
        }
    }

    /// The first block of at least `size`.
    #[inline]
    pub(super) fn best(&self, size: u64) -> Option<Free> {
        self.first_from(key_from(size))
    }

    /// The block after another in the order.
    pub(super) fn after(&self, free: Free) -> Option<Free> {
        self.first_from(free.key().saturating_add(1))
    }

    #[inline]
    fn first_from(&self, least: Key) -> Option<Free> {
        let number = set_of(size_of(least));
        if self.filled & (1 << number) != 0
            && let Some(free) = self.sets.get(number).and_then(|set| set.first_from(least))
        {
            return Some(*free);
        }
        let above = self.filled & !((2 << number) - 1);
        self.sets.get(above.trailing_zeros() as usize)?.first_from(0).copied()
    }

    /// The size of the largest block; 0 if there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 63u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).map_or(0, Set::largest)
    }

    /// Every block, unordered.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Free> {
        self.sets.iter().flat_map(Set::iter)
    }

    /// Every block, in the order in which they are tried.
    pub(super) fn ascending(&self) -> Vec<Free> {
        let mut all: Vec<Free> = self.iter().copied().collect();
        all.sort_unstable_by_key(Free::key);
        all
    }
}
