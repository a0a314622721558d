//! From the parts of a snapshot to the list of the allocator's calls.
//!
//! Before 2026 an entry does not name its pool. It is the pool of the segment that its address lies in, which the
//! snapshot tells of segments that are still there; of others the default pool is assumed.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::call::{Call, CallKind, CallSettings, DeviceCalls, Earlier, LastBlock};
use super::layout::{Change, Layout};
use super::reading::{Reading, Segment, State};
use super::value::{ABSENT, Action, Entry, Value, key};
use crate::units::Bytes;

/// Pools and streams by address.
struct Owners {
    /// Where a segment ends, its pool and its stream, by where it begins.
    segments: BTreeMap<u64, (u64, u32, u64)>,
    pools: FxHashMap<(i64, i64), u32>,
}

impl Owners {
    fn new(segments: &[Segment]) -> Owners {
        let mut owners = Owners { segments: BTreeMap::new(), pools: FxHashMap::default() };
        owners.pools.insert((0, 0), 0);
        for segment in segments {
            let pool = owners.pool(segment.pool.unwrap_or_default());
            let stream = segment.stream.unwrap_or_default().cast_unsigned();
            let end = segment.address.saturating_add(segment.total);
            owners.segments.insert(segment.address, (end, pool, stream));
        }
        owners
    }

    fn pool(&mut self, id: (i64, i64)) -> u32 {
        let next = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        *self.pools.entry(id).or_insert(next)
    }

    /// Pool and stream of the segment that an address lies in.
    fn at(&self, address: u64) -> Option<(u32, u64)> {
        let (_, &(end, pool, stream)) = self.segments.range(..=address).next_back()?;
        (address < end).then_some((pool, stream))
    }
}

/// What the allocator of each device did.
pub(crate) fn calls(reading: &Reading) -> Vec<DeviceCalls> {
    let Reading { values, segments, traces, settings, .. } = reading;
    let actions: Vec<Action> = values.kinds().iter().map(super::value::Kind::action).collect();
    let action = |entry: &Entry| actions.get(entry.kind as usize).copied().unwrap_or(Action::Other);
    let mut devices = Vec::new();
    for (device, ranges) in (0u32..).zip(traces) {
        if ranges.is_empty() {
            continue;
        }
        let mine: Vec<Segment> =
            segments.iter().filter(|segment| segment.device == device).cloned().collect();
        let mut owners = Owners::new(&mine);
        let entries = || ranges.iter().flat_map(Clone::clone).filter_map(|number| values.entries.get(number));
        let backwards = ranges.iter().rev().flat_map(|range| range.clone().rev());
        let backwards = backwards.filter_map(|number| values.entries.get(number));
        let mut layout =
            Layout::before(mine.iter(), backwards.map(|entry| (entry, action(&entry))), settings);
        let mut made = DeviceCalls {
            device,
            is_from_start: layout.is_from_start(),
            settings: call_settings(reading),
            last: last(&mine),
            ..DeviceCalls::default()
        };
        let before = layout.pieces();
        // Segments that went during the trace are known by the entry that says so.
        let mut gone: FxHashMap<u64, (u32, u64)> = FxHashMap::default();
        for entry in entries() {
            let change = layout_change(&mut layout, &entry, action(&entry));
            let Some(kind) = kind_of(action(&entry)) else { continue };
            let told = values.kind(entry.kind);
            let is_failure = kind == CallKind::OutOfMemory;
            let found = if is_failure { None } else { owners.at(entry.address) };
            let pool = match told.and_then(|kind| kind.pool) {
                Some(id) => owners.pool(id),
                None => found.map_or(0, |(pool, _)| pool),
            };
            let stream = told.and_then(|kind| kind.stream).map(i64::cast_unsigned);
            let stream = stream.or(found.map(|(_, stream)| stream)).unwrap_or_default();
            if entry.size == ABSENT || (entry.address == ABSENT && !is_failure) {
                continue;
            }
            if kind == CallKind::SegmentFree {
                gone.entry(entry.address).or_insert((pool, stream));
            }
            made.calls.push(Call {
                kind,
                address: if is_failure { 0 } else { entry.address },
                bytes: Bytes(entry.size),
                block: Bytes(change),
                stream,
                pool,
            });
        }
        for (base, size, is_small, held) in before {
            let owner = gone.get(&base).copied().or_else(|| owners.at(base));
            let (pool, stream) = owner.unwrap_or_default();
            made.earlier.push(Earlier { pool, stream, is_small, base, size, held });
        }
        devices.push(made);
    }
    devices
}

/// The block that an entry took; zero where it took none.
fn layout_change(layout: &mut Layout<'_>, entry: &Entry, action: Action) -> u64 {
    match layout.step(entry, action) {
        // A block of a segment that grows is what was asked for, rounded, and so is all that is known of it there.
        Change::Alloc { size } => size,
        Change::Free { .. } | Change::Nothing => 0,
    }
}

fn kind_of(action: Action) -> Option<CallKind> {
    Some(match action {
        Action::Alloc => CallKind::Alloc,
        Action::FreeRequested => CallKind::FreeRequested,
        Action::FreeCompleted => CallKind::FreeCompleted,
        Action::SegmentAlloc => CallKind::SegmentAlloc,
        Action::SegmentFree => CallKind::SegmentFree,
        Action::SegmentMap => CallKind::SegmentMap,
        Action::SegmentUnmap => CallKind::SegmentUnmap,
        Action::Oom => CallKind::OutOfMemory,
        Action::Snapshot | Action::Other => return None,
    })
}

fn last(segments: &[Segment]) -> Vec<LastBlock> {
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let mut last: Vec<LastBlock> = blocks
        .map(|block| LastBlock {
            address: block.address,
            size: Bytes(block.size),
            requested: block.requested.map(Bytes),
            is_allocated: block.state == State::Allocated,
            is_free: block.state == State::Inactive,
        })
        .collect();
    last.sort_unstable_by_key(|block| block.address);
    last
}

fn call_settings(reading: &Reading) -> CallSettings {
    let Reading { values, settings, top, .. } = reading;
    let all = values.get(*top, key::ALLOCATOR_SETTINGS);
    let value = |name: &str| Some(values.current(values.get(all?, values.names.find(name)?)?).value());
    let threshold = match value("garbage_collection_threshold") {
        Some(Value::Float(number)) => values.real(number).unwrap_or_default(),
        _ => 0.0,
    };
    CallSettings {
        max_split: settings.max_split.map(Bytes),
        divisions: settings.divisions.clone(),
        garbage_collection_threshold: threshold,
        expandable: value("expandable_segments") == Some(Value::Bool(true)),
    }
}
