//! Pairs frees with allocations, pool by pool, and checks the allocator's own count on the way.
//!
//! After each event the allocator tells its bytes in use. The difference from one event to the next must be the block
//! of that event: where it is not, events are missing or out of order, and the trace says so. The count before the
//! first event is what was in use before the recording, exactly in bytes; frees without an allocation tell some of its
//! blocks.

use rustc_hash::FxHashMap;

use crate::event::{Events, History, PoolId};
use crate::units::{Bytes, Picos};

/// Marks a birth without a death.
const ALIVE: u32 = u32::MAX;

/// Ties of more events than this are left as they are.
const LONGEST_TIE: usize = 64;

/// A free of a block that was allocated before the recording.
#[derive(Clone, Copy, Debug)]
pub struct UnmatchedFree {
    position: usize,
    /// When it was freed.
    pub time: Picos,
    /// The block.
    pub chunk: Bytes,
    /// What had been asked for, where told.
    pub requested: Option<Bytes>,
}

/// Where the allocator's count does not follow from the events.
#[derive(Clone, Copy, Debug)]
pub struct Disagreement {
    /// When.
    pub time: Picos,
    /// What the events add up to.
    pub expected: Bytes,
    /// What the allocator told.
    pub found: Bytes,
}

/// A pool's events, paired.
#[derive(Debug)]
pub struct PoolTrace {
    /// Which pool.
    pub id: PoolId,
    /// How many allocations.
    pub allocs: u64,
    /// How many frees.
    pub frees: u64,
    /// In use before the first event.
    pub before: Bytes,
    /// Whether the recording began before the pool's first allocation; `None` where it cannot be told.
    pub from_start: Option<bool>,
    /// Blocks from before the recording that were freed in it.
    pub unmatched: Vec<UnmatchedFree>,
    /// How often the allocator's count did not follow from the events.
    pub disagreements: u64,
    /// The first such place.
    pub first_disagreement: Option<Disagreement>,
    /// Blocks that were handed out again without having been freed.
    pub lost_frees: u64,
    /// Events that could not be paired, because they tell no address.
    pub without_address: u64,
    /// The pool's events, in order; a position is an index into this.
    order: Vec<u32>,
    /// Bytes in use after each of them.
    in_use: Vec<Bytes>,
    /// Positions of allocations, and of their frees.
    births: Vec<u32>,
    deaths: Vec<u32>,
    peak_position: Option<usize>,
}

impl PoolTrace {
    fn new(id: PoolId) -> PoolTrace {
        PoolTrace {
            id,
            allocs: 0,
            frees: 0,
            before: Bytes::ZERO,
            from_start: None,
            unmatched: Vec::new(),
            disagreements: 0,
            first_disagreement: None,
            lost_frees: 0,
            without_address: 0,
            order: Vec::new(),
            in_use: Vec::new(),
            births: Vec::new(),
            deaths: Vec::new(),
            peak_position: None,
        }
    }

    /// Where the peak is and how high; the first time it was reached.
    #[must_use]
    pub fn peak(&self) -> Option<(usize, Bytes)> {
        self.peak_position.map(|position| (position, self.in_use_at(position)))
    }

    /// Bytes in use after the event at a position.
    #[must_use]
    pub fn in_use_at(&self, position: usize) -> Bytes {
        self.in_use.get(position).copied().unwrap_or_default()
    }

    /// In use at a position but allocated before the recording, as far as the frees account for it.
    #[must_use]
    pub fn before_at(&self, position: usize) -> Bytes {
        let freed = self.unmatched.iter().take_while(|free| free.position <= position).map(|free| free.chunk).sum();
        self.before.saturating_sub(freed)
    }

    /// The position whose state holds at `time`: the last event not after it.
    #[must_use]
    pub fn position_at(&self, events: &Events, time: Picos) -> Option<usize> {
        self.order.partition_point(|&event| events.time(event as usize) <= time).checked_sub(1)
    }

    /// When the event at a position happened.
    #[must_use]
    pub fn time(&self, events: &Events, position: usize) -> Picos {
        self.order.get(position).map_or(Picos(0), |&event| events.time(event as usize))
    }

    /// Fragmentation after the event at a position, as the allocator told it.
    #[must_use]
    pub fn fragmentation(&self, events: &Events, position: usize) -> Option<f64> {
        self.order.get(position).and_then(|&event| events.fragmentation(event as usize))
    }

    /// When the last event happened.
    #[must_use]
    pub fn last_time(&self, events: &Events) -> Picos {
        self.time(events, self.order.len().saturating_sub(1))
    }

    /// The events that allocated what is live at a position, oldest first.
    pub fn live_at(&self, position: usize) -> impl Iterator<Item = usize> {
        self.births
            .iter()
            .zip(&self.deaths)
            .take_while(move |&(&birth, _)| birth as usize <= position)
            .filter(move |&(_, &death)| death as usize > position)
            .filter_map(|(&birth, _)| self.order.get(birth as usize).map(|&event| event as usize))
    }

    /// Every allocation: the event that made it and the one that freed it.
    pub fn allocations(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let event = |&position: &u32| self.order.get(position as usize).map(|&event| event as usize);
        self.births.iter().zip(&self.deaths).filter_map(move |(birth, death)| Some((event(birth)?, event(death))))
    }

    /// When the block that event `birth` allocated was freed, if the trace shows it.
    #[must_use]
    pub fn freed(&self, events: &Events, birth: usize) -> Option<Picos> {
        let event = |&position: &u32| self.order.get(position as usize).copied();
        // Births are in order of position, and positions in order of time; ties make it a short walk.
        let time = events.time(birth);
        let first = self.births.partition_point(|at| event(at).is_some_and(|at| events.time(at as usize) < time));
        let at = (first..self.births.len())
            .take_while(|&i| self.births.get(i).and_then(event).is_some_and(|at| events.time(at as usize) == time))
            .find(|&i| self.births.get(i).and_then(event) == u32::try_from(birth).ok())?;
        self.deaths.get(at).and_then(event).map(|death| events.time(death as usize))
    }

    /// The events of the pool with the bytes in use after each.
    pub fn levels(&self) -> impl Iterator<Item = (usize, Bytes)> {
        self.order.iter().map(|&event| event as usize).zip(self.in_use.iter().copied())
    }
}

/// What is known of a pool while its events go by.
struct Pairing {
    trace: PoolTrace,
    /// Index of the allocation that lives at an address.
    live: FxHashMap<u64, u32>,
    level: Option<Bytes>,
    peak: Bytes,
}

/// Pairs the events of a history. Puts events of one moment into the order that the allocator's count demands.
pub(crate) fn pair(history: &mut History) -> Vec<PoolTrace> {
    order_ties(&mut history.events);
    let mut pools: Vec<Option<Pairing>> = Vec::new();
    pools.resize_with(history.pools.len(), || None);
    let events = &history.events;
    for event in 0..events.len() {
        let id = events.pool(event);
        let Some(slot) = pools.get_mut(usize::from(id.0)) else { continue };
        let pairing = slot.get_or_insert_with(|| Pairing {
            trace: PoolTrace::new(id),
            live: FxHashMap::default(),
            level: None,
            peak: Bytes::ZERO,
        });
        pairing.take(events, event);
    }
    let mut traces = Vec::new();
    for Pairing { mut trace, .. } in pools.into_iter().flatten() {
        trace.from_start = began_at_start(&trace, history);
        traces.push(trace);
    }
    traces
}

impl Pairing {
    fn take(&mut self, events: &Events, event: usize) {
        let Ok(number) = u32::try_from(event) else { return };
        let Ok(position) = u32::try_from(self.trace.order.len()) else { return };
        let is_alloc = events.is_alloc(event);
        let address = events.address(event);
        let trace = &mut self.trace;
        let partner = match (is_alloc, address) {
            (true, Some(address)) => {
                let index = u32::try_from(trace.births.len()).unwrap_or(ALIVE);
                self.live.insert(address, index)
            }
            (false, Some(address)) => self.live.remove(&address),
            (_, None) => {
                trace.without_address += 1;
                None
            }
        };
        let own = events.size(event);
        let partner_event = partner
            .and_then(|index| trace.births.get(index as usize))
            .and_then(|&birth| trace.order.get(birth as usize));
        let chunk = own.or_else(|| partner_event.and_then(|&event| events.size(event as usize))).unwrap_or_default();
        trace.order.push(number);
        if is_alloc {
            trace.allocs += 1;
            if address.is_some() {
                trace.births.push(position);
                trace.deaths.push(ALIVE);
            }
        } else {
            trace.frees += 1;
        }
        if let Some(index) = partner {
            trace.lost_frees += u64::from(is_alloc);
            if let Some(death) = trace.deaths.get_mut(index as usize) {
                *death = position;
            }
        } else if !is_alloc && address.is_some() {
            trace.unmatched.push(UnmatchedFree {
                position: position as usize,
                time: events.time(event),
                chunk,
                requested: events.requested(event),
            });
        }
        let told = events.in_use(event);
        let expected = self.level.map(|level| if is_alloc { level + chunk } else { level.saturating_sub(chunk) });
        if self.level.is_none() {
            let after = told.unwrap_or(if is_alloc { chunk } else { Bytes::ZERO });
            trace.before = if is_alloc { after.saturating_sub(chunk) } else { after + chunk };
        }
        if let (Some(expected), Some(found)) = (expected, told)
            && expected != found
        {
            trace.disagreements += 1;
            let here = Disagreement { time: events.time(event), expected, found };
            trace.first_disagreement.get_or_insert(here);
        }
        let level = told.or(expected).unwrap_or(if is_alloc { chunk } else { Bytes::ZERO });
        if trace.peak_position.is_none() || level > self.peak {
            trace.peak_position = Some(position as usize);
            self.peak = level;
        }
        trace.in_use.push(level);
        self.level = Some(level);
    }
}

/// True where the first event's count is its own block and no higher mark was ever reached before it.
fn began_at_start(trace: &PoolTrace, history: &History) -> Option<bool> {
    let events = &history.events;
    let &first = trace.order.first()?;
    let first = first as usize;
    let in_use = events.in_use(first)?;
    let chunk = events.size(first)?;
    let (_, mark) = history.pool(trace.id)?.first_lifetime_peak?;
    Some(events.is_alloc(first) && in_use == chunk && mark == chunk)
}

/// Events of one moment come from different threads in no order; the allocator's count tells it.
fn order_ties(events: &mut Events) {
    let mut order: Option<Vec<u32>> = None;
    let mut levels: FxHashMap<PoolId, Bytes> = FxHashMap::default();
    let mut begin = 0;
    while begin < events.len() {
        let time = events.time(begin);
        let mut end = begin + 1;
        while end < events.len() && events.time(end) == time {
            end += 1;
        }
        if end - begin > 1 && end - begin <= LONGEST_TIE {
            let chained = chain(events, begin, end, &levels);
            if !chained.is_sorted() {
                let whole = order.get_or_insert_with(|| (0..u32::try_from(events.len()).unwrap_or(0)).collect());
                if let Some(part) = whole.get_mut(begin..end) {
                    part.iter_mut().zip(chained).for_each(|(slot, event)| *slot = event);
                }
            }
        }
        // The last event of the moment, in its new order, leaves the level behind.
        for at in begin..end {
            let event = order.as_ref().and_then(|order| order.get(at)).map_or(at, |&event| event as usize);
            if let Some(level) = events.in_use(event) {
                levels.insert(events.pool(event), level);
            }
        }
        begin = end;
    }
    if let Some(order) = order {
        events.permute(&order);
    }
}

/// The events `begin..end` in an order in which each count follows from the one before, as far as there is one.
fn chain(events: &Events, begin: usize, end: usize, levels: &FxHashMap<PoolId, Bytes>) -> Vec<u32> {
    let mut left: Vec<usize> = (begin..end).collect();
    let mut levels = levels.clone();
    let mut chained = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let follows = |&event: &usize| {
            let (Some(level), Some(chunk), Some(found)) =
                (levels.get(&events.pool(event)), events.size(event), events.in_use(event))
            else {
                return false;
            };
            if events.is_alloc(event) { *level + chunk == found } else { found + chunk == *level }
        };
        let at = left.iter().position(follows).unwrap_or(0);
        let event = left.remove(at);
        if let Some(level) = events.in_use(event) {
            levels.insert(events.pool(event), level);
        }
        chained.extend(u32::try_from(event));
    }
    chained
}
