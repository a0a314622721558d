//! The data of the page: it is JSON that may stand in a page, it adds up, and it is bounded whatever was read.

use serde_json::Value;
use vramline::Reading;
use vramline::names::Names;
use vramline::snapshot::{Held, Snapshot, Still, StillPool};
use vramline::source::Content;
use vramline::stack::Stacks;
use vramline::units::Bytes;
use vramline::view::html::{self, MOST_BYTES};
use vramline::view::report::{Wanted, report};
use vramline::warning::Warnings;

use crate::root;

fn payload(reading: &Reading) -> Value {
    let wanted = Wanted { top: Some(html::ROWS), ..Wanted::default() };
    let text = html::payload(reading, report(reading, &wanted));
    assert!(text.len() <= MOST_BYTES, "{}", text.len());
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
            assert_eq!(columns.len(), 13, "{file}");
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
    assert!(said.ends_with("of 2000 pools are listed"), "{said}");
    let pool = &page["report"]["pools"][0];
    let held = &pool["at_peak"];
    let listed: u64 = held["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(Some(listed + held["rest"]["bytes"].as_u64().unwrap()), pool["peak_bytes"].as_u64());
}
