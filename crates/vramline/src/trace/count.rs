//! The allocator's own count of its bytes in use: the peak, what was there before, and whether the events agree.
//!
//! Each event contains the allocator's count after it. The difference from one event to the next must be the block of that
//! event: otherwise events are missing or out of order, and the trace says how many times and where first. The count
//! before the first event is what was in use before the recording, exactly in bytes. The count is trusted; the events
//! explain it.

use rustc_hash::FxHashMap;

use super::step::{Step, Uses};
use crate::event::{EventRef, Events, History, PoolId};
use crate::units::{Bytes, Picos};

/// Ties of more events than this are left as they are.
const LONGEST_TIE: usize = 64;

/// The count of one pool over time.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// In use before the first event.
    pub before: Bytes,
    /// The highest count, where it was first reached.
    pub peak: Option<Peak>,
    /// Whether the recording began before the pool's first allocation; `None` if that is unknown.
    pub from_start: Option<bool>,
    /// How often the allocator's count did not follow from the events.
    pub disagreements: u64,
    /// The first such place.
    pub first_disagreement: Option<Disagreement>,
    /// The count after each event, where the allocator does not tell it every time; else empty.
    added_up: Vec<Bytes>,
    /// What steps used.
    pub(crate) uses: Uses,
    last: Option<Bytes>,
    events: usize,
}

/// The highest point of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// The position, among the pool's events, of the one that reached it first.
    pub position: usize,
    /// Bytes in use there.
    pub bytes: Bytes,
}

/// Where the allocator's count does not follow from the events.
#[derive(Clone, Copy, Debug)]
pub struct Disagreement {
    /// When.
    pub time: Picos,
    /// What the events add up to.
    pub expected: Bytes,
    /// The allocator's count.
    pub found: Bytes,
}

/// The count of every pool, by the pool's number, and what each of `steps` used in it.
pub(crate) fn counts(history: &History, steps: &[Step]) -> Vec<Count> {
    let mut counts = vec![Count::default(); history.pools.len()];
    for event in history.events.iter() {
        let id = event.pool();
        if let Some(count) = counts.get_mut(usize::from(id.0)) {
            if count.events == 0 {
                count.from_start = began_at_start(history, id, event);
            }
            count.take(event, steps);
        }
    }
    counts
}

impl Count {
    /// The count at a position, where the allocator did not tell it.
    pub(crate) fn added_up(&self, position: usize) -> Bytes {
        self.added_up.get(position).copied().unwrap_or_default()
    }

    fn take(&mut self, event: EventRef<'_>, steps: &[Step]) {
        let told = event.in_use();
        let size = event.size();
        let after = |before: Bytes| {
            let size = size.unwrap_or_default();
            if event.is_alloc() { before + size } else { before.saturating_sub(size) }
        };
        let level = match (self.last, told) {
            (None, told) => {
                let level = told.unwrap_or_else(|| after(Bytes::ZERO));
                let size = size.unwrap_or_default();
                self.before = if event.is_alloc() { level.saturating_sub(size) } else { level + size };
                self.uses.begin(self.before);
                level
            }
            (Some(last), Some(found)) => {
                let expected = after(last);
                // A TPU's frees do not tell their size, so there is nothing to compare.
                if expected != found && size.is_some() {
                    self.disagreements += 1;
                    let here = Disagreement { time: event.time(), expected, found };
                    self.first_disagreement.get_or_insert(here);
                }
                found
            }
            (Some(last), None) => after(last),
        };
        if self.peak.is_none_or(|peak| level > peak.bytes) {
            self.peak = Some(Peak { position: self.events, bytes: level });
        }
        if told.is_none() && self.added_up.len() < self.events {
            // Kept from the first event without a count on; earlier events do not need it.
            self.added_up.resize(self.events, Bytes::ZERO);
        }
        if told.is_none() || !self.added_up.is_empty() {
            self.added_up.push(level);
        }
        self.uses.take(steps, event.time(), level);
        self.last = Some(level);
        self.events += 1;
    }
}

/// True where the first event's count is its own block and no higher mark was ever reached before it.
fn began_at_start(history: &History, pool: PoolId, first: EventRef<'_>) -> Option<bool> {
    let facts = history.pool(pool)?;
    if facts.from_start.is_some() {
        return facts.from_start;
    }
    let (in_use, chunk) = (first.in_use()?, first.size()?);
    let (_, mark) = facts.first_lifetime_peak?;
    Some(first.is_alloc() && in_use == chunk && mark == chunk)
}

/// Events of one moment come from different threads, unordered; the allocator's count shows their order.
pub(crate) fn order_ties(events: &mut Events) {
    for tie in events.ties().to_vec() {
        if tie.len() <= LONGEST_TIE {
            let chained = chain(events, tie.start, tie.end);
            if !chained.is_sorted() {
                events.reorder(tie.start, &chained);
            }
        }
    }
}

/// The events `begin..end` in an order in which each count follows from the one before, as far as there is one.
fn chain(events: &Events, begin: usize, end: usize) -> Vec<usize> {
    /// A pool without an event among this many events counts as unknown.
    const FARTHEST: usize = 10_000;
    let mut levels: FxHashMap<PoolId, Option<Bytes>> = FxHashMap::default();
    let mut left: Vec<usize> = (begin..end).collect();
    let mut chained = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let mut follows = |&event: &usize| {
            let pool = events.at(event).pool();
            let level = *levels.entry(pool).or_insert_with(|| {
                let mut earlier = (begin.saturating_sub(FARTHEST)..begin).rev();
                earlier
                    .find(|&event| events.at(event).pool() == pool)
                    .and_then(|event| events.at(event).in_use())
            });
            let (Some(level), Some(chunk), Some(found)) =
                (level, events.at(event).size(), events.at(event).in_use())
            else {
                return false;
            };
            if events.at(event).is_alloc() { level + chunk == found } else { found + chunk == level }
        };
        let at = left.iter().position(&mut follows).unwrap_or(0);
        let event = left.remove(at);
        levels.insert(events.at(event).pool(), events.at(event).in_use());
        chained.push(event);
    }
    chained
}
