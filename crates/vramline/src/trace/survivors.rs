//! What stays: blocks of each step that are never freed.
//!
//! Between steps a pool keeps what steps share: parameters, optimizer state, caches. What is born anew in every step and still
//! there at the end is what a leak is made of. The first step builds what the others use, and what was born in the last may yet be
//! freed; neither counts.

use rustc_hash::FxHashMap;

use super::{PoolTrace, Trace, without_number};
use crate::event::Dtype;
use crate::names::{Name, Names};
use crate::units::{Bytes, Picos};

/// Fewer steps than this prove nothing.
const FEWEST: usize = 2;

/// The steps of a trace. A step lasts until the next begins. Those that build what others use do not count, nor does the last, whose blocks may yet
/// be freed.
#[derive(Clone, Debug)]
pub(crate) struct StepBegins {
    /// Their beginnings, in order.
    pub(crate) begins: Vec<Picos>,
    /// How many of the first build: one in a trace from the start of the program, none in a later one.
    pub(crate) building: usize,
}

impl StepBegins {
    /// How many count, where they are enough to prove something.
    fn counted(&self) -> Option<usize> {
        self.begins.len().checked_sub(1 + self.building).filter(|&counted| counted >= FEWEST)
    }
}

/// What survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurvivorKind {
    /// The result of an op.
    Tensor,
    /// A variable, or what belongs to one.
    Variable,
    /// A constant of a graph.
    Constant,
}

impl SurvivorKind {
    fn of(op: &str, is_variable: bool, is_constant: bool) -> SurvivorKind {
        match op.rsplit('/').next().map(without_number) {
            _ if is_variable => SurvivorKind::Variable,
            Some("VarHandleOp" | "VariableV2") => SurvivorKind::Variable,
            Some("Const") => SurvivorKind::Constant,
            _ if is_constant => SurvivorKind::Constant,
            _ => SurvivorKind::Tensor,
        }
    }
}

/// Blocks that an op requests in each step and that are not freed.
#[derive(Clone, Debug)]
pub(crate) struct Surviving {
    op: Name,
    /// What they are.
    pub(crate) kind: SurvivorKind,
    /// Of its blocks, where they are all alike.
    shape: Option<(Dtype, Name)>,
    /// The variable that they hold, where they are all of one name.
    variable: Option<String>,
    /// What of a step stays, typically.
    pub(crate) bytes_a_step: Bytes,
}

impl Surviving {
    /// What it is, in words.
    pub(crate) fn what(&self, names: &Names) -> String {
        let op = names.get(self.op);
        let op = if op.is_empty() { "an unnamed op" } else { op };
        let variable = self.variable.as_ref().map_or(String::new(), |variable| format!("{variable}, "));
        let shape = self.shape.map(|(dtype, shape)| format!("{}{}", dtype.word(), names.get(shape)));
        let shape =
            shape.filter(|shape| !shape.is_empty()).map_or(String::new(), |shape| format!(" {shape}"));
        format!("{variable}{op}{shape}")
    }
}

/// The blocks of one op while they are gathered.
struct Gathered {
    steps: Vec<Bytes>,
    shape: Option<(Dtype, Name)>,
    variable: Option<String>,
    is_constant: bool,
}

/// What the steps that count did not free of an op's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StayedBlocks {
    /// The op.
    pub(crate) op: Name,
    /// What they are.
    pub(crate) kind: SurvivorKind,
    /// Their bytes.
    pub(crate) bytes: Bytes,
}

impl Trace {
    /// By op: bytes a step that are born in every step that counts, and not freed in the trace; the most first.
    #[must_use]
    pub(crate) fn survivors(&self, pool: &PoolTrace, steps: &StepBegins) -> Vec<Surviving> {
        let Some(counted) = steps.counted() else { return Vec::new() };
        let events = &self.history.events;
        let mut by_op: FxHashMap<Name, Gathered> = FxHashMap::default();
        for (birth, place) in self.staying(pool, steps) {
            let event = events.at(birth);
            let op = if event.op().is_empty() { event.context() } else { event.op() };
            let shape = Some((event.dtype(), event.shape()));
            let variable = self.owned.get(&birth).map(|owned| owned.variable.clone());
            let gathered = by_op.entry(op).or_insert_with(|| Gathered {
                steps: vec![Bytes::ZERO; counted],
                shape,
                variable: variable.clone(),
                is_constant: true,
            });
            gathered.is_constant &= self.roles.is_constant(event);
            gathered.shape = gathered.shape.filter(|_| gathered.shape == shape);
            gathered.variable = gathered.variable.take().filter(|known| Some(known) == variable.as_ref());
            if let Some(bytes) = gathered.steps.get_mut(place) {
                *bytes += event.size().unwrap_or_default();
            }
        }
        let mut found: Vec<Surviving> = by_op
            .into_iter()
            .filter(|(_, gathered)| gathered.steps.iter().all(|&bytes| bytes > Bytes::ZERO))
            .filter_map(|(op, Gathered { mut steps, shape, variable, is_constant })| {
                steps.sort_unstable();
                let kind = SurvivorKind::of(self.history.names.get(op), variable.is_some(), is_constant);
                Some(Surviving { op, kind, shape, variable, bytes_a_step: *steps.get(counted / 2)? })
            })
            .collect();
        found.sort_unstable_by_key(|one| {
            (std::cmp::Reverse(one.bytes_a_step), self.history.names.get(one.op))
        });
        found
    }

    /// Over the steps that count: how many they are, how much more is in use after them than before, and what they asked for and did not
    /// free.
    pub(crate) fn growth_over(&self, pool: &PoolTrace, steps: &StepBegins) -> Option<(usize, Bytes, Bytes)> {
        let counted = steps.counted()?;
        let events = &self.history.events;
        let level_before = |time: Picos| {
            let position = pool.position_at(events, Picos(time.0.saturating_sub(1)))?;
            Some(pool.in_use_at(events, position))
        };
        let (first, last) = (steps.begins.get(steps.building)?, steps.begins.last()?);
        let (first, last) = (level_before(*first)?, level_before(*last)?);
        let size = |birth: usize| events.at(birth).size().unwrap_or_default();
        let kept = self.staying(pool, steps).map(|(birth, _)| size(birth)).sum();
        Some((counted, last.saturating_sub(first), kept))
    }

    /// By op: bytes of the steps that count that are not freed in the trace; the most first. Variables that the program lists
    /// are left out: a step writes them anew, and does not add to them.
    pub(crate) fn stayed(&self, pool: &PoolTrace, steps: &StepBegins) -> Vec<StayedBlocks> {
        let events = &self.history.events;
        let mut by_op: FxHashMap<Name, (Bytes, bool)> = FxHashMap::default();
        for (birth, _) in self.staying(pool, steps).filter(|(birth, _)| !self.owned.contains_key(birth)) {
            let event = events.at(birth);
            let (bytes, is_constant) = by_op.entry(event.op_or_scope()).or_insert((Bytes::ZERO, true));
            *bytes += event.size().unwrap_or_default();
            *is_constant &= self.roles.is_constant(event);
        }
        let blocks = |(op, (bytes, is_constant))| StayedBlocks {
            op,
            kind: SurvivorKind::of(self.history.names.get(op), false, is_constant),
            bytes,
        };
        let mut stayed: Vec<StayedBlocks> = by_op.into_iter().map(blocks).collect();
        stayed.sort_unstable_by_key(|one| (std::cmp::Reverse(one.bytes), self.history.names.get(one.op)));
        stayed
    }

    /// Blocks of the steps that count that are not freed, each with the place of its step among those.
    fn staying(&self, pool: &PoolTrace, steps: &StepBegins) -> impl Iterator<Item = (usize, usize)> {
        let counted = steps.counted().unwrap_or(0);
        pool.never_freed().filter_map(move |birth| {
            let begun = steps.begins.partition_point(|&begin| begin <= self.history.events.time(birth));
            let place = begun.checked_sub(1 + steps.building)?;
            (place < counted).then_some((birth, place))
        })
    }
}
