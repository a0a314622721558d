//! The data of a report page: the report itself, and its charts with packed columns.
//!
//! Long columns of numbers are stored as differences in base64; `web/src/data.ts` unpacks them. There is no drawing
//! here: `web/` does that.

use serde::Serialize;
use serde_json::Value;

use super::oom::OomReport;
use super::packed::Packed;
use super::report::Report;
use crate::analysis::picture::block_map::BlockMap;
use crate::analysis::picture::bounds::{PictureRoom, ReportLengths};
use crate::analysis::picture::counted::{FigureLine, LineSubject};
use crate::analysis::picture::moments::{MomentPicture, MomentRow};
use crate::analysis::picture::timeline::Timeline;
use crate::analysis::picture::{Picture, PoolPicture, TimelineOrigin, picture, post_mortem};
use crate::analysis::ranks::steps::{GridFigure, StepGrid, StepsBy};
use crate::analysis::reading::Reading;
use crate::analysis::report::ReportAnalysis;
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};

/// The maximum size of a page's data.
pub const MAX_PAYLOAD_BYTES: usize = 19 << 20;

/// The whole document.
#[derive(Serialize)]
struct PageDocument {
    report: Value,
    oom: Option<Value>,
    roles: [Role; Role::ALL.len()],
    pools: Vec<PoolPictureView>,
    strings: Vec<String>,
    aggregated: Vec<String>,
    grid: Option<StepGridView>,
}

/// The memory of each rank by step.
#[derive(Serialize)]
struct StepGridView {
    by: StepsBy,
    /// Number of steps per column.
    width: i64,
    figure: GridFigure,
    columns: usize,
    rows: usize,
    not_matched: usize,
    /// The first step of each column, then each row: bytes plus one, 0 where unknown.
    data: String,
}

impl From<&StepGrid> for StepGridView {
    fn from(grid: &StepGrid) -> StepGridView {
        let mut data = Packed::default();
        data.column(grid.steps.iter().copied());
        for row in &grid.rows {
            let cells: Vec<u64> =
                row.iter().map(|cell| cell.map_or(0, |bytes| bytes.0.saturating_add(1))).collect();
            data.bytes(&cells);
        }
        StepGridView {
            by: grid.by,
            width: grid.width,
            figure: grid.figure,
            columns: grid.steps.len(),
            rows: grid.rows.len(),
            not_matched: grid.not_matched,
            data: data.base64(),
        }
    }
}

/// The charts of one pool.
#[derive(Serialize)]
struct PoolPictureView {
    /// Its index in the report's pools.
    pool: usize,
    by: TimelineOrigin,
    events: usize,
    /// Number of events per column.
    each: usize,
    columns: usize,
    /// End time of the last column.
    end_ns: Nanos,
    /// Times, times of the highest moment of each column, minimum, last value, then the parts at the highest moment: roles, rounding, before.
    data: String,
    moments: Vec<MomentView>,
    map: Option<BlockMapView>,
    lines: Vec<FigureLineView>,
    /// The framework's counters over the whole run, if the run continues after the trace.
    run: Option<FigureLineView>,
    notes: Vec<String>,
}

/// What was held at a moment.
#[derive(Serialize)]
pub(super) struct MomentView {
    time_ns: Option<Nanos>,
    in_use_bytes: Bytes,
    slack_bytes: Bytes,
    before_recording_bytes: Bytes,
    /// Each row: bytes, count, role, op, layer, shape, type, source, variable, evidence, age.
    rows: Vec<[Option<u64>; 11]>,
    rest_rows: usize,
    rest_bytes: Bytes,
}

/// Allocations by address and time.
#[derive(Serialize)]
pub(super) struct BlockMapView {
    allocations: u64,
    blocks: usize,
    /// Whether the list is complete and has positions.
    is_whole: bool,
    /// The lowest address, in hexadecimal.
    base: String,
    /// Addresses, block sizes, rounding, birth times, lifetimes plus one (0: not freed), roles, ops, shapes; then births and deaths by position.
    data: String,
    /// The number of omitted blocks, and the largest of them.
    left_out: u64,
    left_out_most_bytes: Bytes,
}

/// A line across the timeline.
#[derive(Serialize)]
pub(super) struct FigureLineView {
    name: LineSubject,
    points: usize,
    /// Times and values.
    data: String,
}

/// The page's data as JSON without `<`, so that it can be embedded in a page. At most [`MAX_PAYLOAD_BYTES`] long. It contains the part of
/// the report that the page shows.
#[must_use]
pub fn payload(reading: &Reading, report: &mut ReportAnalysis) -> String {
    let oom = post_mortem(reading, |oom| OomReport::from(oom));
    let lengths = ReportLengths::of(report);
    let mut room = PictureRoom::default();
    loop {
        let picture = picture(reading, report, &lengths, room);
        let text = plain_json(&PageDocument::new(picture, report, oom.as_ref(), room));
        match room.smaller() {
            Some(smaller) if text.len() > MAX_PAYLOAD_BYTES => room = smaller,
            _ => return text,
        }
    }
}

/// Escapes `<` in JSON; it occurs only inside strings, where an escape is allowed.
pub(super) fn plain_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if text.contains('<') { text.replace('<', "\\u003c") } else { text }
}

impl PageDocument {
    fn new(
        picture: Picture,
        report: &ReportAnalysis,
        oom: Option<&OomReport>,
        room: PictureRoom,
    ) -> PageDocument {
        PageDocument {
            report: cut(&Report::from(report.clone()), room),
            oom: oom.map(|oom| cut(oom, room)),
            roles: Role::ALL,
            pools: picture.pools.into_iter().map(PoolPictureView::from).collect(),
            strings: picture.names,
            aggregated: picture.aggregated,
            grid: report.ranks.as_ref().and_then(|ranks| ranks.grid.as_ref()).map(StepGridView::from),
        }
    }
}

/// A document with its texts and lists shortened to the available room.
fn cut(document: &impl Serialize, room: PictureRoom) -> Value {
    let mut value = serde_json::to_value(document).unwrap_or_default();
    cut_value(&mut value, room);
    value
}

fn cut_value(value: &mut Value, room: PictureRoom) {
    match value {
        Value::String(text) => room.cut_text(text),
        Value::Array(items) => {
            items.truncate(room.max_list());
            items.iter_mut().for_each(|item| cut_value(item, room));
        }
        Value::Object(map) => map.values_mut().for_each(|value| cut_value(value, room)),
        _ => {}
    }
}

impl From<PoolPicture> for PoolPictureView {
    fn from(pool: PoolPicture) -> PoolPictureView {
        PoolPictureView {
            pool: pool.place,
            by: pool.origin,
            events: pool.events,
            each: pool.events_per_column,
            columns: pool.timeline.len(),
            end_ns: pool.end,
            data: packed_timeline(&pool.timeline),
            moments: pool.moments.iter().map(MomentView::from).collect(),
            map: pool.map.as_ref().map(BlockMapView::from),
            lines: pool.lines.iter().map(FigureLineView::from).collect(),
            run: pool.run.as_ref().map(FigureLineView::from),
            notes: pool.notes,
        }
    }
}

impl From<&MomentPicture> for MomentView {
    fn from(moment: &MomentPicture) -> MomentView {
        MomentView {
            time_ns: moment.time,
            in_use_bytes: moment.in_use,
            slack_bytes: moment.slack,
            before_recording_bytes: moment.before_recording,
            rows: moment.rows.iter().map(row).collect(),
            rest_rows: moment.rest.rows,
            rest_bytes: moment.rest.bytes,
        }
    }
}

fn row(row: &MomentRow) -> [Option<u64>; 11] {
    let number = |number: usize| Some(number as u64);
    [
        Some(row.bytes.0),
        Some(row.count),
        number(place_of(row.role)),
        number(row.op),
        number(row.layer),
        number(row.shape),
        number(row.dtype),
        number(row.source),
        number(row.variable),
        number(row.evidence),
        row.age_ns,
    ]
}

/// The index of a role in the page's list of roles.
fn place_of(role: Role) -> usize {
    Role::ALL.iter().position(|&known| known == role).unwrap_or_default()
}

impl From<&BlockMap> for BlockMapView {
    fn from(map: &BlockMap) -> BlockMapView {
        let mut data = Packed::default();
        data.bytes(&map.offset);
        data.bytes(&map.chunk);
        data.bytes(&map.slack);
        data.column(map.born.iter().copied());
        data.column(map.held.iter().map(|held| held.map_or(0, |held| held.saturating_add(1))));
        data.places(map.role.iter().map(|&role| place_of(role)));
        data.places(map.op.iter().copied());
        data.places(map.shape.iter().copied());
        if let Some(positions) = &map.positions {
            let signed = |place: usize| i64::try_from(place).unwrap_or(i64::MAX);
            data.places(positions.born.iter().copied());
            data.column(positions.freed.iter().map(|freed| freed.map_or(-1, signed)));
        }
        BlockMapView {
            allocations: map.allocations,
            blocks: map.len(),
            is_whole: map.is_whole,
            base: format!("{:#x}", map.base),
            data: data.base64(),
            left_out: map.left_out,
            left_out_most_bytes: map.left_out_largest,
        }
    }
}

impl From<&FigureLine> for FigureLineView {
    fn from(line: &FigureLine) -> FigureLineView {
        let mut data = Packed::default();
        data.column(line.times.iter().copied());
        data.bytes(&line.bytes);
        FigureLineView { name: line.subject, points: line.times.len(), data: data.base64() }
    }
}

/// The columns of a timeline as text.
pub(super) fn packed_timeline(timeline: &Timeline) -> String {
    let mut data = Packed::default();
    data.column(timeline.begin.iter().copied());
    data.column(timeline.highest_after.iter().copied());
    data.bytes(&timeline.least);
    data.bytes(&timeline.last);
    timeline.by_role.iter().for_each(|role| data.bytes(role));
    data.bytes(&timeline.slack);
    data.bytes(&timeline.before_recording);
    data.base64()
}
