//! Fast paths for the most common instruction sequences of a snapshot: whole lists of frames, whole trace entries.

use super::Machine;
use super::scalar::short_long;
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::runs;
use crate::source::torch_snapshot::value::{Draft, Value, Word};

impl Machine {
    /// Reads what follows a mark, if it fills the empty list below with stored frames only, as in most of every
    /// snapshot. `None` if it is something else, or incomplete.
    pub(super) fn frames_at_once<'a>(&mut self, args: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let Some((stack, after)) = self.run_of_frames(args)? else { return Ok(None) };
        let list = self.top()?;
        Ok(self.values.fill_stack(list, stack).then_some(after))
    }

    /// Reads references to stored frames up to the end of their list: their stack, and the rest of the program.
    #[inline]
    fn run_of_frames<'a>(&mut self, args: &'a [u8]) -> Result<Option<(u32, &'a [u8])>, Fault> {
        let Some((bytes, hash, after)) = runs::scan(args) else { return Ok(None) };
        if let Some(stack) = self.runs.find(bytes, hash) {
            return Ok(Some((stack, after)));
        }
        Ok(self.follow(bytes, hash)?.map(|stack| (stack, after)))
    }

    /// The stack of a new list of references.
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

    /// Updates the memo after a stored dictionary was recognised as a frame.
    #[cold]
    fn learn_frame(&mut self, number: u32, word: Word) -> Option<u32> {
        let current = self.values.current(word);
        let frame = current.as_frame()?;
        self.memo.put(number, current);
        Some(frame)
    }

    /// Reads what follows a new dictionary, if it is a whole trace entry as PyTorch and Python write it. `None` if it is
    /// something else, or incomplete; nothing has changed then.
    pub(super) fn entry_at_once<'a>(&mut self, args: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
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
                // The value after an empty list may be its only item, unless the entry ends there.
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

    /// A stored value that can be used in an entry as it is.
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
}
