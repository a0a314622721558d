//! Free chunks in 21 sets by size, and the search for the best fit.

use super::chunk::{Chunks, NO_BIN, Tag};
use crate::allocator::free_set::{Free, Set, key_from};
use crate::allocator::slab::Handle;

pub(super) const BINS: usize = 21;

/// The bin of a size.
#[inline]
pub(super) fn bin_of(size: u64) -> u8 {
    let granules = (size >> 8) | 1;
    (63 - granules.leading_zeros()).min(20) as u8
}

/// All sets.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    sets: [Set; BINS],
    /// A bit for each set that is not empty.
    filled: u32,
    /// The number of chunks that belong to the upper end.
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

    /// Puts a chunk into its bin.
    #[inline]
    pub(super) fn insert(&mut self, handle: Handle, chunks: &mut Chunks) {
        let chunk = chunks.at_mut(handle);
        let bin = bin_of(chunk.size);
        chunk.bin = bin;
        let is_upper = chunk.tag == Tag::Upper;
        let free = Free { size: chunk.size, rank: chunk.ptr, handle };
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            set.insert(free, chunks);
            self.filled |= 1 << bin;
            self.uppers += usize::from(is_upper);
        }
    }

    /// Takes a chunk out of its bin.
    #[inline]
    pub(super) fn remove(&mut self, handle: Handle, chunks: &mut Chunks) {
        let chunk = chunks.at_mut(handle);
        let bin = std::mem::replace(&mut chunk.bin, NO_BIN);
        let (place, is_upper) = (chunk.place, chunk.tag == Tag::Upper);
        let key = Free { size: chunk.size, rank: chunk.ptr, handle }.key();
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            let is_there = set.remove(key, place, chunks);
            self.uppers -= usize::from(is_there && is_upper && self.uppers > 0);
            if set.is_empty() {
                self.filled &= !(1 << bin);
            }
        }
    }

    /// The smallest and lowest chunk of at least `size`.
    #[inline]
    pub(super) fn best(&self, size: u64) -> Option<Handle> {
        let bin = bin_of(size);
        if self.filled & (1 << bin) != 0
            && let Some(free) = self.sets.get(usize::from(bin)).and_then(|set| set.first_from(key_from(size)))
        {
            return Some(free.handle);
        }
        let above = self.filled & !((2 << bin) - 1);
        self.sets.get(above.trailing_zeros() as usize)?.first_from(0).map(|free| free.handle)
    }

    /// Every chunk that may be of at least `size`, in the order in which they are tried.
    pub(super) fn from(&self, size: u64) -> impl Iterator<Item = Free> {
        let first = self.sets.get(usize::from(bin_of(size))..).unwrap_or_default();
        first.iter().flat_map(Set::ascending)
    }

    /// The chunks of a bin, in order.
    pub(super) fn of(&self, bin: u8) -> impl Iterator<Item = Free> {
        self.sets.get(usize::from(bin)).into_iter().flat_map(Set::ascending)
    }

    /// The size of the largest chunk; 0 if there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 31u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).map_or(0, Set::largest)
    }

    pub(super) fn largest_of(&self, tag: Tag, chunks: &Chunks) -> u64 {
        self.iter().filter(|free| chunks.at(free.handle).tag == tag).map(|free| free.size).max().unwrap_or(0)
    }

    /// Every free chunk in a bin, unordered.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Free> {
        self.sets.iter().flat_map(Set::iter)
    }
}
