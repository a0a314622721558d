//! What PyTorch's allocator did, call by call, as plain data: what a replay starts from.

use crate::units::Bytes;

/// What the allocator did, as its trace names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A block was handed out.
    Alloc,
    /// Its owner let go of it.
    FreeRequested,
    /// It can be handed out again.
    FreeCompleted,
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

/// One entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was done.
    pub kind: CallKind,
    /// Where; nothing for a failure.
    pub address: u64,
    /// What was asked for; for the driver's calls, what was taken or given back.
    pub bytes: Bytes,
    /// The whole block, where told; zero where not.
    pub block: Bytes,
    /// The stream's handle.
    pub stream: u64,
    /// The pool: 0 is the default one, others are numbered as they appear.
    pub pool: u32,
}

/// A segment from before the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The pool.
    pub pool: u32,
    /// The stream's handle.
    pub stream: u64,
    /// Whether it serves small requests.
    pub is_small: bool,
    /// Where it begins.
    pub base: u64,
    /// How large it is.
    pub size: Bytes,
    /// Its blocks in use, in order: where, how large, what was asked for where that is known.
    pub held: Vec<(u64, Bytes, Option<Bytes>)>,
}

/// A block at the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBlock {
    /// Where it begins.
    pub address: u64,
    /// How large it is.
    pub size: Bytes,
    /// What was asked for; in a free block, by an earlier owner.
    pub requested: Option<Bytes>,
    /// Whether it is handed out.
    pub is_allocated: bool,
    /// Whether it is free: neither handed out nor waiting for a stream.
    pub is_free: bool,
}

/// The settings of the allocator, as the snapshot tells them.
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

/// Everything that the allocator of one device did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceCalls {
    /// The device's number.
    pub device: u32,
    /// In order.
    pub calls: Vec<Call>,
    /// What was there before.
    pub earlier: Vec<Earlier>,
    /// Whether nothing was.
    pub is_from_start: bool,
    /// What is there at the end, in order of addresses.
    pub last: Vec<LastBlock>,
    /// The allocator's settings.
    pub settings: CallSettings,
}
