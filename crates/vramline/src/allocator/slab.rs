//! Pieces of memory in a table, by handle, and the claims to them. Handles are recycled, the last one first, as in BFC, whose
//! dumps print them.

use crate::units::Bytes;

/// The number of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle(pub(super) u32);

impl Handle {
    pub(super) const NONE: Handle = Handle(u32::MAX);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Handle::NONE
    }
}

/// A piece of a region, in use or free.
pub(super) trait Piece: Copy {
    /// What stands for a handle that there is none of.
    const NONE: Self;

    /// Where it stands among the few of its set, while it is free.
    fn place(&mut self) -> &mut u32;

    /// Nobody has it any more.
    fn forget(&mut self);
}

/// The claim to a piece. Freeing with one that was used already is an error, not a corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) handle: Handle,
    pub(super) id: u64,
}

impl Ticket {
    /// A claim to nothing.
    pub const NONE: Ticket = Ticket { handle: Handle::NONE, id: 0 };
}

/// A piece that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// To free it with.
    pub ticket: Ticket,
    /// Where it begins.
    pub address: u64,
    /// The whole piece.
    pub size: Bytes,
}

/// A free of something that is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not in use: it was freed before, or never handed out")]
pub struct NotInUse;

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    table: Vec<T>,
    unused: Vec<Handle>,
    /// What stands for a handle that there is none of, so that nothing panics; it is never linked to.
    nowhere: T,
}

impl<T: Piece> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { table: Vec::new(), unused: Vec::new(), nowhere: T::NONE }
    }

    /// The handle released last, with what was in it, else a new one.
    #[inline]
    pub(super) fn allocate(&mut self) -> Handle {
        if let Some(handle) = self.unused.pop() {
            return handle;
        }
        let handle = Handle(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.table.push(T::NONE);
        handle
    }

    #[inline]
    pub(super) fn add(&mut self, piece: T) -> Handle {
        if let Some(handle) = self.unused.pop() {
            *self.at_mut(handle) = piece;
            return handle;
        }
        let handle = Handle(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.table.push(piece);
        handle
    }

    #[inline]
    pub(super) fn release(&mut self, handle: Handle) {
        self.at_mut(handle).forget();
        self.unused.push(handle);
    }

    #[inline(always)]
    pub(super) fn at(&self, handle: Handle) -> &T {
        self.table.get(handle.0 as usize).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    pub(super) fn at_mut(&mut self, handle: Handle) -> &mut T {
        match self.table.get_mut(handle.0 as usize) {
            Some(piece) => piece,
            None => {
                self.nowhere = T::NONE;
                &mut self.nowhere
            }
        }
    }
}
