//! The source of an allocator's regions: a driver, or a substitute.

use std::collections::{BTreeSet, VecDeque};

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
    /// As CUDA's driver does, once the gaps of its start are full: each at a multiple of 32 MiB below all earlier ones, but what has
    /// room in a gap that this leaves goes there. Seen in every snapshot from an H200 with driver 580.
    Driver,
}

impl Placement {
    /// All placements that a what-if tries.
    pub const ALL: [Placement; 3] = [Placement::Ascending, Placement::Descending, Placement::Alternating];
    /// The placements that a plan for a GPU tries: the driver's, and both orders in which its first gaps may be filled.
    pub const ON_GPU: [Placement; 3] = [Placement::Driver, Placement::Ascending, Placement::Descending];
}

/// Supplies any amount of memory, at invented addresses that are not adjacent.
#[derive(Clone, Debug)]
pub struct Placed {
    placement: Placement,
    above: u64,
    below: u64,
    is_above: bool,
    /// Gaps between regions that [`Placement::Driver`] fills: size and base.
    gaps: BTreeSet<(u64, u64)>,
}

impl Placed {
    /// Regions begin at multiples of this, as with the drivers' virtual memory.
    const STEP: u64 = 2 << 20;
    /// Where there is no gap, CUDA's driver begins regions at multiples of this.
    const DRIVER_STEP: u64 = 32 << 20;
    const MIDDLE: u64 = 1 << 62;

    /// An empty address space.
    #[must_use]
    pub fn new(placement: Placement) -> Placed {
        Placed {
            placement,
            above: Placed::MIDDLE,
            below: Placed::MIDDLE,
            is_above: false,
            gaps: BTreeSet::new(),
        }
    }

    /// A region in the smallest gap with room for it, else below all others.
    fn take_as_driver(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(Placed::STEP)?;
        if let Some(&(gap, base)) = self.gaps.range((size, 0)..).next() {
            self.gaps.remove(&(gap, base));
            if gap > size {
                self.gaps.insert((gap - size, base + size));
            }
            return Some(base);
        }
        let below = self.below.checked_sub(size)?;
        let base = below - below % Placed::DRIVER_STEP;
        if base < below {
            self.gaps.insert((below - base, base + size));
        }
        self.below = base;
        Some(base).filter(|&base| base > 0)
    }
}

impl Supplier for Placed {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        if self.placement == Placement::Driver {
            return self.take_as_driver(size.0);
        }
        // One extra step keeps regions from being adjacent.
        let room = size.0.checked_next_multiple_of(Placed::STEP)?.checked_add(Placed::STEP)?;
        self.is_above = !self.is_above;
        let is_above = match self.placement {
            Placement::Ascending => true,
            Placement::Descending | Placement::Driver => false,
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
