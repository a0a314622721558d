//! What every report on any bytes must keep: its sums. Shared by the targets.

use std::path::PathBuf;

use vramline::Reading;
use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos};
use vramline::analysis::replay::{ReplayOptions, replay};
use vramline::view::replay::Replay;
use vramline::analysis::held::GroupBy;
use vramline::analysis::report::{ReportOptions, report};
use vramline::view::report::{HeldView, Report};

/// Reads bytes as whatever they look like and reports on them; `None` where they are refused.
pub fn check_bytes(bytes: &[u8], at: Option<Nanos>) -> Option<Reading> {
    let path = PathBuf::from("fuzz");
    let content = vramline::source::read_bytes(bytes, &path).ok()?;
    let reading = Reading::of(path, content);
    let by = [GroupBy::Op, GroupBy::Layer, GroupBy::Role, GroupBy::Stack][bytes.len() % 4];
    let report = Report::from(report(&reading, &ReportOptions { by, at, ..ReportOptions::default() }));
    for pool in &report.pools {
        if let Some(held) = &pool.at_peak {
            assert_eq!(Some(held.in_use_bytes), pool.peak_bytes);
        }
        pool.at_peak.iter().chain(&pool.at).for_each(check);
    }
    Some(reading)
}

/// Replays whatever has rules, and asks one what-if. A setting of another allocator is refused.
#[allow(dead_code)]
pub fn check_replay(reading: &Reading, setting: &str) {
    let what_if = vec![setting.parse().expect("a setting")];
    let Ok(replayed) = replay(reading, &ReplayOptions { what_if, ..ReplayOptions::default() }) else { return };
    for pool in &Replay::from(&replayed).pools {
        assert!(pool.address_matches <= pool.allocs && pool.load_rounded_bytes <= pool.packing_bound_bytes);
    }
}

/// Sums saturate like the report's own: counts near 2^64 are hostile, not real.
fn check(held: &HeldView) {
    let requested = held.named_bytes + held.unnamed_bytes;
    assert_eq!(requested + held.slack_bytes + held.before_recording_bytes, held.in_use_bytes);
    assert_eq!(Role::ALL.iter().map(|&role| held.by_role.get(role)).sum::<Bytes>(), requested);
    assert_eq!(held.rows.iter().map(|row| row.bytes).sum::<Bytes>(), requested);
}
