//! The source of an allocator's regions: a driver, or a substitute.

use std::collections::VecDeque;

use crate::units::Bytes;

/// Hands out regions of memory, as a driver does.
pub trait Supplier {
    /// The base address of a new region of `size`, or `None` if it is refused.
    fn take(&mut self, size: Bytes) -> Option<u64>;

    /// Takes a region back.
    fn give_back(&mut self, base: u64, size: Bytes) {
        let _ = (base, size);
    }

    /// Reserves address space without memory behind it and returns its base; `None` if none is left.
    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        let _ = size;
        None
    }

    /// Maps memory to reserved addresses. Returns whether there was enough.
    fn map(&mut self, address: u64, size: Bytes) -> bool {
        let _ = (address, size);
        false
    }

    /// Unmaps memory from reserved addresses.
    fn unmap(&mut self, address: u64, size: Bytes) {
        let _ = (address, size);
    }
}

/// The order in which a [`Placed`] supplier places regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each above all earlier ones.
    Ascending,
    /// Each below all earlier ones.
    Descending,
    /// Alternately above and below all earlier ones.
    Alternating,
}

impl Placement {
    /// All placements that a what-if tries.
    pub const ALL: [Placement; 3] = [Placement::Ascending, Placement::Descending, Placement::Alternating];
}

/// Supplies any amount of memory, at invented addresses that are not adjacent.
#[derive(Clone, Debug)]
pub struct Placed {
    placement: Placement,
    above: u64,
    below: u64,
    is_above: bool,
}

impl Placed {
    /// Regions begin at multiples of this, as with the drivers' virtual memory.
    const STEP: u64 = 2 << 20;
    const MIDDLE: u64 = 1 << 62;

    /// An empty address space.
    #[must_use]
    pub fn new(placement: Placement) -> Placed {
        Placed { placement, above: Placed::MIDDLE, below: Placed::MIDDLE, is_above: false }
    }
}

impl Supplier for Placed {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        // One extra step keeps regions from being adjacent.
        let room = size.0.checked_next_multiple_of(Placed::STEP)?.checked_add(Placed::STEP)?;
        self.is_above = !self.is_above;
        let is_above = match self.placement {
            Placement::Ascending => true,
            Placement::Descending => false,
            Placement::Alternating => self.is_above,
        };
        if is_above {
            let base = self.above;
            self.above = self.above.checked_add(room)?;
            Some(base)
        } else {
            self.below = self.below.checked_sub(room).filter(|&below| below > 0)?;
            Some(self.below)
        }
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.take(size)
    }

    fn map(&mut self, _: u64, _: Bytes) -> bool {
        true
    }
}

/// Supplies the given bases in order, then asks another supplier.
#[derive(Clone, Debug)]
pub(crate) struct Scripted<S> {
    bases: VecDeque<u64>,
    then: S,
}

impl<S: Supplier> Scripted<S> {
    /// A supplier that begins with these bases.
    pub(crate) fn new(bases: impl IntoIterator<Item = u64>, then: S) -> Scripted<S> {
        Scripted { bases: bases.into_iter().collect(), then }
    }
}

impl<S: Supplier> Supplier for Scripted<S> {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        self.bases.pop_front().or_else(|| self.then.take(size))
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        self.then.give_back(base, size);
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.then.reserve(size)
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        self.then.map(address, size)
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
        self.then.unmap(address, size);
    }
}

/// Refuses requests beyond a total, like a device that other processes share.
#[derive(Clone, Debug)]
pub struct Capped<S> {
    left: u64,
    then: S,
}

impl<S: Supplier> Capped<S> {
    /// A supplier of at most `most` bytes at any time.
    pub fn new(most: Bytes, then: S) -> Capped<S> {
        Capped { left: most.0, then }
    }
}

impl<S: Supplier> Supplier for Capped<S> {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        let left = self.left.checked_sub(size.0)?;
        let base = self.then.take(size)?;
        self.left = left;
        Some(base)
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        self.left = self.left.saturating_add(size.0);
        self.then.give_back(base, size);
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.then.reserve(size)
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        let Some(left) = self.left.checked_sub(size.0) else { return false };
        let is_mapped = self.then.map(address, size);
        if is_mapped {
            self.left = left;
        }
        is_mapped
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
        self.left = self.left.saturating_add(size.0);
        self.then.unmap(address, size);
    }
}
