//! *Internal.* What happened, when, in which pool: the history that a profiler recorded.
//!
//! Events are kept in columns, one vector a field, with names interned, because traces hold tens of millions of
//! them. A history holds facts as the source told them; pairing, peaks and roles are the business of
//! [`crate::trace`]. Constraint: a field the source did not tell is `None`, never zero.

pub mod caching;
mod columns;
mod device;
mod history;
mod merge;
mod module;
mod step;

use std::num::NonZero;

pub use crate::dtype::Dtype;
use crate::names::Name;
use crate::stack::Stack;
use crate::units::{Bytes, Picos};
pub use caching::{Cached, Caching, DumpBlock, DumpState, OutOfMemory, StreamUse};
pub(crate) use columns::Batch;
pub use columns::EventRef;
pub use device::{Hardware, Vendor};
pub(crate) use device::{device_of, pool_name};
pub(crate) use history::OPTIMIZER_STEP;
pub use history::{Framework, History, Mark, MarkKind, OpTime, Pool, Recorder};
pub use merge::Events;
pub(crate) use merge::{Line, WORTH_A_THREAD};
pub use module::{ModuleCall, ModulePass};
pub use step::{How, Phase};

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes were handed out.
    Alloc,
    /// Bytes came back.
    Free,
}

/// For what purpose the framework asked, where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Region {
    /// The source does not say.
    #[default]
    Unknown,
    /// A tensor that the op returns.
    Output,
    /// Scratch of the op.
    Temp,
    /// State that outlives the op.
    Persist,
    /// Memory whose size is known only at run time.
    Dynamic,
}

/// The number of a pool within its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u16);

/// One run of a program by TensorFlow's executor, by the number that the source gives it; zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutorRun(NonZero<i64>);

impl ExecutorRun {
    /// The run of a number.
    #[must_use]
    #[inline]
    pub fn new(number: i64) -> Option<ExecutorRun> {
        NonZero::new(number).map(ExecutorRun)
    }
}

/// One memory event, as it enters and leaves the columns.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub time: Picos,
    /// Allocation or free.
    pub kind: Kind,
    /// In which pool.
    pub pool: PoolId,
    /// Where the block begins.
    pub address: Option<u64>,
    /// The requested bytes.
    pub requested: Option<Bytes>,
    /// What the allocator took for it: the request, rounded, plus what it did not split off.
    pub chunk: Option<Bytes>,
    /// Bytes in use in the pool after the event, by the allocator's own count.
    pub in_use: Option<Bytes>,
    /// Share of the free bytes outside the largest free block, by the allocator's own count. Readers may leave it out
    /// where the pool's count is not the highest so far.
    pub fragmentation: Option<f32>,
    /// The op that requested it (for a free: the op that ran at that time); empty if unknown.
    pub op: Name,
    /// The tensor's shape, as the framework writes it; empty if unknown.
    pub shape: Name,
    /// What ran at the request, as PyTorch's allocator was told: the key of [`History::module_calls`]. A source has shapes or this,
    /// never both: an event with it keeps no shape.
    pub module: Name,
    /// If the op is unknown: the innermost named scope of the thread around the event; empty if there is none.
    pub context: Name,
    /// The executor's run this belongs to. Only TensorFlow reports it.
    pub executor_run: Option<ExecutorRun>,
    /// The calls that led to the request; empty where not told. Only PyTorch tells them. A source tells runs or stacks, never
    /// both: an event with a stack keeps no run.
    pub stack: Stack,
    /// The purpose.
    pub region: Region,
    /// The element type.
    pub dtype: Dtype,
}

impl Event {
    /// An event of which nothing else is known.
    #[must_use]
    pub fn bare(time: Picos, kind: Kind) -> Event {
        Event {
            time,
            kind,
            pool: PoolId(0),
            address: None,
            requested: None,
            chunk: None,
            in_use: None,
            fragmentation: None,
            op: Name::EMPTY,
            shape: Name::EMPTY,
            module: Name::EMPTY,
            context: Name::EMPTY,
            executor_run: None,
            stack: Stack::EMPTY,
            region: Region::Unknown,
            dtype: Dtype::Unknown,
        }
    }
}
