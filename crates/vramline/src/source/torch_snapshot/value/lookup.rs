//! Access to values: numbers, items, and the value of a key.

use std::ops::Range;

use super::Values;
use super::entry::{ABSENT, Kind};
use super::slot::{Dict, List};
use super::word::{Value, Word};
use crate::names::Name;
use crate::source::torch_snapshot::traceback::Tracebacks;

impl Values {
    /// A size or an address.
    #[inline]
    pub(super) fn amount(&self, word: Word) -> Option<u64> {
        match word.value() {
            Value::Int(value) => u64::try_from(value).ok(),
            Value::Big(_) => self.unsigned(word).filter(|&value| value != ABSENT),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn signed(&self, word: Word) -> Option<i64> {
        match word.value() {
            Value::Int(value) => Some(value),
            // A handle is as wide as a pointer; some versions write it as a signed number.
            Value::Big(_) => {
                let value = self.integer(word)?;
                i64::try_from(value).ok().or_else(|| Some(u64::try_from(value).ok()?.cast_signed()))
            }
            _ => None,
        }
    }

    /// Any integer that fits 128 bits.
    pub(crate) fn integer(&self, word: Word) -> Option<i128> {
        match word.value() {
            Value::Int(value) => Some(i128::from(value)),
            Value::Big(number) => self.bigs.get(number as usize).copied(),
            Value::Bool(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    pub(crate) fn unsigned(&self, word: Word) -> Option<u64> {
        u64::try_from(self.integer(word)?).ok()
    }

    pub(crate) fn real(&self, number: u32) -> Option<f64> {
        self.floats.get(number as usize).copied()
    }

    pub(crate) fn pair(&self, word: Word) -> Option<(i64, i64)> {
        match self.items(word)? {
            &[one, other] => Some((self.signed(one)?, self.signed(other)?)),
            _ => None,
        }
    }

    /// The stack of a list of frames; `None` if the value is not one.
    pub(crate) fn stack_of(&self, word: Word) -> Option<u32> {
        let Value::List(number) = word.value() else { return None };
        match self.lists.get(number)? {
            List::Stack(stack) => Some(stack),
            List::Empty => Some(Tracebacks::EMPTY),
            _ => None,
        }
    }

    /// The items of a plain list or a tuple, or the alternating keys and values of a plain dictionary.
    pub(crate) fn items(&self, word: Word) -> Option<&[Word]> {
        let of = |items: u32| Some(self.items.get(items as usize)?.words.as_slice());
        match word.value() {
            Value::Tuple(number) => {
                let &(begin, count, _) = self.tuples.get(number as usize)?;
                self.tuple_items.get(begin as usize..(begin as usize).checked_add(count as usize)?)
            }
            Value::List(number) => match self.lists.get(number)? {
                List::Items(items) => of(items),
                List::Empty => Some(&[]),
                _ => None,
            },
            Value::Dict(number) => match self.dicts.get(number)? {
                Dict::Items(items) => of(items),
                Dict::Empty => Some(&[]),
                _ => None,
            },
            _ => None,
        }
    }

    /// The entries of a list of entries; `None` if the value is not one.
    pub(crate) fn entry_ranges(&mut self, word: Word) -> Option<Vec<Range<u32>>> {
        let Value::List(number) = word.value() else { return None };
        match self.lists.get(number)? {
            List::Empty => Some(Vec::new()),
            // Moved out, because a list of entries belongs to one device only.
            List::Entries(at) => {
                let ranges = std::mem::take(self.ranges.get_mut(at as usize)?);
                (!ranges.is_empty()).then_some(ranges)
            }
            _ => None,
        }
    }

    /// The value of a key; the last one if there are several, as in Python.
    pub(crate) fn get(&self, dict: Word, key: Name) -> Option<Word> {
        if !matches!(dict.value(), Value::Dict(_)) {
            return None;
        }
        let items = self.items(dict)?;
        items
            .chunks_exact(2)
            .rev()
            .find(|pair| pair.first() == Some(&Word::text(key)))
            .and_then(|pair| pair.get(1).copied())
    }

    /// A dictionary that was stored in the memo before it was filled, in its final form.
    #[inline]
    pub(crate) fn current(&self, word: Word) -> Word {
        if word.tag() == Word::TAG_DICT
            && let Some(Dict::Frame(frame)) = self.dicts.get(word.number())
        {
            return Word::new(Word::TAG_FRAME, frame);
        }
        word
    }

    pub(crate) fn kind(&self, number: u32) -> Option<&Kind> {
        self.kinds.get(number as usize)
    }

    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }
}
