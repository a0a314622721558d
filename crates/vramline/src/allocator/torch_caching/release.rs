//! Returning memory to the driver.

use super::block::{Block, State};
use super::{Lane, PoolId, Supplier, TorchCaching, UnservedRequest};
use crate::allocator::free_set::Free;
use crate::allocator::slab::Handle;
use crate::units::Bytes;

impl TorchCaching {
    /// Waits for all streams and returns all idle segments, as `torch.cuda.empty_cache()` does.
    pub fn empty_cache(&mut self, supplier: &mut impl Supplier) {
        self.stats.num_sync_all_streams += 1;
        self.pending_requested = 0;
        for (_, handle) in std::mem::take(&mut self.pending) {
            self.join(handle);
        }
        // Large blocks first; of private pools, small ones.
        let unused = self.unused_pools.iter().map(|&pool| (pool, [true, false]));
        let pools = [(PoolId::DEFAULT, [false, true])].into_iter().chain(unused);
        let mut order = Vec::new();
        for (pool, classes) in pools {
            let Some(pool) = self.pools.get(pool.0 as usize) else { continue };
            for is_small in classes {
                order.push(pool.lanes.values().map(|lane| lane.shelf(is_small)).collect::<Vec<u32>>());
            }
        }
        for shelves in order {
            let free = shelves.iter().filter_map(|&shelf| self.shelf(shelf));
            let free: Vec<Handle> =
                free.flat_map(|shelf| shelf.ascending()).map(|free| free.handle).collect();
            let is_expandable = |handle: &Handle| self.blocks.at(*handle).is_expandable;
            let (grown, whole): (Vec<Handle>, Vec<Handle>) = free.into_iter().partition(is_expandable);
            whole.into_iter().for_each(|handle| self.release_whole(handle, supplier));
            grown.into_iter().for_each(|handle| self.unmap_pages(handle, supplier));
        }
        self.forget_empty_pools();
    }

    /// Returns the segment of a free block that fills it.
    fn release_whole(&mut self, handle: Handle, supplier: &mut impl Supplier) {
        let Block { ptr, size, is_small, state, .. } = *self.blocks.at(handle);
        if self.blocks.at(handle).is_split() || state != State::Free {
            return;
        }
        self.take_down(handle);
        self.segments.remove(&ptr);
        self.blocks.release(handle);
        supplier.give_back(ptr, Bytes(size));
        self.count_returned(is_small, size);
        self.stats.segment.decrease(is_small, 1);
        if size >= self.options.split_below() {
            self.stats.oversize_segments.decrease(1);
        }
    }

    /// Returns the oldest idle large segments of the default pool while more is reserved than the garbage collection threshold allows.
    pub(super) fn collect_garbage(&mut self, supplier: &mut impl Supplier) {
        let taken = self.stats.reserved_bytes.current();
        let Some(target) = taken.checked_sub(self.options.collects_from()).filter(|&target| target > 0)
        else {
            return;
        };
        let lanes: Vec<Lane> =
            self.pools.first().map_or_else(Vec::new, |pool| pool.lanes.values().copied().collect());
        let mut idle: Vec<(Free, u64)> = Vec::new();
        let mut total_age = 0u64;
        for lane in lanes {
            let number = lane.shelf(false);
            let searched = self.searched(number);
            let Some(shelf) = self.shelf(number) else { continue };
            for free in shelf.ascending() {
                let block = self.blocks.at(free.handle);
                if !block.is_split() {
                    let age = searched.saturating_sub(block.searched);
                    total_age = total_age.saturating_add(age);
                    idle.push((free, age));
                }
            }
        }
        let mut count = idle.len() as u64;
        let mut reclaimed = 0u64;
        while reclaimed < target && count > 0 {
            let before = count;
            // Compares age times count with the sum, to avoid a division by the count.
            let (sum, number) = (u128::from(total_age), u128::from(count));
            idle.retain(|&(free, age)| {
                if u128::from(age) * number < sum || self.blocks.at(free.handle).is_expandable {
                    return true;
                }
                reclaimed = reclaimed.saturating_add(free.size);
                total_age = total_age.saturating_sub(age);
                count -= 1;
                self.release_whole(free.handle, supplier);
                false
            });
            if count == before {
                break;
            }
        }
    }

    /// Returns blocks that are too large to be split until the request fits. Returns whether it does.
    pub(super) fn release_available(
        &mut self,
        wanted: &UnservedRequest,
        supplier: &mut impl Supplier,
    ) -> bool {
        let Some(Bytes(most)) = self.options.max_split else { return false };
        let needed = wanted.rounded.max(most);
        let Some(shelf) = self.shelf(wanted.shelf) else { return false };
        let is_whole = |free: &Free| {
            let block = self.blocks.at(free.handle);
            !block.is_expandable && !block.is_split()
        };
        if let Some(free) = shelf.best(needed)
            && !self.blocks.at(free.handle).is_expandable
        {
            let is_whole = is_whole(&free);
            if is_whole {
                self.release_whole(free.handle, supplier);
            }
            return is_whole;
        }
        let mut released = 0u64;
        let mut chosen = Vec::new();
        let oversize = shelf.ascending().into_iter().rev().filter(|free| free.size < needed);
        for free in oversize.take_while(|free| free.size >= most) {
            if released >= needed {
                break;
            }
            if is_whole(&free) {
                released = released.saturating_add(free.size);
                chosen.push(free.handle);
            }
        }
        chosen.into_iter().for_each(|handle| self.release_whole(handle, supplier));
        released >= needed
    }
}
