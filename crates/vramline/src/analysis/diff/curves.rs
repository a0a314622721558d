//! How the pools of a run rise and fall within its traced steps.
//!
//! Runs differ in speed, so time says nothing: a step is as wide as a step, whatever it took, and the n-th of one run is drawn over the
//! n-th of the other.

use std::cmp::Reverse;

use crate::analysis::reading::Reading;
use crate::timeline::Series;
use crate::units::Bytes;

/// Columns of a step.
pub(crate) const CURVE_COLUMNS: usize = 64;
/// Steps of a curve.
const MAX_STEPS: usize = 48;
/// Pools of a run that have a curve.
const MAX_POOLS: usize = 12;

/// How a pool rises and falls within the traced steps of a run.
#[derive(Clone, Debug)]
pub struct PoolCurve {
    /// The pool.
    pub pool: String,
    /// Its device.
    pub device: String,
    /// The steps' own numbers.
    pub steps: Vec<i64>,
    /// The highest of each column, `CURVE_COLUMNS` a step; nothing before the pool's first event.
    pub bytes: Vec<Option<Bytes>>,
}

/// The curves of a run, highest pools first; pools and steps beyond the first are left out.
#[must_use]
pub fn pool_curves(reading: &Reading) -> Vec<PoolCurve> {
    let mut curves: Vec<(Bytes, PoolCurve)> = Vec::new();
    for host in &reading.hosts {
        let trace = &host.trace;
        let steps: Vec<_> = trace.steps.iter().take(MAX_STEPS).collect();
        if steps.is_empty() {
            continue;
        }
        for pool in &trace.pools {
            let levels = pool.levels(&trace.history.events);
            let series = Series::new(levels.map(|(time, level)| (time.0, level.0)));
            let mut bytes = Vec::new();
            for step in &steps {
                let columns = series.window(step.begin.0..step.until.0, CURVE_COLUMNS);
                // The first are missing where there was nothing yet; in a step of a few picoseconds, the last.
                let short = CURVE_COLUMNS.saturating_sub(columns.len());
                bytes.extend(std::iter::repeat_n(None, short));
                bytes.extend(columns.iter().map(|column| Some(Bytes(column.summary.max))));
            }
            curves.push((
                pool.peak().map_or(Bytes::ZERO, |peak| peak.bytes),
                PoolCurve {
                    pool: host.pool_name(pool).to_owned(),
                    device: trace.device_of(pool),
                    steps: steps.iter().map(|step| step.number).collect(),
                    bytes,
                },
            ));
        }
    }
    curves.sort_by_key(|(peak, _)| Reverse(*peak));
    curves.into_iter().take(MAX_POOLS).map(|(_, curve)| curve).collect()
}
