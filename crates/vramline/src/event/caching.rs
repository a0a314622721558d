//! What a caching allocator kept from the driver, and what it did besides handing out blocks and taking them back.
//!
//! Events tell who asked for what. The rest of a history is sparse and stands here: calls to the driver, failures, and
//! frees that wait for a stream, each with its place between the events, so that a replay has everything in order.

use crate::names::Name;
use crate::stack::Stack;
use crate::units::{Bytes, Picos};

/// What a caching allocator took from the driver, and what of it was not in use.
#[derive(Clone, Debug, Default)]
pub struct Caching {
    /// When the most was allocated.
    pub at_peak: Cached,
    /// When the most was reserved.
    pub at_reserved_peak: Cached,
    /// At the end of the source.
    pub at_end: Cached,
    /// The most that was reserved.
    pub reserved_peak: Bytes,
    /// When that was; `None` where it was so before the first event.
    pub reserved_peak_time: Option<Picos>,
    /// The most that was active: allocated, or freed and waiting for another stream.
    pub active_peak: Bytes,
    /// The most that was free in segments of which some block was in use.
    pub split_peak: Bytes,
    /// Streams and private pools at the end, the largest first.
    pub streams: Vec<StreamUse>,
    /// Requests that failed.
    pub failures: Vec<OutOfMemory>,
    /// What the events do not tell.
    pub calls: Calls,
    /// The blocks that were in use at the end, where the entries of the source are too few to know the peak.
    pub state: Option<DumpState>,
}

/// What a caching allocator had in use when a snapshot was taken.
#[derive(Clone, Debug, Default)]
pub struct DumpState {
    /// How many entries the history of the device has.
    pub entries: u64,
    /// The blocks in use.
    pub blocks: Vec<DumpBlock>,
    /// How many blocks were free in the segments.
    pub free_blocks: u64,
}

/// A block that was in use then.
#[derive(Clone, Copy, Debug)]
pub struct DumpBlock {
    /// Where it lies; `None` in snapshots of older versions.
    pub address: Option<u64>,
    /// The requested bytes; the block size if the snapshot does not contain them.
    pub requested: Bytes,
    /// What the allocator took for it.
    pub size: Bytes,
    /// The place in the program; empty where the snapshot does not tell it.
    pub op: Name,
    /// The same with its callers.
    pub stack: Stack,
}

/// A caching allocator at one moment: reserved = active + whole segments + split remainders + expandable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Taken from the driver.
    pub reserved: Bytes,
    /// In blocks that are allocated or pending.
    pub active: Bytes,
    /// In blocks that are allocated.
    pub allocated: Bytes,
    /// In blocks that were freed but wait for another stream.
    pub pending: Bytes,
    /// In segments without any active block: these can be given back to the driver.
    pub whole_segments: Bytes,
    /// In free blocks beside active ones: these cannot.
    pub split_remainders: Bytes,
    /// Free in segments that grow: whole pages of it can be given back.
    pub expandable: Bytes,
}

/// What one stream of one pool of segments holds.
#[derive(Clone, Copy, Debug)]
pub struct StreamUse {
    /// The stream's handle; 0 is the default stream.
    pub stream: i64,
    /// The private pool, such as a CUDA graph's.
    pub private_pool: Option<(i64, i64)>,
    /// How many segments.
    pub segments: u64,
    /// How many of them grow.
    pub expandable_segments: u64,
    /// Bytes taken from the driver.
    pub reserved: Bytes,
    /// Bytes of allocated blocks.
    pub allocated: Bytes,
    /// Bytes of allocated and pending blocks.
    pub active: Bytes,
}

/// A request that failed.
#[derive(Clone, Copy, Debug)]
pub struct OutOfMemory {
    /// When.
    pub time: Picos,
    /// The requested bytes, rounded up.
    pub asked: Option<Bytes>,
    /// What the driver said was free on the device.
    pub device_free: Option<Bytes>,
    /// Allocated then.
    pub allocated: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// The place in the program.
    pub op: Name,
    /// The same with its callers.
    pub stack: Stack,
}

/// An action of the allocator that is not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The event frees a block that a stream still uses.
    LetGo,
    /// Every stream is done with a block that was let go of.
    Complete,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// An expandable segment grew.
    SegmentMap,
    /// An expandable segment gave pages back.
    SegmentUnmap,
    /// A request failed.
    OutOfMemory,
}

/// A call between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// It comes before the pool's event of this number, counted from 0; [`CallKind::LetGo`] is about that event.
    pub event: u32,
    /// What was done.
    pub kind: CallKind,
    /// For whom: a number in [`Calls::lanes`].
    pub lane: u16,
    /// Where; nothing for a failure.
    pub address: u64,
    /// The size that was reserved, returned or requested.
    pub size: Bytes,
    /// Whether its stack shows that the program called `empty_cache()`.
    pub is_asked: bool,
}

/// A segment from before the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierSegment {
    /// For whom: a number in [`Calls::lanes`].
    pub lane: u16,
    /// Whether it serves small requests.
    pub is_small: bool,
    /// Where it begins.
    pub base: u64,
    /// How large it is.
    pub size: Bytes,
    /// Its blocks in use, in order: address, size, and requested bytes if known.
    pub held: Vec<(u64, Bytes, Option<Bytes>)>,
}

/// The settings of the allocator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSettings {
    /// Blocks of this size and more are not split.
    pub max_split: Option<Bytes>,
    /// Divisions between powers of two, from 1 MiB on.
    pub divisions: Vec<u64>,
    /// The share of the memory cap from which on idle segments are given back.
    pub garbage_collection_threshold: f64,
    /// Whether segments grow in place.
    pub expandable: bool,
}

/// Everything about a caching allocator's history that its events do not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// In order.
    pub list: Vec<Call>,
    /// Pool and stream of each lane: pool 0 is the default one, others are numbered as they appear.
    pub lanes: Vec<(u32, u64)>,
    /// From an allocating event on, by its number in the pool, all are of this lane.
    pub lane_from: Vec<(u32, u16)>,
    /// What was there before.
    pub earlier: Vec<EarlierSegment>,
    /// Bytes of expandable segments that were there before; what lay where in them is not known.
    pub earlier_expandable: Bytes,
    /// The allocator's settings.
    pub settings: CallSettings,
    /// Whether the entries of the source name their pools. Otherwise only the pools of segments that exist at the end are known, and
    /// all others count to the default pool.
    pub tells_pools: bool,
}

impl Calls {
    /// Stands for a lane where there were too many.
    pub(crate) const NO_LANE: u16 = u16::MAX;
    /// The number of pools and streams that are distinguished.
    pub(crate) const MOST_LANES: usize = 4096;
}
