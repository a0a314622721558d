//! Instructions for lists, dictionaries, tuples and sets.

use super::stack::EMPTY_STACK;
use super::{Machine, Next};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::Word;

impl Machine {
    #[inline]
    pub(super) fn empty_dict<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        if let Some(after) = self.entry_at_once(args)? {
            return Ok(after);
        }
        let dict = self.values.dict()?;
        self.push_before(dict, args)
    }

    #[inline]
    pub(super) fn empty_list<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let list = self.values.list()?;
        self.push_before(list, args)
    }

    pub(super) fn empty_tuple<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let tuple = self.values.tuple(&[])?;
        self.push_before(tuple, args)
    }

    #[inline]
    pub(super) fn set_items<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.set_from(mark)?;
        Ok(args)
    }

    #[inline]
    pub(super) fn set_item<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let from = self.stack.len().checked_sub(2).filter(|&from| from > 0).ok_or(EMPTY_STACK)?;
        self.set_from(from)?;
        Ok(args)
    }

    /// Sets the keys and values above a position of the stack in the dictionary below it.
    #[inline]
    fn set_from(&mut self, place: usize) -> Result<(), Fault> {
        let target = self.below(place)?;
        let words = self.stack.get_mut(place..).unwrap_or_default();
        self.values.set(target, words)?;
        self.stack.truncate(place);
        Ok(())
    }

    #[inline]
    pub(super) fn append_items<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.append_from(mark)?;
        Ok(args)
    }

    #[inline]
    pub(super) fn append_item<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let from = self.stack.len().checked_sub(1).filter(|&from| from > 0).ok_or(EMPTY_STACK)?;
        self.append_from(from)?;
        Ok(args)
    }

    /// Appends the values above a position of the stack to the list below it.
    #[inline]
    fn append_from(&mut self, place: usize) -> Result<(), Fault> {
        let target = self.below(place)?;
        let words = self.stack.get_mut(place..).unwrap_or_default();
        self.values.append(target, words)?;
        self.stack.truncate(place);
        Ok(())
    }

    #[inline]
    pub(super) fn tuple<'a>(&mut self, count: usize, args: &'a [u8]) -> Next<'a> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= floor).ok_or(EMPTY_STACK)?;
        let tuple = self.values.tuple(self.stack.get(from..).unwrap_or_default())?;
        self.stack.truncate(from);
        self.push_before(tuple, args)
    }

    pub(super) fn tuple_from_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.tuple(self.stack.len().saturating_sub(mark), args)
    }

    pub(super) fn dict_from_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        let dict = self.values.dict()?;
        self.values.set(dict, self.stack.get_mut(mark..).unwrap_or_default())?;
        self.stack.truncate(mark);
        self.push_before(dict, args)
    }

    pub(super) fn list_from_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        let list = self.values.list()?;
        self.values.append(list, self.stack.get_mut(mark..).unwrap_or_default())?;
        self.stack.truncate(mark);
        self.push_before(list, args)
    }

    pub(super) fn add_to_set<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.below(mark)?;
        self.stack.truncate(mark);
        Ok(args)
    }

    pub(super) fn set_from_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.stack.truncate(mark);
        self.push_before(Word::other(), args)
    }
}
