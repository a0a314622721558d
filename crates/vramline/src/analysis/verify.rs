//! Compares a prediction with a measurement.

use super::reading::Reading;
use crate::plan::Fix;
use crate::units::Bytes;
use crate::warning::Warning;

/// The prediction of a plan.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The batch size.
    pub batch: u64,
    /// The fixes.
    pub fixes: Vec<Fix>,
    /// The predicted peak without them.
    pub peak: Bytes,
    /// Its lower bound.
    pub low: Bytes,
    /// Its upper bound.
    pub high: Bytes,
    /// The peak with them, if it can be computed.
    pub fixed_peak: Option<Bytes>,
}

/// Peaks of several runs, in ascending order.
#[derive(Clone, Debug)]
pub struct Measured(Vec<Bytes>);

impl Measured {
    /// Sorts peaks.
    #[must_use]
    pub fn of(mut peaks: Vec<Bytes>) -> Measured {
        peaks.sort_unstable();
        Measured(peaks)
    }

    /// Their spread; `None` for a single run.
    fn spread(&self) -> Option<Bytes> {
        let [least, .., most] = self.0.as_slice() else { return None };
        Some(most.saturating_sub(*least))
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> Option<Bytes> {
        self.0.get(self.0.len() / 2).copied()
    }
}

/// The result of a verification.
#[derive(Clone, Debug)]
pub struct VerifyAnalysis {
    /// The answer as a word.
    pub verdict: VerifyVerdict,
    /// The answer as a sentence.
    pub headline: String,
    /// The batch size.
    pub batch: u64,
    /// The measured fixes; empty if only the batch size was measured.
    pub fixes: Vec<Fix>,
    /// The predicted peak with the fixes; `None` if it cannot be computed.
    pub predicted: Option<Bytes>,
    /// Lower bound without the fixes.
    pub predicted_low: Bytes,
    /// Upper bound without the fixes.
    pub predicted_high: Bytes,
    /// The median of the runs with the fixes.
    pub measured: Bytes,
    /// The peak of each of those runs.
    pub runs: Vec<Bytes>,
    /// The predicted peak without the fixes.
    pub without_predicted: Bytes,
    /// The median of the runs without them.
    pub without_measured: Bytes,
    /// The peak of each of those runs.
    pub without_runs: Vec<Bytes>,
    /// The predicted saving; negative if the fixes need more.
    pub predicted_saving: Option<i64>,
    /// The measured saving.
    pub measured_saving: i64,
    /// The error of the prediction, as a share of the peak.
    pub off_share: Option<f64>,
    /// The allowed error.
    pub tolerance: f64,
    /// Whether the error is within it.
    pub agrees: Option<bool>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
}

/// Whether a prediction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyVerdict {
    /// It does, within the tolerance.
    AsPredicted,
    /// It does not.
    NotAsPredicted,
    /// There was none, only a measurement.
    Measured,
}

words!(VerifyVerdict {
    AsPredicted => "as-predicted",
    NotAsPredicted => "not-as-predicted",
    Measured => "measured",
});

/// The highest peak in a reading, of the selected pools.
#[must_use]
pub fn peak(reading: &Reading, pool: Option<&str>) -> Option<Bytes> {
    let traced = reading.highest_pool(pool).and_then(|(_, pool)| pool.peak());
    traced.map(|peak| peak.bytes).or_else(|| counted(reading))
}

/// The framework's own peak on a GPU, because the driver's own pool has no trace.
fn counted(reading: &Reading) -> Option<Bytes> {
    let marks = reading.recorded.as_ref()?.processes.iter().flat_map(|process| &process.marks);
    let counters =
        marks.flat_map(|mark| &mark.counters).filter(|counters| counters.device.starts_with("GPU"));
    counters.filter_map(|counters| u64::try_from(counters.peak?).ok()).max().map(Bytes)
}

/// Compares prediction and measurement: of the peak without fixes, of the saving with fixes. The tolerance is a share of the peak.
#[must_use]
pub fn verify(
    predicted: &Predicted,
    base: Measured,
    fixed: Option<Measured>,
    tolerance: f64,
) -> VerifyAnalysis {
    let without = base.median().unwrap_or_default();
    let measured = fixed.as_ref().and_then(Measured::median).unwrap_or(without);
    let has_fix = fixed.is_some();
    let predicted_peak = if has_fix { predicted.fixed_peak } else { Some(predicted.peak) };
    let predicted_saving = predicted_peak.map(|peak| saved(predicted.peak, peak));
    let measured_saving = saved(without, measured);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let off_share = predicted_saving.map(|saving| {
        let off = if has_fix { saving - measured_saving } else { saved(predicted.peak, measured) };
        (off as f64 / without.0.max(1) as f64 * 1e4).round() / 1e4
    });
    let agrees = off_share.map(|share| share.abs() <= tolerance);
    let spread = base.spread().max(fixed.as_ref().and_then(Measured::spread));
    let is_noise = has_fix && spread.is_none_or(|spread| Bytes(measured_saving.unsigned_abs()) <= spread);
    let verdict = match agrees {
        Some(true) => VerifyVerdict::AsPredicted,
        Some(false) => VerifyVerdict::NotAsPredicted,
        None => VerifyVerdict::Measured,
    };
    let mut analysis = VerifyAnalysis {
        verdict,
        headline: String::new(),
        batch: predicted.batch,
        fixes: predicted.fixes.clone(),
        predicted: predicted_peak,
        predicted_low: predicted.low,
        predicted_high: predicted.high,
        measured,
        runs: fixed.map_or_else(|| base.0.clone(), |fixed| fixed.0),
        without_predicted: predicted.peak,
        without_measured: without,
        without_runs: base.0,
        predicted_saving,
        measured_saving,
        off_share,
        tolerance,
        agrees,
        warnings: if is_noise { vec![noise(spread)] } else { Vec::new() },
    };
    analysis.headline = analysis.sentence();
    analysis
}

/// What was saved; negative if more was needed.
fn saved(before: Bytes, after: Bytes) -> i64 {
    i64::try_from(i128::from(before.0) - i128::from(after.0)).unwrap_or(i64::MAX)
}

/// A warning that a saving may be noise.
fn noise(spread: Option<Bytes>) -> Warning {
    let text = match spread {
        Some(spread) => {
            format!("runs of the same job differ by {spread}, so the measured difference may be noise")
        }
        None => "each job ran only once, so the difference between repeats is unknown".to_owned(),
    };
    Warning { code: "noise", text, hint: "repeat the measurement: --runs 8".to_owned() }
}

impl VerifyAnalysis {
    /// The names of the fixes; empty if there are none.
    #[must_use]
    pub(crate) fn fix_names(&self) -> String {
        self.fixes.iter().map(|fix| fix.name()).collect::<Vec<_>>().join("+")
    }

    /// The answer as a sentence.
    fn sentence(&self) -> String {
        let VerifyAnalysis { batch, measured, .. } = self;
        let off = self.off_share.map_or(0.0, |share| (share * 100.0).abs());
        let word = if self.agrees == Some(true) { "As predicted" } else { "Not as predicted" };
        if self.fixes.is_empty() {
            let predicted = self.predicted.unwrap_or_default();
            return format!(
                "{word}: batch size {batch} peaks at {measured}; the prediction was {predicted} (off by {off:.1} %)."
            );
        }
        let size = |bytes: i64| Bytes(bytes.unsigned_abs());
        let (fix, saving) = (self.fix_names(), size(self.measured_saving));
        let did = if self.measured_saving < 0 { "costs" } else { "saves" };
        match self.predicted_saving.map(size) {
            None => format!("Measured: {fix} {did} {saving} at batch size {batch}."),
            Some(predicted) => format!(
                "{word}: {fix} {did} {saving} at batch size {batch}; the prediction was {predicted} (off by {off:.1} % of the peak)."
            ),
        }
    }
}
