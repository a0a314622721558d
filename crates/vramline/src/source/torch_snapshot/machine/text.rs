//! Text in every form that pickles have, and bytes, which are skipped.

use std::borrow::Cow;

use super::operand::{self, Number};
use super::{Machine, Next};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::Word;

impl Machine {
    #[inline]
    pub(super) fn text<'a, T: Number + TryInto<usize>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (bytes, after) = operand::counted::<T>(args)?;
        self.push_text(bytes)?;
        Ok(after)
    }

    pub(super) fn text_quoted<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        let text = unquoted(line).ok_or(Fault::Mismatch("a string has no quotes"))?;
        self.push_text(&text)?;
        Ok(after)
    }

    pub(super) fn text_escaped<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        let word = self.values.text(&raw_unicode(line));
        self.push_before(word, after)
    }

    pub(super) fn bytes<'a, T: Number + TryInto<usize>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (_, after) = operand::counted::<T>(args)?;
        self.push_before(Word::other(), after)
    }

    fn push_text(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let word = self.values.text(&utf8(bytes));
        self.push(word)
    }
}

pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The bytes of a string literal of Python 2.
fn unquoted(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let inner = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return None,
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'x' => {
                let code = rest.get(..2).and_then(|digits| u8::from_str_radix(&utf8(digits), 16).ok());
                out.push(code?);
                rest = rest.get(2..).unwrap_or_default();
            }
            other => out.push(other),
        }
    }
    Some(out)
}

/// Text in Latin-1, with other characters as `\uXXXX` or `\UXXXXXXXX`.
fn raw_unicode(line: &[u8]) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let length = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let code = rest.get(2..2 + length).filter(|_| length > 0).and_then(|digits| {
            let code = u32::from_str_radix(&utf8(digits), 16).ok()?;
            char::from_u32(code)
        });
        match code {
            Some(code) => {
                out.push(code);
                rest = rest.get(2 + length..).unwrap_or_default();
            }
            None => {
                out.push(char::from(byte));
                rest = after;
            }
        }
    }
    out
}
