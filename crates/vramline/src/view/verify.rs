//! A prediction beside what was measured, as a document.

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
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
    pub verdict: VerifyVerdictView,
    /// The batch.
    pub batch: u64,
    /// What was tried; several joined by `+`; empty where only the batch was measured.
    pub fix: String,
    /// The peak that was predicted, with the fix where there is one; null where requests do not tell it.
    #[field(null = "requests do not tell what the fix would do: it is measured only")]
    pub predicted_bytes: Option<Bytes>,
    /// Without the fix: nearly every run takes at least this.
    #[field(title = "lowest")]
    pub predicted_low_bytes: Bytes,
    /// Without the fix: nearly no run takes more.
    #[field(title = "highest")]
    pub predicted_high_bytes: Bytes,
    /// The middle of the measured peaks, with the fix where there is one.
    pub measured_bytes: Bytes,
    /// Each measured peak, in ascending order.
    pub runs_bytes: Vec<Bytes>,
    /// The peak that was predicted without the fix.
    #[field(title = "predicted without")]
    pub without_predicted_bytes: Bytes,
    /// The middle of the peaks without the fix.
    #[field(title = "measured without")]
    pub without_measured_bytes: Bytes,
    /// Each of them.
    #[field(title = "runs without")]
    pub without_runs_bytes: Vec<Bytes>,
    /// What the fix was to save; zero without one, negative where it costs.
    #[field(null = "requests do not tell what the fix would do: it is measured only")]
    pub predicted_saving_bytes: Option<i64>,
    /// What it saved.
    pub measured_saving_bytes: i64,
    /// How far the two are apart, as a share of the peak without the fix: the savings where there is a fix, else the peaks.
    #[field(
        title = "off",
        unit = "share",
        null = "requests do not tell what the fix would do: it is measured only"
    )]
    pub off_share: Option<f64>,
    /// How far they may be.
    #[field(unit = "share")]
    pub tolerance: f64,
    /// Whether they are not farther.
    #[field(null = "requests do not tell what the fix would do: it is measured only")]
    pub agrees: Option<bool>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
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

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct VerifyVerdictView {
    /// `as-predicted`, `not-as-predicted` or `measured` (requests do not tell what the fix would do).
    #[field(title = "verdict")]
    pub word: VerifyVerdict,
    /// The peak that was predicted, with the fix where there is one.
    #[field(null = "requests do not tell what the fix would do: it is measured only")]
    pub predicted_bytes: Option<Bytes>,
    /// The middle of the measured peaks.
    pub measured_bytes: Bytes,
}
