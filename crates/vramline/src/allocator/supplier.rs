//! Where an allocator's regions come from: a driver, or what stands in for one.

use std::collections::VecDeque;

use crate::units::Bytes;

/// Hands out regions of memory, as a driver does.
pub trait Supplier {
    /// The base address of a new region of `size`, or `None` where it is refused.
    fn take(&mut self, size: Bytes) -> Option<u64>;

    /// Takes a region back.
    fn give_back(&mut self, base: u64, size: Bytes) {
        let _ = (base, size);
    }

    /// The base of so much address space with no memory behind it, or `None` where there is none.
    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        let _ = size;
        None
    }

    /// Puts memory behind reserved addresses; whether there was enough.
    fn map(&mut self, address: u64, size: Bytes) -> bool {
        let _ = (address, size);
        false
    }

    /// Takes memory from behind reserved addresses.
    fn unmap(&mut self, address: u64, size: Bytes) {
        let _ = (address, size);
    }
}

/// In which order a [`Placed`] supplier puts regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each above all before.
    Ascending,
    /// Each below all before.
    Descending,
    /// In turn above and below all before.
    Alternating,
}

impl Placement {
    /// Every placement that a what-if is tried with.
    pub const ALL: [Placement; 3] = [Placement::Ascending, Placement::Descending, Placement::Alternating];
}

/// Supplies any amount at made-up addresses that do not touch each other.
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
        // One step more keeps neighbours apart.
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

/// Supplies the given bases in their order, then what another supplier gives.
#[derive(Clone, Debug)]
pub(crate) struct Scripted<S> {
    bases: VecDeque<u64>,
    then: S,
}

impl<S: Supplier> Scripted<S> {
    /// These bases first.
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

/// Refuses what would make more than so many bytes, as a device with neighbours does.
#[derive(Clone, Debug)]
pub struct Capped<S> {
    left: u64,
    then: S,
}

impl<S: Supplier> Capped<S> {
    /// At most `most` bytes at any time.
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
