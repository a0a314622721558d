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

use crate::allocator::torch_caching::{
    Divisions, Growth, Lane, Options, PoolId, PoolOptions, Refused, Request, Stats, Ticket, TorchCaching,
};
use crate::allocator::{Placed, Placement, Supplier};
use crate::source::{Call, CallKind, CallSettings, Earlier};
use crate::units::Bytes;

/// More pools and streams than this are not followed.
const MOST_LANES: usize = 4096;
/// How many blocks may be waited for at once.
const LONGEST_WAIT: usize = 4096;

/// What an act does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// Asks for a block.
    Request,
    /// Asks for a block that the trace says there was none for.
    Fail,
    /// Frees a block.
    Free,
    /// Lets go of a block that a stream still uses.
    LetGo,
    /// The stream is done with it.
    Complete,
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
    /// What it does.
    #[must_use]
    #[inline]
    pub fn kind(self) -> ActKind {
        self.kind
    }

    /// What is asked for; nothing for a free.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> Bytes {
        Bytes(self.bytes)
    }
}

/// What the trace says of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where the block begins.
    pub address: u64,
    /// The whole block; zero where the trace does not tell.
    pub block: Bytes,
    /// The number of the call.
    pub call: u32,
}

/// A call to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DriverCall {
    /// It came before this act, and after the one before it.
    before: u32,
    kind: CallKind,
    address: u64,
    size: u64,
}

impl DriverCall {
    fn gives_back(&self) -> bool {
        matches!(self.kind, CallKind::SegmentFree | CallKind::SegmentUnmap)
    }
}

/// What an allocator was asked to do, in columns, with slots in place of addresses.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What was asked for, in order.
    pub acts: Vec<Act>,
    /// What the trace says of each act.
    pub answers: Vec<Answer>,
    driver: Vec<DriverCall>,
    /// Pool and stream of each lane.
    lanes: Vec<(u32, u64)>,
    slots: usize,
    earlier: Vec<(Earlier, Vec<u32>)>,
    /// Requests that were served.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Entries that could not be used: a free of nothing, a block handed out twice, too many streams.
    pub unusable: u64,
}

#[derive(Default)]
struct Building {
    program: Program,
    lanes: FxHashMap<(u32, u64), u16>,
    live: FxHashMap<u64, (u32, bool)>,
    unused: Vec<u32>,
    /// Frees that complete while the allocator makes room, which does that itself.
    deferred: Vec<(Act, Answer)>,
}

impl Building {
    fn lane(&mut self, pool: u32, stream: u64) -> Option<u16> {
        if let Some(&lane) = self.lanes.get(&(pool, stream)) {
            return Some(lane);
        }
        let lane = u16::try_from(self.lanes.len()).ok().filter(|&lane| usize::from(lane) < MOST_LANES)?;
        self.lanes.insert((pool, stream), lane);
        self.program.lanes.push((pool, stream));
        Some(lane)
    }

    fn slot(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.program.slots).unwrap_or(u32::MAX);
            self.program.slots += 1;
            slot
        })
    }

    fn push(&mut self, kind: ActKind, bytes: u64, slot: u32, lane: u16, answer: Answer) {
        self.program.acts.push(Act { bytes, slot, lane, kind });
        self.program.answers.push(answer);
        if !self.deferred.is_empty() {
            self.push_deferred();
        }
    }

    fn push_deferred(&mut self) {
        for (act, answer) in std::mem::take(&mut self.deferred) {
            self.program.acts.push(act);
            self.program.answers.push(answer);
            self.unused.push(act.slot);
        }
    }

    fn take(&mut self, number: usize, call: &Call, later: &[Call]) {
        let answer = Answer {
            address: call.address,
            block: call.block,
            call: u32::try_from(number).unwrap_or(u32::MAX),
        };
        match call.kind {
            CallKind::Alloc | CallKind::OutOfMemory => {
                let Some(lane) = self.lane(call.pool, call.stream).filter(|_| call.bytes > Bytes::ZERO)
                else {
                    self.program.unusable += 1;
                    return;
                };
                if call.kind == CallKind::OutOfMemory {
                    self.program.failures += 1;
                    self.push(ActKind::Fail, call.bytes.0, u32::MAX, lane, answer);
                    return;
                }
                let slot = self.slot();
                if let Some((lost, is_pending)) = self.live.insert(call.address, (slot, false)) {
                    // Its free is missing; the address is in use again, so it must have been freed.
                    self.program.unusable += 1;
                    let kind = if is_pending { ActKind::Complete } else { ActKind::Free };
                    self.push(kind, 0, lost, lane, answer);
                    self.unused.push(lost);
                }
                self.program.requests += 1;
                self.push(ActKind::Request, call.bytes.0, slot, lane, answer);
            }
            CallKind::FreeRequested => {
                let Some(known) = self.live.get_mut(&call.address).filter(|known| !known.1) else {
                    self.program.unusable += 1;
                    return;
                };
                let slot = known.0;
                let completes = later
                    .first()
                    .is_some_and(|next| next.kind == CallKind::FreeCompleted && next.address == call.address);
                if completes {
                    // The entry that completes it will find nothing to do.
                    self.live.remove(&call.address);
                    self.unused.push(slot);
                    self.push(ActKind::Free, 0, slot, 0, answer);
                } else {
                    known.1 = true;
                    self.push(ActKind::LetGo, 0, slot, 0, answer);
                }
            }
            CallKind::FreeCompleted => {
                let Some((slot, was_let_go)) = self.live.remove(&call.address) else { return };
                if !was_let_go {
                    // A trace may have been told to skip the requests.
                    self.unused.push(slot);
                    self.push(ActKind::Free, 0, slot, 0, answer);
                    return;
                }
                let next = later.iter().take(LONGEST_WAIT).find(|call| call.kind != CallKind::FreeCompleted);
                let makes_room = next.is_some_and(|next| {
                    matches!(
                        next.kind,
                        CallKind::SegmentFree | CallKind::SegmentUnmap | CallKind::OutOfMemory
                    )
                });
                if makes_room {
                    let act = Act { bytes: 0, slot, lane: 0, kind: ActKind::Complete };
                    self.deferred.push((act, answer));
                } else {
                    self.unused.push(slot);
                    self.push(ActKind::Complete, 0, slot, 0, answer);
                }
            }
            CallKind::SegmentAlloc
            | CallKind::SegmentFree
            | CallKind::SegmentMap
            | CallKind::SegmentUnmap => {
                let before = u32::try_from(self.program.acts.len()).unwrap_or(u32::MAX);
                let (kind, address, size) = (call.kind, call.address, call.bytes.0);
                self.program.driver.push(DriverCall { before, kind, address, size });
            }
        }
    }
}

impl Program {
    /// The program of a trace, with what was there before it.
    #[must_use]
    pub fn of(calls: &[Call], earlier: Vec<Earlier>) -> Program {
        let mut building = Building::default();
        for segment in earlier {
            if building.lane(segment.pool, segment.stream).is_none() {
                building.program.unusable += 1;
                continue;
            }
            let mut slots = Vec::with_capacity(segment.held.len());
            for &(address, ..) in &segment.held {
                let slot = building.slot();
                building.live.insert(address, (slot, false));
                slots.push(slot);
            }
            building.program.earlier.push((segment, slots));
        }
        building.program.acts.reserve(calls.len());
        building.program.answers.reserve(calls.len());
        for (number, call) in calls.iter().enumerate() {
            building.take(number, call, calls.get(number + 1..).unwrap_or_default());
        }
        building.push_deferred();
        building.program
    }

    /// An allocator with every lane and all that was there before.
    fn prepare(&self, options: Options) -> (TorchCaching, Vec<Option<Lane>>, Vec<Ticket>) {
        let mut allocator = TorchCaching::new(options);
        let mut pools: FxHashMap<u32, PoolId> = FxHashMap::default();
        pools.insert(0, PoolId::DEFAULT);
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for &(pool, stream) in &self.lanes {
            let pool = *pools.entry(pool).or_insert_with(|| allocator.add_pool(PoolOptions::default()));
            lanes.push(allocator.lane(pool, stream));
        }
        let mut tickets = vec![Ticket::NONE; self.slots];
        for (segment, slots) in &self.earlier {
            let Some(&pool) = pools.get(&segment.pool) else { continue };
            let Some(lane) = allocator.lane(pool, segment.stream) else { continue };
            let Earlier { is_small, base, size, ref held, .. } = *segment;
            let seeded = allocator.seed(lane, is_small, base, size, held).unwrap_or_default();
            for (&slot, ticket) in slots.iter().zip(seeded) {
                if let Some(place) = tickets.get_mut(slot as usize) {
                    *place = ticket;
                }
            }
        }
        (allocator, lanes, tickets)
    }
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

/// The first difference between a trace and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The act; one more than there are acts where something is left at the end.
    pub act: usize,
    /// How many requests came before it.
    pub request: u64,
    /// What was asked for.
    pub asked: Bytes,
    /// Where the trace has it; `None` where it failed there.
    pub address: Option<u64>,
    /// Where the replay has it, and how large; `None` where it found no room.
    pub replayed: Option<(u64, Bytes)>,
    /// What differs about the driver's calls, and the blocks around both places just after, in words.
    pub around: Vec<String>,
}

/// A time that memory was taken from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthAt {
    /// The act.
    pub act: usize,
    /// What was asked for.
    pub asked: Bytes,
    /// What was free then, and what was taken.
    pub growth: Growth,
}

/// How far a replay came, and whether it agrees with the trace.
#[derive(Clone, Debug)]
pub struct Exact {
    /// Requests that the trace served.
    pub allocs: u64,
    /// Of these, at the trace's address.
    pub address_matches: u64,
    /// Of these, with the trace's block size; one that the trace does not tell counts.
    pub size_matches: u64,
    /// Requests that failed in the trace.
    pub failures: u64,
    /// Of these, failed here.
    pub failure_matches: u64,
    /// Requests that failed only here.
    pub failures_only_here: u64,
    /// The trace's calls to the driver.
    pub driver_calls: u64,
    /// Of these, made here too, at the same moment and in the same order.
    pub driver_matches: u64,
    /// Calls to the driver made only here.
    pub driver_only_here: u64,
    /// Where it first differs.
    pub first_mismatch: Option<Mismatch>,
    /// The allocator's own count at the end, with all peaks.
    pub stats: Stats,
    /// The act that reached the most allocated first.
    pub peak_at: usize,
    /// The act that reached the most reserved first.
    pub reserved_peak_at: usize,
    /// Each time it grew.
    pub growths: Vec<GrowthAt>,
    /// Acts before which everything idle was given back without need.
    pub flushes: Vec<usize>,
}

impl Exact {
    /// Whether everything is as in the trace.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.address_matches == self.allocs
            && self.size_matches == self.allocs
            && self.failure_matches == self.failures
            && self.failures_only_here == 0
            && self.driver_matches == self.driver_calls
            && self.driver_only_here == 0
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

    /// Whether the driver refuses now: the trace gives something back first, or the request fails there.
    fn refuses(&self) -> bool {
        self.front().map_or(self.is_failing, DriverCall::gives_back)
    }
}

impl Supplier for InStep<'_> {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        if let Some(base) = self.follow(CallKind::SegmentAlloc, None, size.0) {
            return Some(base);
        }
        if self.refuses() {
            return None;
        }
        self.differ(CallKind::SegmentAlloc, None, size.0);
        self.otherwise.take(size)
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        if self.follow(CallKind::SegmentFree, Some(base), size.0).is_none() {
            self.differ(CallKind::SegmentFree, Some(base), size.0);
        }
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        // An address space is mapped from its beginning on.
        match self.front() {
            Some(front) if front.kind == CallKind::SegmentMap => Some(front.address),
            _ if self.refuses() => None,
            _ => self.otherwise.reserve(size),
        }
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        if self.follow(CallKind::SegmentMap, Some(address), size.0).is_some() {
            return true;
        }
        if self.refuses() {
            return false;
        }
        self.differ(CallKind::SegmentMap, Some(address), size.0);
        true
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
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
    let request = Request::of(Bytes(act.bytes), lane);
    let options = allocator.options();
    let fits_cap = options.cap.zip(options.rounded(request.bytes)).is_some_and(|(cap, rounded)| {
        let taken = Bytes(allocator.stats().reserved_bytes.current()) + options.segment(rounded);
        // Garbage is collected below the cap too.
        taken <= cap && options.garbage_collection_threshold <= 0.0
    });
    match act.kind {
        ActKind::Request => !grows || fits_cap || allocator.finds(request),
        ActKind::Fail => fits_cap || allocator.finds(request),
        ActKind::Free | ActKind::LetGo | ActKind::Complete => true,
    }
}

/// Runs a trace's program with the trace's driver, and compares everything.
#[must_use]
pub fn compare(program: &Program, options: Options) -> Exact {
    run_in_step(program, options).0
}

/// As [`compare`], and the allocator as it is at the end.
#[must_use]
pub fn run_in_step(program: &Program, options: Options) -> (Exact, TorchCaching) {
    let (mut allocator, lanes, mut tickets) = program.prepare(options);
    let mut exact = Exact {
        allocs: program.requests,
        address_matches: 0,
        size_matches: 0,
        failures: program.failures,
        failure_matches: 0,
        failures_only_here: 0,
        driver_calls: program.driver.len() as u64,
        driver_matches: 0,
        driver_only_here: 0,
        first_mismatch: None,
        stats: Stats::default(),
        peak_at: 0,
        reserved_peak_at: 0,
        growths: Vec::new(),
        flushes: Vec::new(),
    };
    let mut driver = InStep {
        calls: &program.driver,
        at: 0,
        end: 0,
        matches: 0,
        only_here: 0,
        is_failing: false,
        otherwise: Placed::new(Placement::Ascending),
        words: Vec::new(),
    };
    let mut requests = 0;
    let (mut peak, mut reserved_peak) =
        (allocator.stats().allocated_bytes.peak(), allocator.stats().reserved_bytes.peak());
    for (at, (&act, answer)) in program.acts.iter().zip(&program.answers).enumerate() {
        let has_calls = driver.begin(at);
        let lane = lanes.get(usize::from(act.lane)).copied().flatten();
        if has_calls && is_flush(&allocator, driver.group(), Some(act), lane) {
            exact.flushes.push(at);
            allocator.empty_cache(&mut driver);
        }
        match act.kind {
            ActKind::Request => {
                let Some(lane) = lane else { continue };
                let grown = allocator.growths().len();
                let made = allocator.allocate(Request::of(Bytes(act.bytes), lane), &mut driver).ok();
                if let Some(ticket) = tickets.get_mut(act.slot as usize) {
                    *ticket = made.map_or(Ticket::NONE, |made| made.ticket);
                }
                let is_there = made.is_some_and(|made| made.address == answer.address);
                let is_so_large =
                    made.is_some_and(|made| made.size == answer.block || answer.block == Bytes::ZERO);
                exact.address_matches += u64::from(is_there);
                exact.size_matches += u64::from(is_so_large);
                exact.failures_only_here += u64::from(made.is_none());
                requests += 1;
                let new = allocator.growths().get(grown..).unwrap_or_default();
                let asked = Bytes(act.bytes);
                exact.growths.extend(new.iter().map(|&growth| GrowthAt { act: at, asked, growth }));
                if exact.first_mismatch.is_none() && !(is_there && is_so_large) {
                    exact.first_mismatch = Some(Mismatch {
                        act: at,
                        request: requests - 1,
                        asked,
                        address: Some(answer.address),
                        replayed: made.map(|made| (made.address, made.size)),
                        around: around(&allocator, [Some(answer.address), made.map(|made| made.address)]),
                    });
                }
                if allocator.stats().allocated_bytes.peak() > peak {
                    (peak, exact.peak_at) = (allocator.stats().allocated_bytes.peak(), at);
                }
                if allocator.stats().reserved_bytes.peak() > reserved_peak {
                    (reserved_peak, exact.reserved_peak_at) = (allocator.stats().reserved_bytes.peak(), at);
                }
            }
            ActKind::Fail => {
                let Some(lane) = lane else { continue };
                driver.is_failing = true;
                let made = allocator.allocate(Request::of(Bytes(act.bytes), lane), &mut driver).ok();
                driver.is_failing = false;
                match made {
                    None => exact.failure_matches += 1,
                    // Nobody has it in the trace.
                    Some(made) => {
                        let _ = allocator.free(made.ticket);
                        exact.first_mismatch.get_or_insert_with(|| Mismatch {
                            act: at,
                            request: requests,
                            asked: Bytes(act.bytes),
                            address: None,
                            replayed: Some((made.address, made.size)),
                            around: around(&allocator, [Some(made.address), None]),
                        });
                    }
                }
            }
            ActKind::Free | ActKind::LetGo | ActKind::Complete => {
                give(&mut allocator, &mut tickets, act);
            }
        }
        if has_calls || driver.only_here > 0 {
            driver.finish();
            note_difference(&mut exact, &mut driver, at, requests, Bytes(act.bytes));
        }
    }
    let at = program.acts.len();
    if driver.begin(at) {
        if is_flush(&allocator, driver.group(), None, None) {
            exact.flushes.push(at);
            allocator.empty_cache(&mut driver);
        }
        driver.finish();
        note_difference(&mut exact, &mut driver, at, requests, Bytes::ZERO);
    }
    exact.driver_matches = driver.matches;
    exact.driver_only_here = driver.only_here;
    exact.stats = *allocator.stats();
    (exact, allocator)
}

fn note_difference(exact: &mut Exact, driver: &mut InStep<'_>, act: usize, request: u64, asked: Bytes) {
    if driver.words.is_empty() {
        return;
    }
    let words = std::mem::take(&mut driver.words);
    match &mut exact.first_mismatch {
        None => {
            let around = words;
            exact.first_mismatch =
                Some(Mismatch { act, request, asked, address: None, replayed: None, around });
        }
        Some(first) if first.act == act => first.around.extend(words),
        Some(_) => {}
    }
}

/// Frees, lets go of, or completes what is in a slot.
#[inline]
fn give(allocator: &mut TorchCaching, tickets: &mut [Ticket], act: Act) {
    let Some(ticket) = tickets.get_mut(act.slot as usize) else { return };
    // A block that found no room has nothing to free, and one may have been waited for already.
    let _ = match act.kind {
        ActKind::LetGo => allocator.request_free(*ticket),
        ActKind::Complete => allocator.complete_free(std::mem::replace(ticket, Ticket::NONE)),
        _ => allocator.free(std::mem::replace(ticket, Ticket::NONE)),
    };
}

/// What other settings, or another driver, make of the same requests.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first act that failed, with what was asked for and the refusal; `None` where all fits.
    pub failure: Option<(usize, Bytes, Refused)>,
    /// Requests that failed.
    pub failures: u64,
    /// Requests that failed in the trace and are served now.
    pub saved: u64,
    /// The allocator's own count at the end, with all peaks.
    pub stats: Stats,
}

impl Outcome {
    /// Whether every request of the trace is served.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.failures == 0
    }
}

/// Runs a program with other settings or another driver, through to the end even where requests fail. `flushes` are
/// the acts before which everything idle is given back.
pub fn run(program: &Program, options: Options, flushes: &[usize], supplier: &mut impl Supplier) -> Outcome {
    let (mut allocator, lanes, mut tickets) = program.prepare(options);
    let mut outcome = Outcome { failure: None, failures: 0, saved: 0, stats: Stats::default() };
    let mut flushes = flushes.iter().copied().peekable();
    for (at, &act) in program.acts.iter().enumerate() {
        while flushes.peek().is_some_and(|&flush| flush <= at) {
            flushes.next();
            allocator.empty_cache(supplier);
        }
        match act.kind {
            ActKind::Request | ActKind::Fail => {
                let Some(&Some(lane)) = lanes.get(usize::from(act.lane)) else { continue };
                match allocator.allocate(Request::of(Bytes(act.bytes), lane), supplier) {
                    Ok(made) if act.kind == ActKind::Fail => {
                        outcome.saved += 1;
                        let _ = allocator.free(made.ticket);
                    }
                    Ok(made) => {
                        if let Some(ticket) = tickets.get_mut(act.slot as usize) {
                            *ticket = made.ticket;
                        }
                    }
                    Err(refused) => {
                        if let Some(ticket) = tickets.get_mut(act.slot as usize) {
                            *ticket = Ticket::NONE;
                        }
                        outcome.failures += 1;
                        outcome.failure.get_or_insert((at, Bytes(act.bytes), refused));
                    }
                }
            }
            ActKind::Free | ActKind::LetGo | ActKind::Complete => give(&mut allocator, &mut tickets, act),
        }
    }
    outcome.stats = *allocator.stats();
    outcome
}

/// The blocks around some addresses, in words.
fn around(allocator: &TorchCaching, addresses: [Option<u64>; 2]) -> Vec<String> {
    const BESIDE: usize = 2;
    let mut lines: Vec<String> = Vec::new();
    for address in addresses.into_iter().flatten() {
        let Some(base) = allocator.segment_of(address) else {
            lines.push(format!("{address:x} is in no segment of the replay"));
            continue;
        };
        let is_here = |(from, size): (u64, Bytes)| address >= from && address < from.saturating_add(size.0);
        let at = allocator.blocks(base).position(|block| is_here((block.address, block.size))).unwrap_or(0);
        for block in allocator.blocks(base).take(at + BESIDE + 1).skip(at.saturating_sub(BESIDE)) {
            let line = format!("{:x} of size {} {:?}", block.address, block.size.0, block.state);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}
