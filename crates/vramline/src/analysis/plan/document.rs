//! A plan's document, read again: what `verify`, `pack` and `fit_within` take from what `vramline plan --json` wrote.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::event::Framework;
use crate::units::Bytes;

/// The parts of a plan's document that others go by. Names and meanings are those of `docs/reference/json.md`.
#[derive(Clone, Debug, Deserialize)]
pub struct PlanDocument {
    /// The answer in a sentence.
    pub headline: String,
    /// What differs between the probes.
    #[serde(default = "batch")]
    pub variable: String,
    /// The framework of the job.
    #[serde(default, deserialize_with = "framework")]
    pub framework: Option<Framework>,
    /// What the pool may take.
    // So that one that is missing is not taken for null.
    #[serde(deserialize_with = "Option::deserialize")]
    pub limit_bytes: Option<Bytes>,
    /// What the process held beside its pools.
    #[serde(default)]
    pub outside_bytes: Option<Bytes>,
    /// Whether the plan rests on enough.
    pub certain: bool,
    /// What each batch takes.
    pub predictions: Vec<PlannedBatch>,
    /// The largest batch within the limit.
    pub largest_batch: PlannedLargest,
    /// Which batch real runs have confirmed; nothing in documents of earlier versions.
    #[serde(default)]
    pub confirmation: PlannedConfirmation,
    /// What the reader should know.
    pub warnings: Vec<PlanDoubt>,
}

/// What real runs under the limit have shown.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct PlannedConfirmation {
    /// Whether all runs of a batch passed.
    pub confirmed: bool,
    /// The batch.
    #[serde(default)]
    pub batch: Option<u64>,
    /// How many of its runs passed.
    #[serde(default)]
    pub passes: u64,
}

/// What a plan says of one batch.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct PlannedBatch {
    /// The batch.
    pub batch: u64,
    /// The most in use, in the middle of many runs.
    pub peak_bytes: Bytes,
    /// Nearly every run takes at least this.
    pub low_bytes: Bytes,
    /// Nearly no run takes more.
    pub high_bytes: Bytes,
    /// With so large a limit every order passes.
    pub minimum_bytes: Option<Bytes>,
    /// Whether the plan rests on enough for this batch. Where it is not told, what is said of the whole plan counts.
    #[serde(default)]
    pub certain: Option<bool>,
    /// Whether it is within the limit, where that is known.
    #[serde(default)]
    pub fits: Option<bool>,
}

/// The largest batch within the limit.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct PlannedLargest {
    /// Always expected to pass.
    #[serde(deserialize_with = "Option::deserialize")]
    pub sure: Option<u64>,
    /// The same if it ran; nothing in documents of earlier versions.
    #[serde(default)]
    pub expected: Option<u64>,
    /// The edge: more runs pass than not.
    #[serde(deserialize_with = "Option::deserialize")]
    pub likely: Option<u64>,
}

/// What the reader of a plan should know.
#[derive(Clone, Debug, Deserialize)]
pub struct PlanDoubt {
    /// It, as a sentence.
    pub text: String,
}

fn batch() -> String {
    "batch".to_owned()
}

/// The framework that a plan names; nothing where it names none that is known here.
fn framework<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Framework>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.and_then(|word| Framework::of_word(&word)))
}

/// What a text is that is no plan: the rest of a sentence that ends in "found".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAPlan {
    /// No JSON.
    #[error("text that is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// JSON, but no document.
    #[error("JSON that is not an object")]
    NotAnObject,
    /// A document of another kind, or of none.
    #[error("a document {}", kind.as_ref().map_or("without a kind".to_owned(), |kind| format!("whose kind is '{kind}'")))]
    OtherKind {
        /// What it says that it is.
        kind: Option<String>,
    },
    /// A plan that somebody has changed, or of another version.
    #[error("an incomplete plan: {0}")]
    Incomplete(serde_json::Error),
    /// A plan with a figure that cannot be.
    #[error("a plan whose {field} is 0")]
    Zero {
        /// Which.
        field: &'static str,
    },
}

impl PlanDocument {
    /// Reads what `vramline plan --json` wrote.
    pub fn parse(text: &str) -> Result<PlanDocument, NotAPlan> {
        let mut document: Value = serde_json::from_str(text).map_err(NotAPlan::NotJson)?;
        let fields = document.as_object_mut().ok_or(NotAPlan::NotAnObject)?;
        let kind = fields.get("kind").map(|kind| kind.as_str().unwrap_or_default().to_owned());
        if kind.as_deref() != Some("plan") {
            return Err(NotAPlan::OtherKind { kind });
        }
        // Version 0.1 had its sentence there.
        if !fields.contains_key("headline")
            && let Some(sentence @ Value::String(_)) = fields.remove("verdict")
        {
            fields.insert("headline".to_owned(), sentence);
        }
        let plan: PlanDocument = serde_json::from_value(document).map_err(NotAPlan::Incomplete)?;
        let PlannedLargest { sure, expected, likely } = plan.largest_batch;
        let zero = [
            ("limit_bytes", plan.limit_bytes == Some(Bytes::ZERO)),
            ("largest_batch", [sure, expected, likely].contains(&Some(0))),
            ("batch", plan.predictions.iter().any(|each| each.batch == 0)),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((field, _)) => Err(NotAPlan::Zero { field }),
            None => Ok(plan),
        }
    }

    /// What it says of a batch.
    #[must_use]
    pub fn at(&self, batch: u64) -> Option<&PlannedBatch> {
        self.predictions.iter().find(|each| each.batch == batch)
    }
}
