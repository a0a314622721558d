//! Damaged and hostile input: no panic, no hang, no memory that the input did not pay for.

use std::fs;
use std::path::Path;

use vramline::Reading;
use vramline::analysis::report::ReportOptions;
use vramline::event::History;
use vramline::source::{Content, SourceError, read_bytes};

use crate::writer::{Message, Plane, memory_stats, put_varint, space};
use crate::{checked_report, codes, fixture, report_on};

/// Whatever the bytes are, they give a report whose sums hold, or an error with a sentence.
fn survive(bytes: &[u8]) -> Option<usize> {
    let path = Path::new("damaged.xplane.pb");
    match read_bytes(bytes, path) {
        Ok(content) => {
            let events = match &content {
                Content::History(history) => history.events.len(),
                Content::Still(_) => 0,
            };
            checked_report(&Reading::of(path.to_owned(), content), &ReportOptions::default());
            Some(events)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Calls `test` for each of `0..count`, on all cores.
fn for_all(count: usize, test: impl Fn(usize) + Sync) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|threads| {
        for core in 0..cores {
            let test = &test;
            threads.spawn(move || (core..count).step_by(cores).for_each(test));
        }
    });
}

fn small_fixture() -> Vec<u8> {
    fs::read(fixture("tf221_cpu_mlp_nobfc_window.xplane.pb")).unwrap()
}

/// The everyday suite damages one byte of so many; `every_cut_and_every_bit` damages them all.
const STRIDE: usize = 3;

#[test]
fn cut_anywhere() {
    let whole = small_fixture();
    for_all(whole.len() / STRIDE, |third| {
        survive(&whole[..third * STRIDE]);
    });
}

#[test]
fn flipped_anywhere() {
    let whole = small_fixture();
    for_all(whole.len() / STRIDE, |third| {
        let mut bytes = whole.clone();
        bytes[third * STRIDE + 1] ^= if third % 2 == 0 { 0xff } else { 1 << (third / 2 % 8) };
        survive(&bytes);
    });
}

#[test]
#[ignore = "takes minutes: make proof"]
fn every_cut_and_every_bit() {
    let whole = small_fixture();
    for_all(whole.len(), |at| {
        survive(&whole[..at]);
        let mut bytes = whole.clone();
        for bit in 0..8 {
            bytes[at] = whole[at] ^ 1 << bit;
            survive(&bytes);
        }
    });
}

/// A cut behind the tables of the host plane loses nothing that matters; one inside the lines loses the tables, and
/// the warning says which.
#[test]
fn what_precedes_a_cut_is_read() {
    let whole = small_fixture();
    let read = |bytes: &[u8]| -> (usize, History) {
        let Ok(Content::History(history)) = read_bytes(bytes, Path::new("cut")) else { panic!("no trace") };
        (history.events.len(), *history)
    };
    let (all, _) = read(&whole);
    assert_eq!(all, 130);
    let (late, history) = read(&whole[..whole.len() - 40]);
    assert_eq!(late, 130);
    assert!(history.warnings.as_slice()[0].text.contains("only the part before that was read"));
    let report = report_on(&whole[..whole.len() / 2], &ReportOptions::default());
    assert!(report.warnings[0].text.contains("table of names"), "{:?}", report.warnings);

    // A later plane cut in its lines leaves an earlier one whole.
    let mut first = Plane::host();
    let event = first.event("MemoryAllocation", 0, 0, &memory_stats("pool", 10, 256, 1, 256));
    first.line("python", 0, &[event]);
    let bytes = space(&[&first, &first]);
    let report = report_on(&bytes[..bytes.len() * 2 / 3], &ReportOptions::default());
    assert_eq!(report.pools[0].allocs, Some(1));
    assert_eq!(codes(&report)[0], "truncated");
}

#[test]
fn lengths_that_lie() {
    let huge = 1 << 60;
    let lies = [
        Message::default().lie(1, huge, b"\x12\x09/host:CPU"),
        Message::default().message(1, &Message::default().bytes(2, "/host:CPU").lie(3, huge, &[0; 64])),
        Message::default().message(1, &Message::default().bytes(2, "/host:CPU").lie(4, huge, &[0; 64])),
        Message::default().message(1, &Message::default().bytes(2, "/host:CPU").lie(2, huge, b"name")),
        Message::default().message(
            1,
            &Message::default().bytes(2, "/host:CPU").message(3, &Message::default().lie(4, huge, &[8, 1])),
        ),
        Message::default().message(
            1,
            &Message::default()
                .bytes(2, "/host:CPU")
                .message(3, &Message::default().message(4, &Message::default().lie(4, huge, &[8, 1]))),
        ),
    ];
    for lie in &lies {
        survive(&lie.0);
    }
}

/// Counts, ids and times at the edges of their types.
#[test]
fn extreme_numbers() {
    for number in [0, 1, i64::MAX, i64::MIN, -1] {
        let mut plane = Plane::host();
        let events = [
            plane.event(
                "MemoryAllocation",
                number,
                number,
                &memory_stats("pool", number, number, number, number),
            ),
            plane.event("MemoryAllocation", 0, 0, &memory_stats("pool", number, 256, 7, 256)),
            plane.event("MemoryDeallocation", number, 0, &memory_stats("pool", 1, number, number, 0)),
        ];
        plane.line("python", number, &events);
        plane.line("python", 0, &events);
        survive(&space(&[&plane]));
    }
}

#[test]
fn duplicate_metadata_ids_take_the_last() {
    let mut plane = Plane::host();
    let event = plane.event("MemoryAllocation", 0, 0, &memory_stats("pool", 10, 256, 1, 256));
    plane.line("python", 0, &[event]);
    let id = plane.event_id("MemoryAllocation");
    let entry = |name: &str| {
        let value = Message::default().varint(1, id).bytes(2, name);
        Message::default().varint(1, id).message(2, &value)
    };
    let mut message = plane.message();
    for _ in 0..10_000 {
        message = message.message(4, &entry("SomethingElse"));
    }
    let renamed = message.clone().message(4, &entry("MemoryDeallocation"));
    let report = report_on(&Message::default().message(1, &renamed).0, &ReportOptions::default());
    assert_eq!((report.pools[0].allocs, report.pools[0].frees), (Some(0), Some(1)));
}

/// Deep nesting and groups are no part of the format; nothing here recurses.
#[test]
fn deep_nesting() {
    let mut nested = Message::default().bytes(2, "/host:CPU");
    for _ in 0..2_000 {
        nested = Message::default().message(3, &nested);
    }
    survive(&Message::default().message(1, &nested).0);
    survive(&[0x0b; 10_000]);
}

/// Many of everything that is small: planes, lines, pools, names.
#[test]
fn huge_counts() {
    let mut planes = Vec::new();
    for _ in 0..200_000 {
        planes.extend([0x0a, 0x00]);
    }
    let mut plane = Plane::host();
    for i in 0..3_000 {
        let event =
            plane.event("MemoryAllocation", i, 0, &memory_stats(&format!("pool {i}"), 10, 256, i, 256));
        plane.line(&format!("thread {i}"), 0, &[event]);
    }
    let mut bytes = space(&[&plane]);
    bytes.extend(&planes);
    let report = report_on(&bytes, &ReportOptions::default());
    assert_eq!(report.pools.len(), 3_000);

    // An event of twenty megabytes is skipped, not held.
    let mut plane = Plane::host();
    let mut large = plane.event("MemoryAllocation", 0, 0, &memory_stats("pool", 10, 256, 1, 256));
    large = large.bytes(9, vec![0; 20 << 20]);
    let small = plane.event("MemoryAllocation", 1, 0, &memory_stats("pool", 10, 256, 2, 512));
    plane.line("python", 0, &[large, small]);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(report.pools[0].allocs, Some(1));
    assert!(codes(&report).contains(&"huge-event"));
}

/// Text, other formats and noise get an error that says what they are.
#[test]
fn foreign_files() {
    let foreign: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"2026-11-15 12:00:00 I tensorflow/core: hello\n", "text without an out-of-memory error"),
        (b"{\"traceEvents\":[]}", "Chrome's event format"),
        (b"\x80\x04\x95\x10\x00", "pickle"),
        (b"PK\x03\x04\x14\x00", "zip"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "unknown binary format"),
    ];
    for (bytes, expected) in foreign {
        let error = read_bytes(bytes, Path::new("file")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.hint().is_empty(), "{error}");
    }
    let mut noise = Vec::new();
    let mut state = 1u64;
    while noise.len() < 1 << 16 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        put_varint(&mut noise, state >> 20);
    }
    assert!(matches!(read_bytes(&noise, Path::new("noise")), Err(SourceError::Foreign { .. })));
}
