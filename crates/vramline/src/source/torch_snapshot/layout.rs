//! The segments and blocks of one device, updated with each entry of its trace.
//!
//! An entry has the requested size, not the size of the block. That follows from the addresses: requests are
//! rounded up, and a large block keeps a remainder of at most 1 MiB, which the allocator does not split off. A free
//! large block is always larger than that, so a smaller gap after a block is its rounding.
//!
//! The state before the trace is the final state with the trace undone, last entry first.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::reading::{Segment, Settings, State};
use super::value::{ABSENT, Action, Entry};
use crate::event::caching::EarlierSegment;
use crate::units::Bytes;

const SMALL_SEGMENT: u64 = 2 << 20;
const QUANTUM: u64 = 512;
/// Remainders up to this stay with a large block.
const LARGEST_SLACK: u64 = 1 << 20;

/// The requested size, rounded up as the allocator does.
pub(crate) fn rounded(size: u64, settings: &Settings) -> u64 {
    if size < QUANTUM {
        return QUANTUM;
    }
    let up = |quantum: u64| size.checked_next_multiple_of(quantum).unwrap_or(size);
    let power = size.ilog2();
    let index = power.saturating_sub(20).min(15) as usize;
    let divisions = settings.divisions.get(index).copied().unwrap_or(0);
    if divisions > 1 && size > QUANTUM.saturating_mul(divisions) {
        if size.is_power_of_two() {
            return size;
        }
        let quantum = (1u64 << power) >> divisions.ilog2();
        return if quantum == 0 { (1u64 << power).saturating_mul(2) } else { up(quantum) };
    }
    up(QUANTUM)
}

/// A block that is in use or waits for another stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) requested: u64,
    pub(crate) size: u64,
    /// The number of its segment; `u32::MAX` if it is unknown.
    segment: u32,
    pub(crate) is_pending: bool,
    /// Whether it existed before the trace.
    pub(crate) is_old: bool,
}

/// A block from before the trace, as reconstructed so far.
#[derive(Clone, Copy, Debug)]
struct Old {
    requested: u64,
    /// Its requested size, if the final state contains it.
    size: Option<u64>,
    is_pending: bool,
}

/// One piece of memory that the allocator reserved from the driver.
#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    is_large: bool,
    /// Bytes of blocks in use or pending.
    active: u64,
    total: u64,
    /// The addresses of the blocks; only for large pieces.
    blocks: BTreeSet<u64>,
}

/// Address ranges that may be adjacent but do not overlap.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn insert(&mut self, begin: u64, end: u64) {
        self.remove(begin, end);
        if begin < end {
            self.0.insert(begin, end);
        }
    }

    fn remove(&mut self, begin: u64, end: u64) {
        let first = self.0.range(..begin).next_back().map(|(&begin, _)| begin).unwrap_or(begin);
        let touched: Vec<(u64, u64)> = self.0.range(first..end).map(|(&begin, &end)| (begin, end)).collect();
        for (from, until) in touched.into_iter().filter(|&(_, until)| until > begin) {
            self.0.remove(&from);
            if from < begin {
                self.0.insert(from, begin);
            }
            if until > end {
                self.0.insert(end, until);
            }
        }
    }

    fn has(&self, address: u64) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, &end)| address < end)
    }

    fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, (&begin, &end)| sum.saturating_add(end - begin))
    }
}

/// The allocator's counters at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) allocated: u64,
    pub(crate) active: u64,
    pub(crate) reserved: u64,
    /// In segments of which no block is in use.
    pub(crate) whole: u64,
    /// Free blocks in segments of which some block is in use.
    pub(crate) split: u64,
    /// Free in segments that grow.
    pub(crate) expandable: u64,
}

impl Counters {
    pub(crate) fn pending(&self) -> u64 {
        self.active.saturating_sub(self.allocated)
    }
}

/// The effect of an entry on the bytes in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Alloc {
        size: u64,
    },
    Free {
        requested: u64,
        size: u64,
    },
    /// It is neither an allocation nor a free.
    Nothing,
}

/// The state of one device.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    settings: &'a Settings,
    live: FxHashMap<u64, Live>,
    pieces: Vec<Piece>,
    /// The number of a piece by its first address.
    places: BTreeMap<u64, u32>,
    expandable: Ranges,
    expandable_active: u64,
    /// Bytes of segments that grow.
    pub(crate) expandable_total: u64,
    pub(crate) now: Counters,
    /// Entries that contradict earlier ones.
    pub(crate) contradictions: u64,
    /// Blocks and segments from before the trace.
    pub(crate) old_blocks: u64,
    pub(crate) old_segments: u64,
    last: u32,
}

impl<'a> Layout<'a> {
    /// The state before the first entry.
    pub(crate) fn before<'b>(
        segments: impl Iterator<Item = &'b Segment> + Clone,
        entries_backwards: impl Iterator<Item = (Entry, Action)>,
        settings: &'a Settings,
    ) -> Layout<'a> {
        let mut pieces: FxHashMap<u64, (u64, bool)> = FxHashMap::default();
        let mut expandable = Ranges::default();
        let mut old: FxHashMap<u64, Old> = FxHashMap::default();
        for segment in segments {
            let end = segment.address.saturating_add(segment.total);
            if segment.is_expandable == Some(true) {
                expandable.insert(segment.address, end);
            } else {
                let is_large = match segment.kind {
                    super::value::key::LARGE => true,
                    super::value::key::SMALL => false,
                    _ => segment.total > SMALL_SEGMENT,
                };
                pieces.insert(segment.address, (segment.total, is_large));
            }
            for block in segment.blocks.iter().filter(|block| block.state != State::Inactive) {
                let requested = block.requested.unwrap_or(block.size).min(block.size);
                let is_pending = block.state == State::Pending;
                old.insert(block.address, Old { requested, size: Some(block.size), is_pending });
            }
        }
        let mut contradictions = 0;
        for (entry, action) in entries_backwards {
            let (address, size) = (entry.address, entry.size);
            if address == ABSENT || size == ABSENT {
                continue;
            }
            match action {
                Action::Alloc => {
                    old.remove(&address);
                }
                Action::FreeCompleted => {
                    old.insert(address, Old { requested: size, size: None, is_pending: true });
                }
                Action::FreeRequested => {
                    let known =
                        old.entry(address).or_insert(Old { requested: size, size: None, is_pending: false });
                    known.is_pending = false;
                }
                Action::SegmentAlloc => {
                    contradictions += u64::from(pieces.remove(&address).is_none());
                }
                Action::SegmentFree => {
                    pieces.insert(address, (size, size > SMALL_SEGMENT));
                }
                Action::SegmentMap => expandable.remove(address, address.saturating_add(size)),
                Action::SegmentUnmap => expandable.insert(address, address.saturating_add(size)),
                Action::Snapshot | Action::Oom | Action::Other => {}
            }
        }
        let mut layout = Layout {
            settings,
            live: FxHashMap::default(),
            pieces: Vec::new(),
            places: BTreeMap::new(),
            expandable_total: expandable.bytes(),
            old_segments: (pieces.len() + expandable.0.len()) as u64,
            expandable,
            expandable_active: 0,
            now: Counters::default(),
            contradictions,
            old_blocks: old.len() as u64,
            last: u32::MAX,
        };
        layout.now.reserved = layout.expandable_total;
        layout.now.expandable = layout.expandable_total;
        let mut pieces: Vec<(u64, (u64, bool))> = pieces.into_iter().collect();
        pieces.sort_unstable();
        for (address, (total, is_large)) in pieces {
            layout.add_piece(address, total, is_large);
        }
        // From the highest address down, because the size of a block depends on the gap after it.
        let mut old: Vec<(u64, Old)> = old.into_iter().collect();
        old.sort_unstable_by_key(|&(address, _)| std::cmp::Reverse(address));
        for (address, old) in old {
            layout.take(address, old.requested, old.size);
            if let Some(live) = layout.live.get_mut(&address) {
                live.is_old = true;
                live.is_pending = old.is_pending;
                if old.is_pending {
                    layout.now.allocated = layout.now.allocated.saturating_sub(live.size);
                }
            }
        }
        layout
    }

    /// Whether nothing was allocated before the trace.
    pub(crate) fn is_from_start(&self) -> bool {
        self.old_blocks == 0 && self.old_segments == 0
    }

    /// The segments that do not grow, in order, with their blocks in use; their pools and streams are unknown here.
    pub(crate) fn pieces(&self) -> Vec<EarlierSegment> {
        let mut live: Vec<(u64, &Live)> = self.live.iter().map(|(&address, live)| (address, live)).collect();
        live.sort_unstable_by_key(|&(address, _)| address);
        let mut made = Vec::with_capacity(self.places.len());
        for (&base, &number) in &self.places {
            let Some(piece) = self.pieces.get(number as usize) else { continue };
            let begin = live.partition_point(|&(address, _)| address < base);
            let held = live.iter().skip(begin).take_while(|&&(address, _)| address < piece.end);
            let held = held.map(|&(address, live)| (address, Bytes(live.size), Some(Bytes(live.requested))));
            made.push(EarlierSegment {
                lane: 0,
                is_small: !piece.is_large,
                base,
                size: Bytes(piece.total),
                held: held.collect(),
            });
        }
        made
    }

    fn add_piece(&mut self, address: u64, total: u64, is_large: bool) {
        let Ok(number) = u32::try_from(self.pieces.len()) else { return };
        let end = address.saturating_add(total);
        self.pieces.push(Piece { end, is_large, active: 0, total, blocks: BTreeSet::new() });
        if self.places.insert(address, number).is_some() {
            self.contradictions += 1;
        }
        self.now.reserved = self.now.reserved.saturating_add(total);
        self.now.whole = self.now.whole.saturating_add(total);
    }

    fn remove_piece(&mut self, address: u64) {
        let Some(number) = self.places.remove(&address) else {
            self.contradictions += 1;
            return;
        };
        let Some(piece) = self.pieces.get_mut(number as usize) else { return };
        let gone = std::mem::replace(
            piece,
            Piece { end: 0, is_large: false, active: 0, total: 0, blocks: BTreeSet::new() },
        );
        self.contradictions += u64::from(gone.active > 0);
        self.now.reserved = self.now.reserved.saturating_sub(gone.total);
        self.uncount(&gone);
    }

    /// The piece that contains an address.
    #[inline]
    fn piece_at(&mut self, address: u64) -> Option<u32> {
        let (&begin, &number) = self.places.range(..=address).next_back()?;
        let piece = self.pieces.get(number as usize)?;
        self.last = number;
        (begin <= address && address < piece.end).then_some(number)
    }

    #[inline]
    fn uncount(&mut self, piece: &Piece) {
        if piece.active == 0 {
            self.now.whole = self.now.whole.saturating_sub(piece.total);
        } else {
            self.now.split = self.now.split.saturating_sub(piece.total.saturating_sub(piece.active));
        }
    }

    #[inline]
    fn add_active(&mut self, number: u32, more: u64, less: u64) {
        let Some(piece) = self.pieces.get_mut(number as usize) else { return };
        let (total, before) = (piece.total, piece.active);
        piece.active = before.saturating_add(more).saturating_sub(less);
        let after = piece.active;
        let now = &mut self.now;
        match before {
            0 => now.whole = now.whole.saturating_sub(total),
            _ => now.split = now.split.saturating_sub(total.saturating_sub(before)),
        }
        match after {
            0 => now.whole = now.whole.saturating_add(total),
            _ => now.split = now.split.saturating_add(total.saturating_sub(after)),
        }
    }

    /// Adds a block in use.
    fn take(&mut self, address: u64, requested: u64, told: Option<u64>) -> u64 {
        let rounded = rounded(requested, self.settings);
        let segment = self.piece_at(address).unwrap_or(u32::MAX);
        let mut size = told.unwrap_or(rounded);
        if let Some(piece) = self.pieces.get_mut(segment as usize) {
            if piece.is_large {
                if told.is_none() {
                    let next = piece.blocks.range(address.saturating_add(1)..).next().copied();
                    let room = next.unwrap_or(piece.end).min(piece.end).saturating_sub(address);
                    let is_whole = self.settings.max_split.is_some_and(|most| rounded >= most);
                    if room >= rounded && (is_whole || room - rounded <= LARGEST_SLACK) {
                        size = room;
                    }
                }
                piece.blocks.insert(address);
            }
            self.add_active(segment, size, 0);
        } else if self.expandable.has(address) {
            self.expandable_active = self.expandable_active.saturating_add(size);
            self.now.expandable = self.expandable_total.saturating_sub(self.expandable_active);
        } else {
            self.contradictions += 1;
        }
        self.now.active = self.now.active.saturating_add(size);
        self.now.allocated = self.now.allocated.saturating_add(size);
        let live = Live { requested, size, segment, is_pending: false, is_old: false };
        if let Some(lost) = self.live.insert(address, live) {
            self.contradictions += 1;
            self.leave(address, &lost, true);
        }
        size
    }

    /// Removes a freed block, unless another block has taken its place.
    fn leave(&mut self, address: u64, live: &Live, is_replaced: bool) {
        if !live.is_pending {
            self.now.allocated = self.now.allocated.saturating_sub(live.size);
        }
        self.now.active = self.now.active.saturating_sub(live.size);
        if let Some(piece) = self.pieces.get_mut(live.segment as usize) {
            if piece.is_large && !is_replaced {
                piece.blocks.remove(&address);
            }
            self.add_active(live.segment, 0, live.size);
        } else if self.expandable.has(address) {
            self.expandable_active = self.expandable_active.saturating_sub(live.size);
            self.now.expandable = self.expandable_total.saturating_sub(self.expandable_active);
        }
    }

    /// Applies the next entry.
    pub(crate) fn step(&mut self, entry: &Entry, action: Action) -> Change {
        let (address, size) = (entry.address, entry.size);
        if address == ABSENT || size == ABSENT {
            return Change::Nothing;
        }
        match action {
            Action::Alloc => Change::Alloc { size: self.take(address, size, None) },
            Action::FreeRequested => match self.live.get_mut(&address) {
                Some(live) if !live.is_pending => {
                    live.is_pending = true;
                    let (requested, size) = (live.requested, live.size);
                    self.now.allocated = self.now.allocated.saturating_sub(size);
                    Change::Free { requested, size }
                }
                _ => {
                    self.contradictions += 1;
                    Change::Nothing
                }
            },
            Action::FreeCompleted => match self.live.remove(&address) {
                Some(live) => {
                    self.leave(address, &live, false);
                    // The recording may have skipped the requests (skip_actions).
                    if live.is_pending {
                        Change::Nothing
                    } else {
                        Change::Free { requested: live.requested, size: live.size }
                    }
                }
                None => {
                    self.contradictions += 1;
                    Change::Nothing
                }
            },
            Action::SegmentAlloc => {
                self.add_piece(address, size, size > SMALL_SEGMENT);
                Change::Nothing
            }
            Action::SegmentFree => {
                self.remove_piece(address);
                Change::Nothing
            }
            Action::SegmentMap | Action::SegmentUnmap => {
                let end = address.saturating_add(size);
                if action == Action::SegmentMap {
                    self.expandable.insert(address, end);
                    self.expandable_total = self.expandable_total.saturating_add(size);
                    self.now.reserved = self.now.reserved.saturating_add(size);
                } else {
                    self.expandable.remove(address, end);
                    self.expandable_total = self.expandable_total.saturating_sub(size);
                    self.now.reserved = self.now.reserved.saturating_sub(size);
                }
                self.now.expandable = self.expandable_total.saturating_sub(self.expandable_active);
                Change::Nothing
            }
            Action::Snapshot | Action::Oom | Action::Other => Change::Nothing,
        }
    }

    /// Blocks in use or pending that differ from those of the final state.
    pub(crate) fn differences<'b>(&self, segments: impl Iterator<Item = &'b Segment>) -> u64 {
        let mut known = 0u64;
        let mut wrong = 0u64;
        for block in
            segments.flat_map(|segment| &segment.blocks).filter(|block| block.state != State::Inactive)
        {
            match self.live.get(&block.address) {
                Some(live) if live.size == block.size => known += 1,
                Some(_) => {
                    known += 1;
                    wrong += 1;
                }
                None => wrong += 1,
            }
        }
        wrong + (self.live.len() as u64).saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_as_the_allocator_does() {
        let plain = Settings::default();
        for (size, expected) in [(1, 512), (512, 512), (513, 1024), (1_048_577, 1_049_088), (0, 512)] {
            assert_eq!(rounded(size, &plain), expected);
        }
        let eighths = Settings { divisions: vec![8; 16], ..Settings::default() };
        for (size, expected) in [(1200, 1536), (4096, 4096), (4097, 4608), (5000, 5120), (1 << 30, 1 << 30)] {
            assert_eq!(rounded(size, &eighths), expected);
        }
        assert_eq!(rounded(u64::MAX, &eighths), u64::MAX);
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 30);
        ranges.insert(20, 40);
        assert_eq!(ranges.bytes(), 30);
        ranges.remove(15, 35);
        assert_eq!(ranges.bytes(), 10);
        assert!(ranges.has(10) && !ranges.has(15) && ranges.has(35) && !ranges.has(40));
    }
}
