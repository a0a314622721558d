//! Chunks: the parts of a region. A chunk links to the chunks next to it.

use crate::allocator::slab::{Handle, Piece, Slab};

/// The table of pieces.
pub(super) type Chunks = Slab<Chunk>;

/// The end of a pool that a chunk belongs to; always the lower one without spatial partitioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Lower,
    Upper,
    Gap,
}

impl Tag {
    pub(super) fn word(self) -> &'static str {
        match self {
            Tag::Lower => "lower",
            Tag::Upper => "upper",
            Tag::Gap => "central_gap",
        }
    }
}

/// The value for a chunk that is in no bin.
pub(super) const NO_BIN: u8 = u8::MAX;

/// A part of a region, in use or free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) ptr: u64,
    pub(super) size: u64,
    /// Never cleared: a free chunk keeps the requested size of the last owner of its handle.
    pub(super) requested: u64,
    /// Counts from 1; 0 is free.
    pub(super) id: u64,
    pub(super) freed_at: u64,
    pub(super) prev: Handle,
    pub(super) next: Handle,
    /// Its place in its bin, while that is small.
    pub(super) place: u32,
    pub(super) bin: u8,
    pub(super) tag: Tag,
}

impl Piece for Chunk {
    const NONE: Chunk = Chunk {
        ptr: 0,
        size: 0,
        requested: 0,
        id: 0,
        freed_at: 0,
        prev: Handle::NONE,
        next: Handle::NONE,
        place: 0,
        bin: NO_BIN,
        tag: Tag::Lower,
    };

    #[inline(always)]
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }

    #[inline(always)]
    fn forget(&mut self) {
        self.id = 0;
        self.bin = NO_BIN;
    }
}

impl Chunk {
    #[inline]
    pub(super) fn in_use(&self) -> bool {
        self.id != 0
    }

    pub(super) fn end(&self) -> u64 {
        self.ptr.saturating_add(self.size)
    }
}
