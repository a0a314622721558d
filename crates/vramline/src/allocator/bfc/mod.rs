//! BFC, "best fit with coalescing": the allocator of TensorFlow, XLA and JAX.
//!
//! The same requests give the same addresses: regions that double, 21 bins, the smallest free chunk that fits and among equals the
//! lowest, split only if enough remains, joined with adjacent free chunks when freed. Versions are values of [`Options`]; there
//! is one type. One call of [`Bfc::allocate`] does everything that the real allocator does for a request, including retries.
//! Threads, waiting and time are not modelled: where the real allocator waits for other threads to free memory, this one fails.
//!
//! Constraint: a million requests take a few hundredths of a second, so nothing here is looked up by address. The caller
//! keeps the [`Ticket`].

mod bins;
mod chunk;
mod dump;
mod options;

use std::collections::VecDeque;

use super::supplier::Supplier;
use crate::allocator::free_set::Free;
use crate::allocator::slab::Handle;
use crate::units::Bytes;
use bins::Bins;
use chunk::{Chunk, Chunks, NO_BIN, Tag};

pub use crate::allocator::slab::{Allocation, NotInUse, Ticket};
pub use dump::human;
pub use options::{Backpedal, Dialect, Options, PRESETS, Preset};

const GRANULE: u64 = 256;
const FIRST_REGION: u64 = 2 << 20;
/// The number of searches that the real allocator makes for a request that fails: at once, as the first try of its
/// retry helper, after ten seconds, and once more with its dump.
const TRIES: u32 = 4;

/// The end of a spatially partitioned pool that a request is served from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Ordinary memory.
    #[default]
    Lower,
    /// Collective memory.
    Upper,
}

impl End {
    fn tag(self) -> Tag {
        match self {
            End::Lower => Tag::Lower,
            End::Upper => Tag::Upper,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested bytes.
    pub bytes: Bytes,
    /// A power of two that the address is a multiple of, if the version respects alignment.
    pub alignment: u64,
    /// The end of the pool to use.
    pub end: End,
    /// Only chunks that were freed no later than this may be used; 0 means any.
    pub freed_before: u64,
    /// Whether a failed request is retried.
    pub retry: bool,
}

impl Request {
    /// An ordinary request.
    #[must_use]
    pub fn of(bytes: Bytes) -> Request {
        Request { bytes, alignment: 64, end: End::Lower, freed_before: 0, retry: true }
    }
}

/// The error of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A request for zero bytes, which is not counted.
    #[error("a request for no bytes gets no memory")]
    Nothing,
    /// No chunk is large enough, and no more can be had.
    #[error("no free chunk of {rounded} bytes, and the pool cannot grow by as much")]
    OutOfMemory {
        /// The rounded request.
        rounded: u64,
    },
}

/// The allocator's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests served.
    pub allocs: u64,
    /// Bytes of chunks in use.
    pub in_use: Bytes,
    /// The highest value of that.
    pub peak_in_use: Bytes,
    /// The largest chunk ever handed out.
    pub largest_alloc: Bytes,
    /// The limit of the pool.
    pub limit: Bytes,
    /// Reserved bytes.
    pub pool: Bytes,
    /// The highest value of that.
    pub peak_pool: Bytes,
    /// Requested bytes of the chunks in use. The real allocator does not count this.
    pub requested: Bytes,
    /// Number of searches that failed and were repeated.
    pub retries: u64,
    /// Number of regions returned to the driver.
    pub regions_returned: u64,
}

impl Stats {
    /// Bytes reserved and not in use.
    #[must_use]
    pub fn free(&self) -> Bytes {
        self.pool.saturating_sub(self.in_use)
    }

    /// Bytes in use beyond the requests.
    #[must_use]
    pub fn slack(&self) -> Bytes {
        self.in_use.saturating_sub(self.requested)
    }
}

/// A growth of the pool, and what was free just before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The number of the allocation that caused it, from 1; `None` if that allocation failed.
    pub allocation: u64,
    /// The rounded request.
    pub rounded: Bytes,
    /// Free bytes of the pool at that time.
    pub free: Bytes,
    /// The largest free chunk at that time.
    pub largest_free: Bytes,
    /// The size of the growth.
    pub got: Bytes,
    /// Its address.
    pub base: u64,
}

/// A region of a pool, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Its address.
    pub base: u64,
    /// Its size.
    pub size: Bytes,
}

/// A chunk of a pool, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkView {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// The requested bytes; for a free chunk, those of its last owner.
    pub requested: Bytes,
    /// Whether it is in use.
    pub in_use: bool,
    /// The ticket to free it with; [`Ticket::NONE`] if it is free.
    pub ticket: Ticket,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    base: u64,
    size: u64,
    /// The lowest chunk: splits and merges keep its handle.
    first: Handle,
}

impl Region {
    fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }
}

/// Freed chunks that wait for a frontier.
#[derive(Clone, Debug, Default)]
struct Timed {
    counter: u64,
    safe_frontier: u64,
    queue: VecDeque<Handle>,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct Bfc {
    name: String,
    options: Options,
    stats: Stats,
    largest_slack: u64,
    /// The size of the next region.
    region_size: u64,
    regions: Vec<Region>,
    chunks: Chunks,
    bins: Bins,
    /// The one free chunk between the ends, which is in no bin.
    gap: Handle,
    next_id: u64,
    has_backpedalled: bool,
    timed: Timed,
    growths: Vec<Growth>,
}

fn round_up(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRANULE)
}

/// Nine tenths in single precision, as in the real allocator: `f64` would differ in the last granules of large pools.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounds as the real one does"
)]
fn nine_tenths(bytes: u64) -> u64 {
    (bytes as f32 * 0.9_f32) as u64
}

impl Bfc {
    /// An empty pool: even a preallocated pool reserves its memory at the first request.
    ///
    /// `None` if the fragmentation fraction is so small that the real allocator would split off empty chunks.
    #[must_use]
    pub fn new(name: &str, limit: Bytes, options: Options) -> Option<Bfc> {
        let first = if options.growth { limit.0.min(FIRST_REGION) } else { limit.0 };
        Some(Bfc {
            name: name.to_owned(),
            options,
            stats: Stats { limit, ..Stats::default() },
            largest_slack: options.largest_slack(limit)?.0,
            region_size: round_up(first)?.max(GRANULE),
            regions: Vec::new(),
            chunks: Chunks::new(),
            bins: Bins::new(),
            gap: Handle::NONE,
            next_id: 1,
            has_backpedalled: false,
            timed: Timed::default(),
            growths: Vec::new(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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

    /// The size of the next region, unless a request is larger.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn next_region(&self) -> Bytes {
        Bytes(self.region_size)
    }

    /// The largest free chunk.
    #[must_use]
    #[inline]
    pub fn largest_free(&self) -> Bytes {
        let gap = if self.gap.is_some() { self.chunks.at(self.gap).size } else { 0 };
        Bytes(self.bins.largest().max(gap))
    }

    /// The share of the free bytes outside the largest free chunk; NaN if nothing is free, as in the real allocator.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "as the real one computes it")]
    pub fn fragmentation(&self) -> f64 {
        let free = self.stats.free().0 as f64;
        (free - self.largest_free().0 as f64) / free
    }

    /// Serves a request as the real allocator does if no other thread frees memory meanwhile.
    #[inline]
    pub fn allocate(
        &mut self,
        request: Request,
        supplier: &mut impl Supplier,
    ) -> Result<Allocation, Refused> {
        if request.bytes == Bytes::ZERO {
            return Err(Refused::Nothing);
        }
        let Some(rounded) = round_up(request.bytes.0) else {
            return Err(Refused::OutOfMemory { rounded: request.bytes.0 });
        };
        if let Some(handle) = self.find(rounded, &request) {
            return Ok(self.finish(handle, request.bytes.0));
        }
        self.allocate_slowly(rounded, request, supplier)
    }

    #[cold]
    fn allocate_slowly(
        &mut self,
        rounded: u64,
        request: Request,
        supplier: &mut impl Supplier,
    ) -> Result<Allocation, Refused> {
        let tries = if self.options.retry && request.retry { TRIES } else { 1 };
        for tried in 0..tries {
            if let Some(handle) = self.try_once(rounded, &request, supplier) {
                return Ok(self.finish(handle, request.bytes.0));
            }
            if tried + 1 < tries {
                self.stats.retries += 1;
            }
        }
        Err(Refused::OutOfMemory { rounded })
    }

    /// Makes one search, with everything that can make room for the request.
    fn try_once(&mut self, rounded: u64, request: &Request, supplier: &mut impl Supplier) -> Option<Handle> {
        if let Some(handle) = self.find(rounded, request) {
            return Some(handle);
        }
        if self.extend(rounded, supplier)
            && let Some(handle) = self.find(rounded, request)
        {
            return Some(handle);
        }
        if request.freed_before == 0
            && !self.timed.queue.is_empty()
            && self.merge_timed(rounded)
            && let Some(handle) = self.find(rounded, request)
        {
            return Some(handle);
        }
        if self.collect_garbage(rounded, supplier) && self.extend(rounded, supplier) {
            return self.find(rounded, request);
        }
        None
    }

    /// Finds a chunk, takes it out of its bin and cuts it to size.
    #[inline]
    fn find(&mut self, rounded: u64, request: &Request) -> Option<Handle> {
        if !self.timed.queue.is_empty() {
            self.merge_timed(0);
        }
        let alignment = if self.options.aligned { request.alignment.max(GRANULE) } else { GRANULE };
        let is_lower = !self.options.spatial || (request.end == End::Lower && !self.bins.has_upper());
        if alignment > GRANULE || request.freed_before > 0 || !is_lower {
            return self.find_carefully(rounded, alignment, request);
        }
        let handle = match self.bins.best(rounded) {
            Some(handle) => handle,
            None => Some(self.gap).filter(|&gap| gap.is_some() && self.chunks.at(gap).size >= rounded)?,
        };
        self.unbin(handle);
        Some(self.cut_low(handle, rounded, GRANULE))
    }

    fn find_carefully(&mut self, rounded: u64, alignment: u64, request: &Request) -> Option<Handle> {
        let end = if self.options.spatial { request.end } else { End::Lower };
        let is_free = |chunk: &Chunk| request.freed_before == 0 || chunk.freed_at <= request.freed_before;
        let fits = |chunk: &Chunk| {
            is_free(chunk)
                && match end {
                    End::Lower => padding(chunk.ptr, alignment)
                        .and_then(|pad| rounded.checked_add(pad))
                        .is_some_and(|needed| chunk.size >= needed),
                    End::Upper => high_start(chunk, rounded, alignment).is_some(),
                }
        };
        let is_right = |free: &Free| {
            let chunk = self.chunks.at(free.handle);
            chunk.tag == end.tag() && fits(chunk)
        };
        let found = self.bins.from(rounded).find(is_right).map(|free| free.handle);
        let handle = match found {
            Some(handle) => {
                self.unbin(handle);
                handle
            }
            None => {
                let gap = Some(self.gap).filter(|gap| gap.is_some() && fits(self.chunks.at(*gap)))?;
                self.gap = Handle::NONE;
                gap
            }
        };
        Some(match end {
            End::Lower => self.cut_low(handle, rounded, alignment),
            End::Upper => self.cut_high(handle, rounded, alignment),
        })
    }

    /// Cuts a request from the low end of a chunk that is in no bin.
    #[inline]
    fn cut_low(&mut self, mut handle: Handle, rounded: u64, alignment: u64) -> Handle {
        if alignment > GRANULE {
            let pad = padding(self.chunks.at(handle).ptr, alignment).unwrap_or(0);
            if pad > 0 {
                let aligned = self.split(handle, pad);
                self.chunks.at_mut(handle).tag = Tag::Lower;
                self.put_back(handle);
                handle = aligned;
            }
        }
        let size = self.chunks.at(handle).size;
        if size >= rounded.saturating_mul(2) || size.saturating_sub(rounded) >= self.largest_slack {
            let rest = self.split(handle, rounded);
            self.put_back(rest);
        }
        self.chunks.at_mut(handle).tag = Tag::Lower;
        handle
    }

    /// Cuts a request from the high end of a chunk that is in no bin.
    fn cut_high(&mut self, mut handle: Handle, rounded: u64, alignment: u64) -> Handle {
        let chunk = *self.chunks.at(handle);
        let start = high_start(&chunk, rounded, alignment).unwrap_or(chunk.ptr);
        let below = start.saturating_sub(chunk.ptr);
        if below > 0 {
            let upper = self.split(handle, below);
            self.put_back(handle);
            handle = upper;
        }
        self.chunks.at_mut(handle).tag = Tag::Upper;
        if self.chunks.at(handle).size > rounded {
            let above = self.split(handle, rounded);
            self.put_back(above);
        }
        handle
    }

    #[inline]
    fn finish(&mut self, handle: Handle, requested: u64) -> Allocation {
        let id = self.next_id;
        self.next_id += 1;
        let chunk = self.chunks.at_mut(handle);
        chunk.requested = requested;
        chunk.id = id;
        let (address, size) = (chunk.ptr, Bytes(chunk.size));
        let stats = &mut self.stats;
        stats.allocs += 1;
        stats.in_use += size;
        stats.requested += Bytes(requested);
        stats.peak_in_use = stats.peak_in_use.max(stats.in_use);
        stats.largest_alloc = stats.largest_alloc.max(size);
        Allocation { ticket: Ticket { handle, id }, address, size }
    }

    /// Frees a chunk.
    #[inline]
    pub fn free(&mut self, ticket: Ticket) -> Result<(), NotInUse> {
        let chunk = self.chunks.at_mut(ticket.handle);
        if chunk.id != ticket.id || !chunk.in_use() {
            return Err(NotInUse);
        }
        chunk.id = 0;
        self.stats.in_use = self.stats.in_use.saturating_sub(Bytes(chunk.size));
        self.stats.requested = self.stats.requested.saturating_sub(Bytes(chunk.requested));
        if self.options.timed {
            self.timed.counter += 1;
            chunk.freed_at = self.timed.counter;
            self.put_back(ticket.handle);
            self.timed.queue.push_back(ticket.handle);
        } else {
            chunk.freed_at = 0;
            self.return_to_gap(ticket.handle);
            let joined = self.coalesce(ticket.handle, false);
            self.put_back(joined);
        }
        Ok(())
    }

    /// Allows chunks that were freed before this count to be merged.
    pub fn set_safe_frontier(&mut self, count: u64) {
        self.timed.safe_frontier = self.timed.safe_frontier.max(count);
    }

    /// The number of timed frees.
    #[must_use]
    pub fn freed_count(&self) -> u64 {
        self.timed.counter
    }

    /// Makes a boundary chunk of a partitioned pool part of the gap.
    #[inline]
    fn return_to_gap(&mut self, handle: Handle) {
        if !self.options.spatial {
            return;
        }
        let chunk = self.chunks.at(handle);
        let neighbour = match chunk.tag {
            Tag::Lower => chunk.next,
            Tag::Upper => chunk.prev,
            Tag::Gap => return,
        };
        if !neighbour.is_some() || self.chunks.at(neighbour).tag != chunk.tag {
            self.chunks.at_mut(handle).tag = Tag::Gap;
        }
    }

    /// Joins a free chunk that is in no bin with adjacent free chunks.
    #[inline]
    fn coalesce(&mut self, handle: Handle, ignore_time: bool) -> Handle {
        let chunk = self.chunks.at(handle);
        if !ignore_time && chunk.freed_at > 0 {
            return handle;
        }
        let (prev, next) = (chunk.prev, chunk.next);
        let joins = |chunk: &Chunk| !chunk.in_use() && (ignore_time || chunk.freed_at == 0);
        if next.is_some() && joins(self.chunks.at(next)) {
            self.unbin(next);
            self.merge(handle, next);
        }
        if prev.is_some() && joins(self.chunks.at(prev)) {
            self.unbin(prev);
            self.merge(prev, handle);
            return prev;
        }
        handle
    }

    /// Joins two adjacent chunks and releases the handle of the higher one.
    #[inline]
    fn merge(&mut self, low: Handle, high: Handle) {
        let Chunk { size, next, tag, freed_at, .. } = *self.chunks.at(high);
        let chunk = self.chunks.at_mut(low);
        chunk.next = next;
        chunk.size = chunk.size.saturating_add(size);
        chunk.freed_at = chunk.freed_at.max(freed_at);
        if chunk.tag != tag {
            chunk.tag = Tag::Gap;
        }
        if next.is_some() {
            self.chunks.at_mut(next).prev = low;
        }
        self.chunks.release(high);
    }

    /// Cuts a chunk that is in no bin; the higher part is a new chunk, in no bin either.
    #[inline]
    fn split(&mut self, handle: Handle, at: u64) -> Handle {
        let rest = self.chunks.allocate();
        let chunk = self.chunks.at_mut(handle);
        let Chunk { ptr, size, next, tag, freed_at, .. } = *chunk;
        chunk.size = at;
        chunk.next = rest;
        let new = self.chunks.at_mut(rest);
        // The requested size of the last owner of the handle stays.
        let requested = new.requested;
        *new = Chunk {
            ptr: ptr.saturating_add(at),
            size: size.saturating_sub(at),
            requested,
            id: 0,
            freed_at,
            prev: handle,
            next,
            place: 0,
            bin: NO_BIN,
            tag,
        };
        if next.is_some() {
            self.chunks.at_mut(next).prev = rest;
        }
        rest
    }

    /// Puts a free chunk into its bin, or makes it the gap.
    #[inline]
    fn put_back(&mut self, handle: Handle) {
        if self.chunks.at(handle).tag == Tag::Gap {
            self.gap = handle;
            return;
        }
        self.bins.insert(handle, &mut self.chunks);
    }

    /// Takes a free chunk out of its bin, or the gap out of its place.
    #[inline]
    fn unbin(&mut self, handle: Handle) {
        if self.chunks.at(handle).bin == NO_BIN {
            if self.gap == handle {
                self.gap = Handle::NONE;
            }
            return;
        }
        self.bins.remove(handle, &mut self.chunks);
    }

    /// Reserves a new region that is large enough, if the limit allows it.
    fn extend(&mut self, rounded: u64, supplier: &mut impl Supplier) -> bool {
        let left = self.stats.limit.saturating_sub(self.stats.pool).0;
        let available = left - left % GRANULE;
        // A partitioned pool has one gap, and a new region would be another.
        if rounded > available || (self.options.spatial && self.gap.is_some()) {
            return false;
        }
        let mut has_grown = false;
        while rounded > self.region_size {
            self.region_size = self.region_size.saturating_mul(2);
            has_grown = true;
        }
        let Some((base, got)) = self.take_region(self.region_size.min(available), rounded, supplier) else {
            return false;
        };
        if !has_grown {
            self.region_size = self.region_size.saturating_mul(2);
        }
        let largest_free = self.largest_free();
        self.growths.push(Growth {
            allocation: self.next_id,
            rounded: Bytes(rounded),
            free: self.stats.free(),
            largest_free,
            got: Bytes(got),
            base,
        });
        self.add_region(base, got);
        true
    }

    fn add_region(&mut self, base: u64, size: u64) {
        self.stats.pool += Bytes(size);
        self.stats.peak_pool = self.stats.peak_pool.max(self.stats.pool);
        let handle = self.chunks.allocate();
        let chunk = self.chunks.at_mut(handle);
        let requested = chunk.requested;
        let tag = if self.options.spatial { Tag::Gap } else { Tag::Lower };
        let (prev, next) = (Handle::NONE, Handle::NONE);
        *chunk =
            Chunk { ptr: base, size, requested, id: 0, freed_at: 0, prev, next, place: 0, bin: NO_BIN, tag };
        let region = Region { base, size, first: handle };
        let at = self.regions.partition_point(|other| other.end() <= region.end());
        self.regions.insert(at, region);
        self.put_back(handle);
    }

    /// Requests a region from the supplier, and smaller ones if it is refused.
    fn take_region(&mut self, want: u64, least: u64, supplier: &mut impl Supplier) -> Option<(u64, u64)> {
        let granularity = self.options.granularity.0.max(1);
        let mut want = want;
        let mut is_first = true;
        loop {
            let padded = want.checked_next_multiple_of(granularity)?;
            if let Some(base) = supplier.take(Bytes(padded)) {
                return base.checked_add(padded).map(|_| (base, padded));
            }
            if is_first && self.options.backpedal == Backpedal::Once && self.has_backpedalled {
                return None;
            }
            is_first = false;
            self.has_backpedalled = true;
            let less = round_up(nine_tenths(want))?;
            // The oldest versions loop forever if rounding up gives the same size again; this one stops.
            want = if less < want { less } else { want.saturating_sub(GRANULE) };
            if want < least || want == 0 {
                return None;
            }
        }
    }

    /// Returns every region without a live chunk to the driver, if the request then fits.
    fn collect_garbage(&mut self, rounded: u64, supplier: &mut impl Supplier) -> bool {
        if !self.options.garbage_collection {
            return false;
        }
        let is_idle = |region: &Region| self.chunks_of(region).all(|handle| !self.chunks.at(handle).in_use());
        let idle: Vec<Region> = self.regions.iter().filter(|region| is_idle(region)).copied().collect();
        let total: u64 = idle.iter().map(|region| region.size).sum();
        let left = self.stats.limit.saturating_sub(self.stats.pool).0;
        if total == 0 || rounded > left.saturating_add(total) {
            return false;
        }
        for region in &idle {
            let chunks: Vec<Handle> = self.chunks_of(region).collect();
            for handle in chunks {
                self.unbin(handle);
                self.chunks.release(handle);
            }
            supplier.give_back(region.base, Bytes(region.size));
            self.stats.pool = self.stats.pool.saturating_sub(Bytes(region.size));
            self.stats.regions_returned += 1;
        }
        self.regions.retain(|region| !idle.iter().any(|gone| gone.base == region.base));
        true
    }

    fn chunks_of(&self, region: &Region) -> impl Iterator<Item = Handle> {
        std::iter::successors(Some(region.first), |&handle| {
            Some(self.chunks.at(handle).next).filter(|next| next.is_some())
        })
    }

    /// Merges freed chunks that may be merged or, if `required` bytes are needed, as many as are needed.
    fn merge_timed(&mut self, required: u64) -> bool {
        let mut is_satisfied = required == 0;
        let waiting = std::mem::take(&mut self.timed.queue);
        let mut ready = Vec::new();
        for handle in waiting {
            let frontier = self.timed.safe_frontier;
            let chunk = self.chunks.at_mut(handle);
            if chunk.in_use() || chunk.bin == NO_BIN {
                continue;
            }
            if chunk.freed_at > 0 && chunk.freed_at < frontier {
                chunk.freed_at = 0;
            }
            if chunk.freed_at == 0 || required > 0 {
                ready.push((handle, chunk.ptr));
            } else {
                self.timed.queue.push_back(handle);
            }
        }
        for (handle, ptr) in ready {
            // An earlier merge may have removed it.
            let chunk = self.chunks.at(handle);
            if chunk.in_use() || chunk.bin == NO_BIN || chunk.ptr != ptr {
                continue;
            }
            if required > 0 && is_satisfied {
                if chunk.freed_at > 0 {
                    self.timed.queue.push_back(handle);
                }
                continue;
            }
            self.unbin(handle);
            if self.chunks.at(handle).freed_at == 0 {
                self.return_to_gap(handle);
            }
            let joined = self.coalesce(handle, required > 0);
            self.put_back(joined);
            if required > 0 {
                let chunk = self.chunks.at(joined);
                if joined != handle && chunk.freed_at > 0 {
                    self.timed.queue.push_back(joined);
                }
                is_satisfied = chunk.size >= required;
            }
        }
        is_satisfied
    }

    /// The regions, in order of their addresses.
    pub fn regions(&self) -> impl Iterator<Item = RegionView> {
        self.regions.iter().map(|region| RegionView { base: region.base, size: Bytes(region.size) })
    }

    /// The chunks of a region, in order of their addresses.
    pub fn chunks(&self, region: RegionView) -> impl Iterator<Item = ChunkView> {
        let region = self.regions.iter().find(|known| known.base == region.base);
        region.into_iter().flat_map(|region| self.chunks_of(region)).map(|handle| {
            let chunk = self.chunks.at(handle);
            let id = chunk.id;
            ChunkView {
                address: chunk.ptr,
                size: Bytes(chunk.size),
                requested: Bytes(chunk.requested),
                in_use: chunk.in_use(),
                ticket: if chunk.in_use() { Ticket { handle, id } } else { Ticket::NONE },
            }
        })
    }

    /// The address of a ticket's chunk; `None` if it is no longer in use.
    #[must_use]
    pub(crate) fn address_of(&self, ticket: Ticket) -> Option<u64> {
        let chunk = self.chunks.at(ticket.handle);
        (chunk.in_use() && chunk.id == ticket.id).then_some(chunk.ptr)
    }

    /// The sizes of all free chunks.
    pub fn free_sizes(&self) -> impl Iterator<Item = Bytes> {
        let gap = Some(self.gap).filter(|gap| gap.is_some()).map(|gap| self.chunks.at(gap).size);
        self.bins.iter().map(|free| free.size).chain(gap).map(Bytes)
    }

    /// Whether the range from `base` overlaps a region.
    #[must_use]
    pub fn overlaps(&self, base: u64, size: Bytes) -> bool {
        let end = base.saturating_add(size.0);
        self.regions.iter().any(|region| base < region.end() && region.base < end)
    }

    /// Adds a region with chunks that are already in use; the rest of it is free. The requested size of a
    /// chunk may be unknown; the whole chunk then counts as requested.
    ///
    /// Returns `None` and changes nothing if the chunks are not in order, overlap, or exceed the region.
    pub fn seed(&mut self, region: RegionView, held: &[(u64, Bytes, Option<Bytes>)]) -> Option<Vec<Ticket>> {
        let mut at = region.base;
        let end = region.base.checked_add(region.size.0)?;
        for &(address, size, _) in held {
            if address < at || size == Bytes::ZERO {
                return None;
            }
            at = address.checked_add(size.0)?;
        }
        if at > end || region.size == Bytes::ZERO || self.overlaps(region.base, region.size) {
            return None;
        }
        self.add_region(region.base, region.size.0);
        let found = self.regions.iter().find(|known| known.base == region.base);
        let mut rest = found.map_or(Handle::NONE, |region| region.first);
        self.unbin(rest);
        // The gap is the free range above all chunks in use.
        if !held.is_empty() {
            self.chunks.at_mut(rest).tag = Tag::Lower;
        }
        let mut tickets = Vec::with_capacity(held.len());
        for (number, &(address, size, requested)) in held.iter().enumerate() {
            let before = address.saturating_sub(self.chunks.at(rest).ptr);
            if before > 0 {
                let block = self.split(rest, before);
                self.put_back(rest);
                rest = block;
            }
            let block = rest;
            let is_last = self.chunks.at(block).size == size.0;
            if !is_last {
                rest = self.split(block, size.0);
                if number + 1 == held.len() {
                    if self.options.spatial && !self.gap.is_some() {
                        self.chunks.at_mut(rest).tag = Tag::Gap;
                    }
                    self.put_back(rest);
                }
            }
            let allocation = self.finish(block, requested.unwrap_or(size).0.min(size.0));
            tickets.push(allocation.ticket);
        }
        if held.is_empty() {
            self.put_back(rest);
        }
        Some(tickets)
    }
}

/// The distance from an address to the next multiple of `alignment`, in whole granules.
fn padding(ptr: u64, alignment: u64) -> Option<u64> {
    if alignment <= GRANULE || !alignment.is_power_of_two() {
        return Some(0);
    }
    round_up(ptr.checked_next_multiple_of(alignment)?.checked_sub(ptr)?)
}

/// The address of a request at the high end of a chunk; `None` if it does not fit.
fn high_start(chunk: &Chunk, rounded: u64, alignment: u64) -> Option<u64> {
    let highest = chunk.end().checked_sub(rounded)?;
    let start = if alignment.is_power_of_two() { highest & !(alignment - 1) } else { highest };
    (start >= chunk.ptr).then_some(start)
}

#[cfg(test)]
mod tests;
