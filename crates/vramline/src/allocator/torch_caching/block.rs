//! The table of blocks by handle. A block links to the blocks next to it in its segment.

use crate::allocator::slab::{Handle, Piece, Slab};

/// The table of pieces.
pub(super) type Blocks = Slab<Block>;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Free: it can be handed out.
    Free,
    /// In use.
    Allocated,
    /// Freed by its owner, but another stream may still read it.
    Pending,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) ptr: u64,
    pub(super) size: u64,
    /// Never cleared: a free block keeps the requested size of its last owner.
    pub(super) requested: u64,
    /// Counts from 1; 0 is a block that is not handed out.
    pub(super) id: u64,
    /// The number of searches of its pool before it became free.
    pub(super) searched: u64,
    pub(super) prev: Handle,
    pub(super) next: Handle,
    /// Its place in a small set, while it is free.
    pub(super) place: u32,
    /// The shelf it belongs to.
    pub(super) shelf: u32,
    /// Added to an address, gives the rank among blocks of the same size: zero, or a value that sorts a segment after all that were
    /// reserved before it.
    pub(super) shift: u64,
    pub(super) state: State,
    pub(super) is_expandable: bool,
    pub(super) is_small: bool,
}

impl Piece for Block {
    const NONE: Block = Block {
        ptr: 0,
        size: 0,
        requested: 0,
        id: 0,
        searched: 0,
        prev: Handle::NONE,
        next: Handle::NONE,
        place: 0,
        shelf: u32::MAX,
        shift: 0,
        state: State::Unmapped,
        is_expandable: false,
        is_small: false,
    };

    #[inline(always)]
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }

    #[inline(always)]
    fn forget(&mut self) {
        self.id = 0;
    }
}

impl Block {
    /// Whether it is only a part of its segment.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.ptr.saturating_add(self.size)
    }
}
