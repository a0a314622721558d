//! What NCCL says of the memory of its communicators (`ncclCommMemStats`, from NCCL 2.29.7 on).
//!
//! A communicator must not be used by two threads at once, so it is asked only by a thread that is about to call NCCL with it: before its
//! first call, its second, fourth, and so on, and before it ends. It is not asked while an operation of it is in progress, since NCCL would print
//! a warning, and never again once NCCL has refused.
//!
//! Unlike the driver, a process may have several NCCLs: one in a library of its own, one inside a framework. A call of a linked symbol goes to the
//! one that the calling library would have found without this library.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};

use crate::asker;
use crate::file::{self, Communicator, UNKNOWN};
use crate::sys;

/// Functions of one NCCL, in the order of `NAMES`.
struct Library {
    functions: [AtomicUsize; 3],
    /// 1: it has refused to say.
    refuses: AtomicU32,
}

const NAMES: [&CStr; 3] = [c"ncclCommMemStats", c"ncclCommGetAsyncError", c"ncclCommCuDevice"];

static LIBRARIES: [Library; 4] =
    [const { Library { functions: [const { AtomicUsize::new(0) }; 3], refuses: AtomicU32::new(0) } }; 4];

/// A function of NCCL as a library calls it.
struct Binding {
    /// The calling library; 0: a free place.
    low: AtomicUsize,
    high: AtomicUsize,
    /// Place in the table of functions.
    function: AtomicUsize,
    real: AtomicUsize,
}

static BINDINGS: [Binding; 128] = [const {
    Binding {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        function: AtomicUsize::new(0),
        real: AtomicUsize::new(0),
    }
}; 128];
static BOUND: AtomicUsize = AtomicUsize::new(0);

/// The function that a call of a linked symbol is meant for; 0: not looked for yet.
pub(crate) fn bound(function: usize, caller: usize) -> usize {
    let known = BINDINGS.iter().take(BOUND.load(Relaxed)).find(|one| {
        let low = one.low.load(Acquire);
        low != 0 && low <= caller && caller < one.high.load(Relaxed) && one.function.load(Relaxed) == function
    });
    known.map_or(0, |one| one.real.load(Relaxed))
}

/// Looks for the function that `caller` means, as the loader would: in the libraries that all see, then in its own and those that it needs, and at
/// last in every library. Returns 0 where there is none.
pub(crate) fn bind(
    function: usize,
    name: &CStr,
    caller: usize,
    look: &dyn Fn(usize, &CStr) -> usize,
) -> usize {
    let own = asker::object_at(caller);
    let handle_of = |object: &asker::Object| {
        object.path().map_or(0, |path| sys::open_library(path, sys::RTLD_LAZY | sys::RTLD_NOLOAD))
    };
    let is_ours = |found: usize| found == 0 || crate::entry::is_ours(found);
    let found_in = |handle: usize| {
        let found = if handle == 0 { 0 } else { look(handle, name) };
        (!is_ours(found)).then_some((handle, found))
    };
    let everywhere =
        || (0..4096).map_while(asker::object_number).find_map(|object| found_in(handle_of(&object)));
    let Some((handle, real)) = found_in(sys::RTLD_NEXT)
        .or_else(|| own.as_ref().and_then(|own| found_in(handle_of(own))))
        .or_else(everywhere)
    else {
        return 0;
    };
    prepare(real, &|name| look(handle, name));
    if let Some(own) = own
        && let Some(place) = BINDINGS.get(BOUND.fetch_add(1, Relaxed))
    {
        place.high.store(own.high, Relaxed);
        place.function.store(function, Relaxed);
        place.real.store(real, Relaxed);
        place.low.store(own.low, Release);
    }
    real
}

/// Finds what the NCCL that has the function `real` says of its memory, where its version says anything.
pub(crate) fn prepare(real: usize, look: &dyn Fn(&CStr) -> usize) {
    let is_off = sys::variable(c"NCCL_DISABLE_MEM_MANAGER").is_some_and(|value| value.to_bytes() != b"0");
    let found = NAMES.map(look);
    let [stats, ..] = found;
    if real == 0 || is_off || found.contains(&0) || library_of(stats).is_some() {
        return;
    }
    for library in &LIBRARIES {
        let [first, rest @ ..] = &library.functions;
        if first.load(Relaxed) == 0 {
            for (place, function) in rest.iter().zip(found.iter().skip(1)) {
                place.store(*function, Relaxed);
            }
            first.store(stats, Release);
            return;
        }
    }
}

/// The NCCL with this `ncclCommMemStats`.
fn library_of(stats: usize) -> Option<&'static Library> {
    LIBRARIES
        .iter()
        .find(|library| library.functions.first().is_some_and(|first| first.load(Acquire) == stats))
}

/// A communicator and the number of its calls.
struct Known {
    handle: AtomicUsize,
    calls: AtomicU32,
}

static KNOWN: [Known; 64] = [const { Known { handle: AtomicUsize::new(0), calls: AtomicU32::new(0) } }; 64];

/// Called before a call of NCCL with a communicator. `ends` says that the call ends it.
pub(crate) fn about_to_call(communicator: usize, real: usize, ends: bool) {
    let is_free = |place: &&Known| place.handle.compare_exchange(0, communicator, Relaxed, Relaxed).is_ok();
    let known = KNOWN.iter().find(|place| place.handle.load(Relaxed) == communicator);
    let Some(known) = known.or_else(|| KNOWN.iter().find(is_free)) else { return };
    let count = known.calls.fetch_add(1, Relaxed).saturating_add(1);
    if count.is_power_of_two() || ends {
        ask(communicator, real);
    }
    if ends {
        known.calls.store(0, Relaxed);
        known.handle.store(0, Relaxed);
    }
}

fn ask(communicator: usize, real: usize) {
    let Some(object) = asker::object_at(real) else { return };
    let inside = |library: &&Library| {
        let first = library.functions.first().map_or(0, |first| first.load(Acquire));
        object.low <= first && first < object.high && library.refuses.load(Relaxed) == 0
    };
    let Some(library) = LIBRARIES.iter().find(inside) else { return };
    let [stats, state, device] = &library.functions;
    let (mut error, mut number) = (0_i32, -1_i32);
    // SAFETY: the addresses of `ncclCommGetAsyncError` and `ncclCommCuDevice`, which have this type and write one number. The communicator
    // is that of the job's own call.
    let is_ready = unsafe {
        let ask = |function: &AtomicUsize, place: *mut i32| {
            let function = function.load(Relaxed);
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, *mut i32) -> i32>(function)(
                communicator,
                place,
            )
        };
        ask(state, &raw mut error) == 0 && error == 0 && ask(device, &raw mut number) == 0
    };
    if !is_ready {
        return;
    }
    let result = AtomicI32::new(0);
    let figure = |what: i32| {
        let mut value = UNKNOWN;
        // SAFETY: the address of `ncclCommMemStats`, which has this type and writes 64 bits.
        let error = unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize, i32, *mut u64) -> i32>(
                stats.load(Relaxed),
            )(communicator, what, &raw mut value)
        };
        result.fetch_or(error, Relaxed);
        value
    };
    let [suspendable, suspended, persistent, total] = [0, 1, 2, 3].map(figure);
    if result.load(Relaxed) != 0 {
        library.refuses.store(1, Relaxed);
        return;
    }
    let (library, _, _) = asker::library_at(real);
    file::write_communicator(&Communicator {
        device: u16::try_from(number).unwrap_or(u16::MAX),
        library,
        handle: communicator as u64,
        total,
        persistent,
        suspendable,
        suspended,
    });
}
