//! What the rules found, as rows of a report.

use serde::Serialize;

use crate::advise::Finding;
use crate::document::Document;
use crate::units::Bytes;

/// One thing that is worth knowing.
#[derive(Debug, Serialize, Document)]
pub struct FindingView {
    /// Leak (memory grows with every step), staircase (with each fit, epoch or trace of a function), growing-inputs (because inputs grow), preallocation, cache-not-returned, outside-the-pool, other-processes, limit-without-context, peak-elsewhere, fragmentation, shape-churn, one-tensor, slack or imbalance.
    #[field(unit = "text")]
    pub rule: &'static str,
    /// How many bytes it is about.
    pub bytes: Bytes,
    /// What was found.
    #[field(title = "what")]
    pub text: String,
    /// What to do about it.
    pub fix: String,
    /// How to see whether that helped.
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
