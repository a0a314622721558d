//! A prediction beside what was measured, for display.

use serde::Serialize;

use super::plan::pool_of;
use crate::Reading;
use crate::plan::Fix;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// What a plan says.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The batch.
    pub batch: u64,
    /// The fixes.
    pub fixes: Vec<Fix>,
    /// The peak without them, and between what it is expected.
    pub peak: Bytes,
    /// At least.
    pub low: Bytes,
    /// At most.
    pub high: Bytes,
    /// The peak with them, where requests tell.
    pub fixed_peak: Option<Bytes>,
}

/// Peaks of several runs, in ascending order.
#[derive(Clone, Debug)]
pub struct Measured(Vec<Bytes>);

impl Measured {
    /// Of these peaks.
    #[must_use]
    pub fn of(mut peaks: Vec<Bytes>) -> Measured {
        peaks.sort_unstable();
        Measured(peaks)
    }

    /// What they differ by; not known of one alone.
    fn spread(&self) -> Option<Bytes> {
        let [least, .., most] = self.0.as_slice() else { return None };
        Some(most.saturating_sub(*least))
    }

    /// The middle one.
    #[must_use]
    pub fn median(&self) -> Option<Bytes> {
        self.0.get(self.0.len() / 2).copied()
    }
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Verify {
    pub kind: &'static str,
    pub verdict: String,
    pub batch: u64,
    pub fix: String,
    pub predicted_bytes: Option<Bytes>,
    pub predicted_low_bytes: Bytes,
    pub predicted_high_bytes: Bytes,
    pub measured_bytes: Bytes,
    pub runs_bytes: Vec<Bytes>,
    pub without_predicted_bytes: Bytes,
    pub without_measured_bytes: Bytes,
    pub without_runs_bytes: Vec<Bytes>,
    pub predicted_saving_bytes: Option<i64>,
    pub measured_saving_bytes: i64,
    pub off_share: Option<f64>,
    pub tolerance: f64,
    pub agrees: Option<bool>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

/// The highest peak of a pool in a reading, of the pools that are asked for.
#[must_use]
pub fn peak(reading: &Reading, pool: Option<&str>) -> Option<Bytes> {
    let traced = pool_of(reading, pool).and_then(|(_, pool)| pool.peak());
    traced.map(|peak| peak.bytes).or_else(|| counted(reading))
}

/// The most that the framework itself counted on a GPU: the driver's own pool has no trace.
fn counted(reading: &Reading) -> Option<Bytes> {
    let marks = reading.recorded.as_ref()?.processes.iter().flat_map(|process| &process.marks);
    let counters =
        marks.flat_map(|mark| &mark.counters).filter(|counters| counters.device.starts_with("GPU"));
    counters.filter_map(|counters| u64::try_from(counters.peak?).ok()).max().map(Bytes)
}

/// The document. Without fixes the batch itself is compared; with them, the saving against the tolerance as a share of the peak.
#[must_use]
pub fn verify(predicted: &Predicted, base: Measured, fixed: Option<Measured>, tolerance: f64) -> Verify {
    let without = base.median().unwrap_or_default();
    let measured = fixed.as_ref().and_then(Measured::median).unwrap_or(without);
    let has_fix = fixed.is_some();
    let predicted_bytes = if has_fix { predicted.fixed_peak } else { Some(predicted.peak) };
    let saved = |before: Bytes, after: Bytes| {
        i64::try_from(i128::from(before.0) - i128::from(after.0)).unwrap_or(i64::MAX)
    };
    let predicted_saving = predicted_bytes.map(|bytes| saved(predicted.peak, bytes));
    let measured_saving = saved(without, measured);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let off_share = predicted_saving.map(|saving| {
        let off = if has_fix { saving - measured_saving } else { saved(predicted.peak, measured) };
        (off as f64 / without.0.max(1) as f64 * 1e4).round() / 1e4
    });
    let agrees = off_share.map(|share| share.abs() <= tolerance);
    let fix = predicted.fixes.iter().map(|fix| fix.name()).collect::<Vec<_>>().join("+");
    let mut unknowns = Vec::new();
    if predicted_bytes.is_none() {
        for path in ["predicted_bytes", "predicted_saving_bytes", "off_share", "agrees"] {
            let reason = "requests do not tell what the fix would do: it is measured only".to_owned();
            unknowns.push(Unknown { path: path.to_owned(), reason, switch: None });
        }
    }
    let spread = base.spread().max(fixed.as_ref().and_then(Measured::spread));
    let is_noise = has_fix && spread.is_none_or(|spread| Bytes(measured_saving.unsigned_abs()) <= spread);
    let mut document = Verify {
        kind: "verify",
        verdict: String::new(),
        batch: predicted.batch,
        fix,
        predicted_bytes,
        predicted_low_bytes: predicted.low,
        predicted_high_bytes: predicted.high,
        measured_bytes: measured,
        runs_bytes: fixed.map_or_else(|| base.0.clone(), |fixed| fixed.0),
        without_predicted_bytes: predicted.peak,
        without_measured_bytes: without,
        without_runs_bytes: base.0,
        predicted_saving_bytes: predicted_saving,
        measured_saving_bytes: measured_saving,
        off_share,
        tolerance,
        agrees,
        warnings: if is_noise { vec![noise(spread)] } else { Vec::new() },
        unknowns,
    };
    document.verdict = verdict(&document);
    document
}

/// A saving that may be none.
fn noise(spread: Option<Bytes>) -> Warning {
    let text = match spread {
        Some(spread) => {
            format!("runs of the same job differ by {spread} here: the difference may be no more than that")
        }
        None => "each was run once: what runs of the same job differ by is not known".to_owned(),
    };
    Warning { code: "noise", text, hint: "measure more often: --runs 8".to_owned() }
}

fn verdict(document: &Verify) -> String {
    let Verify { batch, measured_bytes, .. } = document;
    let off = document.off_share.map_or(0.0, |share| (share * 100.0).abs());
    let size = |bytes: i64| Bytes(bytes.unsigned_abs());
    let did = |saving: i64| if saving < 0 { "costs" } else { "saves" };
    if document.fix.is_empty() {
        let predicted = document.predicted_bytes.unwrap_or_default();
        let word = if document.agrees == Some(true) { "As predicted" } else { "Not as predicted" };
        return format!(
            "{word}: batch {batch} takes {measured_bytes} at its peak, {predicted} were predicted ({off:.1} % off)."
        );
    }
    let measured = document.measured_saving_bytes;
    match document.predicted_saving_bytes {
        None => format!("Measured: {} {} {} at batch {batch}.", document.fix, did(measured), size(measured)),
        Some(predicted) => {
            let word = if document.agrees == Some(true) { "As predicted" } else { "Not as predicted" };
            format!(
                "{word}: {} {} {} at batch {batch}, {} were predicted ({off:.1} % of the peak off).",
                document.fix,
                did(measured),
                size(measured),
                size(predicted)
            )
        }
    }
}
