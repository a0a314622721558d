//! What a replay needs besides the events: the pool and stream of each request, and the allocator's calls to the driver.
//!
//! Before 2026, entries do not contain their pool. It is the pool of the segment that contains their address, which the
//! snapshot has for segments that still exist; for others the default pool is assumed.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::layout::Layout;
use super::reading::{Reading, Segment};
use super::value::{ABSENT, Action, Entry, Kind, Value, Values, key};
use crate::event::caching::{Call, CallKind, CallSettings, Calls, EarlierSegment};
use crate::units::Bytes;

/// Collects the calls of one device, entry by entry.
pub(super) struct Gathering {
    calls: Calls,
    /// The end, pool and stream of each segment of the final state, by its address.
    segments: BTreeMap<u64, (u64, u32, u64)>,
    pools: FxHashMap<(i64, i64), u32>,
    lanes: FxHashMap<(u32, u64), u16>,
    /// Lanes of entries by their kind, if the kind decides the lane.
    of_kind: Vec<Option<u16>>,
    /// Whether the address can decide the pool.
    has_private_pools: bool,
    last_lane: Option<u16>,
    /// The owners of segments that were released during the trace, by the entry of the release.
    gone: FxHashMap<u64, u16>,
    earlier: Vec<EarlierSegment>,
}

impl Gathering {
    pub(super) fn new(segments: &[Segment], before: &Layout<'_>, settings: CallSettings) -> Gathering {
        let mut made = Gathering {
            calls: Calls { settings, earlier_expandable: Bytes(before.expandable_total), ..Calls::default() },
            segments: BTreeMap::new(),
            pools: FxHashMap::default(),
            lanes: FxHashMap::default(),
            of_kind: Vec::new(),
            has_private_pools: false,
            last_lane: None,
            gone: FxHashMap::default(),
            earlier: before.pieces(),
        };
        made.pools.insert((0, 0), 0);
        for segment in segments {
            let pool = made.pool(segment.pool.unwrap_or_default());
            let stream = segment.stream.unwrap_or_default().cast_unsigned();
            let end = segment.address.saturating_add(segment.total);
            made.has_private_pools |= pool != 0;
            made.segments.insert(segment.address, (end, pool, stream));
        }
        made
    }

    fn pool(&mut self, id: (i64, i64)) -> u32 {
        let next = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        *self.pools.entry(id).or_insert(next)
    }

    /// Pool and stream of the segment that contains an address.
    fn owner(&self, address: u64) -> Option<(u32, u64)> {
        let (_, &(end, pool, stream)) = self.segments.range(..=address).next_back()?;
        (address < end).then_some((pool, stream))
    }

    fn lane(&mut self, pool: u32, stream: u64) -> u16 {
        if let Some(&lane) = self.lanes.get(&(pool, stream)) {
            return lane;
        }
        if self.lanes.len() >= Calls::MOST_LANES {
            return Calls::NO_LANE;
        }
        let lane = u16::try_from(self.lanes.len()).unwrap_or(Calls::NO_LANE);
        self.lanes.insert((pool, stream), lane);
        self.calls.lanes.push((pool, stream));
        lane
    }

    #[inline]
    fn lane_of(&mut self, entry: &Entry, values: &Values) -> u16 {
        if let Some(&Some(lane)) = self.of_kind.get(entry.kind as usize) {
            return lane;
        }
        self.find_lane(entry, values)
    }

    fn find_lane(&mut self, entry: &Entry, values: &Values) -> u16 {
        let kind: Option<&Kind> = values.kind(entry.kind);
        let told_pool = kind.and_then(|kind| kind.pool);
        let told_stream = kind.and_then(|kind| kind.stream).map(i64::cast_unsigned);
        let is_failure = kind.is_some_and(|kind| kind.action() == Action::Oom);
        let found = if is_failure { None } else { self.owner(entry.address) };
        let pool = match told_pool {
            Some(id) => self.pool(id),
            None => found.map_or(0, |(pool, _)| pool),
        };
        let stream = told_stream.or(found.map(|(_, stream)| stream)).unwrap_or_default();
        let lane = self.lane(pool, stream);
        if told_stream.is_some() && (told_pool.is_some() || !self.has_private_pools) {
            if self.of_kind.len() <= entry.kind as usize {
                self.of_kind.resize(entry.kind as usize + 1, None);
            }
            if let Some(known) = self.of_kind.get_mut(entry.kind as usize) {
                *known = Some(lane);
            }
        }
        lane
    }

    /// Adds an entry that became the event with this number.
    #[inline]
    pub(super) fn allocated(&mut self, event: usize, entry: &Entry, values: &Values) {
        let lane = self.lane_of(entry, values);
        if self.last_lane != Some(lane) {
            self.last_lane = Some(lane);
            self.calls.lane_from.push((u32::try_from(event).unwrap_or(u32::MAX), lane));
        }
    }

    /// Adds a free that does not complete at once.
    pub(super) fn let_go(&mut self, event: usize, entry: &Entry) {
        self.push(event, CallKind::LetGo, 0, entry);
    }

    /// Adds an entry that is not an event and precedes the event with this number.
    #[inline]
    pub(super) fn note(&mut self, event: usize, entry: &Entry, action: Action, values: &Values) {
        let kind = match action {
            Action::FreeCompleted => CallKind::Complete,
            Action::SegmentAlloc => CallKind::SegmentAlloc,
            Action::SegmentFree => CallKind::SegmentFree,
            Action::SegmentMap => CallKind::SegmentMap,
            Action::SegmentUnmap => CallKind::SegmentUnmap,
            Action::Oom => CallKind::OutOfMemory,
            Action::Alloc | Action::FreeRequested | Action::Snapshot | Action::Other => return,
        };
        if entry.size == ABSENT || (entry.address == ABSENT && action != Action::Oom) {
            return;
        }
        let lane = if kind == CallKind::Complete { 0 } else { self.lane_of(entry, values) };
        if kind == CallKind::SegmentFree {
            self.gone.entry(entry.address).or_insert(lane);
        }
        self.push(event, kind, lane, entry);
    }

    fn push(&mut self, event: usize, kind: CallKind, lane: u16, entry: &Entry) {
        self.calls.list.push(Call {
            event: u32::try_from(event).unwrap_or(u32::MAX),
            kind,
            lane,
            address: if kind == CallKind::OutOfMemory { 0 } else { entry.address },
            size: Bytes(entry.size),
        });
    }

    pub(super) fn finish(mut self) -> Calls {
        for mut segment in std::mem::take(&mut self.earlier) {
            segment.lane = match self.gone.get(&segment.base) {
                Some(&lane) => lane,
                None => {
                    let (pool, stream) = self.owner(segment.base).unwrap_or_default();
                    self.lane(pool, stream)
                }
            };
            self.calls.earlier.push(segment);
        }
        self.calls
    }
}

/// The allocator's settings in the snapshot.
pub(super) fn settings(reading: &Reading) -> CallSettings {
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
