//! Pairs frees with allocations by their address, pool by pool: lifetimes, and what lives at any moment.
//!
//! Frees without an allocation are of blocks from before the recording and tell their sizes. What the allocator says of
//! its own count is the business of [`super::count`].

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::count::{Count, Peak};
use crate::event::{EventRef, Events, History, PoolId};
use crate::names::Name;
use crate::pages::zeros;
use crate::units::{Bytes, Picos, Span};

/// Marks a birth without a death.
const ALIVE: u32 = u32::MAX;

/// A free of a block that was allocated before the recording.
#[derive(Clone, Copy, Debug)]
pub struct UnmatchedFree {
    position: usize,
    /// When it was freed.
    pub time: Picos,
    /// The block.
    pub chunk: Bytes,
    /// The requested bytes, if known.
    pub requested: Option<Bytes>,
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
    /// What the allocator says of its bytes in use.
    pub count: Count,
    /// Blocks from before the recording that were freed in it.
    pub unmatched: Vec<UnmatchedFree>,
    /// Blocks that were handed out again without having been freed.
    pub lost_frees: u64,
    /// Events that could not be paired, because they tell no address.
    pub without_address: u64,
    /// The pool's events, in order; a position is an index into this.
    order: Order,
    /// Positions of allocations, and of their frees.
    births: Vec<u32>,
    deaths: Vec<u32>,
    heaviest: Heaviest,
    /// How many blocks of each op are not freed; counted when it is first asked for.
    kept: OnceLock<FxHashMap<Name, u32>>,
}

/// An allocation and the positions between which it lives.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// The event that made it.
    pub birth: usize,
    /// That event's position in its pool.
    pub born_at: usize,
    /// Where it was freed, if the trace shows it.
    pub freed_at: Option<usize>,
}

/// Which events are a pool's. Most traces are of one pool, and then it has them all.
#[derive(Debug)]
enum Order {
    /// So many, from the first on.
    All(usize),
    These(Vec<u32>),
}

impl Order {
    fn len(&self) -> usize {
        match self {
            Order::All(count) => *count,
            Order::These(events) => events.len(),
        }
    }

    #[inline]
    fn get(&self, position: usize) -> Option<usize> {
        match self {
            Order::All(count) => (position < *count).then_some(position),
            Order::These(events) => events.get(position).map(|&event| event as usize),
        }
    }

    fn push(&mut self, event: u32) {
        match self {
            Order::All(count) if *count == event as usize => *count += 1,
            Order::All(count) => *self = Order::These((0u32..).take(*count).chain([event]).collect()),
            Order::These(events) => events.push(event),
        }
    }
}

/// The allocations with the most bytes times seconds, heaviest first.
#[derive(Debug, Default)]
pub(crate) struct Heaviest(Vec<Heavy>);

/// An allocation with its bytes times the time it was held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heavy {
    pub(crate) byte_seconds: f64,
    /// The event that made it.
    pub(crate) birth: usize,
    /// When it was freed, if the trace shows it.
    pub(crate) freed: Option<Picos>,
}

impl Heaviest {
    /// How many are kept. Nearly every allocation is lighter than all of them.
    const MAX_ALLOCATIONS: usize = 10;

    fn offer(&mut self, heavy: Heavy) {
        let is_full = self.0.len() >= Heaviest::MAX_ALLOCATIONS;
        if is_full && self.0.last().is_some_and(|last| heavy.byte_seconds <= last.byte_seconds) {
            return;
        }
        let at = self.0.partition_point(|known| known.byte_seconds >= heavy.byte_seconds);
        self.0.insert(at, heavy);
        self.0.truncate(Heaviest::MAX_ALLOCATIONS);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ranking")]
fn byte_seconds(bytes: Bytes, span: Span) -> f64 {
    bytes.0 as f64 * (span.0 as f64 / 1e12)
}

impl PoolTrace {
    fn new(id: PoolId) -> PoolTrace {
        PoolTrace {
            id,
            allocs: 0,
            frees: 0,
            count: Count::default(),
            unmatched: Vec::new(),
            lost_frees: 0,
            without_address: 0,
            order: Order::All(0),
            births: Vec::new(),
            deaths: Vec::new(),
            heaviest: Heaviest::default(),
            kept: OnceLock::new(),
        }
    }

    /// Where the peak is and how high; the first time it was reached.
    #[must_use]
    pub fn peak(&self) -> Option<Peak> {
        self.count.peak
    }

    /// Bytes in use after the event at a position.
    #[must_use]
    pub fn in_use_at(&self, events: &Events, position: usize) -> Bytes {
        let told = self.order.get(position).and_then(|event| events.at(event).in_use());
        told.unwrap_or_else(|| self.count.added_up(position))
    }

    /// In use at a position but allocated before the recording, as far as the frees account for it.
    #[must_use]
    pub(crate) fn before_at(&self, position: usize) -> Bytes {
        let freed =
            self.unmatched.iter().take_while(|free| free.position <= position).map(|free| free.chunk).sum();
        self.count.before.saturating_sub(freed)
    }

    /// Ends the life of a block.
    #[inline]
    fn end(&mut self, live: Live, position: u32, time: Picos) {
        if let Some(death) = self.deaths.get_mut(live.allocation as usize) {
            *death = position;
        }
        self.heaviest.offer(live.until(time, Some(time)));
    }

    /// The allocations with the most bytes times seconds, heaviest first.
    pub(crate) fn heaviest(&self) -> &[Heavy] {
        &self.heaviest.0
    }

    /// The position whose state holds at `time`: the last event not after it.
    #[must_use]
    pub(crate) fn position_at(&self, events: &Events, time: Picos) -> Option<usize> {
        let after = match &self.order {
            Order::All(count) => events.first_after(time).min(*count),
            Order::These(these) => these.partition_point(|&event| events.time(event as usize) <= time),
        };
        after.checked_sub(1)
    }

    /// When the event at a position happened.
    #[must_use]
    pub fn time(&self, events: &Events, position: usize) -> Picos {
        self.order.get(position).map_or(Picos(0), |event| events.time(event))
    }

    /// Fragmentation after the event at a position, as the allocator told it.
    #[must_use]
    pub fn fragmentation(&self, events: &Events, position: usize) -> Option<f32> {
        self.order.get(position).and_then(|event| events.at(event).fragmentation())
    }

    /// When the last event happened.
    #[must_use]
    pub(crate) fn last_time(&self, events: &Events) -> Picos {
        self.time(events, self.order.len().saturating_sub(1))
    }

    /// How many events the pool has.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.order.len()
    }

    /// The pool's events, in order of time.
    pub fn events_in_order(&self) -> impl Iterator<Item = usize> {
        (0..self.order.len()).filter_map(|position| self.order.get(position))
    }

    /// The events that allocated what is live at a position, oldest first.
    pub(crate) fn live_at(&self, position: usize) -> impl Iterator<Item = usize> {
        self.births
            .iter()
            .zip(&self.deaths)
            .take_while(move |&(&birth, _)| birth as usize <= position)
            .filter(move |&(_, &death)| death as usize > position)
            .filter_map(|(&birth, _)| self.order.get(birth as usize))
    }

    /// The allocations with the positions between which they live, in order.
    pub fn lives(&self) -> impl Iterator<Item = Life> {
        let life = |(&birth, &death): (&u32, &u32)| {
            let freed_at = (death != ALIVE).then_some(death as usize);
            Some(Life { birth: self.order.get(birth as usize)?, born_at: birth as usize, freed_at })
        };
        self.births.iter().zip(&self.deaths).filter_map(life)
    }

    /// Like [`PoolTrace::before_at`], for positions in order.
    #[must_use]
    pub(crate) fn before_at_each(&self, positions: &[usize]) -> Vec<Bytes> {
        let mut freed = self.unmatched.iter().peekable();
        let mut left = self.count.before;
        let at = |&position: &usize| {
            while let Some(free) = freed.next_if(|free| free.position <= position) {
                left = left.saturating_sub(free.chunk);
            }
            left
        };
        positions.iter().map(at).collect()
    }

    /// Whether several blocks that one op allocated are not freed in the trace.
    pub(crate) fn keeps_several(&self, events: &Events, op: Name) -> bool {
        let count = || {
            let mut kept: FxHashMap<Name, u32> = FxHashMap::default();
            self.never_freed().for_each(|event| *kept.entry(events.at(event).op()).or_default() += 1);
            kept
        };
        self.kept.get_or_init(count).get(&op).is_some_and(|&kept| kept > 1)
    }

    /// The events that allocated, in order.
    pub(crate) fn births(&self) -> impl Iterator<Item = usize> {
        self.births.iter().filter_map(|&birth| self.order.get(birth as usize))
    }

    /// The events whose blocks are not freed in the trace.
    pub(crate) fn never_freed(&self) -> impl Iterator<Item = usize> {
        self.live_at(self.order.len().saturating_sub(1))
    }

    /// When the block that event `birth` allocated was freed, if the trace shows it.
    #[must_use]
    pub fn freed(&self, events: &Events, birth: usize) -> Option<Picos> {
        let event = |&position: &u32| self.order.get(position as usize);
        // Births are in order of position, and positions in order of time; ties make it a short walk.
        let time = events.time(birth);
        let first = self.births.partition_point(|at| event(at).is_some_and(|at| events.time(at) < time));
        let at = (first..self.births.len())
            .take_while(|&i| self.births.get(i).and_then(event).is_some_and(|at| events.time(at) == time))
            .find(|&i| self.births.get(i).and_then(event) == Some(birth))?;
        self.deaths.get(at).and_then(event).map(|death| events.time(death))
    }

    /// The times of the pool's events with the bytes in use after each.
    pub fn levels(&self, events: &Events) -> impl Iterator<Item = (Picos, Bytes)> {
        let order = (0..).map_while(|position| Some((position, self.order.get(position)?)));
        order.map(|(position, event)| {
            let event = events.at(event);
            (event.time(), event.in_use().unwrap_or_else(|| self.count.added_up(position)))
        })
    }
}

/// A block that lives, with what its death needs to know: looking that up then would cost more than all the rest.
#[derive(Clone, Copy)]
struct Live {
    allocation: u32,
    birth: u32,
    born: Picos,
    size: Bytes,
}

impl Live {
    fn until(&self, end: Picos, freed: Option<Picos>) -> Heavy {
        let byte_seconds = byte_seconds(self.size, end.since(self.born));
        Heavy { byte_seconds, birth: self.birth as usize, freed }
    }
}

/// What is known of a pool while its events go by.
struct Pairing {
    trace: PoolTrace,
    /// What lives at an address.
    live: FxHashMap<u64, Live>,
}

/// With so few pools, each is given room for all events at once.
const FEW_POOLS: usize = 4;

/// Pairs the events of a history.
pub(crate) fn pair(history: &History) -> Vec<PoolTrace> {
    let mut pools: Vec<Option<Pairing>> = Vec::new();
    pools.resize_with(history.pools.len(), || None);
    let events = &history.events;
    // Memory that is not written to costs nothing, growing does; but a thousand pools must not ask for it all.
    let room = if pools.len() <= FEW_POOLS { events.len() } else { 0 };
    for (number, event) in (0u32..).zip(events.iter()) {
        let id = event.pool();
        let Some(slot) = pools.get_mut(usize::from(id.0)) else { continue };
        slot.get_or_insert_with(|| Pairing::new(id, room)).take(number, event);
    }
    let mut traces = Vec::new();
    for Pairing { mut trace, live } in pools.into_iter().flatten() {
        let end = trace.last_time(events);
        // In the order of allocation, so that equal weights come out the same each time.
        let mut alive: Vec<Live> = live.into_values().collect();
        alive.sort_unstable_by_key(|live| live.birth);
        alive.iter().for_each(|live| trace.heaviest.offer(live.until(end, None)));
        traces.push(trace);
    }
    traces
}

impl Pairing {
    fn new(id: PoolId, room: usize) -> Pairing {
        let mut trace = PoolTrace::new(id);
        for column in [&mut trace.births, &mut trace.deaths] {
            *column = zeros(room / 2);
            column.clear();
        }
        Pairing { trace, live: FxHashMap::default() }
    }

    fn take(&mut self, number: u32, event: EventRef<'_>) {
        let Ok(position) = u32::try_from(self.trace.order.len()) else { return };
        let trace = &mut self.trace;
        trace.order.push(number);
        let is_alloc = event.is_alloc();
        *(if is_alloc { &mut trace.allocs } else { &mut trace.frees }) += 1;
        let Some(address) = event.address() else {
            trace.without_address += 1;
            return;
        };
        let time = event.time();
        if is_alloc {
            let allocation = u32::try_from(trace.births.len()).unwrap_or(ALIVE);
            let live = Live { allocation, birth: number, born: time, size: event.size().unwrap_or_default() };
            if let Some(old) = self.live.insert(address, live) {
                trace.lost_frees += 1;
                trace.end(old, position, time);
            }
            trace.births.push(position);
            trace.deaths.push(ALIVE);
        } else if let Some(live) = self.live.remove(&address) {
            trace.end(live, position, time);
        } else {
            trace.unmatched.push(UnmatchedFree {
                position: position as usize,
                time,
                chunk: event.size().unwrap_or_default(),
                requested: event.requested(),
            });
        }
    }
}
