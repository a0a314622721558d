//! Vramline's core: from the files that frameworks write to what held the memory.
//!
//! The whole pipe:
//!
//! ```text
//! source/  bytes     -> History     what happened, as the file tells it
//! trace/   History   -> Trace       allocations with lifetimes, steps, roles
//!          Trace     -> Snapshot    what a pool held at one moment
//! allocator/         the frameworks' allocators, simulated
//! replay/  Trace     -> Replay      the trace through a simulator: exactness, fragmentation, what-if
//! postmortem/  Failure -> Conclusion  why an allocation failed, as logs and dumps tell it
//! analysis/  Reading -> the answer to one question: report, oom, replay, plan, diff, pack, top, doctor
//! view/      the answer as a document for JSON, terminals and pages
//! ```
//!
//! Imports point up this list only, and a test enforces it. The core neither prints nor keeps global state, and touches
//! files in `source/` and `recording/` only.
//!
//! ```
//! use vramline::analysis::report::{ReportOptions, report};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
//! let reading = vramline::read(path.as_ref())?;
//! let report = report(&reading, &ReportOptions::default());
//! let pool = &report.pools[0];
//! assert_eq!(pool.name, "bfc_cpu_allocator_for_gpu");
//! assert_eq!(pool.peak.map(|bytes| bytes.0), Some(72_718_080));
//! # Ok::<(), vramline::source::SourceError>(())
//! ```

// Some code is there for one feature only. With all of them nothing of it may be unused.
#![cfg_attr(not(all(feature = "driver", feature = "recording")), allow(dead_code, unused_imports))]

#[macro_use]
mod words;

pub mod advise;
pub mod allocator;
pub mod analysis;
pub mod document;
pub mod dtype;
pub mod event;
pub mod executable;
pub mod failure;
pub mod ledger;
pub mod names;
mod pages;
pub mod plan;
pub mod postmortem;
pub mod recording;
pub mod replay;
pub mod snapshot;
pub mod source;
pub mod stack;
pub mod timeline;
pub mod trace;
pub mod units;
pub mod view;
pub mod warning;
mod worker;

pub use analysis::reading::{Host, OutOfMemory, Reading, read, read_failures, read_watched};
