//! Values of a pickle, in an arena: eight bytes each, and what does not fit there in tables.
//!
//! A snapshot of a gigabyte holds millions of trace entries, each a dictionary with a list of thirty frames. None of
//! them is kept as such. A dictionary becomes a [`Frame`] or an [`Entry`] as soon as its keys tell that it is one, a
//! list of frames becomes the number of a stack, a list of entries becomes ranges of their numbers. What is something
//! else stays a plain list or dictionary.
//!
//! Sharing is kept: a value that the pickle stores once is here once. So is its bound: whatever a file does, the work
//! spent on looking at values again is limited by its size ([`Values::spend`]).

use std::marker::PhantomData;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::fault::Fault;
use super::traceback::{Frame, Tracebacks};
use crate::names::{Name, Names};
use crate::pages::{Page, Words};

/// The depth of a snapshot is five: the list of segments, a segment, its blocks, a block, its frames.
const DEEPEST: u8 = 64;

/// Values looked at again, for each byte of the file.
const WORK_PER_BYTE: u64 = 16;
const FREE_WORK: u64 = 1 << 20;

/// Dictionaries with more keys than this are neither frames nor entries.
const MOST_KEYS: usize = 64;

/// Keys and words that snapshots use, in the order of their names in every table of names.
macro_rules! known {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// The numbers of known texts.
        pub(crate) mod key {
            use super::Name;
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Number { $($name),* }
            // The empty text comes before all of them.
            $(pub(crate) const $name: Name = Name(Number::$name as u32 + 1);)*
        }
        const KNOWN: &[&str] = &[$($text),*];
    };
}

known! {
    ACTION = "action",
    ADDR = "addr",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    FRAMES = "frames",
    DEVICE_FREE = "device_free",
    POOL_ID = "pool_id",
    FORWARD_FRAMES = "forward_frames",
    NAME = "name",
    FILENAME = "filename",
    LINE = "line",
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    ALLOCATED_SIZE = "allocated_size",
    ACTIVE_SIZE = "active_size",
    REQUESTED_SIZE = "requested_size",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    BLOCKS = "blocks",
    STATE = "state",
    STAGE = "stage",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    SNAPSHOT = "snapshot",
    OOM = "oom",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    SMALL = "small",
    LARGE = "large",
    START = "START",
    END = "END",
    MAX_SPLIT_SIZE = "max_split_size",
    DIVISIONS = "roundup_power2_divisions",
}

/// A value, told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 60 bits.
    Big(u32),
    /// An integer of more than 128 bits, or bytes: nothing that a snapshot needs.
    Other,
    Float(u32),
    Text(Name),
    Tuple(u32),
    List(u32),
    Dict(u32),
    Frame(u32),
    /// What would have been a class, a function or what it returns.
    Opaque(Name),
}

/// A [`Value`] in eight bytes: four bits say what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const BITS: u32 = 4;
    const NONE: u64 = 0;
    const BOOL: u64 = 1;
    const INT: u64 = 2;
    const BIG: u64 = 3;
    const OTHER: u64 = 4;
    const FLOAT: u64 = 5;
    const TEXT: u64 = 6;
    const TUPLE: u64 = 7;
    const LIST: u64 = 8;
    const DICT: u64 = 9;
    const FRAME: u64 = 10;
    const OPAQUE: u64 = 11;

    #[inline]
    const fn new(tag: u64, payload: u32) -> Word {
        Word((payload as u64) << Word::BITS | tag)
    }

    /// The eight bytes.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// A word from its eight bytes.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Word {
        Word(bits)
    }

    pub(crate) const fn none() -> Word {
        Word::new(Word::NONE, 0)
    }

    pub(crate) const fn bool(value: bool) -> Word {
        Word::new(Word::BOOL, value as u32)
    }

    pub(crate) const fn other() -> Word {
        Word::new(Word::OTHER, 0)
    }

    #[inline]
    pub(crate) const fn text(name: Name) -> Word {
        Word::new(Word::TEXT, name.0)
    }

    pub(crate) const fn opaque(name: Name) -> Word {
        Word::new(Word::OPAQUE, name.0)
    }

    /// An integer of at most 60 bits.
    #[inline]
    pub(crate) const fn small(value: i64) -> Option<Word> {
        let word = value << Word::BITS;
        if word >> Word::BITS == value { Some(Word(word.cast_unsigned() | Word::INT)) } else { None }
    }

    /// An integer of 32 bits.
    #[inline]
    pub(crate) const fn int(value: i32) -> Word {
        Word(((value as i64) << Word::BITS).cast_unsigned() | Word::INT)
    }

    /// What the value is, as its tag.
    #[inline]
    const fn tag(self) -> u64 {
        self.0 & ((1 << Word::BITS) - 1)
    }

    #[inline]
    const fn number(self) -> u32 {
        (self.0 >> Word::BITS) as u32
    }

    #[inline]
    pub(crate) fn as_frame(self) -> Option<u32> {
        (self.tag() == Word::FRAME).then_some(self.number())
    }

    #[inline]
    fn as_text(self) -> Option<Name> {
        (self.tag() == Word::TEXT).then_some(Name(self.number()))
    }

    #[inline]
    pub(crate) fn value(self) -> Value {
        let number = self.number();
        match self.tag() {
            Word::NONE => Value::None,
            Word::BOOL => Value::Bool(number != 0),
            Word::INT => Value::Int(self.0.cast_signed() >> Word::BITS),
            Word::BIG => Value::Big(number),
            Word::FLOAT => Value::Float(number),
            Word::TEXT => Value::Text(Name(number)),
            Word::TUPLE => Value::Tuple(number),
            Word::LIST => Value::List(number),
            Word::DICT => Value::Dict(number),
            Word::FRAME => Value::Frame(number),
            Word::OPAQUE => Value::Opaque(Name(number)),
            _ => Value::Other,
        }
    }
}

/// What became of a list.
#[derive(Clone, Copy, Debug)]
enum List {
    Empty,
    /// The number of a stack.
    Stack(u32),
    /// The number of some ranges of entries.
    Entries(u32),
    /// The number of plain items.
    Items(u32),
}

/// What became of a dictionary.
#[derive(Clone, Copy, Debug)]
enum Dict {
    Empty,
    Entry(u32),
    Frame(u32),
    /// The number of plain items, key and value by turns.
    Items(u32),
}

/// Lists and dictionaries are many, so that each is one word of a column: what became of it, and a number.
trait Slot: Copy {
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
struct Slots<T> {
    words: Words,
    kind: PhantomData<T>,
}

impl<T: Slot> Slots<T> {
    fn new() -> Slots<T> {
        Slots { words: Words::default(), kind: PhantomData }
    }

    fn push(&mut self) -> Result<u32, Fault> {
        let number = numbered(self.words.len())?;
        self.words.push(T::EMPTY.word());
        Ok(number)
    }

    #[inline]
    fn get(&self, number: u32) -> Option<T> {
        self.words.get(number as usize).map(T::of)
    }

    #[inline]
    fn set(&mut self, number: u32, slot: T) {
        self.words.set(number as usize, slot.word());
    }
}

#[derive(Debug, Default)]
struct Items {
    words: Vec<Word>,
    depth: u8,
}

/// What an entry of the trace says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    Oom,
    /// Something newer.
    Other,
}

impl Action {
    fn of(name: Name) -> Action {
        match name {
            key::ALLOC => Action::Alloc,
            key::FREE_REQUESTED => Action::FreeRequested,
            key::FREE_COMPLETED => Action::FreeCompleted,
            key::SEGMENT_ALLOC => Action::SegmentAlloc,
            key::SEGMENT_FREE => Action::SegmentFree,
            key::SEGMENT_MAP => Action::SegmentMap,
            key::SEGMENT_UNMAP => Action::SegmentUnmap,
            key::SNAPSHOT => Action::Snapshot,
            key::OOM => Action::Oom,
            _ => Action::Other,
        }
    }
}

/// What most entries share with many others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) action: Name,
    /// `None` where not told, as everywhere here.
    pub(crate) stream: Option<i64>,
    pub(crate) compile_context: Option<Name>,
    pub(crate) user_metadata: Option<Name>,
    pub(crate) pool: Option<(i64, i64)>,
}

impl Kind {
    pub(crate) fn action(&self) -> Action {
        Action::of(self.action)
    }
}

/// What stands in an entry for a number that is not told, or that no address and no size can be.
pub(crate) const ABSENT: u64 = u64::MAX;
pub(crate) const NO_TIME: i64 = i64::MIN;
pub(crate) const NO_STACK: u32 = u32::MAX;

/// An entry of a device's trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// On `oom`: what was free on the device.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) time_us: i64,
    /// The number of its [`Kind`].
    pub(crate) kind: u32,
    /// The number of its stack; [`NO_STACK`] where the entry has no frames, not even an empty list of them.
    pub(crate) stack: u32,
}

/// An entry while its keys are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    entry: Entry,
    kind: Kind,
    forward: Option<u32>,
}

impl Draft {
    #[inline]
    pub(crate) fn new() -> Draft {
        Draft {
            entry: Entry { address: ABSENT, size: ABSENT, time_us: NO_TIME, kind: 0, stack: NO_STACK },
            kind: Kind {
                action: Name::EMPTY,
                stream: None,
                compile_context: None,
                user_metadata: None,
                pool: None,
            },
            forward: None,
        }
    }

    /// Whether it says what was done: else it is no entry.
    #[inline]
    pub(crate) fn has_action(&self) -> bool {
        !self.kind.action.is_empty()
    }
}

/// Entries in columns of pages, so that what was dealt with can be given back.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pages: Vec<Option<Page>>,
    len: u32,
}

impl Entries {
    const WORDS: usize = 4;
    const PIECE: usize = Page::WORDS / Entries::WORDS;

    fn push(&mut self, entry: Entry) -> Option<u32> {
        let number = self.len;
        self.len = self.len.checked_add(1).filter(|&len| len < NO_STACK)?;
        let at = number as usize % Entries::PIECE;
        if at == 0 {
            // Most snapshots fill little of their first page.
            self.pages.push(Some(if self.pages.is_empty() { Page::new() } else { Page::large() }));
        }
        let page = self.pages.last_mut()?.as_mut()?;
        let room = page.words_mut().get_mut(at * Entries::WORDS..(at + 1) * Entries::WORDS)?;
        let words = [
            entry.address,
            entry.size,
            entry.time_us.cast_unsigned(),
            u64::from(entry.kind) << 32 | u64::from(entry.stack),
        ];
        room.copy_from_slice(&words);
        Some(number)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<Entry> {
        let number = number as usize;
        let page = self.pages.get(number / Entries::PIECE)?.as_ref()?;
        let at = number % Entries::PIECE * Entries::WORDS;
        let &[address, size, time, rest] = page.words().get(at..at + Entries::WORDS)? else { return None };
        let (kind, stack) = ((rest >> 32) as u32, rest as u32);
        Some(Entry { address, size, time_us: time.cast_signed(), kind, stack })
    }

    /// Gives back the room of all entries before this one.
    pub(crate) fn forget_before(&mut self, number: u32) -> Vec<Page> {
        let whole = number as usize / Entries::PIECE;
        let gone = self.pages.iter_mut().take(whole).rev().take_while(|page| page.is_some());
        gone.filter_map(Option::take).collect()
    }
}

/// Everything that a pickle holds.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) names: Names,
    pub(crate) stacks: Tracebacks,
    pub(crate) entries: Entries,
    kinds: Vec<Kind>,
    kind_numbers: FxHashMap<Kind, u32>,
    /// The last kind of each action, which is nearly always that of the next.
    last_kinds: [(u32, Option<Kind>); 8],
    /// Entries that have forward frames too.
    pub(crate) forward: Vec<(u32, u32)>,
    bigs: Vec<i128>,
    floats: Vec<f64>,
    tuples: Vec<(u32, u32, u8)>,
    tuple_items: Vec<Word>,
    lists: Slots<List>,
    dicts: Slots<Dict>,
    items: Vec<Items>,
    ranges: Vec<Vec<Range<u32>>>,
    /// Keys of frames and entries that are not kept, and numbers that cannot be what they are said to be.
    pub(crate) left_out: Vec<Name>,
    pub(crate) odd_numbers: u64,
    work: u64,
    /// Bytes of the file that were read so far.
    pub(crate) paid: u64,
    scratch: Vec<u32>,
}

/// Tables are numbered in 32 bits. A file that needs more has more than 4 billion values.
fn numbered(len: usize) -> Result<u32, Fault> {
    u32::try_from(len).map_err(|_| Fault::TooMany)
}

impl Values {
    pub(crate) fn new() -> Values {
        let mut names = Names::default();
        for text in KNOWN {
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

    /// Accounts for looking at `count` values again. Files that ask for more than they paid for are bombs.
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
        Ok(Word::new(Word::BIG, number))
    }

    pub(crate) fn float(&mut self, value: f64) -> Result<Word, Fault> {
        let number = numbered(self.floats.len())?;
        self.floats.push(value);
        Ok(Word::new(Word::FLOAT, number))
    }

    pub(crate) fn text(&mut self, text: &str) -> Word {
        Word::text(self.names.intern(text))
    }

    pub(crate) fn list(&mut self) -> Result<Word, Fault> {
        let number = self.lists.push()?;
        Ok(Word::new(Word::LIST, number))
    }

    pub(crate) fn dict(&mut self) -> Result<Word, Fault> {
        let number = self.dicts.push()?;
        Ok(Word::new(Word::DICT, number))
    }

    pub(crate) fn tuple(&mut self, words: &[Word]) -> Result<Word, Fault> {
        let depth = self.depth_of(words)?;
        let begin = numbered(self.tuple_items.len())?;
        let number = numbered(self.tuples.len())?;
        self.tuple_items.extend_from_slice(words);
        self.tuples.push((begin, numbered(words.len())?, depth));
        Ok(Word::new(Word::TUPLE, number))
    }

    /// The depth of a container with these items.
    fn depth_of(&self, words: &[Word]) -> Result<u8, Fault> {
        let deepest = words.iter().map(|&word| self.depth(word)).max().unwrap_or(0);
        if deepest < DEEPEST { Ok(deepest + 1) } else { Err(Fault::TooDeep) }
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

    /// A value that is about to be put into another: by now its keys or items tell what it is.
    fn settle(&mut self, word: Word) -> Result<Word, Fault> {
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
            Some(Dict::Frame(frame)) => Ok(Word::new(Word::FRAME, frame)),
            Some(Dict::Items(items)) => {
                let Some(slot) = self.items.get_mut(items as usize) else { return Ok(word) };
                if slot.words.len() > 2 * MOST_KEYS {
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
                    Some(Dict::Frame(frame)) => Ok(Word::new(Word::FRAME, frame)),
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
    fn stack(&mut self, words: &[Word]) -> Result<u32, Fault> {
        self.scratch.clear();
        self.scratch.extend(words.iter().map(|word| word.number()));
        self.stacks.intern(&self.scratch).ok_or(Fault::TooMany)
    }

    /// Appends items to a list.
    pub(crate) fn append(&mut self, list: Word, words: &mut [Word]) -> Result<(), Fault> {
        let number = match list.value() {
            Value::List(number) => number,
            // What a class would have made of it is not known.
            Value::Opaque(_) | Value::Other => return Ok(()),
            _ => return Err(Fault::Mismatch("items are appended to something that is no list")),
        };
        if words.is_empty() {
            return Ok(());
        }
        for word in words.iter_mut() {
            if matches!(word.tag(), Word::DICT | Word::LIST) {
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
                return Err(Fault::Mismatch("a list of trace entries goes on with something else"));
            }
            _ => {}
        }
        let depth = self.depth_of(words)?;
        let items = match self.lists.get(number) {
            Some(List::Items(items)) => items,
            Some(List::Stack(stack)) => {
                let frames = self.stacks.frames(stack);
                let known: Vec<Word> = frames.iter().map(|&frame| Word::new(Word::FRAME, frame)).collect();
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
        if word.tag() != Word::DICT {
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

    /// Sets keys of a dictionary: key and value by turns.
    pub(crate) fn set(&mut self, dict: Word, words: &mut [Word]) -> Result<(), Fault> {
        let number = match dict.value() {
            Value::Dict(number) => number,
            Value::Opaque(_) | Value::Other => return Ok(()),
            Value::Frame(_) => return Err(Fault::Mismatch("a frame changes after it was used")),
            _ => return Err(Fault::Mismatch("keys are set in something that is no dictionary")),
        };
        if !words.len().is_multiple_of(2) {
            return Err(Fault::Mismatch("a key has no value"));
        }
        for word in words.iter_mut() {
            if matches!(word.tag(), Word::DICT | Word::LIST) {
                *word = self.settle(*word)?;
            }
        }
        match self.dicts.get(number) {
            // A dictionary that is filled in one go is whole; one that gets a single key first may not be.
            Some(Dict::Empty) if words.len() > 2 && words.len() <= 2 * MOST_KEYS => {
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

    /// What a dictionary is by its keys: a frame, an entry, or `None`.
    #[inline]
    fn recognise(&mut self, words: &[Word]) -> Result<Option<Dict>, Fault> {
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
                    line = match value.value() {
                        Value::Int(line) => u32::try_from(line).ok(),
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

    /// Takes the value of a key into an entry. False where entries have no such key, or the value is no address or size.
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

    /// Makes an empty dictionary an entry.
    #[inline]
    pub(crate) fn become_entry(&mut self, dict: Word, draft: Draft) -> Result<(), Fault> {
        let number = self.add(draft)?;
        self.dicts.set(dict.number(), Dict::Entry(number));
        Ok(())
    }

    /// How many lists and dictionaries there are.
    #[inline]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.lists.words.len(), self.dicts.words.len())
    }

    /// Forgets the lists and dictionaries beyond so many.
    pub(crate) fn roll_back(&mut self, (lists, dicts): (usize, usize)) {
        self.lists.words.truncate(lists);
        self.dicts.words.truncate(dicts);
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

    pub(crate) fn kind(&self, number: u32) -> Option<&Kind> {
        self.kinds.get(number as usize)
    }

    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// A size or an address.
    #[inline]
    fn amount(&self, word: Word) -> Option<u64> {
        match word.value() {
            Value::Int(value) => u64::try_from(value).ok(),
            Value::Big(_) => self.unsigned(word).filter(|&value| value != ABSENT),
            _ => None,
        }
    }

    #[inline]
    fn signed(&self, word: Word) -> Option<i64> {
        match word.value() {
            Value::Int(value) => Some(value),
            // A handle is as wide as a pointer, whether the writer gave it a sign or not.
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

    /// The stack that a list of frames is; `None` where it is none.
    pub(crate) fn stack_of(&self, word: Word) -> Option<u32> {
        let Value::List(number) = word.value() else { return None };
        match self.lists.get(number)? {
            List::Stack(stack) => Some(stack),
            List::Empty => Some(Tracebacks::EMPTY),
            _ => None,
        }
    }

    /// The items of a plain list or a tuple, or keys and values of a plain dictionary by turns.
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

    /// The entries of a list of entries. `None` where it is something else.
    pub(crate) fn entry_ranges(&mut self, word: Word) -> Option<Vec<Range<u32>>> {
        let Value::List(number) = word.value() else { return None };
        match self.lists.get(number)? {
            List::Empty => Some(Vec::new()),
            // Taken: a list of entries is of one device only.
            List::Entries(at) => {
                let ranges = std::mem::take(self.ranges.get_mut(at as usize)?);
                (!ranges.is_empty()).then_some(ranges)
            }
            _ => None,
        }
    }

    /// The value of a key; the last one where there are several, as in Python.
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

    /// A dictionary that was put into the memo before it was filled, as what it became.
    #[inline]
    pub(crate) fn current(&self, word: Word) -> Word {
        if word.tag() == Word::DICT
            && let Some(Dict::Frame(frame)) = self.dicts.get(word.number())
        {
            return Word::new(Word::FRAME, frame);
        }
        word
    }

    /// Fills a list that is still empty with the frames of a stack. False where it is something else.
    #[inline]
    pub(crate) fn fill_stack(&mut self, list: Word, stack: u32) -> bool {
        let Value::List(number) = list.value() else { return false };
        let is_empty = matches!(self.lists.get(number), Some(List::Empty));
        if is_empty {
            self.lists.set(number, List::Stack(stack));
        }
        is_empty
    }

    /// What only reading needs.
    pub(crate) fn forget_reading(&mut self) {
        self.kind_numbers = FxHashMap::default();
    }

    /// Forgets all plain values, and gives back the room of lists and dictionaries. Entries, stacks and names stay.
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
