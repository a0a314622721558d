//! The rows that other tools get: one allocation each. Rows come one at a time, because a trace may hold millions of them.

use serde::Serialize;

use crate::analysis::export::{ExportedAllocation, PoolExport};
use crate::units::{Bytes, Nanos};

/// One allocation. The names of these fields are the columns of every format.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "docs/export.md says it")]
pub struct Allocation {
    pub pool: String,
    pub device: String,
    pub host: String,
    pub pid: Option<u64>,
    pub address: Option<u64>,
    pub born_ns: Nanos,
    pub freed_ns: Option<Nanos>,
    pub bytes: Bytes,
    pub chunk_bytes: Bytes,
    pub op: String,
    pub layer: String,
    pub role: &'static str,
    pub variable: String,
    pub shape: String,
    pub dtype: &'static str,
    pub step: Option<i64>,
    pub phase: &'static str,
    pub at_peak: bool,
}

/// Every allocation of a pool, in order of time.
pub fn allocations(pool: &PoolExport<'_>) -> impl Iterator<Item = Allocation> {
    pool.allocations().map(|allocation| Allocation::new(pool, allocation))
}

impl Allocation {
    fn new(pool: &PoolExport<'_>, allocation: ExportedAllocation<'_>) -> Allocation {
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
