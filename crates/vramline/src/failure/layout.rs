//! Where the chunks of a pool lie, and what they add up to.

use super::{GRANULE, SizeRange};
use crate::names::Name;
use crate::units::Bytes;

/// Which part of a pool that serves from both ends a chunk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The lower end; every chunk of a pool that has one end only.
    Lower,
    /// The upper end.
    Upper,
    /// Between them: either may take it.
    Gap,
}

/// A piece of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// What was asked for, where the source tells; meaningless in a free one.
    pub requested: Option<Bytes>,
    /// Whether somebody holds it.
    pub in_use: bool,
    /// Which end it belongs to.
    pub tag: Tag,
    /// What names it: an op, or an annotation; empty where nothing does.
    pub op: Name,
}

impl Chunk {
    /// Whether a request from `end` may be served from it, if it is large enough.
    #[must_use]
    pub(crate) fn is_free_for(&self, end: Tag) -> bool {
        !self.in_use && (self.tag == end || self.tag == Tag::Gap)
    }
}

/// Memory that the pool got from the device in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Its chunks by address; they fill it.
    pub chunks: Vec<Chunk>,
}

impl Region {
    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.chunks.iter().map(|chunk| chunk.size).sum()
    }
}

/// Every chunk of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// By address.
    pub regions: Vec<Region>,
    /// Whether the source marks where regions begin. If not, chunks that touch are taken for one region.
    pub has_borders: bool,
}

impl Layout {
    /// All chunks, by region and address.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.regions.iter().flat_map(|region| &region.chunks)
    }

    /// What the chunks add up to, for a request from `end`.
    #[must_use]
    pub fn sums(&self, end: Tag) -> Sums {
        let mut sums = Sums { regions: self.regions.len() as u64, ..Sums::default() };
        let mut requested = Some(Bytes::ZERO);
        for chunk in self.chunks() {
            sums.chunks += 1;
            sums.pool += chunk.size;
            if chunk.in_use {
                sums.in_use += chunk.size;
                requested = requested.zip(chunk.requested).map(|(sum, own)| sum + own.min(chunk.size));
                if let Some(bin) = sums.in_use_of_bin.get_mut(bin_of(chunk.size)) {
                    *bin += chunk.size;
                }
            } else {
                sums.free += chunk.size;
                if chunk.is_free_for(end) {
                    sums.usable += chunk.size;
                    sums.largest_usable = sums.largest_usable.max(chunk.size);
                }
            }
        }
        sums.requested = requested;
        sums
    }
}

/// How many bins BFC has.
pub(crate) const BINS: usize = 21;

/// The bin of a size: bin `b` begins at 256 << b, the last has no end.
#[must_use]
pub(crate) fn bin_of(size: Bytes) -> usize {
    let granules = size.0.max(GRANULE) / GRANULE;
    (granules.ilog2() as usize).min(BINS - 1)
}

/// What all chunks of a pool add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Regions.
    pub regions: u64,
    /// Chunks.
    pub chunks: u64,
    /// All of them: what the pool took from the device.
    pub pool: Bytes,
    /// Those in use.
    pub in_use: Bytes,
    /// Those that are free.
    pub free: Bytes,
    /// Of these, those that the request may use.
    pub usable: Bytes,
    /// The largest of these.
    pub largest_usable: Bytes,
    /// What was asked for by those in use; `None` where the source does not tell of each.
    pub requested: Option<Bytes>,
    /// Those in use, by the bin of their size.
    pub in_use_of_bin: [Bytes; BINS],
}

/// What a text tells of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Which.
    pub number: usize,
    /// Chunks of its sizes.
    pub chunks: u64,
    /// Of these, in use.
    pub chunks_in_use: u64,
    /// Bytes of those in use.
    pub in_use: SizeRange,
    /// What was asked for by those in use.
    pub requested: SizeRange,
}
