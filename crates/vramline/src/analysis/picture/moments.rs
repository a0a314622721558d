//! The moments of a pool that a page keeps row by row.

use super::names::PictureNames;
use crate::analysis::held::{GroupBy, HeldRow, HeldRows, NameTables, RestOfRows};
use crate::dtype::Dtype;
use crate::snapshot::Role;
use crate::timeline::Pyramid;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos};

/// What a pool held at a moment: rows + rest + slack + before the recording = in use.
#[derive(Clone, Debug)]
pub struct MomentPicture {
    /// The moment, on the source's clock.
    pub time: Option<Nanos>,
    /// In use then.
    pub in_use: Bytes,
    /// Rounding: allocated beyond the requests.
    pub slack: Bytes,
    /// In use, but allocated before the source begins.
    pub before_recording: Bytes,
    /// The rows, the most bytes first.
    pub rows: Vec<MomentRow>,
    /// The rows that were left out, summed up.
    pub rest: RestOfRows,
}

/// A group of blocks; its names are numbers of the picture's table.
#[derive(Clone, Copy, Debug)]
pub struct MomentRow {
    /// Requested by all of them.
    pub bytes: Bytes,
    /// How many blocks.
    pub count: u64,
    /// What they are for.
    pub role: Role,
    /// The op that requested them.
    pub op: usize,
    /// The model layer.
    pub layer: usize,
    /// Their shape.
    pub shape: usize,
    /// The word of their element type.
    pub dtype: usize,
    /// The place in the program.
    pub source: usize,
    /// The variable whose value they are.
    pub variable: usize,
    /// What the role rests on.
    pub evidence: usize,
    /// How long the oldest had been held, in nanoseconds.
    pub age_ns: Option<u64>,
}

impl MomentPicture {
    pub(super) fn of(names: &mut PictureNames, held: &HeldRows) -> MomentPicture {
        MomentPicture {
            time: held.time,
            in_use: held.in_use,
            slack: held.slack,
            before_recording: held.before_recording,
            rows: held.rows.iter().map(|row| MomentRow::of(names, row)).collect(),
            rest: held.rest.unwrap_or_default(),
        }
    }
}

impl MomentRow {
    fn of(names: &mut PictureNames, row: &HeldRow) -> MomentRow {
        let dtype = row.dtype.map_or("", Dtype::word);
        MomentRow {
            bytes: row.bytes,
            count: row.count,
            role: row.role.unwrap_or(Role::Unknown),
            op: names.number(&row.op),
            layer: names.number(&row.layer),
            shape: names.number(&row.shape),
            dtype: names.number(dtype),
            source: names.number(&row.source),
            variable: names.number(&row.variable),
            evidence: names.number(row.evidence),
            age_ns: row.age_ns,
        }
    }
}

/// Positions of the moments that are kept: the highest of each of `max_moments` parts of the trace, and the peak.
pub(super) fn kept_positions(pool: &PoolTrace, levels: &Pyramid, max_moments: usize) -> Vec<usize> {
    let count = pool.event_count();
    let each = count.div_ceil(max_moments).max(1);
    let mut kept: Vec<usize> = (0..count.div_ceil(each))
        .filter_map(|at| Some(levels.highest(at * each..((at + 1) * each).min(count))?.0))
        .chain(pool.peak().map(|peak| peak.position))
        .collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// What a pool held at each of `positions`, which are in order, in at most `max_rows` rows each.
pub(super) fn moments(
    names: &mut PictureNames,
    trace: &Trace,
    pool: &PoolTrace,
    positions: &[usize],
    max_rows: usize,
) -> Vec<MomentPicture> {
    let tables = NameTables::of_history(&trace.history);
    trace
        .snapshots(pool, positions)
        .iter()
        .map(|moment| MomentPicture::of(names, &tables.rows(moment, GroupBy::Op, Some(max_rows))))
        .collect()
}
