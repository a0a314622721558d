//! Blocks in a table, by handle. A block knows its neighbours in its segment.

/// The number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle(pub(super) u32);

impl Handle {
    pub(super) const NONE: Handle = Handle(u32::MAX);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Handle::NONE
    }
}

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

impl Block {
    pub(super) const NONE: Block = Block {
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

    /// Whether it is a part of its segment.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.ptr.saturating_add(self.size)
    }
}

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    table: Vec<Block>,
    unused: Vec<Handle>,
    /// What stands for a handle that there is none of, so that nothing panics; it is never linked to.
    nowhere: Block,
}

impl Blocks {
    pub(super) fn new() -> Blocks {
        Blocks { table: Vec::new(), unused: Vec::new(), nowhere: Block::NONE }
    }

    #[inline]
    pub(super) fn add(&mut self, block: Block) -> Handle {
        if let Some(handle) = self.unused.pop() {
            *self.at_mut(handle) = block;
            return handle;
        }
        let handle = Handle(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.table.push(block);
        handle
    }

    #[inline]
    pub(super) fn release(&mut self, handle: Handle) {
        self.at_mut(handle).id = 0;
        self.unused.push(handle);
    }

    #[inline(always)]
    pub(super) fn at(&self, handle: Handle) -> &Block {
        self.table.get(handle.0 as usize).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    pub(super) fn at_mut(&mut self, handle: Handle) -> &mut Block {
        match self.table.get_mut(handle.0 as usize) {
            Some(block) => block,
            None => {
                self.nowhere = Block::NONE;
                &mut self.nowhere
            }
        }
    }
}
