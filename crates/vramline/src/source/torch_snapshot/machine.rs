//! The pickle machine: every instruction of protocols 0 to 5, and not one that runs anything.
//!
//! A pickle is a program for a machine with a stack, marks on it and a memo. This one builds [`Values`]; a class or
//! function that a pickle names stays a name, and what it would have returned is [`Value::Opaque`]. The program is
//! given in windows of any size; an instruction that is not whole waits for the next.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fault::Fault;
use super::runs::{self, Runs};
use super::value::{Draft, Value, Values, Word};
use crate::names::Name;
use crate::pages::{Page, Words};

/// Values on the stack: Python puts a thousand items of a list there at a time, and all of a tuple.
const TALLEST: usize = 1 << 24;
/// Marks on the stack: one for each container that is being filled.
const MOST_MARKS: usize = 1 << 12;

/// Decimal digits of an integer of 128 bits.
const MOST_DIGITS: usize = 40;

/// How a run over a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// So many bytes were used; the next instruction needs so many.
    Hungry { used: usize, wanted: usize },
    /// The pickle is over.
    Stopped(Word),
}

/// Stored values by number. Python numbers them from zero on; others may not.
#[derive(Debug, Default)]
struct Memo {
    dense: Words,
    sparse: FxHashMap<u32, Word>,
}

impl Memo {
    fn put(&mut self, number: u32, word: Word) {
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
    fn push(&mut self, word: Word) {
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
}

/// The state of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) values: Values,
    stack: Vec<Word>,
    marks: Vec<usize>,
    memo: Memo,
    /// Bytes before the current window.
    base: u64,
    /// What the pickle wanted to be called, in order.
    pub(crate) called: Vec<Name>,
    seen: FxHashSet<Name>,
    runs: Runs,
    /// Room for the frames of one list.
    frames: Vec<u32>,
}

const EMPTY_STACK: Fault = Fault::Mismatch("an instruction takes from an empty stack");
const NO_MARK: Fault = Fault::Mismatch("an instruction asks for a mark that is not there");
const NOT_TEXT: Fault = Fault::Mismatch("a name is no text");

fn utf8(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine {
            values: Values::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            base: 0,
            called: Vec::new(),
            seen: FxHashSet::default(),
            runs: Runs::default(),
            frames: Vec::new(),
        }
    }

    /// Runs over a window, from its first byte on.
    pub(crate) fn run(&mut self, window: &[u8]) -> Result<Ran, Fault> {
        self.values.paid = self.base.saturating_add(window.len() as u64);
        let mut rest = window;
        let ran = loop {
            let used = window.len() - rest.len();
            let Some((&op, args)) = rest.split_first() else { break Ran::Hungry { used, wanted: 1 } };
            // The next `count` bytes, or the end of this run.
            macro_rules! take {
                ($args:expr, $count:expr) => {{
                    let count = $count;
                    match $args.split_at_checked(count) {
                        Some(parts) => parts,
                        None => {
                            let wanted = (rest.len() - $args.len()).saturating_add(count);
                            break Ran::Hungry { used, wanted };
                        }
                    }
                }};
            }
            macro_rules! number {
                ($args:expr, $type:ty) => {{
                    match $args.split_first_chunk() {
                        Some((bytes, after)) => (<$type>::from_le_bytes(*bytes), after),
                        None => {
                            let wanted = rest.len() - $args.len() + size_of::<$type>();
                            break Ran::Hungry { used, wanted };
                        }
                    }
                }};
            }
            // A length, and as many bytes.
            macro_rules! counted {
                ($type:ty) => {{
                    let (length, after) = number!(args, $type);
                    take!(after, usize::try_from(length).unwrap_or(usize::MAX))
                }};
            }
            macro_rules! line {
                ($args:expr) => {{
                    match $args.iter().position(|&byte| byte == b'\n') {
                        Some(end) => {
                            let (line, after) = $args.split_at(end);
                            (line, after.get(1..).unwrap_or_default())
                        }
                        None => break Ran::Hungry { used, wanted: rest.len() + 1 },
                    }
                }};
            }
            rest = match op {
                b'j' => {
                    let (number, after) = number!(args, u32);
                    self.get(number)?;
                    after
                }
                b'h' => {
                    let (number, after) = number!(args, u8);
                    self.get(u32::from(number))?;
                    after
                }
                b'(' => match self.frames_at_once(args)? {
                    Some(after) => after,
                    None if self.marks.len() >= MOST_MARKS => return Err(Fault::TooDeep),
                    None => {
                        self.marks.push(self.stack.len());
                        args
                    }
                },
                0x94 => {
                    let top = self.top()?;
                    self.memo.push(top);
                    args
                }
                0x8a => {
                    let (bytes, after) = counted!(u8);
                    let word = self.long(bytes)?;
                    self.push(word)?;
                    after
                }
                b'J' => {
                    let (number, after) = number!(args, i32);
                    self.push(Word::int(number))?;
                    after
                }
                b'K' => {
                    let (number, after) = number!(args, u8);
                    self.push(Word::int(i32::from(number)))?;
                    after
                }
                b'M' => {
                    let (number, after) = number!(args, u16);
                    self.push(Word::int(i32::from(number)))?;
                    after
                }
                b'}' => match self.entry_at_once(args)? {
                    Some(after) => after,
                    None => {
                        let dict = self.values.dict()?;
                        self.push(dict)?;
                        args
                    }
                },
                b']' => {
                    let list = self.values.list()?;
                    self.push(list)?;
                    args
                }
                b'u' => {
                    let mark = self.mark()?;
                    let target = self.below(mark)?;
                    let words = self.stack.get_mut(mark..).unwrap_or_default();
                    self.values.set(target, words)?;
                    self.stack.truncate(mark);
                    args
                }
                b'e' => {
                    let mark = self.mark()?;
                    let target = self.below(mark)?;
                    let words = self.stack.get_mut(mark..).unwrap_or_default();
                    self.values.append(target, words)?;
                    self.stack.truncate(mark);
                    args
                }
                0x8c => {
                    let (bytes, after) = counted!(u8);
                    self.push_text(bytes)?;
                    after
                }
                b'X' => {
                    let (bytes, after) = counted!(u32);
                    self.push_text(bytes)?;
                    after
                }
                0x8d => {
                    let (bytes, after) = counted!(u64);
                    self.push_text(bytes)?;
                    after
                }
                // Python 2's strings are bytes of any encoding.
                b'U' => {
                    let (bytes, after) = counted!(u8);
                    self.push_text(bytes)?;
                    after
                }
                b'T' => {
                    let (bytes, after) = counted!(u32);
                    self.push_text(bytes)?;
                    after
                }
                b'C' => {
                    let (_, after) = counted!(u8);
                    self.push(Word::other())?;
                    after
                }
                b'B' => {
                    let (_, after) = counted!(u32);
                    self.push(Word::other())?;
                    after
                }
                0x8e | 0x96 => {
                    let (_, after) = counted!(u64);
                    self.push(Word::other())?;
                    after
                }
                b'N' => {
                    self.push(Word::none())?;
                    args
                }
                0x88 => {
                    self.push(Word::bool(true))?;
                    args
                }
                0x89 => {
                    self.push(Word::bool(false))?;
                    args
                }
                b's' => {
                    let from = self.stack.len().checked_sub(2).filter(|&from| from > 0).ok_or(EMPTY_STACK)?;
                    let target = self.below(from)?;
                    let words = self.stack.get_mut(from..).unwrap_or_default();
                    self.values.set(target, words)?;
                    self.stack.truncate(from);
                    args
                }
                b'a' => {
                    let from = self.stack.len().checked_sub(1).filter(|&from| from > 0).ok_or(EMPTY_STACK)?;
                    let target = self.below(from)?;
                    let words = self.stack.get_mut(from..).unwrap_or_default();
                    self.values.append(target, words)?;
                    self.stack.truncate(from);
                    args
                }
                b')' => {
                    let tuple = self.values.tuple(&[])?;
                    self.push(tuple)?;
                    args
                }
                0x85..=0x87 => {
                    self.tuple_of(usize::from(op - 0x84))?;
                    args
                }
                b't' => {
                    let mark = self.mark()?;
                    self.tuple_of(self.stack.len().saturating_sub(mark))?;
                    args
                }
                b'd' => {
                    let mark = self.mark()?;
                    let dict = self.values.dict()?;
                    self.values.set(dict, self.stack.get_mut(mark..).unwrap_or_default())?;
                    self.stack.truncate(mark);
                    self.push(dict)?;
                    args
                }
                b'l' => {
                    let mark = self.mark()?;
                    let list = self.values.list()?;
                    self.values.append(list, self.stack.get_mut(mark..).unwrap_or_default())?;
                    self.stack.truncate(mark);
                    self.push(list)?;
                    args
                }
                b'G' => {
                    let (bytes, after) = number!(args, u64);
                    let word = self.values.float(f64::from_bits(bytes.swap_bytes()))?;
                    self.push(word)?;
                    after
                }
                0x8b => {
                    let (bytes, after) = counted!(u32);
                    let word = self.long(bytes)?;
                    self.push(word)?;
                    after
                }
                b'I' => {
                    let (line, after) = line!(args);
                    let word = match line {
                        b"00" => Word::bool(false),
                        b"01" => Word::bool(true),
                        digits => self.decimal(digits)?,
                    };
                    self.push(word)?;
                    after
                }
                b'L' => {
                    let (line, after) = line!(args);
                    let word = self.decimal(line.strip_suffix(b"L").unwrap_or(line))?;
                    self.push(word)?;
                    after
                }
                b'F' => {
                    let (line, after) = line!(args);
                    let value = utf8(line).trim().parse();
                    let value = value.map_err(|_| Fault::Mismatch("a floating-point number is none"))?;
                    let word = self.values.float(value)?;
                    self.push(word)?;
                    after
                }
                b'S' => {
                    let (line, after) = line!(args);
                    let text = unquoted(line).ok_or(Fault::Mismatch("a string has no quotes"))?;
                    self.push_text(&text)?;
                    after
                }
                b'V' => {
                    let (line, after) = line!(args);
                    let word = self.values.text(&raw_unicode(line));
                    self.push(word)?;
                    after
                }
                b'g' => {
                    let (line, after) = line!(args);
                    let number = index(line)?;
                    self.get(number)?;
                    after
                }
                b'p' => {
                    let (line, after) = line!(args);
                    let number = index(line)?;
                    self.put(number)?;
                    after
                }
                b'q' => {
                    let (number, after) = number!(args, u8);
                    self.put(u32::from(number))?;
                    after
                }
                b'r' => {
                    let (number, after) = number!(args, u32);
                    self.put(number)?;
                    after
                }
                b'0' => {
                    // Python pops a mark where that is on top.
                    if self.marks.last() == Some(&self.stack.len()) {
                        self.marks.pop();
                    } else {
                        self.pop()?;
                    }
                    args
                }
                b'1' => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                    args
                }
                b'2' => {
                    let top = self.top()?;
                    self.push(top)?;
                    args
                }
                b'c' => {
                    let (module, after) = line!(args);
                    let (name, after) = line!(after);
                    let text = format!("{}.{}", utf8(module), utf8(name));
                    self.push_opaque(&text)?;
                    after
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Value::Text(name), Value::Text(module)) = (name.value(), module.value()) else {
                        return Err(NOT_TEXT);
                    };
                    let names = &self.values.names;
                    let text = format!("{}.{}", names.get(module), names.get(name));
                    self.push_opaque(&text)?;
                    args
                }
                b'i' => {
                    let (module, after) = line!(args);
                    let (name, after) = line!(after);
                    let text = format!("{}.{}", utf8(module), utf8(name));
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                    self.push_opaque(&text)?;
                    self.call()?;
                    after
                }
                b'o' => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark.saturating_add(1));
                    self.call()?;
                    args
                }
                // The callable, then its arguments; what it returns takes the place of both.
                b'R' | 0x81 => {
                    self.pop()?;
                    self.call()?;
                    args
                }
                0x92 => {
                    self.pop()?;
                    self.pop()?;
                    self.call()?;
                    args
                }
                // The state of an object.
                b'b' => {
                    self.pop()?;
                    self.top()?;
                    args
                }
                b'P' => {
                    let (_, after) = line!(args);
                    self.push_opaque("a persistent id")?;
                    after
                }
                b'Q' => {
                    self.pop()?;
                    self.push_opaque("a persistent id")?;
                    args
                }
                0x82..=0x84 => {
                    let (_, after) = take!(args, 1 << (op - 0x82));
                    self.push_opaque("an extension code")?;
                    after
                }
                0x8f => {
                    self.push(Word::other())?;
                    args
                }
                0x90 => {
                    let mark = self.mark()?;
                    self.below(mark)?;
                    self.stack.truncate(mark);
                    args
                }
                0x91 => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                    self.push(Word::other())?;
                    args
                }
                0x97 => {
                    self.push(Word::other())?;
                    args
                }
                0x98 => {
                    self.top()?;
                    args
                }
                0x95 => take!(args, 8).1,
                0x80 => {
                    let (version, after) = number!(args, u8);
                    if version > 5 {
                        return Err(Fault::Mismatch("its protocol is newer than 5"));
                    }
                    after
                }
                b'.' => {
                    let word = self.pop()?;
                    break Ran::Stopped(word);
                }
                byte => return Err(Fault::UnknownOp { at: self.base.saturating_add(used as u64), byte }),
            };
        };
        if let Ran::Hungry { used, .. } = ran {
            self.base = self.base.saturating_add(used as u64);
        }
        Ok(ran)
    }

    /// What was built, and the room of everything else.
    pub(crate) fn into_parts(self) -> (Values, Vec<Page>) {
        (self.values, self.memo.dense.into_pages())
    }

    /// Bytes of the pickle that were used.
    pub(crate) fn position(&self) -> u64 {
        self.base
    }

    /// What follows a mark, where that is a list of nothing but stored frames for the empty list below: most of every
    /// snapshot. `None` where it is something else, or not whole.
    fn frames_at_once<'a>(&mut self, args: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let Some((stack, after)) = self.run_of_frames(args)? else { return Ok(None) };
        let list = self.top()?;
        Ok(self.values.fill_stack(list, stack).then_some(after))
    }

    /// References to stored frames up to the end of their list: the stack that they are, and what follows.
    #[inline]
    fn run_of_frames<'a>(&mut self, args: &'a [u8]) -> Result<Option<(u32, &'a [u8])>, Fault> {
        let Some((bytes, hash, after)) = runs::scan(args) else { return Ok(None) };
        if let Some(stack) = self.runs.find(bytes, hash) {
            return Ok(Some((stack, after)));
        }
        Ok(self.follow(bytes, hash)?.map(|stack| (stack, after)))
    }

    /// The stack of a list of references that was not seen before.
    fn follow(&mut self, bytes: &[u8], hash: u32) -> Result<Option<u32>, Fault> {
        let mut rest = bytes;
        self.frames.clear();
        loop {
            let (number, after) = match rest {
                [b'j', a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), after),
                [b'h', a, after @ ..] => (u32::from(*a), after),
                [b'e'] if !self.frames.is_empty() => break,
                _ => return Ok(None),
            };
            let Some(bits) = self.memo.dense.get(number as usize) else { return Ok(None) };
            let word = Word::from_bits(bits);
            let Some(frame) = word.as_frame().or_else(|| self.learn_frame(number, word)) else {
                return Ok(None);
            };
            self.frames.push(frame);
            rest = after;
        }
        let stack = self.values.stacks.intern(&self.frames).ok_or(Fault::TooMany)?;
        self.runs.keep(bytes, hash, stack);
        Ok(Some(stack))
    }

    /// A dictionary became a frame after it was stored; from now on the memo knows.
    #[cold]
    fn learn_frame(&mut self, number: u32, word: Word) -> Option<u32> {
        let current = self.values.current(word);
        let frame = current.as_frame()?;
        self.memo.put(number, current);
        Some(frame)
    }

    /// What follows a new dictionary, where that is a whole trace entry as PyTorch and Python write it. `None` where it is
    /// something else, or not whole; then nothing has happened.
    fn entry_at_once<'a>(&mut self, args: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let [0x94, b'(', b'h' | b'j', ..] = args else { return Ok(None) };
        if !self.memo.sparse.is_empty() {
            return Ok(None);
        }
        let (counts, stored) = (self.values.counts(), self.memo.dense.len());
        let dict = self.values.dict()?;
        self.memo.push(dict);
        let pairs = args.get(2..).unwrap_or_default();
        if let Some((draft, after)) = self.pairs_of_entry(pairs)? {
            self.values.become_entry(dict, draft)?;
            self.push(dict)?;
            return Ok(Some(after));
        }
        self.values.roll_back(counts);
        self.memo.dense.truncate(stored);
        Ok(None)
    }

    /// Keys and values of an entry up to its end.
    #[inline]
    fn pairs_of_entry<'a>(&mut self, pairs: &'a [u8]) -> Result<Option<(Draft, &'a [u8])>, Fault> {
        let mut draft = Draft::new();
        let mut rest = pairs;
        loop {
            let (key, after) = match rest {
                [b'h', a, after @ ..] => (u32::from(*a), after),
                [b'j', a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), after),
                [b'u', after @ ..] if draft.has_action() => return Ok(Some((draft, after))),
                _ => return Ok(None),
            };
            let key = self.memo.dense.get(key as usize).map(|bits| Word::from_bits(bits).value());
            let Some(Value::Text(key)) = key else { return Ok(None) };
            let (value, after) = match after {
                [b'h', a, after @ ..] => (self.stored(u32::from(*a)), after),
                [b'j', a, b, c, d, after @ ..] => (self.stored(u32::from_le_bytes([*a, *b, *c, *d])), after),
                [b'K', a, after @ ..] => (Some(Word::int(i32::from(*a))), after),
                [b'M', a, b, after @ ..] => (Some(Word::int(i32::from(u16::from_le_bytes([*a, *b])))), after),
                [b'J', a, b, c, d, after @ ..] => {
                    (Some(Word::int(i32::from_le_bytes([*a, *b, *c, *d]))), after)
                }
                [0x8a, length, after @ ..] => match after.split_at_checked(usize::from(*length)) {
                    Some((bytes, after)) => (short_long(bytes), after),
                    None => return Ok(None),
                },
                [b']', 0x94, b'(', after @ ..] => {
                    let list = self.values.list()?;
                    self.memo.push(list);
                    let Some((stack, after)) = self.run_of_frames(after)? else { return Ok(None) };
                    self.values.fill_stack(list, stack);
                    (Some(list), after)
                }
                // What follows an empty list may be its only item, but not if that is the end.
                [b']', 0x94, after @ ..] if after.starts_with(b"u") => {
                    let list = self.values.list()?;
                    self.memo.push(list);
                    (Some(list), after)
                }
                _ => return Ok(None),
            };
            let Some(value) = value else { return Ok(None) };
            if !self.values.draft(&mut draft, key, value) {
                return Ok(None);
            }
            rest = after;
        }
    }

    /// A stored value that an entry may have: anything that needs no second look.
    #[inline]
    fn stored(&self, number: u32) -> Option<Word> {
        let word = Word::from_bits(self.memo.dense.get(number as usize)?);
        let is_settled = match word.value() {
            Value::Dict(_) => false,
            Value::List(_) => self.values.stack_of(word).is_some(),
            _ => true,
        };
        is_settled.then_some(word)
    }

    #[inline]
    fn push(&mut self, word: Word) -> Result<(), Fault> {
        if self.stack.len() >= TALLEST {
            return Err(Fault::TooTall);
        }
        self.stack.push(word);
        Ok(())
    }

    fn push_text(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let word = self.values.text(&utf8(bytes));
        self.push(word)
    }

    #[cold]
    fn push_opaque(&mut self, text: &str) -> Result<(), Fault> {
        let name = self.values.names.intern(text);
        self.push(Word::opaque(name))
    }

    /// Notes that the pickle wants what is on top to be called.
    #[cold]
    fn call(&mut self) -> Result<(), Fault> {
        let callable = self.pop()?;
        let name = match callable.value() {
            Value::Opaque(name) => name,
            _ => self.values.names.intern("something that is no function"),
        };
        if self.seen.insert(name) && self.called.len() < 16 {
            self.called.push(name);
        }
        self.push(Word::opaque(name))
    }

    #[inline]
    fn get(&mut self, number: u32) -> Result<(), Fault> {
        let word = self.memo.get(number);
        let word = word.ok_or(Fault::Mismatch("it refers to a value that was never stored"))?;
        let word = self.values.current(word);
        self.push(word)
    }

    /// Stores what is on top.
    fn put(&mut self, number: u32) -> Result<(), Fault> {
        let top = self.top()?;
        if (number as usize) < self.memo.dense.len() {
            self.runs.forget();
        }
        self.memo.put(number, top);
        Ok(())
    }

    #[inline]
    fn top(&self) -> Result<Word, Fault> {
        // What is below a mark is not for taking.
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.last().copied().filter(|_| self.stack.len() > floor).ok_or(EMPTY_STACK)
    }

    fn pop(&mut self) -> Result<Word, Fault> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    #[inline]
    fn mark(&mut self) -> Result<usize, Fault> {
        self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or(NO_MARK)
    }

    /// The value just below a place on the stack.
    #[inline]
    fn below(&self, place: usize) -> Result<Word, Fault> {
        place.checked_sub(1).and_then(|at| self.stack.get(at)).copied().ok_or(EMPTY_STACK)
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), Fault> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= floor).ok_or(EMPTY_STACK)?;
        let tuple = self.values.tuple(self.stack.get(from..).unwrap_or_default())?;
        self.stack.truncate(from);
        self.push(tuple)
    }

    /// An integer in two's complement, little end first.
    #[inline]
    fn long(&mut self, bytes: &[u8]) -> Result<Word, Fault> {
        match short_long(bytes) {
            Some(word) => Ok(word),
            None => self.long_of_any_length(bytes),
        }
    }

    #[cold]
    fn long_of_any_length(&mut self, bytes: &[u8]) -> Result<Word, Fault> {
        let Some(&last) = bytes.last() else { return Ok(Word::int(0)) };
        let fill = if last & 0x80 == 0 { 0 } else { 0xff };
        let mut whole = [fill; 16];
        let (kept, beyond) = bytes.split_at(bytes.len().min(whole.len()));
        for (slot, byte) in whole.iter_mut().zip(kept) {
            *slot = *byte;
        }
        let value = i128::from_le_bytes(whole);
        let is_whole = beyond.iter().all(|&byte| byte == fill) && (value < 0) == (fill != 0);
        if is_whole { self.values.int(value) } else { Ok(Word::other()) }
    }

    fn decimal(&mut self, digits: &[u8]) -> Result<Word, Fault> {
        let digits = digits.trim_ascii();
        let unsigned = digits.strip_prefix(b"-").or(digits.strip_prefix(b"+")).unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
            return Err(Fault::Mismatch("an integer has no digits"));
        }
        if unsigned.len() > MOST_DIGITS {
            return Ok(Word::other());
        }
        match utf8(digits).parse() {
            Ok(value) => self.values.int(value),
            Err(_) => Ok(Word::other()),
        }
    }
}

/// An integer of a few bytes, as most are: addresses have six, times seven.
#[inline]
fn short_long(bytes: &[u8]) -> Option<Word> {
    let whole = match *bytes {
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e] => i64::from_le_bytes([0, 0, 0, a, b, c, d, e]) >> 24,
        [a, b, c, d, e, f] => i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16,
        [a, b, c, d, e, f, g] => i64::from_le_bytes([0, a, b, c, d, e, f, g]) >> 8,
        _ => return None,
    };
    Word::small(whole)
}

fn index(line: &[u8]) -> Result<u32, Fault> {
    utf8(line).trim().parse().map_err(|_| Fault::Mismatch("a number of the memo is none"))
}

/// The bytes of a string that Python 2 wrote as its source would have it.
fn unquoted(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let inner = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return None,
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'x' => {
                let code = rest.get(..2).and_then(|digits| u8::from_str_radix(&utf8(digits), 16).ok());
                out.push(code?);
                rest = rest.get(2..).unwrap_or_default();
            }
            other => out.push(other),
        }
    }
    Some(out)
}

/// Text in Latin-1, with what is beyond it as `\uXXXX` or `\UXXXXXXXX`.
fn raw_unicode(line: &[u8]) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let length = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let code = rest.get(2..2 + length).filter(|_| length > 0).and_then(|digits| {
            let code = u32::from_str_radix(&utf8(digits), 16).ok()?;
            char::from_u32(code)
        });
        match code {
            Some(code) => {
                out.push(code);
                rest = rest.get(2 + length..).unwrap_or_default();
            }
            None => {
                out.push(char::from(byte));
                rest = after;
            }
        }
    }
    out
}
