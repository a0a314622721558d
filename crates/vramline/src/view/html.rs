//! What the page of a report is drawn from: the report itself, and per pool a timeline, kept moments and a map of allocations.
//!
//! Everything is bounded: a pool of ten million events gives as many columns as one of thirty thousand, each with what was
//! held at its own highest moment, so that no peak is lost and every column adds up. What was summed up is said in words. Long
//! columns of numbers are differences in a few bytes each, as base64; names are numbers of one table. There is no drawing
//! here: `web/` does that.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::Value;

use super::ledger::Accounts;
use super::oom::{OomReport, oom};
use super::packed::Packed;
use super::report::{self, By, HeldView, PoolView, Report, Wanted};
use crate::OutOfMemory;
use crate::Reading;
use crate::event::History;
use crate::ledger::Told;
use crate::names::Name;
use crate::postmortem;
use crate::snapshot::Role;
use crate::timeline::{Column, Pyramid, Series};
use crate::trace::{Band, Life, PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// The payload is at most so long, whatever was read.
pub const MOST_BYTES: usize = 19 << 20;

/// How much of everything a page keeps.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Pools, and those of them with a timeline.
    pools: usize,
    drawn: usize,
    /// Columns and allocations of the first pools, and of the others.
    columns: [usize; 2],
    blocks: [usize; 2],
    /// Kept moments of a pool, and the rows of each.
    moments: usize,
    rows: usize,
    /// Steps, and entries of any other list of the report.
    steps: usize,
    entries: usize,
    /// Signs of a text, and of all names.
    text: usize,
    names: usize,
}

const ROOM: Room = Room {
    pools: 64,
    drawn: 12,
    columns: [1 << 15, 1 << 12],
    blocks: [1 << 16, 1 << 12],
    moments: 96,
    rows: 60,
    steps: 4000,
    entries: 2000,
    text: 400,
    names: 4 << 20,
};

impl Room {
    /// With a quarter of it.
    fn smaller(self) -> Room {
        let less = |count: usize| (count / 4).max(1);
        Room {
            pools: less(self.pools),
            drawn: less(self.drawn),
            columns: self.columns.map(less),
            blocks: self.blocks.map(less),
            moments: less(self.moments),
            rows: less(self.rows),
            steps: less(self.steps),
            entries: less(self.entries),
            text: (self.text / 2).max(40),
            names: less(self.names),
        }
    }
}

/// Rows of a pool's peak that a report for a page should have.
pub const ROWS: usize = 400;

/// The name of the counters' line.
const IN_USE: &str = "in use, by the framework's counters";

/// Pools that are drawn in full.
const IN_FULL: usize = 2;

#[derive(Serialize)]
struct Payload<'a> {
    report: Value,
    oom: Option<Value>,
    roles: Vec<&'static str>,
    pools: Vec<PoolPicture>,
    strings: &'a [String],
    aggregated: &'a [String],
}

/// The picture of one pool.
#[derive(Serialize)]
struct PoolPicture {
    /// Its place among the report's pools.
    pool: usize,
    /// Who told: events of a trace, or counters that were read now and then.
    by: &'static str,
    events: usize,
    /// Events in a column.
    each: usize,
    columns: usize,
    /// When the last of them ends.
    end_ns: Nanos,
    /// Times, times of the highest moments since, least, last, then the parts at the highest: roles, slack, before.
    data: String,
    moments: Vec<MomentPicture>,
    map: Option<MapPicture>,
    lines: Vec<LinePicture>,
    /// What the counters told of the whole run, where that goes on after the trace.
    run: Option<LinePicture>,
    notes: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct MomentPicture {
    time_ns: Option<Nanos>,
    in_use_bytes: Bytes,
    slack_bytes: Bytes,
    before_recording_bytes: Bytes,
    /// Each: bytes, count, role, op, layer, shape, type, source, variable, evidence, age.
    rows: Vec<[Option<u64>; 11]>,
    rest_rows: usize,
    rest_bytes: Bytes,
}

#[derive(Serialize)]
pub(super) struct MapPicture {
    allocations: u64,
    blocks: usize,
    /// Whether these are all, and their positions are told.
    is_whole: bool,
    /// The lowest address, in hexadecimal.
    base: String,
    /// Addresses, chunks, slack, births, lifetimes plus one (0: not freed), roles, ops, shapes; then births and deaths by position.
    data: String,
    /// Of the others: how many, and the largest.
    left_out: u64,
    left_out_most_bytes: Bytes,
}

/// A line across the timeline.
#[derive(Serialize)]
pub(super) struct LinePicture {
    name: String,
    points: usize,
    /// Times and values.
    data: String,
}

/// The page's data as JSON that may stand inside a page: it has no `<`. At most [`MOST_BYTES`] long. Of the report remains what
/// the page has of it.
#[must_use]
pub fn payload(reading: &Reading, report: &mut Report) -> String {
    let oom = failures(reading);
    let mut room = ROOM;
    let whole = Whole::of(report);
    loop {
        let text = try_payload(reading, report, &whole, oom.as_ref(), room);
        // With the least room nothing is left that could be long.
        if text.len() <= MOST_BYTES || room.columns == room.smaller().columns {
            return text;
        }
        room = room.smaller();
    }
}

/// How long the lists of the report were before anything was left out.
struct Whole {
    pools: usize,
    steps: usize,
    marks: usize,
    epochs: usize,
    warnings: usize,
}

impl Whole {
    fn of(report: &Report) -> Whole {
        Whole {
            pools: report.pools.len(),
            steps: report.steps.len(),
            marks: report.marks.len(),
            epochs: report.epochs.len(),
            warnings: report.warnings.len(),
        }
    }
}

fn try_payload(
    reading: &Reading,
    report: &mut Report,
    whole: &Whole,
    oom: Option<&OomReport>,
    room: Room,
) -> String {
    let mut page = Page { room, strings: Strings::new(room), aggregated: Vec::new() };
    page.shorten(report, whole);
    let pools = page.pools(reading, report);
    let mut report = serde_json::to_value(&*report).unwrap_or_default();
    let mut oom = oom.and_then(|oom| serde_json::to_value(oom).ok());
    clip(&mut report, room);
    oom.iter_mut().for_each(|oom| clip(oom, room));
    let payload = Payload {
        report,
        oom,
        roles: Role::ALL.iter().map(|role| role.word()).collect(),
        pools,
        strings: &page.strings.texts,
        aggregated: &page.aggregated,
    };
    plain_json(&payload)
}

/// JSON without `<`, which is inside strings only, and there it may be written so.
pub(super) fn plain_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if text.contains('<') { text.replace('<', "\\u003c") } else { text }
}

/// The failures that a recording or the history of a snapshot tells of.
fn failures(reading: &Reading) -> Option<OomReport> {
    if let Some(failures) = &reading.failures {
        return Some(oom(failures));
    }
    let host = reading.hosts.first()?;
    let failures = postmortem::history::failures(&host.trace, &host.path);
    let count = failures.list.len();
    let (proofs, of_process) = (vec![None; count], vec![None; count]);
    let found = OutOfMemory { failures, proofs, of_process, ..OutOfMemory::default() };
    (count > 0).then(|| oom(&found))
}

/// Cuts texts and lists of a document.
fn clip(value: &mut Value, room: Room) {
    match value {
        Value::String(text) => shorten(text, room.text),
        Value::Array(items) => {
            items.truncate(room.entries.max(room.steps));
            items.iter_mut().for_each(|item| clip(item, room));
        }
        Value::Object(map) => map.values_mut().for_each(|value| clip(value, room)),
        _ => {}
    }
}

fn shorten(text: &mut String, most: usize) {
    if text.len() > most
        && let Some((end, _)) = text.char_indices().nth(most)
    {
        text.truncate(end);
        text.push('…');
    }
}

/// Names, each once.
pub(super) struct Strings {
    pub(super) texts: Vec<String>,
    known: FxHashMap<String, usize>,
    left: usize,
    text: usize,
}

impl Strings {
    fn new(room: Room) -> Strings {
        Strings {
            texts: vec![String::new(), "(name left out)".to_owned()],
            known: FxHashMap::from_iter([(String::new(), 0)]),
            left: room.names,
            text: room.text,
        }
    }

    /// With the room of a whole page.
    pub(super) fn roomy() -> Strings {
        Strings::new(ROOM)
    }

    fn number(&mut self, text: &str) -> usize {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        let mut short = text.to_owned();
        shorten(&mut short, self.text);
        let Some(left) = self.left.checked_sub(short.len()) else { return 1 };
        self.left = left;
        self.texts.push(short);
        self.known.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

struct Page {
    room: Room,
    strings: Strings,
    aggregated: Vec<String>,
}

impl Page {
    /// Keeps as much of the report's own lists as there is room for.
    fn shorten(&mut self, report: &mut Report, whole: &Whole) {
        let room = self.room;
        let cut = |said: &mut Vec<String>, count: usize, most: usize, what: &str| {
            if count > most {
                said.push(format!("{most} of {count} {what} are listed"));
            }
        };
        let said = &mut self.aggregated;
        cut(said, whole.pools, room.pools, "pools");
        report.pools.truncate(room.pools);
        if whole.steps > room.steps {
            said.push(format!(
                "of every {} of {} steps the one with the highest peak is shown",
                whole.steps.div_ceil(room.steps),
                whole.steps
            ));
            let each = report.steps.len().div_ceil(room.steps).max(1);
            let mut kept = std::mem::take(&mut report.steps).into_iter();
            loop {
                let part = kept.by_ref().take(each);
                let highest = part.max_by_key(|step| step.peak_bytes.max(step.current_bytes));
                let Some(highest) = highest else { break };
                report.steps.push(highest);
            }
        }
        cut(said, whole.marks, room.entries, "marks");
        report.marks.truncate(room.entries);
        cut(said, whole.epochs, room.entries, "epochs");
        report.epochs.truncate(room.entries);
        cut(said, whole.warnings, room.entries, "notes");
        report.warnings.truncate(room.entries);
        report.unknowns.truncate(room.entries);
        report.inventory.truncate(room.entries);
        for pool in &mut report.pools {
            if let Some(caching) = &mut pool.caching {
                caching.failures.truncate(room.entries);
                caching.streams.truncate(room.entries);
                caching.failures.iter_mut().for_each(|failure| failure.stack.truncate(room.rows));
            }
            for held in pool.at_peak.iter_mut().chain(&mut pool.at) {
                let most = room.rows.saturating_mul(ROWS / ROOM.rows);
                report::fold(held, most);
                held.rows.iter_mut().for_each(|row| row.stack.clear());
            }
        }
    }

    fn pools(&mut self, reading: &Reading, report: &Report) -> Vec<PoolPicture> {
        let mut pictures: Vec<PoolPicture> = Vec::new();
        let of_traces = reading
            .hosts
            .iter()
            .flat_map(|host| host.trace.pools.iter().map(move |pool| (&host.trace, pool)));
        for (place, view) in report.pools.iter().enumerate() {
            if pictures.len() >= self.room.drawn {
                self.aggregated.push(format!(
                    "the {} pools with the highest peaks have a timeline, the others are in the table",
                    pictures.len()
                ));
                break;
            }
            let found = of_traces.clone().find(|(trace, pool)| is_of(trace, pool, view));
            pictures.extend(found.and_then(|(trace, pool)| {
                self.picture(trace, pool, place, usize::from(pictures.len() >= IN_FULL))
            }));
        }
        self.lines(reading, report, &mut pictures);
        pictures.sort_by_key(|picture| picture.pool);
        pictures
    }

    fn picture(&mut self, trace: &Trace, pool: &PoolTrace, place: usize, rank: usize) -> Option<PoolPicture> {
        let events = &trace.history.events;
        let count = pool.event_count();
        let pick = |room: [usize; 2]| room.into_iter().nth(rank).unwrap_or(1);
        let each = count.div_ceil(pick(self.room.columns)).max(1);
        let levels = levels_of(trace, pool);
        let clock = |position: usize| pool.time(events, position).on_clock(trace.history.origin);
        let columns: Vec<(Range<usize>, usize)> = (0..count.div_ceil(each))
            .filter_map(|at| {
                let range = at * each..((at + 1) * each).min(count);
                Some((range.clone(), levels.highest(range)?.0))
            })
            .collect();
        let data = packed(trace, pool, &levels, &columns);
        let mut notes = Vec::new();
        if each > 1 {
            notes.push(format!(
                "{count} events are drawn as {} columns of {each}; each shows what was held at its own highest moment, so every peak is there",
                columns.len()
            ));
        }
        if pool.count.disagreements > 0 {
            notes.push(
                "events are missing from the trace: the height is the allocator's own count, the split by role is what the events account for"
                    .to_owned(),
            );
        }
        if trace.has_inventory() {
            notes.push(
                "while a variable is assigned it has two blocks: the chart counts both under its role, the table the second as temporary"
                    .to_owned(),
            );
        }
        let slice = count.div_ceil(self.room.moments).max(1);
        let mut kept: Vec<usize> = (0..count.div_ceil(slice))
            .filter_map(|at| Some(levels.highest(at * slice..((at + 1) * slice).min(count))?.0))
            .chain(pool.peak().map(|peak| peak.position))
            .collect();
        kept.sort_unstable();
        kept.dedup();
        drop(levels);
        let wanted = Wanted { by: By::Op, top: Some(self.room.rows), ..Wanted::default() };
        let moments = trace.snapshots(pool, &kept);
        let moments: Vec<MomentPicture> = moments
            .iter()
            .map(|moment| moment_of(&mut self.strings, &report::of_snapshot(&trace.history, moment, &wanted)))
            .collect();
        let map = map_of(&mut self.strings, trace, pool, pick(self.room.blocks), each == 1, None);
        Some(PoolPicture {
            pool: place,
            by: "trace",
            events: count,
            each,
            columns: columns.len(),
            end_ns: clock(count.checked_sub(1)?),
            data: data.base64(),
            moments,
            map,
            lines: Vec::new(),
            run: None,
            notes,
        })
    }

    /// What the driver and the framework's counters say, over time; pools that only counters know get a timeline of them.
    fn lines(&self, reading: &Reading, report: &Report, pictures: &mut Vec<PoolPicture>) {
        let Some(accounts) = Accounts::of(reading, &report.pools) else { return };
        for (place, view) in report.pools.iter().enumerate() {
            let Some(counted) = Counted::of(&accounts, view) else { continue };
            let lines =
                counted.lines.into_iter().map(|(name, points)| line(name, &Series::new(points), None));
            if let Some(picture) = pictures.iter_mut().find(|picture| picture.pool == place) {
                picture.lines = lines.collect();
                let goes_on = counted.in_use.last().is_some_and(|point| point.0 > picture.end_ns.0);
                picture.run = goes_on.then(|| line(IN_USE.to_owned(), &Series::new(counted.in_use), None));
            } else if !counted.in_use.is_empty() && pictures.len() < self.room.drawn {
                let end_ns = Nanos(counted.in_use.last().map_or(0, |point| point.0));
                let count = counted.in_use.len();
                let columns = Series::new(counted.in_use).whole(self.room.columns[1]);
                pictures.push(PoolPicture {
                    pool: place,
                    by: "counters",
                    events: count,
                    each: count.div_ceil(columns.len().max(1)),
                    columns: columns.len(),
                    end_ns,
                    data: of_counters(&columns).base64(),
                    moments: Vec::new(),
                    map: None,
                    lines: lines.collect(),
                    run: None,
                    notes: vec![
                        "drawn from the framework's counters, read now and then: what was between two readings is not seen, and no trace says what held it"
                            .to_owned(),
                    ],
                });
            }
        }
    }
}

/// What is known of a pool beside its trace: moments of the report's clock with bytes.
pub(super) struct Counted {
    /// By the driver.
    pub(super) lines: Vec<(String, Vec<(i64, u64)>)>,
    /// By the framework's counters.
    pub(super) in_use: Vec<(i64, u64)>,
}

impl Counted {
    pub(super) fn of(accounts: &Accounts<'_>, view: &PoolView) -> Option<Counted> {
        let books = accounts.books.iter().find(|books| books.device == view.device)?;
        let pids = books.pids();
        // The driver may number the only process otherwise.
        let is_it = |pid: u32| pids.len() == 1 || view.pid == Some(u64::from(pid));
        let series = books.pools.iter().find(|series| series.name == view.name && is_it(series.pid));
        let pid = series.map_or(0, |series| series.pid);
        let clock = |time: i64| accounts.clock(pid, time).0;
        let on_clock = |points: &[(i64, Told)]| -> Vec<(i64, u64)> {
            points.iter().map(|(time, told)| (clock(*time), told.bytes.0)).collect()
        };
        let mut lines = Vec::new();
        if let Some(series) = series.filter(|series| !series.taken.is_empty()) {
            lines.push(("pool, taken from the driver".to_owned(), on_clock(&series.taken)));
        }
        let of_process =
            books.rows.iter().filter(|row| row.is_job == Some(true) && row.pid.is_some_and(is_it));
        let held: Vec<(i64, u64)> =
            of_process.filter_map(|row| Some((clock(row.time.monotonic), row.used?.0))).collect();
        if !held.is_empty() {
            let teller = if books.is_stand_in { "kernel" } else { "driver" };
            lines.push((format!("process, by the {teller}"), held));
        }
        Some(Counted { lines, in_use: series.map_or(Vec::new(), |series| on_clock(&series.in_use)) })
    }
}

/// A line without a breadth shows the most of each column where there are many points.
pub(super) fn line(name: String, series: &Series, window: Option<Range<i64>>) -> LinePicture {
    const MOST: usize = 2000;
    let columns = match window {
        Some(window) => series.window(window, MOST),
        None => series.whole(MOST),
    };
    let points: Vec<(i64, u64)> = match series.points().len() <= MOST {
        true => series.points().collect(),
        false => columns.iter().map(|column| (column.begin, column.summary.max)).collect(),
    };
    let mut data = Packed::default();
    data.column(points.iter().map(|point| point.0));
    data.column(points.iter().map(|point| i64::try_from(point.1).unwrap_or(i64::MAX)));
    LinePicture { name, points: points.len(), data: data.base64() }
}

/// Columns of which only the height is known.
pub(super) fn of_counters(columns: &[Column]) -> Packed {
    let mut data = Packed::default();
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    data.column(columns.iter().map(|column| column.begin));
    data.column(columns.iter().map(|_| 0));
    data.column(columns.iter().map(|column| signed(column.summary.min)));
    data.column(columns.iter().map(|column| signed(column.summary.last)));
    for role in Role::ALL {
        let part = |bytes: u64| if role == Role::Unknown { signed(bytes) } else { 0 };
        data.column(columns.iter().map(|column| part(column.summary.max)));
    }
    data.column(columns.iter().map(|_| 0));
    data.column(columns.iter().map(|_| 0));
    data
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What names a block: the op, else the scope around it.
fn op_of(history: &History, life: &Life) -> Name {
    let event = history.events.at(life.birth);
    if event.op().is_empty() { event.context() } else { event.op() }
}

#[expect(clippy::cast_precision_loss, reason = "a ranking")]
fn area_of(size: Bytes, span: u64) -> f32 {
    size.0 as f32 * (span as f32 + 1.0)
}

pub(super) fn is_of(trace: &Trace, pool: &PoolTrace, view: &PoolView) -> bool {
    let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
    let peak_at = pool
        .peak()
        .map(|peak| pool.time(&trace.history.events, peak.position).on_clock(trace.history.origin));
    name == view.name
        && trace.history.host == view.host
        && Some(pool.allocs) == view.allocs
        && Some(pool.frees) == view.frees
        && peak_at == view.peak_at_ns
}

/// What was held at a moment, with names as numbers.
pub(super) fn moment_of(strings: &mut Strings, held: &HeldView) -> MomentPicture {
    let rows = held.rows.iter().map(|row| {
        let role = Role::ALL.iter().position(|role| role.word() == row.role);
        let role = role.unwrap_or(Role::ALL.len() - 1);
        let texts = [&*row.op, &row.layer, &row.shape, row.dtype, &row.source, &row.variable, row.evidence];
        let [op, layer, shape, dtype, source, variable, evidence] =
            texts.map(|text| Some(strings.number(text) as u64));
        let (bytes, count, role) = (Some(row.bytes.0), Some(row.count), Some(role as u64));
        [bytes, count, role, op, layer, shape, dtype, source, variable, evidence, row.age_ns]
    });
    MomentPicture {
        time_ns: held.time_ns,
        in_use_bytes: held.in_use_bytes,
        slack_bytes: held.slack_bytes,
        before_recording_bytes: held.before_recording_bytes,
        rows: rows.collect(),
        rest_rows: held.rest.as_ref().map_or(0, |rest| rest.rows),
        rest_bytes: held.rest.as_ref().map_or(Bytes::ZERO, |rest| rest.bytes),
    }
}

/// Address by time, of all or of those that live in a window; of many allocations those that cover most of it.
pub(super) fn map_of(
    strings: &mut Strings,
    trace: &Trace,
    pool: &PoolTrace,
    most: usize,
    is_exact: bool,
    window: Option<Range<Picos>>,
) -> Option<MapPicture> {
    let events = &trace.history.events;
    let is_all = window.is_none();
    let window = window.unwrap_or(Picos(i64::MIN)..pool.last_time(events));
    let end = window.end;
    let freed = |life: &Life| life.freed_at.map(|at| pool.time(events, at));
    let lives = || {
        let is_in = |life: &Life| {
            is_all || events.time(life.birth) <= end && freed(life).is_none_or(|freed| freed >= window.start)
        };
        pool.lives().filter(is_in)
    };
    let area = |life: &Life| {
        let span = freed(life).unwrap_or(end).min(end).since(events.time(life.birth).max(window.start)).0;
        area_of(events.at(life.birth).size().unwrap_or_default(), span)
    };
    let has_address = |life: &Life| events.at(life.birth).address().is_some();
    let is_whole = if is_all { pool.allocs <= most as u64 } else { lives().count() <= most };
    let least = if is_whole {
        0.0
    } else {
        let mut areas: Vec<f32> = lives().map(|life| area(&life)).collect();
        let place = areas.len().checked_sub(most)?;
        *areas.select_nth_unstable_by(place, f32::total_cmp).1
    };
    let mut left_out = (0_u64, Bytes::ZERO);
    let mut drawn: Vec<Life> = Vec::new();
    for life in lives() {
        if (is_whole || (drawn.len() < most && area(&life) >= least)) && has_address(&life) {
            drawn.push(life);
        } else {
            left_out.0 += 1;
            left_out.1 = left_out.1.max(events.at(life.birth).size().unwrap_or_default());
        }
    }
    let address = |life: &Life| events.at(life.birth).address().unwrap_or_default();
    let base = drawn.iter().map(address).min()?;
    let mut data = Packed::default();
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let clock = |time: Picos| time.on_clock(trace.history.origin).0;
    let chunk = |life: &Life| events.at(life.birth).size().unwrap_or_default();
    let slack = |life: &Life| {
        chunk(life).saturating_sub(events.at(life.birth).requested().unwrap_or_else(|| chunk(life)))
    };
    data.column(drawn.iter().map(|life| signed(address(life) - base)));
    data.column(drawn.iter().map(|life| signed(chunk(life).0)));
    data.column(drawn.iter().map(|life| signed(slack(life).0)));
    data.column(drawn.iter().map(|life| clock(events.time(life.birth))));
    data.column(drawn.iter().map(|life| {
        let born = clock(events.time(life.birth));
        freed(life).map_or(0, |freed| clock(freed).saturating_sub(born).max(0).saturating_add(1))
    }));
    let roles = drawn.iter().map(|life| trace.role_of(pool, life, freed(life)));
    data.column(roles.map(|role| whole(Role::ALL.iter().position(|&known| known == role).unwrap_or(6))));
    let mut known: FxHashMap<Name, i64> = FxHashMap::default();
    let mut number = |name: Name| {
        *known.entry(name).or_insert_with(|| whole(strings.number(trace.history.names.get(name))))
    };
    data.column(drawn.iter().map(|life| number(op_of(&trace.history, life))));
    data.column(drawn.iter().map(|life| number(events.at(life.birth).shape())));
    if is_whole && is_exact {
        data.column(drawn.iter().map(|life| whole(life.born_at)));
        data.column(drawn.iter().map(|life| life.freed_at.map_or(-1, whole)));
    }
    Some(MapPicture {
        allocations: pool.allocs,
        blocks: drawn.len(),
        is_whole: is_whole && is_exact && left_out.0 == 0,
        base: format!("{base:#x}"),
        data: data.base64(),
        left_out: left_out.0,
        left_out_most_bytes: left_out.1,
    })
}

/// Bytes in use after each event of a pool.
pub(super) fn levels_of(trace: &Trace, pool: &PoolTrace) -> Pyramid {
    Pyramid::new(pool.levels(&trace.history.events).map(|(_, level)| level.0).collect())
}

/// The columns of a timeline: stretches of a pool's events, each with the first of its highest.
pub(super) fn packed(
    trace: &Trace,
    pool: &PoolTrace,
    levels: &Pyramid,
    columns: &[(Range<usize>, usize)],
) -> Packed {
    let clock = |position: usize| pool.time(&trace.history.events, position).on_clock(trace.history.origin);
    let highest: Vec<usize> = columns.iter().map(|(_, highest)| *highest).collect();
    let bands = trace.bands(pool, &highest);
    let mut data = Packed::default();
    data.column(columns.iter().map(|(range, _)| clock(range.start).0));
    data.column(columns.iter().map(|(range, highest)| clock(*highest).0 - clock(range.start).0));
    let summary = |range: &Range<usize>| levels.summary(range.clone());
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    data.column(columns.iter().map(|(range, _)| summary(range).map_or(0, |all| signed(all.min))));
    data.column(columns.iter().map(|(range, _)| summary(range).map_or(0, |all| signed(all.last))));
    for role in 0..Role::ALL.len() {
        let part = |band: &Band| band.by_role.get(role).map_or(0, |bytes| signed(bytes.0));
        data.column(bands.iter().map(part));
    }
    data.column(bands.iter().map(|band| signed(band.slack.0)));
    data.column(bands.iter().map(|band| signed(band.before_recording.0)));
    data
}
