//! Who made a call: the library, the stack, and the line of Python.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use crate::{file, sys};

/// The most frames of a stack.
pub(crate) const DEEPEST: usize = 24;

/// The most libraries that get a number.
const LIBRARIES: usize = 1024;

/// The longest path that is kept.
const LONGEST: usize = 256;

/// A loaded object that was met on a stack. Its number is its place.
struct Library {
    /// First address; 0: a free place.
    low: AtomicUsize,
    /// Behind its last address.
    high: AtomicUsize,
    /// Where offsets begin.
    base: AtomicUsize,
    /// 1: a part of CUDA, or this library, through which calls only pass.
    passes: AtomicU32,
    /// The process, as [`GENERATION`] counts, whose file has the name.
    named: AtomicU32,
    /// Its path, or the end of it. Written before `low`.
    path: UnsafeCell<[u8; LONGEST]>,
    length: AtomicUsize,
}

// SAFETY: the path is written by the thread that took the place, before `low` is set, and only read after that.
unsafe impl Sync for Library {}

static KNOWN: [Library; LIBRARIES] = [const {
    Library {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        base: AtomicUsize::new(0),
        passes: AtomicU32::new(0),
        named: AtomicU32::new(0),
        path: UnsafeCell::new([0; LONGEST]),
        length: AtomicUsize::new(0),
    }
}; LIBRARIES];
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Grows with each fork: what is known stays known, but has to be written into the child's file again.
pub(crate) static GENERATION: AtomicU32 = AtomicU32::new(FIRST);
const FIRST: u32 = 1;

/// Whether this process was forked from one that recorded. Another thread of the parent may have held a lock of the loader at that moment, and
/// such a lock stays locked in the child for ever. So a child asks the loader nothing: it knows the libraries that its parent knew, and walks
/// no stack.
fn is_forked() -> bool {
    GENERATION.load(Relaxed) != FIRST
}

/// A loaded object: a library, or the program.
pub(crate) struct Object {
    pub(crate) low: usize,
    /// Behind its last address; 0: there is none.
    pub(crate) high: usize,
    base: usize,
    path: [u8; 4096],
    length: usize,
}

impl Object {
    /// Its path, as the loader knows it; `None` for the program itself.
    pub(crate) fn path(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.path).ok().filter(|path| !path.is_empty())
    }
}

/// An object as it is looked for: by an address in it, or by its number.
struct Search {
    address: Option<usize>,
    number: usize,
    object: Object,
}

fn searched(address: Option<usize>, number: usize) -> Option<Object> {
    let object = Object { low: 0, high: 0, base: 0, path: [0; 4096], length: 0 };
    let mut search = Search { address, number, object };
    sys::each_object(visit, (&raw mut search).cast());
    (search.object.high != 0).then_some(search.object)
}

/// The object at an address.
pub(crate) fn object_at(address: usize) -> Option<Object> {
    searched(Some(address), 0)
}

/// The object of this number, in the order of loading.
pub(crate) fn object_number(number: usize) -> Option<Object> {
    searched(None, number)
}

/// The number of the library at `address` and whether calls only pass through it; 0 for code that belongs to no library. Its name is
/// written where the file does not have it yet.
pub(crate) fn library_at(address: usize) -> (u16, bool, u64) {
    let generation = GENERATION.load(Relaxed);
    let count = COUNT.load(Acquire).min(LIBRARIES);
    let known = KNOWN.iter().enumerate().take(count).skip(1).find(|(_, library)| {
        let low = library.low.load(Acquire);
        low != 0 && low <= address && address < library.high.load(Relaxed)
    });
    let place = known.map(|(place, _)| place).or_else(|| found(address));
    match place.and_then(|place| Some((u16::try_from(place).ok()?, KNOWN.get(place)?))) {
        Some((number, library)) => {
            if library.named.load(Relaxed) != generation {
                // SAFETY: the path was written before `low`, which was seen.
                let path = unsafe { &*library.path.get() };
                let path = path.get(..library.length.load(Relaxed)).unwrap_or(&[]);
                if file::write_library(number, path) {
                    library.named.store(generation, Relaxed);
                }
            }
            let offset = address.wrapping_sub(library.base.load(Relaxed)) as u64;
            (number, library.passes.load(Relaxed) == 1, offset)
        }
        None => (0, false, address as u64),
    }
}

/// Asks the loader for the object at `address` and gives it a number.
fn found(address: usize) -> Option<usize> {
    if is_forked() {
        return None;
    }
    let mut search = object_at(address)?;
    if search.length == 0 {
        // The program itself has no name.
        search.length = sys::read_link(c"/proc/self/exe", &mut search.path).len();
    }
    // The end of a long path tells more than its beginning.
    let path = search.path.get(..search.length).unwrap_or(&[]);
    let path = path.get(path.len().saturating_sub(LONGEST)..).unwrap_or(&[]);
    let place = COUNT.fetch_add(1, Relaxed);
    let Some(library) = KNOWN.get(place) else {
        COUNT.store(LIBRARIES, Relaxed);
        return None;
    };
    // SAFETY: this thread alone has the place, and nobody reads the path before `low` is set.
    sys::copy(unsafe { &mut *library.path.get() }, path);
    library.length.store(path.len(), Relaxed);
    library.high.store(search.high, Relaxed);
    library.base.store(search.base, Relaxed);
    library.passes.store(u32::from(only_passes(path)), Relaxed);
    library.low.store(search.low, Release);
    Some(place)
}

/// Called with a lock of the loader that is never held while other code runs.
extern "C" fn visit(object: *const sys::ObjectInfo, _: usize, data: *mut c_void) -> c_int {
    const LOADED: u32 = 1;
    // SAFETY: the C library gives valid objects, and `data` is the search of `found`.
    let (object, search) = unsafe { (&*object, &mut *data.cast::<Search>()) };
    let (mut low, mut high, mut is_inside) = (usize::MAX, 0, false);
    for place in 0..usize::from(object.count) {
        // SAFETY: an object has `count` headers.
        let header = unsafe { &*object.headers.wrapping_add(place) };
        if header.kind == LOADED {
            let start = object.base.wrapping_add(usize::try_from(header.address).unwrap_or(0));
            let end = start.wrapping_add(usize::try_from(header.memory_size).unwrap_or(0));
            is_inside |= search.address.is_some_and(|address| start <= address && address < end);
            (low, high) = (low.min(start), high.max(end));
        }
    }
    if search.address.is_none() {
        is_inside = search.number == 0;
        search.number = search.number.wrapping_sub(1);
    }
    if !is_inside {
        return 0;
    }
    let found = &mut search.object;
    (found.low, found.high, found.base) = (low, high, object.base);
    if !object.name.is_null() {
        // SAFETY: names of objects end with a zero byte.
        let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
        // One byte stays zero.
        if let Some(place) = found.path.get_mut(..4095).and_then(|path| path.get_mut(..name.len())) {
            sys::copy(place, name);
            found.length = name.len();
        }
    }
    1
}

/// Whether the library asks on behalf of another: the driver, CUDA's runtime where it is a library of its own, `libffi`, through which Python's
/// ctypes calls, and this one.
fn only_passes(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    [&b"libcuda.so"[..], b"libcudart.so", b"libcudart-", b"libffi", b"libvramline_driver"]
        .iter()
        .any(|start| name.starts_with(start))
}

type Backtrace = unsafe extern "C" fn(extern "C" fn(*mut c_void, *mut c_void) -> c_int, *mut c_void) -> c_int;
type Instruction = unsafe extern "C" fn(*mut c_void) -> usize;

static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
static INSTRUCTION: AtomicUsize = AtomicUsize::new(0);

/// Finds the functions that walk stacks, where the job has loaded them. Returns whether it has.
pub(crate) fn prepare_stacks(look: &dyn Fn(usize, &CStr) -> usize) -> bool {
    let mut handle = sys::RTLD_DEFAULT;
    if look(handle, c"_Unwind_Backtrace") == 0 {
        handle = sys::open_library(c"libgcc_s.so.1", sys::RTLD_LAZY | sys::RTLD_NOLOAD);
        if handle == 0 {
            return false;
        }
    }
    INSTRUCTION.store(look(handle, c"_Unwind_GetIP"), Relaxed);
    BACKTRACE.store(look(handle, c"_Unwind_Backtrace"), Release);
    BACKTRACE.load(Relaxed) != 0
}

/// A stack while it is walked.
pub(crate) struct Stack {
    /// Where the wrapper returns to: the first frame that counts.
    caller: usize,
    addresses: [usize; DEEPEST],
    count: usize,
    wanted: usize,
    /// Frames that were seen before the caller.
    skipped: usize,
}

/// The stack from `caller` on, at most `wanted` frames. Where it cannot be walked it has one frame.
pub(crate) fn stack(caller: usize, wanted: usize) -> Stack {
    let mut stack =
        Stack { caller, addresses: [0; DEEPEST], count: 0, wanted: wanted.min(DEEPEST), skipped: 0 };
    let (walk, instruction) = (BACKTRACE.load(Acquire), INSTRUCTION.load(Relaxed));
    if walk != 0 && instruction != 0 && wanted > 1 && !is_forked() {
        // SAFETY: the address of `_Unwind_Backtrace`, whose type this is.
        let walk: Backtrace = unsafe { core::mem::transmute(walk) };
        // SAFETY: the callback takes what it is given, and the stack outlives the call.
        unsafe { walk(step, (&raw mut stack).cast()) };
    }
    if stack.count == 0 {
        stack.addresses = [0; DEEPEST];
        if let Some(first) = stack.addresses.first_mut() {
            *first = caller;
        }
        stack.count = 1;
    }
    stack
}

impl Stack {
    /// Addresses inside the instructions that called.
    pub(crate) fn calls(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().take(self.count).map(|address| address.saturating_sub(1))
    }
}

extern "C" fn step(context: *mut c_void, data: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    // SAFETY: `data` is the stack of `stack`, and the address is that of `_Unwind_GetIP`, whose type this is.
    let (stack, instruction) = unsafe {
        let address: usize = INSTRUCTION.load(Relaxed);
        (&mut *data.cast::<Stack>(), core::mem::transmute::<usize, Instruction>(address))
    };
    // SAFETY: the context is the one that the walk gives.
    let address = unsafe { instruction(context) };
    if stack.count == 0 && address != stack.caller {
        // A few frames of our own come first.
        stack.skipped = stack.skipped.saturating_add(1);
        return if stack.skipped > 16 { END } else { GO_ON };
    }
    match stack.addresses.get_mut(stack.count) {
        Some(place) if stack.count < stack.wanted && address != 0 => *place = address,
        _ => return END,
    }
    stack.count = stack.count.saturating_add(1);
    GO_ON
}

/// Why there is no line of Python.
pub(crate) mod no_line {
    /// It is known.
    pub(crate) const KNOWN: u8 = 0;
    /// It was not asked for: memory did not change and little was requested.
    pub(crate) const NOT_ASKED: u8 = 1;
    /// There is no Python in this process.
    pub(crate) const NO_PYTHON: u8 = 2;
    /// The thread does not hold the interpreter lock.
    pub(crate) const NO_LOCK: u8 = 3;
    /// Python is ending, or raising an exception.
    pub(crate) const BUSY: u8 = 4;
    /// No function of Python is running.
    pub(crate) const NO_FRAME: u8 = 5;
}

/// Functions of Python's stable interface, in the order of `NAMES`; all or none are known.
const FUNCTIONS: usize = 9;
static PYTHON: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];
static FINALIZING: AtomicUsize = AtomicUsize::new(0);

const NAMES: [&CStr; FUNCTIONS] = [
    c"Py_IsInitialized",
    c"PyGILState_GetThisThreadState",
    c"PyErr_Occurred",
    c"PyEval_GetFrame",
    c"PyFrame_GetLineNumber",
    c"PyFrame_GetCode",
    c"PyObject_GetAttrString",
    c"PyUnicode_AsUTF8AndSize",
    c"Py_DecRef",
];
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Finds Python's functions where this process has them.
pub(crate) fn prepare_python(look: &dyn Fn(usize, &CStr) -> usize) {
    let find = |name: &CStr| look(sys::RTLD_DEFAULT, name);
    for (name, place) in NAMES.iter().zip(&PYTHON) {
        let found = find(name);
        if found == 0 {
            return;
        }
        place.store(found, Relaxed);
    }
    let finalizing =
        [c"Py_IsFinalizing", c"_Py_IsFinalizing"].into_iter().map(find).find(|&found| found != 0);
    let current = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"]
        .into_iter()
        .map(find)
        .find(|&found| found != 0);
    FINALIZING.store(finalizing.unwrap_or(0), Relaxed);
    // The last one: without it nothing is asked.
    CURRENT.store(current.unwrap_or(0), Release);
}

/// A line of Python.
pub(crate) struct Line {
    pub(crate) reason: u8,
    pub(crate) number: u32,
    pub(crate) file: [u8; 256],
    pub(crate) file_length: usize,
    pub(crate) name: [u8; 128],
    pub(crate) name_length: usize,
}

impl Line {
    pub(crate) const fn unknown(reason: u8) -> Line {
        Line { reason, number: 0, file: [0; 256], file_length: 0, name: [0; 128], name_length: 0 }
    }
}

type Ask = unsafe extern "C" fn() -> usize;
type AskOf = unsafe extern "C" fn(usize) -> usize;
type Attribute = unsafe extern "C" fn(usize, *const core::ffi::c_char) -> usize;
type Text = unsafe extern "C" fn(usize, *mut isize) -> *const u8;

/// The line of Python that this thread runs. Never waits for the interpreter lock.
pub(crate) fn python_line() -> Line {
    let current = CURRENT.load(Acquire);
    if current == 0 {
        return Line::unknown(no_line::NO_PYTHON);
    }
    let [initialized, own, error, frame, number, code, attribute, text, release] =
        [const { 0_usize }; FUNCTIONS].map_with(&PYTHON);
    // SAFETY: each address is that of a function of Python with this type. The first three may be called by any thread. The others need
    // the interpreter lock: this thread holds it if the state that runs is its own. None of them runs code of the program.
    unsafe {
        let ask = |address: usize| core::mem::transmute::<usize, Ask>(address)();
        if ask(initialized) as c_int == 0 {
            return Line::unknown(no_line::NO_PYTHON);
        }
        let state = ask(current);
        if state == 0 || state != ask(own) {
            return Line::unknown(no_line::NO_LOCK);
        }
        let finalizing = FINALIZING.load(Relaxed);
        if (finalizing != 0 && ask(finalizing) as c_int != 0) || ask(error) != 0 {
            return Line::unknown(no_line::BUSY);
        }
        let frame = ask(frame);
        if frame == 0 {
            return Line::unknown(no_line::NO_FRAME);
        }
        let mut line = Line::unknown(no_line::KNOWN);
        line.number = core::mem::transmute::<usize, AskOf>(number)(frame) as u32;
        let code = core::mem::transmute::<usize, AskOf>(code)(frame);
        if code == 0 {
            return Line::unknown(no_line::NO_FRAME);
        }
        let copy = |name: &CStr, place: &mut [u8]| -> usize {
            let object = core::mem::transmute::<usize, Attribute>(attribute)(code, name.as_ptr());
            if object == 0 {
                return 0;
            }
            let mut length = 0_isize;
            let bytes = core::mem::transmute::<usize, Text>(text)(object, &raw mut length);
            let length = usize::try_from(length).unwrap_or(0);
            let mut count = 0;
            if !bytes.is_null() {
                let bytes = core::slice::from_raw_parts(bytes, length);
                // The end of a long path tells more than its beginning.
                let bytes = bytes.get(length.saturating_sub(place.len())..).unwrap_or(&[]);
                if let Some(place) = place.get_mut(..bytes.len()) {
                    sys::copy(place, bytes);
                    count = bytes.len();
                }
            }
            core::mem::transmute::<usize, AskOf>(release)(object);
            count
        };
        line.file_length = copy(c"co_filename", &mut line.file);
        line.name_length = copy(c"co_name", &mut line.name);
        core::mem::transmute::<usize, AskOf>(release)(code);
        line
    }
}

/// Loads each place.
trait MapWith {
    fn map_with(self, places: &[AtomicUsize; FUNCTIONS]) -> Self;
}

impl MapWith for [usize; FUNCTIONS] {
    fn map_with(mut self, places: &[AtomicUsize; FUNCTIONS]) -> Self {
        for (value, place) in self.iter_mut().zip(places) {
            *value = place.load(Relaxed);
        }
        self
    }
}
