//! The workspaces that PyTorch keeps for cuBLAS: blocks that it takes from its own pool at the first matrix product of a thread and a
//! stream, and never returns.
//!
//! PyTorch does not name them, and records them in whatever module or backward pass runs first. They are recognised by their size, by being
//! the only block of their place in the program that is never freed, and by outliving a step. A program that sets
//! `CUBLAS_WORKSPACE_CONFIG` to another size hides them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Trace;
use super::role::outlives_step;
use crate::event::Framework;
use crate::names::Name;
use crate::stack::Stack;
use crate::units::Bytes;

/// The evidence for such a block.
pub(super) const WORKSPACE: &str =
    "the size of a cuBLAS workspace; the only block of its place in the program that is never freed";
/// The owner of such a block.
pub(super) const OWNER: &str = "cuBLAS workspace";

/// The sizes that PyTorch requests: from Hopper on and with `:4096:8`, and on older devices.
pub(super) const SIZES: [Bytes; 2] = [Bytes(32 << 20), Bytes((8 << 20) + (128 << 10))];

impl Trace {
    /// The events that allocated such blocks.
    pub(super) fn workspaces(&self) -> FxHashSet<usize> {
        let mut by_place: FxHashMap<(Name, Stack, Bytes), Vec<usize>> = FxHashMap::default();
        let (Some(Framework::PyTorch), Some(stacks)) = (self.history.framework, self.roles.stacks()) else {
            return FxHashSet::default();
        };
        for birth in self.pools.iter().flat_map(|pool| pool.never_freed()) {
            let event = self.history.events.at(birth);
            let size = event.requested().unwrap_or_default();
            if SIZES.contains(&size)
                && !self.owned.contains_key(&birth)
                && stacks.is_pass(&self.history, birth)
            {
                by_place.entry((event.module(), event.stack(), size)).or_default().push(birth);
            }
        }
        let outlives = |&birth: &usize| outlives_step(&self.steps, self.history.events.time(birth), None);
        let alone = |births: Vec<usize>| <[usize; 1]>::try_from(births).ok();
        by_place.into_values().filter_map(alone).flatten().filter(outlives).collect()
    }
}
