//! Free chunks by size: 21 ordered sets, and the best fit among them.
//!
//! A set is a list of short lists, each in descending order of size and address: what is taken most, the smallest that
//! fits and of those the lowest, stands at an end. Most sets have a handful of chunks, where nothing is faster; a set of
//! many is never moved as a whole.

use super::chunk::{Handle, Tag};

pub(super) const BINS: usize = 21;
const LARGEST_LEAF: usize = 128;

/// The bin of a size.
#[inline]
pub(super) fn bin_of(size: u64) -> u8 {
    let granules = (size >> 8) | 1;
    (63 - granules.leading_zeros()).min(20) as u8
}

/// A free chunk, as far as choosing needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) size: u64,
    pub(super) ptr: u64,
    pub(super) handle: Handle,
    pub(super) tag: Tag,
}

impl Free {
    #[inline(always)]
    fn key(&self) -> (u64, u64) {
        (self.size, self.ptr)
    }
}

/// Free chunks in descending order of size and address, in lists none of which is empty.
#[derive(Clone, Debug, Default)]
struct Set {
    leaves: Vec<Vec<Free>>,
}

impl Set {
    /// The list that holds or would hold a key.
    #[inline]
    fn leaf_of(&self, key: (u64, u64)) -> usize {
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
    fn remove(&mut self, key: (u64, u64)) -> Option<Tag> {
        let number = self.leaf_of(key);
        let leaf = self.leaves.get_mut(number)?;
        let at = leaf.partition_point(|other| other.key() > key);
        let found = leaf.get(at).filter(|found| found.key() == key)?.tag;
        leaf.remove(at);
        // The last list stays, empty, so that it need not be made again.
        if leaf.is_empty() && self.leaves.len() > 1 {
            self.leaves.remove(number);
        }
        Some(found)
    }

    fn is_empty(&self) -> bool {
        self.leaves.iter().all(Vec::is_empty)
    }

    /// The smallest and lowest of at least `size`.
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
    fn smallest(&self) -> Option<&Free> {
        self.leaves.last()?.last()
    }

    fn largest(&self) -> Option<&Free> {
        self.leaves.first()?.first()
    }

    fn ascending(&self) -> impl DoubleEndedIterator<Item = &Free> {
        self.leaves.iter().flatten().rev()
    }
}

/// All sets.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    sets: [Set; BINS],
    /// A bit for each set that is not empty.
    filled: u32,
    /// How many chunks are of the upper end.
    uppers: usize,
}

impl Bins {
    pub(super) fn new() -> Bins {
        Bins { sets: std::array::from_fn(|_| Set::default()), filled: 0, uppers: 0 }
    }

    #[inline]
    pub(super) fn has_upper(&self) -> bool {
        self.uppers > 0
    }

    #[inline]
    pub(super) fn insert(&mut self, bin: u8, free: Free) {
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            set.insert(free);
            self.filled |= 1 << bin;
            self.uppers += usize::from(free.tag == Tag::Upper);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, bin: u8, size: u64, ptr: u64) {
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            let removed = set.remove((size, ptr));
            self.uppers -= usize::from(removed == Some(Tag::Upper) && self.uppers > 0);
            if set.is_empty() {
                self.filled &= !(1 << bin);
            }
        }
    }

    /// The smallest and lowest chunk of at least `size`.
    #[inline]
    pub(super) fn best(&self, size: u64) -> Option<Free> {
        let bin = bin_of(size);
        if self.filled & (1 << bin) != 0
            && let Some(free) = self.sets.get(usize::from(bin)).and_then(|set| set.best(size))
        {
            return Some(*free);
        }
        let above = self.filled & !((2 << bin) - 1);
        let next = self.sets.get(above.trailing_zeros() as usize)?;
        next.smallest().copied()
    }

    /// Every chunk that may be of at least `size`, in the order in which they are tried.
    pub(super) fn from(&self, size: u64) -> impl Iterator<Item = &Free> {
        let first = self.sets.get(usize::from(bin_of(size))..).unwrap_or_default();
        first.iter().flat_map(Set::ascending)
    }

    pub(super) fn of(&self, bin: u8) -> impl Iterator<Item = &Free> {
        self.sets.get(usize::from(bin)).into_iter().flat_map(Set::ascending)
    }

    /// The size of the largest chunk; 0 where there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 31u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).and_then(Set::largest).map_or(0, |free| free.size)
    }

    pub(super) fn largest_of(&self, tag: Tag) -> u64 {
        let descending = self.sets.iter().rev().flat_map(|set| set.ascending().rev());
        descending.into_iter().find(|free| free.tag == tag).map_or(0, |free| free.size)
    }

    /// Every free chunk that is in a bin.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Free> {
        self.sets.iter().flat_map(Set::ascending)
    }
}
