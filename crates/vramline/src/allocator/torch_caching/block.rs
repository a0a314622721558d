//! Blocks in a table, by handle. A block knows its neighbours in its segment.

use crate::allocator::slab::{Handle, Piece, Slab};

/// The table.
pub(super) type Blocks = Slab<Block>;

/// What a block is to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody's: it can be handed out.
    Free,
    /// Handed out.
    Allocated,
    /// Its owner has let go of it, but another stream may still read it.
    Pending,
    /// Address space of an expandable segment with no memory behind it.
    Unmapped,
}

/// A stretch of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) ptr: u64,
    pub(super) size: u64,
    /// Never cleared: a free block keeps what an earlier owner asked for.
    pub(super) requested: u64,
    /// Counts from 1; 0 is a block that is not handed out.
    pub(super) id: u64,
    /// How often its pool had been searched when it became free.
    pub(super) searched: u64,
    pub(super) prev: Handle,
    pub(super) next: Handle,
    /// Where it stands among the few of its set, while it is free.
    pub(super) place: u32,
    /// The free list it belongs to.
    pub(super) shelf: u32,
    /// From an address to a rank among blocks of the same size: nothing, or what puts a segment behind all that were
    /// taken before it.
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
    /// Whether it is a part of its segment.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.ptr.saturating_add(self.size)
    }
}
