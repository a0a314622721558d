//! The pickle machine: every instruction of protocols 0 to 5. None of them runs code.
//!
//! A pickle is a program for a machine with a stack, marks on it and a memo. This machine builds [`Values`]; a class or
//! function that a pickle refers to stays a name, and its result is [`Value::Opaque`]. The program is
//! given in windows of any size; an incomplete instruction waits for the next window.
//!
//! [`Machine::run`] dispatches the instructions. Each is implemented by a method in the module of its concept.
//!
//! [`Value::Opaque`]: super::value::Value::Opaque

mod container;
mod memo;
mod object;
mod operand;
mod scalar;
mod shortcut;
mod stack;
mod text;

use rustc_hash::FxHashSet;

use super::fault::Fault;
use super::runs::Runs;
use super::value::{Values, Word};
use crate::names::Name;
use crate::pages::Page;
use memo::Memo;

/// How a run over a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The number of bytes used, and the number that the next instruction needs.
    Hungry { used: usize, wanted: usize },
    /// The pickle has ended.
    Stopped(Word),
}

/// Why a run ends at an instruction.
#[derive(Debug)]
enum Stop {
    /// The instruction needs at least this many bytes after the window.
    Short(usize),
    /// It is the last instruction, with the value of the pickle.
    End(Word),
    /// The instruction does not exist in any protocol.
    UnknownOp(u8),
    Fault(Fault),
}

impl From<Fault> for Stop {
    #[inline]
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// The rest of the program after an instruction, or why the run ends there.
type Next<'a> = Result<&'a [u8], Stop>;

/// The state of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) values: Values,
    stack: Vec<Word>,
    marks: Vec<usize>,
    memo: Memo,
    /// Bytes before the current window.
    base: u64,
    /// The functions that the pickle would call, in order.
    pub(crate) called: Vec<Name>,
    seen: FxHashSet<Name>,
    runs: Runs,
    /// A reused buffer for the frames of one list.
    frames: Vec<u32>,
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
        let stop = loop {
            let Some((&op, args)) = rest.split_first() else { break Stop::Short(1) };
            let next = match op {
                // Stored values.
                b'j' => self.get::<u32>(args),
                b'h' => self.get::<u8>(args),
                b'g' => self.get_decimal(args),
                0x94 => self.memoize(args),
                b'q' => self.put::<u8>(args),
                b'r' => self.put::<u32>(args),
                b'p' => self.put_decimal(args),
                // Constants and numbers.
                b'N' => self.push_before(Word::none(), args),
                0x88 => self.push_before(Word::bool(true), args),
                0x89 => self.push_before(Word::bool(false), args),
                b'J' => self.int::<i32>(args),
                b'K' => self.int::<u8>(args),
                b'M' => self.int::<u16>(args),
                0x8a => self.long::<u8>(args),
                0x8b => self.long::<u32>(args),
                b'G' => self.float(args),
                b'I' => self.int_or_bool_decimal(args),
                b'L' => self.long_decimal(args),
                b'F' => self.float_decimal(args),
                // Text and bytes. Python 2's strings (`U`, `T`, `S`) are bytes of any encoding.
                0x8c | b'U' => self.text::<u8>(args),
                b'X' | b'T' => self.text::<u32>(args),
                0x8d => self.text::<u64>(args),
                b'S' => self.text_quoted(args),
                b'V' => self.text_escaped(args),
                b'C' => self.bytes::<u8>(args),
                b'B' => self.bytes::<u32>(args),
                0x8e | 0x96 => self.bytes::<u64>(args),
                // Containers. A snapshot needs neither sets nor out-of-band buffers (0x97).
                b'}' => self.empty_dict(args),
                b']' => self.empty_list(args),
                b')' => self.empty_tuple(args),
                b'u' => self.set_items(args),
                b's' => self.set_item(args),
                b'e' => self.append_items(args),
                b'a' => self.append_item(args),
                0x85..=0x87 => self.tuple(usize::from(op - 0x84), args),
                b't' => self.tuple_from_mark(args),
                b'd' => self.dict_from_mark(args),
                b'l' => self.list_from_mark(args),
                0x8f | 0x97 => self.push_before(Word::other(), args),
                0x90 => self.add_to_set(args),
                0x91 => self.set_from_mark(args),
                // The stack and its marks.
                b'(' => self.push_mark(args),
                b'0' => self.pop_top(args),
                b'1' => self.pop_to_mark(args),
                b'2' => self.duplicate(args),
                0x98 => self.keep_top(args),
                // Classes, functions, and what they would return.
                b'c' => self.global(args),
                0x93 => self.global_from_stack(args),
                b'i' => self.instance(args),
                b'o' => self.instance_from_mark(args),
                b'R' | 0x81 => self.call_with(1, args),
                0x92 => self.call_with(2, args),
                b'b' => self.build(args),
                b'P' => self.persistent_id(args),
                b'Q' => self.persistent_id_from_stack(args),
                0x82..=0x84 => self.extension(1 << (op - 0x82), args),
                // The program itself.
                0x80 => protocol(args),
                0x95 => operand::take(args, 8).map(|(_, after)| after),
                b'.' => self.end(),
                byte => Err(Stop::UnknownOp(byte)),
            };
            match next {
                Ok(after) => rest = after,
                Err(stop) => break stop,
            }
        };
        let used = window.len() - rest.len();
        match stop {
            Stop::Short(missing) => {
                self.base = self.base.saturating_add(used as u64);
                Ok(Ran::Hungry { used, wanted: rest.len().saturating_add(missing) })
            }
            Stop::End(word) => Ok(Ran::Stopped(word)),
            Stop::UnknownOp(byte) => {
                Err(Fault::UnknownOp { at: self.base.saturating_add(used as u64), byte })
            }
            Stop::Fault(fault) => Err(fault),
        }
    }

    /// Ends the pickle with the value on top of the stack.
    fn end(&mut self) -> Next<'static> {
        Err(Stop::End(self.pop()?))
    }

    /// The values, and the memory of everything else.
    pub(crate) fn into_parts(self) -> (Values, Vec<Page>) {
        (self.values, self.memo.into_pages())
    }

    /// Bytes of the pickle that were used.
    pub(crate) fn position(&self) -> u64 {
        self.base
    }
}

/// The version of the protocol.
fn protocol(args: &[u8]) -> Next<'_> {
    let (version, after) = operand::number::<u8>(args)?;
    if version > 5 {
        return Err(Fault::Mismatch("its protocol is newer than 5").into());
    }
    Ok(after)
}
