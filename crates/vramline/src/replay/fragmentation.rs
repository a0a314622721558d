//! Why a pool is larger than what was requested: at the moments that matter, and by cause.
//!
//! *Internal* fragmentation is rounding: blocks larger than their requests. *External* fragmentation is free memory in blocks smaller than
//! the largest request that is still to come. *Stranded* regions are mostly free, but a few live blocks keep them; *idle* regions are
//! entirely free and could be returned. A cause comes with the bytes that would be saved without it, as far as that can be computed.
//! Causes overlap, so their bytes do not add up.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::{Exact, Heap, Piece, Replaying};
use super::program::Program;
use crate::allocator::bfc::RegionView;
use crate::event::{Framework, History};
use crate::names::Name;
use crate::trace::Step;
use crate::units::{Bytes, plural};

/// The maximum number of ops that are named with a cause or a region.
const OPS: usize = 3;
/// The maximum number of regions that are listed.
const REGIONS: usize = 8;

/// A pool's fragmentation.
#[derive(Clone, Debug, Default)]
pub struct Fragmentation {
    /// At the peak.
    pub at_peak: Option<Moment>,
    /// Just before the pool grew for the last time.
    pub before_last_growth: Option<Moment>,
    /// At the end of the trace.
    pub at_end: Option<Moment>,
    /// Its causes, most bytes first.
    pub causes: Vec<Cause>,
}

/// The pool at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// After this act.
    pub act: usize,
    /// Bytes of blocks in use.
    pub in_use: Bytes,
    /// Requested bytes of those blocks.
    pub requested: Bytes,
    /// The difference: internal fragmentation.
    pub slack: Bytes,
    /// Bytes of blocks that were freed but are still used by a stream.
    pub pending: Bytes,
    /// Reserved from the driver, but not in use.
    pub cached: Bytes,
    /// Of that, in regions without a block in use.
    pub idle: Bytes,
    /// The largest free block.
    pub largest_free: Bytes,
    /// The largest request still to come, rounded; zero if there is none.
    pub upcoming: Bytes,
    /// Bytes of free blocks that are too small for it: external fragmentation.
    pub external: Bytes,
    /// Regions that are mostly free, most free bytes first.
    pub stranded: Vec<Stranded>,
}

/// A region that cannot be returned because of a few live blocks.
#[derive(Clone, Debug)]
pub struct Stranded {
    /// Its first address.
    pub base: u64,
    /// Its size.
    pub size: Bytes,
    /// Bytes in use in it.
    pub live: Bytes,
    /// Number of blocks in use in it.
    pub chunks: usize,
    /// The ops that requested them, most bytes first; an empty name means an unknown op.
    pub ops: Vec<(Name, Bytes)>,
}

/// What makes a pool larger than what is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// The pool grew in regions that cannot be merged.
    GrowthRegions,
    /// Another stream, pool or size class had enough free memory.
    PoolBoundary,
    /// Request sizes keep changing.
    ShapeChurn,
    /// A long-lived block keeps a free block from being merged.
    LongLived,
}

words!(CauseKind {
    GrowthRegions => "growth-regions",
    PoolBoundary => "pool-boundary",
    ShapeChurn => "shape-churn",
    LongLived => "long-lived",
});

/// A cause of fragmentation.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Its kind.
    pub kind: CauseKind,
    /// Its bytes.
    pub bytes: Bytes,
    /// A description.
    pub text: String,
    /// The ops that contribute most, with their bytes.
    pub ops: Vec<(Name, Bytes)>,
}

/// What an explanation of a replay needs.
pub(crate) struct Subject<'a> {
    pub(crate) program: &'a Program,
    pub(crate) exact: &'a Exact,
    pub(crate) history: &'a History,
    /// How the allocator rounds a request.
    pub(crate) rounded: &'a dyn Fn(Bytes) -> u64,
    pub(crate) steps: &'a [Step],
    /// What the same requests would need if regions could be merged, with a description.
    pub(crate) joined: Option<(Bytes, String)>,
}

impl Subject<'_> {
    fn is_scope(&self, act: usize) -> bool {
        let answer = self.program.answers.get(act);
        answer.is_some_and(|answer| self.history.events.at(answer.event as usize).is_scope())
    }

    fn op(&self, act: usize) -> Name {
        let answer = self.program.answers.get(act);
        answer.map_or(Name::EMPTY, |answer| self.history.events.at(answer.event as usize).op_or_scope())
    }
}

/// Explains a replay. `run` is the same replay, at its start.
pub(crate) fn explain(subject: &Subject<'_>, mut run: impl Replaying) -> Fragmentation {
    let program = subject.program;
    let Some(last) = program.acts.len().checked_sub(1) else { return Fragmentation::default() };
    let largest = program.largest_from(subject.rounded);
    let ends = ends(program);
    let grown = subject.exact.growths.last().and_then(|growth| growth.act.checked_sub(1));
    let mut stops: Vec<usize> =
        [Some(subject.exact.peak_at), grown, Some(last)].into_iter().flatten().collect();
    stops.sort_unstable();
    stops.dedup();
    let mut moments: BTreeMap<usize, Moment> = BTreeMap::new();
    let mut held_apart = (Bytes::ZERO, Vec::new());
    for stop in stops {
        run.until(stop);
        let upcoming = Bytes(largest.get(stop + 1).copied().unwrap_or(0));
        moments.insert(stop, moment(subject, &run, stop, upcoming));
        if stop == subject.exact.peak_at {
            // Later requests may be small at the peak; here the largest request of the whole program counts.
            let most = Bytes(largest.first().copied().unwrap_or(0));
            held_apart = long_lived(subject, &run, &ends, most);
        }
    }
    let mut causes = Vec::new();
    causes.extend(growth_regions(subject));
    causes.extend(pool_boundary(subject));
    // A line of a PyTorch program is not an op: it may allocate different things.
    causes.extend(match subject.history.framework {
        Some(Framework::PyTorch) => new_sizes(subject),
        _ => shape_churn(subject),
    });
    if held_apart.0 > Bytes::ZERO {
        let text = "free blocks at the peak that are smaller than the largest request, next to blocks that live for more than half of the trace";
        causes.push(Cause {
            kind: CauseKind::LongLived,
            bytes: held_apart.0,
            text: text.to_owned(),
            ops: held_apart.1,
        });
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    Fragmentation {
        at_peak: moments.get(&subject.exact.peak_at).cloned(),
        before_last_growth: grown.and_then(|act| moments.get(&act)).cloned(),
        at_end: moments.remove(&last),
        causes,
    }
}

/// The act that frees what an act requested; `None` if it is not freed.
fn ends(program: &Program) -> Vec<Option<u32>> {
    let mut ends = vec![None; program.acts.len()];
    let mut in_slot = vec![usize::MAX; program.slots];
    for (at, act) in program.acts.iter().enumerate() {
        let Some(slot) = in_slot.get_mut(act.slot()) else { continue };
        if act.requested().is_some() {
            *slot = at;
        } else if let Some(end) = ends.get_mut(*slot).filter(|_| act.ends()) {
            *end = u32::try_from(at).ok();
        }
    }
    ends
}

fn moment(subject: &Subject<'_>, run: &impl Replaying, act: usize, upcoming: Bytes) -> Moment {
    let heap = run.heap();
    let owners = run.owners();
    let external = heap.free_sizes().filter(|&size| size < upcoming).sum();
    let mut stranded: Vec<Stranded> = Vec::new();
    let mut idle = Bytes::ZERO;
    let regions = heap.regions();
    // A pool with one region was reserved at once, so nothing is stranded.
    let is_one = regions.len() < 2;
    for RegionView { base, size } in regions {
        let live: Vec<Piece> = heap.chunks(base).into_iter().filter(|chunk| chunk.in_use).collect();
        if live.is_empty() {
            idle += size;
            continue;
        }
        let bytes: Bytes = live.iter().map(|chunk| chunk.size).sum();
        // Mostly free, but not returned because a block in it is in use.
        if is_one || bytes.0 > size.0 / 4 {
            continue;
        }
        let owner = |chunk: &Piece| owners.get(&chunk.address).map_or(Name::EMPTY, |&at| subject.op(at));
        let ops = most(live.iter().map(|chunk| (owner(chunk), chunk.size)));
        stranded.push(Stranded { base, size, live: bytes, chunks: live.len(), ops });
    }
    stranded.sort_by_key(|region| std::cmp::Reverse(region.size.saturating_sub(region.live)));
    stranded.truncate(REGIONS);
    Moment {
        act,
        in_use: heap.in_use(),
        requested: heap.requested(),
        slack: heap.slack(),
        pending: heap.pending(),
        cached: heap.cached(),
        idle,
        largest_free: heap.largest_free(),
        upcoming,
        external,
        stranded,
    }
}

/// The names with the most bytes.
fn most(bytes: impl Iterator<Item = (Name, Bytes)>) -> Vec<(Name, Bytes)> {
    let mut sums: FxHashMap<Name, Bytes> = FxHashMap::default();
    for (name, bytes) in bytes {
        *sums.entry(name).or_default() += bytes;
    }
    let mut sums: Vec<(Name, Bytes)> = sums.into_iter().collect();
    sums.sort_by_key(|&(name, bytes)| (std::cmp::Reverse(bytes), name.0));
    sums.truncate(OPS);
    sums
}

/// Regions that cannot be merged, compared with what the same requests would need if they could.
fn growth_regions(subject: &Subject<'_>) -> Option<Cause> {
    let (whole, words) = subject.joined.as_ref()?;
    let bytes = subject.exact.pool.saturating_sub(*whole);
    let regions = match subject.history.framework {
        Some(Framework::PyTorch) => "segments",
        _ => "regions",
    };
    let text =
        format!("the pool grew in {} {regions} that cannot be merged; {words}", subject.exact.growths.len());
    let ops = most(subject.exact.growths.iter().map(|growth| (subject.op(growth.act), growth.got)));
    (bytes > Bytes::ZERO).then_some(Cause { kind: CauseKind::GrowthRegions, bytes, text, ops })
}

/// Growth although another stream, pool or size class had a large enough free block.
fn pool_boundary(subject: &Subject<'_>) -> Option<Cause> {
    let beyond = |growth: &&super::GrowthAt| growth.largest_elsewhere >= growth.rounded;
    let grown: Vec<_> = subject.exact.growths.iter().filter(beyond).collect();
    let bytes: Bytes = grown.iter().map(|growth| growth.got).sum();
    let text = format!(
        "the pool grew {} although another stream, pool or size class had a large enough free block",
        plural(grown.len(), "time", "times")
    );
    let ops = most(grown.iter().map(|growth| (subject.op(growth.act), growth.got)));
    (bytes > Bytes::ZERO).then_some(Cause { kind: CauseKind::PoolBoundary, bytes, text, ops })
}

/// Growth for ops whose request sizes keep changing.
fn shape_churn(subject: &Subject<'_>) -> Option<Cause> {
    #[derive(Default)]
    struct Asked {
        requests: u64,
        changes: u64,
        last: Bytes,
        sizes: FxHashSet<Bytes>,
    }
    let mut ops: FxHashMap<Name, Asked> = FxHashMap::default();
    for (at, act) in subject.program.acts.iter().enumerate() {
        let Some(bytes) = act.requested() else { continue };
        let name = subject.op(at);
        // A scope is not an op: it may allocate different things.
        if name.is_empty() || subject.is_scope(at) {
            continue;
        }
        let asked = ops.entry(name).or_default();
        asked.changes += u64::from(asked.requests > 0 && bytes != asked.last);
        asked.requests += 1;
        asked.last = bytes;
        if asked.sizes.len() < 64 {
            asked.sizes.insert(bytes);
        }
    }
    let is_churning = |name: Name| {
        ops.get(&name).is_some_and(|asked| asked.sizes.len() >= 3 && asked.changes * 2 >= asked.requests)
    };
    let grown: Vec<(Name, Bytes)> = subject
        .exact
        .growths
        .iter()
        .map(|growth| (subject.op(growth.act), growth.got))
        .filter(|&(name, _)| is_churning(name))
        .collect();
    let bytes: Bytes = grown.iter().map(|&(_, got)| got).sum();
    let names = most(grown.into_iter());
    let sizes = names.iter().filter_map(|(name, _)| ops.get(name)).map(|asked| asked.sizes.len()).max()?;
    let text =
        format!("the pool grew for ops whose request sizes keep changing, up to {sizes} sizes for one op");
    (bytes > Bytes::ZERO).then_some(Cause { kind: CauseKind::ShapeChurn, bytes, text, ops: names })
}

/// Growth in later steps, for sizes that no earlier step requested.
fn new_sizes(subject: &Subject<'_>) -> Option<Cause> {
    /// The first step allocates what stays, and the second step has all of it.
    const ORDINARY: usize = 2;
    let time = |act: usize| {
        let answer = subject.program.answers.get(act)?;
        Some(subject.history.events.time(answer.event as usize))
    };
    let step_of =
        |act| subject.steps.partition_point(|step| time(act).is_some_and(|time| step.begin <= time));
    let mut grown: Vec<(Name, Bytes)> = Vec::new();
    let (mut before, mut now): (FxHashSet<Bytes>, Vec<Bytes>) = (FxHashSet::default(), Vec::new());
    let mut growths = subject.exact.growths.iter().peekable();
    let mut step = 0;
    for (at, act) in subject.program.acts.iter().enumerate() {
        let Some(bytes) = act.requested() else { continue };
        if subject.steps.get(step).zip(time(at)).is_some_and(|(next, time)| next.begin <= time) {
            step = step_of(at);
            before.extend(now.drain(..));
        }
        now.push(bytes);
        while let Some(growth) = growths.next_if(|growth| growth.act <= at) {
            if step > ORDINARY && growth.act == at && !before.contains(&bytes) {
                grown.push((subject.op(at), growth.got));
            }
        }
    }
    let bytes: Bytes = grown.iter().map(|&(_, got)| got).sum();
    let text = format!(
        "the pool grew {} after the first {ORDINARY} steps, for sizes that no earlier step requested",
        plural(grown.len(), "time", "times")
    );
    let ops = most(grown.into_iter());
    (bytes > Bytes::ZERO).then_some(Cause { kind: CauseKind::ShapeChurn, bytes, text, ops })
}

/// Free blocks that are too small for the largest request and next to long-lived blocks.
fn long_lived(
    subject: &Subject<'_>,
    run: &impl Replaying,
    ends: &[Option<u32>],
    upcoming: Bytes,
) -> (Bytes, Vec<(Name, Bytes)>) {
    let owners = run.owners();
    let half = subject.program.acts.len() / 2;
    let is_long = |chunk: &Piece| {
        let Some(&at) = owners.get(&chunk.address) else { return chunk.in_use };
        let end = ends.get(at).copied().flatten().map_or(subject.program.acts.len(), |end| end as usize);
        chunk.in_use && end.saturating_sub(at) > half
    };
    let mut total = Bytes::ZERO;
    let mut beside = Vec::new();
    for region in run.heap().regions() {
        let chunks = run.heap().chunks(region.base);
        for (at, chunk) in chunks.iter().enumerate() {
            if chunk.in_use || chunk.size >= upcoming {
                continue;
            }
            let before = at.checked_sub(1).and_then(|at| chunks.get(at));
            let neighbours = [before, chunks.get(at + 1)];
            let Some(long) = neighbours.into_iter().flatten().find(|chunk| is_long(chunk)) else { continue };
            total += chunk.size;
            let name = owners.get(&long.address).map_or(Name::EMPTY, |&at| subject.op(at));
            beside.push((name, chunk.size));
        }
    }
    (total, most(beside.into_iter()))
}
