//! Reads sizes as the frameworks write them, as a range of possible values.
//!
//! TensorFlow and XLA divide by 1024 in whole numbers until less than 1024 * 1024 is left, and print that as a number of
//! the next unit, with one decimal for KiB and two above. PyTorch divides in floating point, always with two. A text of
//! three digits stands for thousands of numbers of bytes: both ends are kept.

use crate::failure::SizeRange;
use crate::units::Bytes;

/// Who wrote a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// `15.26MiB`, `597.0KiB`, `256B`.
    Xla,
    /// `2.26 GiB`, `512 bytes`; on Apple's devices `2.26 GB`, which means the same.
    Torch,
    /// `2.26G`, `512B`: TPUs and TensorFlow's driver.
    Short,
}

/// A size at the front of a text without spaces, and what follows it. `None` where there is none, or it is not whole.
pub(crate) fn size(text: &[u8], writer: Writer) -> Option<(SizeRange, &[u8])> {
    let (whole, rest) = number(text)?;
    let (decimals, count, rest) = match rest {
        [b'.', after @ ..] => {
            let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (value, rest) = number(after)?;
            (value, digits, rest)
        }
        _ => (0, 0, rest),
    };
    const UNITS: [&[u8]; 6] = [b"KiB", b"MiB", b"GiB", b"TiB", b"PiB", b"EiB"];
    for (power, unit) in (1u32..).zip(UNITS) {
        let behind = rest.strip_prefix(unit).or_else(|| match (writer, unit, rest) {
            (Writer::Torch, [first, ..], [own, b'B', behind @ ..]) => (own == first).then_some(behind),
            (Writer::Short, [first, ..], [own, behind @ ..]) => (own == first).then_some(behind),
            _ => None,
        });
        if let Some(rest) = behind {
            // No framework writes longer numbers.
            let scale = 10u128.pow(u32::try_from(count).ok().filter(|count| *count <= 6 && whole < 1 << 40)?);
            let value = u128::from(whole) * scale + u128::from(decimals);
            return Some((between(value, scale, power, writer)?, rest));
        }
    }
    let exact = SizeRange::exact(Bytes(whole));
    let rest = rest.strip_prefix(b"bytes").or_else(|| rest.strip_prefix(b"B"))?;
    (count == 0).then_some((exact, rest))
}

/// A size, or a plain number of bytes.
pub(crate) fn size_or_bytes(text: &[u8], writer: Writer) -> Option<(SizeRange, &[u8])> {
    size(text, writer).or_else(|| {
        let (bytes, rest) = number(text)?;
        // A unit or a fraction that is cut off would make another number of it.
        let is_cut = matches!(rest, [b'.' | b'K' | b'M' | b'G' | b'T' | b'P' | b'E' | b'B', ..]);
        (!is_cut).then_some((SizeRange::exact(Bytes(bytes)), rest))
    })
}

/// The range of sizes that print as `value / scale` of the unit 1024 to the power of `power`.
fn between(value: u128, scale: u128, power: u32, writer: Writer) -> Option<SizeRange> {
    // Half of the last digit either way.
    let (low, high) = (2 * value).checked_sub(1).map_or((0, 1), |low| (low, 2 * value + 1));
    let of = 2 * scale;
    let bytes = |low: u128, high: u128| {
        let low = u64::try_from(low).ok()?;
        // Digits that stand for less than a byte leave one.
        let high = u64::try_from(high).unwrap_or(u64::MAX).max(low);
        Some(SizeRange { low: Bytes(low), high: Bytes(high) })
    };
    if matches!(writer, Writer::Torch | Writer::Short) {
        let unit = 1u128 << (10 * power);
        return bytes((low * unit).div_ceil(of), high * unit / of);
    }
    // What was printed is a whole number of 1/1024 of the unit; what was cut off before is lost.
    let lost = 1u128 << (10 * (power - 1));
    let parts_low = (low * 1024).div_ceil(of).max(1024);
    let parts_high = (high * 1024 / of).min(1024 * 1024 - 1);
    let told = bytes(parts_low * lost, (parts_high + 1) * lost - 1)?;
    (told.low <= told.high).then_some(told)
}

/// A whole number at the front, and what follows it. `None` where there is none, or it is too large.
pub(crate) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    let value = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((value, rest))
}

/// A hexadecimal number at the front, and what follows it.
pub(crate) fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((u64::from_str_radix(std::str::from_utf8(number).ok()?, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TensorFlow's own way of writing a size.
    fn written_by_xla(bytes: u64) -> String {
        if bytes < 1024 {
            return format!("{bytes}B");
        }
        let (mut value, mut unit) = (bytes, 0);
        while value >= 1024 * 1024 {
            value /= 1024;
            unit += 1;
        }
        let name = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
        let value = value as f64 / 1024.0;
        if unit == 0 { format!("{value:.1}{name}") } else { format!("{value:.2}{name}") }
    }

    fn written_by_torch(bytes: u64) -> String {
        let value = bytes as f64;
        match bytes {
            0..=1024 => format!("{bytes}bytes"),
            1025..=0x10_0000 => format!("{:.2}KiB", value / 1024.0),
            0x10_0001..=0x4000_0000 => format!("{:.2}MiB", value / 1048576.0),
            _ => format!("{:.2}GiB", value / 1073741824.0),
        }
    }

    #[test]
    fn every_size_lies_between_what_its_text_allows() {
        let mut state = 7u64;
        for i in 0..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = state >> (i % 60);
            for (text, writer) in
                [(written_by_xla(bytes), Writer::Xla), (written_by_torch(bytes >> 16), Writer::Torch)]
            {
                let bytes = if writer == Writer::Xla { bytes } else { bytes >> 16 };
                let (told, rest) = size(text.as_bytes(), writer).unwrap();
                assert!(rest.is_empty());
                assert!(
                    told.low.0 <= bytes && bytes <= told.high.0,
                    "{bytes} is written {text}, read {told:?}"
                );
                // No other text has this form.
                for other in [told.low.0.saturating_sub(1024), told.high.0.saturating_add(1024)] {
                    let other =
                        if writer == Writer::Xla { written_by_xla(other) } else { written_by_torch(other) };
                    assert!(other != text || told.low.0 < 1024 || told.high.0 > u64::MAX - 2048, "{text}");
                }
            }
        }
    }

    #[test]
    fn halves_of_sizes_are_none() {
        for text in ["", "15", "15.", "15.26", "15.26M", "15.26Mi", ".5MiB", "99999999999999999999B", "1.5B"]
        {
            assert_eq!(size(text.as_bytes(), Writer::Xla), None, "{text}");
        }
        assert_eq!(
            size_or_bytes(b"11330115994", Writer::Xla).unwrap().0,
            SizeRange::exact(Bytes(11_330_115_994))
        );
        assert_eq!(size_or_bytes(b"256.0", Writer::Xla), None);
        assert_eq!(size(b"0B,", Writer::Xla).unwrap().0, SizeRange::exact(Bytes(0)));
        assert_eq!(size(b"0.000001KiB", Writer::Torch).unwrap().0, SizeRange::exact(Bytes(1)));
    }
}
