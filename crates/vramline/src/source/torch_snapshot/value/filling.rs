//! Items put into lists, and keys into dictionaries.

use super::Values;
use super::recognition::MAX_RECORD_KEYS;
use super::slot::{Dict, Items, List, numbered};
use super::word::{Value, Word};
use crate::source::torch_snapshot::fault::Fault;

/// The depth of a snapshot is five: the list of segments, a segment, its blocks, a block, its frames.
const MAX_DEPTH: u8 = 64;

impl Values {
    /// Appends items to a list.
    pub(crate) fn append(&mut self, list: Word, words: &mut [Word]) -> Result<(), Fault> {
        let number = match list.value() {
            Value::List(number) => number,
            // The effect on an instance of a class is unknown.
            Value::Opaque(_) | Value::Other => return Ok(()),
            _ => return Err(Fault::Mismatch("items are appended to a value that is not a list")),
        };
        if words.is_empty() {
            return Ok(());
        }
        for word in words.iter_mut() {
            if matches!(word.tag(), Word::TAG_DICT | Word::TAG_LIST) {
                *word = self.settle(*word)?;
            }
        }
        match self.lists.get(number) {
            Some(List::Empty) if words.iter().all(|word| word.as_frame().is_some()) => {
                let stack = self.stack(words)?;
                self.set_list(number, List::Stack(stack));
                return Ok(());
            }
            Some(List::Empty | List::Entries(_)) if self.all_entries(words) => {
                return self.append_entries(number, words);
            }
            Some(List::Entries(_)) => {
                return Err(Fault::Mismatch("a list of trace entries contains another value"));
            }
            _ => {}
        }
        let depth = self.depth_of(words)?;
        let items = match self.lists.get(number) {
            Some(List::Items(items)) => items,
            Some(List::Stack(stack)) => {
                let frames = self.stacks.frames(stack);
                let known: Vec<Word> =
                    frames.iter().map(|&frame| Word::new(Word::TAG_FRAME, frame)).collect();
                self.spend(known.len())?;
                self.new_items(known, 2)?
            }
            _ => self.new_items(Vec::new(), 1)?,
        };
        self.set_list(number, List::Items(items));
        if let Some(items) = self.items.get_mut(items as usize) {
            items.words.extend_from_slice(words);
            items.depth = items.depth.max(depth);
        }
        Ok(())
    }

    fn set_list(&mut self, number: u32, list: List) {
        self.lists.set(number, list);
    }

    fn new_items(&mut self, words: Vec<Word>, depth: u8) -> Result<u32, Fault> {
        let number = numbered(self.items.len())?;
        self.items.push(Items { words, depth });
        Ok(number)
    }

    fn entry_of(&self, word: Word) -> Option<u32> {
        if word.tag() != Word::TAG_DICT {
            return None;
        }
        match self.dicts.get(word.number()) {
            Some(Dict::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    fn all_entries(&self, words: &[Word]) -> bool {
        words.iter().all(|&word| self.entry_of(word).is_some())
    }

    fn append_entries(&mut self, number: u32, words: &[Word]) -> Result<(), Fault> {
        let at = match self.lists.get(number) {
            Some(List::Entries(at)) => at,
            _ => {
                let at = numbered(self.ranges.len())?;
                self.ranges.push(Vec::new());
                self.set_list(number, List::Entries(at));
                at
            }
        };
        for &word in words {
            let Some(entry) = self.entry_of(word) else { continue };
            let Some(ranges) = self.ranges.get_mut(at as usize) else { continue };
            match ranges.last_mut() {
                Some(last) if last.end == entry => last.end += 1,
                _ => ranges.push(entry..entry + 1),
            }
        }
        Ok(())
    }

    /// Sets keys of a dictionary from alternating keys and values.
    pub(crate) fn set(&mut self, dict: Word, words: &mut [Word]) -> Result<(), Fault> {
        let number = match dict.value() {
            Value::Dict(number) => number,
            Value::Opaque(_) | Value::Other => return Ok(()),
            Value::Frame(_) => return Err(Fault::Mismatch("a frame changes after it was used")),
            _ => return Err(Fault::Mismatch("keys are set in a value that is not a dictionary")),
        };
        if !words.len().is_multiple_of(2) {
            return Err(Fault::Mismatch("a key has no value"));
        }
        for word in words.iter_mut() {
            if matches!(word.tag(), Word::TAG_DICT | Word::TAG_LIST) {
                *word = self.settle(*word)?;
            }
        }
        match self.dicts.get(number) {
            // A dictionary that is filled at once is complete; one that gets a single key may get more.
            Some(Dict::Empty) if words.len() > 2 && words.len() <= 2 * MAX_RECORD_KEYS => {
                if let Some(told) = self.recognise(words)? {
                    return self.set_dict(number, told);
                }
            }
            Some(Dict::Entry(_) | Dict::Frame(_)) => {
                return Err(Fault::Mismatch("a trace entry or a frame changes after it was used"));
            }
            _ => {}
        }
        let depth = self.depth_of(words)?;
        let items = match self.dicts.get(number) {
            Some(Dict::Items(items)) => items,
            _ => self.new_items(Vec::new(), 1)?,
        };
        self.set_dict(number, Dict::Items(items))?;
        if let Some(items) = self.items.get_mut(items as usize) {
            items.words.extend_from_slice(words);
            items.depth = items.depth.max(depth);
        }
        Ok(())
    }

    fn set_dict(&mut self, number: u32, dict: Dict) -> Result<(), Fault> {
        self.dicts.set(number, dict);
        Ok(())
    }

    /// Fills an empty list with the frames of a stack. Returns false if the value is not an empty list.
    #[inline]
    pub(crate) fn fill_stack(&mut self, list: Word, stack: u32) -> bool {
        let Value::List(number) = list.value() else { return false };
        let is_empty = matches!(self.lists.get(number), Some(List::Empty));
        if is_empty {
            self.lists.set(number, List::Stack(stack));
        }
        is_empty
    }

    /// The depth of a container with these items.
    pub(super) fn depth_of(&self, words: &[Word]) -> Result<u8, Fault> {
        let deepest = words.iter().map(|&word| self.depth(word)).max().unwrap_or(0);
        if deepest < MAX_DEPTH { Ok(deepest + 1) } else { Err(Fault::TooDeep) }
    }

    fn depth(&self, word: Word) -> u8 {
        let of_items = |number: u32| self.items.get(number as usize).map_or(0, |items| items.depth);
        match word.value() {
            Value::Tuple(number) => self.tuples.get(number as usize).map_or(0, |tuple| tuple.2),
            Value::List(number) => match self.lists.get(number) {
                Some(List::Items(items)) => of_items(items),
                Some(List::Entries(_)) => 4,
                Some(List::Stack(_)) => 2,
                _ => 1,
            },
            Value::Dict(number) => match self.dicts.get(number) {
                Some(Dict::Items(items)) => of_items(items),
                Some(Dict::Entry(_)) => 3,
                _ => 1,
            },
            Value::Frame(_) => 1,
            _ => 0,
        }
    }
}
