//! Partial failure is data: what went wrong or is not known travels with the result.
//!
//! A [`Warning`] is about the input ("cut off at byte N"), an [`Unknown`] is about one value of the output that is
//! null, with the reason and, where there is one, the switch that would make it known.

use serde::Serialize;

/// Something about the input that the reader of a report should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable word for machines, such as `truncated`.
    pub code: &'static str,
    /// One sentence: what was expected and what was found.
    pub text: String,
    /// What to do about it; empty where nothing can be done.
    pub hint: String,
}

/// Collects warnings while a source is read.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// A source that fails in a thousand ways is told in this many.
    const MOST: usize = 50;

    /// Adds a warning, unless there are too many already.
    pub fn add(&mut self, code: &'static str, text: impl Into<String>, hint: impl Into<String>) {
        if self.0.len() < Self::MOST {
            self.0.push(Warning { code, text: text.into(), hint: hint.into() });
        }
    }

    /// What was collected, in order.
    #[must_use]
    pub fn into_vec(self) -> Vec<Warning> {
        self.0
    }

    /// What was collected so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Warning] {
        &self.0
    }
}

/// Why a value of a report is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Where the null stands, such as `pools[0].limit_bytes`.
    pub path: String,
    /// Why it is not known.
    pub reason: String,
    /// The setting that would make it known, if one does.
    pub switch: Option<String>,
}
