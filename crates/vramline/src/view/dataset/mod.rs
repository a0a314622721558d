//! The tables of a dataset: what recordings say, as rows that SQL can join.
//!
//! A table is a flat document: its struct declares each column once, with its meaning and the reason for a null
//! (`docs/reference/dataset.md` is checked against it). Rows are handed to a [`RowSink`] one at a time.

mod jobs;
mod memory;
pub mod queries;

use crate::analysis::dataset::key::{Key, SourceKeys};
use crate::analysis::dataset::{DatasetEntry, DatasetProcess, DatasetSource};
use crate::analysis::export::{self, PoolHistory};
use crate::analysis::oom::OomAnalysis;
use crate::document::{Cell, Cells, Described, FieldShape, Shape};
use crate::source::SourceError;
use crate::view::export::allocations;
use crate::view::report::Report;

use jobs::{ErrorRow, FailureRow, FindingRow, JobRow, LabelRow, ProcessRow};
use memory::{AllocationRow, DeviceRow, LedgerRow, PeakRow, PoolRow, StepRow};

/// The version of the tables. It rises when a column is added, removed or changes its meaning.
pub const SCHEMA: u32 = 1;

/// The columns that say where a row belongs. They are in the names of the folders, and in every table.
pub const PARTITIONS: [(&str, &str); 3] = [
    ("job", "the job: its name by `vramline run --job` or its launcher, else the same as `recording`"),
    (
        "recording",
        "the recording: the same for copies of it and for every export, different for any two recordings",
    ),
    ("host", "the machine; `_unknown` if the file does not contain it"),
];

/// A table of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatasetTable {
    /// One row for each recording.
    Jobs,
    /// One for each label of a job.
    Labels,
    /// One for each process.
    Processes,
    /// One for each device.
    Devices,
    /// One for each pool of each process.
    Pools,
    /// One for each step and pool.
    Steps,
    /// One for each holder of memory at the peak of a pool.
    Peaks,
    /// One for each line of the ledger of a device.
    Ledger,
    /// One for each finding.
    Findings,
    /// One for each failed allocation.
    Failures,
    /// One for each allocation.
    Allocations,
    /// One for each source that could not be read.
    Errors,
}

words!(DatasetTable {
    Jobs => "jobs",
    Labels => "labels",
    Processes => "processes",
    Devices => "devices",
    Pools => "pools",
    Steps => "steps",
    Peaks => "peaks",
    Ledger => "ledger",
    Findings => "findings",
    Failures => "failures",
    Allocations => "allocations",
    Errors => "errors",
});

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub kind: ColumnKind,
    /// Whether a value may be unknown.
    pub may_be_null: bool,
    /// What it says.
    pub meaning: &'static str,
    /// Why a value is null.
    pub null: Option<&'static str>,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A 64-bit signed integer.
    Int,
    /// A 64-bit floating-point number.
    Real,
    /// Yes or no.
    Bool,
    /// Text in UTF-8.
    Text,
    /// A day in UTC.
    Date,
}

words!(ColumnKind { Int => "int64", Real => "double", Bool => "bool", Text => "text", Date => "date" });

impl DatasetTable {
    /// What a row is.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            DatasetTable::Jobs => "one row for each recording: what ran, how it ended, its peak",
            DatasetTable::Labels => "one row for each label of a job (`vramline run --label NAME=VALUE`)",
            DatasetTable::Processes => {
                "one row for each process: its rank, its frameworks and their versions"
            }
            DatasetTable::Devices => "one row for each device that a job used or could use",
            DatasetTable::Pools => {
                "one row for each pool of each process: its limit, its peak, what it reserved"
            }
            DatasetTable::Steps => "one row for each step and pool",
            DatasetTable::Peaks => {
                "one row for each holder of memory at the peak of a pool; their bytes add up to `pools.in_use_bytes`"
            }
            DatasetTable::Ledger => {
                "one row for each line of the ledger of a device; every line is the sum of its parts"
            }
            DatasetTable::Findings => "one row for each finding",
            DatasetTable::Failures => "one row for each failed allocation",
            DatasetTable::Allocations => "one row for each allocation; only with `--allocations`",
            DatasetTable::Errors => {
                "one row for each source that could not be read, or of which a part could not be read"
            }
        }
    }

    /// Its columns, without those of [`PARTITIONS`].
    #[must_use]
    pub fn columns(self) -> Vec<TableColumn> {
        let shape = match self {
            DatasetTable::Jobs => JobRow::shape(),
            DatasetTable::Labels => LabelRow::shape(),
            DatasetTable::Processes => ProcessRow::shape(),
            DatasetTable::Devices => DeviceRow::shape(),
            DatasetTable::Pools => PoolRow::shape(),
            DatasetTable::Steps => StepRow::shape(),
            DatasetTable::Peaks => PeakRow::shape(),
            DatasetTable::Ledger => LedgerRow::shape(),
            DatasetTable::Findings => FindingRow::shape(),
            DatasetTable::Failures => FailureRow::shape(),
            DatasetTable::Allocations => AllocationRow::shape(),
            DatasetTable::Errors => ErrorRow::shape(),
        };
        let Shape::Object { fields, .. } = shape else { return Vec::new() };
        fields.iter().map(TableColumn::of).collect()
    }
}

impl TableColumn {
    fn of(field: &FieldShape) -> TableColumn {
        let (shape, may_be_null) = match &field.shape {
            Shape::Optional(inner) => (inner.as_ref(), true),
            shape => (shape, false),
        };
        let kind = match shape {
            Shape::Scalar { unit: "date", .. } => ColumnKind::Date,
            Shape::Scalar { unit: "fraction", .. } => ColumnKind::Real,
            Shape::Scalar { script: "number", .. } => ColumnKind::Int,
            Shape::Scalar { script: "boolean", .. } => ColumnKind::Bool,
            _ => ColumnKind::Text,
        };
        TableColumn { name: field.name, kind, may_be_null, meaning: field.meaning, null: field.null }
    }
}

/// Takes the rows of a source.
pub trait RowSink {
    /// Why a row cannot be taken.
    type Error;

    /// Takes a row of a table. It has a cell for each of the table's columns.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn row(&mut self, table: DatasetTable, host: &Key, cells: &[Cell<'_>]) -> Result<(), Self::Error>;
}

/// Hands the rows of a source to a sink, and its allocations if these are wanted.
///
/// # Errors
///
/// Those of the sink.
pub fn write<S: RowSink>(source: DatasetSource, has_allocations: bool, sink: &mut S) -> Result<(), S::Error> {
    let mut rows = Rows { sink };
    let entry = source.entry();
    if has_allocations {
        let pools = export::pools(&source.reading, None).unwrap_or_default();
        pools.iter().try_for_each(|pool| rows.allocations(&entry, pool))?;
    }
    let keys = source.keys.clone();
    let failures = source.into_failures();
    rows.entry(entry, &keys, failures.as_ref().map(crate::analysis::oom::oom).as_ref())
}

/// Hands the row of a source that cannot be read to a sink.
///
/// # Errors
///
/// Those of the sink.
pub fn write_error<S: RowSink>(path: &str, error: &SourceError, sink: &mut S) -> Result<(), S::Error> {
    Rows { sink }.add(DatasetTable::Errors, &Key::host(None), &ErrorRow::of(path, error))
}

/// The rows of one source, on their way to a sink.
struct Rows<'a, S> {
    sink: &'a mut S,
}

impl<S: RowSink> Rows<'_, S> {
    fn add(&mut self, table: DatasetTable, host: &Key, row: &impl Cells) -> Result<(), S::Error> {
        self.sink.row(table, host, &row.cells())
    }

    fn allocations(&mut self, entry: &DatasetEntry, pool: &PoolHistory<'_>) -> Result<(), S::Error> {
        let host = entry.hosts.of_process(pool.host, pool.pid);
        allocations(pool)
            .try_for_each(|row| self.add(DatasetTable::Allocations, &host, &AllocationRow::from(row)))
    }

    fn entry(
        &mut self,
        entry: DatasetEntry,
        keys: &SourceKeys,
        oom: Option<&OomAnalysis<'_>>,
    ) -> Result<(), S::Error> {
        let (launcher, job) = (entry.hosts.launcher(), JobRow::of(&entry, keys));
        self.add(DatasetTable::Jobs, &launcher, &job)?;
        for label in &entry.identity.labels {
            self.add(DatasetTable::Labels, &launcher, &LabelRow::of(label))?;
        }
        for process in &entry.processes {
            let host = entry.hosts.of_process(&process.host, Some(process.pid));
            self.add(DatasetTable::Processes, &host, &ProcessRow::from(process))?;
        }
        for device in &entry.devices {
            self.add(DatasetTable::Devices, &device.host, &DeviceRow::of(device))?;
        }
        for failure in oom.iter().flat_map(|oom| &oom.failures) {
            let process = failure.process.and_then(|number| entry.processes.get(number));
            let of_process =
                |process: &DatasetProcess| entry.hosts.of_process(&process.host, Some(process.pid));
            let host = process.map_or_else(|| launcher.clone(), of_process);
            self.add(DatasetTable::Failures, &host, &FailureRow::from(failure))?;
        }
        let DatasetEntry { report, pools, hosts, .. } = entry;
        let report = Report::from(report);
        for (number, (pool, place)) in report.pools.iter().zip(&pools).enumerate() {
            self.add(DatasetTable::Pools, &place.host, &PoolRow::of(number, pool, place))?;
            for holder in pool.at_peak.iter().flat_map(|held| PeakRow::all(number, pool, held)) {
                self.add(DatasetTable::Peaks, &place.host, &holder)?;
            }
        }
        for step in &report.steps {
            self.add(DatasetTable::Steps, &hosts.of_process(&step.host, step.pid), &StepRow::from(step))?;
        }
        for (number, line) in report.ledger.iter().enumerate() {
            let host = hosts.of_machine(line.host.as_deref());
            self.add(DatasetTable::Ledger, &host, &LedgerRow::of(number, line))?;
        }
        for found in &report.findings {
            self.add(DatasetTable::Findings, &launcher, &FindingRow::from(found))?;
        }
        let unreadable = report.warnings.iter().filter(|warning| warning.code == "unreadable-host");
        for warning in unreadable {
            self.add(DatasetTable::Errors, &launcher, &ErrorRow::of_part(&job.source, warning))?;
        }
        Ok(())
    }
}
