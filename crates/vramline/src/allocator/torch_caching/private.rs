//! Private pools: those of CUDA graphs and of `torch.cuda.MemPool`.
//!
//! A private pool has free blocks of its own, for each stream and size class. It keeps its idle segments until the program no longer
//! uses it. Then they are returned with those of the default pool, after them, small ones first.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::block::State;
use super::options::{GRANULE, SMALL};
use super::{Allocation, Lane, Request, TorchCaching, UnservedRequest};
use crate::allocator::slab::Handle;
use crate::units::Bytes;

/// A pool of blocks: the default one, or one of a CUDA graph or of `torch.cuda.MemPool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId(pub(super) u32);

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId(0);
}

/// How a private pool differs from the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolOptions {
    /// Whether its blocks are handed out whole.
    pub no_split: bool,
    /// Whether the default pool may use its blocks when it cannot grow.
    pub use_on_oom: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) options: PoolOptions,
    /// Its lanes by stream: the order in which their segments are returned.
    pub(super) lanes: BTreeMap<u64, Lane>,
    /// The number of searches of each size class; counted only for garbage collection.
    pub(super) searched: [u64; 2],
}

impl TorchCaching {
    /// Adds a private pool.
    pub(crate) fn add_pool(&mut self, options: PoolOptions) -> PoolId {
        let id = PoolId(u32::try_from(self.pools.len()).unwrap_or(u32::MAX));
        self.pools.push(Pool { options, ..Pool::default() });
        id
    }

    /// Marks a private pool as unused: from now on its idle segments are returned with those of the default pool, after those of
    /// pools that were marked before.
    pub(crate) fn release_pool(&mut self, pool: PoolId) {
        if pool != PoolId::DEFAULT
            && (pool.0 as usize) < self.pools.len()
            && !self.unused_pools.contains(&pool)
        {
            self.unused_pools.push(pool);
        }
    }

    /// Puts unused private pools in the order in which their segments are returned. PyTorch has them in a hash table.
    pub(crate) fn order_unused_pools(&mut self, order: &[PoolId]) {
        let place = |pool: &PoolId| order.iter().position(|other| other == pool).unwrap_or(order.len());
        self.unused_pools.sort_by_key(place);
    }

    /// The pool of a lane.
    #[must_use]
    pub(crate) fn pool_of(&self, lane: Lane) -> PoolId {
        self.shelf(lane.shelf(true)).map_or(PoolId::DEFAULT, |shelf| PoolId(shelf.pool))
    }

    /// The pool of the segment that contains an address.
    #[must_use]
    pub(crate) fn pool_at(&self, address: u64) -> Option<PoolId> {
        let segment = self.segments.get(&self.segment_of(address)?)?;
        self.shelf(segment.shelf).map(|shelf| PoolId(shelf.pool))
    }

    /// Whether a request would get the free block at an address, and exactly as much of it as it asks for.
    fn gets(&self, request: Request, address: u64) -> bool {
        let Some(Bytes(rounded)) = self.options.rounded(request.bytes) else { return false };
        self.candidate(request.lane.shelf(rounded <= SMALL), rounded).is_some_and(|found| {
            let block = self.blocks.at(found.handle);
            let is_whole = block.size == request.bytes.0;
            block.ptr == address && (is_whole || self.should_split(block, rounded))
        })
    }

    /// Hands out exactly the requested bytes at the address of a free block of the lane, as PyTorch does when it restores a private
    /// pool; without a search, and split whatever remains. `None` if the allocator would choose that place itself, or if no such
    /// block begins there.
    pub(crate) fn allocate_at(&mut self, request: Request, address: u64) -> Option<Allocation> {
        let base = self.segment_of(address)?;
        let bytes = request.bytes.0;
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) || self.gets(request, address) {
            return None;
        }
        let segment = self.segments.get(&base).filter(|segment| segment.shelf / 2 == request.lane.0)?;
        let mut handle = segment.first;
        while handle.is_some() && self.blocks.at(handle).ptr < address {
            handle = self.blocks.at(handle).next;
        }
        let block = *self.blocks.at(handle);
        if !handle.is_some() || block.ptr != address || block.state != State::Free || block.size < bytes {
            return None;
        }
        self.take_down(handle);
        Some(self.hand_out(handle, bytes, bytes, block.size > bytes))
    }

    /// A free block of the same stream in a pool that lends its blocks.
    pub(super) fn find_overflow(&mut self, wanted: &UnservedRequest) -> Option<Handle> {
        let shelf = self.shelf(wanted.shelf).filter(|shelf| shelf.pool == PoolId::DEFAULT.0)?;
        let (stream, is_small) = (shelf.stream, shelf.is_small);
        let helping = self.pools.iter().filter(|pool| pool.options.use_on_oom);
        let lanes: Vec<Lane> = helping.filter_map(|pool| pool.lanes.get(&stream).copied()).collect();
        lanes.into_iter().find_map(|lane| self.find(lane.shelf(is_small), wanted.rounded))
    }

    /// Forgets unused pools without segments, as PyTorch does; a capture that names one again makes a new one.
    pub(super) fn forget_empty_pools(&mut self) {
        if self.unused_pools.is_empty() {
            return;
        }
        let shelves = self.segments.values().filter_map(|segment| self.shelf(segment.shelf));
        let held: FxHashSet<u32> = shelves.map(|shelf| shelf.pool).collect();
        self.unused_pools.retain(|pool| held.contains(&pool.0));
    }
}
