//! Searches for words in a text without blanks.

use std::ops::Deref;

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

/// A text that words are looked for in.
pub(crate) trait Haystack {
    fn bytes(&self) -> &[u8];

    /// False only if the text cannot contain the word.
    fn may_contain(&self, _word: &[u8]) -> bool {
        true
    }
}

impl Haystack for [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A message with the set of its pairs of neighbouring bytes.
///
/// Every line near a failure is searched for more than a hundred words. Nearly all of these searches end at a pair of bytes that
/// the line does not have.
pub(crate) struct Words<'a> {
    text: &'a [u8],
    /// One bit for each value of [`pair`].
    pairs: [u64; PAIRS / 64],
}

const PAIRS: usize = 4096;

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Words<'a> {
        let mut pairs = [0; PAIRS / 64];
        for two in text.windows(2) {
            let pair = pair(two);
            if let Some(set) = pairs.get_mut(pair / 64) {
                *set |= 1 << (pair % 64);
            }
        }
        Words { text, pairs }
    }
}

impl Haystack for Words<'_> {
    fn bytes(&self) -> &[u8] {
        self.text
    }

    fn may_contain(&self, word: &[u8]) -> bool {
        word.windows(2).all(|two| {
            let pair = pair(two);
            self.pairs.get(pair / 64).is_some_and(|set| set >> (pair % 64) & 1 == 1)
        })
    }
}

impl Deref for Words<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.text
    }
}

/// A hash of two bytes, below [`PAIRS`].
#[inline(always)]
fn pair(two: &[u8]) -> usize {
    match *two {
        [first, second] => (usize::from(first) << 4 ^ usize::from(second)) & (PAIRS - 1),
        _ => 0,
    }
}

pub(crate) fn find(text: &(impl Haystack + ?Sized), word: &[u8]) -> Option<usize> {
    if !text.may_contain(word) {
        return None;
    }
    let text = text.bytes();
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

pub(crate) fn after<'a>(text: &'a (impl Haystack + ?Sized), word: &[u8]) -> Option<&'a [u8]> {
    text.bytes().get(find(text, word)? + word.len()..)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_pairs_hides_no_word() {
        let text = b"RESOURCE_EXHAUSTED:OOMwhenallocatingtensorwithshape[2,3]andtypefloat";
        let words = Words::new(text);
        for begin in 0..text.len() {
            for end in begin + 1..=text.len() {
                let word = &text[begin..end];
                assert_eq!(find(&words, word), find(&text[..], word));
                assert_eq!(after(&words, word), after(&text[..], word));
            }
        }
        assert_eq!(find(&words, b"CUDAoutofmemory"), None);
        assert!(!words.may_contain(b"CUDAoutofmemory"));
        assert_eq!(find(&Words::new(b""), b"x"), None);
    }
}
