//! Exact parts of a picture, which a browser requests from a server when somebody looks closer than the page itself can show.
//!
//! A page keeps a bounded number of columns and allocations of a pool. A tile is a window of time with every event as a column
//! where there are not too many, else with a column for each pixel; with the allocations that live in it; or a moment with every
//! row of it. All are made from what was read once, and none is longer than its bounds say.

use std::ops::Range;
use std::sync::OnceLock;

use super::block_map::BlockMap;
use super::bounds::PictureRoom;
use super::counted::{CountedFigures, FigureLine};
use super::moments::{self, MomentPicture};
use super::names::PictureNames;
use super::timeline::{Stretch, Timeline, levels_of};
use crate::analysis::accounts::Accounts;
use crate::analysis::reading::Reading;
use crate::analysis::report::{PoolAnalysis, ReportAnalysis};
use crate::timeline::{Pyramid, Series};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// The most events of a window that are shown one by one.
const MAX_SINGLE_EVENTS: usize = 1 << 13;
/// Columns of a tile: no screen is wider.
const MAX_TILE_COLUMNS: usize = 1 << 13;
/// Allocations of a tile; the others are counted.
const MAX_TILE_BLOCKS: usize = 20_000;
/// Rows of a moment; the others are summed up.
const MAX_MOMENT_ROWS: usize = 1000;
/// Events of one nanosecond that are looked at for a moment.
const MAX_SIMULTANEOUS_EVENTS: usize = 1 << 16;

/// What was read, ready to be looked at closely.
#[derive(Debug)]
pub struct PictureTiles {
    reading: Reading,
    report: ReportAnalysis,
    /// By pool of the report, made for the first tile.
    levels: Vec<OnceLock<Pyramid>>,
}

/// A window of a pool's picture.
#[derive(Clone, Debug)]
pub struct WindowTile {
    /// The pool's place in the report.
    pub place: usize,
    /// The window.
    pub window: Range<Nanos>,
    /// Events in it, with the one before.
    pub events: usize,
    /// Whether each of them is a column.
    pub is_exact: bool,
    /// Bytes in use over time; the first column is what went on from before.
    pub timeline: Timeline,
    /// The allocations that live in it.
    pub map: Option<BlockMap>,
    /// What the pool reserved and what its process held in it.
    pub lines: Vec<FigureLine>,
    /// The names, by their numbers.
    pub names: Vec<String>,
}

/// A moment of a pool.
#[derive(Clone, Debug)]
pub struct MomentTile {
    /// The pool's place in the report.
    pub place: usize,
    /// What it held.
    pub moment: MomentPicture,
    /// The names, by their numbers.
    pub names: Vec<String>,
}

impl PictureTiles {
    /// Tiles of the report that a page was made of, after it was made.
    #[must_use]
    pub fn new(reading: Reading, report: ReportAnalysis) -> PictureTiles {
        let levels = report.pools.iter().map(|_| OnceLock::new()).collect();
        PictureTiles { reading, report, levels }
    }

    /// What was read.
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The report, as far as the page has it.
    #[must_use]
    pub fn report(&self) -> &ReportAnalysis {
        &self.report
    }

    fn trace_of(&self, pool: &PoolAnalysis) -> Option<(&Trace, &PoolTrace)> {
        pool.trace_in(&self.reading).map(|(host, pool)| (&host.trace, pool))
    }

    /// A window of a pool's picture, in as many columns as `width`; `None` where there is no such pool.
    #[must_use]
    pub fn window(&self, place: usize, window: Range<Nanos>, width: usize) -> Option<WindowTile> {
        let analysed = self.report.pools.get(place)?;
        let width = width.clamp(1, MAX_TILE_COLUMNS);
        let window = window.start..window.end.max(Nanos(window.start.0.saturating_add(1)));
        let mut names = PictureNames::new(PictureRoom::default());
        let mut tile = WindowTile {
            place,
            window: window.clone(),
            events: 0,
            is_exact: false,
            timeline: Timeline::default(),
            map: None,
            lines: Vec::new(),
            names: Vec::new(),
        };
        let of_trace = self.trace_of(analysed);
        if let Some((trace, pool)) = of_trace {
            let levels = self.levels.get(place)?.get_or_init(|| levels_of(trace, pool));
            let stretches = stretches(trace, pool, levels, &window, width);
            tile.is_exact = stretches.iter().all(|stretch| stretch.events.len() == 1);
            tile.events = stretches.iter().map(|stretch| stretch.events.len()).sum();
            tile.timeline = Timeline::of_trace(trace, pool, levels, &stretches);
            let origin = trace.history.origin;
            // Everything of the last nanosecond is in it.
            let picos = picos(origin, window.start)..Picos(picos(origin, window.end).0.saturating_add(999));
            tile.map = BlockMap::of_window(&mut names, trace, pool, MAX_TILE_BLOCKS, &picos);
        }
        let accounts = Accounts::of(&self.reading, &self.report.pools);
        let counted = CountedFigures::of(&self.reading, accounts.as_ref(), analysed);
        let range = window.start.0..window.end.0;
        if of_trace.is_none() && !counted.in_use.is_empty() {
            tile.show_counters(&counted.in_use, &range, width);
        }
        tile.lines = counted
            .lines
            .into_iter()
            .map(|(subject, points)| {
                let series = Series::new(around(&points, &range).iter().copied());
                FigureLine::window(subject, &series, range.clone())
            })
            .collect();
        tile.names = names.texts;
        Some(tile)
    }

    /// What a pool held at a moment at which it held `bytes`, row by row; `None` where there was no such moment.
    #[must_use]
    pub fn moment(&self, place: usize, at: Nanos, bytes: Bytes) -> Option<MomentTile> {
        let (trace, pool) = self.trace_of(self.report.pools.get(place)?)?;
        let history = &trace.history;
        let events = &history.events;
        let last = pool.position_at(events, Picos(picos(history.origin, at).0.saturating_add(999)))?;
        let first = last.saturating_sub(MAX_SIMULTANEOUS_EVENTS);
        let is_then = |&position: &usize| pool.time(events, position).on_clock(history.origin) == at;
        // Several events may share a nanosecond.
        let position = (first..=last)
            .rev()
            .take_while(is_then)
            .find(|&position| pool.in_use_at(events, position) == bytes)?;
        let mut names = PictureNames::new(PictureRoom::default());
        let moment = moments::moments(&mut names, trace, pool, &[position], MAX_MOMENT_ROWS).pop()?;
        Some(MomentTile { place, moment, names: names.texts })
    }
}

impl WindowTile {
    /// Draws the timeline from the framework's counters: there is no trace.
    fn show_counters(&mut self, in_use: &[(i64, u64)], window: &Range<i64>, width: usize) {
        let points = around(in_use, window);
        let all = Series::new(points.iter().copied());
        self.events = points.len();
        self.is_exact = points.len() <= MAX_SINGLE_EVENTS;
        let columns = if self.is_exact {
            points.iter().flat_map(|&(time, _)| all.window(time..time.saturating_add(1), 1)).collect()
        } else {
            all.window(window.clone(), width)
        };
        self.timeline = Timeline::of_counters(&columns);
    }
}

/// The first picosecond of a moment of the clock.
fn picos(origin: Nanos, at: Nanos) -> Picos {
    Picos(at.0.saturating_sub(origin.0).saturating_mul(1000))
}

/// The points of a window, with the one before it.
fn around<'a>(points: &'a [(i64, u64)], window: &Range<i64>) -> &'a [(i64, u64)] {
    let begin = points.partition_point(|point| point.0 <= window.start).saturating_sub(1);
    let end = points.partition_point(|point| point.0 <= window.end);
    points.get(begin..end).unwrap_or_default()
}

/// Stretches of events that a window is drawn from; the first is what went on from before.
fn stretches(
    trace: &Trace,
    pool: &PoolTrace,
    levels: &Pyramid,
    window: &Range<Nanos>,
    width: usize,
) -> Vec<Stretch> {
    let events = &trace.history.events;
    let place = |at: i64| {
        let before = Picos(picos(trace.history.origin, Nanos(at)).0.saturating_sub(1));
        pool.position_at(events, before).map_or(0, |last| last + 1)
    };
    let (first, end) = (place(window.start.0), place(window.end.0.saturating_add(1)));
    let carried = first.checked_sub(1).map(|last| last..first);
    let ranges: Vec<Range<usize>> = if end.saturating_sub(first) <= MAX_SINGLE_EVENTS {
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
    ranges.into_iter().filter_map(|range| Stretch::of(levels, range)).collect()
}
