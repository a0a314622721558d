//! Chunks in a table, by handle. Handles are recycled as in the real one, because its dumps print them.

/// The number of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) u32);

impl Handle {
    pub(super) const NONE: Handle = Handle(u32::MAX);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Handle::NONE
    }

    /// As dumps print it.
    pub(super) fn printed(self) -> u64 {
        if self.is_some() { u64::from(self.0) } else { u64::MAX }
    }
}

/// Which end of a pool a chunk belongs to. Without spatial partitioning all is lower.
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

/// The bin of a chunk that is in none.
pub(super) const NO_BIN: u8 = u8::MAX;

/// A stretch of a region, in use or free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) ptr: u64,
    pub(super) size: u64,
    /// Never cleared: a free chunk keeps what an earlier owner of its handle asked for.
    pub(super) requested: u64,
    /// Counts from 1; 0 is free.
    pub(super) id: u64,
    pub(super) freed_at: u64,
    pub(super) prev: Handle,
    pub(super) next: Handle,
    /// Where it stands in its bin, while that is a small one.
    pub(super) place: u32,
    pub(super) bin: u8,
    pub(super) tag: Tag,
}

impl Chunk {
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

    #[inline]
    pub(super) fn in_use(&self) -> bool {
        self.id != 0
    }

    pub(super) fn end(&self) -> u64 {
        self.ptr.saturating_add(self.size)
    }
}

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    table: Vec<Chunk>,
    unused: Vec<Handle>,
    /// What stands for a handle that there is none of, so that nothing panics; it is never linked to.
    nowhere: Chunk,
}

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks { table: Vec::new(), unused: Vec::new(), nowhere: Chunk::NONE }
    }

    /// The handle released last, else a new one.
    #[inline]
    pub(super) fn allocate(&mut self) -> Handle {
        if let Some(handle) = self.unused.pop() {
            return handle;
        }
        let handle = Handle(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.table.push(Chunk::NONE);
        handle
    }

    #[inline]
    pub(super) fn release(&mut self, handle: Handle) {
        let chunk = self.at_mut(handle);
        chunk.id = 0;
        chunk.bin = NO_BIN;
        self.unused.push(handle);
    }

    #[inline(always)]
    pub(super) fn at(&self, handle: Handle) -> &Chunk {
        self.table.get(handle.0 as usize).unwrap_or(&self.nowhere)
    }

    #[inline(always)]
    pub(super) fn at_mut(&mut self, handle: Handle) -> &mut Chunk {
        match self.table.get_mut(handle.0 as usize) {
            Some(chunk) => chunk,
            None => {
                self.nowhere = Chunk::NONE;
                &mut self.nowhere
            }
        }
    }
}
