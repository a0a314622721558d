//! Any bytes as a pickle, from file to report and to JSON: no panic, no overflow, no memory beyond the input's, and the
//! sums of the report hold.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use vramline::Reading;
use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos};
use vramline::view::report::{By, HeldView, Wanted, report};

fuzz_target!(|bytes: &[u8]| {
    // Whatever does not begin like a pickle would be another format's: let it begin like one.
    let mut pickle = Vec::with_capacity(bytes.len() + 2);
    if !matches!(bytes, [0x80, 2..=5, ..]) {
        pickle.extend_from_slice(b"\x80\x02");
    }
    pickle.extend_from_slice(bytes);
    let path = PathBuf::from("fuzz");
    let Ok(content) = vramline::source::read_bytes(&pickle, &path) else { return };
    let reading = Reading::of(path, content);
    let by = [By::Op, By::Layer, By::Role, By::Stack][bytes.len() % 4];
    let report = report(&reading, &Wanted { by, at: Some(Nanos(1_000)), ..Wanted::default() });
    for pool in &report.pools {
        if let Some(held) = &pool.at_peak {
            assert_eq!(Some(held.in_use_bytes), pool.peak_bytes);
        }
        pool.at_peak.iter().chain(&pool.at).for_each(check);
    }
});

/// Sums saturate like the report's own: counts near 2^64 are hostile, not real.
fn check(held: &HeldView) {
    let requested = held.named_bytes + held.unnamed_bytes;
    assert_eq!(requested + held.slack_bytes + held.before_recording_bytes, held.in_use_bytes);
    assert_eq!(Role::ALL.iter().map(|&role| held.by_role.get(role)).sum::<Bytes>(), requested);
    assert_eq!(held.rows.iter().map(|row| row.bytes).sum::<Bytes>(), requested);
}
