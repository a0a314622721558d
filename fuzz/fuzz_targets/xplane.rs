//! Any bytes, from file to report: no panic, no overflow, and the sums of the report hold.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use vramline::snapshot::Role;
use vramline::units::Nanos;
use vramline::view::replay;
use vramline::view::report::{By, HeldView, Wanted, report};
use vramline::Reading;

fuzz_target!(|bytes: &[u8]| {
    let path = PathBuf::from("fuzz");
    let Ok(content) = vramline::source::read_bytes(bytes, &path) else { return };
    let reading = Reading::of(path, content);
    let by = [By::Op, By::Layer, By::Role, By::Stack][bytes.len() % 4];
    let report = report(&reading, &Wanted { by, at: Some(Nanos(1_000)), ..Wanted::default() });
    for pool in &report.pools {
        if let Some(held) = &pool.at_peak {
            assert_eq!(Some(held.in_use_bytes), pool.peak_bytes);
        }
        pool.at_peak.iter().chain(&pool.at).for_each(check);
    }
    let what_if = vec!["limit=1MiB,growth=off".parse().expect("a setting")];
    let replayed = replay::replay(&reading, &replay::Wanted { what_if, ..replay::Wanted::default() });
    for pool in &replayed.pools {
        assert!(pool.address_matches <= pool.allocs && pool.load_rounded_bytes <= pool.packing_bound_bytes);
    }
});

/// Sums saturate like the report's own: counts near 2^64 are hostile, not real.
fn check(held: &HeldView) {
    let requested = held.named_bytes + held.unnamed_bytes;
    assert_eq!(requested + held.slack_bytes + held.before_recording_bytes, held.in_use_bytes);
    assert_eq!(Role::ALL.iter().map(|&role| held.by_role.get(role)).sum::<vramline::units::Bytes>(), requested);
    assert_eq!(held.rows.iter().map(|row| row.bytes).sum::<vramline::units::Bytes>(), requested);
}
