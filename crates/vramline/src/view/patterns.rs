//! How the steps of a pool repeat each other, as part of a report.

use serde::Serialize;

use crate::analysis::patterns::{NamedSizes, Patterns};
use crate::document::Document;
use crate::units::Bytes;

/// How the steps of a pool repeat each other.
#[derive(Debug, Serialize, Document)]
pub struct PatternsView {
    /// Steps of the trace that were compared: those that train, where there are any.
    pub steps: usize,
    /// Share of the requests from the second step on that one of the four steps before made too: the same op, the same size.
    #[field(title = "repeated", unit = "share", null = "no step after the first asks for memory")]
    pub repeated_requests: Option<f64>,
    /// The same share of their bytes.
    #[field(title = "of the bytes", unit = "share", null = "no step after the first asks for memory")]
    pub repeated_bytes: Option<f64>,
    /// The first step from which on every step asks for at least 99 % of its bytes in sizes that a step before asked for.
    #[field(
        title = "steady from step",
        null = "the last step of the trace still asks for sizes that no step before it asked for"
    )]
    pub steady_from_step: Option<i64>,
    /// How many ops ask for other sizes in most steps, three different ones at least.
    #[field(title = "ops")]
    pub churning_ops: usize,
    /// The ten of them with the most bytes.
    #[field(unit = "list")]
    pub churning: Vec<ChurningView>,
    /// The most that the pool took from the driver, by exact replay.
    #[field(
        title = "pool",
        null = "only an exact replay from the first allocation tells it",
        switch = "vramline run --trace auto"
    )]
    pub pool_bytes: Option<Bytes>,
    /// The same if those ops asked for their largest sizes in every step, as with shapes padded to constant ones.
    #[field(
        title = "padded",
        null = "only an exact replay from the first allocation, of a pool that grows, tells it",
        switch = "vramline run --trace auto"
    )]
    pub padded_pool_bytes: Option<Bytes>,
}

/// An op that asks for other sizes in most steps.
#[derive(Debug, Serialize, Document)]
pub struct ChurningView {
    /// The op, as in rows.
    pub op: String,
    /// The layer, as in rows.
    pub layer: String,
    /// Steps in which it asked; the first step does not count.
    pub steps: usize,
    /// Different sizes that it asked for.
    pub sizes: usize,
    /// The smallest of them.
    #[field(title = "smallest")]
    pub smallest_bytes: Bytes,
    /// The largest of them.
    #[field(title = "largest")]
    pub largest_bytes: Bytes,
    /// In all those steps together.
    pub total_bytes: Bytes,
}

impl From<Patterns> for PatternsView {
    fn from(patterns: Patterns) -> PatternsView {
        PatternsView {
            steps: patterns.steps,
            repeated_requests: patterns.repeated_requests,
            repeated_bytes: patterns.repeated_bytes,
            steady_from_step: patterns.steady_from,
            churning_ops: patterns.churning_ops,
            churning: patterns.churning.into_iter().map(ChurningView::from).collect(),
            pool_bytes: patterns.pool,
            padded_pool_bytes: patterns.padded_pool,
        }
    }
}

impl From<NamedSizes> for ChurningView {
    fn from(op: NamedSizes) -> ChurningView {
        ChurningView {
            op: op.op,
            layer: op.layer,
            steps: op.steps,
            sizes: op.sizes,
            smallest_bytes: op.smallest,
            largest_bytes: op.largest,
            total_bytes: op.total,
        }
    }
}
