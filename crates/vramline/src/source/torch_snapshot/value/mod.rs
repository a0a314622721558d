//! Values of a pickle in an arena: eight bytes each, with tables for those that need more.
//!
//! A snapshot of a gigabyte has millions of trace entries, each a dictionary with a list of thirty frames. None of
//! these dictionaries and lists is kept. A dictionary becomes a [`Frame`] or an [`Entry`] as soon as its keys show that it is one, a
//! list of frames becomes the number of a stack, a list of entries becomes ranges of their numbers. Everything
//! else stays a plain list or dictionary.
//!
//! Shared values stay shared: a value that the pickle stores once exists once here. The work is bounded: for any file, the work
//! of reading values again is limited by the size of the file ([`Values::spend`]).
//!
//! [`Frame`]: super::traceback::Frame

mod entry;
mod filling;
pub(crate) mod key;
mod lookup;
mod recognition;
mod slot;
mod word;

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::fault::Fault;
use super::traceback::Tracebacks;
use crate::names::{Name, Names};
use crate::pages::Page;
use entry::Entries;
pub(crate) use entry::{ABSENT, Action, Draft, Entry, Kind, NO_STACK, NO_TIME};
use slot::{Dict, Items, List, Slots, numbered};
pub(crate) use word::{Value, Word};

/// The number of values that may be read again for each byte of the file.
const WORK_PER_BYTE: u64 = 16;
const FREE_WORK: u64 = 1 << 20;

/// All values of a pickle.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) names: Names,
    pub(crate) stacks: Tracebacks,
    pub(crate) entries: Entries,
    kinds: Vec<Kind>,
    kind_numbers: FxHashMap<Kind, u32>,
    /// The last kind of each action, which is nearly always that of the next.
    last_kinds: [(u32, Option<Kind>); 8],
    /// Entries that also have frames of the forward pass.
    pub(crate) forward: Vec<(u32, u32)>,
    bigs: Vec<i128>,
    floats: Vec<f64>,
    tuples: Vec<(u32, u32, u8)>,
    tuple_items: Vec<Word>,
    lists: Slots<List>,
    dicts: Slots<Dict>,
    items: Vec<Items>,
    ranges: Vec<Vec<Range<u32>>>,
    /// Unknown keys of frames and entries, and numbers that are invalid as sizes or addresses.
    pub(crate) left_out: Vec<Name>,
    pub(crate) odd_numbers: u64,
    work: u64,
    /// Bytes of the file that were read so far.
    pub(crate) paid: u64,
    scratch: Vec<u32>,
}

impl Values {
    pub(crate) fn new() -> Values {
        let mut names = Names::default();
        for text in key::KNOWN {
            names.intern(text);
        }
        Values {
            names,
            stacks: Tracebacks::default(),
            entries: Entries::default(),
            kinds: Vec::new(),
            kind_numbers: FxHashMap::default(),
            last_kinds: [(0, None); 8],
            forward: Vec::new(),
            bigs: Vec::new(),
            floats: Vec::new(),
            tuples: Vec::new(),
            tuple_items: Vec::new(),
            lists: Slots::new(),
            dicts: Slots::new(),
            items: Vec::new(),
            ranges: Vec::new(),
            left_out: Vec::new(),
            odd_numbers: 0,
            work: 0,
            paid: 0,
            scratch: Vec::new(),
        }
    }

    /// Counts `count` values that are read again. A file that requires more than its size allows is an attack.
    pub(crate) fn spend(&mut self, count: usize) -> Result<(), Fault> {
        self.work = self.work.saturating_add(count as u64);
        if self.work > self.paid.saturating_mul(WORK_PER_BYTE).saturating_add(FREE_WORK) {
            return Err(Fault::Bomb);
        }
        Ok(())
    }

    pub(crate) fn int(&mut self, value: i128) -> Result<Word, Fault> {
        if let Some(word) = i64::try_from(value).ok().and_then(Word::small) {
            return Ok(word);
        }
        let number = numbered(self.bigs.len())?;
        self.bigs.push(value);
        Ok(Word::new(Word::TAG_BIG, number))
    }

    pub(crate) fn float(&mut self, value: f64) -> Result<Word, Fault> {
        let number = numbered(self.floats.len())?;
        self.floats.push(value);
        Ok(Word::new(Word::TAG_FLOAT, number))
    }

    pub(crate) fn text(&mut self, text: &str) -> Word {
        Word::text(self.names.intern(text))
    }

    #[inline]
    pub(crate) fn list(&mut self) -> Result<Word, Fault> {
        let number = self.lists.push()?;
        Ok(Word::new(Word::TAG_LIST, number))
    }

    #[inline]
    pub(crate) fn dict(&mut self) -> Result<Word, Fault> {
        let number = self.dicts.push()?;
        Ok(Word::new(Word::TAG_DICT, number))
    }

    pub(crate) fn tuple(&mut self, words: &[Word]) -> Result<Word, Fault> {
        let depth = self.depth_of(words)?;
        let begin = numbered(self.tuple_items.len())?;
        let number = numbered(self.tuples.len())?;
        self.tuple_items.extend_from_slice(words);
        self.tuples.push((begin, numbered(words.len())?, depth));
        Ok(Word::new(Word::TAG_TUPLE, number))
    }

    /// How many lists and dictionaries there are.
    #[inline]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.lists.words.len(), self.dicts.words.len())
    }

    /// Removes the lists and dictionaries after the first `count`.
    #[inline]
    pub(crate) fn roll_back(&mut self, (lists, dicts): (usize, usize)) {
        self.lists.words.truncate(lists);
        self.dicts.words.truncate(dicts);
    }

    /// The parts that are needed only while reading.
    pub(crate) fn forget_reading(&mut self) {
        self.kind_numbers = FxHashMap::default();
    }

    /// Removes all plain values and returns the memory of lists and dictionaries. Entries, stacks and names stay.
    pub(crate) fn forget_values(&mut self) -> Vec<Page> {
        self.bigs = Vec::new();
        self.floats = Vec::new();
        self.tuples = Vec::new();
        self.tuple_items = Vec::new();
        self.items = Vec::new();
        self.ranges = Vec::new();
        let lists = std::mem::replace(&mut self.lists, Slots::new());
        let dicts = std::mem::replace(&mut self.dicts, Slots::new());
        let mut pages = lists.words.into_pages();
        pages.extend(dicts.words.into_pages());
        pages
    }
}
