//! The file of a process, `calls-HOST-PID-STARTTIME.bin` in the folder of the recording: its format and its writer.
//!
//! All numbers are little-endian. A number that is not known has all bits set. The file begins with 32 bytes:
//!
//! | offset | | |
//! |---|---|---|
//! | 0 | 8 bytes | `VRAMCALL` |
//! | 8 | u32 | version of the format: 2 |
//! | 12 | u32 | 32, the length of this head |
//! | 16 | u64 | records that were dropped because the file was full or the disk too slow; the only bytes that are ever overwritten |
//! | 24 | u64 | 0 |
//!
//! Then follow frames. A frame begins with its length (u32, a multiple of 8, this word included), a checksum (u32, FNV-1a of what
//! follows it), its kind (u16) and a number (u16):
//!
//! | kind | | number | after the first 12 bytes |
//! |---|---|---|---|
//! | 1 | start | 0 | u32 process; u64 realtime and u64 monotonic clock. Numbers of functions, libraries and devices are new from here on: a process that replaced its program by `exec` has several |
//! | 2 | function | its number | u32 length of its name, the name |
//! | 3 | library | its number | u32 length of its path, the path |
//! | 4 | device | its number | u32 1: it was found by its uuid, 0: the driver's first device was taken; 16 bytes uuid |
//! | 5 | note | what happened, see [`Note`] | u32 a number that belongs to it |
//! | 6 | call | number of its function | as in [`Call`] |
//! | 7 | communicator of NCCL | its device | u32 thread; u64 monotonic clock; then as in [`Communicator`], from `handle` on; at last the library (u64) |
//!
//! Version 1 had no `own`, `others` and `neighbours` in a call. A reader skips frames of kinds that it does not know.
//!
//! Each frame is one `pwrite(2)` behind the last one, so that `kill -9` leaves a whole frame, a part of it or nothing of it. A frame that
//! does not fit on the disk is cut off again. The file ends at [`LARGEST`]; later records are counted.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::sys;

/// The most that a file takes.
const LARGEST: u64 = 64 << 20;

/// The largest frame.
pub(crate) const FRAME: usize = 1280;

/// An unknown number.
pub(crate) const UNKNOWN: u64 = u64::MAX;

const START: u16 = 1;
const FUNCTION: u16 = 2;
const LIBRARY: u16 = 3;
const DEVICE: u16 = 4;
const NOTE: u16 = 5;
const CALL: u16 = 6;
const COMMUNICATOR: u16 = 7;

/// What a note says.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// NVML could not be loaded (-1) or started (its error), or must not be used, because this process was forked from one that uses it (-2).
    MissingNvml = 1,
    /// There is no way to walk a stack, because the library for it is not loaded.
    MissingUnwinder = 2,
    /// There are more wrapped functions than places for them: the function is not recorded.
    FullTable = 3,
}

/// A call: what stands in its frame, from byte 12 on, in this order.
#[derive(Clone, Copy, Default)]
pub(crate) struct Call {
    /// u32: the thread.
    pub(crate) thread: u32,
    /// u64: begin on the monotonic clock.
    pub(crate) begin: u64,
    /// u64: end on the monotonic clock.
    pub(crate) end: u64,
    /// u64: requested bytes.
    pub(crate) bytes: u64,
    /// u64: address or handle.
    pub(crate) handle: u64,
    /// u64: second handle.
    pub(crate) other: u64,
    /// i32: the driver's result.
    pub(crate) result: u32,
    /// u32: see [`flag`].
    pub(crate) flags: u32,
    /// u64: the device's used memory before the call.
    pub(crate) before: u64,
    /// u64: the device's used memory after the call.
    pub(crate) after: u64,
    /// i64: change of the device's memory between the last measured call and this one.
    pub(crate) gap: i64,
    /// i64: change that is charged to this call. Over all calls of a device, gaps and charges add up to the change from the first reading
    /// to the last, whatever threads did at once.
    pub(crate) grew: i64,
    /// u64: bytes that the pool of the call reserved.
    pub(crate) pool_reserved: u64,
    /// u64: bytes of the pool that are in use.
    pub(crate) pool_used: u64,
    /// u64: bytes that NVML counts for this process, by its list of processes, which is asked for after calls that changed memory as far as
    /// its cost allows; unknown where it was not asked for.
    pub(crate) own: u64,
    /// u64: bytes that the same list counts for all other processes.
    pub(crate) others: u64,
    /// i64: change of `others` since the last call of this device that has it: the part of the gaps and charges since then that belongs to
    /// other processes.
    pub(crate) neighbours: i64,
    /// u16: number of the library that made the call; 0: unknown.
    pub(crate) library: u16,
    /// u16: number of the device.
    pub(crate) device: u16,
    /// u32: number of calls of this function so far, those that were not recorded included.
    pub(crate) nth: u32,
    /// u8: 0: the Python line is known; else why not, see `asker`. Then u8: number of stack frames, u16: length of the file's name,
    /// u16: length of the function's name, u16: 0.
    pub(crate) python: u8,
    /// u32: the Python line, then u32: 0.
    pub(crate) line: u32,
}

/// What NCCL counts for a communicator.
pub(crate) struct Communicator {
    /// CUDA's number; all bits set where it has none.
    pub(crate) device: u16,
    /// The library that NCCL is in.
    pub(crate) library: u16,
    /// u64: the communicator.
    pub(crate) handle: u64,
    /// u64: all its bytes of the device.
    pub(crate) total: u64,
    /// u64: bytes that cannot be suspended.
    pub(crate) persistent: u64,
    /// u64: bytes that can be suspended.
    pub(crate) suspendable: u64,
    /// u64: 1 while they are.
    pub(crate) suspended: u64,
}

/// Flags of a call.
pub(crate) mod flag {
    /// Another thread was inside a measured call at the same time.
    pub(crate) const OVERLAP: u32 = 1;
    /// The device is a guess: the driver could not be asked for it.
    pub(crate) const GUESSED: u32 = 2;
    /// No figure was read before the call; the growth includes the gap.
    pub(crate) const NO_BEFORE: u32 = 4;
    /// Other processes were on the device when NVML's list was last asked for, so a change may be theirs.
    pub(crate) const SHARED: u32 = 8;
}

/// The bytes of a frame while it is made. What does not fit is left out.
pub(crate) struct Frame {
    bytes: [u8; FRAME],
    length: usize,
}

impl Frame {
    pub(crate) fn new(kind: u16, number: u16) -> Frame {
        let mut frame = Frame { bytes: [0; FRAME], length: 8 };
        frame.put(&kind.to_le_bytes());
        frame.put(&number.to_le_bytes());
        frame
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            sys::copy(place, bytes);
            self.length = end;
        }
    }

    pub(crate) fn put_u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    /// Adds a frame's length and checksum.
    fn close(&mut self) -> &[u8] {
        let length = self.length.next_multiple_of(8).min(FRAME);
        let sum = checksum(self.bytes.get(8..length).unwrap_or(&[]));
        let head = [u32::try_from(length).unwrap_or(0).to_le_bytes(), sum.to_le_bytes()];
        if let Some(place) = self.bytes.get_mut(..8) {
            sys::copy(place, head.as_flattened());
        }
        self.bytes.get(..length).unwrap_or(&[])
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The folder of the recording. Written once, before `IS_SET`.
struct Folder(core::cell::UnsafeCell<[u8; 4096]>);

// SAFETY: the bytes are written by one thread, before `IS_SET`, and only read after that.
unsafe impl Sync for Folder {}

static FOLDER: Folder = Folder(core::cell::UnsafeCell::new([0; 4096]));
static IS_SET: AtomicBool = AtomicBool::new(false);

static FILE: AtomicI64 = AtomicI64::new(CLOSED);
static LENGTH: AtomicU64 = AtomicU64::new(0);
static BOUND: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// The number of dropped records that the file has.
static TOLD: AtomicU64 = AtomicU64::new(0);
static KNOWN_DEVICE: AtomicU64 = AtomicU64::new(0);
static KNOWN_INODE: AtomicU64 = AtomicU64::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Not opened yet.
const CLOSED: i64 = -1;
/// It cannot be opened, or somebody else has closed it.
const LOST: i64 = -2;

/// Keeps the folder, once. Called by the thread that prepares everything.
pub(crate) fn record_into(folder: &CStr) -> bool {
    if IS_SET.load(Relaxed) {
        return true;
    }
    let bytes = folder.to_bytes();
    // 200 bytes for the name of the file.
    if bytes.is_empty() || bytes.len() > 3800 {
        return false;
    }
    // SAFETY: nobody reads before `IS_SET`, and one thread prepares.
    let place = unsafe { &mut *FOLDER.0.get() };
    if let Some(place) = place.get_mut(..bytes.len()) {
        sys::copy(place, bytes);
    }
    IS_SET.store(true, Release);
    true
}

/// Leaves the parent's file to the parent. The child's own is opened with its first record.
pub(crate) fn forked() {
    let inherited = FILE.swap(CLOSED, Relaxed);
    if let Ok(file) = isize::try_from(inherited)
        && file >= 0
        && is_ours(file).is_some()
    {
        sys::close(file);
    }
    DROPPED.store(0, Relaxed);
    TOLD.store(0, Relaxed);
    LOCK.store(FREE, Release);
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held for so long that nobody waits any more.
const STUCK: u32 = 2;

/// Takes the lock of the file. A thread that holds it may be waiting for a processor, so others wait up to 20 ms. A disk that hangs costs each of
/// them that time once, and then their records.
fn locked() -> bool {
    for turn in 0..400 {
        match LOCK.compare_exchange(FREE, HELD, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(STUCK) => return false,
            Err(_) if turn < 200 => core::hint::spin_loop(),
            Err(_) => sys::sleep(100_000),
        }
    }
    let _ = LOCK.compare_exchange(HELD, STUCK, Relaxed, Relaxed);
    false
}

/// Writes how many records were dropped, where the file does not have it.
pub(crate) fn finish() {
    let file = FILE.load(Relaxed);
    if TOLD.load(Relaxed) == DROPPED.load(Relaxed) || !locked() {
        return;
    }
    if let Some(file) = isize::try_from(file).ok().filter(|&file| file >= 0 && is_ours(file).is_some()) {
        tell_dropped(file);
    }
    LOCK.store(FREE, Release);
}

/// Writes how many records were dropped. The caller holds the lock.
fn tell_dropped(file: isize) {
    let dropped = DROPPED.load(Relaxed);
    if sys::write_at(file, &dropped.to_le_bytes(), 16) == 8 {
        TOLD.store(dropped, Relaxed);
    }
}

/// Writes a frame, or counts it as dropped. Returns whether it was written.
fn write(frame: &mut Frame) -> bool {
    if !IS_SET.load(Acquire) {
        return false;
    }
    if !locked() {
        DROPPED.fetch_add(1, Relaxed);
        return false;
    }
    let mut file = FILE.load(Relaxed);
    if file == CLOSED {
        file = opened().map_or(LOST, |file| i64::try_from(file).unwrap_or(LOST));
        FILE.store(file, Relaxed);
    }
    let is_written = isize::try_from(file).is_ok_and(|file| file >= 0 && append(file, frame.close()));
    LOCK.store(FREE, Release);
    is_written
}

fn append(file: isize, bytes: &[u8]) -> bool {
    // A program that closes all descriptors may have opened a file of its own under our number.
    if is_ours(file).is_none() {
        FILE.store(LOST, Relaxed);
        return false;
    }
    let length = LENGTH.load(Relaxed);
    let end = length.saturating_add(bytes.len() as u64);
    let is_written = end <= BOUND.load(Relaxed) && {
        let count = sys::write_at(file, bytes, length);
        if count > 0 && usize::try_from(count) != Ok(bytes.len()) {
            sys::truncate(file, length);
        }
        usize::try_from(count) == Ok(bytes.len())
    };
    if is_written {
        LENGTH.store(end, Relaxed);
    } else {
        DROPPED.fetch_add(1, Relaxed);
    }
    let dropped = DROPPED.load(Relaxed);
    // A full file drops all the time.
    if dropped != TOLD.load(Relaxed)
        && (is_written || dropped.is_power_of_two() || dropped.trailing_zeros() >= 8)
    {
        tell_dropped(file);
    }
    is_written
}

fn is_ours(file: isize) -> Option<sys::FileIdentity> {
    let found = sys::identity(file)?;
    let is_same = (found.device, found.inode) == (KNOWN_DEVICE.load(Relaxed), KNOWN_INODE.load(Relaxed));
    is_same.then_some(found)
}

/// Creates the file, or continues that of the program which this one replaced.
fn opened() -> Option<isize> {
    let mut path = [0_u8; 4096];
    let path = path_of(&mut path)?;
    let mut file = sys::open(path, sys::O_CREATE_NEW);
    if file == sys::EEXIST {
        file = sys::open(path, sys::O_WRITE);
    }
    if file < 0 {
        return None;
    }
    let file = sys::move_high(file);
    let found = sys::identity(file)?;
    KNOWN_DEVICE.store(found.device, Relaxed);
    KNOWN_INODE.store(found.inode, Relaxed);
    BOUND.store(LARGEST.min(sys::file_size_limit()), Relaxed);
    let mut length = found.length;
    if length == 0 {
        let mut head = [0_u8; 32];
        let text = [*b"VRAMCALL", (2_u64 | 32 << 32).to_le_bytes()];
        if let Some(place) = head.get_mut(..16) {
            sys::copy(place, text.as_flattened());
        }
        if sys::write_at(file, &head, 0) != 32 {
            sys::truncate(file, 0);
            sys::close(file);
            return None;
        }
        length = 32;
    }
    LENGTH.store(length, Relaxed);
    let mut start = Frame::new(START, 0);
    start.put(&sys::process().to_le_bytes());
    start.put_u64(sys::clock(0));
    start.put_u64(sys::clock(1));
    append(file, start.close());
    Some(file)
}

/// Puts a path together, with the process as `recording/folder.rs` of the core names it.
fn path_of(path: &mut [u8; 4096]) -> Option<&CStr> {
    // SAFETY: written once, before `IS_SET`, which the caller has seen.
    let folder = unsafe { &*FOLDER.0.get() };
    let folder = CStr::from_bytes_until_nul(folder).ok()?.to_bytes();
    let mut length = 0_usize;
    let mut put = |bytes: &[u8]| -> Option<()> {
        let end = length.checked_add(bytes.len())?;
        sys::copy(path.get_mut(length..end)?, bytes);
        length = end;
        Some(())
    };
    put(folder)?;
    put(b"/calls-")?;
    let mut buffer = [0_u8; 512];
    let host = sys::read_start(c"/proc/sys/kernel/hostname", &mut buffer).trim_ascii();
    // A sign of several bytes counts once: the bytes that continue one are left out.
    let signs = host.iter().filter(|byte| **byte & 0xc0 != 0x80).take(64);
    let mut is_empty = true;
    for &sign in signs {
        let is_plain = sign.is_ascii_alphanumeric() || matches!(sign, b'.' | b'_' | b'-');
        put(&[if is_plain { sign } else { b'_' }])?;
        is_empty = false;
    }
    if is_empty {
        put(b"localhost")?;
    }
    let mut buffer = [0_u8; 1024];
    let stat = sys::read_start(c"/proc/self/stat", &mut buffer);
    put(b"-")?;
    put(stat.split(|&byte| byte == b' ').next()?)?;
    put(b"-")?;
    // The second field is the command in parentheses, with any sign in it. The start is field 22.
    let after = stat.rsplit(|&byte| byte == b')').next()?;
    put(after.split(|&byte| byte == b' ').nth(20)?)?;
    put(b".bin\0")?;
    CStr::from_bytes_until_nul(path).ok()
}

/// Writes what a number stands for.
fn write_name(kind: u16, number: u16, name: &[u8]) -> bool {
    let name = name.get(name.len().saturating_sub(1024)..).unwrap_or(name);
    let mut frame = Frame::new(kind, number);
    frame.put(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
    frame.put(name);
    write(&mut frame)
}

pub(crate) fn write_function(number: u16, name: &str) -> bool {
    write_name(FUNCTION, number, name.as_bytes())
}

pub(crate) fn write_library(number: u16, path: &[u8]) -> bool {
    write_name(LIBRARY, number, path)
}

pub(crate) fn write_device(number: u16, uuid: Option<&[u8; 16]>) -> bool {
    let mut frame = Frame::new(DEVICE, number);
    frame.put(&u32::from(uuid.is_some()).to_le_bytes());
    frame.put(uuid.unwrap_or(&[0; 16]));
    write(&mut frame)
}

pub(crate) fn write_note(note: Note, number: u32) -> bool {
    let mut frame = Frame::new(NOTE, note as u16);
    frame.put(&number.to_le_bytes());
    write(&mut frame)
}

pub(crate) fn write_communicator(found: &Communicator) -> bool {
    let mut frame = Frame::new(COMMUNICATOR, found.device);
    frame.put(&sys::thread().to_le_bytes());
    let figures = [found.handle, found.total, found.persistent, found.suspendable, found.suspended];
    for number in [sys::clock(1)].into_iter().chain(figures).chain([u64::from(found.library)]) {
        frame.put_u64(number);
    }
    write(&mut frame)
}

/// Writes a call. A frame of the stack is the number of a library and an offset in it.
pub(crate) fn write_call(function: u16, call: &Call, stack: &[(u16, u64)], file: &[u8], name: &[u8]) {
    let short = |number: usize| u16::try_from(number).unwrap_or(0).to_le_bytes();
    let mut frame = Frame::new(CALL, function);
    frame.put(&call.thread.to_le_bytes());
    for number in [call.begin, call.end, call.bytes, call.handle, call.other] {
        frame.put_u64(number);
    }
    frame.put(&call.result.to_le_bytes());
    frame.put(&call.flags.to_le_bytes());
    for number in [call.before, call.after, call.gap.cast_unsigned(), call.grew.cast_unsigned()] {
        frame.put_u64(number);
    }
    frame.put_u64(call.pool_reserved);
    frame.put_u64(call.pool_used);
    frame.put_u64(call.own);
    frame.put_u64(call.others);
    frame.put_u64(call.neighbours.cast_unsigned());
    frame.put(&call.library.to_le_bytes());
    frame.put(&call.device.to_le_bytes());
    frame.put(&call.nth.to_le_bytes());
    frame.put(&[call.python, u8::try_from(stack.len()).unwrap_or(0)]);
    frame.put(&short(file.len()));
    frame.put(&short(name.len()));
    frame.put(&[0; 2]);
    frame.put(&call.line.to_le_bytes());
    frame.put(&[0; 4]);
    for &(library, offset) in stack {
        frame.put_u64(u64::from(library));
        frame.put_u64(offset);
    }
    frame.put(file);
    frame.put(name);
    write(&mut frame);
}
