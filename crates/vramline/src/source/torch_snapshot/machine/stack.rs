//! The stack of values, and the marks on it.

use super::{Machine, Next};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::Word;

/// Values on the stack: Python puts a thousand items of a list there at a time, and all of a tuple.
const TALLEST: usize = 1 << 24;
/// Marks on the stack: one for each container that is being filled.
const MOST_MARKS: usize = 1 << 12;

pub(super) const EMPTY_STACK: Fault = Fault::Mismatch("an instruction takes from an empty stack");
const NO_MARK: Fault = Fault::Mismatch("an instruction needs a mark that does not exist");

impl Machine {
    #[inline]
    pub(super) fn push(&mut self, word: Word) -> Result<(), Fault> {
        if self.stack.len() >= TALLEST {
            return Err(Fault::TooTall);
        }
        self.stack.push(word);
        Ok(())
    }

    /// Pushes the result of an instruction and continues after it.
    #[inline]
    pub(super) fn push_before<'a>(&mut self, word: Word, after: &'a [u8]) -> Next<'a> {
        self.push(word)?;
        Ok(after)
    }

    #[inline]
    pub(super) fn top(&self) -> Result<Word, Fault> {
        // Values below a mark cannot be popped.
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.last().copied().filter(|_| self.stack.len() > floor).ok_or(EMPTY_STACK)
    }

    pub(super) fn pop(&mut self) -> Result<Word, Fault> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    #[inline]
    pub(super) fn mark(&mut self) -> Result<usize, Fault> {
        self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or(NO_MARK)
    }

    /// The value just below a position of the stack.
    #[inline]
    pub(super) fn below(&self, place: usize) -> Result<Word, Fault> {
        place.checked_sub(1).and_then(|at| self.stack.get(at)).copied().ok_or(EMPTY_STACK)
    }

    #[inline]
    pub(super) fn push_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        if let Some(after) = self.frames_at_once(args)? {
            return Ok(after);
        }
        if self.marks.len() >= MOST_MARKS {
            return Err(Fault::TooDeep.into());
        }
        self.marks.push(self.stack.len());
        Ok(args)
    }

    pub(super) fn pop_top<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        // Python pops the mark if it is on top.
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
        } else {
            self.pop()?;
        }
        Ok(args)
    }

    pub(super) fn pop_to_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.stack.truncate(mark);
        Ok(args)
    }

    pub(super) fn duplicate<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let top = self.top()?;
        self.push_before(top, args)
    }

    /// Makes a buffer read-only, which changes nothing here.
    pub(super) fn keep_top<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        self.top()?;
        Ok(args)
    }
}
