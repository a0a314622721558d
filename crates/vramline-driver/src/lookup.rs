//! Who gets a wrapper: names that are asked of `dlsym` and of `cuGetProcAddress`, and symbols that are linked directly.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::call::{self, Kept, LINKED_NCCL, MISSES_UNWINDER, OFF, ON, SLOTS, STATE, UNWRAPPED, WRAPPERS};
use crate::entry;
use crate::{asker, device, file, nccl, sys, table};

/// The folder of the recording. Without it nothing is wrapped.
const FOLDER: &CStr = c"VRAMLINE_DRIVER_TRACE";

/// The next `dlsym`; 0: not looked for yet.
pub(crate) static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The first wrapper that has no name of its own and is not handed out yet.
static FREE: AtomicUsize = AtomicUsize::new(entry::NAMES.len());

/// The next `dlsym`, looked for once.
pub(crate) extern "C" fn next() -> usize {
    let known = NEXT.load(Relaxed);
    if known != 0 {
        return known;
    }
    let (found, is_glibc) = sys::next_dlsym();
    if !is_glibc {
        // Everything is passed on.
        STATE.store(OFF, Release);
    }
    // A function that always returns null is better than none.
    let found = if found == 0 { entry::nothing() } else { found };
    NEXT.store(found, Relaxed);
    found
}

/// Asks the next `dlsym`.
fn look(handle: usize, name: &CStr) -> usize {
    // SAFETY: the address of `dlsym`, whose type this is.
    let ask =
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize, *const c_char) -> usize>(next()) };
    // SAFETY: the name ends with a zero byte; handles are those of the loader.
    unsafe { ask(handle, name.as_ptr()) }
}

/// Whether `dlsym` has to be handled here. The special handles depend on who calls, so they are always passed on: with them our own symbols are
/// found, where they come first.
///
/// # Safety
///
/// `name` ends with a zero byte.
pub(crate) unsafe extern "C" fn is_wanted(handle: usize, name: *const c_char) -> usize {
    if handle == sys::RTLD_NEXT || handle == sys::RTLD_DEFAULT || STATE.load(Relaxed) == OFF {
        return 0;
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    usize::from(table::find(name.to_bytes()).is_some())
}

/// `dlsym` for a function of the driver.
///
/// # Safety
///
/// As that of `dlsym`.
pub(crate) unsafe extern "C" fn found(handle: usize, name: *const c_char) -> usize {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let real = look(handle, name);
    if real == 0 {
        return 0;
    }
    let errno = sys::errno();
    prepare();
    if name.to_bytes().starts_with(b"nccl") {
        nccl::prepare(real, &|name| look(handle, name));
    }
    sys::set_errno(errno);
    wrapped(name.to_bytes(), real)
}

/// After `cuGetProcAddress`: replaces what it handed out.
pub(crate) fn handed_out(name: usize, place: usize, result: usize) {
    let (name, place) = (name as *const c_char, place as *mut usize);
    if result & 0xffff_ffff != 0 || name.is_null() || place.is_null() {
        return;
    }
    prepare();
    // SAFETY: the driver has just accepted both: a name that ends with a zero byte, and a place for an address.
    unsafe {
        let real = *place;
        if real != 0 {
            *place = wrapped(CStr::from_ptr(name).to_bytes(), real);
        }
    }
}

/// The wrapper of a function, or the function itself where it is not to be wrapped.
fn wrapped(name: &[u8], real: usize) -> usize {
    let Some(function) = table::find(name).and_then(|place| u32::try_from(place).ok()) else { return real };
    // While nothing is recorded yet, a wrapper passes everything on.
    if STATE.load(Acquire) == OFF || entry::is_ours(real) {
        return real;
    }
    let used = FREE.load(Acquire).min(SLOTS);
    let known = WRAPPERS
        .iter()
        .enumerate()
        .take(used)
        .skip(entry::NAMES.len())
        .find(|(_, slot)| slot.real.load(Relaxed) == real && slot.function.load(Relaxed) == function);
    if let Some((place, _)) = known {
        return entry::address(place);
    }
    let place = FREE.fetch_add(1, Relaxed);
    let Some(slot) = WRAPPERS.get(place) else {
        FREE.store(SLOTS, Relaxed);
        UNWRAPPED.store(function, Relaxed);
        return real;
    };
    slot.function.store(function, Relaxed);
    slot.real.store(real, Release);
    entry::address(place)
}

/// Called by a wrapper with a name of its own, before its first call: finds what it stands for.
pub(crate) extern "C" fn resolve(kept: &mut Kept) {
    let errno = sys::errno();
    if let (Some(name), Some(slot)) = (entry::NAMES.get(kept.slot), WRAPPERS.get(kept.slot)) {
        let function = table::find(name.to_bytes()).unwrap_or(0);
        slot.function.store(u32::try_from(function).unwrap_or(0), Relaxed);
        if name.to_bytes().starts_with(b"nccl") {
            prepare();
            let caller = kept.caller.saturating_sub(1);
            kept.result = nccl::bind(function, name, caller, &|handle, name| look(handle, name));
            slot.real.store(LINKED_NCCL, Release);
            sys::set_errno(errno);
            return;
        }
        // The next one in the order of the loader, which may be another interposer; else the driver, where only libraries see it.
        let mut real = look(sys::RTLD_NEXT, name);
        if real == 0 {
            let driver = driver();
            real = if driver == 0 { 0 } else { look(driver, name) };
        }
        prepare();
        if real != 0 {
            slot.real.store(real, Release);
        }
    }
    sys::set_errno(errno);
}

/// The driver, where the job has loaded it; else 0.
fn driver() -> usize {
    sys::open_library(c"libcuda.so.1", sys::RTLD_LAZY | sys::RTLD_NOLOAD)
}

/// Finds everything that is needed later, once, in a thread that is asking the loader anyway. Other threads do not wait.
fn prepare() {
    if STATE.load(Relaxed) != 0 || STATE.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
        return;
    }
    let is_on = sys::variable(FOLDER).is_some_and(file::record_into);
    let driver = if is_on { driver() } else { 0 };
    if driver == 0 {
        // A driver that is not loaded yet may still come, but not a folder.
        STATE.store(if is_on { 0 } else { OFF }, Release);
        return;
    }
    let ask = |handle: usize, name: &CStr| look(handle, name);
    device::prepare(&ask, driver);
    asker::prepare_python(&ask);
    if !asker::prepare_stacks(&ask) {
        MISSES_UNWINDER.store(1, Relaxed);
    }
    call::begin();
    STATE.store(ON, Release);
}
