//! The data of a comparison page: the comparison itself, and the memory of each run's pools within the steps.

use serde::Serialize;

use super::diff::{Diff, DiffRow};
use super::page::plain_json;
use crate::analysis::diff::{CURVE_COLUMNS, DiffAnalysis, ListedRows, PoolCurve, RowCut};
use crate::units::Bytes;

#[derive(Serialize)]
struct CurveView<'a> {
    pool: &'a str,
    device: &'a str,
    steps: &'a [i64],
    bytes: &'a [Option<Bytes>],
}

impl<'a> From<&'a PoolCurve> for CurveView<'a> {
    fn from(curve: &'a PoolCurve) -> CurveView<'a> {
        CurveView { pool: &curve.pool, device: &curve.device, steps: &curve.steps, bytes: &curve.bytes }
    }
}

#[derive(Serialize)]
struct Payload<'a> {
    diff: Diff,
    /// By run; for repeats, of the first one.
    curves: Vec<Vec<CurveView<'a>>>,
    columns: usize,
    aggregated: Vec<String>,
}

/// The page's data as JSON without `<`, so that it can be embedded in a page. It contains the part of the comparison that the page lists.
#[must_use]
pub fn payload(diff: &DiffAnalysis, curves: &[Vec<PoolCurve>]) -> String {
    let listed = diff.page_rows();
    let rows = listed.rows.into_iter().map(DiffRow::from).collect();
    plain_json(&Payload {
        diff: Diff { rows, ..Diff::from(diff) },
        curves: curves.iter().map(|run| run.iter().map(CurveView::from).collect()).collect(),
        columns: CURVE_COLUMNS,
        aggregated: listed.cuts.iter().map(cut_text).collect(),
    })
}

fn cut_text(cut: &RowCut) -> String {
    let which = match cut.which {
        ListedRows::First => "the first",
        ListedRows::MostChanged => "those that changed most",
    };
    format!("the page lists {} of {} {}s, {which}", cut.listed, cut.all, cut.by.word())
}
