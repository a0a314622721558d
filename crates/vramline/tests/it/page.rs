//! The data of the page: it is JSON that may stand in a page, it adds up, and it is bounded whatever was read.

use std::collections::BTreeSet;

use serde_json::Value;
use vramline::Reading;
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::picture::tiles::PictureTiles;
use vramline::analysis::report::{ReportOptions, report};
use vramline::document::{Described, Shape};
use vramline::ledger::LineKind;
use vramline::names::Names;
use vramline::snapshot::{Held, Role, Snapshot, Still, StillPool};
use vramline::source::Content;
use vramline::stack::Stacks;
use vramline::units::{Bytes, Nanos};
use vramline::view::page::{self, MAX_PAYLOAD_BYTES};
use vramline::view::tile::{moment_json, window_json};
use vramline::warning::Warnings;

use crate::root;

fn payload(reading: &Reading) -> Value {
    let wanted = ReportOptions { top: Some(PAGE_PEAK_ROWS), ..ReportOptions::default() };
    let text = page::payload(reading, &mut report(reading, &wanted));
    assert!(text.len() <= MAX_PAYLOAD_BYTES, "{}", text.len());
    assert!(!text.contains('<'));
    serde_json::from_str(&text).unwrap()
}

/// Columns of numbers, as the page reads them.
fn unpacked(text: &str, rows: usize) -> Vec<Vec<i64>> {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes: Vec<u8> = Vec::new();
    for part in text.as_bytes().chunks(4) {
        let known: Vec<u32> = part
            .iter()
            .map_while(|sign| SIGNS.iter().position(|known| known == sign))
            .map(|at| at as u32)
            .collect();
        let word = (0..4).fold(0, |word, at| word << 6 | known.get(at).copied().unwrap_or(0));
        bytes.extend(word.to_be_bytes().iter().skip(1).take(known.len() - 1));
    }
    let (mut values, mut value, mut shift) = (Vec::new(), 0_u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            values.push((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            (value, shift) = (0, 0);
        }
    }
    let sums = |changes: &[i64]| {
        changes
            .iter()
            .scan(0, |sum, change| {
                *sum += change;
                Some(*sum)
            })
            .collect()
    };
    values.chunks(rows).map(sums).collect()
}

#[test]
fn the_highest_column_is_the_peak_and_every_moment_adds_up() {
    let files = [
        "tf221_cpu_cnn_from_start.xplane.pb",
        "tf221_cpu_mlp_window.xplane.pb",
        "tf221_cpu_keras.vram",
        "jax0112_h200_convolution.xplane.pb.gz",
        "torch/late.pickle.gz",
        "torch2110_h200_resnet50_b64.snapshot.pickle.gz",
    ];
    for file in files {
        let page = payload(&vramline::read(&root().join("fixtures").join(file)).unwrap());
        let mut drawn = 0;
        for picture in page["pools"].as_array().unwrap() {
            let pool = &page["report"]["pools"][picture["pool"].as_u64().unwrap() as usize];
            if picture["by"] != "trace" {
                continue;
            }
            let rows = picture["columns"].as_u64().unwrap() as usize;
            let columns = unpacked(picture["data"].as_str().unwrap(), rows);
            assert_eq!(columns.len(), 14, "{file}");
            let height = |at: usize| columns[4..].iter().map(|part| part[at]).sum::<i64>();
            let peak = (0..rows).map(height).max();
            assert_eq!(peak, pool["peak_bytes"].as_i64(), "{file}");
            assert!((0..rows).all(|at| columns[2][at] <= columns[3][at] && columns[3][at] <= height(at)));
            assert!(columns[0].is_sorted(), "{file}");
            let moments = picture["moments"].as_array().unwrap();
            assert!(moments.iter().any(|moment| moment["in_use_bytes"] == pool["peak_bytes"]));
            for moment in moments {
                let sum: u64 =
                    moment["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).sum();
                let parts = ["slack_bytes", "before_recording_bytes", "rest_bytes"];
                let parts: u64 = parts.iter().map(|part| moment[part].as_u64().unwrap()).sum();
                assert_eq!(Some(sum + parts), moment["in_use_bytes"].as_u64(), "{file}");
            }
            drawn += 1;
        }
        assert!(drawn > 0, "{file}");
    }
}

/// Where a snapshot lists the calls to the driver, or a replay is exact, the pool's line comes from there, on the page and in each
/// tile of it; the bytes in use never stand above it.
#[test]
fn in_use_never_exceeds_what_the_pool_reserved() {
    let files = [
        ("tf221_cpu_cnn_from_start.xplane.pb", "replay"),
        ("tf221_cpu_keras.vram", "replay"),
        ("jax0112_h200_convolution.xplane.pb.gz", "replay"),
        ("jax0112_h200_loop.vram", "replay"),
        ("torch/default.pickle.gz", "snapshot"),
        ("torch/expandable.pickle.gz", "snapshot"),
        ("torch/late.pickle.gz", "snapshot"),
        ("torch/random_collected.pickle.gz", "snapshot"),
        ("torch/random_streams.pickle.gz", "snapshot"),
        ("torch2110_h200_resnet50_b64.snapshot.pickle.gz", "snapshot"),
    ];
    for (file, by) in files {
        let reading = vramline::read(&root().join("fixtures").join(file)).unwrap();
        let options = ReportOptions { top: Some(PAGE_PEAK_ROWS), ..ReportOptions::default() };
        let mut made = report(&reading, &options);
        let page: Value = serde_json::from_str(&page::payload(&reading, &mut made)).unwrap();
        let picture = &page["pools"][0];
        let pool = &page["report"]["pools"][picture["pool"].as_u64().unwrap() as usize];
        let most = assert_pool_above_in_use(picture, by, file);
        let known = if by == "snapshot" {
            &pool["caching"]["reserved_peak_bytes"]
        } else {
            &pool["replay"]["pool_bytes"]
        };
        assert_eq!(Some(most), known.as_i64(), "{file}");
        let rows = picture["columns"].as_u64().unwrap() as usize;
        let times = &unpacked(picture["data"].as_str().unwrap(), rows)[0];
        let (first, last) = (times[0], picture["end_ns"].as_i64().unwrap());
        let tiles = PictureTiles::new(reading, made);
        let third = (last - first) / 3;
        for (from, to) in [(first, last), (first + third, last - third)] {
            let text = window_json(&tiles, 0, Nanos(from)..Nanos(to), 500).unwrap();
            assert_pool_above_in_use(&serde_json::from_str(&text).unwrap(), by, file);
        }
    }
}

/// The highest point of the pool's line, which no column stands above.
fn assert_pool_above_in_use(picture: &Value, by: &str, file: &str) -> i64 {
    let reserved: Vec<&Value> = picture["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["name"].as_str().unwrap().starts_with("reserved"))
        .collect();
    assert_eq!(reserved.len(), 1, "{file}");
    assert!(reserved[0]["name"].as_str().unwrap().contains(by), "{file}");
    let points =
        unpacked(reserved[0]["data"].as_str().unwrap(), reserved[0]["points"].as_u64().unwrap() as usize);
    let rows = picture["columns"].as_u64().unwrap() as usize;
    let columns = unpacked(picture["data"].as_str().unwrap(), rows);
    for at in 0..rows {
        let highest = columns[0][at] + columns[1][at];
        let height = columns[4..].iter().map(|part| part[at]).sum::<i64>();
        // The line has every point of a moment, one above the other.
        let (begin, end) = (
            points[0].partition_point(|time| *time < highest).saturating_sub(1),
            points[0].partition_point(|time| *time <= highest),
        );
        let drawn = points[1][begin..end].iter().max();
        assert!(drawn >= Some(&height), "{file}: {height} in use at {highest}, {drawn:?} reserved");
    }
    *points[1].iter().max().unwrap()
}

/// Thousands of pools with hundreds of rows each, all with long names full of markup.
#[test]
fn a_page_is_bounded() {
    let mut names = Names::default();
    let mut pools = Vec::new();
    for pool in 0..2000 {
        let held: Vec<Held> = (0..if pool < 64 { 500 } else { 1 })
            .map(|block| {
                let mut held = Held::bare(Bytes(1 + block), Bytes(1 + block), "</script>");
                held.op = names.intern(&format!("{pool}/{block}/{}", "<é&>".repeat(200)));
                held.layer = "<layer>".repeat(80);
                held.source = "<source>".repeat(80);
                held
            })
            .collect();
        let in_use = held.iter().map(|held| held.chunk).sum();
        pools.push(StillPool {
            name: format!("<pool {pool}>"),
            device: "GPU:0".to_owned(),
            limit: None,
            lifetime_peak: None,
            fragmentation: None,
            allocs: None,
            snapshot: Snapshot { time: None, in_use, before_recording: Bytes::ZERO, held },
        });
    }
    let still = Still {
        format: "memory-dump",
        framework: None,
        names,
        stacks: Stacks::default(),
        pools,
        warnings: Warnings::default(),
    };
    let page = payload(&Reading::of("still".into(), Content::Still(Box::new(still))));
    let said = page["aggregated"][0].as_str().unwrap();
    assert!(said.ends_with("of 2000 pools"), "{said}");
    let pool = &page["report"]["pools"][0];
    let held = &pool["at_peak"];
    let listed: u64 = held["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(Some(listed + held["rest"]["bytes"].as_u64().unwrap()), pool["peak_bytes"].as_u64());
}

/// Windows of a trace in few and many columns, against every event of it.
#[test]
fn a_tile_has_the_least_the_highest_and_the_last_of_each_column() {
    let path = root().join("fixtures/tf221_cpu_cnn_from_start.xplane.pb");
    let reading = vramline::read(&path).unwrap();
    let trace = &reading.hosts[0].trace;
    let levels: Vec<(i64, i64)> = trace.pools[0]
        .levels(&trace.history.events)
        .map(|(time, level)| (time.on_clock(trace.history.origin).0, i64::try_from(level.0).unwrap()))
        .collect();
    let (first, last) = (levels[0].0, levels[levels.len() - 1].0);
    let mut made = report(&reading, &ReportOptions { top: Some(PAGE_PEAK_ROWS), ..ReportOptions::default() });
    assert!(!page::payload(&reading, &mut made).is_empty());
    let tiles = PictureTiles::new(reading, made);
    let middle = i64::midpoint(first, last);
    for (from, to) in [(first, last), (middle - 900_000, middle), (middle, last + 5), (last + 9, last + 10)] {
        for width in [1, 7, 100, 5000] {
            let text = window_json(&tiles, 0, Nanos(from)..Nanos(to), width).unwrap();
            assert!(!text.contains('<'));
            let tile: Value = serde_json::from_str(&text).unwrap();
            let rows = tile["columns"].as_u64().unwrap() as usize;
            let columns = unpacked(tile["data"].as_str().unwrap(), rows);
            let inside: Vec<&(i64, i64)> = levels.iter().filter(|(at, _)| (from..=to).contains(at)).collect();
            let before = levels.iter().rfind(|(at, _)| *at < from);
            assert_eq!(tile["events"].as_u64().unwrap() as usize, inside.len() + before.iter().len());
            // Each event belongs to the column that began last.
            let mut events = before.into_iter().chain(inside).peekable();
            let is_exact = tile["is_exact"].as_bool().unwrap();
            assert_eq!(is_exact, rows == tile["events"].as_u64().unwrap() as usize);
            assert!(is_exact || rows <= width + 1);
            for at in 0..rows {
                let next = columns[0].get(at + 1).copied().unwrap_or(i64::MAX);
                let mut own = Vec::new();
                while let Some(event) =
                    events.next_if(|event| if is_exact { own.is_empty() } else { event.0 < next })
                {
                    own.push(*event);
                }
                assert_eq!(own[0].0, columns[0][at]);
                let height = columns[4..].iter().map(|part| part[at]).sum::<i64>();
                let highest = own.iter().map(|event| event.1).max().unwrap();
                assert_eq!(height, highest);
                assert!(own.contains(&(columns[0][at] + columns[1][at], highest)));
                assert_eq!(columns[2][at], own.iter().map(|event| event.1).min().unwrap());
                assert_eq!(columns[3][at], own[own.len() - 1].1);
            }
            assert!(events.next().is_none());
        }
    }
    assert!(window_json(&tiles, 1, Nanos(0)..Nanos(1), 1).is_none());
    assert!(moment_json(&tiles, 0, Nanos(first - 1), Bytes(1)).is_none());
}

/// The kind of line that comes after another in [`LineKind`]: a new one does not compile until it has its place here.
fn kind_after(kind: LineKind) -> Option<LineKind> {
    Some(match kind {
        LineKind::Device => LineKind::Reserved,
        LineKind::Reserved => LineKind::Free,
        LineKind::Free => LineKind::Processes,
        LineKind::Processes => LineKind::Job,
        LineKind::Job => LineKind::Other,
        LineKind::Other => LineKind::Unattributed,
        LineKind::Unattributed => LineKind::Context,
        LineKind::Context => LineKind::Pool,
        LineKind::Pool => LineKind::Merged,
        LineKind::Merged => LineKind::HostMerged,
        LineKind::HostMerged => LineKind::InUse,
        LineKind::InUse => LineKind::Cached,
        LineKind::Cached => LineKind::Rest,
        LineKind::Rest => LineKind::HostRest,
        LineKind::HostRest => LineKind::Role(Role::ALL[0]),
        LineKind::Role(role) => {
            let place = Role::ALL.iter().position(|&known| known == role).unwrap();
            Role::ALL.get(place + 1).map_or(LineKind::Slack, |&next| LineKind::Role(next))
        }
        LineKind::Slack => LineKind::Before,
        LineKind::Before => LineKind::Outside,
        LineKind::Outside => LineKind::Beside,
        LineKind::Beside => LineKind::NotResident,
        LineKind::NotResident => LineKind::Host,
        LineKind::Host => LineKind::CudaContext,
        LineKind::CudaContext => LineKind::Libraries,
        LineKind::Libraries => LineKind::Code,
        LineKind::Code => LineKind::FirstLaunches,
        LineKind::FirstLaunches => LineKind::Limits,
        LineKind::Limits => LineKind::Streams,
        LineKind::Streams => LineKind::Events,
        LineKind::Events => LineKind::Graphs,
        LineKind::Graphs => LineKind::LibraryMemory,
        LineKind::LibraryMemory => LineKind::ProgramMemory,
        LineKind::ProgramMemory => LineKind::DriverPool,
        LineKind::DriverPool => LineKind::PinnedMemory,
        LineKind::PinnedMemory => LineKind::Transfers,
        LineKind::Transfers => LineKind::OtherCalls,
        LineKind::OtherCalls => LineKind::PageRounding,
        LineKind::PageRounding => LineKind::Unexplained,
        LineKind::Unexplained => return None,
    })
}

/// The page's types come from the shape of [`LineKind`], which lists every kind.
#[test]
fn the_page_knows_every_kind_of_line() {
    let Shape::Word(words) = LineKind::shape() else { panic!("a kind is a word") };
    let kinds = std::iter::successors(Some(LineKind::Device), |&kind| kind_after(kind));
    assert_eq!(words.into_iter().collect::<BTreeSet<_>>(), kinds.map(LineKind::word).collect());
}
