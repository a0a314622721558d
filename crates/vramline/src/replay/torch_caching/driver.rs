//! The driver as the trace saw it: gives what it gave there, and counts what differs.

use crate::allocator::torch_caching::{Lane, PoolId, Request, Stats, TorchCaching};
use crate::allocator::{Placed, Placement, Supplier};
use crate::event::caching::CallKind;
use crate::replay::program::{Act, ActKind, DriverCall};
use crate::units::Bytes;

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
    /// Requests that restored a private pool, at the address of the trace.
    pub(crate) restored: u64,
    /// Private pools that the program no longer used from an act on.
    pub(crate) unused_pools: Vec<(usize, PoolId)>,
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

impl DriverCall {
    pub(super) fn gives_back(&self) -> bool {
        matches!(self.kind, CallKind::SegmentFree | CallKind::SegmentUnmap)
    }
}

/// The driver as the trace saw it.
pub(super) struct InStep<'a> {
    calls: &'a [DriverCall],
    at: usize,
    /// The end of what belongs to the act that runs.
    end: usize,
    pub(super) matches: u64,
    pub(super) only_here: u64,
    /// Whether it refuses what the trace does not give.
    pub(super) is_failing: bool,
    /// Taken from it now.
    taken: u64,
    /// The least that it refused, with what was taken then.
    pub(super) refused: Option<u64>,
    otherwise: Placed,
    pub(super) words: Vec<String>,
}

impl<'a> InStep<'a> {
    /// The driver before the first of its calls, with so many bytes taken.
    pub(super) fn new(calls: &'a [DriverCall], taken: u64) -> InStep<'a> {
        InStep {
            calls,
            at: 0,
            end: 0,
            matches: 0,
            only_here: 0,
            is_failing: false,
            taken,
            refused: None,
            otherwise: Placed::new(Placement::Ascending),
            words: Vec::new(),
        }
    }
}

impl InStep<'_> {
    const WORDS: usize = 8;

    fn front(&self) -> Option<&DriverCall> {
        self.calls.get(self.at..self.end)?.first()
    }

    /// All calls of the act that are left.
    pub(super) fn group(&self) -> &[DriverCall] {
        self.calls.get(self.at..self.end).unwrap_or_default()
    }

    /// Makes the calls before an act those that are followed.
    #[inline]
    pub(super) fn begin(&mut self, act: usize) -> bool {
        while self.calls.get(self.end).is_some_and(|call| call.before as usize <= act) {
            self.end += 1;
        }
        self.at < self.end
    }

    /// Leaves calls that were not made here.
    pub(super) fn finish(&mut self) {
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
        // An address space is mapped from its beginning on, perhaps only after something was returned: it costs nothing itself.
        match self.group().iter().find(|call| call.kind == CallKind::SegmentMap) {
            Some(map) => Some(map.address),
            None => self.otherwise.reserve(size),
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
pub(super) fn is_flush(
    allocator: &TorchCaching,
    group: &[DriverCall],
    act: Option<Act>,
    lane: Option<Lane>,
) -> bool {
    let Some(first) = group.first().filter(|first| first.gives_back()) else { return false };
    if first.is_asked {
        return true;
    }
    let Some((act, lane)) = act.zip(lane) else { return true };
    // While a graph is captured, nothing is returned to make room.
    if allocator.pool_of(lane) != PoolId::DEFAULT {
        return true;
    }
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
