//! Files of driver calls: written by the library itself under a driver for tests, and by hand; cut and damaged.

use std::path::{Path, PathBuf};
use std::process::Command;

use vramline::recording::driver_calls::{
    CommunicatorMemory, DriverCall, DriverCalls, DriverCallsError, DriverNote, ListedMemory, NoLine,
};
use vramline::recording::folder::ProcessId;
use vramline::recording::reader;
use vramline::units::{Bytes, Nanos};

use crate::root;

const MIB: u64 = 1 << 20;

fn id() -> ProcessId {
    ProcessId::new("host", 1, 2)
}

fn parsed(bytes: &[u8]) -> DriverCalls {
    DriverCalls::parse(bytes, id()).unwrap()
}

/// The head of a file of this version and its frames.
fn file(version: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"VRAMCALL".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(32_u32.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(frames.iter().flatten());
    bytes
}

fn frame(kind: u16, number: u16, body: &[u8]) -> Vec<u8> {
    let mut rest = [kind.to_le_bytes(), number.to_le_bytes()].concat();
    rest.extend(body);
    rest.resize((rest.len() + 8).next_multiple_of(8) - 8, 0);
    let sum =
        rest.iter().fold(0x811c_9dc5_u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let length = u32::try_from(rest.len() + 8).unwrap();
    [length.to_le_bytes().to_vec(), sum.to_le_bytes().to_vec(), rest].concat()
}

fn name(kind: u16, number: u16, text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_le_bytes();
    frame(kind, number, &[&length, text.as_bytes()].concat())
}

/// A call of the function 3 by the library 9, with one frame and a line of Python. Version 2 has what NVML's list said.
fn call(reason: u8, listed: Option<[u64; 3]>) -> Vec<u8> {
    let mut body = 5_u32.to_le_bytes().to_vec();
    for number in [100, 200, 3 * MIB, 0x7000, u64::MAX] {
        body.extend(number.to_le_bytes());
    }
    body.extend((-1_i32).to_le_bytes());
    body.extend(if listed.is_some() { 11_u32 } else { 3 }.to_le_bytes());
    for number in [10 * MIB, 14 * MIB, (-MIB.cast_signed()).cast_unsigned(), 4 * MIB, u64::MAX, u64::MAX] {
        body.extend(number.to_le_bytes());
    }
    body.extend(listed.iter().flatten().flat_map(|number| number.to_le_bytes()));
    body.extend([9, 0, 1, 0, 6, 0, 0, 0, reason, 1, 6, 0, 3, 0, 0, 0, 42, 0, 0, 0, 0, 0, 0, 0]);
    body.extend([9_u64.to_le_bytes(), 0x99_u64.to_le_bytes()].concat());
    body.extend(b"job.pyfit");
    frame(6, 3, &body)
}

fn small() -> Vec<u8> {
    let numbers = [50_u64, 0xc0, 9 * MIB, 3 * MIB, 6 * MIB, 1, 9].map(u64::to_le_bytes);
    let start = [&[1; 4][..], &[2; 16]].concat();
    let device = [&[1, 0, 0, 0][..], &[8; 16]].concat();
    file(
        2,
        &[
            frame(1, 0, &start),
            name(2, 3, "cuMemAlloc"),
            name(3, 9, "/lib/libcublas.so.12"),
            frame(4, 1, &device),
            frame(5, 1, &(-2_i32).to_le_bytes()),
            call(0, Some([5 * MIB, 6 * MIB, (-MIB.cast_signed()).cast_unsigned()])),
            frame(7, 1, &[&4_u32.to_le_bytes()[..], numbers.as_flattened()].concat()),
            // A kind of a later version.
            frame(77, 0, &[0; 20]),
            call(3, Some([u64::MAX, u64::MAX, 0])),
        ],
    )
}

#[test]
fn every_field_is_read() {
    let read = parsed(&small());
    assert_eq!((read.dropped, read.torn_bytes), (7, 0));
    assert_eq!(read.devices.get(&1), Some(&Some([8; 16])));
    assert_eq!(read.notes, [DriverNote::NoNvml(-2)]);
    let [first, second] = read.calls.as_slice() else { panic!("{:?}", read.calls) };
    let line = first.line.as_ref().unwrap();
    assert_eq!((line.file.as_str(), line.function.as_str(), line.line), ("job.py", "fit", 42));
    assert_eq!(second.line, Err(NoLine::NoLock));
    let DriverCall { function, thread, begin, end, bytes, handle, other, result, .. } = first.clone();
    assert_eq!((&*function, thread, begin, end), ("cuMemAlloc", 5, Nanos(100), Nanos(200)));
    assert_eq!((bytes, handle, other, result), (Some(Bytes(3 * MIB)), Some(0x7000), None, -1));
    assert!(first.is_overlapping && first.is_guess);
    assert_eq!((first.before, first.after), (Some(Bytes(10 * MIB)), Some(Bytes(14 * MIB))));
    assert_eq!((first.gap, first.grew, first.pool), (-MIB.cast_signed(), 4 * MIB.cast_signed(), None));
    assert_eq!((first.library.as_deref(), first.device, first.nth), (Some("/lib/libcublas.so.12"), 1, 6));
    assert_eq!(first.stack, [(first.library.clone(), 0x99)]);
    let listed = ListedMemory { own: Bytes(5 * MIB), others: Bytes(6 * MIB), neighbours: -MIB.cast_signed() };
    assert_eq!((first.listed, first.is_shared), (Some(listed), true));
    assert_eq!(second.listed, None);
    let communicator = CommunicatorMemory {
        time: Nanos(50),
        thread: 4,
        handle: 0xc0,
        device: Some(1),
        library: first.library.clone(),
        total: Bytes(9 * MIB),
        persistent: Bytes(3 * MIB),
        suspendable: Bytes(6 * MIB),
        is_suspended: true,
    };
    assert_eq!(read.communicators, [communicator]);
}

#[test]
fn files_of_version_1_are_read() {
    let old =
        parsed(&file(1, &[name(2, 3, "cuMemAlloc"), name(3, 9, "/lib/libcublas.so.12"), call(0, None)]));
    let mut new = parsed(&small()).calls.swap_remove(0);
    (new.listed, new.is_shared) = (None, false);
    assert_eq!(old.calls, [new]);
}

#[test]
fn every_cut_leaves_what_was_whole() {
    let whole = small();
    let complete = parsed(&whole);
    for end in 0..whole.len() {
        match DriverCalls::parse(&whole[..end], id()) {
            Ok(read) => {
                assert!(read.calls.len() <= complete.calls.len());
                assert_eq!(read.calls[..], complete.calls[..read.calls.len()], "cut at {end}");
            }
            Err(error) => assert!(end < 8 && matches!(error, DriverCallsError::Foreign), "cut at {end}"),
        }
    }
    assert_eq!(parsed(&[]).calls, []);
}

#[test]
fn a_wrong_byte_ends_the_file_there() {
    let whole = small();
    let complete = parsed(&whole);
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut wrong = whole.clone();
            wrong[place] ^= 1 << bit;
            let Ok(read) = DriverCalls::parse(&wrong, id()) else {
                assert!(place < 16, "byte {place}");
                continue;
            };
            assert!(read.calls.iter().zip(&complete.calls).all(|(one, other)| one == other), "byte {place}");
            assert!(place < 32 || read.torn_bytes > 0, "byte {place}");
        }
    }
}

#[test]
fn versions_and_lies_are_refused() {
    let mut newer = small();
    newer[8] = 3;
    assert!(matches!(DriverCalls::parse(&newer, id()), Err(DriverCallsError::Newer(3))));
    // Lengths and counts that the frame does not have.
    for body in [vec![], vec![0xff; 24], vec![0xff; 200]] {
        for (kind, version) in (0..9).flat_map(|kind| [(kind, 1), (kind, 2)]) {
            let second = call(0, (version == 2).then_some([0; 3]));
            let read = parsed(&file(version, &[frame(kind, 0, &body), second]));
            assert!(read.calls.len() <= 2 && read.torn_bytes == 0);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("calls-h-1-2.bin");
    std::fs::File::create(&long).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(DriverCalls::read(&long, id()), Err(DriverCallsError::TooLarge)));
    // A file that cannot be read costs a warning, not the recording.
    let recorded = reader::read(folder.path()).unwrap();
    assert_eq!(recorded.warnings.as_slice()[0].code, "unreadable-stream");
    assert!(recorded.driver_calls.is_empty() && recorded.processes.is_empty());
    std::fs::write(&long, newer).unwrap();
    assert!(matches!(reader::read(folder.path()), Err(reader::ReadError::Newer { .. })));
    std::fs::write(&long, &small()[..small().len() - 3]).unwrap();
    let recorded = reader::read(folder.path()).unwrap();
    assert_eq!(recorded.driver_calls[0].calls.len(), 1);
    assert_eq!(recorded.warnings.as_slice()[0].code, "torn-tail");
}

/// Builds the library as it is shipped. It has no dependencies, so this takes a second.
fn library(target: &Path) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "-q",
            "--profile",
            "interposer",
            "--locked",
            "--offline",
            "-p",
            "vramline-driver",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(root())
        .status();
    assert!(built.unwrap().success());
    target.join("interposer/libvramline_driver.so")
}

/// The beginning of a real file, cut anywhere and with random wrong bytes, under the old checksums and under right ones.
fn damaged_files_are_read(start: &[u8], whole: &DriverCalls) {
    for end in 32..start.len() {
        let read = parsed(&start[..end]);
        assert!(read.calls.iter().zip(&whole.calls).all(|(one, other)| one == other), "cut at {end}");
        assert!(read.torn_bytes < 1280);
    }
    let mut random = 1_u64;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % bound
    };
    for _ in 0..4_000 {
        let mut wrong = start.to_vec();
        for _ in 0..=below(4) {
            wrong[32 + below(start.len() - 32)] = u8::try_from(below(256)).unwrap();
        }
        parsed(&wrong);
        // With right checksums the damage is inside the records.
        let mut place = 32;
        while let Some(head) = wrong.get(place..place + 8) {
            let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let Some(rest) = wrong.get(place + 8..place + length.max(8)) else { break };
            let sum = rest
                .iter()
                .fold(0x811c_9dc5_u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            wrong[place + 4..place + 8].copy_from_slice(&sum.to_le_bytes());
            place += length.max(8);
        }
        let read = parsed(&wrong);
        assert!(read.calls.len() * 136 <= wrong.len());
    }
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
fn what_the_library_writes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let sources = root().join("tests/python/driver_trace");
    let compile = |target: &str, source: &str, words: &[&str]| {
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(folder.path().join(target)).arg(sources.join(source)).args(words);
        assert!(cc.args(["-ldl", "-lpthread"]).status().unwrap().success(), "{source}");
    };
    let script = format!("-Wl,--version-script,{}", sources.join("libcuda.map").display());
    let shared = ["-shared", "-fPIC", "-Wl,-Bsymbolic"];
    compile("libcuda.so.1", "libcuda.c", &[&shared[..], &["-Wl,-soname,libcuda.so.1", &script]].concat());
    compile("libnvidia-ml.so.1", "libnvidia-ml.c", &shared);
    compile("caller", "caller.c", &[]);
    std::fs::write(folder.path().join("device"), [0; 4096]).unwrap();
    let recording = folder.path().join("run.vram");
    std::fs::create_dir(&recording).unwrap();
    let done = Command::new(folder.path().join("caller"))
        .args(["v2", "threads"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env("STUB_DEVICE", folder.path().join("device"))
        .env("LD_PRELOAD", library(&folder.path().join("target")))
        .env("VRAMLINE_DRIVER_TRACE", &recording)
        .status()
        .unwrap();
    assert!(done.success());
    let recorded = reader::read(&recording).unwrap();
    assert!(recorded.warnings.as_slice().is_empty());
    assert!(recorded.processes.is_empty());
    let [read] = recorded.driver_calls.as_slice() else { panic!("one process wrote") };
    let written = std::fs::read_dir(&recording).unwrap().next().unwrap().unwrap().path();
    damaged_files_are_read(&std::fs::read(written).unwrap()[..16_000], read);
    assert_eq!((read.dropped, read.torn_bytes), (0, 0));
    assert_eq!(read.devices.get(&0), Some(&Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])));
    let of = |name: &str| read.calls.iter().filter(|call| &*call.function == name).collect::<Vec<_>>();
    let grew = |name: &str| of(name).iter().map(|call| call.grew).sum::<i64>();
    assert_eq!(grew("cuDevicePrimaryCtxRetain"), 500 * MIB.cast_signed());
    assert_eq!(grew("cuStreamCreate"), 2 * MIB.cast_signed());
    assert_eq!(of("cuMemAlloc")[0].bytes, Some(Bytes(3 * MIB)));
    assert_eq!(of("cuMemAlloc")[1].result, 2);
    assert_eq!(of("cuMemAllocAsync")[1].pool.unwrap().0, Bytes(64 * MIB));
    assert!(read.calls.iter().all(|call| call.library.as_deref().unwrap().ends_with("/caller")));
    let sum: i64 = read.calls.iter().map(|call| call.gap + call.grew).sum();
    let (first, last) =
        (read.calls.first().unwrap().before.unwrap(), read.calls.last().unwrap().after.unwrap());
    assert_eq!(sum, last.0.cast_signed() - first.0.cast_signed());
}
