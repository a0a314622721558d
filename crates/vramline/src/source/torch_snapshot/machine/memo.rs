//! The memo: values that the pickle stores under a number and refers to later.

use rustc_hash::FxHashMap;

use super::operand::{self, Number};
use super::text::utf8;
use super::{Machine, Next};
use crate::pages::{Page, Words};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::Word;

/// Stored values by number. Python numbers them from zero on; others may not.
#[derive(Debug, Default)]
pub(super) struct Memo {
    pub(super) dense: Words,
    pub(super) sparse: FxHashMap<u32, Word>,
}

impl Memo {
    // Not inlined, so that the instructions which store can be.
    pub(super) fn put(&mut self, number: u32, word: Word) {
        let (at, next) = (number as usize, self.dense.len());
        if at < next {
            self.dense.set(at, word.bits());
        } else if at == next {
            self.push(word);
        } else {
            self.sparse.insert(number, word);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, word: Word) {
        self.dense.push(word.bits());
        if !self.sparse.is_empty() {
            self.close_gap();
        }
    }

    #[cold]
    fn close_gap(&mut self) {
        while let Some(word) = u32::try_from(self.dense.len()).ok().and_then(|next| self.sparse.remove(&next))
        {
            self.dense.push(word.bits());
        }
    }

    #[inline]
    fn get(&self, number: u32) -> Option<Word> {
        match self.dense.get(number as usize) {
            Some(bits) => Some(Word::from_bits(bits)),
            None => self.sparse.get(&number).copied(),
        }
    }

    pub(super) fn into_pages(self) -> Vec<Page> {
        self.dense.into_pages()
    }
}

impl Machine {
    #[inline]
    pub(super) fn get<'a, T: Number + Into<u32>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (number, after) = operand::number::<T>(args)?;
        self.recall(number.into())?;
        Ok(after)
    }

    pub(super) fn get_decimal<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        self.recall(index(line)?)?;
        Ok(after)
    }

    #[inline]
    pub(super) fn memoize<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let top = self.top()?;
        self.memo.push(top);
        Ok(args)
    }

    #[inline]
    pub(super) fn put<'a, T: Number + Into<u32>>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (number, after) = operand::number::<T>(args)?;
        self.store(number.into())?;
        Ok(after)
    }

    pub(super) fn put_decimal<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (line, after) = operand::line(args)?;
        self.store(index(line)?)?;
        Ok(after)
    }

    #[inline]
    fn recall(&mut self, number: u32) -> Result<(), Fault> {
        let word = self.memo.get(number);
        let word = word.ok_or(Fault::Mismatch("it refers to a value that was never stored"))?;
        let word = self.values.current(word);
        self.push(word)
    }

    /// Stores the value on top of the stack.
    #[inline]
    fn store(&mut self, number: u32) -> Result<(), Fault> {
        let top = self.top()?;
        if (number as usize) < self.memo.dense.len() {
            self.runs.forget();
        }
        self.memo.put(number, top);
        Ok(())
    }
}

fn index(line: &[u8]) -> Result<u32, Fault> {
    utf8(line).trim().parse().map_err(|_| Fault::Mismatch("an index of the memo is not a number"))
}
