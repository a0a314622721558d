//! PyTorch's caching allocator for CUDA: same requests, same addresses.
//!
//! Segments come from the driver, 2 MiB for small requests, 20 MiB or the request's own size for large ones, and are
//! cut into blocks: a request gets the smallest free block that fits, split if enough remains, and joined with adjacent free blocks when
//! freed. Streams, size classes and pools never share blocks ([`Lane`]). Idle segments are returned only when
//! the driver refuses, the cap is reached, or the program calls for it. One call of [`TorchCaching::allocate`] does everything that the
//! real allocator does for a request. Versions and settings are values of [`Options`]; there is one type.
//!
//! Threads and the progress of streams are not modelled: a block that waits for a stream becomes free when the caller says so, or
//! when the whole cache is released, because the real allocator then waits for all streams.
//!
//! Constraint: a million requests take a tenth of a second, so nothing here is looked up by address. The caller
//! keeps the [`Ticket`].

mod block;
mod expandable;
mod options;
mod private;
mod release;
mod shelf;
mod stats;

use std::collections::{BTreeMap, BTreeSet};

use super::supplier::Supplier;
use crate::allocator::free_set::Free;
use crate::allocator::slab::{Handle, Piece};
use crate::units::Bytes;
use block::{Block, Blocks};
use options::{GRANULE, LARGEST, LARGEST_SLACK, SMALL};
use private::Pool;
use shelf::Shelf;

pub use crate::allocator::slab::{Allocation, NotInUse, Ticket};
pub use block::State;
pub use options::{Divisions, Options, TieBreak};
pub use private::PoolId;
pub(crate) use private::PoolOptions;
pub use stats::{ByClass, Stat, Stats};

/// A pool and a stream: only requests of the same lane share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(u32);

impl Lane {
    fn shelf(self, is_small: bool) -> u32 {
        self.0.saturating_mul(2).saturating_add(u32::from(!is_small))
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested bytes.
    pub bytes: Bytes,
    /// Its pool and stream.
    pub lane: Lane,
    /// Whether a CUDA graph is being captured; the allocator must not wait for streams then.
    pub capturing: bool,
}

impl Request {
    /// An ordinary request.
    #[must_use]
    #[inline]
    pub fn of(bytes: Bytes, lane: Lane) -> Request {
        Request { bytes, lane, capturing: false }
    }
}

/// The error of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A request for zero bytes, which is not counted.
    #[error("a request for no bytes gets no memory")]
    Nothing,
    /// The lane does not exist.
    #[error("a request for a pool and stream that were not named before")]
    UnknownLane,
    /// No free block is large enough, and the pool cannot grow.
    #[error("no free block of {rounded} bytes, and the driver or the cap refuses {segment} more")]
    OutOfMemory {
        /// The rounded request.
        rounded: u64,
        /// The segment size that was requested from the driver; PyTorch's message calls it "tried to allocate".
        segment: u64,
    },
}

/// A growth of the pool: when memory was reserved from the driver, and what was free when the request found no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The number of the allocation that caused it, from 1; `None` if that allocation failed.
    pub allocation: u64,
    /// Its pool and stream.
    pub lane: Lane,
    /// The rounded request.
    pub rounded: Bytes,
    /// Reserved and free at that time, in all pools.
    pub free: Bytes,
    /// The part of it in the lane and size class of the request.
    pub reachable: Bytes,
    /// The largest free block there.
    pub largest_free: Bytes,
    /// The largest free block of other lanes and the other size class.
    pub largest_elsewhere: Bytes,
    /// Bytes returned to the driver for this request before it was served.
    pub released: Bytes,
    /// The size of the growth.
    pub got: Bytes,
    /// Its address.
    pub base: u64,
}

/// What was free when a request came, before the allocator did anything.
#[derive(Clone, Copy, Debug)]
struct Met {
    free: u64,
    reachable: u64,
    largest: u64,
    elsewhere: u64,
    returned: u64,
}

/// A segment, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Its address.
    pub base: u64,
    /// Its size; for an expandable segment, its address space.
    pub size: Bytes,
    /// Its pool and stream.
    pub lane: Lane,
    /// Whether it serves small requests.
    pub is_small: bool,
    /// Whether it grows in place.
    pub is_expandable: bool,
}

/// A block, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// The requested bytes; for a free block, those of its last owner.
    pub requested: Bytes,
    /// Its state.
    pub state: State,
    /// The ticket to free it with; [`Ticket::NONE`] if it is free.
    pub ticket: Ticket,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    size: u64,
    /// The lowest block: splits and merges keep its handle.
    first: Handle,
    shelf: u32,
    is_expandable: bool,
}

/// The allocator of one device.
#[derive(Clone, Debug)]
pub struct TorchCaching {
    options: Options,
    stats: Stats,
    blocks: Blocks,
    shelves: Vec<Shelf>,
    pools: Vec<Pool>,
    /// Private pools that the program no longer uses, in the order in which their idle segments are returned.
    unused_pools: Vec<PoolId>,
    segments: BTreeMap<u64, Segment>,
    /// Blocks that wait for a stream, in order of allocation.
    pending: BTreeSet<(u64, Handle)>,
    /// The requested bytes of these blocks.
    pending_requested: u64,
    next_id: u64,
    /// The first rank of the next segment.
    next_rank: u64,
    has_expandable: bool,
    /// Bytes returned to the driver so far.
    returned: u64,
    growths: Vec<Growth>,
}

impl TorchCaching {
    /// An empty allocator.
    #[must_use]
    pub fn new(options: Options) -> TorchCaching {
        TorchCaching {
            options,
            stats: Stats::default(),
            blocks: Blocks::new(),
            shelves: Vec::new(),
            pools: vec![Pool::default()],
            unused_pools: Vec::new(),
            segments: BTreeMap::new(),
            pending: BTreeSet::new(),
            pending_requested: 0,
            next_id: 1,
            next_rank: 0,
            has_expandable: false,
            returned: 0,
            growths: Vec::new(),
        }
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Its counters.
    #[must_use]
    #[inline]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Its growths.
    #[must_use]
    #[inline]
    pub fn growths(&self) -> &[Growth] {
        &self.growths
    }

    /// The lane of a pool and a stream, which is given by the value of its handle. `None` if there is no such pool.
    pub fn lane(&mut self, pool: PoolId, stream: u64) -> Option<Lane> {
        let known = self.pools.get_mut(pool.0 as usize)?;
        if let Some(&lane) = known.lanes.get(&stream) {
            return Some(lane);
        }
        let lane = Lane(u32::try_from(self.shelves.len() / 2).ok()?);
        known.lanes.insert(stream, lane);
        self.shelves.push(Shelf::new(pool.0, stream, true));
        self.shelves.push(Shelf::new(pool.0, stream, false));
        Some(lane)
    }

    /// Pool and stream of a lane.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn lane_parts(&self, lane: Lane) -> Option<(PoolId, u64)> {
        self.shelf(lane.shelf(true)).map(|shelf| (PoolId(shelf.pool), shelf.stream))
    }

    /// Whether a free block can serve a request now.
    #[must_use]
    pub fn finds(&self, request: Request) -> bool {
        let Some(Bytes(rounded)) = self.options.rounded(request.bytes) else { return false };
        self.candidate(request.lane.shelf(rounded <= SMALL), rounded).is_some()
    }

    /// Serves a request.
    #[inline]
    pub fn allocate(
        &mut self,
        request: Request,
        supplier: &mut impl Supplier,
    ) -> Result<Allocation, Refused> {
        if request.bytes == Bytes::ZERO {
            return Err(Refused::Nothing);
        }
        let Some(Bytes(rounded)) = self.options.rounded(request.bytes) else {
            self.stats.num_ooms += 1;
            return Err(Refused::OutOfMemory { rounded: request.bytes.0, segment: request.bytes.0 });
        };
        let shelf = request.lane.shelf(rounded <= SMALL);
        if let Some(handle) = self.find(shelf, rounded) {
            return Ok(self.finish(handle, request.bytes.0, rounded));
        }
        self.allocate_slowly(shelf, rounded, request, supplier)
    }

    #[cold]
    fn allocate_slowly(
        &mut self,
        shelf: u32,
        rounded: u64,
        request: Request,
        supplier: &mut impl Supplier,
    ) -> Result<Allocation, Refused> {
        let Some(met) = self.meet(shelf) else { return Err(Refused::UnknownLane) };
        let wanted = UnservedRequest { shelf, rounded, segment: self.options.segment(Bytes(rounded)).0, met };
        // PyTorch diverts requests to a private pool while a graph is captured, or as if one were.
        let capturing = request.capturing || self.pool_of(request.lane) != PoolId::DEFAULT;
        if let Some(handle) = self.obtain(&wanted, capturing, supplier) {
            return Ok(self.finish(handle, request.bytes.0, rounded));
        }
        self.stats.num_ooms += 1;
        Err(Refused::OutOfMemory { rounded, segment: wanted.segment })
    }

    /// Reserves a segment for a request that no free block can serve. Returns idle segments if the driver refuses.
    fn obtain(
        &mut self,
        wanted: &UnservedRequest,
        capturing: bool,
        supplier: &mut impl Supplier,
    ) -> Option<Handle> {
        if self.options.collects() {
            self.collect_garbage(supplier);
        }
        if let Some(handle) = self.grow(wanted, supplier) {
            return Some(handle);
        }
        if let Some(handle) = self.find_overflow(wanted) {
            return Some(handle);
        }
        if self.release_available(wanted, supplier)
            && let Some(handle) = self.grow(wanted, supplier)
        {
            return Some(handle);
        }
        if capturing {
            return None;
        }
        self.empty_cache(supplier);
        self.stats.num_alloc_retries += 1;
        self.grow(wanted, supplier)
    }

    fn meet(&self, number: u32) -> Option<Met> {
        let shelf = self.shelf(number)?;
        let others = self.shelves.iter().enumerate().filter(|(other, _)| *other != number as usize);
        Some(Met {
            free: self.stats.reserved_bytes.current().saturating_sub(self.stats.active_bytes.current()),
            reachable: shelf.free(),
            largest: shelf.largest(),
            elsewhere: others.map(|(_, shelf)| shelf.largest()).max().unwrap_or_default(),
            returned: self.returned,
        })
    }

    #[inline]
    fn shelf(&self, number: u32) -> Option<&Shelf> {
        self.shelves.get(number as usize)
    }

    /// The free block that a request would get.
    #[inline]
    fn candidate(&self, number: u32, rounded: u64) -> Option<Free> {
        let shelf = self.shelf(number)?;
        let mut best = shelf.best(rounded)?;
        if self.has_expandable {
            best = self.among_expandable(shelf, best)?;
        }
        if let Some(Bytes(most)) = self.options.max_split {
            // PyTorch looks only at this one, not at those after it.
            let is_oversize = best.size >= most;
            let largest = rounded.saturating_add(self.options.max_non_split_rounding.0);
            if (rounded < most && is_oversize) || (rounded >= most && best.size >= largest) {
                return None;
            }
        }
        Some(best)
    }

    /// Takes the free block that a request gets off its shelf.
    #[inline]
    fn find(&mut self, number: u32, rounded: u64) -> Option<Handle> {
        if self.options.collects() {
            self.count_search(number);
        }
        let found = self.candidate(number, rounded)?;
        self.shelves.get_mut(number as usize)?.remove(found, &mut self.blocks);
        Some(found.handle)
    }

    fn count_search(&mut self, number: u32) {
        let Some(shelf) = self.shelves.get(number as usize) else { return };
        let class = usize::from(shelf.is_small);
        if let Some(pool) = self.pools.get_mut(shelf.pool as usize)
            && let Some(searched) = pool.searched.get_mut(class)
        {
            *searched += 1;
        }
    }

    /// The number of searches of the pool and size class of a shelf.
    fn searched(&self, number: u32) -> u64 {
        let Some(shelf) = self.shelf(number) else { return 0 };
        let pool = self.pools.get(shelf.pool as usize);
        pool.and_then(|pool| pool.searched.get(usize::from(shelf.is_small))).copied().unwrap_or_default()
    }

    #[inline]
    fn should_split(&self, block: &Block, rounded: u64) -> bool {
        let remaining = block.size.saturating_sub(rounded);
        if self.pools.len() > 1
            && let Some(shelf) = self.shelf(block.shelf)
            && self.pools.get(shelf.pool as usize).is_some_and(|pool| pool.options.no_split)
        {
            return false;
        }
        if block.is_small || self.options.expandable {
            remaining >= GRANULE
        } else {
            remaining > LARGEST_SLACK && rounded < self.options.split_below()
        }
    }

    /// Hands out a block that is on no shelf.
    #[inline]
    fn finish(&mut self, handle: Handle, requested: u64, rounded: u64) -> Allocation {
        let splits = self.should_split(self.blocks.at(handle), rounded);
        self.hand_out(handle, requested, rounded, splits)
    }

    #[inline]
    fn hand_out(&mut self, handle: Handle, requested: u64, rounded: u64, splits: bool) -> Allocation {
        let block = *self.blocks.at(handle);
        let was_split = block.is_split();
        let (is_small, counts) = (block.is_small, !block.is_expandable);
        let mut size = block.size;
        if splits {
            size = rounded;
            let rest = self.split(handle, rounded);
            self.put_back(rest);
            if counts && was_split {
                self.stats.inactive_split_bytes.decrease(is_small, size);
            } else if counts {
                self.stats.inactive_split_bytes.increase(is_small, block.size.saturating_sub(size));
                self.stats.inactive_split.increase(is_small, 1);
            }
        } else if counts && was_split {
            self.stats.inactive_split_bytes.decrease(is_small, size);
            self.stats.inactive_split.decrease(is_small, 1);
        }
        let id = self.next_id;
        self.next_id += 1;
        let block = self.blocks.at_mut(handle);
        block.state = State::Allocated;
        block.requested = requested;
        block.id = id;
        self.stats.allocation.increase(is_small, 1);
        self.stats.allocated_bytes.increase(is_small, size);
        self.stats.active.increase(is_small, 1);
        self.stats.active_bytes.increase(is_small, size);
        self.stats.requested_bytes.increase(is_small, requested);
        if size >= self.options.split_below() {
            self.stats.oversize_allocations.increase(1);
        }
        Allocation { ticket: Ticket { handle, id }, address: block.ptr, size: Bytes(size) }
    }

    /// The block of a ticket, if it is in that state.
    #[inline]
    fn claimed(&self, ticket: Ticket, state: State) -> Result<Block, NotInUse> {
        let block = *self.blocks.at(ticket.handle);
        if ticket.id == 0 || block.id != ticket.id || block.state != state {
            return Err(NotInUse);
        }
        Ok(block)
    }

    /// Frees a block that no other stream uses.
    #[inline]
    pub fn free(&mut self, ticket: Ticket) -> Result<(), NotInUse> {
        let block = self.claimed(ticket, State::Allocated)?;
        self.let_go(&block);
        self.join(ticket.handle);
        Ok(())
    }

    /// Frees a block that another stream may still use.
    pub(crate) fn request_free(&mut self, ticket: Ticket) -> Result<(), NotInUse> {
        let block = self.claimed(ticket, State::Allocated)?;
        self.let_go(&block);
        self.blocks.at_mut(ticket.handle).state = State::Pending;
        self.pending.insert((ticket.id, ticket.handle));
        self.pending_requested = self.pending_requested.saturating_add(block.requested);
        Ok(())
    }

    /// Ends the wait for the last stream of a block. An error if the release of the whole cache has already ended it.
    pub(crate) fn complete_free(&mut self, ticket: Ticket) -> Result<(), NotInUse> {
        let block = self.claimed(ticket, State::Pending)?;
        self.pending_requested = self.pending_requested.saturating_sub(block.requested);
        self.pending.remove(&(ticket.id, ticket.handle));
        self.join(ticket.handle);
        Ok(())
    }

    /// The requested bytes of the blocks that wait for a stream.
    #[must_use]
    pub(crate) fn pending_requested(&self) -> Bytes {
        Bytes(self.pending_requested)
    }

    /// Whether the block of a ticket waits for a stream.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_pending(&self, ticket: Ticket) -> bool {
        self.claimed(ticket, State::Pending).is_ok()
    }

    #[inline]
    fn let_go(&mut self, block: &Block) {
        self.stats.allocation.decrease(block.is_small, 1);
        self.stats.allocated_bytes.decrease(block.is_small, block.size);
        if block.size >= self.options.split_below() {
            self.stats.oversize_allocations.decrease(1);
        }
    }

    /// Frees a block and joins it with adjacent free blocks.
    #[inline]
    fn join(&mut self, handle: Handle) {
        let Block { size, requested, is_small, is_expandable, prev, next, .. } = *self.blocks.at(handle);
        let (mut joined, mut gone, mut gone_bytes) = (handle, 0, 0);
        let block = self.blocks.at_mut(handle);
        block.state = State::Free;
        block.id = 0;
        if prev.is_some() && self.blocks.at(prev).state == State::Free {
            gone += 1;
            gone_bytes += self.blocks.at(prev).size;
            self.take_down(prev);
            self.merge(prev, handle);
            joined = prev;
        }
        if next.is_some() && self.blocks.at(next).state == State::Free {
            gone += 1;
            gone_bytes += self.blocks.at(next).size;
            self.take_down(next);
            self.merge(joined, next);
        }
        let block = self.blocks.at_mut(joined);
        // The requested size of the freed block stays.
        block.requested = requested;
        if !is_expandable {
            let (more, more_bytes) = if block.is_split() { (1, block.size) } else { (0, 0) };
            self.stats.inactive_split.change(is_small, more, gone);
            self.stats.inactive_split_bytes.change(is_small, more_bytes, gone_bytes);
        }
        self.put_back(joined);
        self.stats.active.decrease(is_small, 1);
        self.stats.active_bytes.decrease(is_small, size);
        self.stats.requested_bytes.decrease(is_small, requested);
    }

    /// Joins two adjacent blocks that are on no shelf, and releases the handle of the higher one.
    #[inline]
    fn merge(&mut self, low: Handle, high: Handle) {
        let Block { size, next, .. } = *self.blocks.at(high);
        let block = self.blocks.at_mut(low);
        block.next = next;
        block.size = block.size.saturating_add(size);
        if next.is_some() {
            self.blocks.at_mut(next).prev = low;
        }
        self.blocks.release(high);
    }

    /// Cuts a block that is on no shelf; the higher part is a new block, on no shelf either.
    #[inline]
    fn split(&mut self, handle: Handle, at: u64) -> Handle {
        let block = *self.blocks.at(handle);
        let ptr = block.ptr.saturating_add(at);
        let rest = Block { ptr, size: block.size.saturating_sub(at), id: 0, prev: handle, ..block };
        let rest = self.blocks.add(rest);
        let low = self.blocks.at_mut(handle);
        low.size = at;
        low.next = rest;
        if block.next.is_some() {
            self.blocks.at_mut(block.next).prev = rest;
        }
        rest
    }

    #[inline]
    fn as_free(&self, handle: Handle) -> Free {
        let block = self.blocks.at(handle);
        Free { size: block.size, rank: block.ptr.wrapping_add(block.shift), handle }
    }

    /// Puts a free block on its shelf.
    #[inline]
    fn put_back(&mut self, handle: Handle) {
        let number = self.blocks.at(handle).shelf;
        if self.options.collects() {
            self.blocks.at_mut(handle).searched = self.searched(number);
        }
        let free = self.as_free(handle);
        if let Some(shelf) = self.shelves.get_mut(number as usize) {
            shelf.insert(free, &mut self.blocks);
        }
    }

    /// Takes a free block off its shelf.
    #[inline]
    fn take_down(&mut self, handle: Handle) {
        let free = self.as_free(handle);
        let number = self.blocks.at(handle).shelf;
        if let Some(shelf) = self.shelves.get_mut(number as usize) {
            shelf.remove(free, &mut self.blocks);
        }
    }

    /// Reserves a segment from the driver; its block is on no shelf.
    fn grow(&mut self, wanted: &UnservedRequest, supplier: &mut impl Supplier) -> Option<Handle> {
        let reserved = self.stats.reserved_bytes.current();
        if self.options.cap.is_some_and(|cap| reserved.saturating_add(wanted.segment) > cap.0) {
            return None;
        }
        if self.options.expandable {
            return self.grow_in_place(wanted, supplier);
        }
        let base = supplier.take(Bytes(wanted.segment))?;
        if self.overlaps(base, Bytes(wanted.segment)) {
            return None;
        }
        self.note_growth(wanted, base, wanted.segment);
        let handle = self.add_segment(wanted.shelf, base, wanted.segment, false)?;
        self.blocks.at_mut(handle).state = State::Free;
        self.count_taken(wanted.shelf, wanted.segment);
        let is_small = self.blocks.at(handle).is_small;
        self.stats.segment.increase(is_small, 1);
        if wanted.segment >= self.options.split_below() {
            self.stats.oversize_segments.increase(1);
        }
        Some(handle)
    }

    fn note_growth(&mut self, wanted: &UnservedRequest, base: u64, got: u64) {
        self.growths.push(Growth {
            allocation: self.next_id,
            lane: Lane(wanted.shelf / 2),
            rounded: Bytes(wanted.rounded),
            free: Bytes(wanted.met.free),
            reachable: Bytes(wanted.met.reachable),
            largest_free: Bytes(wanted.met.largest),
            largest_elsewhere: Bytes(wanted.met.elsewhere),
            released: Bytes(self.returned.saturating_sub(wanted.met.returned)),
            got: Bytes(got),
            base,
        });
    }

    fn count_taken(&mut self, shelf: u32, size: u64) {
        let is_small = self.shelf(shelf).is_some_and(|shelf| shelf.is_small);
        self.stats.reserved_bytes.increase(is_small, size);
        self.stats.num_device_alloc += 1;
    }

    fn count_returned(&mut self, is_small: bool, size: u64) {
        self.stats.reserved_bytes.decrease(is_small, size);
        self.stats.num_device_free += 1;
        self.returned = self.returned.saturating_add(size);
    }

    /// A new segment of one block, which is unmapped and on no shelf.
    fn add_segment(&mut self, number: u32, base: u64, size: u64, is_expandable: bool) -> Option<Handle> {
        let is_small = self.shelf(number)?.is_small;
        let shift = match self.options.tie_break {
            TieBreak::Address => 0,
            TieBreak::Segment => self.next_rank.wrapping_sub(base),
        };
        self.next_rank = self.next_rank.saturating_add(size);
        let block = Block { ptr: base, size, shelf: number, shift, is_expandable, is_small, ..Block::NONE };
        let first = self.blocks.add(block);
        self.segments.insert(base, Segment { size, first, shelf: number, is_expandable });
        Some(first)
    }

    /// Whether the range from `base` overlaps a segment, or ends beyond the address space.
    #[must_use]
    pub fn overlaps(&self, base: u64, size: Bytes) -> bool {
        let Some(end) = base.checked_add(size.0) else { return true };
        let before = self.segments.range(..end).next_back();
        before.is_some_and(|(&other, segment)| other.saturating_add(segment.size) > base)
    }

    /// The segments, in order of their addresses.
    pub fn segments(&self) -> impl Iterator<Item = SegmentView> {
        self.segments.iter().map(|(&base, segment)| SegmentView {
            base,
            size: Bytes(segment.size),
            lane: Lane(segment.shelf / 2),
            is_small: segment.shelf % 2 == 0,
            is_expandable: segment.is_expandable,
        })
    }

    /// The blocks of the segment that begins at an address, in order of their addresses.
    pub fn blocks(&self, base: u64) -> impl Iterator<Item = BlockView> {
        let mut at = self.segments.get(&base).map_or(Handle::NONE, |segment| segment.first);
        std::iter::from_fn(move || {
            if !at.is_some() {
                return None;
            }
            let (handle, block) = (at, self.blocks.at(at));
            at = block.next;
            let ticket = if block.id == 0 { Ticket::NONE } else { Ticket { handle, id: block.id } };
            Some(BlockView {
                address: block.ptr,
                size: Bytes(block.size),
                requested: Bytes(block.requested),
                state: block.state,
                ticket,
            })
        })
    }

    /// The base of the segment that contains an address.
    #[must_use]
    pub(crate) fn segment_of(&self, address: u64) -> Option<u64> {
        let (&base, segment) = self.segments.range(..=address).next_back()?;
        (address < base.saturating_add(segment.size)).then_some(base)
    }

    /// The address of a ticket's block; `None` if it is no longer in use.
    #[must_use]
    pub(crate) fn address_of(&self, ticket: Ticket) -> Option<u64> {
        let block = self.blocks.at(ticket.handle);
        (ticket.id != 0 && block.id == ticket.id).then_some(block.ptr)
    }

    /// The largest free block of any lane.
    #[must_use]
    pub fn largest_free(&self) -> Bytes {
        Bytes(self.shelves.iter().map(Shelf::largest).max().unwrap_or_default())
    }

    /// The sizes of all free blocks.
    pub fn free_sizes(&self) -> impl Iterator<Item = Bytes> {
        self.shelves.iter().flat_map(Shelf::iter).map(|free| Bytes(free.size))
    }

    /// Adds a segment with blocks that are already in use to a lane; the rest of it is free. The requested size of a
    /// block may be unknown; the whole block then counts as requested.
    ///
    /// Returns `None` and changes nothing if the blocks are not in order, overlap, or exceed the segment.
    pub fn seed(
        &mut self,
        lane: Lane,
        is_small: bool,
        base: u64,
        size: Bytes,
        held: &[(u64, Bytes, Option<Bytes>)],
    ) -> Option<Vec<Ticket>> {
        let mut at = base;
        let end = base.checked_add(size.0)?;
        for &(address, size, _) in held {
            if address < at || size == Bytes::ZERO {
                return None;
            }
            at = address.checked_add(size.0)?;
        }
        if at > end || size == Bytes::ZERO || size.0 > LARGEST || self.overlaps(base, size) {
            return None;
        }
        let number = lane.shelf(is_small);
        let mut rest = self.add_segment(number, base, size.0, false)?;
        self.blocks.at_mut(rest).state = State::Free;
        self.count_taken(number, size.0);
        self.stats.segment.increase(is_small, 1);
        let mut tickets = Vec::with_capacity(held.len());
        let mut left = true;
        let note_free = |this: &mut TorchCaching, handle: Handle| {
            this.put_back(handle);
            let block = *this.blocks.at(handle);
            if block.is_split() {
                this.stats.inactive_split.increase(is_small, 1);
                this.stats.inactive_split_bytes.increase(is_small, block.size);
            }
        };
        for &(address, size, requested) in held {
            let before = address.saturating_sub(self.blocks.at(rest).ptr);
            if before > 0 {
                let block = self.split(rest, before);
                note_free(self, rest);
                rest = block;
            }
            let block = rest;
            left = self.blocks.at(block).size > size.0;
            if left {
                rest = self.split(block, size.0);
            }
            let id = self.next_id;
            self.next_id += 1;
            let requested = requested.unwrap_or(size).0.min(size.0);
            let held = self.blocks.at_mut(block);
            (held.state, held.id, held.requested) = (State::Allocated, id, requested);
            self.stats.allocation.increase(is_small, 1);
            self.stats.allocated_bytes.increase(is_small, size.0);
            self.stats.active.increase(is_small, 1);
            self.stats.active_bytes.increase(is_small, size.0);
            self.stats.requested_bytes.increase(is_small, requested);
            tickets.push(Ticket { handle: block, id });
        }
        if left {
            note_free(self, rest);
        }
        Some(tickets)
    }
}

/// A request that no free block serves.
#[derive(Clone, Copy, Debug)]
struct UnservedRequest {
    shelf: u32,
    rounded: u64,
    /// Its segment size, if segments do not grow.
    segment: u64,
    met: Met,
}

#[cfg(test)]
mod tests;
