//! The rows for other tools, one per allocation. Rows are produced one at a time, because a trace may have millions of them.

use serde::Serialize;

use crate::analysis::export::{self, PoolHistory};
use crate::units::{Bytes, Nanos};

/// One allocation. The field names are the column names in every format.
#[derive(Debug, Serialize)]
pub struct Allocation {
    /// The allocator, as the framework names it.
    pub pool: String,
    /// As in a report; may be empty.
    pub device: String,
    /// The machine, as the profiler names it.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// The address of the block.
    pub address: Option<u64>,
    /// When it was allocated, on the source's clock.
    pub born_ns: Nanos,
    /// When it was freed; null if the trace does not show it.
    pub freed_ns: Option<Nanos>,
    /// Requested bytes.
    pub bytes: Bytes,
    /// Bytes of the block that the allocator handed out.
    pub chunk_bytes: Bytes,
    /// The op that requested it; may be empty.
    pub op: String,
    /// The model layer, from the op's scope.
    pub layer: String,
    /// Parameters, gradients, optimizer, activations, inputs, state, temporaries or unknown.
    pub role: &'static str,
    /// The variable whose value it is, if the program listed its variables.
    pub variable: String,
    /// The shape.
    pub shape: String,
    /// The element type.
    pub dtype: &'static str,
    /// The step that it was allocated in.
    pub step: Option<i64>,
    /// The phase of that step: train, validation, predict or other.
    pub phase: &'static str,
    /// Whether it is alive at its pool's peak.
    pub at_peak: bool,
}

/// Every allocation of a pool, in time order.
pub fn allocations(pool: &PoolHistory<'_>) -> impl Iterator<Item = Allocation> {
    pool.allocations().map(|allocation| Allocation::new(pool, allocation))
}

impl Allocation {
    fn new(pool: &PoolHistory<'_>, allocation: export::Allocation<'_>) -> Allocation {
        Allocation {
            pool: pool.name.to_owned(),
            device: pool.device.clone(),
            host: pool.host.to_owned(),
            pid: pool.pid,
            address: allocation.address,
            born_ns: allocation.born,
            freed_ns: allocation.freed,
            bytes: allocation.requested,
            chunk_bytes: allocation.chunk,
            op: allocation.op.to_owned(),
            layer: allocation.layer,
            role: allocation.role.word(),
            variable: allocation.variable,
            shape: allocation.shape.to_owned(),
            dtype: allocation.dtype.word(),
            step: allocation.step.map(|step| step.number),
            phase: allocation.step.map_or("", |step| step.phase.word()),
            at_peak: allocation.is_at_peak,
        }
    }
}
