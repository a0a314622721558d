//! Allocations of a pool by address and time.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::names::PictureNames;
use crate::event::History;
use crate::names::Name;
use crate::snapshot::Role;
use crate::trace::{Life, PoolTrace, Trace};
use crate::units::{Bytes, Picos};

/// Allocations by address and time, in order of their births. All lists are of the same length.
#[derive(Clone, Debug)]
pub struct BlockMap {
    /// Allocations of the whole pool.
    pub allocations: u64,
    /// Whether these are all of them, and each event of the pool is a column of the timeline.
    pub is_whole: bool,
    /// The lowest address.
    pub base: u64,
    /// Addresses, from the lowest on.
    pub offset: Vec<u64>,
    /// Bytes that the allocator handed out for each.
    pub chunk: Vec<u64>,
    /// Rounding: of these, beyond the request.
    pub slack: Vec<u64>,
    /// When each was allocated, in nanoseconds.
    pub born: Vec<i64>,
    /// How long it was held, in nanoseconds; `None` where the trace does not show that it was freed.
    pub held: Vec<Option<i64>>,
    /// What it is for.
    pub role: Vec<Role>,
    /// The op that requested it, as a number of the picture's names.
    pub op: Vec<usize>,
    /// The shape, as a number of the picture's names.
    pub shape: Vec<usize>,
    /// Where the lives begin and end among the pool's events.
    pub positions: Option<BlockPositions>,
    /// How many allocations were left out.
    pub left_out: u64,
    /// The largest of them.
    pub left_out_largest: Bytes,
}

/// Places of allocations among the events of their pool.
#[derive(Clone, Debug)]
pub struct BlockPositions {
    /// Where each was allocated.
    pub born: Vec<usize>,
    /// Where it was freed.
    pub freed: Vec<Option<usize>>,
}

impl BlockMap {
    /// How many allocations are drawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offset.len()
    }

    /// Whether none is drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offset.is_empty()
    }

    /// The allocations of a pool; of more than `max_blocks` those that cover most of the map. `has_positions` says that each event is
    /// a column of the timeline.
    pub(super) fn of_pool(
        names: &mut PictureNames,
        trace: &Trace,
        pool: &PoolTrace,
        max_blocks: usize,
        has_positions: bool,
    ) -> Option<BlockMap> {
        let lives = || pool.lives();
        let is_whole = pool.allocs <= max_blocks as u64;
        let window = Picos(i64::MIN)..pool.last_time(&trace.history.events);
        let chosen = ChosenLives::of(trace, pool, lives, &window, is_whole, max_blocks)?;
        chosen.map(names, trace, pool, is_whole && has_positions)
    }

    /// The allocations of a pool that live in a window.
    pub(super) fn of_window(
        names: &mut PictureNames,
        trace: &Trace,
        pool: &PoolTrace,
        max_blocks: usize,
        window: &Range<Picos>,
    ) -> Option<BlockMap> {
        let events = &trace.history.events;
        let is_in = |life: &Life| {
            events.time(life.birth) <= window.end
                && freed(trace, pool, life).is_none_or(|freed| freed >= window.start)
        };
        let lives = || pool.lives().filter(is_in);
        let is_whole = lives().count() <= max_blocks;
        ChosenLives::of(trace, pool, lives, window, is_whole, max_blocks)?.map(names, trace, pool, false)
    }
}

/// The allocations that a map draws.
struct ChosenLives {
    drawn: Vec<Life>,
    left_out: u64,
    left_out_largest: Bytes,
}

impl ChosenLives {
    /// All of `lives` that have an address; unless `is_whole`, the `max_blocks` with the largest areas in the window.
    fn of<I: Iterator<Item = Life>>(
        trace: &Trace,
        pool: &PoolTrace,
        lives: impl Fn() -> I,
        window: &Range<Picos>,
        is_whole: bool,
        max_blocks: usize,
    ) -> Option<ChosenLives> {
        let events = &trace.history.events;
        let size = |life: &Life| events.at(life.birth).size().unwrap_or_default();
        let area = |life: &Life| {
            let end = freed(trace, pool, life).unwrap_or(window.end).min(window.end);
            area_of(size(life), end.since(events.time(life.birth).max(window.start)).0)
        };
        let least = if is_whole {
            0.0
        } else {
            let mut areas: Vec<f32> = lives().map(|life| area(&life)).collect();
            let place = areas.len().checked_sub(max_blocks)?;
            *areas.select_nth_unstable_by(place, f32::total_cmp).1
        };
        let mut chosen = ChosenLives { drawn: Vec::new(), left_out: 0, left_out_largest: Bytes::ZERO };
        for life in lives() {
            let is_large = is_whole || (chosen.drawn.len() < max_blocks && area(&life) >= least);
            if is_large && events.at(life.birth).address().is_some() {
                chosen.drawn.push(life);
            } else {
                chosen.left_out += 1;
                chosen.left_out_largest = chosen.left_out_largest.max(size(&life));
            }
        }
        Some(chosen)
    }

    fn map(
        &self,
        names: &mut PictureNames,
        trace: &Trace,
        pool: &PoolTrace,
        has_positions: bool,
    ) -> Option<BlockMap> {
        let (history, drawn) = (&trace.history, &self.drawn);
        let events = &history.events;
        let address = |life: &Life| events.at(life.birth).address().unwrap_or_default();
        let base = drawn.iter().map(address).min()?;
        let clock = |time: Picos| time.on_clock(history.origin).0;
        let born = |life: &Life| clock(events.time(life.birth));
        let chunk = |life: &Life| events.at(life.birth).size().unwrap_or_default();
        let slack = |life: &Life| {
            chunk(life).saturating_sub(events.at(life.birth).requested().unwrap_or_else(|| chunk(life)))
        };
        let held = |life: &Life| Some(clock(freed(trace, pool, life)?).saturating_sub(born(life)).max(0));
        let mut known: FxHashMap<Name, usize> = FxHashMap::default();
        let mut number =
            |name: Name| *known.entry(name).or_insert_with(|| names.number(history.names.get(name)));
        Some(BlockMap {
            allocations: pool.allocs,
            is_whole: has_positions && self.left_out == 0,
            base,
            offset: drawn.iter().map(|life| address(life) - base).collect(),
            chunk: drawn.iter().map(|life| chunk(life).0).collect(),
            slack: drawn.iter().map(|life| slack(life).0).collect(),
            born: drawn.iter().map(born).collect(),
            held: drawn.iter().map(held).collect(),
            role: drawn.iter().map(|life| trace.role_of(pool, life, freed(trace, pool, life))).collect(),
            op: drawn.iter().map(|life| number(op_of(history, life))).collect(),
            shape: drawn.iter().map(|life| number(events.at(life.birth).shape())).collect(),
            positions: has_positions.then(|| BlockPositions {
                born: drawn.iter().map(|life| life.born_at).collect(),
                freed: drawn.iter().map(|life| life.freed_at).collect(),
            }),
            left_out: self.left_out,
            left_out_largest: self.left_out_largest,
        })
    }
}

fn freed(trace: &Trace, pool: &PoolTrace, life: &Life) -> Option<Picos> {
    life.freed_at.map(|at| pool.time(&trace.history.events, at))
}

/// The name of a block: the op, else the scope around it.
fn op_of(history: &History, life: &Life) -> Name {
    let event = history.events.at(life.birth);
    if event.op().is_empty() { event.context() } else { event.op() }
}

#[expect(clippy::cast_precision_loss, reason = "a ranking")]
fn area_of(size: Bytes, span: u64) -> f32 {
    size.0 as f32 * (span as f32 + 1.0)
}
