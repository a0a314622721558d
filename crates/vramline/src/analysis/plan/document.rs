//! A plan's document, read again: what `verify`, `pack` and `fit_within` take from what `vramline plan --json` wrote.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::event::Framework;
use crate::units::Bytes;

/// The parts of a plan's document that others go by. Names and meanings are those of `docs/json.md`.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PlanDocument {
    pub headline: String,
    #[serde(default = "batch")]
    pub variable: String,
    #[serde(default, deserialize_with = "framework")]
    pub framework: Option<Framework>,
    // So that one that is missing is not taken for null.
    #[serde(deserialize_with = "Option::deserialize")]
    pub limit_bytes: Option<Bytes>,
    #[serde(default)]
    pub outside_bytes: Option<Bytes>,
    pub certain: bool,
    pub predictions: Vec<PlannedBatch>,
    pub largest_batch: PlannedLargest,
    pub warnings: Vec<PlanDoubt>,
}

/// What a plan says of one batch.
#[derive(Clone, Copy, Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PlannedBatch {
    pub batch: u64,
    pub peak_bytes: Bytes,
    pub low_bytes: Bytes,
    pub high_bytes: Bytes,
    pub minimum_bytes: Option<Bytes>,
    /// Where it is not told, what is said of the whole plan counts.
    #[serde(default)]
    pub certain: Option<bool>,
    #[serde(default)]
    pub fits: Option<bool>,
}

/// The largest batch within the limit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PlannedLargest {
    #[serde(deserialize_with = "Option::deserialize")]
    pub sure: Option<u64>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub likely: Option<u64>,
}

/// What the reader of a plan should know.
#[derive(Clone, Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PlanDoubt {
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
    #[error("no JSON: {0}")]
    NotJson(serde_json::Error),
    /// JSON, but no document.
    #[error("JSON that is no object")]
    NotAnObject,
    /// A document of another kind, or of none.
    #[error("a document {}", kind.as_ref().map_or("without a kind".to_owned(), |kind| format!("whose kind is '{kind}'")))]
    OtherKind {
        /// What it says that it is.
        kind: Option<String>,
    },
    /// A plan that somebody has changed, or of another version.
    #[error("a plan that lacks something: {0}")]
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
        let PlannedLargest { sure, likely } = plan.largest_batch;
        let zero = [
            ("limit_bytes", plan.limit_bytes == Some(Bytes::ZERO)),
            ("largest_batch", sure == Some(0) || likely == Some(0)),
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
