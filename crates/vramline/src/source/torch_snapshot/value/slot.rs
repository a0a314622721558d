//! Lists and dictionaries: each is one word of a column until it is recognised.

use std::marker::PhantomData;

use super::word::Word;
use crate::pages::Words;
use crate::source::torch_snapshot::fault::Fault;

/// What a list was recognised as.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    Empty,
    /// The number of a stack.
    Stack(u32),
    /// The number of a list of ranges of entries.
    Entries(u32),
    /// The number of plain items.
    Items(u32),
}

/// What a dictionary was recognised as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dict {
    Empty,
    Entry(u32),
    Frame(u32),
    /// The number of plain items: keys and values alternate.
    Items(u32),
}

/// One word of a column: what a list or dictionary was recognised as, and a number. There are too many for more.
pub(super) trait Slot: Copy {
    const EMPTY: Self;
    fn word(self) -> u64;
    fn of(word: u64) -> Self;
}

const fn slot(tag: u64, number: u32) -> u64 {
    (number as u64) << 2 | tag
}

impl Slot for List {
    const EMPTY: List = List::Empty;

    #[inline]
    fn word(self) -> u64 {
        match self {
            List::Empty => 0,
            List::Stack(number) => slot(1, number),
            List::Entries(number) => slot(2, number),
            List::Items(number) => slot(3, number),
        }
    }

    #[inline]
    fn of(word: u64) -> List {
        let number = (word >> 2) as u32;
        match word & 3 {
            0 => List::Empty,
            1 => List::Stack(number),
            2 => List::Entries(number),
            _ => List::Items(number),
        }
    }
}

impl Slot for Dict {
    const EMPTY: Dict = Dict::Empty;

    #[inline]
    fn word(self) -> u64 {
        match self {
            Dict::Empty => 0,
            Dict::Entry(number) => slot(1, number),
            Dict::Frame(number) => slot(2, number),
            Dict::Items(number) => slot(3, number),
        }
    }

    #[inline]
    fn of(word: u64) -> Dict {
        let number = (word >> 2) as u32;
        match word & 3 {
            0 => Dict::Empty,
            1 => Dict::Entry(number),
            2 => Dict::Frame(number),
            _ => Dict::Items(number),
        }
    }
}

/// A column of slots.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) words: Words,
    kind: PhantomData<T>,
}

impl<T: Slot> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { words: Words::default(), kind: PhantomData }
    }

    #[inline]
    pub(super) fn push(&mut self) -> Result<u32, Fault> {
        let number = numbered(self.words.len())?;
        self.words.push(T::EMPTY.word());
        Ok(number)
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<T> {
        self.words.get(number as usize).map(T::of)
    }

    #[inline]
    pub(super) fn set(&mut self, number: u32, slot: T) {
        self.words.set(number as usize, slot.word());
    }
}

/// The items of a plain list or dictionary, and their depth.
#[derive(Debug, Default)]
pub(super) struct Items {
    pub(super) words: Vec<Word>,
    pub(super) depth: u8,
}

/// Tables are numbered in 32 bits. A file that needs more has more than 4 billion values.
#[inline]
pub(super) fn numbered(len: usize) -> Result<u32, Fault> {
    u32::try_from(len).map_err(|_| Fault::TooMany)
}
