//! A part of a page's picture, exactly: what a browser asks a server for when somebody looks closer than the page itself tells.
//!
//! A page keeps so many columns of a pool and so many of its allocations. A tile is a window of time with every event as a column
//! where there are not too many, else with a column for each pixel; with the allocations that live in it; and a moment with every
//! row of it. All are made from what was read once, and none is longer than its bounds say.

use std::ops::Range;
use std::sync::OnceLock;

use serde::Serialize;

use super::html::{
    Counted, LinePicture, MapPicture, MomentPicture, Strings, is_of, levels_of, line, map_of, moment_of,
    of_counters, packed, plain_json,
};
use super::ledger::Accounts;
use super::report::{self, By, PoolView, Report, Wanted};
use crate::Reading;
use crate::snapshot::Role;
use crate::timeline::{Pyramid, Series};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// So many events are told one by one.
pub const EVENTS: usize = 1 << 13;
/// No screen is wider.
pub const WIDEST: usize = 1 << 13;
/// Allocations of a tile; the others are counted.
pub const BLOCKS: usize = 20_000;
/// Rows of a moment; the others are summed up.
const ROWS: usize = 1000;
/// Events of one nanosecond that are looked at for a moment.
const AT_ONCE: usize = 1 << 16;

/// What was read, ready to be looked at closely.
#[derive(Debug)]
pub struct Tiles {
    reading: Reading,
    report: Report,
    /// By pool of the report, made when the first tile is asked for.
    levels: Vec<OnceLock<Pyramid>>,
}

/// A window of a pool's picture; its columns are packed as those of the page.
#[derive(Serialize)]
struct Tile {
    pool: usize,
    from_ns: Nanos,
    to_ns: Nanos,
    /// Events in the window, and whether each is a column.
    events: usize,
    is_exact: bool,
    columns: usize,
    data: String,
    map: Option<MapPicture>,
    lines: Vec<LinePicture>,
    strings: Vec<String>,
}

#[derive(Serialize)]
struct Held {
    pool: usize,
    roles: Vec<&'static str>,
    moment: MomentPicture,
    strings: Vec<String>,
}

impl Tiles {
    /// `report` is the one that the page was made of, after it was made.
    #[must_use]
    pub fn new(reading: Reading, report: Report) -> Tiles {
        let levels = report.pools.iter().map(|_| OnceLock::new()).collect();
        Tiles { reading, report, levels }
    }

    /// What was read.
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The report, as far as the page has it.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn trace_of(&self, view: &PoolView) -> Option<(&Trace, &PoolTrace)> {
        let traces = self.reading.hosts.iter().map(|host| &host.trace);
        traces
            .flat_map(|trace| trace.pools.iter().map(move |pool| (trace, pool)))
            .find(|(trace, pool)| is_of(trace, pool, view))
    }

    /// A window of a pool's picture as JSON, in as many columns as `width`; `None` where there is no such pool.
    #[must_use]
    pub fn tile(&self, pool: usize, window: Range<Nanos>, width: usize) -> Option<String> {
        let view = self.report.pools.get(pool)?;
        let width = width.clamp(1, WIDEST);
        let window = window.start..window.end.max(Nanos(window.start.0.saturating_add(1)));
        let mut strings = Strings::roomy();
        let mut tile = Tile {
            pool,
            from_ns: window.start,
            to_ns: window.end,
            events: 0,
            is_exact: false,
            columns: 0,
            data: String::new(),
            map: None,
            lines: Vec::new(),
            strings: Vec::new(),
        };
        let of_trace = self.trace_of(view);
        if let Some((trace, of_pool)) = of_trace {
            let levels = self.levels.get(pool)?.get_or_init(|| levels_of(trace, of_pool));
            let columns = columns(trace, of_pool, levels, &window, width);
            tile.is_exact = columns.iter().all(|(range, _)| range.len() == 1);
            tile.events = columns.iter().map(|(range, _)| range.len()).sum();
            tile.columns = columns.len();
            tile.data = packed(trace, of_pool, levels, &columns).base64();
            let origin = trace.history.origin;
            // Everything of the last nanosecond is in it.
            let picos = picos(origin, window.start)..Picos(picos(origin, window.end).0.saturating_add(999));
            tile.map = map_of(&mut strings, trace, of_pool, BLOCKS, false, Some(picos));
        }
        let accounts = Accounts::of(&self.reading, &self.report.pools);
        if let Some(counted) = accounts.as_ref().and_then(|accounts| Counted::of(accounts, view)) {
            let range = window.start.0..window.end.0;
            if of_trace.is_none() {
                let (begin, end) = around(&counted.in_use, &range);
                let points = counted.in_use.get(begin..end).unwrap_or_default();
                let all = Series::new(points.iter().copied());
                let columns = if points.len() <= EVENTS {
                    points.iter().flat_map(|&(time, _)| all.window(time..time.saturating_add(1), 1)).collect()
                } else {
                    all.window(range.clone(), width)
                };
                (tile.events, tile.is_exact) = (points.len(), points.len() <= EVENTS);
                tile.columns = columns.len();
                tile.data = of_counters(&columns).base64();
            }
            for (name, points) in counted.lines {
                let (begin, end) = around(&points, &range);
                let points = points.get(begin..end).unwrap_or_default();
                tile.lines.push(line(name, &Series::new(points.iter().copied()), Some(range.clone())));
            }
        }
        tile.strings = strings.texts;
        Some(plain_json(&tile))
    }

    /// What a pool held at a moment at which it held `bytes`, row by row; `None` where there was no such moment.
    #[must_use]
    pub fn held(&self, pool: usize, at: Nanos, bytes: Bytes) -> Option<String> {
        let view = self.report.pools.get(pool)?;
        let (trace, of_pool) = self.trace_of(view)?;
        let events = &trace.history.events;
        let last =
            of_pool.position_at(events, Picos(picos(trace.history.origin, at).0.saturating_add(999)))?;
        let first = last.saturating_sub(AT_ONCE);
        let is_then = |&position: &usize| of_pool.time(events, position).on_clock(trace.history.origin) == at;
        // Several events may share a nanosecond.
        let position = (first..=last)
            .rev()
            .take_while(is_then)
            .find(|&position| of_pool.in_use_at(events, position) == bytes)?;
        let snapshot = trace.snapshots(of_pool, &[position]).pop()?;
        let wanted = Wanted { by: By::Op, top: Some(ROWS), ..Wanted::default() };
        let mut strings = Strings::roomy();
        let moment = moment_of(&mut strings, &report::of_snapshot(&trace.history, &snapshot, &wanted));
        let roles = Role::ALL.iter().map(|role| role.word()).collect();
        Some(plain_json(&Held { pool, roles, moment, strings: strings.texts }))
    }
}

/// The first picosecond of a moment of the clock.
fn picos(origin: Nanos, at: Nanos) -> Picos {
    Picos(at.0.saturating_sub(origin.0).saturating_mul(1000))
}

/// The points of a window, with the one before it.
fn around(points: &[(i64, u64)], window: &Range<i64>) -> (usize, usize) {
    let begin = points.partition_point(|point| point.0 <= window.start);
    (begin.saturating_sub(1), points.partition_point(|point| point.0 <= window.end))
}

/// Stretches of events that a window is drawn from, each with its highest; the first is what went on from before.
fn columns(
    trace: &Trace,
    pool: &PoolTrace,
    levels: &Pyramid,
    window: &Range<Nanos>,
    width: usize,
) -> Vec<(Range<usize>, usize)> {
    let events = &trace.history.events;
    let place = |at: i64| {
        let before = Picos(picos(trace.history.origin, Nanos(at)).0.saturating_sub(1));
        pool.position_at(events, before).map_or(0, |last| last + 1)
    };
    let (first, end) = (place(window.start.0), place(window.end.0.saturating_add(1)));
    let carried = first.checked_sub(1).map(|last| last..first);
    let ranges: Vec<Range<usize>> = if end.saturating_sub(first) <= EVENTS {
        carried.into_iter().chain((first..end).map(|at| at..at + 1)).collect()
    } else {
        let length = i128::from(window.end.0) - i128::from(window.start.0) + 1;
        let edge = |at: usize| {
            let at = i128::from(window.start.0) + length * (at as i128) / (width as i128);
            place(i64::try_from(at).unwrap_or(i64::MAX))
        };
        let edges: Vec<usize> = (0..=width).map(edge).collect();
        let pixels = edges.windows(2).filter_map(|pair| match pair {
            [from, to] if from < to => Some(*from..*to),
            _ => None,
        });
        carried.into_iter().chain(pixels).collect()
    };
    let highest = |range: Range<usize>| Some((range.clone(), levels.highest(range)?.0));
    ranges.into_iter().filter_map(highest).collect()
}
