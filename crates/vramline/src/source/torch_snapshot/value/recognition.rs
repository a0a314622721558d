//! Recognises by its contents what a list or dictionary is: a stack, a trace entry, a frame, or none of them.

use super::Values;
use super::entry::{Draft, Kind, NO_STACK, NO_TIME};
use super::key;
use super::slot::{Dict, List, numbered};
use super::word::{Value, Word};
use crate::names::Name;
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::traceback::Frame;

/// Dictionaries with more keys than this are neither frames nor entries.
pub(super) const MAX_RECORD_KEYS: usize = 64;

impl Values {
    /// Recognises a value before it is put into another one: its keys or items are complete then.
    pub(super) fn settle(&mut self, word: Word) -> Result<Word, Fault> {
        match word.value() {
            Value::Dict(number) => self.settle_dict(word, number),
            Value::List(number) => {
                self.settle_list(number)?;
                Ok(word)
            }
            _ => Ok(word),
        }
    }

    fn settle_dict(&mut self, word: Word, number: u32) -> Result<Word, Fault> {
        match self.dicts.get(number) {
            Some(Dict::Frame(frame)) => Ok(Word::new(Word::TAG_FRAME, frame)),
            Some(Dict::Items(items)) => {
                let Some(slot) = self.items.get_mut(items as usize) else { return Ok(word) };
                if slot.words.len() > 2 * MAX_RECORD_KEYS {
                    return Ok(word);
                }
                let words = std::mem::take(&mut slot.words);
                self.spend(words.len())?;
                let told = self.recognise(&words)?;
                if let Some(told) = told {
                    self.dicts.set(number, told);
                } else if let Some(slot) = self.items.get_mut(items as usize) {
                    slot.words = words;
                }
                match told {
                    Some(Dict::Frame(frame)) => Ok(Word::new(Word::TAG_FRAME, frame)),
                    _ => Ok(word),
                }
            }
            _ => Ok(word),
        }
    }

    fn settle_list(&mut self, number: u32) -> Result<(), Fault> {
        let Some(List::Items(items)) = self.lists.get(number) else { return Ok(()) };
        let words = self.items.get(items as usize).map_or(&[][..], |items| &items.words);
        let is_frame = |word: &Word| word.as_frame().is_some();
        if !words.first().is_some_and(is_frame) {
            return Ok(());
        }
        let count = words.len();
        let is_stack = words.iter().all(is_frame);
        self.spend(count)?;
        if is_stack && let Some(slot) = self.items.get_mut(items as usize) {
            let words = std::mem::take(&mut slot.words);
            let stack = self.stack(&words)?;
            self.lists.set(number, List::Stack(stack));
        }
        Ok(())
    }

    /// The number of a stack, from frames.
    pub(super) fn stack(&mut self, words: &[Word]) -> Result<u32, Fault> {
        self.scratch.clear();
        self.scratch.extend(words.iter().map(|word| word.number()));
        self.stacks.intern(&self.scratch).ok_or(Fault::TooMany)
    }

    /// Recognises a dictionary by its keys: a frame, an entry, or `None`.
    #[inline]
    pub(super) fn recognise(&mut self, words: &[Word]) -> Result<Option<Dict>, Fault> {
        let has = |wanted: Name| words.chunks_exact(2).any(|pair| pair.first() == Some(&Word::text(wanted)));
        if has(key::ACTION) {
            return self.entry(words);
        }
        if has(key::FILENAME) && has(key::LINE) && has(key::NAME) {
            return self.frame(words);
        }
        Ok(None)
    }

    fn frame(&mut self, words: &[Word]) -> Result<Option<Dict>, Fault> {
        let (mut name, mut file, mut line) = (None, None, None);
        for pair in words.chunks_exact(2) {
            let &[key, value] = pair else { continue };
            match key.as_text() {
                Some(key::NAME) => name = value.as_text(),
                Some(key::FILENAME) => file = value.as_text(),
                Some(key::LINE) => {
                    // PyTorch writes an unknown line as -1 without a sign: 0 here.
                    line = match value.value() {
                        Value::Int(line) => Some(u32::try_from(line).unwrap_or(0)),
                        Value::Big(_) => Some(0),
                        _ => None,
                    };
                }
                _ => self.leave_out(key),
            }
        }
        let (Some(name), Some(file), Some(line)) = (name, file, line) else { return Ok(None) };
        let frame = Frame { function: name, file, line };
        self.stacks.frame(frame).map(|frame| Some(Dict::Frame(frame))).ok_or(Fault::TooMany)
    }

    #[cold]
    fn leave_out(&mut self, key: Word) {
        let name = key.as_text().unwrap_or(Name::EMPTY);
        if self.left_out.len() < 16 && !self.left_out.contains(&name) {
            self.left_out.push(name);
        }
    }

    fn entry(&mut self, words: &[Word]) -> Result<Option<Dict>, Fault> {
        let mut draft = Draft::new();
        for pair in words.chunks_exact(2) {
            let &[key, value] = pair else { continue };
            match key.as_text() {
                Some(name) if self.draft(&mut draft, name, value) => {}
                Some(key::ADDR | key::DEVICE_FREE | key::SIZE) => self.odd_numbers += 1,
                _ => self.leave_out(key),
            }
        }
        if !draft.has_action() {
            return Ok(None);
        }
        self.add(draft).map(|number| Some(Dict::Entry(number)))
    }

    /// Sets a field of an entry by its key. Returns false if entries have no such key, or the value is not an address or size.
    #[inline]
    pub(crate) fn draft(&self, draft: &mut Draft, key: Name, value: Word) -> bool {
        let Draft { entry, kind, forward } = draft;
        match key {
            key::ACTION => kind.action = value.as_text().unwrap_or(Name::EMPTY),
            key::ADDR | key::DEVICE_FREE => match self.amount(value) {
                Some(address) => entry.address = address,
                None => return false,
            },
            key::SIZE => match self.amount(value) {
                Some(size) => entry.size = size,
                None => return false,
            },
            key::TIME_US => entry.time_us = self.signed(value).unwrap_or(NO_TIME),
            key::STREAM => kind.stream = self.signed(value),
            key::COMPILE_CONTEXT => kind.compile_context = value.as_text(),
            key::USER_METADATA => kind.user_metadata = value.as_text(),
            key::POOL_ID => kind.pool = self.pair(value),
            key::FRAMES => entry.stack = self.stack_of(value).unwrap_or(NO_STACK),
            key::FORWARD_FRAMES => *forward = self.stack_of(value),
            _ => return false,
        }
        true
    }

    fn add(&mut self, draft: Draft) -> Result<u32, Fault> {
        let Draft { mut entry, kind, forward } = draft;
        entry.kind = self.kind_number(kind)?;
        let number = self.entries.push(entry).ok_or(Fault::TooMany)?;
        self.forward.extend(forward.map(|stack| (number, stack)));
        Ok(number)
    }

    /// Turns an empty dictionary into an entry.
    #[inline]
    pub(crate) fn become_entry(&mut self, dict: Word, draft: Draft) -> Result<(), Fault> {
        let number = self.add(draft)?;
        self.dicts.set(dict.number(), Dict::Entry(number));
        Ok(())
    }

    #[inline]
    fn kind_number(&mut self, kind: Kind) -> Result<u32, Fault> {
        let recent = kind.action.0 as usize % self.last_kinds.len();
        if let Some(&(number, Some(known))) = self.last_kinds.get(recent)
            && known == kind
        {
            return Ok(number);
        }
        let next = numbered(self.kinds.len())?;
        let kinds = &mut self.kinds;
        let number = *self.kind_numbers.entry(kind).or_insert_with(|| {
            kinds.push(kind);
            next
        });
        if let Some(slot) = self.last_kinds.get_mut(recent) {
            *slot = (number, Some(kind));
        }
        Ok(number)
    }
}
