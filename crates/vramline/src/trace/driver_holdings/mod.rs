//! What the driver calls of a process made it hold, and for how long.
//!
//! A call changes the memory of its device by what NVML counted around it. What it took is charged to its purpose and to the library
//! that asked; what a call gives back is taken off whoever took it. Nothing is charged twice: over all parts, changes add up to the
//! change that NVML counted during the calls. Changes between calls are kept apart, because neighbours may have made them.
//!
//! Which memory is a framework's pool is not known here: whoever knows addresses of the pool [claims](DriverHoldings::claim) it.

mod walk;

use std::collections::BTreeMap;
use std::fmt;

use super::cuda_library::CudaLibrary;
use crate::event::Framework;
use crate::recording::driver_calls::{DriverCall, DriverCalls, DriverNote};
use crate::units::{Bytes, Nanos};

/// A reading of NVML this near to a call may or may not include what the call changed.
const NEAR_NANOS: i64 = 20_000_000;

/// Ranges of memory that are looked at for an address: ranges that were used one after the other may overlap.
const NEIGHBOURS: usize = 4;

/// What memory that a driver call took is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverUse {
    /// Starting the driver, and contexts.
    Context,
    /// Modules, libraries and functions that were loaded.
    Code,
    /// First launches of kernels: local memory, and code that is loaded when it is first used.
    FirstLaunches,
    /// Limits of a context, such as the size of stacks.
    Limits,
    /// Streams.
    Streams,
    /// Events.
    Events,
    /// Graphs.
    Graphs,
    /// Memory that was asked for by its size.
    Memory,
    /// Pools of the driver (`cudaMallocAsync`).
    DriverPool,
    /// Pinned memory of the host, as far as the device holds something for it.
    Pinned,
    /// First copies, fills and synchronisations.
    Transfers,
    /// Anything else.
    Other,
}

/// A line of Python that led to a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallPlace {
    /// The file.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line.
    pub line: u32,
}

impl fmt::Display for CallPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or(&self.file);
        write!(out, "{file}:{}", self.line)
    }
}

/// Memory with a common purpose and library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingPart {
    /// CUDA's number of the device in the process.
    pub device: u16,
    /// What it is for.
    pub purpose: DriverUse,
    /// The library that asked for it.
    pub library: CudaLibrary,
    /// The line of Python that first took memory for it. Memory of the program itself is apart by line.
    pub place: Option<CallPlace>,
    /// The most that one call took, and when that call ended.
    pub largest: (i64, Nanos),
}

/// Memory that was asked for by its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverAllocation {
    /// Its part, by its place in the list.
    part: usize,
    /// The requested bytes.
    pub bytes: Bytes,
    /// When it was allocated and freed, on the monotonic clock.
    pub life: (i64, Option<i64>),
    /// Where it lies or lay: address and bytes.
    pub ranges: Vec<(u64, u64)>,
    /// Whether it is part of the framework's pool.
    is_pool: bool,
    /// Handles and mappings that keep it.
    kept_by: u32,
}

impl DriverAllocation {
    /// Whether an address lay in it at a moment of the monotonic clock; without a moment, whether it ever did.
    #[must_use]
    pub fn has(&self, address: u64, time: Option<i64>) -> bool {
        let is_alive = |time: i64| self.life.0 <= time && self.life.1.is_none_or(|end| time <= end);
        let is_in =
            |&(begin, size): &(u64, u64)| address.checked_sub(begin).is_some_and(|offset| offset < size);
        time.is_none_or(is_alive) && self.ranges.iter().any(is_in)
    }
}

/// A change of a part.
#[derive(Clone, Debug)]
struct Change {
    begin: i64,
    at: i64,
    part: usize,
    allocation: Option<usize>,
    grew: i64,
    requested: i64,
    count: i64,
    is_overlapping: bool,
    /// Everything on the device has ended with its context.
    ends_context: bool,
}

/// What a pool of the driver had in use, from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolReading {
    at: i64,
    part: usize,
    handle: u64,
    used: Bytes,
}

/// Everything that the driver calls of a process took and gave back.
#[derive(Clone, Debug, Default)]
pub struct DriverHoldings {
    parts: Vec<HoldingPart>,
    changes: Vec<Change>,
    allocations: Vec<DriverAllocation>,
    pools: Vec<PoolReading>,
    /// Parts that are pools of the driver which the framework uses as its own.
    claimed: Vec<usize>,
    /// Changes between calls: when they were seen, the device, the bytes.
    gaps: Vec<(i64, u16, i64)>,
    /// Records that were dropped.
    pub dropped: u64,
    /// Whether NVML was read around calls. Without it only requested bytes are known.
    pub is_measured: bool,
}

/// The bytes of a part at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingSum {
    /// What NVML counted.
    pub grew: i64,
    /// The requested bytes of what is still allocated; for a pool of the driver what it has reserved.
    pub requested: i64,
    /// Number of streams, events, graphs or allocations that are left.
    pub count: i64,
}

impl HoldingSum {
    fn add(&mut self, change: &Change) {
        self.grew = self.grew.saturating_add(change.grew);
        self.requested = self.requested.saturating_add(change.requested);
        self.count = self.count.saturating_add(change.count);
    }
}

/// A part at a moment.
#[derive(Clone, Debug)]
pub struct PartAt<'a> {
    /// The part.
    pub part: &'a HoldingPart,
    /// Its bytes.
    pub sum: HoldingSum,
    /// Of a pool of the driver: the bytes in use.
    pub used: Option<Bytes>,
}

/// What a process held on a device at a moment, by its driver calls.
#[derive(Clone, Debug, Default)]
pub struct HoldingsAt<'a> {
    /// The framework's pool.
    pub pool: HoldingSum,
    /// Of pools of the driver that the framework uses as its own: the bytes in use.
    pub pool_used: Option<Bytes>,
    /// Everything else that is held.
    pub parts: Vec<PartAt<'a>>,
    /// Changes between calls, which neighbours may have made.
    pub between: i64,
    /// Growth during calls of several threads at once, which may be charged to the wrong one of them.
    pub overlapping: i64,
}

impl HoldingsAt<'_> {
    /// What NVML counted for the pool and everything else together.
    #[must_use]
    pub fn grew(&self) -> i64 {
        self.parts.iter().fold(self.pool.grew, |sum, part| sum.saturating_add(part.sum.grew))
    }
}

impl DriverHoldings {
    /// Interprets the calls of a process.
    #[must_use]
    pub fn of(calls: &DriverCalls) -> DriverHoldings {
        let mut walk = walk::Walk::default();
        let mut order: Vec<&DriverCall> = calls.calls.iter().collect();
        order.sort_by_key(|call| call.end);
        for call in order {
            walk.take(call);
        }
        let cannot = |note: &DriverNote| matches!(note, DriverNote::NoNvml(_));
        let mut holdings = walk.holdings;
        holdings.dropped = calls.dropped;
        holdings.is_measured =
            !calls.notes.iter().any(cannot) && calls.calls.iter().any(|call| call.after.is_some());
        holdings
    }

    /// The devices, by CUDA's numbers.
    #[must_use]
    pub fn devices(&self) -> Vec<u16> {
        let mut devices: Vec<u16> = self.parts.iter().map(|part| part.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Marks the framework's pool on a device: memory in which a block of the pool lay, and memory that a library of the framework took
    /// while no trace shows blocks. `blocks` are addresses with their moments; within `shown` every block is among them.
    pub fn claim(
        &mut self,
        device: u16,
        framework: Framework,
        blocks: impl Iterator<Item = (u64, Option<i64>)>,
        shown: &[(i64, i64)],
    ) {
        let parts = &self.parts;
        let is_here = |allocation: &DriverAllocation| {
            parts.get(allocation.part).is_some_and(|part| part.device == device)
        };
        let is_framework = |allocation: &DriverAllocation| {
            parts.get(allocation.part).is_some_and(|part| part.library.is_of(framework))
        };
        let mut starts: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut missing = 0_usize;
        for (place, allocation) in self.allocations.iter().enumerate().filter(|(_, one)| is_here(one)) {
            missing += usize::from(is_framework(allocation));
            for (address, _) in &allocation.ranges {
                starts.entry(*address).or_default().push(place);
            }
        }
        for (address, time) in blocks {
            if missing == 0 {
                break;
            }
            let near = starts.range(..=address).rev().take(NEIGHBOURS).flat_map(|(_, places)| places);
            let mut found = near.filter(|&&place| {
                self.allocations.get(place).is_some_and(|allocation| allocation.has(address, time))
            });
            let Some(allocation) = found.next().and_then(|&place| self.allocations.get_mut(place)) else {
                continue;
            };
            if !allocation.is_pool {
                allocation.is_pool = true;
                missing -= usize::from(is_framework(allocation));
            }
        }
        let is_shown = |at: i64| shown.iter().any(|&(from, to)| at >= from && at <= to);
        for allocation in &mut self.allocations {
            let is_it = is_here(allocation) && is_framework(allocation);
            allocation.is_pool |= is_it && !is_shown(allocation.life.0);
        }
        let of_driver = |part: &HoldingPart| {
            let is_it = part.purpose == DriverUse::DriverPool && part.device == device;
            is_it && part.library.is_of(framework)
        };
        let claimed = self.parts.iter().enumerate().filter(|(_, part)| of_driver(part));
        self.claimed.extend(claimed.map(|(place, _)| place));
    }

    fn is_pool(&self, change: &Change) -> bool {
        let allocation = change.allocation.and_then(|place| self.allocations.get(place));
        allocation.is_some_and(|allocation| allocation.is_pool) || self.claimed.contains(&change.part)
    }

    fn is_on(&self, part: usize, device: u16) -> bool {
        self.parts.get(part).is_some_and(|part| part.device == device)
    }

    /// What the framework's pool had requested from the driver, from each moment on.
    #[must_use]
    pub fn pool_series(&self, device: u16) -> Vec<(i64, Bytes)> {
        let mut series: Vec<(i64, Bytes)> = Vec::new();
        let mut now = 0_i64;
        for change in self.changes.iter().filter(|change| self.is_on(change.part, device)) {
            if change.ends_context {
                now = 0;
            } else if self.is_pool(change) {
                now = now.saturating_add(change.requested);
            } else {
                continue;
            }
            series.push((change.at, Bytes(u64::try_from(now).unwrap_or(0))));
        }
        series
    }

    /// What pools of the driver that the framework uses as its own had in use, at each moment that is known.
    #[must_use]
    pub fn pool_used_series(&self, device: u16) -> Vec<(i64, Bytes)> {
        let mut now: BTreeMap<(usize, u64), Bytes> = BTreeMap::new();
        let is_it =
            |reading: &&PoolReading| self.claimed.contains(&reading.part) && self.is_on(reading.part, device);
        let point = |reading: &PoolReading| {
            now.insert((reading.part, reading.handle), reading.used);
            (reading.at, now.values().copied().sum())
        };
        self.pools.iter().filter(is_it).map(point).collect()
    }

    /// The highest that all parts hold on a device, and when that was.
    #[must_use]
    pub fn peak(&self, device: u16) -> Option<(i64, i64)> {
        let (mut now, mut peak) = (0_i64, None);
        for change in self.changes.iter().filter(|change| self.is_on(change.part, device)) {
            now = now.saturating_add(if self.is_measured { change.grew } else { change.requested });
            if peak.is_none_or(|(most, _)| now > most) {
                peak = Some((now, change.at));
            }
        }
        peak
    }

    /// By how much memory of a device changed after one moment, up to another: with calls, and between them where no other process can have
    /// done that.
    #[must_use]
    pub fn grown_between(&self, device: u16, (after, by): (i64, i64), is_alone: bool) -> i64 {
        self.changed_between(device, (after, by), is_alone).fold(0, i64::saturating_add)
    }

    /// Whether that did not change at all meanwhile.
    #[must_use]
    pub fn is_unchanged_between(&self, device: u16, (after, by): (i64, i64), is_alone: bool) -> bool {
        self.changed_between(device, (after, by), is_alone).all(|bytes| bytes == 0)
    }

    fn changed_between(
        &self,
        device: u16,
        (after, by): (i64, i64),
        is_alone: bool,
    ) -> impl Iterator<Item = i64> {
        let is_within = move |at: i64| at > after && at <= by;
        let with_calls = self.changes.iter().filter(move |change| self.is_on(change.part, device));
        let with_calls = with_calls.filter(move |change| is_within(change.at)).map(|change| change.grew);
        let between = self.gaps.iter().filter(move |(at, on, _)| is_alone && *on == device && is_within(*at));
        with_calls.chain(between.map(|(_, _, bytes)| *bytes))
    }

    /// What was held on a device at a moment of the monotonic clock.
    #[must_use]
    pub fn at(&self, device: u16, time: i64) -> HoldingsAt<'_> {
        let mut sums: BTreeMap<usize, HoldingSum> = BTreeMap::new();
        let mut now = HoldingsAt::default();
        let until = self.changes.iter().take_while(|change| change.at <= time);
        for change in until.filter(|change| self.is_on(change.part, device)) {
            if change.is_overlapping {
                now.overlapping = now.overlapping.saturating_add(change.grew.abs());
            }
            if change.ends_context {
                let left: i64 = sums.values().map(|sum| sum.grew).sum();
                let grew = left.saturating_add(now.pool.grew).saturating_add(change.grew);
                sums.clear();
                now.pool = HoldingSum::default();
                sums.insert(change.part, HoldingSum { grew, ..HoldingSum::default() });
            } else if self.is_pool(change) {
                now.pool.add(change);
            } else {
                sums.entry(change.part).or_default().add(change);
            }
        }
        let mut used: BTreeMap<(usize, u64), Bytes> = BTreeMap::new();
        for reading in self.pools.iter().take_while(|reading| reading.at <= time) {
            if self.is_on(reading.part, device) {
                used.insert((reading.part, reading.handle), reading.used);
            }
        }
        let mut used_of: BTreeMap<usize, Bytes> = BTreeMap::new();
        for ((part, _), bytes) in used {
            if self.claimed.contains(&part) {
                now.pool_used = Some(now.pool_used.unwrap_or_default() + bytes);
            } else {
                *used_of.entry(part).or_default() += bytes;
            }
        }
        let gaps = self.gaps.iter().filter(|(at, on, _)| *at <= time && *on == device);
        now.between = gaps.fold(0, |sum, (_, _, bytes)| sum.saturating_add(*bytes));
        let is_held = |sum: &HoldingSum| sum.grew != 0 || sum.requested != 0 || sum.count != 0;
        let held = sums.into_iter().filter(|(_, sum)| is_held(sum));
        let part_at = |(place, sum): (usize, HoldingSum)| {
            Some(PartAt { part: self.parts.get(place)?, sum, used: used_of.get(&place).copied() })
        };
        now.parts = held.filter_map(part_at).collect();
        now
    }

    /// Whether no call that changed memory of a device was going on at a moment, or shortly before or after it.
    #[must_use]
    pub fn is_steady(&self, device: u16, time: i64) -> bool {
        let is_near = |change: &Change| {
            let span = change.begin.saturating_sub(NEAR_NANOS)..=change.at.saturating_add(NEAR_NANOS);
            change.grew != 0 && span.contains(&time) && self.is_on(change.part, device)
        };
        !self.changes.iter().any(is_near)
    }

    /// The part that the largest allocation of the framework's pool belongs to: who reserved it.
    #[must_use]
    pub fn reserved_by(&self, device: u16) -> Option<&HoldingPart> {
        let of_pool = self.allocations.iter().filter(|allocation| allocation.is_pool);
        let on_device = of_pool.filter(|allocation| self.is_on(allocation.part, device));
        let largest = on_device.max_by_key(|allocation| allocation.bytes).map(|allocation| allocation.part);
        let of_driver = || self.claimed.iter().copied().find(|&part| self.is_on(part, device));
        self.parts.get(largest.or_else(of_driver)?)
    }
}
