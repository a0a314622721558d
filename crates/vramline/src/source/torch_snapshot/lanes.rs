//! What a replay needs besides the events: the pool and stream of each request, and the allocator's calls to the driver.
//!
//! Before 2026, entries do not contain their pool. It is the pool of the segment that contains their address at that moment, which
//! the snapshot has for segments that still exist at its end ([`Owners`]). For others the default pool is assumed here, and
//! `Calls::tells_pools` says that a replay may have to infer it.

use rustc_hash::FxHashMap;

use super::layout::Layout;
use super::owners::{self, DriverEntry, Owners};
use super::reading::{Reading, Segment};
use super::value::{ABSENT, Action, Entry, Kind, NO_STACK, Value, Values, key};
use crate::event::caching::{Call, CallKind, CallSettings, Calls, EarlierSegment};
use crate::units::Bytes;

/// Collects the calls of one device, entry by entry.
pub(super) struct Gathering {
    calls: Calls,
    owners: Owners,
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
    /// `driver_calls` are the entries that are calls to the driver, last one first.
    pub(super) fn new(
        segments: &[Segment],
        before: &Layout<'_>,
        settings: CallSettings,
        driver_calls: &[(Entry, Action)],
        values: &Values,
    ) -> Gathering {
        let tells_pools = values.kinds().iter().any(|kind| kind.pool.is_some());
        let mut made = Gathering {
            calls: Calls {
                settings,
                earlier_expandable: Bytes(before.expandable_total),
                tells_pools,
                ..Calls::default()
            },
            owners: Owners::default(),
            pools: FxHashMap::default(),
            lanes: FxHashMap::default(),
            of_kind: Vec::new(),
            has_private_pools: false,
            last_lane: None,
            gone: FxHashMap::default(),
            earlier: before.pieces(),
        };
        made.pools.insert((0, 0), 0);
        let pools: Vec<u32> =
            segments.iter().map(|segment| made.pool(segment.pool.unwrap_or_default())).collect();
        made.has_private_pools = pools.iter().any(|&pool| pool != 0);
        made.owners = Owners::at_end(segments.iter().zip(pools));
        for (entry, action) in driver_calls {
            let entry = made.driver_entry(entry, *action, values);
            made.owners.undo(&entry);
        }
        made
    }

    fn driver_entry(&mut self, entry: &Entry, action: Action, values: &Values) -> DriverEntry {
        let kind = values.kind(entry.kind);
        DriverEntry {
            action,
            address: entry.address,
            size: entry.size,
            pool: kind.and_then(|kind| kind.pool).map(|id| self.pool(id)),
            stream: kind.and_then(|kind| kind.stream).map(i64::cast_unsigned),
        }
    }

    fn pool(&mut self, id: (i64, i64)) -> u32 {
        let next = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        *self.pools.entry(id).or_insert(next)
    }

    /// Pool and stream of the segment that contains an address.
    fn owner(&self, address: u64) -> Option<(u32, u64)> {
        self.owners.at(address).map(|owner| (owner.pool, owner.stream))
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
        self.push(event, CallKind::LetGo, 0, entry, false);
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
        let is_driver_call = owners::is_driver_call(action);
        if is_driver_call && matches!(kind, CallKind::SegmentAlloc | CallKind::SegmentMap) {
            let entry = self.driver_entry(entry, action, values);
            self.owners.redo(&entry);
        }
        let lane = if kind == CallKind::Complete { 0 } else { self.lane_of(entry, values) };
        if kind == CallKind::SegmentFree {
            self.gone.entry(entry.address).or_insert(lane);
        }
        if is_driver_call && matches!(kind, CallKind::SegmentFree | CallKind::SegmentUnmap) {
            let entry = self.driver_entry(entry, action, values);
            self.owners.redo(&entry);
        }
        let gives_back = matches!(kind, CallKind::SegmentFree | CallKind::SegmentUnmap);
        self.push(event, kind, lane, entry, gives_back && calls_empty_cache(entry, values));
    }

    fn push(&mut self, event: usize, kind: CallKind, lane: u16, entry: &Entry, is_asked: bool) {
        self.calls.list.push(Call {
            event: u32::try_from(event).unwrap_or(u32::MAX),
            kind,
            lane,
            address: if kind == CallKind::OutOfMemory { 0 } else { entry.address },
            size: Bytes(entry.size),
            is_asked,
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

/// Whether the stack of an entry has PyTorch's `empty_cache`.
fn calls_empty_cache(entry: &Entry, values: &Values) -> bool {
    entry.stack != NO_STACK
        && values.stacks.frames(entry.stack).iter().any(|&frame| {
            values.stacks.get(frame).is_some_and(|frame| values.names.get(frame.function) == "empty_cache")
        })
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
