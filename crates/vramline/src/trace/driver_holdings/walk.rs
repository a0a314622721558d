//! Reads the calls of a process in order, and keeps whose each handle, address and pool is.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{CallPlace, Change, DriverAllocation, DriverHoldings, DriverUse, HoldingPart, PoolReading};
use crate::recording::driver_calls::DriverCall;
use crate::trace::cuda_library::{CudaLibrary, LibraryOwner};
use crate::units::{Bytes, Nanos};

/// What a call does.
#[derive(Clone, Copy)]
enum Act {
    /// Changes memory, and makes nothing that has a handle.
    Change,
    /// Makes an object with a handle.
    Make,
    /// Ends an object.
    End,
    /// Ends a context.
    EndContext,
    /// Allocates memory at an address.
    Allocate,
    /// Frees memory at an address.
    Free,
    /// Creates, maps, unmaps and releases memory without an address of its own.
    Create,
    Map,
    Unmap,
    Release,
    /// Allocates from a pool of the driver, frees, or changes the pool.
    Pool,
    /// Ends a pool of the driver.
    EndPool,
}

fn act_of(function: &str) -> (DriverUse, Act) {
    use Act::{Allocate, Change, Create, End, EndContext, EndPool, Free, Make, Map, Pool, Release, Unmap};
    match function {
        "cuCtxDestroy" | "cuDevicePrimaryCtxRelease" | "cuDevicePrimaryCtxReset" => {
            (DriverUse::Context, EndContext)
        }
        "cuCtxSetLimit" => (DriverUse::Limits, Change),
        "cuGreenCtxStreamCreate" | "cuStreamCreate" | "cuStreamCreateWithPriority" => {
            (DriverUse::Streams, Make)
        }
        "cuStreamDestroy" => (DriverUse::Streams, End),
        "cuEventCreate" | "cuIpcOpenEventHandle" => (DriverUse::Events, Make),
        "cuEventDestroy" => (DriverUse::Events, End),
        "cuGraphInstantiate" | "cuGraphInstantiateWithFlags" | "cuGraphInstantiateWithParams" => {
            (DriverUse::Graphs, Make)
        }
        "cuGraphExecDestroy" => (DriverUse::Graphs, End),
        name if name.starts_with("cuModuleLoad") || name.starts_with("cuLibraryLoad") => {
            (DriverUse::Code, Make)
        }
        "cuModuleUnload" | "cuLibraryUnload" => (DriverUse::Code, End),
        "cuMemAlloc"
        | "cuMemAllocPitch"
        | "cuMemAllocManaged"
        | "cuArrayCreate"
        | "cuArray3DCreate"
        | "cuMipmappedArrayCreate"
        | "cuIpcOpenMemHandle"
        | "cuImportExternalMemory" => (DriverUse::Memory, Allocate),
        "cuMemFree"
        | "cuArrayDestroy"
        | "cuMipmappedArrayDestroy"
        | "cuIpcCloseMemHandle"
        | "cuDestroyExternalMemory" => (DriverUse::Memory, Free),
        "cuMemCreate" | "cuMemImportFromShareableHandle" | "cuMulticastCreate" => (DriverUse::Memory, Create),
        "cuMemMap" => (DriverUse::Memory, Map),
        "cuMemUnmap" => (DriverUse::Memory, Unmap),
        "cuMemRelease" => (DriverUse::Memory, Release),
        "cuMemHostAlloc" | "cuMemAllocHost" | "cuMemHostRegister" => (DriverUse::Pinned, Make),
        "cuMemFreeHost" | "cuMemHostUnregister" => (DriverUse::Pinned, End),
        "cuMemAllocAsync"
        | "cuMemAllocFromPoolAsync"
        | "cuMemFreeAsync"
        | "cuMemPoolTrimTo"
        | "cuMemPoolCreate"
        | "cuMemPoolSetAttribute"
        | "cuDeviceSetMemPool" => (DriverUse::DriverPool, Pool),
        "cuMemPoolDestroy" => (DriverUse::DriverPool, EndPool),
        name => (use_of(name), Change),
    }
}

/// What the other functions are for, by their beginnings.
fn use_of(function: &str) -> DriverUse {
    const STARTS: [(&str, DriverUse); 17] = [
        ("cuInit", DriverUse::Context),
        ("cuDevicePrimaryCtx", DriverUse::Context),
        ("cuCtxCreate", DriverUse::Context),
        ("cuCtxEnablePeer", DriverUse::Context),
        ("cuCtxDisablePeer", DriverUse::Context),
        ("cuGreenCtx", DriverUse::Context),
        ("cuModule", DriverUse::Code),
        ("cuLibrary", DriverUse::Code),
        ("cuKernel", DriverUse::Code),
        ("cuFunc", DriverUse::Code),
        ("cuOccupancy", DriverUse::Code),
        ("cuLaunch", DriverUse::FirstLaunches),
        ("cuGraph", DriverUse::Graphs),
        ("cuDeviceGraph", DriverUse::Graphs),
        ("cuMemcpy", DriverUse::Transfers),
        ("cuMemset", DriverUse::Transfers),
        ("cuMem", DriverUse::Memory),
    ];
    let is_transfer = ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventRecord"].contains(&function);
    if is_transfer {
        return DriverUse::Transfers;
    }
    STARTS.iter().find(|(start, _)| function.starts_with(start)).map_or(DriverUse::Other, |(_, found)| *found)
}

/// Who took memory for what: the key of a part.
type PartKey = (u16, DriverUse, CudaLibrary, Option<CallPlace>);

/// The state of a process while its calls are read in order.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) holdings: DriverHoldings,
    keys: BTreeMap<PartKey, usize>,
    /// By device and handle: the part of a stream, event, graph or module.
    objects: FxHashMap<(u16, DriverUse, u64), usize>,
    /// By address: the allocation.
    addresses: FxHashMap<u64, usize>,
    /// By handle: memory without an address.
    physical: FxHashMap<u64, usize>,
    /// By address: bytes and memory that is mapped there.
    mapped: BTreeMap<u64, (u64, usize)>,
    /// By handle: the part of a pool of the driver, and what it has reserved.
    pools: FxHashMap<u64, (usize, i64)>,
}

impl Walk {
    pub(super) fn take(&mut self, call: &DriverCall) {
        let (purpose, act) = act_of(&call.function);
        // The device of a growth may be another one where it is a guess.
        let grew = if call.is_guess { 0 } else { call.grew };
        if call.gap != 0 && !call.is_guess {
            self.holdings.gaps.push((call.end.0, call.device, call.gap));
        }
        let own = self.part(call, purpose);
        let has_succeeded = call.result == 0;
        let mut change = Change {
            begin: call.begin.0,
            at: call.end.0,
            part: own,
            allocation: None,
            grew,
            requested: 0,
            count: 0,
            is_overlapping: call.is_overlapping,
            ends_context: false,
        };
        match act {
            _ if !has_succeeded => {}
            Act::Change => {}
            Act::Make => {
                change.count = 1;
                if let Some(handle) = call.handle {
                    self.objects.insert((call.device, purpose, handle), own);
                }
            }
            Act::End => {
                let known =
                    call.handle.and_then(|handle| self.objects.remove(&(call.device, purpose, handle)));
                if let Some(part) = known {
                    (change.part, change.count) = (part, -1);
                }
            }
            // A context that others still use stays.
            Act::EndContext => {
                change.ends_context = grew < 0;
                if change.ends_context {
                    self.end_context(call.device, call.end.0);
                }
            }
            Act::Allocate => self.allocate(&mut change, call, true),
            Act::Create => self.allocate(&mut change, call, false),
            Act::Free => {
                let found = call.handle.and_then(|address| self.addresses.remove(&address));
                self.let_go(&mut change, found);
            }
            Act::Map => self.map(call),
            Act::Unmap => self.unmap(&mut change, call),
            Act::Release => {
                let found = call.handle.and_then(|handle| self.physical.remove(&handle));
                self.let_go(&mut change, found);
            }
            Act::Pool => self.pool(&mut change, call),
            Act::EndPool => {
                if let Some((part, reserved)) = call.handle.and_then(|handle| self.pools.remove(&handle)) {
                    (change.part, change.requested) = (part, reserved.saturating_neg());
                    self.read_pool(call, part, Bytes::ZERO);
                }
            }
        }
        if change.grew != 0 || change.requested != 0 || change.count != 0 {
            if let Some(part) = self.holdings.parts.get_mut(change.part)
                && change.grew > part.largest.0
            {
                part.largest = (change.grew, call.end);
            }
            self.holdings.changes.push(change);
        }
    }

    /// The part that a call belongs to.
    fn part(&mut self, call: &DriverCall, purpose: DriverUse) -> usize {
        let library = CudaLibrary::of(call.library.as_deref());
        let place = call.line.as_ref().ok().map(|line| CallPlace {
            file: line.file.clone(),
            function: line.function.clone(),
            line: line.line,
        });
        let is_own = matches!(library.owner, LibraryOwner::Program | LibraryOwner::Unknown);
        let by_line = purpose == DriverUse::Memory && is_own;
        let key = (call.device, purpose, library, place.clone().filter(|_| by_line));
        let next = self.holdings.parts.len();
        if let Some(&known) = self.keys.get(&key) {
            if let Some(part) = self.holdings.parts.get_mut(known).filter(|part| part.place.is_none()) {
                part.place = place;
            }
            return known;
        }
        let part =
            HoldingPart { device: key.0, purpose, library: key.2.clone(), place, largest: (0, Nanos(0)) };
        self.holdings.parts.push(part);
        self.keys.insert(key, next);
        next
    }

    fn allocate(&mut self, change: &mut Change, call: &DriverCall, has_address: bool) {
        // What is imported, managed by the driver or made of texels has no requested size that the device holds.
        let is_sized = matches!(&*call.function, "cuMemAlloc" | "cuMemAllocPitch" | "cuMemCreate");
        let requested = call.bytes.filter(|_| is_sized).map_or(change.grew.max(0), |bytes| signed(bytes.0));
        let place = self.holdings.allocations.len();
        let bytes = Bytes(u64::try_from(requested).unwrap_or(0));
        let ranges = call.handle.filter(|_| has_address).map(|address| (address, bytes.0)).into_iter();
        self.holdings.allocations.push(DriverAllocation {
            part: change.part,
            bytes,
            life: (call.end.0, None),
            ranges: ranges.collect(),
            is_pool: false,
            kept_by: 1,
        });
        if let Some(handle) = call.handle {
            let known = if has_address { &mut self.addresses } else { &mut self.physical };
            known.insert(handle, place);
        }
        (change.requested, change.count, change.allocation) = (requested, 1, Some(place));
    }

    /// A handle or mapping no longer keeps an allocation.
    fn let_go(&mut self, change: &mut Change, found: Option<usize>) {
        let Some((place, allocation)) =
            found.and_then(|place| Some((place, self.holdings.allocations.get_mut(place)?)))
        else {
            return;
        };
        (change.part, change.allocation) = (allocation.part, Some(place));
        allocation.kept_by = allocation.kept_by.saturating_sub(1);
        if allocation.kept_by == 0 && allocation.life.1.is_none() {
            allocation.life.1 = Some(change.at);
            change.requested = change.requested.saturating_sub(signed(allocation.bytes.0));
            change.count -= 1;
        }
    }

    fn map(&mut self, call: &DriverCall) {
        let (Some(address), Some(bytes)) = (call.handle, call.bytes) else { return };
        let Some(&place) = call.other.and_then(|handle| self.physical.get(&handle)) else { return };
        if let Some(allocation) = self.holdings.allocations.get_mut(place) {
            allocation.kept_by = allocation.kept_by.saturating_add(1);
            allocation.ranges.push((address, bytes.0));
            self.mapped.insert(address, (bytes.0, place));
        }
    }

    /// One call may unmap what several mapped. Its growth is charged once, to the first.
    fn unmap(&mut self, change: &mut Change, call: &DriverCall) {
        let (Some(address), Some(bytes)) = (call.handle, call.bytes) else { return };
        let end = address.saturating_add(bytes.0);
        let inside: Vec<u64> = self.mapped.range(address..end).map(|(&at, _)| at).collect();
        let mut found = inside.into_iter().filter_map(|at| self.mapped.remove(&at)).map(|(_, place)| place);
        let first = found.next();
        let rest: Vec<usize> = found.collect();
        self.let_go(change, first);
        for place in rest {
            let mut other = Change { grew: 0, requested: 0, count: 0, ..change.clone() };
            self.let_go(&mut other, Some(place));
            if other.requested != 0 || other.count != 0 {
                self.holdings.changes.push(other);
            }
        }
    }

    /// A pool tells what it has reserved. Nothing was read before such a call, so whatever else changed belongs to no call.
    fn pool(&mut self, change: &mut Change, call: &DriverCall) {
        let Some(handle) = call.other else { return };
        let known = self.pools.get(&handle).copied();
        let (part, before) = known.unwrap_or((change.part, 0));
        change.part = part;
        let Some((reserved, used)) = call.pool else {
            // A pool that was trimmed has given back what the device lost.
            if known.is_some() && change.grew < 0 {
                change.requested = change.grew.max(before.saturating_neg());
                self.pools.insert(handle, (part, before.saturating_add(change.requested)));
            }
            return;
        };
        let reserved_now = signed(reserved.0);
        change.requested = reserved_now.saturating_sub(before);
        if call.before.is_none() && call.after.is_some() && !call.is_guess {
            let else_changed = change.grew.saturating_sub(change.requested);
            change.grew = change.requested;
            if else_changed != 0 {
                self.holdings.gaps.push((call.end.0, call.device, else_changed));
            }
        }
        self.pools.insert(handle, (part, reserved_now));
        self.read_pool(call, part, used);
    }

    fn read_pool(&mut self, call: &DriverCall, part: usize, used: Bytes) {
        let handle = call.other.or(call.handle).unwrap_or_default();
        self.holdings.pools.push(PoolReading { at: call.end.0, part, handle, used });
    }

    fn end_context(&mut self, device: u16, at: i64) {
        let parts = &self.holdings.parts;
        let is_on = |part: usize| parts.get(part).is_some_and(|part| part.device == device);
        for allocation in &mut self.holdings.allocations {
            if is_on(allocation.part) && allocation.life.1.is_none() {
                allocation.life.1 = Some(at);
            }
        }
        let allocations = &self.holdings.allocations;
        let is_alive =
            |place: &usize| allocations.get(*place).is_some_and(|allocation| allocation.life.1.is_none());
        self.addresses.retain(|_, place| is_alive(place));
        self.physical.retain(|_, place| is_alive(place));
        self.mapped.retain(|_, (_, place)| is_alive(place));
        self.objects.retain(|(on, ..), _| *on != device);
        self.pools.retain(|_, (part, _)| !is_on(*part));
    }
}

/// More than any machine has, so that sums of forged figures cannot overflow.
const LARGEST: i64 = 1 << 53;

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).map_or(LARGEST, |bytes| bytes.min(LARGEST))
}
