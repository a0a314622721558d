//! A prediction compared with a measurement, as a document.

use serde::Serialize;

use crate::analysis::verify::{VerifyAnalysis, VerifyVerdict};
use crate::document::{Document, Unknowns};
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Debug, Serialize, Document)]
pub struct Verify {
    /// `verify`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: VerifyVerdictView,
    /// The batch size.
    pub batch: u64,
    /// The fix; several are joined by `+`; empty if only the batch size was measured.
    pub fix: String,
    /// The predicted peak, with the fix if there is one; null if it cannot be computed.
    #[field(null = "the effect of the fix cannot be predicted, only measured")]
    pub predicted_bytes: Option<Bytes>,
    /// Lower bound without the fix: nearly every run needs at least this.
    #[field(title = "lowest")]
    pub predicted_low_bytes: Bytes,
    /// Upper bound without the fix: nearly no run needs more.
    #[field(title = "highest")]
    pub predicted_high_bytes: Bytes,
    /// The median of the measured peaks, with the fix if there is one.
    pub measured_bytes: Bytes,
    /// Each measured peak, in ascending order.
    pub runs_bytes: Vec<Bytes>,
    /// The predicted peak without the fix.
    #[field(title = "predicted without")]
    pub without_predicted_bytes: Bytes,
    /// The median of the measured peaks without the fix.
    #[field(title = "measured without")]
    pub without_measured_bytes: Bytes,
    /// Each of those peaks.
    #[field(title = "runs without")]
    pub without_runs_bytes: Vec<Bytes>,
    /// The predicted saving; zero without a fix, negative if it needs more.
    #[field(null = "the effect of the fix cannot be predicted, only measured")]
    pub predicted_saving_bytes: Option<i64>,
    /// The measured saving.
    pub measured_saving_bytes: i64,
    /// Difference between prediction and measurement, as a share of the peak without the fix: of the savings if there is a fix, otherwise of the peaks.
    #[field(
        title = "difference",
        unit = "share",
        null = "the effect of the fix cannot be predicted, only measured"
    )]
    pub off_share: Option<f64>,
    /// The allowed difference.
    #[field(unit = "share")]
    pub tolerance: f64,
    /// Whether the difference is within the tolerance.
    #[field(null = "the effect of the fix cannot be predicted, only measured")]
    pub agrees: Option<bool>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

impl From<VerifyAnalysis> for Verify {
    fn from(verified: VerifyAnalysis) -> Verify {
        let mut document = Verify {
            kind: "verify",
            fix: verified.fix_names(),
            unknowns: Vec::new(),
            verdict: VerifyVerdictView {
                word: verified.verdict,
                predicted_bytes: verified.predicted,
                measured_bytes: verified.measured,
            },
            headline: verified.headline,
            batch: verified.batch,
            predicted_bytes: verified.predicted,
            predicted_low_bytes: verified.predicted_low,
            predicted_high_bytes: verified.predicted_high,
            measured_bytes: verified.measured,
            runs_bytes: verified.runs,
            without_predicted_bytes: verified.without_predicted,
            without_measured_bytes: verified.without_measured,
            without_runs_bytes: verified.without_runs,
            predicted_saving_bytes: verified.predicted_saving,
            measured_saving_bytes: verified.measured_saving,
            off_share: verified.off_share,
            tolerance: verified.tolerance,
            agrees: verified.agrees,
            warnings: verified.warnings,
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct VerifyVerdictView {
    /// `as-predicted`, `not-as-predicted` or `measured` (the effect of the fix cannot be predicted).
    #[field(title = "verdict")]
    pub word: VerifyVerdict,
    /// The predicted peak, with the fix if there is one.
    #[field(null = "the effect of the fix cannot be predicted, only measured")]
    pub predicted_bytes: Option<Bytes>,
    /// The median of the measured peaks.
    pub measured_bytes: Bytes,
}
