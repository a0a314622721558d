//! The findings of a report.

use serde::Serialize;

use crate::advise::Finding;
use crate::document::Document;
use crate::units::Bytes;

/// One finding.
#[derive(Debug, Serialize, Document)]
pub struct FindingView {
    /// The rule: leak (memory grows with every step), staircase (memory grows with each fit, epoch or retrace), growing-inputs (memory grows because inputs grow), preallocation, cache-not-returned, outside-the-pool, many-streams, cublas-memory, first-launch, other-processes, limit-without-context, peak-elsewhere, fragmentation, shape-churn, one-tensor, slack (rounding), imbalance or outlier-rank. docs/reference/findings.md explains them.
    #[field(unit = "text")]
    pub rule: &'static str,
    /// The bytes it concerns.
    pub bytes: Bytes,
    /// What was found.
    #[field(title = "what")]
    pub text: String,
    /// What to do about it.
    pub fix: String,
    /// How to check whether the fix worked.
    pub verify: String,
}

impl From<Finding> for FindingView {
    fn from(found: Finding) -> FindingView {
        FindingView {
            rule: found.rule,
            bytes: found.bytes,
            text: found.text,
            fix: found.fix,
            verify: found.verify,
        }
    }
}
