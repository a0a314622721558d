//! A detail of a page's chart, packed like the page itself: a time window or a moment.

use std::ops::Range;

use serde::Serialize;

use super::page::{BlockMapView, FigureLineView, MomentView, packed_timeline, plain_json};
use crate::analysis::picture::tiles::{MomentTile, PictureTiles, WindowTile};
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};

/// A time window of a pool's chart.
#[derive(Serialize)]
struct WindowDocument {
    pool: usize,
    from_ns: Nanos,
    to_ns: Nanos,
    /// Number of events in the window, and whether each is a column.
    events: usize,
    is_exact: bool,
    columns: usize,
    data: String,
    map: Option<BlockMapView>,
    lines: Vec<FigureLineView>,
    strings: Vec<String>,
}

/// What a pool held at a moment.
#[derive(Serialize)]
struct MomentDocument {
    pool: usize,
    roles: [Role; Role::ALL.len()],
    moment: MomentView,
    strings: Vec<String>,
}

/// A time window of a pool's chart as JSON without `<`, in `width` columns; `None` if there is no such pool.
#[must_use]
pub fn window_json(tiles: &PictureTiles, pool: usize, window: Range<Nanos>, width: usize) -> Option<String> {
    tiles.window(pool, window, width).map(|tile| plain_json(&WindowDocument::from(tile)))
}

/// What a pool held at a moment at which it held `bytes`, as JSON without `<`; `None` if there was no such moment.
#[must_use]
pub fn moment_json(tiles: &PictureTiles, pool: usize, at: Nanos, bytes: Bytes) -> Option<String> {
    tiles.moment(pool, at, bytes).map(|tile| plain_json(&MomentDocument::from(tile)))
}

impl From<WindowTile> for WindowDocument {
    fn from(tile: WindowTile) -> WindowDocument {
        WindowDocument {
            pool: tile.place,
            from_ns: tile.window.start,
            to_ns: tile.window.end,
            events: tile.events,
            is_exact: tile.is_exact,
            columns: tile.timeline.len(),
            data: packed_timeline(&tile.timeline),
            map: tile.map.as_ref().map(BlockMapView::from),
            lines: tile.lines.iter().map(FigureLineView::from).collect(),
            strings: tile.names,
        }
    }
}

impl From<MomentTile> for MomentDocument {
    fn from(tile: MomentTile) -> MomentDocument {
        MomentDocument {
            pool: tile.place,
            roles: Role::ALL,
            moment: MomentView::from(&tile.moment),
            strings: tile.names,
        }
    }
}
