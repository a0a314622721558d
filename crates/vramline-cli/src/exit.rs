//! How a command ends when it does not simply succeed: an error with its hint, a refusal, and the exit codes of gates.

use std::fmt;

/// Exit code: a gate says no.
pub(crate) const NO: u8 = 3;
/// Exit code: the answer is not certain.
pub(crate) const NOT_CERTAIN: u8 = 4;

/// What went wrong, with what to do now.
#[derive(Debug)]
pub(crate) struct Hinted {
    pub(crate) error: anyhow::Error,
    pub(crate) hint: String,
}

impl From<anyhow::Error> for Hinted {
    fn from(error: anyhow::Error) -> Self {
        Hinted { error, hint: String::new() }
    }
}

/// Settings that cannot be had together. Nothing has been started then, and the exit code is that of wrong usage.
#[derive(Debug)]
pub(crate) struct Refusal(String);

pub(crate) fn refusal(reason: impl Into<String>, hint: impl Into<String>) -> Hinted {
    Hinted { error: anyhow::Error::new(Refusal(reason.into())), hint: hint.into() }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
