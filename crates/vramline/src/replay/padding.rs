//! What a pool would take if ops that ask for other sizes in each step always asked for their largest: shapes padded to constant ones.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{PoolRun, Program, Rehearsal, Rules};
use crate::allocator::Placement;
use crate::names::Name;
use crate::trace::{Step, Trace};
use crate::units::Bytes;

impl PoolRun {
    /// The most that the pool would take from the driver if `ops` asked in each of `steps` for their largest sizes. `None` where the
    /// recorded pool cannot be rehearsed to the byte, or is taken whole at the start.
    pub(crate) fn padded_pool(&self, trace: &Trace, steps: &[&Step], ops: &FxHashSet<Name>) -> Option<Bytes> {
        if !self.is_exact() || !self.grows() {
            return None;
        }
        let program = self.program.resized(self.program.acts.len());
        let rehearsed = |program: &Program, placement| {
            let rehearsal = Rehearsal { program, rules: &self.rules, limit: None, placement };
            rehearsal.run(&[]).filter(|ran| ran.failure.is_none()).map(|ran| ran.pool)
        };
        // Where the driver put regions decides ties between free chunks; the padded pool is put the same way.
        let placement = Placement::ALL
            .into_iter()
            .find(|&placement| rehearsed(&program, placement) == Some(self.exact.pool))?;
        let mut padded = program;
        for (act, bytes) in self.largest_requests(trace, steps, ops) {
            padded.set_bytes(act, bytes);
        }
        rehearsed(&padded, placement)
    }

    fn grows(&self) -> bool {
        match &self.rules {
            Rules::Bfc(preset) => preset.options.growth,
            Rules::Torch(_) => true,
        }
    }

    /// The acts of `ops` in `steps`, each with the largest size that the op's request of that number within its step ever has.
    fn largest_requests(&self, trace: &Trace, steps: &[&Step], ops: &FxHashSet<Name>) -> Vec<(usize, Bytes)> {
        let mut largest: FxHashMap<(Name, u32), Bytes> = FxHashMap::default();
        let mut counts: FxHashMap<Name, u32> = FxHashMap::default();
        let mut found: Vec<(usize, (Name, u32))> = Vec::new();
        let mut current = None;
        for (at, (act, answer)) in self.program.acts.iter().zip(&self.program.answers).enumerate() {
            let Some(bytes) = act.requested() else { continue };
            let event = trace.history.events.at(answer.event as usize);
            let op = event.op_or_scope();
            if !ops.contains(&op) {
                continue;
            }
            let after = steps.partition_point(|step| step.begin <= event.time());
            let step = after.checked_sub(1).and_then(|place| steps.get(place));
            if step.is_none_or(|step| event.time() >= step.until) {
                continue;
            }
            if current != Some(after) {
                (current, counts) = (Some(after), FxHashMap::default());
            }
            let count = counts.entry(op).or_default();
            let key = (op, *count);
            *count += 1;
            let most = largest.entry(key).or_default();
            *most = (*most).max(bytes);
            found.push((at, key));
        }
        found.into_iter().filter_map(|(at, key)| Some((at, *largest.get(&key)?))).collect()
    }
}
