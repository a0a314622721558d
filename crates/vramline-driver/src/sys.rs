//! The kernel and the C library: the few calls that the other modules need.
//!
//! Files are handled by system calls without the C library, which leave `errno` alone and cannot be interposed by others.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_void};

pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOLOAD: c_int = 4;
pub(crate) const RTLD_NEXT: usize = usize::MAX;
pub(crate) const RTLD_DEFAULT: usize = 0;

/// The part of `struct dl_phdr_info` that every version of glibc has.
#[repr(C)]
pub(crate) struct ObjectInfo {
    pub(crate) base: usize,
    pub(crate) name: *const c_char,
    pub(crate) headers: *const ProgramHeader,
    pub(crate) count: u16,
}

#[repr(C)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) alignment: u64,
}

pub(crate) type Visit = extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int;

// `dl` is a part of `c` from glibc 2.34 on, and a library of its own before.
#[link(name = "c")]
#[link(name = "dl")]
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> usize;
    fn getenv(name: *const c_char) -> *const c_char;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
    fn __errno_location() -> *mut c_int;
    fn __cxa_atexit(end: extern "C" fn(*mut c_void), data: *mut c_void, library: *mut c_void) -> c_int;
}

/// The address of `dlvsym`, which only glibc has; 0 elsewhere. A job may start a program with another C library, which inherits `LD_PRELOAD`, and
/// the loader there would refuse a library that needs a name which does not exist.
fn dlvsym() -> usize {
    let address: usize;
    // SAFETY: reads the address that the loader has put there.
    unsafe {
        asm!(
            ".weak dlvsym",
            "mov {address}, qword ptr [rip + dlvsym@GOTPCREL]",
            address = out(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    }
    address
}

/// The `dlsym` that the job would have without this library: that of the C library, or of another preloaded library; and whether the C library
/// is glibc.
pub(crate) fn next_dlsym() -> (usize, bool) {
    let ask = dlvsym();
    if ask == 0 {
        let mut found = 0_usize;
        each_object(visit_foreign, (&raw mut found).cast());
        return (found, false);
    }
    // SAFETY: the address of `dlvsym`, whose type this is.
    let ask = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(usize, *const c_char, *const c_char) -> usize>(ask)
    };
    let versions = [c"GLIBC_2.34", c"GLIBC_2.2.5"];
    // SAFETY: all arguments are constant strings that end with a zero byte.
    let ask = |version: &CStr| unsafe { ask(RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
    (versions.into_iter().map(ask).find(|&found| found != 0).unwrap_or(0), true)
}

/// Looks for `dlsym` in the table of symbols of an object, where nobody can be asked for it: musl's loader is its C library.
extern "C" fn visit_foreign(object: *const ObjectInfo, _: usize, data: *mut c_void) -> c_int {
    const DYNAMIC: u32 = 2;
    const SYMBOL_WORDS: usize = 3;
    // SAFETY: the C library gives valid objects with `count` headers, and `data` is a place for an address. A dynamic section ends with a
    // zero and points to tables of the object, whose number of symbols stands in its hash table.
    unsafe {
        let (object, found) = (&*object, &mut *data.cast::<usize>());
        for place in 0..usize::from(object.count) {
            let header = &*object.headers.wrapping_add(place);
            if header.kind != DYNAMIC {
                continue;
            }
            let mut entry = object.base.wrapping_add(header.address as usize) as *const [usize; 2];
            let (mut hash, mut strings, mut symbols) = (0, 0, 0);
            while let [tag, value] = *entry
                && tag != 0
            {
                // Some loaders replace offsets by addresses.
                let address = if value < object.base { object.base.wrapping_add(value) } else { value };
                match tag {
                    4 => hash = address,
                    5 => strings = address,
                    6 => symbols = address,
                    _ => {}
                }
                entry = entry.wrapping_add(1);
            }
            if hash == 0 || strings == 0 || symbols == 0 {
                continue;
            }
            let count = *(hash as *const u32).wrapping_add(1) as usize;
            for number in 0..count {
                let [name, value, _] = *(symbols as *const [u64; SYMBOL_WORDS]).wrapping_add(number);
                let text = strings.wrapping_add((name & 0xffff_ffff) as usize) as *const c_char;
                // A symbol without a section is one that the object needs. Ours jumps to what is looked for here.
                let address = object.base.wrapping_add(value as usize);
                let is_here =
                    name >> 48 != 0 && value != 0 && address != crate::entry::dlsym as *const () as usize;
                if is_here && CStr::from_ptr(text) == c"dlsym" {
                    *found = address;
                    return 1;
                }
            }
        }
    }
    0
}

/// `dlopen`; 0 where it fails.
pub(crate) fn open_library(name: &CStr, flags: c_int) -> usize {
    // SAFETY: the name ends with a zero byte.
    unsafe { dlopen(name.as_ptr(), flags) }
}

/// A variable of the environment as bytes.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { getenv(name.as_ptr()) };
    // SAFETY: a found value ends with a zero byte. It is copied at once: the job may change its environment later.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) })
}

/// `CLOCK_MONOTONIC` (1), the clock of recordings, or `CLOCK_REALTIME` (0), in nanoseconds.
pub(crate) fn clock(clock: c_int) -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the pointer is to two words, as `struct timespec` has.
    unsafe { clock_gettime(clock, &mut time) };
    let [seconds, nanos] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos).cast_unsigned()
}

/// Calls `visit` for each loaded object.
pub(crate) fn each_object(visit: Visit, data: *mut c_void) {
    // SAFETY: `visit` takes what the C library gives it, and `data` outlives this call.
    unsafe { dl_iterate_phdr(visit, data) };
}

/// Calls `end` when the process exits, before what was registered earlier.
pub(crate) fn at_exit(end: extern "C" fn(*mut c_void)) {
    // SAFETY: the function takes any pointer, and this library is never unloaded.
    unsafe { __cxa_atexit(end, core::ptr::null_mut(), core::ptr::null_mut()) };
}

/// The job's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library returns a valid pointer for every thread.
    unsafe { *__errno_location() }
}

/// Gives the job its `errno` back.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = value };
}

/// A system call. The result is negative where it failed.
///
/// # Safety
///
/// Arguments must be what the kernel expects of this call.
unsafe fn call(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it overwrites only rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

pub(crate) const O_CREATE_NEW: usize = 0o1 | 0o100 | 0o200 | 0o2_000_000;
pub(crate) const O_WRITE: usize = 0o1 | 0o2_000_000;
const O_READ: usize = 0o2_000_000;
pub(crate) const EEXIST: isize = -17;

/// `open(2)`, close-on-exec.
pub(crate) fn open(path: &CStr, flags: usize) -> isize {
    // SAFETY: the path ends with a zero byte.
    unsafe { call(2, path.as_ptr() as usize, flags, 0o644, 0) }
}

pub(crate) fn close(file: isize) {
    // SAFETY: no memory is involved.
    unsafe { call(3, file.cast_unsigned(), 0, 0, 0) };
}

/// Moves a descriptor to a high number, where the job does not expect it.
pub(crate) fn move_high(file: isize) -> isize {
    const F_DUPFD_CLOEXEC: usize = 1030;
    for least in [700, 200, 60] {
        // SAFETY: no memory is involved.
        let high = unsafe { call(72, file.cast_unsigned(), F_DUPFD_CLOEXEC, least, 0) };
        if high >= 0 {
            close(file);
            return high;
        }
    }
    file
}

/// Writes at `offset`. Returns how many bytes were written.
pub(crate) fn write_at(file: isize, bytes: &[u8], offset: u64) -> isize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    // SAFETY: pointer and length are those of a slice.
    unsafe { call(18, file.cast_unsigned(), bytes.as_ptr() as usize, bytes.len(), offset) }
}

pub(crate) fn truncate(file: isize, length: u64) {
    // SAFETY: no memory is involved.
    unsafe { call(77, file.cast_unsigned(), usize::try_from(length).unwrap_or(usize::MAX), 0, 0) };
}

/// What tells one file from another, and its length.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) length: u64,
}

pub(crate) fn identity(file: isize) -> Option<FileIdentity> {
    let mut stat = [0_u64; 18];
    // SAFETY: `struct stat` of x86-64 has 144 bytes.
    let result = unsafe { call(5, file.cast_unsigned(), stat.as_mut_ptr() as usize, 0, 0) };
    let [device, inode, _, _, _, _, length, ..] = stat;
    (result == 0).then_some(FileIdentity { device, inode, length })
}

/// The largest file that this process may write; beyond it a signal would end the process.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: `struct rlimit` has two words. 1 is RLIMIT_FSIZE.
    unsafe { call(97, 1, limit.as_mut_ptr() as usize, 0, 0) };
    let [soft, _] = limit;
    soft
}

/// Reads the beginning of a small file.
pub(crate) fn read_start<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let file = open(path, O_READ);
    if file < 0 {
        return &[];
    }
    // SAFETY: pointer and length are those of a slice.
    let count = unsafe { call(0, file.cast_unsigned(), buffer.as_mut_ptr() as usize, buffer.len(), 0) };
    close(file);
    buffer.get(..usize::try_from(count).unwrap_or(0)).unwrap_or(&[])
}

/// The target of a link.
pub(crate) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path ends with a zero byte; pointer and length are those of a slice.
    let count = unsafe { call(89, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0) };
    buffer.get(..usize::try_from(count).unwrap_or(0)).unwrap_or(&[])
}

pub(crate) fn process() -> u32 {
    // SAFETY: no memory is involved.
    let found = unsafe { call(39, 0, 0, 0, 0) };
    u32::try_from(found).unwrap_or(0)
}

pub(crate) fn thread() -> u32 {
    // SAFETY: no memory is involved.
    let found = unsafe { call(186, 0, 0, 0, 0) };
    u32::try_from(found).unwrap_or(0)
}

/// A value that tells the threads of this process apart while they live, without a system call: the address of the thread's `errno`.
pub(crate) fn thread_mark() -> usize {
    // SAFETY: the C library returns a valid pointer for every thread.
    unsafe { __errno_location() as usize }
}

/// A page that the kernel empties in a forked child.
#[repr(C, align(4096))]
struct Page([core::sync::atomic::AtomicU32; 1024]);

static MARKED: Page = Page([const { core::sync::atomic::AtomicU32::new(0) }; 1024]);

/// Remembers that this process is known. A forked child has forgotten it.
pub(crate) fn mark_process() {
    const MADV_WIPEONFORK: usize = 18;
    // SAFETY: the page belongs to this library alone, and the kernel changes it only in a child.
    let result = unsafe { call(28, &raw const MARKED as usize, size_of::<Page>(), MADV_WIPEONFORK, 0) };
    if result == 0
        && let [first, ..] = &MARKED.0
    {
        first.store(1, core::sync::atomic::Ordering::Relaxed);
    }
}

/// Whether this process is the one that called [`mark_process`]. False as well where the kernel (before 4.14) cannot tell.
pub(crate) fn is_marked() -> bool {
    let [first, ..] = &MARKED.0;
    first.load(core::sync::atomic::Ordering::Relaxed) == 1
}

/// Lets other threads run for some nanoseconds, less than a second.
pub(crate) fn sleep(nanos: usize) {
    let time = [0_usize, nanos];
    // SAFETY: the pointer is to two words, as `struct timespec` has; what is left is not asked for.
    unsafe { call(35, time.as_ptr() as usize, 0, 0, 0) };
}

/// Copies as much as fits. Unlike `copy_from_slice`, it cannot panic.
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
