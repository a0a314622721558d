//! How little memory the same lifetimes need: lower bounds, and a packing that comes close to them.
//!
//! Load is the sum of live sizes at a moment; no allocator that does not move blocks needs less than its highest value.
//! The packing is one that an allocator with foresight could make. It is found by heuristics, so the minimum lies between.
//! Three heuristics are tried and the best is kept: placing the largest blocks first where no block with an overlapping lifetime is (for a trace
//! with few enough blocks), and first fit and best fit by address in one endless region, in time order.

use std::collections::BTreeMap;

use super::program::Program;
use crate::units::Bytes;

/// With more blocks than this, only the packings in time order are tried.
const MOST_FOR_OFFLINE: usize = 12_000;
/// The maximum number of free blocks that first fit checks.
const MOST_HOLES: usize = 256;
/// With more acts than this, only best fit is tried, because first fit checks many free blocks.
const MOST_FOR_FIRST_FIT: usize = 200_000;

/// What the lifetimes of a program need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Peak of requested bytes.
    pub load_requested: Bytes,
    /// The same with each request rounded as the allocator does: no allocator with this rounding needs less.
    pub load_rounded: Bytes,
    /// What the best packing found needs.
    pub packing: Bytes,
    /// The heuristic that found it.
    pub packed_by: &'static str,
}

/// A block's life, in acts.
#[derive(Clone, Copy, Debug)]
struct Life {
    size: u64,
    born: u32,
    died: u32,
}

/// The bounds of a program. Blocks from before the trace that it frees are part of it.
#[must_use]
pub(super) fn bounds(program: &Program, rounded: impl Fn(Bytes) -> u64 + Copy) -> Bounds {
    let lives = lives(program, rounded);
    let (load_requested, load_rounded) = loads(program, rounded);
    let mut best = (online(program, rounded, true), "best fit, in time order");
    if program.acts.len() <= MOST_FOR_FIRST_FIT {
        let first_fit = online(program, rounded, false);
        if first_fit < best.0 {
            best = (first_fit, "first fit by address, in time order");
        }
    }
    if lives.len() <= MOST_FOR_OFFLINE && best.0 > load_rounded {
        let offline = offline(lives);
        if offline < best.0 {
            best = (offline, "largest first, at the lowest address that is free during its lifetime");
        }
    }
    // Blocks that are always in use need their place in any packing.
    let always = program.always_held;
    Bounds {
        load_requested: Bytes(load_requested) + always,
        load_rounded: Bytes(load_rounded) + always,
        packing: Bytes(best.0.max(load_rounded)) + always,
        packed_by: best.1,
    }
}

impl Program {
    /// Peak of requested bytes.
    #[must_use]
    pub fn load(&self) -> Bytes {
        Bytes(loads(self, |bytes| bytes.0).0) + self.always_held
    }
}

/// An upper bound for a pool of the driver (`cudaMallocAsync`), if it puts each request into the smallest free block that fits,
/// never moves blocks, and grows by whole steps. Its rules are not public, so this is an estimate.
pub(super) fn stream_ordered(program: &Program) -> Bytes {
    const GRANULE: u64 = 512;
    const STEP: u64 = 32 << 20;
    let up = |bytes: u64, step: u64| bytes.checked_next_multiple_of(step).unwrap_or(bytes);
    let top = online(program, |bytes| up(bytes.0, GRANULE), true);
    Bytes(up(top.saturating_add(program.always_held.0), STEP))
}

fn earlier_sizes(program: &Program, rounded: impl Fn(Bytes) -> u64) -> Vec<(u64, u64)> {
    let mut sizes = vec![(0, 0); program.slots];
    for block in &program.earlier {
        if let Some(size) = sizes.get_mut(block.slot as usize) {
            let asked = block.requested.unwrap_or(block.chunk);
            *size = (asked.0, rounded(asked));
        }
    }
    sizes
}

fn loads(program: &Program, rounded: impl Fn(Bytes) -> u64 + Copy) -> (u64, u64) {
    let mut sizes = earlier_sizes(program, rounded);
    let sum = |sizes: &[(u64, u64)]| {
        sizes.iter().fold((0_u64, 0_u64), |(a, b), size| (a.saturating_add(size.0), b.saturating_add(size.1)))
    };
    let (mut asked, mut rounds) = sum(&sizes);
    let (mut most_asked, mut most_rounds) = (asked, rounds);
    for (at, act) in program.acts.iter().enumerate() {
        let Some(size) = sizes.get_mut(act.slot()) else { continue };
        if let Some(bytes) = act.requested() {
            *size = (bytes.0, rounded(bytes));
            asked = asked.saturating_add(size.0);
            rounds = rounds.saturating_add(size.1);
            let brief = program.at_once(at).iter();
            let brief = brief.fold((0_u64, 0_u64), |(a, b), &bytes| {
                (a.saturating_add(bytes.0), b.saturating_add(rounded(bytes)))
            });
            most_asked = most_asked.max(asked.saturating_add(brief.0));
            most_rounds = most_rounds.max(rounds.saturating_add(brief.1));
        } else if act.ends() {
            asked = asked.saturating_sub(size.0);
            rounds = rounds.saturating_sub(size.1);
            *size = (0, 0);
        }
    }
    (most_asked, most_rounds)
}

fn lives(program: &Program, rounded: impl Fn(Bytes) -> u64) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut in_slot = vec![usize::MAX; program.slots];
    for block in &program.earlier {
        if let Some(slot) = in_slot.get_mut(block.slot as usize) {
            *slot = lives.len();
            let size = rounded(block.requested.unwrap_or(block.chunk));
            lives.push(Life { size, born: 0, died: u32::MAX });
        }
    }
    for (at, act) in (0_u32..).zip(&program.acts) {
        let Some(slot) = in_slot.get_mut(act.slot()) else { continue };
        if let Some(bytes) = act.requested() {
            *slot = lives.len();
            lives.push(Life { size: rounded(bytes), born: at, died: u32::MAX });
        } else if let Some(life) = lives.get_mut(*slot).filter(|_| act.ends()) {
            life.died = at;
        }
    }
    lives
}

/// Places the largest blocks first, each at the lowest address that is free during its lifetime.
fn offline(mut lives: Vec<Life>) -> u64 {
    lives.sort_by_key(|life| {
        (std::cmp::Reverse(life.size), std::cmp::Reverse(life.died.saturating_sub(life.born)), life.born)
    });
    let mut placed: Vec<(u64, u64, Life)> = Vec::with_capacity(lives.len());
    let mut top = 0;
    for life in lives {
        // Placed blocks stay in order of their addresses, so that the first gap is found in one pass.
        let mut at = 0_u64;
        for &(begin, end, other) in &placed {
            let same_time = other.born < life.died && life.born < other.died;
            if !same_time {
                continue;
            }
            if begin >= at.saturating_add(life.size) {
                break;
            }
            at = at.max(end);
        }
        let end = at.saturating_add(life.size);
        top = top.max(end);
        let place = placed.partition_point(|&(begin, ..)| begin < at);
        placed.insert(place, (at, end, life));
    }
    top
}

/// Serves requests in order from one endless region, splitting and joining freely.
fn online(program: &Program, rounded: impl Fn(Bytes) -> u64, is_best: bool) -> u64 {
    let mut holes = Holes::default();
    let mut blocks: Vec<(u64, u64)> = vec![(0, 0); program.slots];
    let place = |holes: &mut Holes, size: u64| (holes.take(size, is_best), size);
    for block in &program.earlier {
        let size = rounded(block.requested.unwrap_or(block.chunk));
        if let Some(slot) = blocks.get_mut(block.slot as usize) {
            *slot = place(&mut holes, size);
        }
    }
    for act in &program.acts {
        let Some(slot) = blocks.get_mut(act.slot()) else { continue };
        if let Some(bytes) = act.requested() {
            *slot = place(&mut holes, rounded(bytes));
        } else if act.ends() {
            holes.give(slot.0, slot.1);
            *slot = (0, 0);
        }
    }
    holes.top
}

/// Free ranges below the highest byte used so far.
#[derive(Default)]
struct Holes {
    by_address: BTreeMap<u64, u64>,
    by_size: std::collections::BTreeSet<(u64, u64)>,
    top: u64,
}

impl Holes {
    fn take(&mut self, size: u64, is_best: bool) -> u64 {
        let found = if is_best {
            self.by_size.range((size, 0)..).next().copied()
        } else {
            // The lowest range that fits is near the beginning in most traces; otherwise the smallest is used.
            let low = self.by_address.iter().take(MOST_HOLES).find(|&(_, &length)| length >= size);
            let smallest = || self.by_size.range((size, 0)..).next().copied();
            low.map(|(&at, &length)| (length, at)).or_else(smallest)
        };
        if let Some((length, at)) = found {
            self.remove(at, length);
            if length > size {
                self.insert(at.saturating_add(size), length - size);
            }
            return at;
        }
        // A free range at the top is used, and the top moves up by the rest.
        let last = self.by_address.last_key_value().map(|(&at, &length)| (at, length));
        let at = match last {
            Some((at, length)) if at.saturating_add(length) == self.top => {
                self.remove(at, length);
                at
            }
            _ => self.top,
        };
        self.top = at.saturating_add(size);
        at
    }

    fn give(&mut self, mut at: u64, mut length: u64) {
        if length == 0 {
            return;
        }
        let below = self.by_address.range(..at).next_back().map(|(&at, &length)| (at, length));
        if let Some((low, size)) = below
            && low.saturating_add(size) == at
        {
            self.remove(low, size);
            at = low;
            length = length.saturating_add(size);
        }
        let above = at.saturating_add(length);
        if let Some(&size) = self.by_address.get(&above) {
            self.remove(above, size);
            length = length.saturating_add(size);
        }
        self.insert(at, length);
    }

    fn insert(&mut self, at: u64, length: u64) {
        self.by_address.insert(at, length);
        self.by_size.insert((length, at));
    }

    fn remove(&mut self, at: u64, length: u64) {
        self.by_address.remove(&at);
        self.by_size.remove(&(length, at));
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::Act;
    use super::*;

    fn program(acts: &[(u64, u32)]) -> Program {
        let act = |&(bytes, slot): &(u64, u32)| {
            if bytes > 0 { Act::request(Bytes(bytes), slot) } else { Act::free(slot) }
        };
        Program { acts: acts.iter().map(act).collect(), slots: 8, ..Program::default() }
    }

    fn rounded(bytes: Bytes) -> u64 {
        bytes.0.next_multiple_of(256)
    }

    #[test]
    fn a_packing_with_foresight_is_smaller() {
        // Two blocks, the first goes, a larger one comes: in the order of time nothing fits below.
        let program = program(&[(1024, 0), (256, 1), (0, 0), (2048, 2), (0, 1), (0, 2)]);
        let bounds = bounds(&program, rounded);
        assert_eq!(bounds.load_rounded, Bytes(2304));
        assert_eq!(bounds.packing, Bytes(2304));
        assert_eq!(online(&program, rounded, false), 1024 + 256 + 2048);
    }

    #[test]
    fn what_is_freed_at_once_counts() {
        let mut program = program(&[(100, 0), (300, 1), (0, 1), (200, 2)]);
        program.driver.at_once = vec![(0, [Bytes(500), Bytes(7)]), (3, [Bytes(1), Bytes(1)])];
        assert_eq!(program.load(), Bytes(607));
    }

    #[test]
    fn rounding_is_told_apart() {
        let bounds = bounds(&program(&[(1, 0), (300, 1), (0, 0)]), rounded);
        assert_eq!((bounds.load_requested, bounds.load_rounded), (Bytes(301), Bytes(768)));
        assert_eq!(bounds.packing, Bytes(768));
    }
}
