//! The order of time over the events of all reader threads.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::ops::Range;

use super::columns::{Batch, Column, EventRef, SEGMENT, Segment};
use crate::pages::zeros;
use crate::units::Picos;
use crate::worker;

/// Memory events in order of time.
///
/// Each reader thread leaves its columns as they are; the order is a list of places in them. Copying the columns into
/// one sorted set would cost more than reading them did.
#[derive(Clone, Debug, Default)]
pub struct Events {
    segments: Vec<Segment>,
    /// Each a [`Place`].
    order: Vec<u32>,
    /// Stretches of events of one moment each, in order.
    ties: Vec<Range<usize>>,
}

/// With fewer events a thread costs more than it saves.
pub(crate) const WORTH_A_THREAD: usize = 1 << 16;

/// The events of one thread: ranges of batches, in order of time or nearly so.
pub(crate) type Line = Vec<(usize, Range<usize>)>;

/// Where an event stands: the segment in the upper bits, the index in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

impl Place {
    const INDEX_BITS: u32 = 16;

    /// `None` where there are more events than a place can tell apart: nearly three billion.
    fn new(segment: usize, index: usize) -> Option<Place> {
        let segment =
            u32::try_from(segment).ok().filter(|segment| segment >> (32 - Place::INDEX_BITS) == 0)?;
        let index = u32::try_from(index).ok().filter(|index| index >> Place::INDEX_BITS == 0)?;
        Some(Place(segment << Place::INDEX_BITS | index))
    }

    #[inline]
    fn segment(self) -> usize {
        (self.0 >> Place::INDEX_BITS) as usize
    }

    #[inline]
    fn index(self) -> usize {
        (self.0 & ((1 << Place::INDEX_BITS) - 1)) as usize
    }
}

/// Stretches of events of one moment.
#[derive(Default)]
struct Ties(Vec<Range<usize>>);

impl Ties {
    /// Event `at` is of the same moment as the one before it, if there is one.
    #[cold]
    fn note(&mut self, at: usize) {
        match self.0.last_mut() {
            Some(tie) if tie.end == at => tie.end += 1,
            _ => self.0.extend(at.checked_sub(1).map(|before| before..at + 1)),
        }
    }
}

/// The end of the part of a range at whose indices something holds; where it does, it does at all before.
fn range_until(range: &Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = *range;
    while start < end {
        let middle = start + (end - start) / 2;
        if holds(middle) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

impl Events {
    /// Puts the events of batches in order. Events of one moment keep the order of the lines.
    pub(crate) fn merge(batches: Vec<Batch>, lines: &[Line]) -> Events {
        let mut bases = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        for batch in batches {
            bases.push(segments.len());
            segments.extend(batch.into_segments());
        }
        let mut events = Events { segments, ..Events::default() };
        // Where some thread is out of order by itself, everything is put in order from scratch.
        (events.order, events.ties) =
            events.merged_by_two(&bases, lines).unwrap_or_else(|| events.sorted(&bases, lines));
        events
    }

    /// Merges lines that are each in order, on two cores: one takes the earlier half of the time, one the later. `None`
    /// where a line is not in order.
    fn merged_by_two(&self, bases: &[usize], lines: &[Line]) -> Option<(Vec<u32>, Vec<Range<usize>>)> {
        let length = |line: &Line| line.iter().map(|(_, range)| range.len()).sum::<usize>();
        let count = lines.iter().map(length).sum();
        let mut order = zeros(count);
        if count < WORTH_A_THREAD {
            let ties = self.merged(bases, lines, &mut order)?;
            return Some((order, ties));
        }
        let time = |batch: usize, at: usize| Events::place(bases, batch, at).map(|place| self.time_of(place));
        let longest = lines.iter().max_by_key(|line| length(line))?;
        let (batch, range) = longest.get(longest.len() / 2)?;
        let middle = time(*batch, range.start)?;
        let mut halves = [Vec::new(), Vec::new()];
        for line in lines {
            let [mut earlier, mut later] = [Line::new(), Line::new()];
            for (batch, range) in line {
                let until = range_until(range, |at| time(*batch, at).is_some_and(|time| time <= middle));
                earlier.push((*batch, range.start..until));
                later.push((*batch, until..range.end));
            }
            halves.iter_mut().zip([earlier, later]).for_each(|(half, line)| half.push(line));
        }
        let [earlier, later] = halves;
        let cut = earlier.iter().map(length).sum();
        let (early_places, late_places) = order.split_at_mut_checked(cut)?;
        let (mut ties, late_ties) = std::thread::scope(|threads| {
            let late_ties = threads.spawn(|| self.merged(bases, &later, late_places));
            Some((self.merged(bases, &earlier, early_places)?, worker::joined(late_ties)?))
        })?;
        // A line that is not in order may have been cut anywhere.
        let is_cut = |at: Option<&u32>, is_right: fn(&Picos, &Picos) -> bool| {
            at.is_none_or(|&place| is_right(&self.time_of(Place(place)), &middle))
        };
        if !is_cut(early_places.last(), Picos::le) || !is_cut(order.get(cut), Picos::gt) {
            return None;
        }
        ties.extend(late_ties.into_iter().map(|tie| tie.start + cut..tie.end + cut));
        Some((order, ties))
    }

    /// Merges lines that are each in order, a stretch at a time: threads take turns, but not at every event. `None`
    /// where a line is not in order. Fills `order`, and gives the ties in it.
    fn merged(&self, bases: &[usize], lines: &[Line], order: &mut [u32]) -> Option<Vec<Range<usize>>> {
        let mut ties = Ties::default();
        let mut order = order.iter_mut();
        let count = order.len();
        let is_filled = |(_, range): &&(usize, Range<usize>)| !range.is_empty();
        let reversed = |line: &Line| line.iter().rev().filter(is_filled).cloned().collect();
        let mut rest: Vec<Line> = lines.iter().map(reversed).collect();
        let head = |line: &Line| {
            let (batch, range) = line.last()?;
            Some(self.time_of(Events::place(bases, *batch, range.start)?))
        };
        let firsts = rest.iter().enumerate();
        let mut heads: BinaryHeap<_> =
            firsts.filter_map(|(number, line)| Some(Reverse((head(line)?, number)))).collect();
        let mut next = heads.pop();
        let mut last = Picos(i64::MIN);
        while let Some(Reverse((_, number))) = next {
            let limit = heads.peek().map_or((Picos(i64::MAX), usize::MAX), |Reverse(head)| *head);
            let line = rest.get_mut(number)?;
            // One range may span several segments, and a stretch several ranges.
            'stretch: while let Some((batch, range)) = line.last_mut() {
                let first = Events::place(bases, *batch, range.start)?;
                let segment = self.segments.get(first.segment())?;
                let times = segment.part(Column::Time, first.index()..first.index() + range.len());
                if times.is_empty() {
                    return None;
                }
                for (place, &time) in (first.0..).map(Place).zip(times) {
                    let time = Picos(time.cast_signed());
                    if (time, number) > limit {
                        break 'stretch;
                    }
                    if time <= last {
                        if time < last {
                            return None;
                        }
                        ties.note(count - order.len());
                    }
                    last = time;
                    *order.next()? = place.0;
                    range.start += 1;
                }
                if range.start >= range.end {
                    line.pop();
                }
            }
            // This line waits in the place of the one whose turn it is.
            next = match (head(line), heads.peek_mut()) {
                (Some(time), Some(mut first)) => {
                    Some(std::mem::replace(&mut *first, Reverse((time, number))))
                }
                (Some(time), None) => Some(Reverse((time, number))),
                (None, first) => first.map(PeekMut::pop),
            };
        }
        order.next().is_none().then_some(ties.0)
    }

    /// The events of lines in order of time, from any order.
    fn sorted(&self, bases: &[usize], lines: &[Line]) -> (Vec<u32>, Vec<Range<usize>>) {
        let ranges = lines.iter().flatten();
        let mut order: Vec<u32> = ranges
            .flat_map(|(batch, range)| range.clone().filter_map(|at| Events::place(bases, *batch, at)))
            .map(|place| place.0)
            .collect();
        let time = |&place: &u32| self.time_of(Place(place));
        order.sort_by_key(time);
        let mut ties = Ties::default();
        for (at, pair) in order.windows(2).enumerate() {
            if let [one, other] = pair
                && time(one) == time(other)
            {
                ties.note(at + 1);
            }
        }
        (order, ties.0)
    }

    fn place(bases: &[usize], batch: usize, at: usize) -> Option<Place> {
        Place::new(bases.get(batch)?.checked_add(at / SEGMENT)?, at % SEGMENT)
    }

    #[inline]
    fn time_of(&self, place: Place) -> Picos {
        self.event(place).time()
    }

    #[inline]
    fn event(&self, place: Place) -> EventRef<'_> {
        EventRef::new(self.segments.get(place.segment()), place.index())
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Event `i`.
    #[must_use]
    #[inline]
    pub fn at(&self, i: usize) -> EventRef<'_> {
        match self.order.get(i) {
            Some(&place) => self.event(Place(place)),
            None => EventRef::new(None, 0),
        }
    }

    /// Every event, in order of time.
    pub fn iter(&self) -> impl Iterator<Item = EventRef<'_>> {
        (0..self.len()).map(|i| self.at(i))
    }

    /// When event `i` happened.
    #[must_use]
    #[inline]
    pub fn time(&self, i: usize) -> Picos {
        self.at(i).time()
    }

    /// The first event that is not before `time`; how many there are where all are.
    #[must_use]
    pub(crate) fn first_from(&self, time: Picos) -> usize {
        self.order.partition_point(|&place| self.time_of(Place(place)) < time)
    }

    /// The first event after `time`; how many there are where none is.
    #[must_use]
    pub(crate) fn first_after(&self, time: Picos) -> usize {
        self.order.partition_point(|&place| self.time_of(Place(place)) <= time)
    }

    /// Every event, in no particular order: the shortest way through all of them.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.segments
            .iter()
            .flat_map(|segment| (0..segment.len()).map(move |at| EventRef::new(Some(segment), at)))
    }

    /// Stretches of events of one moment each, in order.
    pub(crate) fn ties(&self) -> &[Range<usize>] {
        &self.ties
    }

    /// Puts the events `begin..begin + order.len()` into another order: `order[i]` becomes the `i`th of them.
    pub(crate) fn reorder(&mut self, begin: usize, order: &[usize]) {
        let places: Vec<u32> = order.iter().filter_map(|&event| self.order.get(event).copied()).collect();
        if let Some(part) = self.order.get_mut(begin..begin.saturating_add(places.len())) {
            part.copy_from_slice(&places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Kind, PoolId};
    use crate::names::Name;

    /// An event that is known again by its address.
    fn at(time: i64) -> Event {
        Event { address: u64::try_from(time).ok(), ..Event::bare(Picos(time), Kind::Alloc) }
    }

    #[test]
    fn the_order_spans_batches_and_segments() {
        let count = SEGMENT + 3;
        let mut batches = vec![Batch::default(), Batch::default()];
        for time in 0..2 * count {
            batches[time % 2].push(&at(i64::try_from(time).unwrap()));
        }
        batches[1].settle(count - 4..count, 0, Name(3), &Some(|_| Name(5)), &None::<fn(PoolId) -> PoolId>);
        // The second line is given in two parts, the later one first: it is not in order by itself.
        let lines = [vec![(0, 0..count)], vec![(1, 9..count), (1, 0..9)]];
        let mut events = Events::merge(batches, &lines);
        assert!((0..2 * count).all(|i| events.at(i).address() == u64::try_from(i).ok()));
        let settled =
            (0..events.len()).filter(|&i| events.at(i).thread() == Name(3) && events.at(i).op() == Name(5));
        assert_eq!(settled.collect::<Vec<_>>(), (0..4).map(|k| 2 * (count - 4 + k) + 1).collect::<Vec<_>>());
        events.reorder(2, &[3, 2]);
        assert_eq!((1..5).map(|i| events.at(i).address()).collect::<Vec<_>>(), [1, 3, 2, 4].map(Some));
        assert_eq!(Place::new(1 << 16, 0), None);
    }
}
