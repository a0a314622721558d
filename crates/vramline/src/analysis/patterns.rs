//! How the steps of a pool repeat each other, which ops ask for other sizes each time, and what constant shapes would take instead.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::names::Name;
use crate::replay::PoolRun;
use crate::trace::{OpSizes, PoolTrace, Trace};
use crate::units::Bytes;

/// Ops that are listed.
const MAX_OPS: usize = 10;

/// How the steps of a pool repeat each other.
#[derive(Clone, Debug)]
pub struct Patterns {
    /// Steps that were compared.
    pub steps: usize,
    /// Share of the requests after the first step that a step before made too; `None` where there are none.
    pub repeated_requests: Option<f64>,
    /// The same share of their bytes; `None` where there are none.
    pub repeated_bytes: Option<f64>,
    /// The number of the step from which on hardly any new size comes.
    pub steady_from: Option<i64>,
    /// How many ops ask for other sizes in most steps.
    pub churning_ops: usize,
    /// Those with the most bytes.
    pub churning: Vec<NamedSizes>,
    /// Ops that ask for more in each step than in the one before; those that grew most.
    pub growing: Vec<NamedSizes>,
    /// The most that the pool took from the driver.
    pub pool: Option<Bytes>,
    /// The same if the ops that churn asked for their largest sizes in each step.
    pub padded_pool: Option<Bytes>,
}

/// The sizes that an op asked for.
#[derive(Clone, Debug)]
pub struct NamedSizes {
    /// The op.
    pub op: String,
    /// Its layer, as the tables of the report have it.
    pub layer: String,
    /// Steps in which it asked, the first step of all left out.
    pub steps: usize,
    /// Different sizes.
    pub sizes: usize,
    /// The smallest.
    pub smallest: Bytes,
    /// The largest.
    pub largest: Bytes,
    /// In all steps together.
    pub total: Bytes,
    /// In the first and in the last of those steps.
    pub first_and_last: (Bytes, Bytes),
}

impl Patterns {
    /// The patterns of a pool, with the costs that a replay of it tells; `None` where the trace shows too few steps.
    pub(super) fn of(trace: &Trace, pool: &PoolTrace, run: Option<&PoolRun>) -> Option<Patterns> {
        let pattern = trace.pattern(pool)?;
        let exact = run.filter(|run| run.is_exact());
        let padded = |run: &PoolRun| {
            if pattern.churning.is_empty() {
                return Some(run.exact.pool);
            }
            let ops: FxHashSet<Name> = pattern.churning.iter().map(|op| op.op).collect();
            run.padded_pool(trace, &trace.compared_steps(), &ops)
        };
        let listed =
            || [&pattern.churning, &pattern.growing].into_iter().flat_map(|ops| ops.iter().take(MAX_OPS));
        let layers = trace.layers_of(pool, &listed().map(|op| op.op).collect());
        let named = |ops: &[OpSizes]| ops.iter().take(MAX_OPS).map(|op| named(trace, &layers, op)).collect();
        Some(Patterns {
            steps: pattern.steps,
            repeated_requests: share(pattern.repeated.requests, pattern.asked.requests),
            repeated_bytes: share(pattern.repeated.bytes.0, pattern.asked.bytes.0),
            steady_from: pattern.steady_from,
            churning_ops: pattern.churning.len(),
            churning: named(&pattern.churning),
            growing: named(&pattern.growing),
            pool: exact.map(|run| run.exact.pool),
            padded_pool: exact.and_then(padded),
        })
    }
}

fn named(trace: &Trace, layers: &FxHashMap<Name, String>, sizes: &OpSizes) -> NamedSizes {
    NamedSizes {
        op: trace.history.names.get(sizes.op).to_owned(),
        layer: layers.get(&sizes.op).cloned().unwrap_or_default(),
        steps: sizes.steps,
        sizes: sizes.sizes,
        smallest: sizes.smallest,
        largest: sizes.largest,
        total: sizes.total,
        first_and_last: (sizes.first, sizes.last),
    }
}

/// `None` of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(share(0, 0), None);
        assert_eq!(share(0, 4), Some(0.0));
        assert_eq!(share(3, 4), Some(0.75));
    }
}
