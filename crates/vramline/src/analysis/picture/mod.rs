//! The picture of a report: the data that its page draws, bounded by the room of the page.
//!
//! A pool of ten million events gives as many columns as one of thirty thousand, each with what was held at its own highest
//! moment, so that no peak is lost and every column adds up. Sentences say what was left out. Names are numbers of one table. The
//! document made of it decides how all of this is packed.

pub mod block_map;
pub mod bounds;
pub mod counted;
pub mod moments;
mod names;
mod pool_size;
pub mod tiles;
pub mod timeline;

use block_map::BlockMap;
use bounds::{PictureRoom, PoolRoom, ReportLengths};
use counted::{CountedFigures, FigureLine, LineSubject};
use moments::MomentPicture;
use names::PictureNames;
use timeline::{Stretch, Timeline};

use super::accounts::Accounts;
use super::oom::{OomAnalysis, is_survived, oom};
use super::reading::{OutOfMemory, Reading};
use super::report::ReportAnalysis;
use crate::postmortem;
use crate::timeline::Series;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Nanos, plural, thousands};

/// Pools with the highest peaks that are drawn in full.
const FULLY_DRAWN_POOLS: usize = 2;

/// What the charts of a page are drawn from.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The pools that have a timeline.
    pub pools: Vec<PoolPicture>,
    /// The names, by their numbers.
    pub names: Vec<String>,
    /// What was left out or summed up, one sentence each.
    pub aggregated: Vec<String>,
}

/// The picture of one pool.
#[derive(Clone, Debug)]
pub struct PoolPicture {
    /// Its place among the report's pools.
    pub place: usize,
    /// Where its timeline comes from.
    pub origin: TimelineOrigin,
    /// Events of the trace, or readings of the counters.
    pub events: usize,
    /// Of these, in a column.
    pub events_per_column: usize,
    /// When the last column ends.
    pub end: Nanos,
    /// Bytes in use over time.
    pub timeline: Timeline,
    /// Moments that are kept row by row.
    pub moments: Vec<MomentPicture>,
    /// Allocations by address and time.
    pub map: Option<BlockMap>,
    /// What the pool reserved and what its process held, over time.
    pub lines: Vec<FigureLine>,
    /// What the counters said of the whole run, where the run goes on after the trace.
    pub run: Option<FigureLine>,
    /// What the reader should know of the timeline, one sentence each.
    pub notes: Vec<String>,
}

/// Where a timeline comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineOrigin {
    /// Events of a trace.
    Trace,
    /// Readings of the framework's counters.
    Counters,
}

words!(TimelineOrigin {
    Trace => "trace",
    Counters => "counters",
});

/// Makes the picture of a report. Of the report remains what the page has room for; `lengths` are those of the whole report.
#[must_use]
pub fn picture(
    reading: &Reading,
    report: &mut ReportAnalysis,
    lengths: &ReportLengths,
    room: PictureRoom,
) -> Picture {
    let aggregated = room.shorten(report, lengths);
    let mut painter = Painter { room, names: PictureNames::new(room), aggregated };
    let mut pools = painter.traced_pools(reading, report);
    painter.add_counted(reading, report, &mut pools);
    pools.sort_by_key(|pool| pool.place);
    Picture { pools, names: painter.names.texts, aggregated: painter.aggregated }
}

/// Makes the post-mortem of the failures that a recording or the history of a snapshot shows, and a document of it. A job that went on
/// needs none.
pub fn post_mortem<T>(reading: &Reading, document: impl FnOnce(&OomAnalysis<'_>) -> T) -> Option<T> {
    if let Some(read) = &reading.failures {
        return (!is_survived(read)).then(|| document(&oom(read)));
    }
    let host = reading.hosts.first()?;
    let failures = postmortem::history::failures(&host.trace, &host.path);
    let read = OutOfMemory::of(failures, None);
    (!read.failures.list.is_empty()).then(|| document(&oom(&read)))
}

/// What the parts of a picture share while it is made.
struct Painter {
    room: PictureRoom,
    names: PictureNames,
    aggregated: Vec<String>,
}

impl Painter {
    fn traced_pools(&mut self, reading: &Reading, report: &ReportAnalysis) -> Vec<PoolPicture> {
        let mut pictures: Vec<PoolPicture> = Vec::new();
        for (place, analysed) in report.pools.iter().enumerate() {
            if pictures.len() >= self.room.drawn_pools {
                self.aggregated.push(format!(
                    "only the {} with the highest peaks have a timeline; the others are in the table",
                    plural(pictures.len(), "pool", "pools")
                ));
                break;
            }
            let is_full = pictures.len() < FULLY_DRAWN_POOLS;
            let room = if is_full { self.room.full_pool } else { self.room.other_pool };
            let found = analysed.trace_in(reading);
            pictures.extend(found.and_then(|(host, pool)| self.traced_pool(&host.trace, pool, place, room)));
        }
        pictures
    }

    fn traced_pool(
        &mut self,
        trace: &Trace,
        pool: &PoolTrace,
        place: usize,
        room: PoolRoom,
    ) -> Option<PoolPicture> {
        let count = pool.event_count();
        let last = count.checked_sub(1)?;
        let each = count.div_ceil(room.columns).max(1);
        let levels = timeline::levels_of(trace, pool);
        let stretches: Vec<Stretch> = (0..count.div_ceil(each))
            .filter_map(|at| Stretch::of(&levels, at * each..((at + 1) * each).min(count)))
            .collect();
        let timeline = Timeline::of_trace(trace, pool, &levels, &stretches);
        let kept = moments::kept_positions(pool, &levels, self.room.moments);
        // As large as the events of the trace, and no longer needed.
        drop(levels);
        let moments = moments::moments(&mut self.names, trace, pool, &kept, self.room.moment_rows);
        let map = BlockMap::of_pool(&mut self.names, trace, pool, room.blocks, each == 1);
        Some(PoolPicture {
            place,
            origin: TimelineOrigin::Trace,
            events: count,
            events_per_column: each,
            end: pool.time(&trace.history.events, last).on_clock(trace.history.origin),
            notes: trace_notes(trace, pool, each, timeline.len()),
            timeline,
            moments,
            map,
            lines: Vec::new(),
            run: None,
        })
    }

    /// Adds the lines above each timeline. Pools that only counters know get a timeline of their readings.
    fn add_counted(&self, reading: &Reading, report: &ReportAnalysis, pictures: &mut Vec<PoolPicture>) {
        let accounts = Accounts::of(reading, &report.pools);
        for (place, analysed) in report.pools.iter().enumerate() {
            let counted = CountedFigures::of(reading, accounts.as_ref(), analysed);
            let lines = counted
                .lines
                .into_iter()
                .map(|(subject, points)| FigureLine::whole(subject, &Series::new(points)));
            if let Some(picture) = pictures.iter_mut().find(|picture| picture.place == place) {
                picture.lines = lines.collect();
                let goes_on = counted.in_use.last().is_some_and(|point| point.0 > picture.end.0);
                picture.run = goes_on
                    .then(|| FigureLine::whole(LineSubject::InUseByCounters, &Series::new(counted.in_use)));
            } else if !counted.in_use.is_empty() && pictures.len() < self.room.drawn_pools {
                let end = Nanos(counted.in_use.last().map_or(0, |point| point.0));
                let count = counted.in_use.len();
                let columns = Series::new(counted.in_use).whole(self.room.other_pool.columns);
                pictures.push(PoolPicture {
                    place,
                    origin: TimelineOrigin::Counters,
                    events: count,
                    events_per_column: count.div_ceil(columns.len().max(1)),
                    end,
                    timeline: Timeline::of_counters(&columns),
                    moments: Vec::new(),
                    map: None,
                    lines: lines.collect(),
                    run: None,
                    notes: vec![
                        "drawn from readings of the framework's counters: a peak between two readings is not shown, and no trace shows which tensors used the memory"
                            .to_owned(),
                    ],
                });
            }
        }
    }
}

/// Notes for the timeline of a traced pool.
fn trace_notes(trace: &Trace, pool: &PoolTrace, each: usize, columns: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if each > 1 {
        notes.push(format!(
            "{} events are drawn as {columns} columns of {each}; a column shows its highest moment, so no peak is lost",
            thousands(pool.event_count() as u64)
        ));
    }
    if pool.count.disagreements > 0 {
        notes.push(
            "events are missing from the trace: the height is the allocator's own count, the split by role covers only the events in the trace"
                .to_owned(),
        );
    }
    if trace.has_inventory() {
        notes.push(
            "while the program assigns a variable, it has two blocks: the chart counts both under its role, the table counts the second as temporary"
                .to_owned(),
        );
    }
    notes
}
