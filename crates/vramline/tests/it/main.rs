//! The core's integration tests, in one binary.
//!
//! A new test goes into the module that is named after what it shows: `fixtures` (real traces and their known truths),
//! `encodings` (every form the format allows, in traces written here), `damage` (cut, flipped and lying input),
//! `house` (who imports whom), `document` (the JSON and its table of fields), `recording` (streams and folders, written,
//! cut and damaged), `recorded` (real recordings), `jax` (memory profiles and compiled programs), `torch` (PyTorch's
//! snapshots: real, cut, hostile), `oom` (out-of-memory texts and dumps), `replay` (the simulators), `ledger` (sums), `findings` (each rule),
//! `diff` (comparisons), `driver` (NVML,
//! and what a driver can do).

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod caching;
mod damage;
mod diff;
mod doctor;
mod document;
mod driver;
mod encodings;
mod findings;
mod fixtures;
mod house;
mod jax;
mod ledger;
mod live;
mod oom;
mod pack;
mod page;
mod plan;
mod recorded;
mod recording;
mod replay;
mod timeline;
mod top;
mod torch;
mod writer;

use std::path::{Path, PathBuf};

use vramline::Reading;
use vramline::snapshot::Role;
use vramline::view::report::{HeldView, PoolView, Report, Wanted, report};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

/// The report on a trace in memory, with its identities asserted.
fn report_on(bytes: &[u8], wanted: &Wanted) -> Report {
    let path = PathBuf::from("memory.xplane.pb");
    let history = vramline::source::read_bytes(bytes, &path).expect("a trace");
    checked_report(&Reading::of(path, history), wanted)
}

/// The report on a reading, with its identities asserted.
fn checked_report(reading: &Reading, wanted: &Wanted) -> Report {
    let report = report(reading, wanted);
    for pool in &report.pools {
        assert_identities(pool);
    }
    report
}

fn assert_identities(pool: &PoolView) {
    if let Some(held) = &pool.at_peak {
        assert_eq!(Some(held.in_use_bytes), pool.peak_bytes);
        assert_sums(held);
    }
    pool.at.iter().for_each(assert_sums);
}

fn assert_sums(held: &HeldView) {
    let requested = held.named_bytes.0 + held.unnamed_bytes.0;
    assert_eq!(requested + held.slack_bytes.0 + held.before_recording_bytes.0, held.in_use_bytes.0);
    assert_eq!(Role::ALL.iter().map(|&role| held.by_role.get(role).0).sum::<u64>(), requested);
    let rest = held.rest.as_ref().map_or(0, |rest| rest.bytes.0);
    assert_eq!(held.rows.iter().map(|row| row.bytes.0).sum::<u64>() + rest, requested);
}

/// The pool of that name.
fn pool<'a>(report: &'a Report, name: &str) -> &'a PoolView {
    report.pools.iter().find(|pool| pool.name == name).expect("the pool")
}

/// The codes of a report's warnings.
fn codes(report: &Report) -> Vec<&'static str> {
    report.warnings.iter().map(|warning| warning.code).collect()
}

/// Every PyTorch snapshot that stands beside a file with what PyTorch said of itself.
fn snapshots_with_truths() -> Vec<(String, serde_json::Value)> {
    let mut found: Vec<(String, serde_json::Value)> = std::fs::read_dir(fixture("torch"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found.len(), 15);
    found
}
