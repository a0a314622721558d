//! Numbers, as bytes and as decimal digits.

use super::operand::{self, Number};
use super::text::utf8;
use super::{Machine, Next};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::Word;

/// Decimal digits of an integer of 128 bits.
const MOST_DIGITS: usize = 40;

impl Machine {
    #[inline]
    pub(super) fn int<'a, T: Number + Into<i32>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (number, after) = operand::number::<T>(args)?;
        self.push_before(Word::int(number.into()), after)
    }

    #[inline]
    pub(super) fn long<'a, T: Number + TryInto<usize>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (bytes, after) = operand::counted::<T>(args)?;
        let word = self.long_word(bytes)?;
        self.push_before(word, after)
    }

    #[inline]
    pub(super) fn float<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (bytes, after) = operand::number::<u64>(args)?;
        let word = self.values.float(f64::from_bits(bytes.swap_bytes()))?;
        self.push_before(word, after)
    }

    pub(super) fn int_or_bool_decimal<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        let word = match line {
            b"00" => Word::bool(false),
            b"01" => Word::bool(true),
            digits => self.decimal_word(digits)?,
        };
        self.push_before(word, after)
    }

    pub(super) fn long_decimal<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        let word = self.decimal_word(line.strip_suffix(b"L").unwrap_or(line))?;
        self.push_before(word, after)
    }

    pub(super) fn float_decimal<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        let value = utf8(line).trim().parse();
        let value = value.map_err(|_| Fault::Mismatch("a floating-point number is malformed"))?;
        let word = self.values.float(value)?;
        self.push_before(word, after)
    }

    /// An integer in two's complement, little end first.
    #[inline]
    fn long_word(&mut self, bytes: &[u8]) -> Result<Word, Fault> {
        match short_long(bytes) {
            Some(word) => Ok(word),
            None => self.long_of_any_length(bytes),
        }
    }

    #[cold]
    fn long_of_any_length(&mut self, bytes: &[u8]) -> Result<Word, Fault> {
        let Some(&last) = bytes.last() else { return Ok(Word::int(0)) };
        let fill = if last & 0x80 == 0 { 0 } else { 0xff };
        let mut whole = [fill; 16];
        let (kept, beyond) = bytes.split_at(bytes.len().min(whole.len()));
        for (slot, byte) in whole.iter_mut().zip(kept) {
            *slot = *byte;
        }
        let value = i128::from_le_bytes(whole);
        let is_whole = beyond.iter().all(|&byte| byte == fill) && (value < 0) == (fill != 0);
        if is_whole { self.values.int(value) } else { Ok(Word::other()) }
    }

    fn decimal_word(&mut self, digits: &[u8]) -> Result<Word, Fault> {
        let digits = digits.trim_ascii();
        let unsigned = digits.strip_prefix(b"-").or(digits.strip_prefix(b"+")).unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
            return Err(Fault::Mismatch("an integer has no digits"));
        }
        if unsigned.len() > MOST_DIGITS {
            return Ok(Word::other());
        }
        match utf8(digits).parse() {
            Ok(value) => self.values.int(value),
            Err(_) => Ok(Word::other()),
        }
    }
}

/// An integer of a few bytes, as most are: addresses have six, times seven.
#[inline]
pub(super) fn short_long(bytes: &[u8]) -> Option<Word> {
    let whole = match *bytes {
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e] => i64::from_le_bytes([0, 0, 0, a, b, c, d, e]) >> 24,
        [a, b, c, d, e, f] => i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16,
        [a, b, c, d, e, f, g] => i64::from_le_bytes([0, a, b, c, d, e, f, g]) >> 8,
        _ => return None,
    };
    Word::small(whole)
}
