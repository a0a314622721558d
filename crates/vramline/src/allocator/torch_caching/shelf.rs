//! Free blocks of one pool, stream and size class, and which of them is tried first.
//!
//! The order is size, then rank: an address, or a segment's age and then the address. A shelf is sets by power of two.
//! Most sets have a handful of blocks. Those are kept in no order: a block knows its place, so that it comes and goes
//! without a search, and the first that fits is found by looking at all of them, which are next to each other. A set that
//! grows beyond that is kept as a list of short lists, in descending order, none of which is ever moved as a whole.

use std::collections::BTreeMap;

use super::block::{Blocks, Handle};

const SETS: usize = 48;
/// A set of more blocks is kept in order.
const FEW: usize = 32;
const LARGEST_LEAF: usize = 128;

/// Where a free block stands in the order: size, then rank. One number compares without a branch.
pub(super) type Key = u128;

/// A free block, as far as choosing needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) size: u64,
    /// What parts blocks of the same size.
    pub(super) rank: u64,
    pub(super) handle: Handle,
}

impl Free {
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        key_from(self.size) | u128::from(self.rank)
    }
}

/// The least key of a size.
#[inline(always)]
fn key_from(size: u64) -> Key {
    u128::from(size) << 64
}

#[inline(always)]
fn size_of(key: Key) -> u64 {
    (key >> 64) as u64
}

/// Free blocks in descending order, in lists none of which is empty.
#[derive(Clone, Debug, Default)]
struct Sorted {
    leaves: Vec<Vec<Free>>,
    count: usize,
}

impl Sorted {
    /// The list that holds or would hold a key.
    fn leaf_of(&self, key: Key) -> usize {
        let after = self.leaves.partition_point(|leaf| leaf.first().is_some_and(|first| first.key() >= key));
        after.saturating_sub(1)
    }

    fn insert(&mut self, free: Free) {
        self.count += 1;
        let number = self.leaf_of(free.key());
        let Some(leaf) = self.leaves.get_mut(number) else {
            self.leaves.push(vec![free]);
            return;
        };
        let at = leaf.partition_point(|other| other.key() > free.key());
        leaf.insert(at, free);
        if leaf.len() > LARGEST_LEAF {
            let half = leaf.split_off(LARGEST_LEAF / 2);
            self.leaves.insert(number + 1, half);
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        let number = self.leaf_of(key);
        let Some(leaf) = self.leaves.get_mut(number) else { return false };
        let at = leaf.partition_point(|other| other.key() > key);
        if leaf.get(at).is_none_or(|found| found.key() != key) {
            return false;
        }
        leaf.remove(at);
        self.count -= 1;
        if leaf.is_empty() {
            self.leaves.remove(number);
        }
        true
    }

    /// The first whose key is not below `least`.
    fn first_from(&self, least: Key) -> Option<&Free> {
        let fits = |leaf: &Vec<Free>| leaf.first().is_some_and(|first| first.key() >= least);
        let leaf = self.leaves.get(self.leaves.partition_point(fits).checked_sub(1)?)?;
        leaf.get(leaf.partition_point(|free| free.key() >= least).checked_sub(1)?)
    }
}

#[derive(Clone, Debug, Default)]
struct Set {
    few: Vec<Free>,
    /// There where there are more than a few; then `few` is empty.
    many: Option<Box<Sorted>>,
}

impl Set {
    #[inline]
    fn insert(&mut self, free: Free, blocks: &mut Blocks) {
        if let Some(many) = &mut self.many {
            many.insert(free);
        } else if self.few.len() < FEW {
            blocks.at_mut(free.handle).place = self.few.len() as u32;
            self.few.push(free);
        } else {
            self.sort(free);
        }
    }

    #[cold]
    fn sort(&mut self, free: Free) {
        let mut many = Sorted::default();
        self.few.drain(..).chain([free]).for_each(|free| many.insert(free));
        self.many = Some(Box::new(many));
    }

    #[inline]
    fn remove(&mut self, key: Key, place: u32, blocks: &mut Blocks) -> bool {
        if self.many.is_some() {
            return self.remove_sorted(key, blocks);
        }
        let place = place as usize;
        if self.few.get(place).is_none_or(|found| found.key() != key) {
            return false;
        }
        self.few.swap_remove(place);
        if let Some(moved) = self.few.get(place) {
            blocks.at_mut(moved.handle).place = place as u32;
        }
        true
    }

    #[cold]
    fn remove_sorted(&mut self, key: Key, blocks: &mut Blocks) -> bool {
        let Some(many) = &mut self.many else { return false };
        let is_there = many.remove(key);
        // Half, so that a set at the edge does not go to and fro.
        if many.count <= FEW / 2 {
            let many = self.many.take();
            for free in many.into_iter().flat_map(|many| many.leaves).flatten() {
                blocks.at_mut(free.handle).place = self.few.len() as u32;
                self.few.push(free);
            }
        }
        is_there
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    /// The first whose key is not below `least`.
    #[inline]
    fn first_from(&self, least: Key) -> Option<&Free> {
        if let Some(many) = &self.many {
            return many.first_from(least);
        }
        let (mut first, mut first_key) = (usize::MAX, Key::MAX);
        for (place, free) in self.few.iter().enumerate() {
            let key = free.key();
            if key >= least && key < first_key {
                (first, first_key) = (place, key);
            }
        }
        self.few.get(first)
    }

    fn largest(&self) -> u64 {
        match &self.many {
            Some(many) => many.leaves.first().and_then(|leaf| leaf.first()).map_or(0, |free| free.size),
            None => self.few.iter().map(|free| free.size).max().unwrap_or_default(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Free> {
        let many = self.many.iter().flat_map(|many| many.leaves.iter().flatten());
        self.few.iter().chain(many)
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

    /// The block after one in the order.
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

    /// The largest block's size; 0 where there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 63u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).map_or(0, Set::largest)
    }

    /// Every block, in no order.
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
