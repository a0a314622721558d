//! *Internal.* Types for units: bytes, picoseconds on the axis of a trace, nanoseconds of a source's clock.
//!
//! Arithmetic saturates, because hostile input could make it wrap. Formatting for people (three digits, binary prefixes) is here too,
//! because every view needs it.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Always a whole number; an unknown amount is `Option<Bytes>`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// This amount as a share of `whole`, or `None` where `whole` is nothing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share_of(self, whole: Bytes) -> Option<f64> {
        (whole.0 > 0).then(|| self.0 as f64 / whole.0 as f64)
    }

    /// The same for people, `12.3 %`; `-` where there is no whole.
    #[must_use]
    pub fn percent_of(self, whole: Bytes) -> String {
        self.share_of(whole).map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(all: I) -> Bytes {
        all.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    /// Three significant digits and a binary prefix: `200 B`, `1.50 KiB`, `69.4 MiB`, `105 GiB`.
    #[expect(clippy::cast_precision_loss, reason = "rounded for people; exact bytes are in the JSON")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PREFIXES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return out.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut prefixes = PREFIXES.iter();
        let mut prefix = prefixes.next().copied().unwrap_or_default();
        // 1023.6 would print as "1024": step to the next prefix where rounding would reach it.
        while value >= 1023.5 {
            let Some(next) = prefixes.next() else { break };
            value /= 1024.0;
            prefix = next;
        }
        let decimals = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        out.pad(&format!("{value:.decimals$} {prefix}"))
    }
}

/// A change of bytes with its sign: `+12.3 MiB`.
#[must_use]
pub fn change_text(delta: i64) -> String {
    let sign = match delta.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", Bytes(delta.unsigned_abs()))
}

/// The error of a text that is not a size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected a size such as 8GiB, 800MiB or 1610612736 (bytes), found '{0}'")]
pub struct NotASize(String);

impl FromStr for Bytes {
    type Err = NotASize;

    /// `KiB`, `MiB`, `GiB`, `TiB` and their first letters are powers of 1024, `kB`, `MB`, `GB`, `TB` of 1000; a number alone
    /// is bytes. Parts of a byte are dropped.
    fn from_str(text: &str) -> Result<Bytes, NotASize> {
        let wrong = || NotASize(text.to_owned());
        let trimmed = text.trim();
        let unit_at = trimmed.find(|c: char| c.is_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_at);
        let number = number.trim();
        let factor: u64 = match unit.to_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}");
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        // There are no parts of a byte.
        if !is_number || (factor == 1 && number.contains('.')) {
            return Err(wrong());
        }
        // In whole numbers, so that 1.1TiB is what it is to the byte.
        let exact = || {
            let value = digits.parse::<u128>().ok()?.checked_mul(u128::from(factor))?;
            let bytes = value / 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
            u64::try_from(bytes).ok().map(Bytes)
        };
        exact().ok_or_else(wrong)
    }
}

/// A number with the words that follow it, for one and for any other number: `1 block was`, `2,408 blocks were`.
#[must_use]
pub fn plural(number: impl TryInto<u64>, one: &str, many: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// A number with a noun whose plural ends in s: `1 step`, `2,408 steps`.
#[must_use]
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    plural(number, noun, &format!("{noun}s"))
}

/// A length of time as people say it: `3.9 s`, `3 min 12 s`, `2 h 5 min`.
#[must_use]
pub fn duration_text(length: Nanos) -> String {
    let tenths = length.0.unsigned_abs() / 100_000_000;
    let seconds = tenths / 10;
    match seconds {
        0..60 => format!("{seconds}.{} s", tenths % 10),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A sentence with its first letter in upper case.
#[must_use]
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A number with a comma between thousands.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A moment on the axis of a trace: picoseconds since the trace's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub i64);

impl Picos {
    /// The picoseconds between an earlier moment and this one; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Picos) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }

    /// This moment moved later by `span`.
    #[must_use]
    pub fn after(self, span: Span) -> Picos {
        Picos(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// This moment on the clock of the source, whose time at [`Picos`] zero was `origin`.
    #[must_use]
    pub fn on_clock(self, origin: Nanos) -> Nanos {
        Nanos(origin.0.saturating_add(self.0.div_euclid(1000)))
    }
}

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// Whole nanoseconds.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.0 / 1000
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl fmt::Display for Span {
    #[expect(clippy::cast_precision_loss, reason = "rounded for people")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64 / 1e3;
        let text = if ns < 999.5 {
            format!("{ns:.0} ns")
        } else if ns < 999.5e3 {
            format!("{} µs", three_digits(ns / 1e3))
        } else if ns < 999.5e6 {
            format!("{} ms", three_digits(ns / 1e6))
        } else {
            format!("{} s", three_digits(ns / 1e9))
        };
        out.pad(&text)
    }
}

/// A moment on the clock of whatever wrote the source, in nanoseconds. What its zero is, the source says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl fmt::Display for Nanos {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = Span(self.0.unsigned_abs().saturating_mul(1000));
        out.pad(&format!("{sign}{magnitude}"))
    }
}

/// The error of a text that is not a time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected a time such as 2.176s, 2176.22ms or 2176220145 (nanoseconds), found '{0}'")]
pub struct NotATime(String);

impl FromStr for Nanos {
    type Err = NotATime;

    /// `1500` and `1500ns` are nanoseconds; `us`, `ms` and `s` take decimals.
    fn from_str(text: &str) -> Result<Nanos, NotATime> {
        let wrong = || NotATime(text.to_owned());
        let trimmed = text.trim();
        let unit_at = trimmed.find(|c: char| c.is_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_at);
        let number = number.trim();
        let factor = match unit {
            "" | "ns" => return number.parse().map(Nanos).map_err(|_| wrong()),
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let value: f64 = number.parse().map_err(|_| wrong())?;
        if !value.is_finite() {
            return Err(wrong());
        }
        #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
        Ok(Nanos((value * factor).round() as i64))
    }
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well_at_every_scale() {
        let shown = |n: u64| Bytes(n).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.00 KiB");
        assert_eq!(shown(72_718_080), "69.3 MiB");
        assert_eq!(shown(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(shown(112_583_507_968), "105 GiB");
        assert_eq!(shown(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!("8GiB".parse(), Ok(Bytes(8 << 30)));
        assert_eq!(" 1.5 gib ".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("800M".parse(), Ok(Bytes(800 << 20)));
        assert_eq!("2GB".parse(), Ok(Bytes(2_000_000_000)));
        assert_eq!("1610612735".parse(), Ok(Bytes(1_610_612_735)));
        assert_eq!("1.1TiB".parse(), Ok(Bytes(1_209_462_790_553)));
        assert_eq!("0.001kB".parse(), Ok(Bytes(1)));
        assert_eq!("15.9999999999999999999EiB".parse::<Bytes>().ok(), None);
        for wrong in [
            "",
            "GiB",
            "8 pints",
            "-1",
            "-1GiB",
            "1.5",
            "nan GiB",
            "inf GiB",
            "1e30GiB",
            "99999999TiB",
            ".",
            ".GiB",
            "+1",
        ] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!("2176220145".parse(), Ok(Nanos(2_176_220_145)));
        assert_eq!("2176.220145ms".parse(), Ok(Nanos(2_176_220_145)));
        assert_eq!(" 1.5 s ".parse(), Ok(Nanos(1_500_000_000)));
        for wrong in ["", "ms", "1.5", "3h", "nan s", "inf s"] {
            assert!(wrong.parse::<Nanos>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_is_not_a_plural() {
        assert_eq!(counted(0_u64, "step"), "0 steps");
        assert_eq!(counted(1_usize, "step"), "1 step");
        assert_eq!(counted(2_408_u32, "step"), "2,408 steps");
        assert_eq!(plural(1_u64, "process", "processes"), "1 process");
        assert_eq!(plural(1_000_usize, "process", "processes"), "1,000 processes");
    }

    #[test]
    fn moments_saturate() {
        assert_eq!(Picos(i64::MIN).since(Picos(i64::MAX)), Span(0));
        assert_eq!(Picos(i64::MAX).after(Span(u64::MAX)), Picos(i64::MAX));
        assert_eq!(Picos(i64::MIN).on_clock(Nanos(i64::MIN)), Nanos(i64::MIN));
    }
}
