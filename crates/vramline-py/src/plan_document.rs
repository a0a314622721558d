//! The JSON document of a plan, with what the core reads of it as Python attributes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vramline::analysis::plan;

/// A plan, read from the output of `vramline plan --json`. Sizes are in bytes.
#[pyclass(module = "_vramline", frozen, get_all)]
pub(crate) struct PlanDocument {
    headline: String,
    variable: String,
    framework: Option<&'static str>,
    limit: Option<u64>,
    certain: bool,
    sure: Option<u64>,
    expected: Option<u64>,
    likely: Option<u64>,
    /// The batch size that real runs under the limit have confirmed.
    confirmed: Option<u64>,
    /// The number of these runs.
    passes: u64,
    predictions: Vec<PlannedBatch>,
    doubts: Vec<String>,
    /// The JSON text that was read.
    json: String,
}

/// The prediction of a plan for one batch size. Sizes are in bytes.
#[pyclass(module = "_vramline", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct PlannedBatch {
    batch: u64,
    peak: u64,
    low: u64,
    high: u64,
    minimum: Option<u64>,
    fits: Option<bool>,
}

#[pymethods]
impl PlanDocument {
    #[new]
    fn new(text: String) -> PyResult<PlanDocument> {
        let plan =
            plan::PlanDocument::parse(&text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let batch = |each: plan::PlannedBatch| PlannedBatch {
            batch: each.batch,
            peak: each.peak_bytes.0,
            low: each.low_bytes.0,
            high: each.high_bytes.0,
            minimum: each.minimum_bytes.map(|bytes| bytes.0),
            fits: each.fits,
        };
        Ok(PlanDocument {
            headline: plan.headline,
            variable: plan.variable,
            framework: plan.framework.map(vramline::event::Framework::word),
            limit: plan.limit_bytes.map(|bytes| bytes.0),
            certain: plan.certain,
            sure: plan.largest_batch.sure,
            expected: plan.largest_batch.expected,
            likely: plan.largest_batch.likely,
            confirmed: plan.confirmation.batch.filter(|_| plan.confirmation.confirmed),
            passes: plan.confirmation.passes,
            predictions: plan.predictions.into_iter().map(batch).collect(),
            doubts: plan.warnings.into_iter().map(|warning| warning.text).collect(),
            json: text,
        })
    }
}
