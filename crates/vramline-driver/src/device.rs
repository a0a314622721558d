//! The memory of devices and of this process, as NVML counts it, and of the driver's pools.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use crate::asker::GENERATION;
use crate::file::{self, Note, UNKNOWN};
use crate::sys;

/// The most devices.
const DEVICES: usize = 64;

/// Functions of NVML, in the order of `NAMES`.
static NVML: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];
const NAMES: [&CStr; 7] = [
    c"nvmlInit_v2",
    c"nvmlDeviceGetHandleByUUID",
    c"nvmlDeviceGetHandleByIndex_v2",
    c"nvmlDeviceGetMemoryInfo_v2",
    c"nvmlDeviceGetMemoryInfo",
    c"nvmlDeviceGetComputeRunningProcesses_v3",
    c"nvmlDeviceGetComputeRunningProcesses_v2",
];

/// Functions of the driver, in the order of `DRIVER_NAMES`.
static DRIVER: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
const DRIVER_NAMES: [&CStr; 5] = [
    c"cuCtxGetDevice",
    c"cuDeviceGetUuid_v2",
    c"cuDeviceGetUuid",
    c"cuMemPoolGetAttribute",
    c"cuDeviceGetMemPool",
];

/// 0: not started; 1: a thread is starting it; 2: it answers; 3: it does not.
static STATE: AtomicU32 = AtomicU32::new(0);
/// Instead of an error of NVML: the parent had started it.
const FORKED: u32 = u32::MAX - 1;
/// Whether `cuInit` has succeeded: before that the driver knows no devices.
static IS_INITIALIZED: AtomicU32 = AtomicU32::new(0);
/// The device that the last call with a context had, plus one.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// A device by CUDA's number.
struct Device {
    /// NVML's handle; 0: not known yet.
    handle: AtomicUsize,
    /// 1: it was found by its uuid; 2: NVML's first device was taken, as the driver could not be asked yet; 3: there is none; 4: NVML's first
    /// device was taken, as NVML does not know the uuid.
    how: AtomicU32,
    /// The uuid, in two words.
    uuid: [AtomicU64; 2],
    /// The generation of the process whose file has the device.
    named: AtomicU32,
    /// The memory that was in use when it was last charged to a call.
    charged: AtomicU64,
    /// The device's own pool; 0: not known.
    pool: AtomicUsize,
    /// When NVML's list of processes was last asked for; 0: never.
    listed: AtomicU64,
    /// What it counted for other processes then.
    others: AtomicU64,
    /// 1: other processes were on the device then.
    shared: AtomicU32,
}

static KNOWN: [Device; DEVICES] = [const {
    Device {
        handle: AtomicUsize::new(0),
        how: AtomicU32::new(0),
        uuid: [const { AtomicU64::new(0) }; 2],
        named: AtomicU32::new(0),
        charged: AtomicU64::new(UNKNOWN),
        pool: AtomicUsize::new(0),
        listed: AtomicU64::new(0),
        others: AtomicU64::new(UNKNOWN),
        shared: AtomicU32::new(0),
    }
}; DEVICES];

fn function(place: &[AtomicUsize], number: usize) -> usize {
    place.get(number).map_or(0, |place| place.load(Relaxed))
}

/// Finds functions of NVML and of the driver. Called where the loader may be asked.
pub(crate) fn prepare(look: &dyn Fn(usize, &CStr) -> usize, driver: usize) {
    let nvml = sys::open_library(c"libnvidia-ml.so.1", sys::RTLD_LAZY);
    if nvml != 0 {
        for (place, name) in NVML.iter().zip(NAMES) {
            place.store(look(nvml, name), Relaxed);
        }
    }
    for (place, name) in DRIVER.iter().zip(DRIVER_NAMES) {
        place.store(look(driver, name), Relaxed);
    }
}

/// A forked child has no context. It must not use the NVML that its parent started: another thread may have held NVML's lock at that moment.
pub(crate) fn forked() {
    if STATE.load(Relaxed) != 0 {
        STATE.store(3, Relaxed);
        file::write_note(Note::MissingNvml, FORKED);
    }
    IS_INITIALIZED.store(0, Relaxed);
    LAST.store(0, Relaxed);
    LISTING.store(0, Relaxed);
    OUTSIDE_NUMBER.store(0, Relaxed);
    for device in &KNOWN {
        device.handle.store(0, Relaxed);
        device.how.store(0, Relaxed);
        device.charged.store(UNKNOWN, Relaxed);
        device.pool.store(0, Relaxed);
        device.listed.store(0, Relaxed);
        device.others.store(UNKNOWN, Relaxed);
        device.shared.store(0, Relaxed);
    }
}

/// Starts NVML, once. Another thread does not wait for it.
fn is_started() -> bool {
    match STATE.load(Acquire) {
        2 => return true,
        0 if STATE.compare_exchange(0, 1, Relaxed, Relaxed).is_ok() => {}
        _ => return false,
    }
    let init = function(&NVML, 0);
    let error = if init == 0 || (function(&NVML, 3) == 0 && function(&NVML, 4) == 0) {
        -1
    } else {
        // SAFETY: the address of `nvmlInit_v2`, whose type this is.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> i32>(init)() }
    };
    if error != 0 {
        file::write_note(Note::MissingNvml, error.cast_unsigned());
    }
    STATE.store(if error == 0 { 2 } else { 3 }, Release);
    error == 0
}

/// The driver may be asked about devices from now on.
pub(crate) fn initialized() {
    IS_INITIALIZED.store(1, Relaxed);
}

/// CUDA's number of the device that the current context is on, and whether that is a guess.
pub(crate) fn current() -> (u16, bool) {
    let ask = function(&DRIVER, 0);
    let mut number = -1_i32;
    if ask != 0 && IS_INITIALIZED.load(Relaxed) == 1 {
        // SAFETY: the address of `cuCtxGetDevice`, whose type this is.
        let ask = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut i32) -> i32>(ask) };
        // SAFETY: it writes one number.
        if unsafe { ask(&raw mut number) } != 0 {
            number = -1;
        }
    }
    match usize::try_from(number) {
        Ok(number) if number < DEVICES => {
            LAST.store(number.saturating_add(1), Relaxed);
            (u16::try_from(number).unwrap_or(0), false)
        }
        _ => {
            let last = LAST.load(Relaxed);
            (u16::try_from(last.saturating_sub(1)).unwrap_or(0), last == 0)
        }
    }
}

/// The driver's uuid of a device.
fn uuid_of(number: usize) -> Option<[u8; 16]> {
    let ask = [1, 2].map(|place| function(&DRIVER, place)).into_iter().find(|&found| found != 0)?;
    if IS_INITIALIZED.load(Relaxed) == 0 {
        return None;
    }
    let mut uuid = [0_u8; 16];
    // SAFETY: the address of `cuDeviceGetUuid`, whose type this is.
    let ask = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut [u8; 16], i32) -> i32>(ask) };
    // SAFETY: it writes 16 bytes.
    let error = unsafe { ask(&raw mut uuid, i32::try_from(number).ok()?) };
    (error == 0).then_some(uuid)
}

/// NVML's handle of the device with this uuid, as `GPU-...` or, for a part of a divided device, as `MIG-...`.
fn handle_of(uuid: &[u8; 16]) -> usize {
    let ask = function(&NVML, 1);
    if ask == 0 {
        return 0;
    }
    // SAFETY: the address of `nvmlDeviceGetHandleByUUID`, whose type this is.
    let ask =
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*const u8, *mut usize) -> i32>(ask) };
    for kind in [b"GPU-", b"MIG-"] {
        let mut text = [0_u8; 48];
        let dashes = [4, 6, 8, 10];
        let signs = uuid.iter().enumerate().flat_map(|(place, byte)| {
            let digit = |value: u8| b"0123456789abcdef".get(usize::from(value)).copied();
            let dash = dashes.contains(&place).then_some(b'-');
            [dash, digit(byte >> 4), digit(byte & 15)].into_iter().flatten()
        });
        for (place, sign) in text.iter_mut().take(47).zip(kind.iter().copied().chain(signs)) {
            *place = sign;
        }
        let mut handle = 0_usize;
        // SAFETY: the text ends with a zero byte, and one handle is written.
        if unsafe { ask(text.as_ptr(), &raw mut handle) } == 0 {
            return handle;
        }
    }
    0
}

/// Finds the handle of a device, and writes which device it is where the file does not have it yet. Returns the handle, and whether the
/// device is a guess.
fn known(number: u16) -> Option<(&'static Device, usize, bool)> {
    let device = KNOWN.get(usize::from(number))?;
    let mut how = device.how.load(Acquire);
    if how == 0 || (how == 2 && IS_INITIALIZED.load(Relaxed) == 1) {
        let uuid = uuid_of(usize::from(number));
        let by_uuid = uuid.map_or(0, |uuid| handle_of(&uuid));
        if by_uuid != 0 {
            let words = uuid.unwrap_or_default();
            let (first, second) = words.split_at(8);
            for (place, word) in device.uuid.iter().zip([first, second]) {
                place.store(u64::from_le_bytes(word.try_into().unwrap_or_default()), Relaxed);
            }
            if device.handle.swap(by_uuid, Relaxed) != by_uuid {
                // Another device, or the first reading of this one.
                device.charged.store(UNKNOWN, Relaxed);
            }
            device.named.store(0, Relaxed);
            how = 1;
        } else {
            let mut handle = 0_usize;
            let ask = function(&NVML, 2);
            if ask != 0 {
                // SAFETY: the address of `nvmlDeviceGetHandleByIndex_v2`, whose type this is.
                let ask = unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn(u32, *mut usize) -> i32>(ask)
                };
                // SAFETY: it writes one handle.
                if unsafe { ask(0, &raw mut handle) } != 0 {
                    handle = 0;
                }
            }
            device.handle.store(handle, Relaxed);
            how = match handle {
                0 => 3,
                _ if IS_INITIALIZED.load(Relaxed) == 1 => 4,
                _ => 2,
            };
        }
        device.how.store(how, Release);
    }
    let generation = GENERATION.load(Relaxed);
    if how != 3 && device.named.load(Relaxed) != generation {
        let mut uuid = [0_u8; 16];
        for (place, word) in uuid.chunks_exact_mut(8).zip(&device.uuid) {
            sys::copy(place, &word.load(Relaxed).to_le_bytes());
        }
        if file::write_device(number, (how == 1).then_some(&uuid)) {
            device.named.store(generation, Relaxed);
        }
    }
    Some((device, device.handle.load(Relaxed), how != 1)).filter(|(_, handle, _)| *handle != 0)
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// A reading of a device.
pub(crate) struct Reading {
    pub(crate) used: u64,
    /// Change since the last reading that was charged to a call.
    pub(crate) change: i64,
    pub(crate) is_guess: bool,
    /// NVML's handle, to tell whether two readings are of one device.
    pub(crate) handle: usize,
}

/// Reads the used memory of a device and charges the change since the last reading to whoever asks.
pub(crate) fn read(number: u16) -> Reading {
    let nothing = Reading { used: UNKNOWN, change: 0, is_guess: false, handle: 0 };
    if !is_started() {
        return nothing;
    }
    let Some((device, handle, is_guess)) = known(number) else { return nothing };
    let (newer, older) = (function(&NVML, 3), function(&NVML, 4));
    let mut memory = Memory { version: 40 | 2 << 24, ..Memory::default() };
    let mut plain = [0_u64; 3];
    // SAFETY: the addresses of `nvmlDeviceGetMemoryInfo_v2` and `nvmlDeviceGetMemoryInfo`, which write a struct of this form.
    let error = unsafe {
        if newer != 0 {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, *mut Memory) -> i32>(newer)(
                handle,
                &raw mut memory,
            )
        } else {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, *mut [u64; 3]) -> i32>(older)(
                handle,
                &raw mut plain,
            )
        }
    };
    if error != 0 {
        return nothing;
    }
    let [_, _, used] = plain;
    let used = if newer != 0 { memory.used } else { used };
    let last = device.charged.swap(used, Relaxed);
    let change = if last == UNKNOWN { 0 } else { used.wrapping_sub(last).cast_signed() };
    Reading { used, change, is_guess, handle }
}

/// Takes a charge back, so that the next reading of the device has it.
pub(crate) fn give_back(number: u32, change: i64) {
    let device = usize::try_from(number).ok().and_then(|number| KNOWN.get(number));
    if let Some(device) = device.filter(|device| change != 0 && device.charged.load(Relaxed) != UNKNOWN) {
        device.charged.fetch_sub(change.cast_unsigned(), Relaxed);
    }
}

/// A process in NVML's list.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    number: u32,
    used: u64,
    instances: [u32; 2],
}

/// The most processes of a device.
const PROCESSES: usize = 256;

/// The list while it is read, for one thread at a time.
struct List(UnsafeCell<[Process; PROCESSES]>);

// SAFETY: only the thread that holds `LISTING` uses it.
unsafe impl Sync for List {}

static LIST: List = List(UnsafeCell::new([Process { number: 0, used: 0, instances: [0; 2] }; PROCESSES]));
static LISTING: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds that lists have taken.
static LISTS_TOOK: AtomicU64 = AtomicU64::new(0);
/// When the first list was asked for.
static LISTS_BEGAN: AtomicU64 = AtomicU64::new(0);
/// This process, as NVML numbers it, where that is another number than here: inside a container.
static OUTSIDE_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Nanoseconds that lists may take in any case.
const LISTS_FREE: u64 = 5_000_000;
/// Lists may take one part in this many of the time of the process.
const LISTS_SHARE: u64 = 400;
/// The least time between two lists of a device that nobody else uses, in nanoseconds.
const LIST_PACE: u64 = 20_000_000;

/// What NVML's list of processes says.
pub(crate) struct Listed {
    pub(crate) own: u64,
    pub(crate) others: u64,
    /// Change of `others` since the last list.
    pub(crate) neighbours: i64,
    pub(crate) is_shared: bool,
}

impl Default for Listed {
    fn default() -> Listed {
        Listed { own: UNKNOWN, others: UNKNOWN, neighbours: 0, is_shared: false }
    }
}

/// Tells the memory of this process from that of others after memory has changed. The list is much slower than the figure of the device,
/// so it is asked for only as far as its cost allows, and at once where others are on the device or where it `is_urgent`. What was
/// not told at one call is told at a later one.
pub(crate) fn list(number: u16, now: u64, is_urgent: bool) -> Listed {
    let Some((device, handle, _)) = known(number) else { return Listed::default() };
    let is_shared = device.shared.load(Relaxed) == 1;
    let skipped = Listed { is_shared, ..Listed::default() };
    let last = device.listed.load(Relaxed);
    let began = match LISTS_BEGAN.compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => now,
        Err(began) => began,
    };
    let allowed = LISTS_FREE.saturating_add(now.saturating_sub(began) / LISTS_SHARE);
    let is_due = last == 0 || is_shared || is_urgent || now.saturating_sub(last) >= LIST_PACE;
    if !is_due || LISTS_TOOK.load(Relaxed) > allowed || LISTING.swap(1, Acquire) == 1 {
        return skipped;
    }
    // SAFETY: this thread holds `LISTING`.
    let list = unsafe { &mut *LIST.0.get() };
    let found = processes(handle, list).map(|list| split(list, number));
    LISTING.store(0, Release);
    let end = sys::clock(1);
    LISTS_TOOK.fetch_add(end.saturating_sub(now), Relaxed);
    device.listed.store(end, Relaxed);
    let Some((sums, is_shared)) = found else { return skipped };
    device.shared.store(u32::from(is_shared), Relaxed);
    let Some((own, others)) = sums else { return Listed { is_shared, ..skipped } };
    let before = device.others.swap(others, Relaxed);
    let neighbours = if before == UNKNOWN { 0 } else { others.wrapping_sub(before).cast_signed() };
    Listed { own, others, neighbours, is_shared }
}

/// NVML's list of the processes on a device.
fn processes(handle: usize, list: &mut [Process; PROCESSES]) -> Option<&[Process]> {
    let ask = [5, 6].map(|place| function(&NVML, place)).into_iter().find(|&found| found != 0)?;
    let mut count = PROCESSES as u32;
    // SAFETY: the address of `nvmlDeviceGetComputeRunningProcesses_v3`, whose type this is. The second version has the same type.
    let ask = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(usize, *mut u32, *mut Process) -> i32>(ask)
    };
    // SAFETY: there is room for as many processes as it is told.
    let error = unsafe { ask(handle, &raw mut count, list.as_mut_ptr()) };
    if error != 0 { None } else { list.get(..usize::try_from(count).ok()?) }
}

/// What a list counts for this process and for all others, where it tells and this process is in it; and whether there are others.
fn split(list: &[Process], number: u16) -> (Option<(u64, u64)>, bool) {
    let is_listed = |own: u32| list.iter().any(|one| one.number == own);
    let mut own = sys::process();
    if !is_listed(own) {
        own = OUTSIDE_NUMBER.load(Relaxed);
        // A process with a context on the device is in the list, so an only one is this.
        if own == 0
            && let [only] = list
            && current() == (number, false)
        {
            own = only.number;
            OUTSIDE_NUMBER.store(own, Relaxed);
        }
    }
    let is_shared = list.iter().any(|one| one.number != own);
    // Without a context the process is not in the list. NVML has no figures on some systems.
    if (is_shared && !is_listed(own)) || list.iter().any(|one| one.used == UNKNOWN) {
        return (None, is_shared);
    }
    let sum = |is_ours: bool| {
        let used = list.iter().filter(|one| (one.number == own) == is_ours).map(|one| one.used);
        used.fold(0_u64, u64::saturating_add)
    };
    (Some((sum(true), sum(false))), is_shared)
}

/// A pool that was seen, and what it reserved then.
struct Pool {
    handle: AtomicUsize,
    reserved: AtomicU64,
}

static POOLS: [Pool; 64] = [const { Pool { handle: AtomicUsize::new(0), reserved: AtomicU64::new(0) } }; 64];

/// What a pool holds.
pub(crate) struct PoolFigures {
    pub(crate) pool: usize,
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    /// It reserved another amount when it was last seen.
    pub(crate) is_changed: bool,
}

/// Devices may have other pools from now on.
pub(crate) fn forget_pools() {
    for device in &KNOWN {
        device.pool.store(0, Relaxed);
    }
}

/// The figures of `pool`, or of the device's own pool where `pool` is 0, if it reserves another amount than when it was last seen or `is_wanted`.
/// `None` where the driver does not tell. Must not be called while a stream is captured into a graph.
pub(crate) fn pool(pool: usize, number: u16, is_wanted: bool) -> Option<PoolFigures> {
    let (attribute, own) = (function(&DRIVER, 3), function(&DRIVER, 4));
    if attribute == 0 || own == 0 {
        return None;
    }
    let mut pool = pool;
    if pool == 0 {
        let device = KNOWN.get(usize::from(number))?;
        pool = device.pool.load(Relaxed);
        if pool == 0 {
            // SAFETY: the address of `cuDeviceGetMemPool`, whose type this is.
            let error = unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, i32) -> i32>(own)(
                    &raw mut pool,
                    i32::from(number),
                )
            };
            if error != 0 || pool == 0 {
                return None;
            }
            device.pool.store(pool, Relaxed);
        }
    }
    let ask = |what: i32| -> Option<u64> {
        let mut value = 0_u64;
        // SAFETY: the address of `cuMemPoolGetAttribute`, whose type this is; these attributes have 64 bits.
        let error = unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, i32, *mut u64) -> i32>(attribute)(
                pool,
                what,
                &raw mut value,
            )
        };
        (error == 0).then_some(value)
    };
    // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and CU_MEMPOOL_ATTR_USED_MEM_CURRENT.
    let reserved = ask(5)?;
    let place = POOLS.iter().find(|place| {
        let known = place.handle.load(Relaxed);
        known == pool || (known == 0 && place.handle.compare_exchange(0, pool, Relaxed, Relaxed).is_ok())
    });
    let is_changed = place.is_none_or(|place| place.reserved.swap(reserved, Relaxed) != reserved);
    if !is_changed && !is_wanted {
        return None;
    }
    Some(PoolFigures { pool, reserved, used: ask(7)?, is_changed })
}
