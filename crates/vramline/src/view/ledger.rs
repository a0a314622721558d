//! The ledger of each device of a recording, as rows.

use serde::Serialize;

use crate::analysis::accounts::DeviceLedger;
use crate::document::Document;
use crate::ledger::moments::LedgerMoment;
use crate::ledger::{GrowthGroup, Line, LineKind, Teller, What};
use crate::units::Nanos;

/// A line of the ledger of a device.
#[derive(Debug, Serialize, Document)]
pub struct LedgerView {
    /// The device.
    pub device: String,
    /// The moment: the peak of the device's fullest pool, of which `pools[].at_peak` speaks too.
    pub at_ns: Nanos,
    /// Which moment that is: `peak`; `traced-peak`: the peak of the traced steps, where more was in use at some other moment of the run; `highest-reading` of the framework's counters, where no trace tells the moment of the peak; `last-reading` of the driver, where nothing tells what was in use; `asked` for.
    pub moment: LedgerMoment,
    /// When the driver told what the job's processes held (of host memory: when the kernel did): the nearest such moment at which the pools had the size that they have here. Figures are recorded when they change.
    #[field(
        null = "nobody told it, or not while the pools had this size; the reason stands beside `this job`"
    )]
    pub told_at_ns: Option<Nanos>,
    /// What it is: device total, driver reserved, free, processes, this job, other process, unattributed, context at start, pool, in use, cached free, a role, slack, before the recording, outside the pools (one line for each cause), unexplained; where the pool is not known: context, pool and outside, and in it context, cached and outside; where no earlier moment is known: context and outside the pools. On the CPU stand-in, where there is no context: the program's own, pool not resident; where the pool is not known: pool and the program's own, and in it cached and the program's own.
    #[field(unit = "text")]
    pub line: LineKind,
    /// Which process or pool, what growths came with, or what the line is in plain words.
    pub detail: String,
    /// Of `outside the pools`: how many growths of this cause the line sums up.
    #[field(null = "the line is no growth outside the pools")]
    pub growths: Option<usize>,
    /// When the first of them was first seen.
    #[field(null = "the line is no growth outside the pools")]
    pub first_ns: Option<Nanos>,
    /// When the last of them was first seen.
    #[field(null = "the line is no growth outside the pools")]
    pub last_ns: Option<Nanos>,
    /// The process that the line is of, as the driver numbers it.
    #[field(null = "the line is of no single process")]
    pub pid: Option<u32>,
    /// The line it is part of, by its place in this list; every line is the sum of its parts.
    #[field(null = "the whole device is part of nothing")]
    pub part_of: Option<usize>,
    /// How deep it lies.
    pub depth: usize,
    /// Its bytes; may be negative: what is taken off again.
    #[field(null = "each line says why in its `reason`")]
    pub bytes: Option<i64>,
    /// Who told: driver; host: the kernel, of host memory; framework, trace, replay; derived: what is left of others; estimated: bounded by others.
    #[field(unit = "text")]
    pub source: Teller,
    /// Why the bytes are not known.
    pub reason: String,
}

/// Ledgers as rows, one device after the other.
#[must_use]
pub fn rows(ledgers: &[DeviceLedger]) -> Vec<LedgerView> {
    let mut rows = Vec::new();
    for DeviceLedger { at, moment, told_at, ledger } in ledgers {
        let before = rows.len();
        let row = |line: &Line| LedgerView {
            device: ledger.device.clone(),
            at_ns: *at,
            moment: *moment,
            told_at_ns: *told_at,
            growths: group(line).map(|group| group.growths),
            first_ns: group(line).map(|group| group.first),
            last_ns: group(line).map(|group| group.last),
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

/// The growths that a line sums up.
fn group(line: &Line) -> Option<&GrowthGroup> {
    match &line.what {
        What::Outside(group) => Some(group),
        _ => None,
    }
}
