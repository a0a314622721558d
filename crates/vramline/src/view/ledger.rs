//! The ledger of each device of a recording, as rows.

use serde::Serialize;

use crate::analysis::accounts::DeviceLedger;
use crate::document::Document;
use crate::ledger::{Line, LineKind, Teller};
use crate::units::Nanos;

/// A line of the ledger of a device.
#[derive(Debug, Serialize, Document)]
pub struct LedgerView {
    /// The device.
    pub device: String,
    /// The moment: where a process held the most and its figures are of one moment.
    pub at_ns: Nanos,
    /// What it is: device total, driver reserved, free, processes, this job, other process, unattributed, context at start, pool, in use, cached free, a role, slack, before the recording, outside the pools, unexplained; where the pool is not known: context, pool and outside; where no earlier moment is known: context and outside the pools; on the CPU stand-in: pool not resident, the program's own.
    #[field(unit = "text")]
    pub line: LineKind,
    /// Which process or pool, or what a growth came with.
    pub detail: String,
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
    /// Who told: driver, framework, trace, replay; derived: what is left of others; estimated: bounded by others.
    #[field(unit = "text")]
    pub source: Teller,
    /// Why the bytes are not known.
    pub reason: String,
}

/// Ledgers as rows, one device after the other.
#[must_use]
pub fn rows(ledgers: &[DeviceLedger]) -> Vec<LedgerView> {
    let mut rows = Vec::new();
    for DeviceLedger { at, ledger } in ledgers {
        let before = rows.len();
        let row = |line: &Line| LedgerView {
            device: ledger.device.clone(),
            at_ns: *at,
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
