//! What a snapshot says of the moment at which it was taken, of devices whose history does not know the peak.

use rustc_hash::FxHashMap;

use super::Trace;
use crate::event::{DumpBlock, DumpState, PoolId};
use crate::snapshot::{Held, Snapshot};
use crate::units::Bytes;

impl Trace {
    /// The state of a pool whose history does not know the peak.
    #[must_use]
    pub(crate) fn state_of(&self, pool: PoolId) -> Option<&DumpState> {
        self.history.pool(pool)?.caching.as_ref()?.state.as_ref()
    }

    /// What a pool held then. Sizes and frames are known, times are not.
    #[must_use]
    pub(crate) fn dumped(&self, state: &DumpState) -> Snapshot {
        let (names, stacks) = (&self.history.names, &self.history.stacks);
        // Many blocks come from one place.
        let mut known = FxHashMap::default();
        let held = |block: &DumpBlock| {
            let (role, evidence, source) = *known.entry((block.stack, block.op)).or_insert_with(|| {
                let (role, evidence) = self.roles.at_dump(block.stack);
                let op = names.get(block.op);
                let mut frames = stacks.frames(block.stack).map(|frame| names.get(frame));
                // The op is the place in short; here it is in full.
                let source = frames.find(|frame| !op.is_empty() && frame.ends_with(op));
                (role, evidence, source.unwrap_or_default())
            });
            Held {
                op: block.op,
                stack: block.stack,
                role,
                source: source.to_owned(),
                ..Held::bare(block.requested, block.size, evidence)
            }
        };
        Snapshot {
            time: None,
            in_use: state.blocks.iter().map(|block| block.size).sum(),
            before_recording: Bytes::ZERO,
            held: state.blocks.iter().map(held).collect(),
        }
    }
}
