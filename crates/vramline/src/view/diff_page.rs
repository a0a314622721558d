//! What the page of a comparison is drawn from: the comparison itself, and of each run how its pools rise and fall within the steps.
//!
//! Runs differ in speed, so time says nothing: a step is as wide as a step, whatever it took, and the n-th of one run is drawn over the
//! n-th of the other. Everything is bounded, and what was left out is said.

use serde::Serialize;

use super::diff::{Diff, change};
use super::html::plain_json;
use crate::Reading;
use crate::timeline::Series;

/// Columns of a step, and steps.
const COLUMNS: usize = 64;
const STEPS: usize = 48;
/// Rows of each grouping that a page lists, and of steps.
const ROWS: usize = 400;
const STEP_ROWS: usize = 4000;
/// Pools of a run that have a curve.
const POOLS: usize = 12;

/// How a pool rises and falls within the traced steps of a run.
#[derive(Debug, Serialize)]
pub struct Curve {
    /// The pool.
    pub pool: String,
    /// Its device.
    pub device: String,
    /// The steps' own numbers.
    pub steps: Vec<i64>,
    /// The highest of each column, so many columns a step; nothing before the pool's first event.
    pub bytes: Vec<Option<u64>>,
}

/// The curves of a run, highest pools first.
#[must_use]
pub fn curves(reading: &Reading) -> Vec<Curve> {
    let mut curves: Vec<(u64, Curve)> = Vec::new();
    for host in &reading.hosts {
        let trace = &host.trace;
        let steps: Vec<_> = trace.steps.iter().take(STEPS).collect();
        if steps.is_empty() {
            continue;
        }
        for pool in &trace.pools {
            let levels = pool.levels(&trace.history.events);
            let series = Series::new(levels.map(|(time, level)| (time.0, level.0)));
            let mut bytes = Vec::new();
            for step in &steps {
                let columns = series.window(step.begin.0..step.until.0, COLUMNS);
                // The first are missing where there was nothing yet; in a step of a few picoseconds, the last.
                let short = COLUMNS.saturating_sub(columns.len());
                bytes.extend(std::iter::repeat_n(None, short));
                bytes.extend(columns.iter().map(|column| Some(column.summary.max)));
            }
            curves.push((
                pool.peak().map_or(0, |peak| peak.bytes.0),
                Curve {
                    pool: trace.history.pool(pool.id).map_or(String::new(), |pool| pool.name.clone()),
                    device: trace.device_of(pool),
                    steps: steps.iter().map(|step| step.number).collect(),
                    bytes,
                },
            ));
        }
    }
    curves.sort_by_key(|(peak, _)| std::cmp::Reverse(*peak));
    curves.into_iter().take(POOLS).map(|(_, curve)| curve).collect()
}

#[derive(Serialize)]
struct Payload<'a> {
    diff: &'a Diff,
    /// By run; of several repeats, the first's.
    curves: &'a [Vec<Curve>],
    columns: usize,
    aggregated: Vec<String>,
}

/// The page's data as JSON that may stand inside a page: it has no `<`. Of the comparison remains what the page has of it.
#[must_use]
pub fn payload(document: &mut Diff, curves: &[Vec<Curve>]) -> String {
    let mut aggregated = Vec::new();
    for (by, most) in [("op", ROWS), ("layer", ROWS), ("step", STEP_ROWS)] {
        let mut order: Vec<usize> = (0..document.rows.len())
            .filter(|&at| document.rows.get(at).is_some_and(|row| row.by == by))
            .collect();
        let all = order.len();
        if all <= most {
            continue;
        }
        if by != "step" {
            order.sort_by_key(|&at| std::cmp::Reverse(document.rows.get(at).map(change)));
        }
        let mut kept: Vec<usize> = order.into_iter().take(most).collect();
        kept.sort_unstable();
        let what = if by == "step" { "the first" } else { "those that changed most" };
        aggregated.push(format!("{most} of {all} {by}s are listed, {what}"));
        let mut at = 0..;
        document.rows.retain(|row| {
            let at = at.next().unwrap_or_default();
            row.by != by || kept.binary_search(&at).is_ok()
        });
    }
    plain_json(&Payload { diff: document, curves, columns: COLUMNS, aggregated })
}
