//! The program of a pool of PyTorch's: requests and frees, with the driver's calls between them.

use rustc_hash::FxHashMap;

use crate::event::Events;
use crate::event::caching::{Call, CallKind, Calls, EarlierSegment};
use crate::replay::program::{Act, ActKind, Answer, DriverCall, Earlier, Program};
use crate::trace::PoolTrace;
use crate::units::Bytes;

/// How many blocks may be waited for at once.
const LONGEST_WAIT: usize = 4096;

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
                let Call { kind, address, size: Bytes(size), lane, is_asked, .. } = *call;
                self.program.driver.calls.push(DriverCall { before, kind, address, size, lane, is_asked });
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

/// The program of a pool: its events, and the calls between them. Private pools that the trace does not name are inferred if it
/// names others.
#[must_use]
pub fn program(events: &Events, pool: &PoolTrace, calls: &Calls) -> Program {
    build(events, pool, calls, names_private_pools(calls))
}

/// The program with the other assumption about pools that the trace does not name: all of them are the default pool, or they are
/// inferred. `None` if the trace names them all.
pub(in super::super) fn other_program(events: &Events, pool: &PoolTrace, calls: &Calls) -> Option<Program> {
    let returns = |call: &Call| matches!(call.kind, CallKind::SegmentFree | CallKind::SegmentUnmap);
    let is_untold = !calls.tells_pools && calls.list.iter().any(returns);
    is_untold.then(|| build(events, pool, calls, !names_private_pools(calls)))
}

fn names_private_pools(calls: &Calls) -> bool {
    calls.lanes.iter().any(|lane| lane.0 != 0)
}

fn build(events: &Events, pool: &PoolTrace, calls: &Calls, infers_pools: bool) -> Program {
    let mut program = recorded(events, pool, calls);
    if infers_pools && !calls.tells_pools {
        program.driver.inferred = super::pools::infer(&mut program, &super::options(&calls.settings));
    }
    program.driver.restores = super::restore::restores(&program);
    program
}

/// The program as the trace has it.
fn recorded(events: &Events, pool: &PoolTrace, calls: &Calls) -> Program {
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
