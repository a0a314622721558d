//! Searches for words in a text without blanks.

use super::said::{Line, Reading};

/// The result for a line that begins as expected but ends too early: the next piece may contain the rest.
pub(crate) fn cut(_: &Line<'_>) -> Reading {
    Reading::Part
}

pub(crate) fn cut_or(line: &Line<'_>, rest: &[u8], wanted: &[u8]) -> Reading {
    if part_begins(rest, wanted) { cut(line) } else { Reading::Foreign }
}

pub(crate) fn part_if_empty(rest: &[u8]) -> Reading {
    if rest.is_empty() { Reading::Part } else { Reading::Foreign }
}

pub(crate) fn part_of(rest: &[u8], wanted: &[u8]) -> Reading {
    if part_begins(rest, wanted) { Reading::Part } else { Reading::Foreign }
}

/// Whether a text may still become one that begins with `wanted`.
pub(crate) fn part_begins(rest: &[u8], wanted: &[u8]) -> bool {
    wanted.starts_with(rest)
}

pub(crate) fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let first = *word.first()?;
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.iter().position(|&byte| byte == first)?;
        if text.get(at..)?.starts_with(word) {
            return Some(at);
        }
        from = at + 1;
    }
}

pub(crate) fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    text.get(find(text, word)? + word.len()..)
}

pub(crate) fn last_after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).rposition(|window| window == word)?;
    text.get(at + word.len()..)
}

pub(crate) fn before<'a>(text: &'a [u8], word: &[u8]) -> &'a [u8] {
    find(text, word).and_then(|at| text.get(..at)).unwrap_or(text)
}

/// The allocator's name at the front, and whether the line ends with it.
pub(crate) fn name_of(text: &[u8]) -> (&[u8], bool) {
    let length = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    (text.get(..length).unwrap_or_default(), text.len() == length)
}

/// The longest text that can be a name.
const LONGEST: usize = 4096;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
}
