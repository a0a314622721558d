//! What stays: blocks of each step that are never freed.
//!
//! Between steps a pool keeps what steps share: parameters, optimizer state, caches. What is born anew in every step and still
//! there at the end is what a leak is made of. The first step builds what the others use, and what was born in the last may yet be
//! freed; neither counts.

use rustc_hash::FxHashMap;

use super::{PoolTrace, Trace};
use crate::names::Name;
use crate::units::{Bytes, Picos};

/// Fewer steps than this between the first and the last prove nothing.
const FEWEST: usize = 2;

impl Trace {
    /// By op: bytes a step that are born in every step but the first and the last, and not freed in the trace; the most first.
    /// `begins` are the beginnings of steps, in order; a step lasts until the next begins.
    #[must_use]
    pub(crate) fn survivors(&self, pool: &PoolTrace, begins: &[Picos]) -> Vec<(Name, Bytes)> {
        let counted = begins.len().saturating_sub(2);
        if counted < FEWEST {
            return Vec::new();
        }
        let events = &self.history.events;
        let mut by_op: FxHashMap<Name, Vec<Bytes>> = FxHashMap::default();
        for birth in pool.never_freed().filter(|birth| !self.owned.contains_key(birth)) {
            let step = begins.partition_point(|&begin| begin <= events.time(birth));
            // Step 1 is the second; before it nothing counts.
            let Some(place) = step.checked_sub(2).filter(|&place| place < counted) else { continue };
            let event = events.at(birth);
            let op = if event.op().is_empty() { event.context() } else { event.op() };
            let steps = by_op.entry(op).or_insert_with(|| vec![Bytes::ZERO; counted]);
            if let Some(bytes) = steps.get_mut(place) {
                *bytes += event.size().unwrap_or_default();
            }
        }
        let mut found: Vec<(Name, Bytes)> = by_op
            .into_iter()
            .filter(|(_, steps)| steps.iter().all(|&bytes| bytes > Bytes::ZERO))
            .filter_map(|(op, mut steps)| {
                steps.sort_unstable();
                Some((op, *steps.get(counted / 2)?))
            })
            .collect();
        found.sort_unstable_by_key(|&(op, bytes)| (std::cmp::Reverse(bytes), self.history.names.get(op)));
        found
    }
}
