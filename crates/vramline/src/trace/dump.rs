//! What a snapshot says of the moment at which it was taken, of devices whose history does not know the peak.
//!
//! The blocks of such a snapshot have an address, sizes and the place that requested them. In a recording two more facts say whose they
//! are: the variables that were listed at the same moment, by address; and the trace of the first steps, which knows the module and the
//! role of what the same call stack allocated then.

use rustc_hash::FxHashMap;

use super::owners::{LayerNames, Owner};
use super::{Trace, recorded, workspaces};
use crate::event::{DumpBlock, DumpState, History, PoolId};
use crate::names::Names;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::Inventory;
use crate::snapshot::{Held, Role, Snapshot};
use crate::stack::{Stack, Stacks};
use crate::units::{Bytes, Span};

const LISTED: &str = "in the program's list of variables at that moment";
const SAME_STACK: &str = "the same call stack as in the trace of the first steps";
const SAME_CALLS: &str = "the same innermost calls as in the trace of the first steps";

const WORKSPACE_SIZE: &str = "no call stack, and the size of a cuBLAS workspace";
const WITHOUT_STACK: &str = "no call stack: a thread without Python, as the backward pass has, or an allocation from before call stacks were recorded";

/// Frames of PyTorch that call modules. They differ where hooks on modules exist, as they do in a trace.
const CALLS_OF_MODULES: &str = "torch/nn/modules/module.py";
const OUR_FRAMES: &str = "vramline/attach/";
/// The number of innermost frames that must agree if the whole stack does not: the program may call its model from another place.
const INNERMOST: usize = 6;

/// What the places of a program hold, as the trace of its first steps shows.
#[derive(Debug, Default)]
pub(crate) struct Places {
    whole: FxHashMap<String, PlaceUse>,
    inner: FxHashMap<String, PlaceUse>,
}

#[derive(Clone, Debug, Default)]
struct PlaceUse {
    /// Bytes times the time that each role held them, over all blocks: of blocks from one line, those that live long are found at a moment.
    roles: FxHashMap<Role, u128>,
    /// The module; of layers that repeat, with a star for the number. `None` before the first block.
    layer: Option<String>,
}

impl PlaceUse {
    fn add(&mut self, held: &Held, lived: Span) {
        let weight = self.roles.entry(held.role).or_default();
        *weight = weight.saturating_add(u128::from(held.requested.0) * (u128::from(lived.nanos()) + 1));
        self.layer = Some(match self.layer.take() {
            None => held.layer.clone(),
            Some(layer) => shared_layer(layer, &held.layer),
        });
    }

    fn owner(&self) -> Owner {
        let most = self.roles.iter().max_by_key(|&(role, weight)| (*weight, std::cmp::Reverse(*role)));
        Owner {
            role: most.map_or(Role::Unknown, |(role, _)| *role),
            layer: self.layer.clone().unwrap_or_default(),
            ..Owner::default()
        }
    }
}

/// What two paths of modules have in common, with a star where only the numbers of layers differ; empty for different modules.
fn shared_layer(one: String, other: &str) -> String {
    if one == other {
        return one;
    }
    let is_number =
        |part: &str| part == "*" || (!part.is_empty() && part.bytes().all(|sign| sign.is_ascii_digit()));
    let (mine, theirs): (Vec<&str>, Vec<&str>) = (one.split('.').collect(), other.split('.').collect());
    let shared = |(a, b): (&&str, &&str)| match a == b {
        true => Some((*a).to_owned()),
        false => (is_number(a) && is_number(b)).then(|| "*".to_owned()),
    };
    let parts: Option<Vec<String>> = mine.iter().zip(&theirs).map(shared).collect();
    parts.filter(|_| mine.len() == theirs.len()).map_or(String::new(), |parts| parts.join("."))
}

/// A call stack as a text, innermost frame first: all of it, and its innermost frames. `None` if no frame of the program is known.
fn keys(stack: Stack, stacks: &Stacks, names: &Names) -> Option<(String, String)> {
    let is_ours = |frame: &&str| !frame.contains(CALLS_OF_MODULES) && !frame.contains(OUR_FRAMES);
    let frames: Vec<&str> = stacks.frames(stack).map(|frame| names.get(frame)).filter(is_ours).collect();
    let inner = frames.get(..INNERMOST).unwrap_or(&frames).join("\n");
    (!frames.is_empty()).then(|| (frames.join("\n"), inner))
}

impl Places {
    /// What the places of a traced program hold.
    pub(crate) fn of(trace: &Trace) -> Places {
        let History { stacks, names, .. } = &trace.history;
        let mut uses: FxHashMap<Stack, PlaceUse> = FxHashMap::default();
        for pool in &trace.pools {
            let end = pool.last_time(&trace.history.events);
            for life in trace.lifetimes(pool).filter(|life| !life.held.stack.is_empty()) {
                let lived = life.freed.unwrap_or(end).since(life.born);
                uses.entry(life.held.stack).or_default().add(&life.held, lived);
            }
        }
        let mut places = Places::default();
        for (stack, used) in uses {
            let Some((whole, inner)) = keys(stack, stacks, names) else { continue };
            for (key, places) in [(whole, &mut places.whole), (inner, &mut places.inner)] {
                let known = places.entry(key).or_default();
                for (role, weight) in &used.roles {
                    let sum = known.roles.entry(*role).or_default();
                    *sum = sum.saturating_add(*weight);
                }
                let layer = used.layer.clone().unwrap_or_default();
                known.layer = Some(match known.layer.take() {
                    None => layer,
                    Some(before) => shared_layer(before, &layer),
                });
            }
        }
        places
    }

    fn find(&self, stack: Stack, stacks: &Stacks, names: &Names) -> Option<(Owner, &'static str)> {
        let (whole, inner) = keys(stack, stacks, names)?;
        let same = self.whole.get(&whole).map(|place| (place.owner(), SAME_STACK));
        same.or_else(|| self.inner.get(&inner).map(|place| (place.owner(), SAME_CALLS)))
    }
}

/// Whose the blocks of a snapshot are.
#[derive(Debug, Default)]
pub(super) struct MomentOwners {
    by_address: FxHashMap<u64, Owner>,
    by_stack: FxHashMap<Stack, (Owner, &'static str)>,
}

impl MomentOwners {
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        self.by_address.values_mut().chain(self.by_stack.values_mut().map(|(owner, _)| owner))
    }
}

impl Trace {
    /// Takes whose the blocks of a moment are: from the variables that were listed then, and from what the same places hold in the trace of
    /// the first steps.
    #[must_use]
    pub(crate) fn with_moment(
        mut self,
        process: &RecordedProcess,
        listed: &[&Inventory],
        places: Option<&Places>,
    ) -> Trace {
        let layers = LayerNames::of(process, &self.history);
        for variable in listed.iter().flat_map(|inventory| &inventory.variables) {
            if let Some(address) = variable.address {
                self.at_moment.by_address.insert(address, recorded::owner_of(variable, &layers));
            }
        }
        if let Some(places) = places {
            let states = self.history.pools.iter().filter_map(|pool| pool.caching.as_ref()?.state.as_ref());
            for block in states.flat_map(|state| &state.blocks).filter(|block| !block.stack.is_empty()) {
                if !self.at_moment.by_stack.contains_key(&block.stack)
                    && let Some(found) = places.find(block.stack, &self.history.stacks, &self.history.names)
                {
                    self.at_moment.by_stack.insert(block.stack, found);
                }
            }
        }
        self.names = layers;
        self
    }

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
            let held = Held {
                op: block.op,
                stack: block.stack,
                role,
                source: source.to_owned(),
                ..Held::bare(block.requested, block.size, evidence)
            };
            self.owned_then(block, held)
        };
        Snapshot {
            time: None,
            in_use: state.blocks.iter().map(|block| block.size).sum(),
            before_recording: Bytes::ZERO,
            held: state.blocks.iter().map(held).collect(),
        }
    }

    /// A block of a moment with what the recording knows of it.
    fn owned_then(&self, block: &DumpBlock, held: Held) -> Held {
        let listed = block.address.and_then(|address| self.at_moment.by_address.get(&address));
        // Another block may lie where a variable lay before.
        if let Some(owner) = listed.filter(|owner| owner.bytes.is_none_or(|bytes| bytes <= block.size)) {
            return Held {
                role: owner.role,
                layer: owner.layer.clone(),
                variable: owner.variable.clone(),
                variable_number: owner.number,
                evidence: LISTED,
                ..held
            };
        }
        match self.at_moment.by_stack.get(&block.stack) {
            Some((owner, evidence)) => {
                // Of a place whose blocks have several roles or none, the stack alone may know more.
                let role = if owner.role == Role::Unknown { held.role } else { owner.role };
                let evidence = if owner.role == Role::Unknown { held.evidence } else { evidence };
                Held { role, evidence, layer: owner.layer.clone(), ..held }
            }
            None if block.stack.is_empty() => self.without_stack(held),
            None => held,
        }
    }

    /// A block without a call stack, of a moment at which others have one.
    fn without_stack(&self, held: Held) -> Held {
        if self.at_moment.by_stack.is_empty() {
            return held;
        }
        match workspaces::SIZES.contains(&held.requested) {
            true => Held {
                role: Role::Temporaries,
                layer: workspaces::OWNER.to_owned(),
                evidence: WORKSPACE_SIZE,
                ..held
            },
            false => Held {
                role: Role::Gradients,
                layer: super::BACKWARD_PASS.to_owned(),
                evidence: WITHOUT_STACK,
                ..held
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_repeat_share_a_path() {
        let shared = |one: &str, other: &str| shared_layer(one.to_owned(), other);
        assert_eq!(shared("layers.3.attn", "layers.3.attn"), "layers.3.attn");
        assert_eq!(shared("layers.3.attn", "layers.4.attn"), "layers.*.attn");
        assert_eq!(shared("layers.*.attn", "layers.4.attn"), "layers.*.attn");
        assert_eq!(shared("layers.3.attn", "layers.3.mlp"), "");
        assert_eq!(shared("layers.3", "layers.3.mlp"), "");
        assert_eq!(shared("a", ""), "");
    }
}
