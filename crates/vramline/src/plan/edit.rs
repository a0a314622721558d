//! A program as fixes write it anew: requests that are dropped, of another size, cast or freed at another time, and copies in addition.

use rustc_hash::FxHashMap;

use super::casts::{Becomes, Copied};
use super::updates::Change;
use crate::replay::{Act, Program};
use crate::units::Bytes;

/// What a fix does to a request.
#[derive(Clone, Copy)]
pub(super) enum Edit {
    Keep(u64),
    Drop,
    /// The bytes of a request, and what becomes of it.
    Changed(Change, u64),
    /// The bytes of a tensor in 16 bits.
    Cast(Becomes, u64),
}

impl Edit {
    /// What is kept in the end. What is cast later, when it would be away, is cast at once.
    pub(super) fn settled(&mut self) -> Option<Bytes> {
        *self = match *self {
            Edit::Cast(Becomes::NarrowedAt(_), bytes) => Edit::Cast(Becomes::Narrowed, bytes),
            Edit::Cast(Becomes::WidenedAt(_) | Becomes::WidenedUntil(_), bytes) => {
                Edit::Cast(Becomes::Widened, bytes)
            }
            other => other,
        };
        match *self {
            Edit::Drop
            | Edit::Changed(..)
            | Edit::Cast(Becomes::HalfUntil(_) | Becomes::WholeUntil(_), _) => None,
            Edit::Keep(bytes) | Edit::Cast(Becomes::Widened, bytes) => Some(Bytes(bytes)),
            Edit::Cast(_, bytes) => Some(Bytes(bytes.div_ceil(2))),
        }
    }
}

/// Copies that are made and freed while a program is written.
pub(super) struct Copies {
    all: Vec<Copied>,
    /// By the act before which they are made.
    begins: FxHashMap<usize, Vec<usize>>,
    /// Slots of those that are there, by the act before which they are freed.
    ends: FxHashMap<usize, Vec<u32>>,
}

impl Copies {
    pub(super) fn new(all: Vec<Copied>) -> Copies {
        let mut begins: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (number, copied) in all.iter().enumerate() {
            begins.entry(copied.from).or_default().push(number);
        }
        Copies { all, begins, ends: FxHashMap::default() }
    }

    pub(super) fn begin(&mut self, at: usize, writer: &mut Writer) {
        for number in self.begins.remove(&at).unwrap_or_default() {
            let Some(&copied) = self.all.get(number) else { continue };
            let slot = writer.hold(copied.bytes);
            self.ends.entry(copied.until).or_default().push(slot);
        }
    }

    pub(super) fn end(&mut self, at: usize, writer: &mut Writer) {
        let ended = self.ends.remove(&at).unwrap_or_default();
        writer.program.acts.extend(ended.into_iter().map(Act::free));
    }
}

/// A program as it is written anew.
pub(super) struct Writer {
    pub(super) program: Program,
    pub(super) slots: usize,
    /// By slot, whether its request was dropped.
    dropped: Vec<bool>,
    /// By the act before which it happens: the request, and the slot that is freed for it.
    later: FxHashMap<usize, Vec<(Act, u32)>>,
    /// By the act before which they are freed: slots.
    ends: FxHashMap<usize, Vec<u32>>,
}

impl Writer {
    pub(super) fn new(base: &Program) -> Writer {
        let program = base.resized(0);
        let (later, ends) = (FxHashMap::default(), FxHashMap::default());
        Writer { program, slots: base.slots, dropped: vec![false; base.slots], later, ends }
    }

    /// Requests something that is freed sooner or later than in the probe.
    fn change(&mut self, change: Change, bytes: u64) {
        match change {
            Change::Brief(times) => {
                let slots: Vec<u32> = (0..times).map(|_| self.hold(bytes)).collect();
                self.program.acts.extend(slots.into_iter().map(Act::free));
            }
            Change::Until(at) => {
                let slot = self.hold(bytes);
                self.ends.entry(at).or_default().push(slot);
            }
        }
    }

    /// Does what waited for an act.
    pub(super) fn reach(&mut self, at: usize) {
        self.program.acts.extend(self.ends.remove(&at).unwrap_or_default().into_iter().map(Act::free));
        for (act, slot) in self.later.remove(&at).unwrap_or_default() {
            self.program.acts.extend([act, Act::free(slot)]);
        }
    }

    /// Requests something that is computed in one type and kept in another.
    fn cast(&mut self, act: Act, becomes: Becomes, bytes: u64) {
        let half = bytes.div_ceil(2);
        let lane = u16::try_from(act.lane()).unwrap_or(0);
        let kept = |bytes: u64| act.asking(Bytes(bytes), lane);
        match becomes {
            Becomes::Half => self.program.acts.push(kept(half)),
            Becomes::HalfUntil(at) => self.change(Change::Until(at), half),
            Becomes::WholeUntil(at) => self.change(Change::Until(at), bytes),
            Becomes::Widened | Becomes::Narrowed => {
                let (made, then) = if becomes == Becomes::Widened { (half, bytes) } else { (bytes, half) };
                let slot = self.hold(made);
                self.program.acts.extend([kept(then), Act::free(slot)]);
            }
            Becomes::WidenedAt(at) | Becomes::NarrowedAt(at) => {
                let is_wider = matches!(becomes, Becomes::WidenedAt(_));
                let (made, then) = if is_wider { (half, bytes) } else { (bytes, half) };
                let slot = self.hold(made);
                self.later.entry(at).or_default().push((kept(then), slot));
            }
            Becomes::WidenedUntil(at) => {
                let made = self.hold(half);
                let slot = self.hold(bytes);
                self.program.acts.push(Act::free(made));
                self.later.entry(at).or_default().push((kept(half), slot));
            }
        }
    }

    /// Adds a request that is not in the probe; returns its slot.
    pub(super) fn hold(&mut self, bytes: u64) -> u32 {
        let slot = u32::try_from(self.slots).unwrap_or(u32::MAX);
        self.slots += 1;
        self.program.acts.push(Act::request(Bytes(bytes.max(1)), slot));
        slot
    }

    pub(super) fn take(&mut self, act: Act, edit: Option<Edit>) {
        let Some(dropped) = self.dropped.get_mut(act.slot()) else { return };
        match edit {
            Some(Edit::Drop) => *dropped = true,
            Some(Edit::Keep(bytes)) => {
                *dropped = false;
                let lane = u16::try_from(act.lane()).unwrap_or(0);
                self.program.acts.push(act.asking(Bytes(bytes), lane));
            }
            Some(Edit::Cast(becomes, bytes)) => {
                *dropped = matches!(becomes, Becomes::HalfUntil(_) | Becomes::WholeUntil(_));
                self.cast(act, becomes, bytes);
            }
            Some(Edit::Changed(change, bytes)) => {
                *dropped = true;
                self.change(change, bytes);
            }
            None if *dropped => {}
            None => self.program.acts.push(act),
        }
    }
}
