//! The pool at any moment of a replay.

use crate::allocator::bfc::RegionView;
use crate::allocator::torch_caching::{SegmentView, State, TorchCaching};
use crate::replay::exact::{Heap, Piece};
use crate::units::Bytes;

impl Heap for TorchCaching {
    #[inline]
    fn in_use(&self) -> Bytes {
        Bytes(self.stats().allocated_bytes.current())
    }

    fn requested(&self) -> Bytes {
        Bytes(self.stats().requested_bytes.current()).saturating_sub(self.pending_requested())
    }

    fn pending(&self) -> Bytes {
        Bytes(self.stats().active_bytes.current()).saturating_sub(self.in_use())
    }

    fn taken(&self) -> Bytes {
        Bytes(self.stats().reserved_bytes.current())
    }

    fn peak_taken(&self) -> Bytes {
        Bytes(self.stats().reserved_bytes.peak())
    }

    fn largest_free(&self) -> Bytes {
        TorchCaching::largest_free(self)
    }

    fn free_sizes(&self) -> impl Iterator<Item = Bytes> {
        TorchCaching::free_sizes(self)
    }

    fn regions(&self) -> Vec<RegionView> {
        let mapped = |segment: SegmentView| {
            let size = if segment.is_expandable {
                self.blocks(segment.base)
                    .filter(|block| block.state != State::Unmapped)
                    .map(|block| block.size)
                    .sum()
            } else {
                segment.size
            };
            RegionView { base: segment.base, size }
        };
        self.segments().map(mapped).collect()
    }

    fn chunks(&self, base: u64) -> Vec<Piece> {
        let mapped = self.blocks(base).filter(|block| block.state != State::Unmapped);
        mapped
            .map(|block| Piece {
                address: block.address,
                size: block.size,
                in_use: block.state != State::Free,
            })
            .collect()
    }

    fn region_of(&self, address: u64) -> Option<u64> {
        self.segment_of(address)
    }
}
