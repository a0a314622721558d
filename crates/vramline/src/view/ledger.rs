//! The ledger of each device of a recording, as rows.

use serde::Serialize;

use crate::analysis::accounts::DeviceLedger;
use crate::document::Document;
use crate::ledger::moments::LedgerMoment;
use crate::ledger::{Line, LineKind, Teller, What};
use crate::trace::driver_holdings::CallPlace;
use crate::units::Nanos;

/// A line of the ledger of a device.
#[derive(Debug, Serialize, Document)]
pub struct LedgerView {
    /// The machine of the device.
    #[field(null = "neither `vramline run` nor a process tells it")]
    pub host: Option<String>,
    /// The device.
    pub device: String,
    /// The time of the ledger: the peak of the device's largest pool, as in `pools[].at_peak`.
    pub at_ns: Nanos,
    /// Which moment that is: `peak`; `traced-peak`: the peak of the traced steps, if the run had a higher peak elsewhere; `highest-reading` of the framework's counters, if no trace shows the peak; `process-peak`: the highest memory of a process by its driver calls, if no framework reports a pool; `last-reading` of the driver, if nothing else is known; `end`: the end of the job; `asked`: the moment of `--at`.
    pub moment: LedgerMoment,
    /// Time of the driver reading (for host memory: kernel reading) of the job's processes: the nearest one at which the pools had the same size. Figures are recorded when they change.
    #[field(null = "there is no reading from while the pools had this size; see the reason of `this job`")]
    pub told_at_ns: Option<Nanos>,
    /// What it is: `device total`, `driver reserved`, `free`, `processes`, `this job`, `other process`, `unattributed`, `context at start`, `pool`, `in use`, `cached free`, a role, `slack` (rounding), `before the recording`, `outside the pools` (one line for each cause), `unexplained`. If the size of the pool is unknown: `context, pool and outside`, and in it `context, cached and outside`. If there is no earlier reading: `context and outside the pools`. On the CPU stand-in, which has no context: `the program's own`, `pool not resident`; if the size of the pool is unknown: `pool and the program's own`, and in it `cached and the program's own`. With `--driver-trace on`, instead of `context at start` and `outside the pools`: `context`, `code`, `first launches` (local memory, and code that is loaded on first use), `limits`, `streams`, `events`, `graphs`, `library memory`, `program memory` (CuPy, extensions), `driver pool` (`cudaMallocAsync`), `pinned memory`, `copies and synchronization`, `other driver calls`, one line for each library, and `page rounding`. Without it, where these were measured with the same driver, device and framework: `context at start` is split into `context`, lines of libraries whose sizes match, and `code, streams and libraries`, the rest; a change outside the pools whose size matches is the line of a library as well.
    #[field(unit = "text")]
    pub line: LineKind,
    /// The process, the pool, the cause of a change, or an explanation of the line.
    pub detail: String,
    /// For changes outside the pools: number of changes with this cause.
    #[field(null = "the line is not a change outside the pools")]
    pub growths: Option<usize>,
    /// Time of the first of them.
    #[field(null = "the line is not a change outside the pools")]
    pub first_ns: Option<Nanos>,
    /// Time of the last of them.
    #[field(null = "the line is not a change outside the pools")]
    pub last_ns: Option<Nanos>,
    /// The library whose driver calls took the memory; with the source `estimated`, the library that took as much elsewhere.
    #[field(null = "the line is not the memory of one library, or it is not known of which")]
    pub library: Option<String>,
    /// Number of streams, events, graphs, allocations or segments in the line.
    #[field(null = "the line does not count things")]
    pub count: Option<u64>,
    /// The line of Python that first took memory for it, as in `train.py:12`.
    #[field(null = "the line does not come from driver calls, or the thread did not run Python")]
    pub python: Option<String>,
    /// The process of the line, with the driver's process id.
    #[field(null = "the line does not belong to a single process")]
    pub pid: Option<u32>,
    /// The index of the line it is part of; every line is the sum of its parts.
    #[field(null = "the line is the whole device")]
    pub part_of: Option<usize>,
    /// Its depth in the tree.
    pub depth: usize,
    /// Its bytes; negative if they are subtracted.
    #[field(null = "see the `reason` of the line")]
    pub bytes: Option<i64>,
    /// The source of the figure: driver; calls: recorded driver calls, with NVML's figures around each; host (the kernel, for host memory); framework; trace; replay; derived: the remainder of other figures; estimated: bounded by other figures, or measured with the same driver, device and framework.
    #[field(unit = "text")]
    pub source: Teller,
    /// Why the bytes are unknown.
    pub reason: String,
}

/// Ledgers as rows, one device after another.
#[must_use]
pub fn rows(ledgers: &[DeviceLedger]) -> Vec<LedgerView> {
    let mut rows = Vec::new();
    for DeviceLedger { host, at, moment, told_at, ledger } in ledgers {
        let before = rows.len();
        let row = |line: &Line| LedgerView {
            host: host.clone(),
            device: ledger.device.clone(),
            at_ns: *at,
            moment: *moment,
            told_at_ns: *told_at,
            growths: line.what.growth().map(|group| group.growths),
            first_ns: line.what.growth().map(|group| group.first),
            last_ns: line.what.growth().map(|group| group.last),
            library: library(&line.what).map(str::to_owned),
            count: held(line).map(|held| held.0).filter(|count| *count > 0),
            python: held(line).and_then(|held| held.1).map(ToString::to_string),
            line: line.what.kind(),
            detail: line.what.detail(),
            pid: line.what.pid(),
            part_of: line.of.map(|place| before + place),
            depth: ledger.depth(line),
            bytes: line.bytes,
            source: line.by,
            reason: line.why.clone(),
        };
        rows.extend(ledger.lines.iter().map(row));
    }
    rows
}

/// The library whose memory a line is.
fn library(what: &What) -> Option<&str> {
    match what {
        What::Held(held) => Some(&held.library.name),
        What::Pool(_, Some(pool)) => Some(&pool.library.name),
        What::EstimatedStep(step) => Some(&step.library),
        _ => None,
    }
}

/// Of a line that driver calls tell about: the number of things, and the line of Python.
fn held(line: &Line) -> Option<(u64, Option<&CallPlace>)> {
    match &line.what {
        What::Held(held) => Some((held.count, held.place.as_ref())),
        What::Pool(_, Some(pool)) => Some((pool.count, pool.place.as_ref())),
        _ => None,
    }
}
