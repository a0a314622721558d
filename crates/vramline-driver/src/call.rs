//! Before and after a call: whether it is measured, what is measured, and what is written.

use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use crate::asker::{self, GENERATION, Line, no_line};
use crate::device;
use crate::file::{self, Call, Note, UNKNOWN, flag};
use crate::nccl;
use crate::sys;
use crate::table::{COUNT, FUNCTIONS, Forgets, Function, INIT, MANY, Pace, Place, Value};

/// Requests from here on are recorded with their stack, whatever they changed.
const LARGE: u64 = 1 << 20;

/// A change of memory from here on is worth asking at once whose it is.
const MUCH: u64 = 32 << 20;

/// Number of wrappers: those with a name of their own, and those that are handed out.
pub(crate) const SLOTS: usize = 1024;

/// A wrapper: what it calls, and which function that is.
pub(crate) struct Slot {
    pub(crate) real: AtomicUsize,
    pub(crate) function: AtomicU32,
}

pub(crate) static WRAPPERS: [Slot; SLOTS] =
    [const { Slot { real: AtomicUsize::new(0), function: AtomicU32::new(0) } }; SLOTS];

/// Instead of the address of a function of NCCL that is linked: it depends on the calling library.
pub(crate) const LINKED_NCCL: usize = 1;

/// What the assembly of a wrapper keeps on the stack. Its layout is that of `entry`.
#[repr(C)]
pub(crate) struct Kept {
    /// Arguments in registers.
    registers: [usize; 6],
    /// Number of the wrapper.
    pub(crate) slot: usize,
    /// Where the wrapper returns to.
    pub(crate) caller: usize,
    /// Arguments on the stack.
    stacked: *const usize,
    /// The result of the call. Before it: what `lookup::resolve` has found for this call only, or 0.
    pub(crate) result: usize,
    // From here on only this module.
    begin: u64,
    before: u64,
    gap: i64,
    handle: usize,
    place: usize,
    nth: u32,
    flags: u32,
    device: u32,
    errno: i32,
    generation: u64,
}

const _: () = assert!(size_of::<Kept>() <= 160 && core::mem::offset_of!(Kept, result) == 72);

/// What the assembly does next.
#[repr(C)]
pub(crate) struct Next {
    /// The function to call.
    real: usize,
    /// 0: jump there, as if there was no wrapper. 1: call it and then [`leave`].
    is_measured: usize,
}

/// Whether calls are recorded: 0 not prepared, 1 being prepared, 2 yes, 3 no.
pub(crate) static STATE: AtomicU32 = AtomicU32::new(0);
pub(crate) const ON: u32 = 2;
pub(crate) const OFF: u32 = 3;

/// The process that everything here belongs to. A forked child has another number.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Threads inside a measured call, see [`sys::thread_mark`].
static INSIDE: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// Number of measured calls that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Calls of each function so far.
static CALLS: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];
/// The process whose file has the name of each function.
static NAMED: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];
/// Whether a missing unwinder has still to be noted.
pub(crate) static MISSES_UNWINDER: AtomicU32 = AtomicU32::new(0);
/// Functions of the driver that found no free wrapper and have still to be noted.
pub(crate) static UNWRAPPED: AtomicU32 = AtomicU32::new(0);

/// Handles of functions and graphs that were used before: an open hash. Where a part of it is full, everything counts as used before.
static USED: [AtomicUsize; 1 << 14] = [const { AtomicUsize::new(0) }; 1 << 14];

/// In the place of a handle that has ended: the search goes on behind it.
const ENDED: usize = 1;

/// The place of a handle, or the free place where it belongs.
fn used_place(handle: usize) -> Option<(&'static AtomicUsize, bool)> {
    let start = handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    let mut ended = None;
    for step in 0..64 {
        let place = USED.get(start.wrapping_add(step) & (USED.len().wrapping_sub(1)))?;
        match place.load(Relaxed) {
            0 => return Some((ended.unwrap_or(place), false)),
            found if found == handle => return Some((place, true)),
            ENDED => ended = ended.or(Some(place)),
            _ => {}
        }
    }
    Some((ended?, false))
}

/// A handle as it is kept: its attributes may be asked for before it is launched, and both may take memory. Handles have 47 bits.
fn key(function: usize, handle: usize) -> usize {
    if handle == 0 { 0 } else { handle.wrapping_add(function.wrapping_shl(48)) }
}

fn is_used(handle: usize) -> bool {
    handle == 0 || used_place(handle).is_none_or(|(_, is_known)| is_known)
}

fn keep_used(handle: usize) {
    if let Some((place, false)) = used_place(handle) {
        place.store(handle, Relaxed);
    }
}

/// A graph has ended, and its handle may return for another one.
fn forget_one(handle: usize) {
    let uses =
        FUNCTIONS.iter().enumerate().filter(|(_, function)| matches!(function.pace, Pace::FirstUse(_)));
    for (function, _) in uses {
        if let Some((place, true)) = used_place(key(function, handle)) {
            place.store(ENDED, Relaxed);
        }
    }
}

/// When all handles were last forgotten.
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// The least time between two times of forgetting all, in nanoseconds: each makes the first launches be measured again, and a program may
/// unload modules all the time.
const FORGET_PACE: u64 = 100_000_000;

/// Handles of functions have ended, and their values may return.
fn forget_all(now: u64) {
    let last = FORGOTTEN.load(Relaxed);
    if last != 0 && now.saturating_sub(last) < FORGET_PACE {
        return;
    }
    FORGOTTEN.store(now, Relaxed);
    clear_used();
}

fn clear_used() {
    for handle in &USED {
        if handle.load(Relaxed) != 0 {
            handle.store(0, Relaxed);
        }
    }
}

/// Begins to record this process, until it exits.
pub(crate) fn begin() {
    PROCESS.store(sys::process(), Relaxed);
    sys::mark_process();
    sys::at_exit(end);
}

/// Libraries end one after the other, and may call the driver while they do. NVML may have ended by then, so nothing is measured any more.
extern "C" fn end(_: *mut c_void) {
    STATE.store(OFF, Release);
    file::finish();
}

/// Where this process was forked since the last call, gives the child its own file and counts. It has no other threads.
fn become_process() {
    if sys::is_marked() {
        return;
    }
    let process = sys::process();
    let before = PROCESS.swap(process, Relaxed);
    if before == process {
        return;
    }
    GENERATION.fetch_add(1, Relaxed);
    for place in &INSIDE {
        place.store(0, Relaxed);
    }
    for count in &CALLS {
        count.store(0, Relaxed);
    }
    clear_used();
    file::forked();
    device::forked();
    sys::mark_process();
}

/// Takes a place among the threads inside. `None`: this thread is inside already, or there are too many.
fn go_inside(thread: usize) -> Option<(usize, bool)> {
    let (mut free, mut is_alone) = (None, true);
    for (number, place) in INSIDE.iter().enumerate() {
        match place.load(Relaxed) {
            0 => free = free.or(Some(number)),
            found if found == thread => return None,
            _ => is_alone = false,
        }
    }
    let first = free?;
    let taken = INSIDE.iter().enumerate().skip(first).find(|(_, place)| {
        place.load(Relaxed) == 0 && place.compare_exchange(0, thread, Relaxed, Relaxed).is_ok()
    });
    Some((taken?.0, is_alone))
}

impl Kept {
    fn argument(&self, number: usize) -> usize {
        self.registers.get(number).copied().unwrap_or_else(|| {
            let place = self.stacked.wrapping_add(number.saturating_sub(self.registers.len()));
            // SAFETY: the function has this argument, so its caller has put it there.
            unsafe { *place }
        })
    }

    /// A value of the call, known when it has succeeded; 0 for a pointer that the job left out.
    fn value(&self, value: Value, has_succeeded: bool) -> Option<u64> {
        let pointed = |number: usize| {
            let place = self.argument(number) as *const u64;
            // SAFETY: the driver has just written there.
            (has_succeeded && !place.is_null()).then(|| unsafe { place.read_unaligned() })
        };
        match value {
            Value::No => None,
            Value::Is(number) => Some(self.argument(number) as u64),
            Value::At(number) => pointed(number),
            Value::Rows(length, count) => Some(pointed(length)?.saturating_mul(self.argument(count) as u64)),
            Value::Field(number, offset) if has_succeeded => self.field(number, offset),
            Value::Array(dimensions) if has_succeeded => self.array_bytes(dimensions),
            Value::Field(..) | Value::Array(_) => None,
        }
    }

    /// A word of the struct that an argument points to, which the driver has just accepted.
    fn field(&self, number: usize, offset: usize) -> Option<u64> {
        let place = self.argument(number) as *const u8;
        let word = place.wrapping_add(offset).cast::<u64>();
        // SAFETY: the driver has just read or written the struct, and the field is in it.
        (!place.is_null()).then(|| unsafe { word.read_unaligned() })
    }

    /// The bytes of an array by its description: width, height and, with three dimensions, depth; then format and channels.
    fn array_bytes(&self, dimensions: usize) -> Option<u64> {
        let mut elements = 1_u64;
        for dimension in 0..dimensions {
            elements = elements.checked_mul(self.field(1, dimension.wrapping_mul(8))?.max(1))?;
        }
        let word = self.field(1, dimensions.wrapping_mul(8))?;
        let size = match word & 0xffff_ffff {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            // Formats of images and compressed ones.
            _ => return None,
        };
        elements.checked_mul(word >> 32)?.checked_mul(size)
    }
}

/// Streams that are being captured into graphs. Meanwhile nothing is asked of pools.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// When a pool was last looked at because memory returned to it.
static POOL_FREED: AtomicU64 = AtomicU64::new(0);

/// The least time between two such looks, in nanoseconds.
const POOL_PACE: u64 = 1_000_000;

/// Called by every wrapper before anything else.
pub(crate) extern "C" fn enter(kept: &mut Kept) -> Next {
    let Some(slot) = WRAPPERS.get(kept.slot) else { return Next { real: 0, is_measured: 0 } };
    let mut real = slot.real.load(Acquire);
    if real == LINKED_NCCL {
        let bound = nccl::bound(slot.function.load(Relaxed) as usize, kept.caller.saturating_sub(1));
        real = if bound == 0 { kept.result } else { bound };
    }
    let pass = Next { real, is_measured: 0 };
    if real == 0 {
        // A symbol that was linked directly: `lookup::resolve` comes first.
        return pass;
    }
    let number = slot.function.load(Relaxed) as usize;
    let (Some(function), Some(calls)) = (FUNCTIONS.get(number), CALLS.get(number)) else { return pass };
    if function.pace == Pace::Lookup {
        return Next { real, is_measured: 1 };
    }
    if STATE.load(Acquire) != ON {
        return pass;
    }
    // Cheap reasons to pass come first: launches are here millions of times.
    let nth = match function.pace {
        Pace::FirstUse(argument) => {
            if is_used(key(number, kept.argument(argument))) {
                return pass;
            }
            calls.fetch_add(1, Relaxed)
        }
        Pace::Communicator(argument) => {
            let errno = sys::errno();
            nccl::about_to_call(kept.argument(argument), real, function.forgets != Forgets::Nothing);
            sys::set_errno(errno);
            return pass;
        }
        Pace::First(count) if calls.load(Relaxed) >= count => return pass,
        _ => calls.fetch_add(1, Relaxed),
    };
    if function.pace == Pace::Many && nth >= MANY {
        return pass;
    }
    kept.nth = nth.saturating_add(1);
    if matches!(function.pace, Pace::Pool | Pace::PoolFree) {
        return enter_pool(kept, function, pass);
    }
    become_process();
    let Some((place, is_alone)) = go_inside(sys::thread_mark()) else {
        if function.captures != 0 {
            // Its end may be missed, so it never ends.
            CAPTURES.store(u32::MAX / 2, Relaxed);
        }
        return pass;
    };
    let errno = sys::errno();
    kept.place = place;
    kept.errno = errno;
    kept.flags = if is_alone { 0 } else { flag::OVERLAP };
    kept.generation = BEGUN.fetch_add(1, Relaxed).wrapping_add(1);
    if number != INIT {
        device::initialized();
    }
    let (device, is_guess) = device_of(kept, function);
    kept.device = u32::from(device);
    let reading = device::read(device);
    (kept.before, kept.gap, kept.handle) = (reading.used, reading.change, reading.handle);
    if is_guess || reading.is_guess {
        kept.flags |= flag::GUESSED;
    }
    kept.begin = sys::clock(1);
    sys::set_errno(errno);
    Next { real, is_measured: 1 }
}

/// Before a call of a pool: whether to look at the pool after it. Nothing is read here, so the growth of the device includes the gap.
fn enter_pool(kept: &mut Kept, function: &Function, pass: Next) -> Next {
    if CAPTURES.load(Relaxed) != 0 {
        return pass;
    }
    let now = sys::clock(1);
    if function.pace == Pace::PoolFree {
        let last = POOL_FREED.load(Relaxed);
        if now.saturating_sub(last) < POOL_PACE {
            return pass;
        }
        POOL_FREED.store(now, Relaxed);
    }
    kept.begin = now;
    kept.place = NO_PLACE;
    kept.flags = flag::NO_BEFORE;
    (kept.before, kept.gap, kept.handle) = (UNKNOWN, 0, 0);
    Next { is_measured: 1, ..pass }
}

/// Instead of a place among the threads inside.
const NO_PLACE: usize = usize::MAX;

/// The device that a call is about.
fn device_of(kept: &Kept, function: &Function) -> (u16, bool) {
    match function.place {
        Place::Argument(number) => match u16::try_from(kept.argument(number) & 0xffff_ffff) {
            Ok(device) => (device, false),
            Err(_) => device::current(),
        },
        Place::Current | Place::AfterCall => device::current(),
    }
}

/// Called by a wrapper after a measured call.
pub(crate) extern "C" fn leave(kept: &mut Kept) {
    let Some(slot) = WRAPPERS.get(kept.slot) else { return };
    let number = slot.function.load(Relaxed) as usize;
    let Some(function) = FUNCTIONS.get(number) else { return };
    let end = sys::clock(1);
    let errno = sys::errno();
    if function.pace == Pace::Lookup {
        crate::lookup::handed_out(kept.argument(0), kept.argument(1), kept.result);
        sys::set_errno(errno);
        return;
    }
    if kept.place == NO_PLACE {
        leave_pool(kept, number, function, end);
    } else {
        let has_succeeded = kept.result & 0xffff_ffff == 0;
        if has_succeeded {
            match (function.pace, function.forgets) {
                (Pace::FirstUse(argument), _) => keep_used(key(number, kept.argument(argument))),
                (_, Forgets::One(argument)) => forget_one(kept.argument(argument)),
                (_, Forgets::All) => forget_all(end),
                _ if function.sets_pool => device::forget_pools(),
                _ if number == INIT => device::initialized(),
                _ => {}
            }
        }
        count_captures(function.captures, has_succeeded);
        record(kept, number, function, end, None);
        if let Some(place) = INSIDE.get(kept.place) {
            place.store(0, Release);
        }
    }
    sys::set_errno(errno);
}

/// Counts streams that are captured. A capture that failed ends as well.
fn count_captures(change: i32, has_succeeded: bool) {
    if change > 0 && has_succeeded {
        CAPTURES.fetch_add(1, Relaxed);
    } else if change < 0 {
        let _ = CAPTURES.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
    }
}

/// After a call of a pool: records it if the pool has changed, or if much was requested.
fn leave_pool(kept: &mut Kept, number: usize, function: &Function, end: u64) {
    let has_succeeded = kept.result & 0xffff_ffff == 0;
    let is_large = kept.value(function.bytes, has_succeeded).is_some_and(|bytes| bytes >= LARGE);
    let (device, is_guess) = device::current();
    kept.device = u32::from(device);
    let mut pool = None;
    if has_succeeded && !is_guess {
        let named = kept.value(function.other, has_succeeded).and_then(|pool| usize::try_from(pool).ok());
        pool = device::pool(named.unwrap_or(0), device, is_large);
    }
    // A refused request is recorded as far as it is known.
    if has_succeeded && !is_large && !pool.as_ref().is_some_and(|pool| pool.is_changed) {
        return;
    }
    become_process();
    let mark = sys::thread_mark();
    let is_other = |thread: usize| thread != 0 && thread != mark;
    if INSIDE.iter().any(|place| is_other(place.load(Relaxed))) {
        kept.flags |= flag::OVERLAP;
    }
    kept.generation = BEGUN.fetch_add(1, Relaxed).wrapping_add(1);
    record(kept, number, function, end, pool);
}

fn record(kept: &mut Kept, number: usize, function: &Function, end: u64, pool: Option<device::PoolFigures>) {
    let result = (kept.result & 0xffff_ffff) as u32;
    let has_succeeded = result == 0;
    let bytes = kept.value(function.bytes, has_succeeded);
    let own_pool = pool.as_ref().map(|pool| pool.pool as u64);
    let other = own_pool.or_else(|| kept.value(function.other, has_succeeded));
    let is_large = bytes.is_some_and(|bytes| bytes >= LARGE);
    let device = match function.place {
        Place::AfterCall => device_of(kept, function).0,
        Place::Current | Place::Argument(_) => u16::try_from(kept.device).unwrap_or(0),
    };
    let reading = device::read(device);
    let is_same = kept.handle == 0 || kept.handle == reading.handle;
    if !is_same || u32::from(device) != kept.device {
        device::give_back(kept.device, kept.gap);
        (kept.before, kept.gap) = (UNKNOWN, 0);
        kept.flags |= flag::NO_BEFORE;
    }
    if reading.is_guess {
        kept.flags |= flag::GUESSED;
    } else if is_same {
        kept.flags &= !flag::GUESSED;
    }
    if BEGUN.load(Relaxed) != kept.generation {
        kept.flags |= flag::OVERLAP;
    }
    let is_changed = reading.change != 0;
    let is_written = match function.pace {
        Pace::Always | Pace::Many | Pace::Pool | Pace::PoolFree => true,
        Pace::IfChanged => is_changed || kept.gap != 0 || !has_succeeded,
        _ => is_changed || kept.gap != 0,
    };
    if !is_written {
        return;
    }
    write_notes();
    let listed = if is_changed || kept.gap != 0 {
        device::list(device, end, kept.gap != 0 || reading.change.unsigned_abs() >= MUCH)
    } else {
        device::Listed::default()
    };
    if listed.is_shared {
        kept.flags |= flag::SHARED;
    }
    let (library, stack, depth) = who(kept.caller, is_changed || is_large);
    let line = if is_changed || is_large { asker::python_line() } else { Line::unknown(no_line::NOT_ASKED) };
    let call = Call {
        thread: sys::thread(),
        begin: kept.begin,
        end,
        bytes: bytes.unwrap_or(UNKNOWN),
        handle: kept.value(function.handle, has_succeeded).unwrap_or(UNKNOWN),
        other: other.unwrap_or(UNKNOWN),
        result,
        flags: kept.flags,
        before: kept.before,
        after: reading.used,
        gap: kept.gap,
        grew: reading.change,
        pool_reserved: pool.as_ref().map_or(UNKNOWN, |pool| pool.reserved),
        pool_used: pool.as_ref().map_or(UNKNOWN, |pool| pool.used),
        own: listed.own,
        others: listed.others,
        neighbours: listed.neighbours,
        library,
        device,
        nth: kept.nth,
        python: line.reason,
        line: line.number,
    };
    let Ok(short) = u16::try_from(number) else { return };
    let generation = GENERATION.load(Relaxed);
    if let Some(named) = NAMED.get(number)
        && named.load(Relaxed) != generation
        && file::write_function(short, function.name)
    {
        named.store(generation, Relaxed);
    }
    let stack = stack.get(..depth).unwrap_or(&[]);
    file::write_call(
        short,
        &call,
        stack,
        line.file.get(..line.file_length).unwrap_or(&[]),
        line.name.get(..line.name_length).unwrap_or(&[]),
    );
}

fn write_notes() {
    if MISSES_UNWINDER.swap(0, Relaxed) != 0 {
        file::write_note(Note::MissingUnwinder, 0);
    }
    let unwrapped = UNWRAPPED.swap(0, Relaxed);
    if unwrapped != 0 {
        file::write_note(Note::FullTable, unwrapped);
    }
}

/// The library that asked, and the stack: whole where it is wanted, else as far as the first library that is no part of CUDA.
fn who(caller: usize, is_whole: bool) -> (u16, [(u16, u64); asker::DEEPEST], usize) {
    let mut frames = [(0_u16, 0_u64); asker::DEEPEST];
    let (number, passes, _) = asker::library_at(caller.saturating_sub(1));
    if !is_whole && !passes {
        return (number, frames, 0);
    }
    let stack = asker::stack(caller, if is_whole { asker::DEEPEST } else { 16 });
    let (mut library, mut count) = (0_u16, 0_usize);
    for (address, place) in stack.calls().zip(&mut frames) {
        let (number, passes, offset) = asker::library_at(address);
        *place = (number, offset);
        count = count.saturating_add(1);
        if library == 0 && !passes {
            library = number;
            if !is_whole {
                break;
            }
        }
    }
    // A stack that ends inside CUDA says at least that.
    (if library == 0 { number } else { library }, frames, if is_whole { count } else { 0 })
}
