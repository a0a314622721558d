//! The protobuf wire format: varints, tags, fields. Knows nothing of any message.
//!
//! Borrowed slices in, borrowed slices out; a length that lies is an error before anything is read by it. Groups are
//! not part of any message read here and count as malformed.

/// The bytes are not what the wire format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Reads fields off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        // One byte is by far the commonest length.
        if let Some((&first, rest)) = self.0.split_first()
            && first < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(first));
        }
        let (value, length) = long_varint(self.0)?;
        self.0 = self.0.get(length..).ok_or(Malformed)?;
        Ok(value)
    }

    #[inline]
    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.0.split_at_checked(length))
            .ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next field, or `None` at the end.
    #[inline]
    pub(crate) fn field(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed),
        };
        if tag >> 3 == 0 {
            return Err(Malformed);
        }
        Ok(Some((tag >> 3, value)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N as u64)?.try_into().map_err(|_| Malformed)
    }
}

/// A varint of several bytes at the front, and its length.
#[inline]
fn long_varint(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    match varint_at(bytes, 0) {
        Some(decoded) => Ok(decoded),
        None => decode_varint(bytes)?.ok_or(Malformed),
    }
}

/// The eight bytes from `at` on as one number; `None` near the end of the slice.
#[inline(always)]
pub(crate) fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|eight| u64::from_le_bytes(*eight))
}

/// Like [`varint_at`], for numbers that are mostly below sixteen thousand: lengths, ids, references.
#[inline(always)]
pub(crate) fn short_varint_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let &[first, second] = bytes.get(at..)?.first_chunk::<2>()?;
    // Without a branch between one byte and two: which it is changes from one to the next.
    let more = first >> 7;
    if more & second >> 7 != 0 {
        return varint_at(bytes, at);
    }
    let high = u64::from(second & more.wrapping_neg()) << 7;
    Some((u64::from(first & 0x7f) | high, at + 1 + usize::from(more)))
}

/// The varint at `at` and where it ends, eight bytes at once. `None` near the end of the slice, where there may be one
/// all the same, or where there is none.
#[inline(always)]
pub(crate) fn varint_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    const CONTINUES: u64 = 0x8080_8080_8080_8080;
    let word = word_at(bytes, at)?;
    let ends = !word & CONTINUES;
    // The bytes up to the first without a continuation bit; all eight where each has one.
    let last = ends & ends.wrapping_neg();
    let kept = word & (last | last.wrapping_sub(1)) & !CONTINUES;
    // Close the gaps that those bits leave.
    let pairs = ((kept & 0x7f00_7f00_7f00_7f00) >> 1) | (kept & 0x007f_007f_007f_007f);
    let quads = ((pairs & 0x3fff_0000_3fff_0000) >> 2) | (pairs & 0x0000_3fff_0000_3fff);
    let value = ((quads & 0x0fff_ffff_0000_0000) >> 4) | (quads & 0x0000_0000_0fff_ffff);
    if ends != 0 {
        return Some((value, at + (ends.trailing_zeros() / 8 + 1) as usize));
    }
    // Negative numbers take ten bytes.
    let (&ninth, &tenth) = (bytes.get(at + 8)?, bytes.get(at + 9)?);
    let value = value | u64::from(ninth & 0x7f) << 56;
    match (ninth < 0x80, tenth < 0x80) {
        (true, _) => Some((value, at + 9)),
        (false, true) => Some((value | u64::from(tenth & 1) << 63, at + 10)),
        (false, false) => None,
    }
}

/// The varint at the front and its length; `None` where the bytes end within it.
pub(crate) fn decode_varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * u32::try_from(i).unwrap_or(0));
        if byte < 0x80 {
            return Ok(Some((value, i + 1)));
        }
    }
    if bytes.len() >= 10 { Err(Malformed) } else { Ok(None) }
}

/// Protobuf's `int64`: two's complement in a varint.
#[inline]
pub(crate) fn signed(value: u64) -> i64 {
    value.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn varints_of_every_length() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = encoded(value);
            assert_eq!(Cursor(&bytes).varint(), Ok(value));
            assert_eq!(Cursor(&bytes[..bytes.len() - 1]).varint(), Err(Malformed));
            // With more behind it, so that eight bytes can be taken at once.
            bytes.extend([0xff; 12]);
            assert_eq!(Cursor(&bytes).varint(), Ok(value));
        }
        for shift in 0..64 {
            let value = (0xa5a5_a5a5_a5a5_a5a5u64 >> shift) | 1 << (63 - shift);
            let mut bytes = encoded(value);
            bytes.extend([0xff; 12]);
            assert_eq!(Cursor(&bytes).varint(), Ok(value), "{value:#x}");
            assert_eq!(short_varint_at(&bytes, 0), varint_at(&bytes, 0), "{value:#x}");
        }
        assert_eq!(Cursor(&[0xff; 11]).varint(), Err(Malformed));
    }

    #[test]
    fn lengths_that_lie_are_malformed() {
        assert_eq!(Cursor(&[0x0a, 5, 1, 2]).field(), Err(Malformed));
        assert_eq!(
            Cursor(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).field(),
            Err(Malformed)
        );
        assert_eq!(Cursor(&[0x0a, 2, 1, 2]).field(), Ok(Some((1, Value::Bytes(&[1, 2])))));
        assert_eq!(Cursor(&[0x0b]).field(), Err(Malformed), "groups");
        assert_eq!(Cursor(&[0x00, 1]).field(), Err(Malformed), "field zero");
    }
}
