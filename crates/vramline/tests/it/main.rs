//! The core's integration tests, in one binary. A new test goes into the module that is named after what it shows:
//!
//! - `beside`: what lies beside the pool, by driver calls: recordings of an H200, and calls made by hand
//! - `caching`: PyTorch's caching allocator against real runs, address by address
//! - `compiled`: plans of programs that XLA compiles
//! - `confirm`: real runs of a plan's answer, and the search that asks for them
//! - `damage`: cut, flipped and lying input
//! - `dependencies`: compilers and licences of what the project is built from
//! - `diff`: comparisons of runs
//! - `doctor`: what a machine can measure, and the switch for what it cannot
//! - `document`: the JSON documents and the table of their fields
//! - `driver`: NVML through a stub, and everything that a driver can do
//! - `driver_calls`: files of driver calls, written by the library that is preloaded and by hand
//! - `encodings`: every form that a trace may have, in traces written here
//! - `examples`: the examples of the library, run on fixtures
//! - `findings`: each rule of advice, on both sides of its threshold
//! - `fixes`: what fixes save in a plan, against real runs with them
//! - `fixtures`: real traces and their known truths
//! - `growth`: memory that grows, told by what it grows with
//! - `house`: who imports whom, how long files are, and whether the maps of the project are complete
//! - `jax`: memory profiles and compiled programs
//! - `jax_owners`: owners of JAX's memory against what its arrays said
//! - `ledger`: sums
//! - `live`: recordings that are read while they grow
//! - `moments`: who held the memory when it ran out, or when a job was killed
//! - `more_wordings`: no tests; more texts for `wordings`, of engines, other devices and people
//! - `oom`: out-of-memory logs and dumps
//! - `oom_pools`: out-of-memory texts in every dialect, of pools written here
//! - `pack`: several jobs on one device
//! - `page`: the data of the report page
//! - `plan`: predictions against what large batches really took
//! - `ranks`: jobs of several ranks in one report
//! - `recorded`: real recordings
//! - `recording`: streams and folders, written, cut and damaged
//! - `redaction`: what may be shared has every figure and no name
//! - `replay`: traces through the simulators
//! - `strangers`: what files of strangers have taught
//! - `timeline`: the pyramid that keeps every peak
//! - `top`: the document of the live view
//! - `top_hosts`: the hosts of a job in it
//! - `torch`: PyTorch's memory snapshots
//! - `torch_wordings`: no tests; texts of PyTorch for `wordings`
//! - `windows`: recordings with several traces of a process
//! - `wordings`: out-of-memory texts of many programs, in a table, and those of strangers
//! - `writer`: no tests; writes the traces of the others

// They look inside. `cargo test --workspace` has these features on, `cargo test -p vramline` needs `--all-features`.
#![cfg(all(feature = "driver", feature = "internals", feature = "recording"))]
// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod beside;
mod caching;
mod compiled;
mod confirm;
mod damage;
mod dependencies;
mod diff;
mod doctor;
mod document;
mod driver;
mod driver_calls;
mod encodings;
mod examples;
mod findings;
mod fixes;
mod fixtures;
mod growth;
mod house;
mod jax;
mod jax_owners;
mod ledger;
mod live;
mod moments;
mod more_wordings;
mod oom;
mod oom_pools;
mod pack;
mod page;
mod plan;
mod ranks;
mod recorded;
mod recording;
mod redaction;
mod replay;
mod strangers;
mod timeline;
mod top;
mod top_hosts;
mod torch;
mod torch_wordings;
mod windows;
mod wordings;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vramline::Reading;
use vramline::analysis::report::{ReportAnalysis, ReportOptions, report};
use vramline::document::{Described, Shape};
use vramline::snapshot::Role;
use vramline::view::report::{HeldView, PoolView, Report};

/// The paths of all values that a document may hold.
fn table<T: Described>() -> BTreeSet<String> {
    fn add(shape: &Shape, path: &str, paths: &mut BTreeSet<String>) {
        match shape {
            Shape::Object { fields, .. } => {
                let dot = if path.is_empty() { "" } else { "." };
                fields
                    .iter()
                    .for_each(|field| add(&field.shape, &format!("{path}{dot}{}", field.name), paths));
            }
            Shape::Optional(inner) => add(inner, path, paths),
            Shape::List(inner) => add(inner, &format!("{path}[]"), paths),
            Shape::Table(words, _) => paths.extend(words.iter().map(|word| format!("{path}.{word}"))),
            Shape::Scalar { .. } | Shape::Word(_) => drop(paths.insert(path.to_owned())),
        }
    }
    let mut paths = BTreeSet::new();
    add(&T::shape(), "", &mut paths);
    paths
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

/// The report on a trace in memory, with its identities asserted.
fn report_on(bytes: &[u8], options: &ReportOptions) -> Report {
    let path = PathBuf::from("memory.xplane.pb");
    let history = vramline::source::read_bytes(bytes, &path).expect("a trace");
    checked_report(&Reading::of(path, history), options)
}

/// The report on a reading, with its identities asserted.
fn checked_report(reading: &Reading, options: &ReportOptions) -> Report {
    let report = Report::from(report(reading, options));
    for pool in &report.pools {
        assert_identities(pool);
    }
    report
}

/// What the report on a reading is made from, with the report's identities asserted.
fn checked_analysis(reading: &Reading, options: &ReportOptions) -> ReportAnalysis {
    let made = report(reading, options);
    Report::from(made.clone()).pools.iter().for_each(assert_identities);
    made
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
    assert_eq!(found.len(), 24);
    found
}
