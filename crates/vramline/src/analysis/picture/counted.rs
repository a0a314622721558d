//! What the driver and the framework's counters say of a pool over time.

use std::ops::Range;

use crate::analysis::accounts::Accounts;
use crate::analysis::report::PoolAnalysis;
use crate::ledger::SourcedBytes;
use crate::timeline::{Column, Series};

/// Points of a line; of more, the most of each column is kept.
const MAX_LINE_POINTS: usize = 2000;

/// Moments in nanoseconds, each with the bytes from then on.
type BytesOverTime = Vec<(i64, u64)>;

/// The figure that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSubject {
    /// What a pool took from the driver.
    PoolTaken,
    /// What a pool took of host memory.
    PoolTakenOnHost,
    /// What a process held, by the kernel: host memory has no driver.
    ProcessByKernel,
    /// What a process held, by the driver.
    ProcessByDriver,
    /// Bytes in use, by the framework's counters.
    InUseByCounters,
}

words!(LineSubject {
    PoolTaken => "pool, taken from the driver",
    PoolTakenOnHost => "pool, taken from host memory",
    ProcessByKernel => "process, by the kernel",
    ProcessByDriver => "process, by the driver",
    InUseByCounters => "in use, by the framework's counters",
});

/// A line across a timeline. Both lists are of the same length.
#[derive(Clone, Debug)]
pub struct FigureLine {
    /// The figure.
    pub subject: LineSubject,
    /// Moments, in nanoseconds.
    pub times: Vec<i64>,
    /// The bytes from each on.
    pub bytes: Vec<u64>,
}

impl FigureLine {
    /// A line over all that is known.
    pub(super) fn whole(subject: LineSubject, series: &Series) -> FigureLine {
        FigureLine::of(subject, series, || series.whole(MAX_LINE_POINTS))
    }

    /// A line over a window.
    pub(super) fn window(subject: LineSubject, series: &Series, window: Range<i64>) -> FigureLine {
        FigureLine::of(subject, series, || series.window(window, MAX_LINE_POINTS))
    }

    fn of(subject: LineSubject, series: &Series, columns: impl FnOnce() -> Vec<Column>) -> FigureLine {
        let points: BytesOverTime = if series.points().len() <= MAX_LINE_POINTS {
            series.points().collect()
        } else {
            // A line has no breadth: it shows the most of each column.
            columns().iter().map(|column| (column.begin, column.summary.max)).collect()
        };
        let (times, bytes) = points.into_iter().unzip();
        FigureLine { subject, times, bytes }
    }
}

/// What is known of a pool beside its trace, on the report's clock.
pub(super) struct CountedFigures {
    /// By the driver.
    pub(super) by_driver: Vec<(LineSubject, BytesOverTime)>,
    /// In use, by the framework's counters.
    pub(super) in_use: BytesOverTime,
}

impl CountedFigures {
    pub(super) fn of(accounts: &Accounts<'_>, pool: &PoolAnalysis) -> Option<CountedFigures> {
        let books = accounts.books.iter().find(|books| books.device == pool.device)?;
        let pids = books.pids();
        // The driver may number the only process otherwise.
        let is_it = |pid: u32| pids.len() == 1 || pool.pid == Some(u64::from(pid));
        let series = books.pools.iter().find(|series| series.name == pool.name && is_it(series.pid));
        let pid = series.map_or(0, |series| series.pid);
        let clock = |time: i64| accounts.clock(pid, time).0;
        let on_clock = |points: &[(i64, SourcedBytes)]| -> BytesOverTime {
            points.iter().map(|(time, told)| (clock(*time), told.bytes.0)).collect()
        };
        let mut by_driver = Vec::new();
        if let Some(series) = series.filter(|series| !series.taken.is_empty()) {
            let is_host = books.is_stand_in;
            let subject = if is_host { LineSubject::PoolTakenOnHost } else { LineSubject::PoolTaken };
            by_driver.push((subject, on_clock(&series.taken)));
        }
        let of_process =
            books.rows.iter().filter(|row| row.is_job == Some(true) && row.pid.is_some_and(is_it));
        let held: BytesOverTime =
            of_process.filter_map(|row| Some((clock(row.time.monotonic), row.used?.0))).collect();
        if !held.is_empty() {
            let is_host = books.is_stand_in;
            let subject = if is_host { LineSubject::ProcessByKernel } else { LineSubject::ProcessByDriver };
            by_driver.push((subject, held));
        }
        let in_use = series.map_or(Vec::new(), |series| on_clock(&series.in_use));
        Some(CountedFigures { by_driver, in_use })
    }
}
