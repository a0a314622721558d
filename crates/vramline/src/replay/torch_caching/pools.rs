//! Infers the private pools that a snapshot does not name.
//!
//! A snapshot names the pools of the segments that exist at its end. If its entries do not name pools (before 2026), the pool of a
//! segment that was returned earlier must be inferred. The layout of blocks inside a segment follows from the addresses of the trace
//! alone, so the allocator's choices can be read without knowing any pool:
//!
//! - A request takes the smallest free block of its pool, stream and size class. A segment with a smaller block that fits was in
//!   another pool, and so was each segment with a block that fits when a new segment was taken from the driver.
//! - A pool has one expandable segment for each stream and size class. Two that exist at the same time are of different pools.
//! - A release of the cache returns all idle segments of the default pool, large ones first, each size class in order of stream, size
//!   and address, and then those of private pools. An idle segment that stays, or one out of that order, is in a private pool.
//! - A CUDA graph diverts all requests of its stream to its pool while it is captured. Segments whose requests alternate on one stream
//!   are in the same pool, unless one of the rules above says otherwise.
//!
//! What is left is in the default pool. The replay compares every address afterwards, so a wrong guess does not stay hidden.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::allocator::torch_caching::Options;
use crate::event::caching::{CallKind, Calls};
use crate::replay::program::{ActKind, DriverCall, Program};
use crate::units::Bytes;

/// Sites that are looked at in all, before the search for differences ends: a bound on time.
const MOST_VISITS: u64 = 1 << 26;
/// More segments than these are not told apart.
const MOST_SITES: usize = 1 << 14;
/// Ranges of one expandable segment lie closer together than this.
const APART: u64 = 4 << 30;

/// A segment from the call that took it to the call that returned it.
#[derive(Clone, Debug, Default)]
struct Site {
    end: u64,
    stream: u64,
    /// The pool that the snapshot names, or the default pool.
    pool: u32,
    is_small: bool,
    is_expandable: bool,
    /// Whether it was taken from the driver for the next request.
    is_new: bool,
    /// Whether it was returned, so that the snapshot does not name its pool.
    is_gone: bool,
    /// Mapped bytes of an expandable segment.
    mapped: u64,
    /// Free blocks by address.
    free: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    used: usize,
}

impl Site {
    fn put(&mut self, mut address: u64, mut size: u64) {
        if let Some((&before, &length)) = self.free.range(..address).next_back()
            && before.saturating_add(length) == address
        {
            self.take(before);
            (address, size) = (before, size.saturating_add(length));
        }
        if let Some(length) = self.free.get(&address.saturating_add(size)).copied() {
            self.take(address.saturating_add(size));
            size = size.saturating_add(length);
        }
        self.free.insert(address, size);
        self.by_size.insert((size, address));
    }

    fn take(&mut self, address: u64) -> Option<u64> {
        let size = self.free.remove(&address)?;
        self.by_size.remove(&(size, address));
        Some(size)
    }

    /// The smallest free block of at least that size.
    fn best(&self, rounded: u64) -> Option<u64> {
        self.by_size.range((rounded, 0)..).next().map(|&(size, _)| size)
    }
}

/// Walks through a program and notes which segments cannot share a pool, and which alternate.
#[derive(Default)]
struct Walk {
    sites: Vec<Site>,
    /// Existing segments by address.
    live: BTreeMap<u64, u32>,
    /// Existing segments by stream and size class.
    shelves: FxHashMap<(u64, bool), Vec<u32>>,
    /// The site, address and size of what is in each slot.
    slots: Vec<Option<(u32, u64, u64)>>,
    differ: FxHashSet<(u32, u32)>,
    private: FxHashSet<u32>,
    alternate: FxHashMap<(u32, u32), u32>,
    /// The site of the last request of each stream.
    last: FxHashMap<u64, u32>,
    /// The site of each request, by its act.
    of_act: Vec<(usize, u32)>,
    visits: u64,
}

fn pair(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

impl Walk {
    fn site(&self, number: u32) -> Option<&Site> {
        self.sites.get(number as usize)
    }

    fn site_mut(&mut self, number: u32) -> Option<&mut Site> {
        self.sites.get_mut(number as usize)
    }

    /// The segment that contains an address.
    fn at(&self, address: u64) -> Option<u32> {
        let (_, &number) = self.live.range(..=address).next_back()?;
        self.site(number).filter(|site| address < site.end).map(|_| number)
    }

    fn add(&mut self, base: u64, site: Site) -> Option<u32> {
        let number = u32::try_from(self.sites.len()).ok().filter(|_| self.sites.len() < MOST_SITES)?;
        self.shelves.entry((site.stream, site.is_small)).or_default().push(number);
        self.sites.push(site);
        self.live.insert(base, number);
        Some(number)
    }

    fn remove(&mut self, base: u64) {
        let Some(number) = self.live.remove(&base) else { return };
        let Some(site) = self.site_mut(number) else { return };
        site.is_gone = true;
        let key = (site.stream, site.is_small);
        if let Some(shelf) = self.shelves.get_mut(&key) {
            shelf.retain(|&other| other != number);
        }
    }

    fn call(&mut self, call: &DriverCall, lane: (u32, u64), is_small: bool) {
        let (pool, stream) = lane;
        let end = call.address.saturating_add(call.size);
        match call.kind {
            CallKind::SegmentAlloc => {
                let mut site = Site { end, stream, pool, is_small, is_new: true, ..Site::default() };
                site.put(call.address, call.size);
                self.add(call.address, site);
            }
            CallKind::SegmentFree => self.remove(call.address),
            CallKind::SegmentMap => {
                let near = self.live.range(..=call.address).next_back().map(|(_, &number)| number);
                let near = near.filter(|&number| {
                    self.site(number).is_some_and(|site| {
                        site.is_expandable
                            && site.stream == stream
                            && call.address.saturating_sub(site.end) < APART
                    })
                });
                if let Some(site) = near.and_then(|number| self.site_mut(number)) {
                    site.end = site.end.max(end);
                    site.mapped = site.mapped.saturating_add(call.size);
                    site.pool = pool;
                    return;
                }
                let others = self.shelves.get(&(stream, is_small)).cloned().unwrap_or_default();
                let mapped = call.size;
                let site =
                    Site { end, stream, pool, is_small, is_expandable: true, mapped, ..Site::default() };
                let Some(number) = self.add(call.address, site) else { return };
                for other in others {
                    if self.site(other).is_some_and(|site| site.is_expandable) {
                        self.differ.insert(pair(number, other));
                    }
                }
            }
            CallKind::SegmentUnmap => {
                let Some(number) = self.at(call.address) else { return };
                let Some(site) = self.site_mut(number) else { return };
                site.mapped = site.mapped.saturating_sub(call.size);
                if site.mapped == 0 {
                    let base = self.live.range(..=call.address).next_back().map(|(&base, _)| base);
                    base.into_iter().for_each(|base| self.remove(base));
                }
            }
            CallKind::LetGo | CallKind::Complete | CallKind::OutOfMemory => {}
        }
    }

    /// Reads the order in which a group of calls returns segments; `is_full` if everything idle goes.
    fn release(&mut self, group: &[DriverCall], is_full: bool) {
        let mut highest = None;
        let mut is_private = false;
        let mut returned = FxHashSet::default();
        for call in group.iter().filter(|call| call.kind == CallKind::SegmentFree) {
            let Some(&number) = self.live.get(&call.address) else { continue };
            returned.insert(number);
            let Some(site) = self.site(number).filter(|_| is_full) else { continue };
            let place = (site.is_small, site.stream, call.size, call.address);
            is_private |= highest.is_some_and(|highest| place < highest);
            highest = highest.max(Some(place));
            if is_private {
                self.private.insert(number);
            }
        }
        if is_full && !returned.is_empty() {
            for &number in self.live.values() {
                let stays = self.site(number).is_some_and(|site| site.used == 0 && !site.is_expandable);
                if stays && !returned.contains(&number) {
                    self.private.insert(number);
                }
            }
        }
    }

    fn request(&mut self, act: usize, slot: usize, address: u64, rounded: u64, options: &Options) {
        let Some(number) = self.at(address) else { return };
        self.of_act.push((act, number));
        let Some(site) = self.site_mut(number) else { return };
        let is_new = std::mem::take(&mut site.is_new);
        let size = site.free.get(&address).copied();
        let (stream, is_small, is_expandable) = (site.stream, site.is_small, site.is_expandable);
        if let Some(last) = self.last.insert(stream, number).filter(|&last| last != number) {
            *self.alternate.entry(pair(last, number)).or_default() += 1;
        }
        if is_expandable {
            return;
        }
        self.compare(number, rounded, size.filter(|_| !is_new), options);
        let Some(site) = self.site_mut(number) else { return };
        // Its address is inside a free block only if the trace leaves something out.
        let Some(whole) = site.take(address) else { return };
        let rest = whole.saturating_sub(rounded);
        let splits = if is_small {
            rest >= 512
        } else {
            rest > 1 << 20 && options.max_split.is_none_or(|most| rounded < most.0)
        };
        let taken = if splits { rounded } else { whole };
        if splits {
            site.put(address.saturating_add(taken), rest);
        }
        site.used += 1;
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some((number, address, taken));
        }
    }

    /// Notes which segments cannot be in the pool of one that served a request: they have a better block. `size` is the block that it
    /// got; `None` if its segment is new.
    fn compare(&mut self, number: u32, rounded: u64, size: Option<u64>, options: &Options) {
        let Some(site) = self.site(number) else { return };
        let Some(shelf) = self.shelves.get(&(site.stream, site.is_small)) else { return };
        if self.visits > MOST_VISITS {
            return;
        }
        self.visits += shelf.len() as u64;
        for &other in shelf.iter().filter(|&&other| other != number) {
            let Some(best) = self.sites.get(other as usize).and_then(|site| site.best(rounded)) else {
                continue;
            };
            let is_better = match size {
                // Of equal blocks, versions choose differently.
                Some(size) => best < size,
                // A block of that size is kept for other requests.
                None => options.max_split.is_none(),
            };
            if is_better {
                self.differ.insert(pair(number, other));
            }
        }
    }

    fn free(&mut self, slot: usize) {
        let Some((number, address, size)) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if let Some(site) = self.site_mut(number) {
            site.used = site.used.saturating_sub(1);
            site.put(address, size);
        }
    }
}

/// Groups of segments in the same pool.
struct Groups {
    parents: Vec<u32>,
    /// The pool of a group, by its root, if it is known.
    pools: Vec<Option<u32>>,
    /// Roots of groups that are in other pools.
    differ: Vec<FxHashSet<u32>>,
    private: Vec<bool>,
}

impl Groups {
    fn new(walk: &Walk) -> Groups {
        let count = walk.sites.len();
        let known = |site: &Site| (!site.is_gone).then_some(site.pool);
        let mut groups = Groups {
            parents: (0..u32::try_from(count).unwrap_or(u32::MAX)).collect(),
            pools: walk.sites.iter().map(known).collect(),
            differ: vec![FxHashSet::default(); count],
            private: vec![false; count],
        };
        for &(one, other) in &walk.differ {
            for (one, other) in [(one, other), (other, one)] {
                if let Some(set) = groups.differ.get_mut(one as usize) {
                    set.insert(other);
                }
            }
        }
        for &number in &walk.private {
            if let Some(is_private) = groups.private.get_mut(number as usize) {
                *is_private = true;
            }
        }
        let mut first: FxHashMap<u32, u32> = FxHashMap::default();
        for (number, site) in (0_u32..).zip(&walk.sites).filter(|(_, site)| !site.is_gone) {
            let &mut root = first.entry(site.pool).or_insert(number);
            groups.join(root, number);
        }
        groups
    }

    fn root(&mut self, number: u32) -> u32 {
        let mut root = number;
        while let Some(&parent) = self.parents.get(root as usize).filter(|&&parent| parent != root) {
            root = parent;
        }
        let mut at = number;
        while at != root {
            let Some(parent) = self.parents.get_mut(at as usize) else { break };
            at = std::mem::replace(parent, root);
        }
        root
    }

    fn pool(&mut self, number: u32) -> Option<u32> {
        let root = self.root(number);
        self.pools.get(root as usize).copied().flatten()
    }

    fn is_private(&mut self, number: u32) -> bool {
        let root = self.root(number);
        self.private.get(root as usize).copied().unwrap_or_default()
    }

    /// Whether two groups may be in the same pool.
    fn may_join(&mut self, one: u32, other: u32) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        let pools = (self.pool(one), self.pool(other));
        let differs = self.differ.get(one as usize).is_some_and(|set| set.contains(&other));
        let has_two_pools = matches!(pools, (Some(one), Some(other)) if one != other);
        let is_split =
            pools.0 == Some(0) && self.is_private(other) || pools.1 == Some(0) && self.is_private(one);
        one != other && !differs && !has_two_pools && !is_split
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return;
        }
        let pool = self.pool(one).or(self.pool(other));
        let is_private = self.is_private(one) || self.is_private(other);
        let gone = self.differ.get_mut(other as usize).map(std::mem::take).unwrap_or_default();
        for &third in &gone {
            if let Some(set) = self.differ.get_mut(third as usize) {
                set.remove(&other);
                set.insert(one);
            }
        }
        if let Some(set) = self.differ.get_mut(one as usize) {
            set.extend(gone);
        }
        if let Some(parent) = self.parents.get_mut(other as usize) {
            *parent = one;
        }
        if let (Some(known), Some(private)) =
            (self.pools.get_mut(one as usize), self.private.get_mut(one as usize))
        {
            (*known, *private) = (pool, is_private);
        }
    }

    fn differs_from_default(&mut self, number: u32, default: Option<u32>) -> bool {
        self.is_private(number) || default.is_some_and(|default| !self.may_join(number, default))
    }
}

/// Infers the pools of requests in segments that no longer exist at the end, and of requests that failed. Returns the number of
/// segments that were found to be in private pools.
pub(super) fn infer(program: &mut Program, options: &Options) -> u64 {
    let walk = walk(program, options);
    let mut groups = Groups::new(&walk);
    let mut edges: Vec<((u32, u32), u32)> =
        walk.alternate.iter().map(|(&pair, &count)| (pair, count)).collect();
    edges.sort_unstable_by_key(|&(pair, count)| (std::cmp::Reverse(count), pair));
    for &((one, other), _) in edges.iter().filter(|(_, count)| *count > 1) {
        if groups.may_join(one, other) {
            groups.join(one, other);
        }
    }
    let mut default = walk.sites.iter().position(|site| !site.is_gone && site.pool == 0);
    let mut next_pool = program.driver.lanes.iter().map(|lane| lane.0).max().unwrap_or_default();
    let mut found = 0;
    for number in 0..u32::try_from(walk.sites.len()).unwrap_or_default() {
        if groups.pool(number).is_some() {
            continue;
        }
        let default_site = default.and_then(|site| u32::try_from(site).ok());
        let root = groups.root(number);
        let pool = if groups.differs_from_default(root, default_site) {
            let beside = edges.iter().find_map(|&((one, other), _)| {
                let (inside, outside) = (groups.root(one), groups.root(other));
                let outside = if inside == root {
                    outside
                } else if outside == root {
                    inside
                } else {
                    return None;
                };
                groups
                    .pool(outside)
                    .filter(|&pool| pool != 0 && groups.may_join(root, outside))
                    .map(|_| outside)
            });
            if let Some(beside) = beside {
                groups.join(beside, root);
                continue;
            }
            next_pool = next_pool.saturating_add(1);
            next_pool
        } else {
            0
        };
        if let Some(known) = groups.pools.get_mut(root as usize) {
            *known = Some(pool);
        }
        if pool == 0 {
            match default_site {
                Some(site) => groups.join(site, root),
                None => default = Some(root as usize),
            }
        }
    }
    let mut lanes: FxHashMap<(u32, u64), u16> = FxHashMap::default();
    for (number, &lane) in (0_u16..).zip(&program.driver.lanes) {
        lanes.entry(lane).or_insert(number);
    }
    let mut of_site: Vec<Option<u16>> = vec![None; walk.sites.len()];
    for (number, site) in (0_u32..).zip(&walk.sites).filter(|(_, site)| site.is_gone) {
        let pool = groups.pool(number).unwrap_or_default();
        found += u64::from(pool != 0);
        let known = &mut program.driver.lanes;
        let lane = *lanes.entry((pool, site.stream)).or_insert_with(|| {
            let lane = u16::try_from(known.len()).ok().filter(|_| known.len() < Calls::MOST_LANES);
            lane.inspect(|_| known.push((pool, site.stream))).unwrap_or(Calls::NO_LANE)
        });
        if let Some(slot) = of_site.get_mut(number as usize) {
            *slot = Some(lane).filter(|&lane| lane != Calls::NO_LANE);
        }
    }
    for &(act, site) in &walk.of_act {
        if let Some(&Some(lane)) = of_site.get(site as usize)
            && let Some(act) = program.acts.get_mut(act)
        {
            *act = act.asking(act.asked().unwrap_or_default(), lane);
        }
    }
    for ((segment, _), lane) in program.driver.segments.iter_mut().zip(&of_site) {
        segment.lane = lane.unwrap_or(segment.lane);
    }
    place_failures(program);
    found
}

/// Walks through a program with its calls to the driver.
fn walk(program: &Program, options: &Options) -> Walk {
    let small = |bytes: Bytes| options.rounded(bytes).is_some_and(|rounded| rounded.0 <= 1 << 20);
    let lanes = &program.driver.lanes;
    let lane = |number: u16| lanes.get(usize::from(number)).copied().unwrap_or_default();
    let mut walk = Walk { slots: vec![None; program.slots], ..Walk::default() };
    for (segment, slots) in &program.driver.segments {
        let (pool, stream) = lane(segment.lane);
        let end = segment.base.saturating_add(segment.size.0);
        let mut site = Site { end, stream, pool, is_small: segment.is_small, ..Site::default() };
        site.used = segment.held.len();
        let mut at = segment.base;
        for &(address, size, _) in &segment.held {
            if address > at {
                site.put(at, address - at);
            }
            at = at.max(address.saturating_add(size.0));
        }
        if end > at {
            site.put(at, end - at);
        }
        let Some(number) = walk.add(segment.base, site) else { break };
        for (&slot, &(address, size, _)) in slots.iter().zip(&segment.held) {
            if let Some(place) = walk.slots.get_mut(slot as usize) {
                *place = Some((number, address, size.0));
            }
        }
    }
    // Then not everything idle goes at once.
    let is_partial = options.max_split.is_some() || options.garbage_collection_threshold > 0.0;
    let mut rest = program.driver.calls.as_slice();
    for (at, (act, answer)) in program.acts.iter().zip(&program.answers).enumerate() {
        let count = rest.iter().take_while(|call| call.before as usize <= at).count();
        let (group, later) = rest.split_at(count);
        rest = later;
        if !group.is_empty() {
            walk.release(group, !is_partial);
            let is_small = act.asked().is_some_and(small);
            group.iter().for_each(|call| walk.call(call, lane(call.lane), is_small));
        }
        match act.kind() {
            ActKind::Request => {
                let bytes = act.asked().unwrap_or_default();
                if let Some(Bytes(rounded)) = options.rounded(bytes) {
                    walk.request(at, act.slot(), answer.address, rounded, options);
                }
            }
            ActKind::Free | ActKind::Complete => walk.free(act.slot()),
            ActKind::LetGo | ActKind::Fail => {}
        }
    }
    walk.release(rest, !is_partial);
    rest.iter().for_each(|call| walk.call(call, lane(call.lane), false));
    walk
}

/// A request that failed has no address. Its pool is that of the request before it on its stream: a capture diverts them all.
fn place_failures(program: &mut Program) {
    let mut last: FxHashMap<u64, u16> = FxHashMap::default();
    let lanes = &program.driver.lanes;
    for act in &mut program.acts {
        let Some(bytes) = act.asked() else { continue };
        let Ok(lane) = u16::try_from(act.lane()) else { continue };
        let Some(&(_, stream)) = lanes.get(act.lane()) else { continue };
        if act.kind() == ActKind::Fail {
            *act = act.asking(bytes, last.get(&stream).copied().unwrap_or(lane));
        } else {
            last.insert(stream, lane);
        }
    }
}
