//! How the steps of a pool repeat each other, as part of a report.

use serde::Serialize;

use crate::analysis::patterns::{NamedSizes, Patterns};
use crate::document::Document;
use crate::units::Bytes;

/// How the steps of a pool repeat each other.
#[derive(Debug, Serialize, Document)]
pub struct PatternsView {
    /// Number of compared steps: the training steps, if there are any.
    pub steps: usize,
    /// Share of requests from the second step on that one of the four previous steps made too, with the same op and size.
    #[field(title = "repeated", unit = "share", null = "no step after the first requests memory")]
    pub repeated_requests: Option<f64>,
    /// The same share of their bytes.
    #[field(title = "repeated bytes", unit = "share", null = "no step after the first requests memory")]
    pub repeated_bytes: Option<f64>,
    /// The first step from which on every step requests at least 99 % of its bytes in sizes that an earlier step requested.
    #[field(title = "steady from step", null = "the last step of the trace still requests new sizes")]
    pub steady_from_step: Option<i64>,
    /// Number of ops whose requested sizes change in most steps, with at least three different sizes.
    #[field(title = "ops")]
    pub churning_ops: usize,
    /// The ten of those ops with the most bytes.
    #[field(unit = "list")]
    pub churning: Vec<ChurningView>,
    /// Peak bytes that the pool reserved, by exact replay.
    #[field(
        title = "pool",
        null = "it needs an exact replay from the first allocation",
        switch = "vramline run --trace auto"
    )]
    pub pool_bytes: Option<Bytes>,
    /// The same if those ops requested their largest size in every step, as with padded shapes.
    #[field(
        title = "padded",
        null = "it needs an exact replay, from the first allocation, of a pool that grows",
        switch = "vramline run --trace auto"
    )]
    pub padded_pool_bytes: Option<Bytes>,
}

/// An op whose requested sizes change in most steps.
#[derive(Debug, Serialize, Document)]
pub struct ChurningView {
    /// The op, as in rows.
    pub op: String,
    /// The layer, as in rows.
    pub layer: String,
    /// Number of steps in which it made requests, without the first step.
    pub steps: usize,
    /// Number of different requested sizes.
    pub sizes: usize,
    /// The smallest of them.
    #[field(title = "smallest")]
    pub smallest_bytes: Bytes,
    /// The largest of them.
    #[field(title = "largest")]
    pub largest_bytes: Bytes,
    /// Total bytes in all those steps.
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
