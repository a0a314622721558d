//! A table of pieces of memory by handle, and the tickets that refer to them. Handles are reused, the last released one first, as in BFC, whose
//! dumps print them.

use crate::units::Bytes;

/// The index of a piece in its table.
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
    /// The value for an invalid handle.
    const NONE: Self;

    /// Its place in a small set, while it is free.
    fn place(&mut self) -> &mut u32;

    /// Marks it as released.
    fn forget(&mut self);
}

/// A reference to a piece that was handed out. Freeing with a used ticket is an error and corrupts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) handle: Handle,
    pub(super) id: u64,
}

impl Ticket {
    /// A ticket that refers to nothing.
    pub const NONE: Ticket = Ticket { handle: Handle::NONE, id: 0 };
}

/// A piece that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The ticket to free it with.
    pub ticket: Ticket,
    /// Its address.
    pub address: u64,
    /// The size of the whole piece.
    pub size: Bytes,
}

/// The error of freeing a piece that is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not in use: it was freed before, or never handed out")]
pub struct NotInUse;

/// The table of pieces.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    table: Vec<T>,
    unused: Vec<Handle>,
    /// Returned for an invalid handle, so that nothing panics; no piece links to it.
    nowhere: T,
}

impl<T: Piece> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { table: Vec::new(), unused: Vec::new(), nowhere: T::NONE }
    }

    /// The handle that was released last, with its old contents, or a new one.
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
