//! What a pool was asked to do, in columns: requests and frees, in the order in which the allocator served them.
//!
//! Frees name a slot rather than an address, so that any allocator, with any addresses, can run the same program. Slots
//! are reused, which keeps the table of live blocks as small as the blocks are few.
//!
//! Threads take the allocator's lock in one order and may write their events in another. The allocator's count of its
//! bytes in use, told after each event, gives the true order: each count must follow from the one before.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::event::caching::{CallKind, EarlierSegment};
use crate::event::{EventRef, Events};
use crate::names::Name;
use crate::trace::PoolTrace;
use crate::units::Bytes;

/// How far an event may stand from its place.
const FARTHEST: usize = 64;

/// What an act does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// Asks for a block.
    Request,
    /// Frees a block.
    Free,
    /// Lets go of a block that a stream still uses.
    LetGo,
    /// The stream is done with it.
    Complete,
    /// Asks for a block that the trace says there was none for.
    Fail,
}

/// A request or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    bytes: u64,
    slot: u32,
    lane: u16,
    kind: ActKind,
}

impl Act {
    /// The slot of what is kept nowhere.
    const NOWHERE: u32 = u32::MAX;

    /// A request whose block is kept in a slot.
    #[must_use]
    pub fn request(bytes: Bytes, slot: u32) -> Act {
        Act::of(ActKind::Request, slot).asking(bytes, 0)
    }

    /// A free of what is in a slot.
    #[must_use]
    pub fn free(slot: u32) -> Act {
        Act::of(ActKind::Free, slot)
    }

    /// A request that fails.
    pub(crate) fn fail(bytes: Bytes, lane: u16) -> Act {
        Act::of(ActKind::Fail, Act::NOWHERE).asking(bytes, lane)
    }

    pub(crate) fn of(kind: ActKind, slot: u32) -> Act {
        Act { bytes: 0, slot, lane: 0, kind }
    }

    pub(crate) fn asking(self, bytes: Bytes, lane: u16) -> Act {
        Act { bytes: bytes.0, lane, ..self }
    }

    /// What it does.
    #[must_use]
    #[inline]
    pub fn kind(self) -> ActKind {
        self.kind
    }

    /// What is asked for and was served, or `None` for anything else.
    #[must_use]
    #[inline]
    pub fn requested(self) -> Option<Bytes> {
        (self.kind == ActKind::Request).then_some(Bytes(self.bytes))
    }

    /// What is asked for, served or not.
    #[must_use]
    #[inline]
    pub fn asked(self) -> Option<Bytes> {
        matches!(self.kind, ActKind::Request | ActKind::Fail).then_some(Bytes(self.bytes))
    }

    /// Whether what is in its slot is free after it.
    #[must_use]
    #[inline]
    pub fn ends(self) -> bool {
        matches!(self.kind, ActKind::Free | ActKind::Complete)
    }

    /// The slot.
    #[must_use]
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// For which pool and stream, of an allocator that tells them apart; of others, which thread.
    #[must_use]
    #[inline]
    pub fn lane(self) -> usize {
        usize::from(self.lane)
    }
}

/// What the trace says that the allocator answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where the block begins.
    pub address: u64,
    /// The whole chunk; zero where the trace does not tell.
    pub chunk: Bytes,
    /// The event.
    pub event: u32,
}

/// A block that was in use when the trace begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Where it begins.
    pub address: u64,
    /// How large it is.
    pub chunk: Bytes,
    /// The requested bytes, if known.
    pub requested: Option<Bytes>,
    /// The slot that its free names.
    pub slot: u32,
}

/// A pool's requests and frees.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What was asked for, in order.
    pub acts: Vec<Act>,
    /// What the trace says of each act.
    pub answers: Vec<Answer>,
    /// Blocks from before the trace that it frees.
    pub earlier: Vec<Earlier>,
    /// Held when the trace begins and not freed in it.
    pub always_held: Bytes,
    /// How many slots there are.
    pub slots: usize,
    /// How many requests there are.
    pub requests: u64,
    /// Events that stood in another place than their count says.
    pub reordered: u64,
    /// Events that could not be used: without an address, or a block handed out twice.
    pub unusable: u64,
    /// What a caching allocator's history has besides.
    pub driver: DriverSide,
}

/// A call to the driver, as the trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverCall {
    /// It came before this act, and after the one before it.
    pub(crate) before: u32,
    pub(crate) kind: CallKind,
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// For which pool and stream.
    pub(crate) lane: u16,
    /// Whether its stack shows that the program called `empty_cache()`.
    pub(crate) is_asked: bool,
}

/// What only a caching allocator's history has: pools and streams, calls to the driver, failures.
#[derive(Clone, Debug, Default)]
pub struct DriverSide {
    pub(crate) calls: Vec<DriverCall>,
    /// Pool and stream of each lane.
    pub(crate) lanes: Vec<(u32, u64)>,
    /// Segments from before the trace, with the slots of their blocks.
    pub(crate) segments: Vec<(EarlierSegment, Vec<u32>)>,
    /// Requests that failed.
    pub failures: u64,
    /// Segments of private pools whose pool the trace does not name: it is inferred.
    pub(crate) inferred: u64,
    /// Acts that restore private pools, in order.
    pub(crate) restores: Vec<std::ops::Range<u32>>,
    /// What a plan adds: requests that come right after an act and are freed at once, in the order of acts.
    pub(crate) at_once: Vec<(usize, [Bytes; 2])>,
}

impl Program {
    /// The program of a pool.
    #[must_use]
    pub fn of(events: &Events, pool: &PoolTrace) -> Program {
        let mut building = Building::default();
        building.program.acts.reserve(pool.event_count());
        building.program.answers.reserve(pool.event_count());
        let mut window: VecDeque<usize> = VecDeque::with_capacity(FARTHEST);
        let mut rest = pool.events_in_order();
        let mut level = None;
        loop {
            if window.is_empty() {
                window.extend(rest.next());
            }
            let Some(&first) = window.front() else { break };
            let mut chosen = 0;
            if !follows(level, events.at(first)) {
                window.extend(rest.by_ref().take(FARTHEST.saturating_sub(window.len())));
                let right = window.iter().position(|&event| follows(level, events.at(event)));
                chosen = right.unwrap_or(0);
                building.program.reordered += u64::from(chosen > 0);
            }
            let Some(event) = window.remove(chosen) else { break };
            level = events.at(event).in_use().or(level);
            building.take(events.at(event), event);
        }
        let mut program = building.program;
        let freed = program.earlier.iter().map(|block| block.chunk).sum();
        program.always_held = pool.count.before.saturating_sub(freed);
        program
    }

    /// The same acts without what a trace answered, to be made of another size; only those before `end`.
    #[must_use]
    pub(crate) fn resized(&self, end: usize) -> Program {
        let driver = DriverSide { lanes: self.driver.lanes.clone(), ..DriverSide::default() };
        Program {
            acts: self.acts.get(..end).unwrap_or(&self.acts).to_vec(),
            earlier: self.earlier.clone(),
            always_held: self.always_held,
            slots: self.slots,
            requests: self.requests,
            driver,
            ..Program::default()
        }
    }

    /// Makes a request one of another size.
    pub(crate) fn set_bytes(&mut self, act: usize, bytes: Bytes) {
        if let Some(act) = self.acts.get_mut(act).filter(|act| act.asked().is_some()) {
            act.bytes = bytes.0;
        }
    }

    /// What is requested right after an act, and freed at once.
    pub(crate) fn at_once(&self, act: usize) -> &[Bytes] {
        let found = self.driver.at_once.binary_search_by_key(&act, |(at, _)| *at);
        found.ok().and_then(|found| self.driver.at_once.get(found)).map_or(&[], |(_, bytes)| bytes)
    }

    /// The rounded size of the largest request from an act on, by act; one more than there are acts, the last zero.
    pub(crate) fn largest_from(&self, rounded: impl Fn(Bytes) -> u64) -> Vec<u64> {
        let mut largest = vec![0; self.acts.len() + 1];
        let mut most = 0;
        for (slot, act) in largest.iter_mut().zip(&self.acts).rev() {
            if let Some(bytes) = act.asked() {
                most = most.max(rounded(bytes));
            }
            *slot = most;
        }
        largest
    }
}

/// Whether an event's count follows from the count before it. Where either is not told, it does.
fn follows(level: Option<Bytes>, event: EventRef<'_>) -> bool {
    let (Some(level), Some(chunk), Some(found)) = (level, event.size(), event.in_use()) else { return true };
    if event.is_alloc() { level + chunk == found } else { found + chunk == level }
}

#[derive(Default)]
struct Building {
    program: Program,
    /// Slots by the address of what is in them.
    live: FxHashMap<u64, u32>,
    unused: Vec<u32>,
    threads: FxHashMap<Name, u16>,
    /// Events in a row are mostly of one thread.
    last_thread: Option<(Name, u16)>,
}

impl Building {
    fn slot(&mut self) -> u32 {
        if let Some(slot) = self.unused.pop() {
            return slot;
        }
        let slot = u32::try_from(self.program.slots).unwrap_or(Act::NOWHERE);
        self.program.slots += 1;
        slot
    }

    /// The number of a thread. More than there are numbers for share the last.
    fn lane(&mut self, thread: Name) -> u16 {
        if let Some((_, lane)) = self.last_thread.filter(|&(name, _)| name == thread) {
            return lane;
        }
        let next = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
        let lane = *self.threads.entry(thread).or_insert(next);
        self.last_thread = Some((thread, lane));
        lane
    }

    fn take(&mut self, event: EventRef<'_>, number: usize) {
        let lane = self.lane(event.thread());
        let (Some(address), Ok(number)) = (event.address(), u32::try_from(number)) else {
            self.program.unusable += 1;
            return;
        };
        let answer = Answer { address, chunk: event.chunk().unwrap_or_default(), event: number };
        if !event.is_alloc() {
            let slot = match self.live.remove(&address) {
                Some(slot) => {
                    self.unused.push(slot);
                    slot
                }
                None => {
                    // Not reused: it is filled before the program begins.
                    let slot = u32::try_from(self.program.slots).unwrap_or(Act::NOWHERE);
                    self.program.slots += 1;
                    let chunk = event.size().unwrap_or_default();
                    self.program.earlier.push(Earlier { address, chunk, requested: event.requested(), slot });
                    slot
                }
            };
            self.program.acts.push(Act { lane, ..Act::free(slot) });
            self.program.answers.push(answer);
            return;
        }
        let Some(bytes) = event.requested().or(event.chunk()).filter(|&bytes| bytes > Bytes::ZERO) else {
            self.program.unusable += 1;
            return;
        };
        let slot = self.slot();
        if let Some(lost) = self.live.insert(address, slot) {
            // Its free is missing; the address is in use again, so it must have been freed.
            self.program.unusable += 1;
            self.program.acts.push(Act::free(lost));
            self.program.answers.push(answer);
            self.unused.push(lost);
        }
        self.program.requests += 1;
        self.program.acts.push(Act { lane, ..Act::request(bytes, slot) });
        self.program.answers.push(answer);
    }
}
