//! Segments that grow in place: address space for the whole device, with memory behind as many pages as are used.

use super::block::{Block, State};
use super::shelf::Shelf;
use super::{Supplier, TorchCaching, UnservedRequest};
use crate::allocator::free_set::Free;
use crate::allocator::slab::Handle;
use crate::units::Bytes;

impl TorchCaching {
    /// The block that a request gets if segments grow: a block at the end of the mapped part counts with the size it can grow
    /// to, so that a free block in the middle is preferred.
    pub(super) fn among_expandable(&self, shelf: &Shelf, best: Free) -> Option<Free> {
        let is_expandable = |free: &Free| self.blocks.at(free.handle).is_expandable;
        if !is_expandable(&best) {
            return Some(best);
        }
        let mut best = best;
        if !self.options.expandable {
            // They were switched off: PyTorch then looks only at the first block after those of such segments.
            loop {
                best = shelf.after(best)?;
                if !is_expandable(&best) {
                    return Some(best);
                }
            }
        }
        while is_expandable(&best)
            && let Some(next) = shelf.after(best)
            && self.grown_size(next.handle) < self.grown_size(best.handle)
        {
            best = next;
        }
        Some(best)
    }

    /// The size of a block together with the unmapped block after it.
    fn grown_size(&self, handle: Handle) -> u64 {
        let block = self.blocks.at(handle);
        let next = self.blocks.at(block.next);
        let more = if block.next.is_some() && next.state == State::Unmapped { next.size } else { 0 };
        block.size.saturating_add(more)
    }

    /// Maps the missing bytes of a request after a free block or in a new segment; the block is on no shelf.
    pub(super) fn grow_in_place(
        &mut self,
        wanted: &UnservedRequest,
        supplier: &mut impl Supplier,
    ) -> Option<Handle> {
        let mut handle = self.find_room(wanted, supplier)?;
        let block = *self.blocks.at(handle);
        if block.state == State::Unmapped {
            handle = self.map_block(handle, block.size.min(wanted.rounded), wanted, supplier)?;
        }
        loop {
            let Block { size, next, .. } = *self.blocks.at(handle);
            if size >= wanted.rounded {
                break;
            }
            let following = *self.blocks.at(next);
            if !next.is_some() || following.state != State::Unmapped {
                return None;
            }
            let missing = (wanted.rounded - size).min(following.size);
            handle = self.map_block(next, missing, wanted, supplier)?;
        }
        self.take_down(handle);
        Some(handle)
    }

    /// The lowest free or unmapped block that is followed by enough unused bytes, or a new segment.
    fn find_room(&mut self, wanted: &UnservedRequest, supplier: &mut impl Supplier) -> Option<Handle> {
        let is_open = |block: &Block| matches!(block.state, State::Free | State::Unmapped);
        let shelf = self.shelf(wanted.shelf)?;
        for &unmapped in shelf.unmapped.values() {
            let prev = self.blocks.at(unmapped).prev;
            let begin = if prev.is_some() && is_open(self.blocks.at(prev)) { prev } else { unmapped };
            let (mut at, mut bytes) = (begin, 0u64);
            while bytes < wanted.rounded && at.is_some() && is_open(self.blocks.at(at)) {
                bytes = bytes.saturating_add(self.blocks.at(at).size);
                at = self.blocks.at(at).next;
            }
            if bytes >= wanted.rounded {
                return Some(begin);
            }
        }
        let size = self.options.address_space(shelf.is_small);
        if size < wanted.rounded {
            return None;
        }
        let base = supplier.reserve(Bytes(size))?;
        if self.overlaps(base, Bytes(size)) {
            return None;
        }
        self.has_expandable = true;
        let handle = self.add_segment(wanted.shelf, base, size, true)?;
        self.shelves.get_mut(wanted.shelf as usize)?.unmapped.insert(base, handle);
        Some(handle)
    }

    /// Maps at least `size` bytes of an unmapped block, in whole pages, and joins them with adjacent free blocks.
    fn map_block(
        &mut self,
        handle: Handle,
        size: u64,
        wanted: &UnservedRequest,
        supplier: &mut impl Supplier,
    ) -> Option<Handle> {
        let block = *self.blocks.at(handle);
        let page = self.options.page(block.is_small);
        let size = size.next_multiple_of(page).min(block.size);
        if !supplier.map(block.ptr, Bytes(size)) {
            return None;
        }
        self.shelves.get_mut(block.shelf as usize)?.unmapped.remove(&block.ptr);
        self.note_growth(wanted, block.ptr, size);
        if size < block.size {
            let rest = self.split(handle, size);
            let rest_ptr = self.blocks.at(rest).ptr;
            self.blocks.at_mut(rest).requested = 0;
            self.shelves.get_mut(block.shelf as usize)?.unmapped.insert(rest_ptr, rest);
        }
        self.blocks.at_mut(handle).state = State::Free;
        let joined = self.join_quietly(handle);
        self.put_back(joined);
        self.count_taken(block.shelf, size);
        Some(joined)
    }

    /// Joins a block that is on no shelf with adjacent blocks of the same state.
    fn join_quietly(&mut self, handle: Handle) -> Handle {
        let Block { prev, next, state, requested, .. } = *self.blocks.at(handle);
        let mut joined = handle;
        if prev.is_some() && self.blocks.at(prev).state == state {
            self.take_down_any(prev);
            self.merge(prev, handle);
            joined = prev;
        }
        if next.is_some() && self.blocks.at(next).state == state {
            self.take_down_any(next);
            self.merge(joined, next);
        }
        self.blocks.at_mut(joined).requested = requested;
        joined
    }

    fn take_down_any(&mut self, handle: Handle) {
        let Block { state, shelf, ptr, .. } = *self.blocks.at(handle);
        if state != State::Unmapped {
            self.take_down(handle);
        } else if let Some(shelf) = self.shelves.get_mut(shelf as usize) {
            shelf.unmapped.remove(&ptr);
        }
    }

    /// Returns the whole pages inside a free block to the driver, and removes the segment if it is empty.
    pub(super) fn unmap_pages(&mut self, handle: Handle, supplier: &mut impl Supplier) {
        let block = *self.blocks.at(handle);
        let Some(base) = self.segment_of(block.ptr).filter(|_| block.state == State::Free) else { return };
        let page = self.options.page(block.is_small);
        let begin = block.ptr.saturating_sub(base).next_multiple_of(page);
        let end = block.end().saturating_sub(base);
        let end = end - end % page;
        if begin >= end {
            return;
        }
        let (ptr, size) = (base.saturating_add(begin), end - begin);
        self.take_down(handle);
        let mut middle = handle;
        if ptr > block.ptr {
            middle = self.split(handle, ptr - block.ptr);
            // PyTorch makes the part before a new block, and the returned part keeps the requested size.
            self.blocks.at_mut(handle).requested = 0;
            self.put_back(handle);
        }
        if block.end() > ptr.saturating_add(size) {
            let after = self.split(middle, size);
            self.blocks.at_mut(after).requested = 0;
            self.put_back(after);
        }
        self.blocks.at_mut(middle).state = State::Unmapped;
        let joined = self.join_quietly(middle);
        supplier.unmap(ptr, Bytes(size));
        self.count_returned(block.is_small, size);
        if self.blocks.at(joined).is_split() {
            let ptr = self.blocks.at(joined).ptr;
            if let Some(shelf) = self.shelves.get_mut(block.shelf as usize) {
                shelf.unmapped.insert(ptr, joined);
            }
        } else {
            self.segments.remove(&base);
            self.blocks.release(joined);
        }
    }
}
