//! A set of free pieces of similar sizes, tried in the order of size, then rank.
//!
//! Most sets have a handful of pieces, which are kept unordered: a piece knows its place, so it is added and removed
//! without a search, and the first that fits is found by scanning all of them, which are adjacent in memory. A set that
//! grows larger is kept as a list of short lists in descending order, so that no insertion moves the whole set.

use super::slab::{Handle, Piece, Slab};

/// The largest number of pieces that are kept unordered.
const FEW: usize = 32;
const LARGEST_LEAF: usize = 128;

/// The sort key of a free piece: size, then rank. A single number compares without a branch.
pub(super) type Key = u128;

/// A free piece: what the choice of a piece needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) size: u64,
    /// The order of pieces of the same size.
    pub(super) rank: u64,
    pub(super) handle: Handle,
}

impl Free {
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        key_from(self.size) | u128::from(self.rank)
    }
}

/// The smallest key of a size.
#[inline(always)]
pub(super) fn key_from(size: u64) -> Key {
    u128::from(size) << 64
}

#[inline(always)]
pub(super) fn size_of(key: Key) -> u64 {
    (key >> 64) as u64
}

/// Free pieces in descending order, in lists that are never empty.
#[derive(Clone, Debug, Default)]
struct Sorted {
    leaves: Vec<Vec<Free>>,
    count: usize,
}

impl Sorted {
    /// The list that contains a key, or would contain it.
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

    /// The first piece whose key is at least `least`.
    fn first_from(&self, least: Key) -> Option<&Free> {
        let fits = |leaf: &Vec<Free>| leaf.first().is_some_and(|first| first.key() >= least);
        let leaf = self.leaves.get(self.leaves.partition_point(fits).checked_sub(1)?)?;
        leaf.get(leaf.partition_point(|free| free.key() >= least).checked_sub(1)?)
    }
}

/// Free pieces of similar sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    few: Vec<Free>,
    /// Used for larger sets; `few` is empty then.
    many: Option<Box<Sorted>>,
}

impl Set {
    #[inline]
    pub(super) fn insert(&mut self, free: Free, pieces: &mut Slab<impl Piece>) {
        if let Some(many) = &mut self.many {
            many.insert(free);
        } else if self.few.len() < FEW {
            *pieces.at_mut(free.handle).place() = self.few.len() as u32;
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
    pub(super) fn remove(&mut self, key: Key, place: u32, pieces: &mut Slab<impl Piece>) -> bool {
        if self.many.is_some() {
            return self.remove_sorted(key, pieces);
        }
        let place = place as usize;
        if self.few.get(place).is_none_or(|found| found.key() != key) {
            return false;
        }
        self.few.swap_remove(place);
        if let Some(moved) = self.few.get(place) {
            *pieces.at_mut(moved.handle).place() = place as u32;
        }
        true
    }

    #[cold]
    fn remove_sorted(&mut self, key: Key, pieces: &mut Slab<impl Piece>) -> bool {
        let Some(many) = &mut self.many else { return false };
        let is_there = many.remove(key);
        // Half, so that a set near the threshold does not switch back and forth.
        if many.count <= FEW / 2 {
            let many = self.many.take();
            for free in many.into_iter().flat_map(|many| many.leaves).flatten() {
                *pieces.at_mut(free.handle).place() = self.few.len() as u32;
                self.few.push(free);
            }
        }
        is_there
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    /// The first piece whose key is at least `least`.
    #[inline]
    pub(super) fn first_from(&self, least: Key) -> Option<&Free> {
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

    pub(super) fn largest(&self) -> u64 {
        match &self.many {
            Some(many) => many.leaves.first().and_then(|leaf| leaf.first()).map_or(0, |free| free.size),
            None => self.few.iter().map(|free| free.size).max().unwrap_or_default(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Free> {
        let many = self.many.iter().flat_map(|many| many.leaves.iter().flatten());
        self.few.iter().chain(many)
    }

    /// Every piece, in the order in which they are tried.
    pub(super) fn ascending(&self) -> Vec<Free> {
        let mut all: Vec<Free> = self.iter().copied().collect();
        all.sort_unstable_by_key(Free::key);
        all
    }
}
