//! From allocations, values and the compiler's simulation to what lies in each allocation when it is fullest.
//!
//! ```text
//! LogicalBufferProto:    id=1, size=2, defined_at=3 (Location)
//! Location:              instruction_name=2, shape_index=3, instruction_id=4
//! BufferAlias:           source_buffer_id=1, location=2
//! BufferAllocationProto: index=1, size=2, is_thread_local=3, is_entry_computation_parameter=5, parameter_number=6,
//!                        maybe_live_out=7, color=8, assigned=9, is_tuple=11, is_constant=12
//! Assigned:              logical_buffer_id=1, offset=2, size=3
//! HeapSimulatorTrace:    events=1, whole_module_simulation=2, buffer_allocation_index=3
//! Event:                 kind=1 (0 alloc, 1 free, 2 share), buffer_id=2, share_with_canonical_id=5
//! PeakBuffers:           index=1, logical_buffer_ids=2
//! ```
//!
//! The index in a simulation's trace is from before allocations were joined and sorted and does not fit what is written;
//! values tell which allocation a trace is of. Values that no trace knows have a place of their own, perhaps in turns.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::signature::{self, Homes};
use super::{MOST_VALUES, numbers};
use crate::executable::{Allocation, Executable, How, Part, Purpose};
use crate::source::wire::{Cursor, Value};
use crate::units::Bytes;

/// Where a value is made: an instruction, by id or, in old files, by name, and a place in its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made<'a> {
    pub(super) instruction: i64,
    pub(super) name: &'a [u8],
    /// The message, for the path into a tuple.
    location: &'a [u8],
}

impl Made<'_> {
    /// The path into the result, where that is a tuple.
    pub(super) fn path(&self) -> Vec<i64> {
        let mut path = Vec::new();
        let mut cursor = Cursor(self.location);
        while let Ok(Some((field, value))) = cursor.field() {
            if field == 3 {
                // No program nests results this deep.
                numbers(value, |step| path.extend((path.len() < 16).then_some(step)));
            }
        }
        path
    }
}

/// A value in an allocation.
#[derive(Clone, Copy)]
struct Placed {
    value: i64,
    offset: u64,
    size: u64,
}

/// The tables of an assignment.
#[derive(Default)]
struct AssignmentTables<'a> {
    /// Where each value is made.
    values: FxHashMap<i64, &'a [u8]>,
    /// Values that are part of the program's result.
    results: FxHashSet<i64>,
    /// Values that the compiler lists as alive when their allocation is fullest.
    listed: FxHashSet<i64>,
    traces: Vec<&'a [u8]>,
    allocations: Vec<(i64, Allocation, Vec<Placed>)>,
    is_cut: bool,
}

/// Reads the assignment. Gives, for each of the executable's buffers, where it is made, and where the values that stay lie.
pub(super) fn read<'a>(
    assignments: &[&'a [u8]],
    root: Option<i64>,
    executable: &mut Executable,
) -> (Vec<Made<'a>>, Homes) {
    let mut told = gather(assignments, root);
    executable.is_cut = told.is_cut;
    // In the order of the requests.
    told.allocations.sort_by_key(|(index, ..)| *index);
    let at_peak = simulate(&told);
    let mut made: Vec<Made<'a>> = Vec::new();
    let mut known: FxHashMap<i64, u32> = FxHashMap::default();
    let mut homes = Homes::default();
    for (_, mut allocation, placed) in std::mem::take(&mut told.allocations) {
        if matches!(allocation.purpose, Purpose::Output | Purpose::Parameter { .. }) {
            let buffers = placed.iter().filter_map(|here| told.values.get(&here.value));
            for made in buffers.filter_map(|buffer| made_at(buffer)) {
                signature::note(&mut homes, &made, executable.allocations.len());
            }
        }
        let parts = parts(allocation.size, &placed, &at_peak, &told);
        allocation.parts = parts
            .into_iter()
            .map(|(bytes, value, how)| {
                let location = value.and_then(|value| Some((value, *told.values.get(&value)?)));
                let buffer = location.and_then(|(value, buffer)| {
                    if let Some(&number) = known.get(&value) {
                        return Some(number);
                    }
                    let number = u32::try_from(made.len()).ok()?;
                    made.push(made_at(buffer)?);
                    known.insert(value, number);
                    Some(number)
                });
                Part { bytes: Bytes(bytes), buffer, how }
            })
            .collect();
        executable.allocations.push(allocation);
    }
    (made, homes)
}

fn gather<'a>(assignments: &[&'a [u8]], root: Option<i64>) -> AssignmentTables<'a> {
    let mut told = AssignmentTables::default();
    let mut left = MOST_VALUES;
    for assignment in assignments {
        let mut cursor = Cursor(assignment);
        while let Ok(Some((field, Value::Bytes(message)))) = cursor.field() {
            if left == 0 {
                break;
            }
            match field {
                1 => {
                    left -= 1;
                    told.values.entry(number(message, 1)).or_insert(message);
                }
                2 => {
                    let (source, location) = (number(message, 1), bytes(message, 2));
                    if root.is_some() && location.map(|location| number(location, 4)) == root {
                        told.results.insert(source);
                    }
                }
                3 => {
                    left -= 1;
                    told.allocations.push(allocation(message, &mut left));
                }
                4 => told.traces.push(message),
                5 => each(message, |field, value| {
                    if field == 2 {
                        numbers(value, |value| {
                            if told.listed.len() < MOST_VALUES {
                                told.listed.insert(value);
                            }
                        });
                    }
                }),
                _ => {}
            }
        }
    }
    told.is_cut = left == 0;
    told
}

fn each<'a>(message: &'a [u8], mut take: impl FnMut(u64, Value<'a>)) {
    let mut cursor = Cursor(message);
    while let Ok(Some((field, value))) = cursor.field() {
        take(field, value);
    }
}

/// The last number of a field; zero is left out on the wire.
fn number(message: &[u8], wanted: u64) -> i64 {
    let mut found = 0;
    each(message, |field, value| {
        if let Value::Varint(number) = value
            && field == wanted
        {
            found = number.cast_signed();
        }
    });
    found
}

fn bytes(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut found = None;
    each(message, |field, value| {
        if let Value::Bytes(bytes) = value
            && field == wanted
        {
            found = Some(bytes);
        }
    });
    found
}

fn made_at(buffer: &[u8]) -> Option<Made<'_>> {
    let location = bytes(buffer, 3)?;
    let name = bytes(location, 2).unwrap_or_default();
    Some(Made { instruction: number(location, 4), name, location })
}

/// A size or place; a negative one is a lie.
fn natural(number: u64) -> u64 {
    if number > i64::MAX.cast_unsigned() { 0 } else { number }
}

fn allocation(message: &[u8], left: &mut usize) -> (i64, Allocation, Vec<Placed>) {
    let (mut index, mut size, mut space, mut parameter) = (0, 0, 0, 0);
    let (mut is_thread_local, mut is_parameter, mut is_output, mut is_constant) =
        (false, false, false, false);
    let mut placed: Vec<Placed> = Vec::new();
    each(message, |field, value| match (field, value) {
        (1, Value::Varint(value)) => index = value.cast_signed(),
        (2, Value::Varint(value)) => size = natural(value),
        (3, Value::Varint(value)) => is_thread_local = value != 0,
        (5, Value::Varint(value)) => is_parameter = value != 0,
        (6, Value::Varint(value)) => parameter = value.cast_signed(),
        (7, Value::Varint(value)) => is_output = value != 0,
        (8, Value::Varint(value)) => space = value.cast_signed(),
        (12, Value::Varint(value)) => is_constant = value != 0,
        (9, Value::Bytes(assigned)) if *left > 0 => {
            *left -= 1;
            let mut here = Placed { value: 0, offset: 0, size: 0 };
            each(assigned, |field, value| match (field, value) {
                (1, Value::Varint(value)) => here.value = value.cast_signed(),
                (2, Value::Varint(value)) => here.offset = natural(value),
                (3, Value::Varint(value)) => here.size = natural(value),
                _ => {}
            });
            placed.push(here);
        }
        _ => {}
    });
    let purpose = match () {
        () if is_parameter => Purpose::Parameter { number: parameter, is_output },
        () if is_thread_local => Purpose::ThreadLocal,
        () if is_constant => Purpose::Constant,
        () if is_output => Purpose::Output,
        () => Purpose::Temporary,
    };
    (index, Allocation { size: Bytes(size), purpose, space, parts: Vec::new() }, placed)
}

/// What the simulation knows of a value: whether it has it at all, and whether when its allocation is fullest.
type Simulated = FxHashMap<i64, bool>;

/// Runs through the compiler's own simulation, twice: how full each allocation gets, then who is there at that moment.
fn simulate(told: &AssignmentTables<'_>) -> Simulated {
    let mut home: FxHashMap<i64, (usize, u64)> = FxHashMap::default();
    if !told.traces.is_empty() {
        for (number, (_, _, placed)) in told.allocations.iter().enumerate() {
            for here in placed {
                home.entry(here.value).or_insert((number, here.size));
            }
        }
    }
    let mut simulated = Simulated::default();
    for &trace in &told.traces {
        let mut highest: FxHashMap<usize, (u64, usize)> = FxHashMap::default();
        walk(trace, &home, |number, event, live| {
            let most = highest.entry(number).or_insert((0, usize::MAX));
            if live.bytes > most.0 {
                *most = (live.bytes, event);
            }
        });
        walk(trace, &home, |number, event, live| {
            if highest.get(&number).is_some_and(|most| most.1 == event) {
                simulated.extend(live.owners().into_values().map(|value| (value, true)));
            }
        });
        let mut cursor = Cursor(trace);
        while let Ok(Some((field, value))) = cursor.field() {
            if let (1, Value::Bytes(event)) = (field, value) {
                simulated.entry(self::number(event, 2)).or_insert(false);
            }
        }
    }
    simulated
}

/// The live contents of an allocation during a simulation.
#[derive(Default)]
struct Live {
    /// Each value with the one whose place it takes.
    values: FxHashMap<i64, i64>,
    /// Places, by the value that was the first of all there.
    places: FxHashMap<i64, Place>,
    bytes: u64,
}

/// A place that values share.
#[derive(Clone, Copy)]
struct Place {
    /// How many of them live.
    count: u32,
    size: u64,
    /// The one that found it free.
    owner: i64,
}

impl Live {
    fn begin(&mut self, value: i64, place: i64, size: u64) {
        if self.values.contains_key(&value) {
            return;
        }
        self.values.insert(value, place);
        let place = self.places.entry(place).or_insert(Place { count: 0, size, owner: value });
        if place.count == 0 {
            (place.size, place.owner) = (size, value);
            self.bytes = self.bytes.saturating_add(size);
        }
        place.count = place.count.saturating_add(1);
    }

    fn end(&mut self, value: i64) {
        let Some(place) = self.values.remove(&value) else { return };
        if let Some(place) = self.places.get_mut(&place) {
            place.count = place.count.saturating_sub(1);
            if place.count == 0 {
                self.bytes = self.bytes.saturating_sub(place.size);
            }
        }
    }

    /// One value for each place in use: the one that found it free or, where that has ended, the first that is left.
    fn owners(&self) -> FxHashMap<i64, i64> {
        let mut owners: FxHashMap<i64, i64> = FxHashMap::default();
        for (&value, &place) in &self.values {
            let owner = self.places.get(&place).map_or(value, |place| place.owner);
            let known = owners.entry(place).or_insert(value);
            if value == owner || (*known != owner && value < *known) {
                *known = value;
            }
        }
        owners
    }
}

fn walk(trace: &[u8], home: &FxHashMap<i64, (usize, u64)>, mut after: impl FnMut(usize, usize, &Live)) {
    let mut allocations: FxHashMap<usize, Live> = FxHashMap::default();
    let mut cursor = Cursor(trace);
    let mut event = 0;
    while let Ok(Some((field, value))) = cursor.field() {
        let (1, Value::Bytes(message)) = (field, value) else { continue };
        event += 1;
        let value = number(message, 2);
        // A value that was placed elsewhere says nothing here.
        let Some(&(number, size)) = home.get(&value) else { continue };
        let live = allocations.entry(number).or_default();
        match self::number(message, 1) {
            0 => live.begin(value, value, size),
            1 => live.end(value),
            2 => live.begin(value, self::number(message, 5), size),
            _ => continue,
        }
        after(number, event, live);
    }
}

/// Splits an allocation into its contents at its fullest moment. The parts always add up to its size.
fn parts(
    size: Bytes,
    placed: &[Placed],
    at_peak: &Simulated,
    told: &AssignmentTables<'_>,
) -> Vec<(u64, Option<i64>, How)> {
    // Those that are surely there come first, then those with a place of their own.
    let mut order: Vec<(u8, &Placed)> = placed
        .iter()
        .filter_map(|here| {
            let rank = match at_peak.get(&here.value) {
                Some(true) => 0,
                Some(false) => return None,
                None if told.listed.contains(&here.value) => 1,
                None if told.results.contains(&here.value) => 2,
                None => 3,
            };
            Some((rank, here))
        })
        .collect();
    order.sort_by_key(|(rank, here)| (*rank, std::cmp::Reverse(here.size), here.offset, here.value));
    let mut covered = Covered::default();
    let mut parts: Vec<(u64, Option<i64>, How, u64)> = Vec::new();
    let mut turns: FxHashMap<u64, u32> = FxHashMap::default();
    for here in placed {
        *turns.entry(here.offset).or_default() += 1;
    }
    for (rank, here) in order {
        let begin = here.offset.min(size.0);
        let end = here.offset.saturating_add(here.size).min(size.0);
        let bytes = covered.add(begin, end);
        if bytes == 0 {
            continue;
        }
        let is_alone = turns.get(&here.offset).is_some_and(|&count| count == 1);
        let how = match rank {
            0 => How::AtPeak,
            _ if is_alone => How::Alone,
            1 | 2 => How::Alone,
            _ => How::TakesTurns,
        };
        parts.push((bytes, Some(here.value), how, begin));
    }
    let free = size.0.saturating_sub(covered.total);
    parts.sort_by_key(|part| part.3);
    let mut parts: Vec<(u64, Option<i64>, How)> =
        parts.into_iter().map(|(bytes, value, how, _)| (bytes, value, how)).collect();
    if free > 0 {
        parts.push((free, None, How::Free));
    }
    parts
}

/// Ranges that are taken, none touching another.
#[derive(Default)]
struct Covered {
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl Covered {
    /// Takes a range; says how much of it was free.
    fn add(&mut self, begin: u64, end: u64) -> u64 {
        if begin >= end {
            return 0;
        }
        let (mut from, mut to) = (begin, end);
        let mut taken = 0;
        // Every range that this one touches becomes part of it.
        while let Some((&start, &stop)) = self.ranges.range(..=to).next_back()
            && stop >= from
        {
            taken += stop.min(end).saturating_sub(start.max(begin));
            (from, to) = (from.min(start), to.max(stop));
            self.ranges.remove(&start);
        }
        self.ranges.insert(from, to);
        let free = (end - begin).saturating_sub(taken);
        self.total = self.total.saturating_add(free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_once() {
        let mut covered = Covered::default();
        assert_eq!(covered.add(10, 20), 10);
        assert_eq!(covered.add(30, 40), 10);
        assert_eq!(covered.add(15, 35), 10);
        assert_eq!(covered.ranges, BTreeMap::from([(10, 40)]));
        assert_eq!(covered.add(0, 10), 10);
        assert_eq!(covered.add(0, 50), 10);
        assert_eq!(covered.add(7, 7), 0);
        assert_eq!((covered.total, covered.ranges.len()), (50, 1));
    }
}
