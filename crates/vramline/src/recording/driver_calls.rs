//! `calls-ID.bin`: the calls of NVIDIA's driver that a process made, as the library of `crates/vramline-driver` wrote them. The format is
//! documented at its writer, `crates/vramline-driver/src/file.rs`.
//!
//! Reading stops at the first frame that is not whole; what is before it counts. Nothing is concluded here.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::folder::{ProcessId, open_plain};
use crate::units::{Bytes, Nanos};

/// The newest version of the format that is read here. Older ones are read as well.
const VERSION: u32 = 2;

/// The writer stops before this. What is longer is not its.
const LARGEST: u64 = 64 << 20;

/// The longest frame.
const LONGEST_FRAME: usize = 1 << 16;

const HEAD: usize = 32;
const UNKNOWN: u64 = u64::MAX;

/// The calls of one process, in the order in which they ended, as far as threads allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCalls {
    /// The process.
    pub id: ProcessId,
    /// Its calls.
    pub calls: Vec<DriverCall>,
    /// The uuids of its devices, by CUDA's number in the process; `None` where the driver's first device was taken instead.
    pub devices: BTreeMap<u16, Option<[u8; 16]>>,
    /// What NCCL said of the memory of its communicators, in the order of time.
    pub communicators: Vec<CommunicatorMemory>,
    /// What could not be recorded.
    pub notes: Vec<DriverNote>,
    /// Records that were dropped, because the file was full or the disk too slow.
    pub dropped: u64,
    /// Bytes at the end that are not a whole record.
    pub torn_bytes: u64,
}

/// What the recorder could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverNote {
    /// NVML could not be loaded (-1) or started (its error), or must not be used, because the process was forked from one that uses it (-2).
    NoNvml(i32),
    /// Stacks could not be walked.
    NoUnwinder,
    /// Too many functions were asked for; some are not recorded.
    NoPlace,
    /// A note of a newer version.
    Other(u16),
}

/// One call of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCall {
    /// The function, without the ending of its version; empty where its name was lost.
    pub function: Arc<str>,
    /// The thread.
    pub thread: u32,
    /// When it began, on the recording's clock.
    pub begin: Nanos,
    /// When it returned.
    pub end: Nanos,
    /// The bytes that were requested.
    pub bytes: Option<Bytes>,
    /// The address or handle that the call made, or that it was about.
    pub handle: Option<u64>,
    /// A second handle: of the memory that was mapped, of the pool, of the module.
    pub other: Option<u64>,
    /// What the driver returned; 0 is success.
    pub result: i32,
    /// Whether another thread was inside a measured call at the same time, so that the growth may be that one's.
    pub is_overlapping: bool,
    /// Whether the device is a guess.
    pub is_guess: bool,
    /// The device's used memory before the call.
    pub before: Option<Bytes>,
    /// The device's used memory after the call.
    pub after: Option<Bytes>,
    /// Change of the device's memory since the last measured call.
    pub gap: i64,
    /// Change that is charged to this call.
    pub grew: i64,
    /// What NVML's list of processes counted after the call; `None` where it was not asked for, or does not show this process. Files of
    /// version 1 do not have it.
    pub listed: Option<ListedMemory>,
    /// Whether other processes were on the device when the list was last asked for, so that a change may be theirs.
    pub is_shared: bool,
    /// What the pool of the call reserved, and how much of that was in use.
    pub pool: Option<(Bytes, Bytes)>,
    /// The library that made the call, directly or through CUDA's runtime.
    pub library: Option<Arc<str>>,
    /// CUDA's number of the device.
    pub device: u16,
    /// Number of calls of this function so far, those that were not recorded included.
    pub nth: u32,
    /// The line of Python that led to the call.
    pub line: Result<PythonLine, NoLine>,
    /// The stack, innermost first: libraries with offsets.
    pub stack: Vec<(Option<Arc<str>>, u64)>,
}

/// Memory of a device by its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedMemory {
    /// That of the process that made the call.
    pub own: Bytes,
    /// That of all other processes.
    pub others: Bytes,
    /// Change of `others` since the last call of this process on this device that has it: the part of `gap` and `grew` of the calls since then
    /// that belongs to other processes.
    pub neighbours: i64,
}

/// What NCCL counts for a communicator (`ncclCommMemStats`), shortly before a call with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunicatorMemory {
    /// When it was asked, on the recording's clock.
    pub time: Nanos,
    /// The thread that was about to use it.
    pub thread: u32,
    /// The communicator.
    pub handle: u64,
    /// CUDA's number of its device.
    pub device: Option<u16>,
    /// The library that NCCL is in.
    pub library: Option<Arc<str>>,
    /// All bytes of the device that NCCL counts for it.
    pub total: Bytes,
    /// Of them, those that cannot be suspended.
    pub persistent: Bytes,
    /// Of them, those that can be suspended.
    pub suspendable: Bytes,
    /// Whether they are suspended.
    pub is_suspended: bool,
}

/// A line of Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonLine {
    /// The file.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line.
    pub line: u32,
}

/// Why there is no line of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLine {
    /// Memory did not change and little was requested.
    NotAsked,
    /// The process has no Python.
    NoPython,
    /// The thread did not hold the interpreter lock.
    NoLock,
    /// Python was ending, or raising an exception.
    Busy,
    /// No function of Python was running.
    NoFrame,
    /// A reason of a newer version.
    Other(u8),
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverCallsError {
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not a file of driver calls.
    #[error("it does not begin as a file of driver calls does")]
    Foreign,
    /// A newer version of Vramline wrote it.
    #[error("it has version {0}, but this version of Vramline reads versions 1 to {VERSION}")]
    Newer(u32),
    /// It is longer than the writer allows.
    #[error("it is longer than {LARGEST} bytes")]
    TooLarge,
}

impl DriverCalls {
    /// Reads the file of the process `id`.
    pub fn read(path: &Path, id: ProcessId) -> Result<DriverCalls, DriverCallsError> {
        let mut bytes = Vec::new();
        open_plain(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(DriverCallsError::TooLarge);
        }
        DriverCalls::parse(&bytes, id)
    }

    /// Reads the bytes of such a file.
    pub fn parse(bytes: &[u8], id: ProcessId) -> Result<DriverCalls, DriverCallsError> {
        let mut calls = DriverCalls {
            id,
            calls: Vec::new(),
            devices: BTreeMap::new(),
            communicators: Vec::new(),
            notes: Vec::new(),
            dropped: 0,
            torn_bytes: bytes.len() as u64,
        };
        if bytes.is_empty() {
            // Created, and never written: the disk was full.
            return Ok(calls);
        }
        if !bytes.starts_with(b"VRAMCALL") {
            return Err(DriverCallsError::Foreign);
        }
        let mut head = Cursor(bytes.get(8..HEAD).unwrap_or(&[]));
        let (Some(version), Some(length), Some(dropped)) = (head.u32(), head.u32(), head.u64()) else {
            return Ok(calls);
        };
        if !(1..=VERSION).contains(&version) {
            return Err(DriverCallsError::Newer(version));
        }
        if length as usize != HEAD {
            return Err(DriverCallsError::Foreign);
        }
        calls.dropped = dropped;
        let mut names = Names::default();
        let has_lists = version >= 2;
        let mut rest = bytes.get(HEAD..).unwrap_or(&[]);
        while let Some((frame, after)) = whole_frame(rest) {
            // A frame of an unknown kind, or one that is too short for its kind, is skipped: its checksum holds.
            let _ = calls.add(frame, &mut names, has_lists);
            rest = after;
        }
        calls.torn_bytes = rest.len() as u64;
        Ok(calls)
    }

    fn add(&mut self, frame: &[u8], names: &mut Names, has_lists: bool) -> Option<()> {
        let mut cursor = Cursor(frame);
        let (kind, number) = (cursor.u16()?, cursor.u16()?);
        match kind {
            // Another program begins, with numbers of its own.
            1 => *names = Names::default(),
            2 | 3 => {
                let length = cursor.u32()?;
                let name = String::from_utf8_lossy(cursor.take(length as usize)?).into();
                let known = if kind == 2 { &mut names.functions } else { &mut names.libraries };
                known.insert(number, name);
            }
            4 => {
                let is_known = cursor.u32()? == 1;
                let uuid = cursor.take(16)?.try_into().ok()?;
                self.devices.insert(number, is_known.then_some(uuid));
            }
            5 => {
                let value = cursor.u32()?.cast_signed();
                self.notes.push(match number {
                    1 => DriverNote::NoNvml(value),
                    2 => DriverNote::NoUnwinder,
                    3 => DriverNote::NoPlace,
                    other => DriverNote::Other(other),
                });
            }
            6 => self.calls.push(call(cursor, number, names, has_lists)?),
            7 => self.communicators.push(communicator(cursor, number, names)?),
            _ => {}
        }
        Some(())
    }
}

/// Names by their numbers.
#[derive(Default)]
struct Names {
    functions: BTreeMap<u16, Arc<str>>,
    libraries: BTreeMap<u16, Arc<str>>,
}

/// The first frame without its length and checksum, and what follows it; `None` where it is not whole.
fn whole_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut head = Cursor(bytes);
    let (length, sum) = (head.u32()? as usize, head.u32()?);
    if !(16..=LONGEST_FRAME).contains(&length) || !length.is_multiple_of(8) {
        return None;
    }
    let frame = bytes.get(8..length)?;
    let found =
        frame.iter().fold(0x811c_9dc5_u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (found == sum).then(|| (frame, bytes.get(length..).unwrap_or(&[])))
}

fn call(mut cursor: Cursor<'_>, function: u16, names: &Names, has_lists: bool) -> Option<DriverCall> {
    const OVERLAP: u32 = 1;
    const GUESSED: u32 = 2;
    const SHARED: u32 = 8;
    let known = |number: u64| (number != UNKNOWN).then_some(number);
    let library = |number: u64| {
        let number = u16::try_from(number).ok()?;
        names.libraries.get(&number).cloned()
    };
    let thread = cursor.u32()?;
    let (begin, end) = (nanos(cursor.u64()?), nanos(cursor.u64()?));
    let (bytes, handle, other) = (known(cursor.u64()?), known(cursor.u64()?), known(cursor.u64()?));
    let (result, flags) = (cursor.u32()?.cast_signed(), cursor.u32()?);
    let (before, after) = (known(cursor.u64()?), known(cursor.u64()?));
    let (gap, grew) = (cursor.u64()?.cast_signed(), cursor.u64()?.cast_signed());
    let (reserved, used) = (known(cursor.u64()?), known(cursor.u64()?));
    let mut listed = None;
    if has_lists {
        let (own, others, neighbours) = (known(cursor.u64()?), known(cursor.u64()?), cursor.u64()?);
        listed = own.zip(others).map(|(own, others)| ListedMemory {
            own: Bytes(own),
            others: Bytes(others),
            neighbours: neighbours.cast_signed(),
        });
    }
    let (asker, device, nth) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
    let (reason, depth) = (cursor.u8()?, cursor.u8()?);
    let (file, name) = (cursor.u16()?, cursor.u16()?);
    cursor.take(2)?;
    let line = cursor.u32()?;
    cursor.take(4)?;
    let mut stack = Vec::with_capacity(usize::from(depth).min(cursor.0.len() / 16));
    for _ in 0..depth {
        stack.push((library(cursor.u64()?), cursor.u64()?));
    }
    let mut text =
        |length: u16| Some(String::from_utf8_lossy(cursor.take(usize::from(length))?).into_owned());
    let line = PythonLine { file: text(file)?, function: text(name)?, line };
    Some(DriverCall {
        function: names.functions.get(&function).cloned().unwrap_or_default(),
        thread,
        begin,
        end,
        bytes: bytes.map(Bytes),
        handle,
        other,
        result,
        is_overlapping: flags & OVERLAP != 0,
        is_guess: flags & GUESSED != 0,
        before: before.map(Bytes),
        after: after.map(Bytes),
        gap,
        grew,
        listed,
        is_shared: flags & SHARED != 0,
        pool: reserved.zip(used).map(|(reserved, used)| (Bytes(reserved), Bytes(used))),
        library: library(u64::from(asker)),
        device,
        nth,
        line: match reason {
            0 => Ok(line),
            1 => Err(NoLine::NotAsked),
            2 => Err(NoLine::NoPython),
            3 => Err(NoLine::NoLock),
            4 => Err(NoLine::Busy),
            5 => Err(NoLine::NoFrame),
            other => Err(NoLine::Other(other)),
        },
        stack,
    })
}

fn communicator(mut cursor: Cursor<'_>, device: u16, names: &Names) -> Option<CommunicatorMemory> {
    let (thread, time, handle) = (cursor.u32()?, nanos(cursor.u64()?), cursor.u64()?);
    let (total, persistent, suspendable) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let (suspended, library) = (cursor.u64()?, u16::try_from(cursor.u64()?).ok()?);
    Some(CommunicatorMemory {
        time,
        thread,
        handle,
        device: (device != u16::MAX).then_some(device),
        library: names.libraries.get(&library).cloned(),
        total: Bytes(total),
        persistent: Bytes(persistent),
        suspendable: Bytes(suspendable),
        is_suspended: suspended != 0,
    })
}

fn nanos(time: u64) -> Nanos {
    Nanos(i64::try_from(time).unwrap_or(i64::MAX))
}

/// Little-endian numbers, one after the other.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
