//! A value of a pickle in eight bytes.

use crate::names::Name;

/// A value by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 60 bits.
    Big(u32),
    /// An integer of more than 128 bits, or bytes; a snapshot needs neither.
    Other,
    Float(u32),
    Text(Name),
    Tuple(u32),
    List(u32),
    Dict(u32),
    Frame(u32),
    /// A class, a function or its result, none of which is evaluated.
    Opaque(Name),
}

/// A [`Value`] in eight bytes: four bits are its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const TAG_BITS: u32 = 4;
    const TAG_NONE: u64 = 0;
    const TAG_BOOL: u64 = 1;
    const TAG_INT: u64 = 2;
    pub(super) const TAG_BIG: u64 = 3;
    const TAG_OTHER: u64 = 4;
    pub(super) const TAG_FLOAT: u64 = 5;
    const TAG_TEXT: u64 = 6;
    pub(super) const TAG_TUPLE: u64 = 7;
    pub(super) const TAG_LIST: u64 = 8;
    pub(super) const TAG_DICT: u64 = 9;
    pub(super) const TAG_FRAME: u64 = 10;
    const TAG_OPAQUE: u64 = 11;

    #[inline]
    pub(super) const fn new(tag: u64, payload: u32) -> Word {
        Word((payload as u64) << Word::TAG_BITS | tag)
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

    #[inline]
    pub(crate) const fn none() -> Word {
        Word::new(Word::TAG_NONE, 0)
    }

    #[inline]
    pub(crate) const fn bool(value: bool) -> Word {
        Word::new(Word::TAG_BOOL, value as u32)
    }

    #[inline]
    pub(crate) const fn other() -> Word {
        Word::new(Word::TAG_OTHER, 0)
    }

    #[inline]
    pub(crate) const fn text(name: Name) -> Word {
        Word::new(Word::TAG_TEXT, name.0)
    }

    #[inline]
    pub(crate) const fn opaque(name: Name) -> Word {
        Word::new(Word::TAG_OPAQUE, name.0)
    }

    /// An integer of at most 60 bits.
    #[inline]
    pub(crate) const fn small(value: i64) -> Option<Word> {
        let word = value << Word::TAG_BITS;
        if word >> Word::TAG_BITS == value { Some(Word(word.cast_unsigned() | Word::TAG_INT)) } else { None }
    }

    /// An integer of 32 bits.
    #[inline]
    pub(crate) const fn int(value: i32) -> Word {
        Word(((value as i64) << Word::TAG_BITS).cast_unsigned() | Word::TAG_INT)
    }

    /// The tag of the value's type.
    #[inline]
    pub(super) const fn tag(self) -> u64 {
        self.0 & ((1 << Word::TAG_BITS) - 1)
    }

    #[inline]
    pub(super) const fn number(self) -> u32 {
        (self.0 >> Word::TAG_BITS) as u32
    }

    #[inline]
    pub(crate) fn as_frame(self) -> Option<u32> {
        (self.tag() == Word::TAG_FRAME).then_some(self.number())
    }

    #[inline]
    pub(super) fn as_text(self) -> Option<Name> {
        (self.tag() == Word::TAG_TEXT).then_some(Name(self.number()))
    }

    #[inline]
    pub(crate) fn value(self) -> Value {
        let number = self.number();
        match self.tag() {
            Word::TAG_NONE => Value::None,
            Word::TAG_BOOL => Value::Bool(number != 0),
            Word::TAG_INT => Value::Int(self.0.cast_signed() >> Word::TAG_BITS),
            Word::TAG_BIG => Value::Big(number),
            Word::TAG_FLOAT => Value::Float(number),
            Word::TAG_TEXT => Value::Text(Name(number)),
            Word::TAG_TUPLE => Value::Tuple(number),
            Word::TAG_LIST => Value::List(number),
            Word::TAG_DICT => Value::Dict(number),
            Word::TAG_FRAME => Value::Frame(number),
            Word::TAG_OPAQUE => Value::Opaque(Name(number)),
            _ => Value::Other,
        }
    }
}
