//! How much more than the first run is too much.

use std::fmt;
use std::str::FromStr;

use crate::units::Bytes;

/// How much more is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So many millionths of the first run's peak.
    Share(u64),
    /// So many bytes.
    Bytes(Bytes),
}

/// What a user typed is no threshold.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected a share or a size such as 2%, 0.5% or 64MiB, found '{0}'")]
pub struct NotAThreshold(String);

impl FromStr for Threshold {
    type Err = NotAThreshold;

    fn from_str(text: &str) -> Result<Threshold, NotAThreshold> {
        let wrong = || NotAThreshold(text.to_owned());
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse().map(Threshold::Bytes).map_err(|_| wrong());
        };
        // Digits are taken as they stand: a share of a float would be off by a byte now and then.
        let (whole, part) = percent.trim().split_once('.').unwrap_or((percent.trim(), "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 4 {
            return Err(wrong());
        }
        let part: u64 = format!("{part:0<4}").parse().map_err(|_| wrong())?;
        let whole =
            whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(10_000)).ok_or_else(wrong)?;
        whole.checked_add(part).map(Threshold::Share).ok_or_else(wrong)
    }
}

impl fmt::Display for Threshold {
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Share(millionths) => write!(out, "{} %", *millionths as f64 / 1e4),
            Threshold::Bytes(bytes) => bytes.fmt(out),
        }
    }
}

impl Threshold {
    pub(super) fn is_exceeded(self, more: Bytes, base: Bytes) -> bool {
        match self {
            Threshold::Share(millionths) => {
                u128::from(more.0) * 1_000_000 > u128::from(base.0) * u128::from(millionths)
            }
            Threshold::Bytes(bytes) => more > bytes,
        }
    }
}
