//! Free chunks by size: 21 sets, and the best fit among them.
//!
//! Most sets have a handful of chunks. Those are kept in no order: a chunk knows its place, so that it comes and goes without
//! a search, and the best fit is found by looking at all of them, which are next to each other. A set that grows beyond that
//! is kept as a list of short lists, in descending order of size and address, none of which is ever moved as a whole.

use super::chunk::{Chunks, Handle, NO_BIN, Tag};

pub(super) const BINS: usize = 21;
/// A set of more chunks is kept in order.
const FEW: usize = 32;
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
struct Sorted {
    leaves: Vec<Vec<Free>>,
    count: usize,
}

impl Sorted {
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
        self.count += 1;
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
        self.count -= 1;
        if leaf.is_empty() {
            self.leaves.remove(number);
        }
        Some(found)
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

    fn largest(&self) -> Option<&Free> {
        self.leaves.first()?.first()
    }

    fn ascending(&self) -> impl Iterator<Item = &Free> {
        self.leaves.iter().flatten().rev()
    }
}

/// The free chunks of a bin.
#[derive(Clone, Debug, Default)]
struct Set {
    few: Vec<Free>,
    /// There where there are more than a few; then `few` is empty.
    many: Option<Box<Sorted>>,
}

impl Set {
    #[inline]
    fn insert(&mut self, free: Free, chunks: &mut Chunks) {
        if let Some(many) = &mut self.many {
            many.insert(free);
            return;
        }
        if self.few.len() < FEW {
            chunks.at_mut(free.handle).place = self.few.len() as u32;
            self.few.push(free);
            return;
        }
        self.sort(free);
    }

    #[cold]
    fn sort(&mut self, free: Free) {
        let mut many = Sorted::default();
        self.few.drain(..).chain([free]).for_each(|free| many.insert(free));
        self.many = Some(Box::new(many));
    }

    #[inline]
    fn remove(&mut self, key: (u64, u64), place: u32, chunks: &mut Chunks) -> Option<Tag> {
        if self.many.is_some() {
            return self.remove_sorted(key, chunks);
        }
        let place_at = place as usize;
        if place_at >= self.few.len() {
            return None;
        }
        let removed = self.few.swap_remove(place_at);
        if let Some(moved) = self.few.get(place_at) {
            chunks.at_mut(moved.handle).place = place;
        }
        Some(removed.tag)
    }

    #[cold]
    fn remove_sorted(&mut self, key: (u64, u64), chunks: &mut Chunks) -> Option<Tag> {
        let many = self.many.as_mut()?;
        let removed = many.remove(key);
        // Not at once, or a set of just so many would be sorted again and again.
        if many.count < FEW / 2
            && let Some(many) = self.many.take()
        {
            self.few.extend(many.leaves.into_iter().flatten());
            for (place, free) in (0..).zip(&self.few) {
                chunks.at_mut(free.handle).place = place;
            }
        }
        removed
    }

    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    /// The smallest and lowest of at least `size`.
    #[inline]
    fn best(&self, size: u64) -> Option<Handle> {
        if let Some(many) = &self.many {
            return many.best(size).map(|free| free.handle);
        }
        let mut best = (u128::MAX, Handle::NONE);
        for free in &self.few {
            let key = u128::from(free.size) << 64 | u128::from(free.ptr);
            if free.size >= size && key < best.0 {
                best = (key, free.handle);
            }
        }
        best.1.is_some().then_some(best.1)
    }

    fn largest(&self) -> u64 {
        match &self.many {
            Some(many) => many.largest().map_or(0, |free| free.size),
            None => self.few.iter().map(|free| free.size).max().unwrap_or(0),
        }
    }

    fn ascending(&self) -> Vec<Free> {
        match &self.many {
            Some(many) => many.ascending().copied().collect(),
            None => {
                let mut sorted = self.few.clone();
                sorted.sort_unstable_by_key(Free::key);
                sorted
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Free> {
        self.few.iter().chain(self.many.iter().flat_map(|many| many.leaves.iter().flatten()))
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

    /// Puts a chunk into its bin.
    #[inline]
    pub(super) fn insert(&mut self, handle: Handle, chunks: &mut Chunks) {
        let chunk = chunks.at_mut(handle);
        let bin = bin_of(chunk.size);
        chunk.bin = bin;
        let free = Free { size: chunk.size, ptr: chunk.ptr, handle, tag: chunk.tag };
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            set.insert(free, chunks);
            self.filled |= 1 << bin;
            self.uppers += usize::from(free.tag == Tag::Upper);
        }
    }

    /// Takes a chunk out of its bin.
    #[inline]
    pub(super) fn remove(&mut self, handle: Handle, chunks: &mut Chunks) {
        let chunk = chunks.at_mut(handle);
        let bin = std::mem::replace(&mut chunk.bin, NO_BIN);
        let (key, place) = ((chunk.size, chunk.ptr), chunk.place);
        if let Some(set) = self.sets.get_mut(usize::from(bin)) {
            let removed = set.remove(key, place, chunks);
            self.uppers -= usize::from(removed == Some(Tag::Upper) && self.uppers > 0);
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
            && let Some(handle) = self.sets.get(usize::from(bin)).and_then(|set| set.best(size))
        {
            return Some(handle);
        }
        let above = self.filled & !((2 << bin) - 1);
        self.sets.get(above.trailing_zeros() as usize)?.best(size)
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

    /// The size of the largest chunk; 0 where there is none.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        let Some(highest) = 31u32.checked_sub(self.filled.leading_zeros()) else { return 0 };
        self.sets.get(highest as usize).map_or(0, Set::largest)
    }

    pub(super) fn largest_of(&self, tag: Tag) -> u64 {
        self.iter().filter(|free| free.tag == tag).map(|free| free.size).max().unwrap_or(0)
    }

    /// Every free chunk that is in a bin, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Free> {
        self.sets.iter().flat_map(Set::iter)
    }
}
