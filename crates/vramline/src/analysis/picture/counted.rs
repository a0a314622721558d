//! The lines above a pool's timeline: what the pool reserved, and what the driver says of its process.

use std::ops::Range;

use super::pool_size;
use crate::analysis::accounts::Accounts;
use crate::analysis::reading::Reading;
use crate::analysis::report::PoolAnalysis;
use crate::ledger::moments::Books;
use crate::ledger::{SourcedBytes, Teller};
use crate::timeline::{Column, Series};

/// The most points of a line. A longer one keeps the highest point of each column.
const MAX_LINE_POINTS: usize = 2000;

/// Moments in nanoseconds, each with the bytes from then on.
pub(super) type BytesOverTime = Vec<(i64, u64)>;

/// The figure that a line shows, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSubject {
    /// Bytes that a pool reserved, by the calls to the driver that a snapshot lists.
    ReservedBySnapshot,
    /// Bytes that a pool reserved, by an exact replay of its trace.
    ReservedByReplay,
    /// Bytes that a pool reserved, by readings of the framework's counters, which lag.
    ReservedByCounters,
    /// Host memory of a process, by readings of the kernel.
    ProcessByKernel,
    /// Device memory of a process, by readings of the driver.
    ProcessByDriver,
    /// Bytes in use, by readings of the framework's counters.
    InUseByCounters,
}

words!(LineSubject {
    ReservedBySnapshot => "reserved by the pool (snapshot)",
    ReservedByReplay => "reserved by the pool (exact replay)",
    ReservedByCounters => "reserved by the pool (counter readings)",
    ProcessByKernel => "held by the process (kernel readings)",
    ProcessByDriver => "held by the process (driver readings)",
    InUseByCounters => "in use (counter readings)",
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

/// The lines of a pool over time, on the report's clock.
#[derive(Default)]
pub(super) struct CountedFigures {
    /// What the pool reserved and what its process held, where anybody knows it.
    pub(super) lines: Vec<(LineSubject, BytesOverTime)>,
    /// Bytes in use, by the framework's counters.
    pub(super) in_use: BytesOverTime,
}

impl CountedFigures {
    /// The lines of a pool. A trace or its replay knows each growth of the pool; counters are read a few times a second and lag.
    pub(super) fn of(
        reading: &Reading,
        accounts: Option<&Accounts<'_>>,
        pool: &PoolAnalysis,
    ) -> CountedFigures {
        let mut figures = accounts.map_or_else(CountedFigures::default, |accounts| read(accounts, pool));
        if let Some(known) = pool_size::reserved(reading, pool) {
            figures.lines.retain(|(subject, _)| *subject != LineSubject::ReservedByCounters);
            figures.lines.insert(0, known);
        }
        figures
    }
}

/// What the counters and the driver's readings say of a pool.
fn read(accounts: &Accounts<'_>, pool: &PoolAnalysis) -> CountedFigures {
    // Machines of one job have devices of one name.
    let has_it = |books: &&Books<'_>| books.pids().into_iter().any(|pid| pool.pid == Some(u64::from(pid)));
    let mut of_device = accounts.books.iter().filter(|books| books.device == pool.device);
    let Some(books) = of_device.clone().find(has_it).or_else(|| of_device.next()) else {
        return CountedFigures::default();
    };
    let pids = books.pids();
    // The driver may number the only process otherwise.
    let is_it = |pid: u32| pids.len() == 1 || pool.pid == Some(u64::from(pid));
    let series = books.pools.iter().find(|series| series.name == pool.name && is_it(series.pid));
    let pid = series.map_or(0, |series| series.pid);
    let clock = |time: i64| accounts.clock(pid, time).0;
    let mut lines = Vec::new();
    let is_read = |(_, told): &&(i64, SourcedBytes)| told.by == Teller::Framework;
    let reserved: BytesOverTime = series
        .iter()
        .flat_map(|series| series.taken.iter().filter(is_read))
        .map(|(time, told)| (clock(*time), told.bytes.0))
        .collect();
    if !reserved.is_empty() {
        lines.push((LineSubject::ReservedByCounters, reserved));
    }
    let of_process = books.rows.iter().filter(|row| row.is_job == Some(true) && row.pid.is_some_and(is_it));
    let held: BytesOverTime =
        of_process.filter_map(|row| Some((clock(row.time.monotonic), row.used?.0))).collect();
    if !held.is_empty() {
        let is_host = books.is_stand_in;
        let subject = if is_host { LineSubject::ProcessByKernel } else { LineSubject::ProcessByDriver };
        lines.push((subject, held));
    }
    let in_use = series.map_or(Vec::new(), |series| {
        series.in_use.iter().map(|(time, told)| (clock(*time), told.bytes.0)).collect()
    });
    CountedFigures { lines, in_use }
}
