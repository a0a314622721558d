//! The trace through its own allocator: every address and size compared, and what the pool looked like on the way.

use crate::allocator::bfc::{Bfc, ChunkView, Preset, Request, Ticket};
use crate::allocator::{Placed, Placement, Supplier};
use crate::units::Bytes;

use super::program::Program;
use super::seed;

/// Moments of the curve that are kept.
const POINTS: usize = 256;

/// How far a replay came, and whether it agrees with the trace.
#[derive(Clone, Debug)]
pub struct Exact {
    /// The allocator that was run.
    pub preset: Preset,
    /// Requests.
    pub allocs: u64,
    /// Of these, at the trace's address.
    pub address_matches: u64,
    /// Of these, with the trace's chunk size.
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
    /// The bases of the regions, as the trace gave them.
    pub bases: Vec<u64>,
    /// What was assumed of the time before the trace; empty where it begins at the start.
    pub assumed: Vec<String>,
}

impl Exact {
    /// Whether every address and size is the trace's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.address_matches == self.allocs && self.size_matches == self.allocs
    }
}

/// The first difference between the trace and its replay.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The act.
    pub act: usize,
    /// How many requests came before it.
    pub request: u64,
    /// What was asked for.
    pub asked: Bytes,
    /// Where the trace has it.
    pub address: u64,
    /// How large it is there.
    pub chunk: Bytes,
    /// Where the replay has it, and how large; `None` where it found no room.
    pub replayed: Option<(u64, Bytes)>,
    /// The chunks around both places just before, in words.
    pub around: Vec<String>,
}

/// A time that the pool grew.
#[derive(Clone, Copy, Debug)]
pub struct GrowthAt {
    /// The act.
    pub act: usize,
    /// What was asked for.
    pub asked: Bytes,
    /// The same, rounded.
    pub rounded: Bytes,
    /// Free in the pool then.
    pub free: Bytes,
    /// The largest free chunk then.
    pub largest_free: Bytes,
    /// What was taken.
    pub got: Bytes,
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
    fn of(act: usize, bfc: &Bfc) -> Point {
        let stats = bfc.stats();
        let (in_use, slack, cached) = (stats.in_use, stats.slack(), stats.free());
        Point { act, in_use, slack, cached, largest_free: bfc.largest_free() }
    }
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

/// A replay that can be stopped anywhere.
pub(crate) struct Run<'a> {
    program: &'a Program,
    pub(crate) bfc: Bfc,
    tickets: Vec<Ticket>,
    supplier: FromTrace,
    assumed: Vec<String>,
    bases: Vec<u64>,
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
        Some(Run { program, bfc, tickets, supplier, assumed, bases: Vec::new(), at: 0 })
    }

    /// Runs one act. For a request: where it was put and how large, or `None` where there is no room.
    #[inline]
    fn step(&mut self) -> Option<Option<(u64, Bytes)>> {
        let act = *self.program.acts.get(self.at)?;
        let answer = *self.program.answers.get(self.at)?;
        self.at += 1;
        let Some(bytes) = act.requested() else {
            if let Some(ticket) = self.tickets.get_mut(act.slot()) {
                // A block that found no room has nothing to free.
                let _ = self.bfc.free(std::mem::replace(ticket, Ticket::NONE));
            }
            return Some(None);
        };
        self.supplier.hint = answer.address;
        let made = self.bfc.allocate(Request::of(bytes), &mut self.supplier).ok();
        if let Some(ticket) = self.tickets.get_mut(act.slot()) {
            *ticket = made.map_or(Ticket::NONE, |made| made.ticket);
        }
        Some(made.map(|made| (made.address, made.size)))
    }

    /// Runs until `act` is done.
    pub(crate) fn until(&mut self, act: usize) {
        while self.at <= act && self.step().is_some() {}
    }

    /// Asks for something that the trace does not. Where a new region would lie is made up then.
    pub(crate) fn ask(&mut self, bytes: Bytes) -> Option<u64> {
        let mut supplier = Placed::new(Placement::Ascending);
        self.bfc.allocate(Request::of(bytes), &mut supplier).ok().map(|made| made.address)
    }

    /// Runs everything and compares.
    pub(crate) fn compare(mut self, preset: Preset) -> Exact {
        let program = self.program;
        let mut exact = Exact {
            preset,
            allocs: program.requests,
            address_matches: 0,
            size_matches: 0,
            first_mismatch: None,
            peak: self.bfc.stats().in_use,
            peak_at: 0,
            pool: Bytes::ZERO,
            growths: Vec::new(),
            curve: Vec::new(),
            bases: Vec::new(),
            assumed: std::mem::take(&mut self.assumed),
        };
        let width = program.acts.len().div_ceil(POINTS).max(1);
        let mut highest: Option<Point> = None;
        let mut requests = 0;
        for (at, (act, answer)) in program.acts.iter().zip(&program.answers).enumerate() {
            let growths = self.bfc.growths().len();
            let Some(replayed) = self.step() else { break };
            if let Some(asked) = act.requested() {
                let (address, size) = replayed.unwrap_or_default();
                let is_there = replayed.is_some() && address == answer.address;
                let is_so_large = replayed.is_some() && (size == answer.chunk || answer.chunk == Bytes::ZERO);
                exact.address_matches += u64::from(is_there);
                exact.size_matches += u64::from(is_so_large);
                if exact.first_mismatch.is_none() && !(is_there && is_so_large) {
                    let around =
                        around(&self.bfc, [Some(answer.address), replayed.map(|(address, _)| address)]);
                    let (address, chunk) = (answer.address, answer.chunk);
                    exact.first_mismatch = Some(Mismatch {
                        act: at,
                        request: requests,
                        asked,
                        address,
                        chunk,
                        replayed,
                        around,
                    });
                }
                requests += 1;
                if self.bfc.growths().len() > growths
                    && let Some(growth) = self.bfc.growths().last()
                {
                    self.bases.push(growth.base);
                    exact.growths.push(GrowthAt {
                        act: at,
                        asked,
                        rounded: growth.rounded,
                        free: growth.free,
                        largest_free: growth.largest_free,
                        got: growth.got,
                    });
                }
                let in_use = self.bfc.stats().in_use;
                if in_use > exact.peak {
                    (exact.peak, exact.peak_at) = (in_use, at);
                }
            }
            if highest.is_none_or(|highest| self.bfc.stats().in_use >= highest.in_use) {
                highest = Some(Point::of(at, &self.bfc));
            }
            if (at + 1) % width == 0 {
                exact.curve.extend(highest.take());
            }
        }
        exact.curve.extend(highest);
        exact.pool = self.bfc.stats().peak_pool;
        exact.bases = self.bases;
        exact
    }

    /// The act that asked for what is in use at an address now, for every address.
    pub(crate) fn owners(&self) -> rustc_hash::FxHashMap<u64, usize> {
        let mut in_slot: Vec<Option<usize>> = vec![None; self.program.slots];
        for (at, act) in self.program.acts.iter().enumerate().take(self.at) {
            if let Some(slot) = in_slot.get_mut(act.slot()) {
                *slot = act.requested().map(|_| at);
            }
        }
        let mut by_ticket = Vec::new();
        for (slot, owner) in in_slot.into_iter().enumerate() {
            by_ticket.extend(owner.zip(self.tickets.get(slot).copied()));
        }
        let mut owners = rustc_hash::FxHashMap::default();
        for (owner, ticket) in by_ticket {
            if let Some(address) = self.bfc.address_of(ticket) {
                owners.insert(address, owner);
            }
        }
        owners
    }
}

/// The chunks around some addresses, in words.
fn around(bfc: &Bfc, addresses: [Option<u64>; 2]) -> Vec<String> {
    const BESIDE: usize = 2;
    let mut lines: Vec<String> = Vec::new();
    for address in addresses.into_iter().flatten() {
        let inside = |base: u64, size: Bytes| address >= base && address < base.saturating_add(size.0);
        let Some(region) = bfc.regions().find(|region| inside(region.base, region.size)) else {
            lines.push(format!("{address:x} is in no region of the replay"));
            continue;
        };
        let chunks: Vec<ChunkView> = bfc.chunks(region).collect();
        let at = chunks.iter().position(|chunk| inside(chunk.address, chunk.size)).unwrap_or(0);
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
