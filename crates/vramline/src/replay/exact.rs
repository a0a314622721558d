//! The trace through its own allocator: every address and size compared, and what the pool looked like on the way.
//!
//! Allocators differ in what they do; what is asked of a replay does not. [`Replaying`] is a replay that can be stopped
//! anywhere, [`Heap`] is the pool as it is then.

use rustc_hash::FxHashMap;

use crate::allocator::bfc::{Bfc, ChunkView, Preset, RegionView, Request, Ticket};
use crate::allocator::{Placed, Placement, Supplier};
use crate::units::Bytes;

use super::program::{ActKind, Program};
use super::seed;

/// Moments of the curve that are kept.
const POINTS: usize = 256;

/// How far a replay came, and whether it agrees with the trace.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// Requests that the trace served.
    pub allocs: u64,
    /// Of these, at the trace's address.
    pub address_matches: u64,
    /// Of these, with the trace's chunk size; one that the trace does not tell counts.
    pub size_matches: u64,
    /// Where it first differs.
    pub first_mismatch: Option<Mismatch>,
    /// The most in use.
    pub peak: Bytes,
    /// The act that reached it first.
    pub peak_at: usize,
    /// The most taken from the driver.
    pub pool: Bytes,
    /// Each time it grew.
    pub growths: Vec<GrowthAt>,
    /// The pool over time, with every peak in it.
    pub curve: Vec<Point>,
    /// What was assumed of the time before the trace; empty where it begins at the start.
    pub assumed: Vec<String>,
}

impl Exact {
    /// Whether every address and size is the trace's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.address_matches == self.allocs
            && self.size_matches == self.allocs
            && self.first_mismatch.is_none()
    }
}

/// The first difference between the trace and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The act; one more than there are acts where something is left at the end.
    pub act: usize,
    /// How many requests came before it.
    pub request: u64,
    /// The requested bytes.
    pub asked: Bytes,
    /// Where the trace has it; `None` where it failed there, or where only calls to the driver differ.
    pub address: Option<u64>,
    /// How large it is there.
    pub chunk: Bytes,
    /// Where the replay has it, and how large; `None` where it found no room.
    pub replayed: Option<(u64, Bytes)>,
    /// What differs about calls to the driver, and the chunks around both places, in words.
    pub around: Vec<String>,
}

/// A time that the pool grew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrowthAt {
    /// The act.
    pub act: usize,
    /// The requested bytes.
    pub asked: Bytes,
    /// The same, rounded.
    pub rounded: Bytes,
    /// Free in the pool then.
    pub free: Bytes,
    /// Of that, where the request may look: of its stream, pool and size class.
    pub reachable: Bytes,
    /// The largest free chunk there.
    pub largest_free: Bytes,
    /// The largest free chunk elsewhere.
    pub largest_elsewhere: Bytes,
    /// Given back to the driver for this request before it was served.
    pub released: Bytes,
    /// What was taken.
    pub got: Bytes,
    /// Where it begins.
    pub base: u64,
}

/// The pool at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// After this act.
    pub act: usize,
    /// In chunks in use.
    pub in_use: Bytes,
    /// Of that, beyond what was asked for.
    pub slack: Bytes,
    /// Taken from the driver and free.
    pub cached: Bytes,
    /// The largest free chunk.
    pub largest_free: Bytes,
}

impl Point {
    fn of(act: usize, heap: &impl Heap) -> Point {
        Point {
            act,
            in_use: heap.in_use(),
            slack: heap.slack(),
            cached: heap.cached(),
            largest_free: heap.largest_free(),
        }
    }
}

/// A chunk of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) size: Bytes,
    pub(crate) in_use: bool,
}

/// A pool as it is at some moment.
pub(crate) trait Heap {
    /// In chunks in use.
    fn in_use(&self) -> Bytes;
    /// What was asked for of that.
    fn requested(&self) -> Bytes;
    /// In chunks whose owners have let go of them, and that a stream still uses.
    fn pending(&self) -> Bytes {
        Bytes::ZERO
    }
    /// Taken from the driver.
    fn taken(&self) -> Bytes;
    fn peak_taken(&self) -> Bytes;
    fn largest_free(&self) -> Bytes;
    fn free_sizes(&self) -> impl Iterator<Item = Bytes>;
    fn regions(&self) -> Vec<RegionView>;
    /// The chunks of the region that begins at an address.
    fn chunks(&self, base: u64) -> Vec<Piece>;
    /// The region that an address lies in.
    fn region_of(&self, address: u64) -> Option<u64>;

    fn slack(&self) -> Bytes {
        self.in_use().saturating_sub(self.requested())
    }

    fn cached(&self) -> Bytes {
        self.taken().saturating_sub(self.in_use()).saturating_sub(self.pending())
    }
}

impl Heap for Bfc {
    #[inline]
    fn in_use(&self) -> Bytes {
        self.stats().in_use
    }

    fn requested(&self) -> Bytes {
        self.stats().requested
    }

    fn taken(&self) -> Bytes {
        self.stats().pool
    }

    fn peak_taken(&self) -> Bytes {
        self.stats().peak_pool
    }

    fn largest_free(&self) -> Bytes {
        Bfc::largest_free(self)
    }

    fn free_sizes(&self) -> impl Iterator<Item = Bytes> {
        Bfc::free_sizes(self)
    }

    fn regions(&self) -> Vec<RegionView> {
        Bfc::regions(self).collect()
    }

    fn chunks(&self, base: u64) -> Vec<Piece> {
        let piece = |chunk: ChunkView| {
            let ChunkView { address, size, in_use, .. } = chunk;
            Piece { address, size, in_use }
        };
        Bfc::chunks(self, RegionView { base, size: Bytes::ZERO }).map(piece).collect()
    }

    fn region_of(&self, address: u64) -> Option<u64> {
        let holds = |region: &RegionView| address >= region.base && address - region.base < region.size.0;
        Bfc::regions(self).find(holds).map(|region| region.base)
    }
}

/// What one act came to.
#[derive(Debug, Default)]
pub(crate) struct Stepped {
    /// For a request: where it was put and how large; `None` where there is no room, and for anything else.
    pub(crate) made: Option<(u64, Bytes)>,
    /// What differs from the trace besides, in words.
    pub(crate) words: Vec<String>,
}

/// A replay that can be stopped anywhere.
pub(crate) trait Replaying {
    type Heap: Heap;

    fn program(&self) -> &Program;
    /// How many acts were run.
    fn done(&self) -> usize;
    fn heap(&self) -> &Self::Heap;
    /// Runs one act; `None` where there are no more.
    fn step(&mut self) -> Option<Stepped>;
    /// What is left to do after the last act, where that differs from the trace.
    fn finish(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Where the chunk in a slot lies.
    fn address_in(&self, slot: usize) -> Option<u64>;
    fn growth_count(&self) -> usize;
    /// A growth, without the act and what was asked for.
    fn growth(&self, number: usize) -> Option<GrowthAt>;

    /// Runs until `act` is done.
    fn until(&mut self, act: usize) {
        while self.done() <= act && self.step().is_some() {}
    }

    /// The act that asked for what is in use at an address now, for every address.
    fn owners(&self) -> FxHashMap<u64, usize> {
        let program = self.program();
        let mut in_slot: Vec<Option<usize>> = vec![None; program.slots];
        for (at, act) in program.acts.iter().enumerate().take(self.done()) {
            if let Some(slot) = in_slot.get_mut(act.slot()) {
                *slot = act.requested().map(|_| at);
            }
        }
        let owners = in_slot.into_iter().enumerate();
        owners.filter_map(|(slot, owner)| Some((self.address_in(slot)?, owner?))).collect()
    }
}

/// Runs everything and compares.
pub(crate) fn compare(run: &mut impl Replaying) -> Exact {
    let count = run.program().acts.len();
    let mut exact = Exact { peak: run.heap().in_use(), ..Exact::default() };
    let width = count.div_ceil(POINTS).max(1);
    let mut until = width;
    let mut highest: Option<Point> = None;
    let mut grown = run.growth_count();
    for at in 0..count {
        let Some(stepped) = run.step() else { break };
        let (Some(act), Some(answer)) =
            (run.program().acts.get(at).copied(), run.program().answers.get(at).copied())
        else {
            break;
        };
        let mut is_right = stepped.words.is_empty();
        let is_request = act.kind() == ActKind::Request;
        if is_request {
            let is_there = stepped.made.is_some_and(|(address, _)| address == answer.address);
            let is_so_large =
                stepped.made.is_some_and(|(_, size)| size == answer.chunk || answer.chunk == Bytes::ZERO);
            exact.allocs += 1;
            exact.address_matches += u64::from(is_there);
            exact.size_matches += u64::from(is_so_large);
            is_right &= is_there && is_so_large;
            let in_use = run.heap().in_use();
            if in_use > exact.peak {
                (exact.peak, exact.peak_at) = (in_use, at);
            }
            while grown < run.growth_count() {
                let growth = run.growth(grown).unwrap_or_default();
                exact.growths.push(GrowthAt { act: at, asked: act.asked().unwrap_or_default(), ..growth });
                grown += 1;
            }
        }
        // What a request that failed took all the same is of no act that was served.
        grown = run.growth_count();
        if !is_right && exact.first_mismatch.is_none() {
            let address = is_request.then_some(answer.address);
            let mut around = stepped.words;
            around.extend(self::around(run.heap(), [address, stepped.made.map(|(address, _)| address)]));
            exact.first_mismatch = Some(Mismatch {
                act: at,
                request: exact.allocs.saturating_sub(u64::from(is_request)),
                asked: act.asked().unwrap_or_default(),
                address,
                chunk: if is_request { answer.chunk } else { Bytes::ZERO },
                replayed: stepped.made,
                around,
            });
        }
        if highest.is_none_or(|highest| run.heap().in_use() >= highest.in_use) {
            highest = Some(Point::of(at, run.heap()));
        }
        if at + 1 == until {
            until += width;
            exact.curve.extend(highest.take());
        }
    }
    exact.curve.extend(highest);
    let around = run.finish();
    if !around.is_empty() && exact.first_mismatch.is_none() {
        exact.first_mismatch = Some(Mismatch {
            act: count,
            request: exact.allocs,
            asked: Bytes::ZERO,
            address: None,
            chunk: Bytes::ZERO,
            replayed: None,
            around,
        });
    }
    exact.pool = run.heap().peak_taken();
    exact
}

/// Gives the trace's own bases: a region is taken for a request that no free chunk can hold, so that request's address is
/// where the region begins.
struct FromTrace {
    hint: u64,
    taken: Vec<(u64, u64)>,
    otherwise: Placed,
}

impl Supplier for FromTrace {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        let end = self.hint.checked_add(size.0);
        let is_apart = |end: u64| self.taken.iter().all(|&(low, high)| end <= low || high <= self.hint);
        let base = match end {
            Some(end) if is_apart(end) => self.hint,
            // The trace has this address in a region already, so it did not grow here.
            _ => self.otherwise.take(size)?,
        };
        self.taken.push((base, base.saturating_add(size.0)));
        Some(base)
    }

    fn give_back(&mut self, base: u64, _: Bytes) {
        self.taken.retain(|&(low, _)| low != base);
    }
}

/// A replay of a BFC pool.
pub(crate) struct Run<'a> {
    program: &'a Program,
    pub(crate) bfc: Bfc,
    tickets: Vec<Ticket>,
    supplier: FromTrace,
    pub(crate) assumed: Vec<String>,
    at: usize,
}

impl<'a> Run<'a> {
    /// A pool at the beginning of the trace. `None` where the settings make no pool.
    pub(crate) fn new(
        program: &'a Program,
        preset: Preset,
        name: &str,
        limit: Bytes,
        is_from_start: bool,
    ) -> Option<Run<'a>> {
        let mut bfc = Bfc::new(name, limit, preset.options)?;
        let mut tickets = vec![Ticket::NONE; program.slots];
        let mut assumed = Vec::new();
        let mut taken = Vec::new();
        if !is_from_start {
            let (seeded, words) = seed::seed(&mut bfc, program);
            for (slot, ticket) in seeded {
                if let Some(place) = tickets.get_mut(slot) {
                    *place = ticket;
                }
            }
            assumed = words;
            taken = bfc
                .regions()
                .map(|region| (region.base, region.base.saturating_add(region.size.0)))
                .collect();
        }
        let supplier = FromTrace { hint: 0, taken, otherwise: Placed::new(Placement::Ascending) };
        Some(Run { program, bfc, tickets, supplier, assumed, at: 0 })
    }

    /// Asks for something that the trace does not. Where a new region would lie is made up then.
    pub(crate) fn ask(&mut self, bytes: Bytes) -> Option<u64> {
        let mut supplier = Placed::new(Placement::Ascending);
        self.bfc.allocate(Request::of(bytes), &mut supplier).ok().map(|made| made.address)
    }
}

impl Replaying for Run<'_> {
    type Heap = Bfc;

    fn program(&self) -> &Program {
        self.program
    }

    fn done(&self) -> usize {
        self.at
    }

    fn heap(&self) -> &Bfc {
        &self.bfc
    }

    #[inline]
    fn step(&mut self) -> Option<Stepped> {
        let act = *self.program.acts.get(self.at)?;
        let answer = *self.program.answers.get(self.at)?;
        self.at += 1;
        let Some(bytes) = act.requested() else {
            if let Some(ticket) = self.tickets.get_mut(act.slot()) {
                // A block that found no room has nothing to free.
                let _ = self.bfc.free(std::mem::replace(ticket, Ticket::NONE));
            }
            return Some(Stepped::default());
        };
        self.supplier.hint = answer.address;
        let made = self.bfc.allocate(Request::of(bytes), &mut self.supplier).ok();
        if let Some(ticket) = self.tickets.get_mut(act.slot()) {
            *ticket = made.map_or(Ticket::NONE, |made| made.ticket);
        }
        Some(Stepped { made: made.map(|made| (made.address, made.size)), words: Vec::new() })
    }

    fn address_in(&self, slot: usize) -> Option<u64> {
        self.bfc.address_of(*self.tickets.get(slot)?)
    }

    fn growth_count(&self) -> usize {
        self.bfc.growths().len()
    }

    fn growth(&self, number: usize) -> Option<GrowthAt> {
        self.bfc.growths().get(number).map(|growth| GrowthAt {
            rounded: growth.rounded,
            free: growth.free,
            reachable: growth.free,
            largest_free: growth.largest_free,
            got: growth.got,
            base: growth.base,
            ..GrowthAt::default()
        })
    }
}

/// The chunks around some addresses, in words.
fn around(heap: &impl Heap, addresses: [Option<u64>; 2]) -> Vec<String> {
    const BESIDE: usize = 2;
    let mut lines: Vec<String> = Vec::new();
    for address in addresses.into_iter().flatten() {
        let Some(base) = heap.region_of(address) else {
            lines.push(format!("{address:x} is in no region of the replay"));
            continue;
        };
        let chunks = heap.chunks(base);
        let holds = |chunk: &Piece| address >= chunk.address && address - chunk.address < chunk.size.0;
        let at = chunks.iter().position(holds).unwrap_or(0);
        for chunk in chunks.iter().take(at + BESIDE + 1).skip(at.saturating_sub(BESIDE)) {
            let word = if chunk.in_use { "in use" } else { "free" };
            let line = format!("{:x} of size {} {word}", chunk.address, chunk.size.0);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}
