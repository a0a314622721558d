//! PyTorch's own history through its allocator: is it reproduced, when did it grow and why, what would other settings do.
//!
//! A snapshot tells requests, frees and every call to the driver, in order. The driver's calls are followed in lock-step:
//! it gives what the trace says it gave, where the trace says so, and refuses where the trace gave something back first.
//! Everything else is computed: addresses, when to ask the driver and for how much, what to give back and in which order.
//! Each of these that differs from the trace is counted.
//!
//! Two things are not in a trace and are inferred. Memory that goes back without a request that needs it, or before one
//! that a free block could serve, was given back by `empty_cache()`. A block whose free completes later than it was
//! requested was used by another stream.

use rustc_hash::FxHashMap;

use super::exact::{Exact, GrowthAt, Heap, Piece, Replaying, Stepped, compare as compare_all};
use super::program::{Act, ActKind, Answer, DriverCall, Earlier, Program};
use super::what_if::{Driven, Failure};
use crate::allocator::bfc::RegionView;
use crate::allocator::torch_caching::{
    Divisions, Lane, Options, PoolId, PoolOptions, Request, SegmentView, State, Stats, Ticket, TorchCaching,
};
use crate::allocator::{Placed, Placement, Supplier};
use crate::event::Events;
use crate::event::caching::{Call, CallKind, CallSettings, Calls, EarlierSegment};
use crate::trace::PoolTrace;
use crate::units::Bytes;

/// How many blocks may be waited for at once.
const LONGEST_WAIT: usize = 4096;

impl DriverCall {
    fn gives_back(&self) -> bool {
        matches!(self.kind, CallKind::SegmentFree | CallKind::SegmentUnmap)
    }
}

#[derive(Default)]
struct Building {
    program: Program,
    /// Slots by address, and whether the block was let go of.
    live: FxHashMap<u64, (u32, bool)>,
    unused: Vec<u32>,
    /// Frees that complete while the allocator makes room, which does that itself.
    deferred: Vec<(Act, Answer)>,
    /// The event that came last.
    last_event: u32,
}

impl Building {
    fn slot(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.program.slots).unwrap_or(u32::MAX);
            self.program.slots += 1;
            slot
        })
    }

    fn push(&mut self, act: Act, answer: Answer) {
        self.program.acts.push(act);
        self.program.answers.push(answer);
        if act.ends()
            && let Ok(slot) = u32::try_from(act.slot())
        {
            self.unused.push(slot);
        }
        if !self.deferred.is_empty() {
            self.push_deferred();
        }
    }

    fn push_deferred(&mut self) {
        for (act, answer) in std::mem::take(&mut self.deferred) {
            self.push(act, answer);
        }
    }

    fn request(&mut self, bytes: Bytes, lane: u16, answer: Answer) {
        if bytes == Bytes::ZERO || usize::from(lane) >= self.program.driver.lanes.len() {
            self.program.unusable += 1;
            return;
        }
        if let Some((lost, is_pending)) = self.live.remove(&answer.address) {
            // Its free is missing; the address is in use again, so it must have been freed.
            self.program.unusable += 1;
            let kind = if is_pending { ActKind::Complete } else { ActKind::Free };
            self.push(Act::of(kind, lost), answer);
        }
        let slot = self.slot();
        self.live.insert(answer.address, (slot, false));
        self.program.requests += 1;
        self.push(Act::request(bytes, slot).asking(bytes, lane), answer);
    }

    fn free(&mut self, is_let_go: bool, answer: Answer) {
        let Some(known) = self.live.get_mut(&answer.address).filter(|known| !known.1) else {
            self.program.unusable += 1;
            return;
        };
        let slot = known.0;
        if is_let_go {
            known.1 = true;
            self.push(Act::of(ActKind::LetGo, slot), answer);
        } else {
            self.live.remove(&answer.address);
            self.push(Act::free(slot), answer);
        }
    }

    fn call(&mut self, call: &Call, later: &[Call]) {
        let answer = Answer { address: call.address, chunk: Bytes::ZERO, event: self.last_event };
        match call.kind {
            CallKind::LetGo => {}
            CallKind::Complete => {
                let Some((slot, was_let_go)) = self.live.remove(&call.address) else { return };
                // Of one from before the trace only the end may be told.
                let act = Act::of(if was_let_go { ActKind::Complete } else { ActKind::Free }, slot);
                let next = later.iter().take(LONGEST_WAIT).find(|next| next.kind != CallKind::Complete);
                // Nothing is asked for or freed in between.
                let makes_room = next.filter(|next| next.event == call.event).is_some_and(|next| {
                    matches!(
                        next.kind,
                        CallKind::SegmentFree | CallKind::SegmentUnmap | CallKind::OutOfMemory
                    )
                });
                if makes_room {
                    self.deferred.push((act, answer));
                } else {
                    self.push(act, answer);
                }
            }
            CallKind::OutOfMemory => {
                if call.size == Bytes::ZERO || usize::from(call.lane) >= self.program.driver.lanes.len() {
                    self.program.unusable += 1;
                    return;
                }
                self.program.driver.failures += 1;
                self.push(Act::fail(call.size, call.lane), answer);
            }
            CallKind::SegmentAlloc
            | CallKind::SegmentFree
            | CallKind::SegmentMap
            | CallKind::SegmentUnmap => {
                let before = u32::try_from(self.program.acts.len()).unwrap_or(u32::MAX);
                let (kind, address, size) = (call.kind, call.address, call.size.0);
                self.program.driver.calls.push(DriverCall { before, kind, address, size });
            }
        }
    }

    fn seed(&mut self, segment: &EarlierSegment) {
        let mut slots = Vec::with_capacity(segment.held.len());
        for &(address, chunk, requested) in &segment.held {
            let slot = self.slot();
            self.live.insert(address, (slot, false));
            self.program.earlier.push(Earlier { address, chunk, requested, slot });
            slots.push(slot);
        }
        self.program.driver.segments.push((segment.clone(), slots));
    }
}

/// The program of a pool: its events, and the calls between them.
#[must_use]
pub fn program(events: &Events, pool: &PoolTrace, calls: &Calls) -> Program {
    let mut building = Building::default();
    building.program.driver.lanes.clone_from(&calls.lanes);
    for segment in &calls.earlier {
        if usize::from(segment.lane) < calls.lanes.len() {
            building.seed(segment);
        } else {
            building.program.unusable += 1;
        }
    }
    building.program.acts.reserve(pool.event_count());
    building.program.answers.reserve(pool.event_count());
    let mut lane = Calls::NO_LANE;
    let mut lanes = calls.lane_from.iter().peekable();
    let mut rest = calls.list.as_slice();
    for (number, at) in (0_u32..).zip(pool.events_in_order()) {
        let mut is_let_go = false;
        while let Some((call, later)) = rest.split_first().filter(|(call, _)| call.event <= number) {
            is_let_go |= call.kind == CallKind::LetGo && call.event == number;
            building.call(call, later);
            rest = later;
        }
        while let Some(&(_, next)) = lanes.next_if(|(from, _)| *from <= number) {
            lane = next;
        }
        let event = events.at(at);
        let Some(address) = event.address() else {
            building.program.unusable += 1;
            continue;
        };
        let chunk = if event.is_alloc() { event.chunk().unwrap_or_default() } else { Bytes::ZERO };
        building.last_event = u32::try_from(at).unwrap_or(u32::MAX);
        let answer = Answer { address, chunk, event: building.last_event };
        if event.is_alloc() {
            building.request(event.requested().unwrap_or_default(), lane, answer);
        } else {
            building.free(is_let_go, answer);
        }
    }
    while let Some((call, later)) = rest.split_first() {
        building.call(call, later);
        rest = later;
    }
    building.push_deferred();
    building.program
}

/// An allocator with every lane.
fn prepare(program: &Program, options: Options) -> (TorchCaching, Vec<Option<Lane>>) {
    let mut allocator = TorchCaching::new(options);
    let mut pools: FxHashMap<u32, PoolId> = FxHashMap::default();
    pools.insert(0, PoolId::DEFAULT);
    let mut lanes = Vec::with_capacity(program.driver.lanes.len());
    for &(pool, stream) in &program.driver.lanes {
        let pool = *pools.entry(pool).or_insert_with(|| allocator.add_pool(PoolOptions::default()));
        lanes.push(allocator.lane(pool, stream));
    }
    (allocator, lanes)
}

/// Puts everything from before the trace where it was.
fn seed(program: &Program, allocator: &mut TorchCaching, lanes: &[Option<Lane>], tickets: &mut [Ticket]) {
    for (segment, slots) in &program.driver.segments {
        let Some(&Some(lane)) = lanes.get(usize::from(segment.lane)) else { continue };
        let EarlierSegment { is_small, base, size, ref held, .. } = *segment;
        let seeded = allocator.seed(lane, is_small, base, size, held).unwrap_or_default();
        for (&slot, ticket) in slots.iter().zip(seeded) {
            if let Some(place) = tickets.get_mut(slot as usize) {
                *place = ticket;
            }
        }
    }
}

/// What a trace that begins late leaves open, in words.
#[must_use]
pub(super) fn assumed(calls: &Calls) -> Vec<String> {
    let held = calls.earlier.iter().flat_map(|segment| &segment.held);
    let (mut blocks, mut bytes) = (0_u64, Bytes::ZERO);
    for (_, size, _) in held {
        blocks += 1;
        bytes += *size;
    }
    let taken: Bytes = calls.earlier.iter().map(|segment| segment.size).sum();
    let mut words = vec![format!(
        "before the trace there were {} segments of {taken} with {bytes} in {blocks} blocks: what the snapshot shows at its end, \
         without what the trace did since",
        calls.earlier.len()
    )];
    if calls.earlier_expandable > Bytes::ZERO {
        words.push(format!(
            "nothing of {} in expandable segments: what lay where in them is not known",
            calls.earlier_expandable
        ));
    }
    words
}

/// The options of an allocator with a snapshot's settings. A snapshot tells neither the version, which decides between
/// equal blocks, nor a cap.
#[must_use]
pub fn options(settings: &CallSettings) -> Options {
    let mut divisions = Divisions::default();
    for (power, &parts) in settings.divisions.iter().enumerate().take(u64::BITS as usize) {
        let parts = u32::try_from(parts).ok().filter(|parts| parts.is_power_of_two());
        divisions.set(1 << power, parts.unwrap_or_default());
    }
    Options {
        max_split: settings.max_split,
        divisions,
        garbage_collection_threshold: settings.garbage_collection_threshold,
        expandable: settings.expandable,
        ..Options::default()
    }
}

/// A device's memory, as the addresses of segments that grow tell it: each has address space for nine eighths of it.
#[must_use]
pub(super) fn device_total(program: &Program) -> Option<Bytes> {
    /// What lies farther apart than this is not one segment, in all likelihood.
    const APART: u64 = 4 << 30;
    let maps = program.driver.calls.iter().filter(|call| call.kind == CallKind::SegmentMap);
    let mut maps: Vec<(u64, u64)> = maps.map(|call| (call.address, call.size)).collect();
    maps.sort_unstable();
    let mut base = maps.first()?.0;
    let mut end = base;
    let mut space: Option<u64> = None;
    for (address, size) in maps {
        if address.saturating_sub(end) > APART {
            let apart = address.saturating_sub(base);
            space = Some(space.map_or(apart, |least| least.min(apart)));
            base = address;
        }
        end = end.max(address.saturating_add(size));
    }
    // Rounded up to whole pages, it may take a page more.
    space.map(|space| Bytes(space.saturating_sub(32 << 20) / 9 * 8))
}

/// How far the calls to the driver and the failures agree with the trace.
#[derive(Clone, Debug, Default)]
pub struct DriverExact {
    /// Requests that failed in the trace.
    pub failures: u64,
    /// Of these, failed here.
    pub failure_matches: u64,
    /// Requests that failed only here.
    pub failures_only_here: u64,
    /// The trace's calls to the driver.
    pub calls: u64,
    /// Of these, made here too, at the same moment and in the same order.
    pub matches: u64,
    /// Calls to the driver made only here.
    pub only_here: u64,
    /// The allocator's own count at the end, with all peaks.
    pub stats: Stats,
    /// Acts before which everything idle was given back without need.
    pub flushes: Vec<usize>,
    /// The least that the driver did not give: what was taken then, and what was asked for.
    pub refused: Option<Bytes>,
}

impl DriverExact {
    /// Whether all of that is as in the trace.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failure_matches == self.failures
            && self.failures_only_here == 0
            && self.matches == self.calls
            && self.only_here == 0
    }
}

impl Heap for TorchCaching {
    #[inline]
    fn in_use(&self) -> Bytes {
        Bytes(self.stats().allocated_bytes.current())
    }

    fn requested(&self) -> Bytes {
        Bytes(self.stats().requested_bytes.current()).saturating_sub(self.pending_requested())
    }

    fn pending(&self) -> Bytes {
        Bytes(self.stats().active_bytes.current()).saturating_sub(self.in_use())
    }

    fn taken(&self) -> Bytes {
        Bytes(self.stats().reserved_bytes.current())
    }

    fn peak_taken(&self) -> Bytes {
        Bytes(self.stats().reserved_bytes.peak())
    }

    fn largest_free(&self) -> Bytes {
        TorchCaching::largest_free(self)
    }

    fn free_sizes(&self) -> impl Iterator<Item = Bytes> {
        TorchCaching::free_sizes(self)
    }

    fn regions(&self) -> Vec<RegionView> {
        let mapped = |segment: SegmentView| {
            let size = if segment.is_expandable {
                self.blocks(segment.base)
                    .filter(|block| block.state != State::Unmapped)
                    .map(|block| block.size)
                    .sum()
            } else {
                segment.size
            };
            RegionView { base: segment.base, size }
        };
        self.segments().map(mapped).collect()
    }

    fn chunks(&self, base: u64) -> Vec<Piece> {
        let mapped = self.blocks(base).filter(|block| block.state != State::Unmapped);
        mapped
            .map(|block| Piece {
                address: block.address,
                size: block.size,
                in_use: block.state != State::Free,
            })
            .collect()
    }

    fn region_of(&self, address: u64) -> Option<u64> {
        self.segment_of(address)
    }
}

/// The driver as the trace saw it.
struct InStep<'a> {
    calls: &'a [DriverCall],
    at: usize,
    /// The end of what belongs to the act that runs.
    end: usize,
    matches: u64,
    only_here: u64,
    /// Whether it refuses what the trace does not give.
    is_failing: bool,
    /// Taken from it now.
    taken: u64,
    /// The least that it refused, with what was taken then.
    refused: Option<u64>,
    otherwise: Placed,
    words: Vec<String>,
}

impl InStep<'_> {
    const WORDS: usize = 8;

    fn front(&self) -> Option<&DriverCall> {
        self.calls.get(self.at..self.end)?.first()
    }

    /// All calls of the act that are left.
    fn group(&self) -> &[DriverCall] {
        self.calls.get(self.at..self.end).unwrap_or_default()
    }

    /// Makes the calls before an act those that are followed.
    #[inline]
    fn begin(&mut self, act: usize) -> bool {
        while self.calls.get(self.end).is_some_and(|call| call.before as usize <= act) {
            self.end += 1;
        }
        self.at < self.end
    }

    /// Leaves calls that were not made here.
    fn finish(&mut self) {
        for call in self.calls.get(self.at..self.end).unwrap_or_default() {
            let words = format!("only in the trace: {:?} of {} at {:x}", call.kind, call.size, call.address);
            if self.words.len() < InStep::WORDS {
                self.words.push(words);
            }
        }
        self.at = self.end;
    }

    fn follow(&mut self, kind: CallKind, address: Option<u64>, size: u64) -> Option<u64> {
        let front = *self.front()?;
        if front.kind != kind || front.size != size || address.is_some_and(|address| address != front.address)
        {
            return None;
        }
        self.at += 1;
        self.matches += 1;
        Some(front.address)
    }

    fn differ(&mut self, kind: CallKind, address: Option<u64>, size: u64) {
        self.only_here += 1;
        if self.words.len() < InStep::WORDS {
            let place = address.map_or(String::new(), |address| format!(" at {address:x}"));
            self.words.push(format!("only in the replay: {kind:?} of {size}{place}"));
        }
    }

    /// Whether the driver refuses so much now: the trace gives something back first, or the request fails there.
    fn refuses(&mut self, size: u64) -> bool {
        let refuses = self.front().map_or(self.is_failing, DriverCall::gives_back);
        if refuses {
            let wanted = self.taken.saturating_add(size);
            self.refused = Some(self.refused.map_or(wanted, |least| least.min(wanted)));
        }
        refuses
    }
}

impl Supplier for InStep<'_> {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        if let Some(base) = self.follow(CallKind::SegmentAlloc, None, size.0) {
            self.taken = self.taken.saturating_add(size.0);
            return Some(base);
        }
        if self.refuses(size.0) {
            return None;
        }
        self.differ(CallKind::SegmentAlloc, None, size.0);
        self.taken = self.taken.saturating_add(size.0);
        self.otherwise.take(size)
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        self.taken = self.taken.saturating_sub(size.0);
        if self.follow(CallKind::SegmentFree, Some(base), size.0).is_none() {
            self.differ(CallKind::SegmentFree, Some(base), size.0);
        }
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        // An address space is mapped from its beginning on.
        match self.front() {
            Some(front) if front.kind == CallKind::SegmentMap => Some(front.address),
            // Address space alone costs nothing.
            _ => self.otherwise.reserve(size),
        }
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        if self.follow(CallKind::SegmentMap, Some(address), size.0).is_none() {
            if self.refuses(size.0) {
                return false;
            }
            self.differ(CallKind::SegmentMap, Some(address), size.0);
        }
        self.taken = self.taken.saturating_add(size.0);
        true
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
        self.taken = self.taken.saturating_sub(size.0);
        if self.follow(CallKind::SegmentUnmap, Some(address), size.0).is_none() {
            self.differ(CallKind::SegmentUnmap, Some(address), size.0);
        }
    }
}

/// Whether what goes back before a request went back without it: the allocator would not have needed to.
fn is_flush(allocator: &TorchCaching, group: &[DriverCall], act: Option<Act>, lane: Option<Lane>) -> bool {
    if !group.first().is_some_and(DriverCall::gives_back) {
        return false;
    }
    let Some((act, lane)) = act.zip(lane) else { return true };
    let grows = group.iter().any(|call| !call.gives_back());
    let request = Request::of(act.asked().unwrap_or_default(), lane);
    let options = allocator.options();
    let fits_cap = options.cap.zip(options.rounded(request.bytes)).is_some_and(|(cap, rounded)| {
        let taken = Bytes(allocator.stats().reserved_bytes.current()) + options.segment(rounded);
        // Garbage is collected below the cap too.
        taken <= cap && options.garbage_collection_threshold <= 0.0
    });
    match act.kind() {
        ActKind::Request => !grows || fits_cap || allocator.finds(request),
        ActKind::Fail => fits_cap || allocator.finds(request),
        ActKind::Free | ActKind::LetGo | ActKind::Complete => true,
    }
}

/// A replay of PyTorch's allocator, in step with the driver's calls.
pub(crate) struct Run<'a> {
    program: &'a Program,
    allocator: TorchCaching,
    lanes: Vec<Option<Lane>>,
    tickets: Vec<Ticket>,
    driver: InStep<'a>,
    found: DriverExact,
    at: usize,
}

impl<'a> Run<'a> {
    /// The allocator at the beginning of the trace.
    pub(crate) fn new(program: &'a Program, options: Options) -> Run<'a> {
        let (mut allocator, lanes) = prepare(program, options);
        let mut tickets = vec![Ticket::NONE; program.slots];
        seed(program, &mut allocator, &lanes, &mut tickets);
        let driver = InStep {
            calls: &program.driver.calls,
            at: 0,
            end: 0,
            matches: 0,
            only_here: 0,
            is_failing: false,
            taken: allocator.stats().reserved_bytes.current(),
            refused: None,
            otherwise: Placed::new(Placement::Ascending),
            words: Vec::new(),
        };
        let found = DriverExact {
            failures: program.driver.failures,
            calls: program.driver.calls.len() as u64,
            ..DriverExact::default()
        };
        Run { program, allocator, lanes, tickets, driver, found, at: 0 }
    }

    /// How the driver's side came out, and the allocator as it is now.
    pub(crate) fn into_parts(self) -> (DriverExact, TorchCaching) {
        let found = DriverExact {
            matches: self.driver.matches,
            only_here: self.driver.only_here,
            stats: *self.allocator.stats(),
            refused: self.driver.refused.map(Bytes),
            ..self.found
        };
        (found, self.allocator)
    }

    /// Gives back everything idle where the trace does so without need.
    #[cold]
    fn flush(&mut self, act: Option<Act>, lane: Option<Lane>) {
        if is_flush(&self.allocator, self.driver.group(), act, lane) {
            self.found.flushes.push(self.at);
            self.allocator.empty_cache(&mut self.driver);
        }
    }

    /// A request that failed in the trace. Where it is served here, nobody has what it gets.
    #[cold]
    fn fail(&mut self, request: Request) -> Option<(u64, Bytes)> {
        self.driver.is_failing = true;
        let made = self.allocator.allocate(request, &mut self.driver).ok();
        self.driver.is_failing = false;
        let Some(made) = made else {
            self.found.failure_matches += 1;
            return None;
        };
        let _ = self.allocator.free(made.ticket);
        self.driver.words.push("it failed in the trace".to_owned());
        Some((made.address, made.size))
    }
}

impl Replaying for Run<'_> {
    type Heap = TorchCaching;

    fn program(&self) -> &Program {
        self.program
    }

    fn done(&self) -> usize {
        self.at
    }

    fn heap(&self) -> &TorchCaching {
        &self.allocator
    }

    #[inline]
    fn step(&mut self) -> Option<Stepped> {
        let act = *self.program.acts.get(self.at)?;
        let has_calls = self.driver.begin(self.at);
        let asked = act.asked();
        let lane = if asked.is_some() { self.lanes.get(act.lane()).copied().flatten() } else { None };
        if has_calls {
            self.flush(Some(act), lane);
        }
        self.at += 1;
        let mut made = None;
        if let Some((bytes, lane)) = asked.zip(lane) {
            let request = Request::of(bytes, lane);
            if act.kind() == ActKind::Fail {
                made = self.fail(request);
            } else {
                let allocation = self.allocator.allocate(request, &mut self.driver).ok();
                if let Some(ticket) = self.tickets.get_mut(act.slot()) {
                    *ticket = allocation.map_or(Ticket::NONE, |made| made.ticket);
                }
                made = allocation.map(|made| (made.address, made.size));
                self.found.failures_only_here += u64::from(made.is_none());
            }
        } else {
            give(&mut self.allocator, &mut self.tickets, act);
        }
        if has_calls {
            self.driver.finish();
        }
        Some(Stepped { made, words: std::mem::take(&mut self.driver.words) })
    }

    fn finish(&mut self) -> Vec<String> {
        if self.driver.begin(self.at) {
            self.flush(None, None);
            self.driver.finish();
        }
        std::mem::take(&mut self.driver.words)
    }

    fn address_in(&self, slot: usize) -> Option<u64> {
        self.allocator.address_of(*self.tickets.get(slot)?)
    }

    fn growth_count(&self) -> usize {
        self.allocator.growths().len()
    }

    fn growth(&self, number: usize) -> Option<GrowthAt> {
        self.allocator.growths().get(number).map(|growth| GrowthAt {
            rounded: growth.rounded,
            free: growth.free,
            reachable: growth.reachable,
            largest_free: growth.largest_free,
            largest_elsewhere: growth.largest_elsewhere,
            released: growth.released,
            got: growth.got,
            base: growth.base,
            ..GrowthAt::default()
        })
    }
}

/// Runs a trace's program with the trace's driver, and compares everything. Also gives the allocator as it is at the end.
#[must_use]
pub fn compare(program: &Program, options: Options) -> (Exact, DriverExact, TorchCaching) {
    let mut run = Run::new(program, options);
    let exact = compare_all(&mut run);
    let (driver, allocator) = run.into_parts();
    (exact, driver, allocator)
}

/// Frees, lets go of, or completes what is in a slot.
#[inline]
fn give(allocator: &mut TorchCaching, tickets: &mut [Ticket], act: Act) {
    let Some(ticket) = tickets.get_mut(act.slot()) else { return };
    // A block that found no room has nothing to free, and one may have been waited for already.
    let _ = match act.kind() {
        ActKind::LetGo => allocator.request_free(*ticket),
        ActKind::Complete => allocator.complete_free(std::mem::replace(ticket, Ticket::NONE)),
        _ => allocator.free(std::mem::replace(ticket, Ticket::NONE)),
    };
}

/// The most that other settings take from a driver that has enough.
pub(super) fn most_taken(program: &Program, options: Options) -> Bytes {
    let supplier = &mut Placed::new(Placement::Ascending);
    drive(program, &program.acts, Before::Asked(&[]), options, &[], supplier, |_, _| ()).pool
}

/// How what was there before the trace comes into a pool with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before<'a> {
    /// It lies where it was.
    Seeded,
    /// It is asked for first, but for blocks in these slots.
    Asked(&'a [bool]),
}

/// Runs acts with other settings or another driver until the first request that fails; one that failed in the trace may
/// fail again. `flushes` are the acts before which everything idle is given back. Tells what is allocated after each request.
pub(super) fn drive(
    program: &Program,
    acts: &[Act],
    before: Before<'_>,
    options: Options,
    flushes: &[usize],
    supplier: &mut impl Supplier,
    mut tell: impl FnMut(usize, Bytes),
) -> Driven {
    let (mut allocator, lanes) = prepare(program, options);
    let mut tickets = vec![Ticket::NONE; program.slots];
    let mut failure = None;
    match before {
        Before::Seeded => seed(program, &mut allocator, &lanes, &mut tickets),
        Before::Asked(gone) => {
            for (segment, slots) in &program.driver.segments {
                let Some(&Some(lane)) = lanes.get(usize::from(segment.lane)) else { continue };
                for (&slot, &(_, size, requested)) in slots.iter().zip(&segment.held) {
                    if gone.get(slot as usize).copied().unwrap_or(false) {
                        continue;
                    }
                    let bytes = requested.unwrap_or(size);
                    match allocator.allocate(Request::of(bytes, lane), supplier) {
                        Ok(made) => {
                            if let Some(ticket) = tickets.get_mut(slot as usize) {
                                *ticket = made.ticket;
                            }
                        }
                        Err(_) => {
                            failure.get_or_insert(Failure::of(None, bytes, &allocator));
                        }
                    }
                }
            }
        }
    }
    let mut flushes = flushes.iter().copied().peekable();
    let acts = if failure.is_none() { acts } else { &[] };
    for (at, &act) in acts.iter().enumerate() {
        while flushes.next_if(|&flush| flush <= at).is_some() {
            allocator.empty_cache(supplier);
        }
        let Some(bytes) = act.asked() else {
            give(&mut allocator, &mut tickets, act);
            continue;
        };
        let Some(&Some(lane)) = lanes.get(act.lane()) else { continue };
        match allocator.allocate(Request::of(bytes, lane), supplier) {
            Ok(made) if act.kind() == ActKind::Fail => {
                // Nobody has it in the trace.
                let _ = allocator.free(made.ticket);
            }
            Ok(made) => {
                if let Some(ticket) = tickets.get_mut(act.slot()) {
                    *ticket = made.ticket;
                }
            }
            Err(_) => {
                failure.get_or_insert(Failure::of(Some(at), bytes, &allocator));
                if act.kind() == ActKind::Request {
                    break;
                }
            }
        }
        tell(at, Bytes(allocator.stats().allocated_bytes.current()));
    }
    let stats = allocator.stats();
    Driven {
        peak: Bytes(stats.allocated_bytes.peak()),
        pool: Bytes(stats.reserved_bytes.peak()),
        retries: stats.num_alloc_retries,
        returned: stats.num_device_free,
        regions: allocator.growths().len(),
        failure,
        waits: None,
    }
}
