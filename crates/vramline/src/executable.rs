//! *Internal.* What a compiled program asks of a pool: its allocations, and what lies in each of them when it is fullest.
//!
//! XLA decides before a program runs where every value will lie. These are its decisions, as facts: a trace shows blocks
//! without names, and an executable knows the names. Who is who is the business of [`crate::trace`].

use crate::dtype::Dtype;
use crate::names::{Name, Names};
use crate::stack::{Stack, Stacks};
use crate::units::Bytes;

/// A compiled program.
#[derive(Clone, Debug, Default)]
pub struct Executable {
    /// The module's name, such as `jit_step`.
    pub name: String,
    /// The table behind every [`Name`] here, unless they were moved into another.
    pub names: Names,
    /// The table behind every [`Stack`] here, unless they were moved into another.
    pub stacks: Stacks,
    /// What is asked for, in the order in which it is asked for.
    pub allocations: Vec<Allocation>,
    /// The values that the parts of allocations are of.
    pub buffers: Vec<Buffer>,
    /// What is passed to it, in the order of its parameters.
    pub parameters: Vec<ProgramParameter>,
    /// What it returns, in the order of the returned tree.
    pub results: Vec<ProgramResult>,
    /// Whether the source has more than was read.
    pub is_cut: bool,
}

/// A parameter of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramParameter {
    /// Its number.
    pub number: i64,
    /// The path of the argument, such as `params['l'][0]['q']`; empty where not told.
    pub path: Name,
    /// Its shape.
    pub shape: Name,
    /// Its element type.
    pub dtype: Dtype,
    /// Where it lies, as a place in [`Executable::allocations`].
    pub allocation: Option<u32>,
}

/// A result of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramResult {
    /// The framework's name for the instruction that makes it; empty where not told.
    pub op: Name,
    /// Its shape.
    pub shape: Name,
    /// Its element type.
    pub dtype: Dtype,
    /// Where it lies, as a place in [`Executable::allocations`]: an allocation of its own, or that of a donated argument.
    pub allocation: Option<u32>,
}

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An argument: the caller brings it.
    Parameter {
        /// Which one.
        number: i64,
        /// Whether a result is written into it: it was donated.
        is_output: bool,
    },
    /// A result.
    Output,
    /// Scratch: there while the program runs.
    Temporary,
    /// Loaded with the program.
    Constant,
    /// On a thread's stack; never asked for.
    ThreadLocal,
}

/// One request to the pool, or something that takes the place of one.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// How large it is.
    pub size: Bytes,
    /// What for.
    pub purpose: Purpose,
    /// The kind of memory, as XLA numbers it; zero is the device's own.
    pub space: i64,
    /// What lies in it when it is fullest. Adds up to the size.
    pub parts: Vec<Part>,
}

/// Bytes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// How many.
    pub bytes: Bytes,
    /// The value that lies there, as a place in [`Executable::buffers`]; `None` where nothing does.
    pub buffer: Option<u32>,
    /// How that is known.
    pub how: How,
}

/// How it is known what lies in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The only value that ever lies there, or the one that stays.
    Alone,
    /// The compiler's simulation has it alive when the allocation is fullest.
    AtPeak,
    /// One of several that take turns.
    TakesTurns,
    /// Nothing lies there at that moment.
    Free,
}

/// A value of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The instruction that makes it.
    pub instruction: Name,
    /// The framework's name for that; empty where it has none.
    pub op: Name,
    /// Its shape.
    pub shape: Name,
    /// Its element type.
    pub dtype: Dtype,
    /// Where in the program, as `file:line`; empty where not told.
    pub source: Name,
    /// The calls that led there; empty where not told.
    pub stack: Stack,
    /// Whether it is the working space of a library call.
    pub is_scratch: bool,
}

impl Executable {
    /// The requests that running the program makes, in order: not its arguments, constants and stacks.
    pub fn requests(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|allocation| {
            matches!(allocation.purpose, Purpose::Output | Purpose::Temporary)
                && allocation.size > Bytes::ZERO
        })
    }

    /// Bytes of all allocations that a rule picks.
    pub fn total(&self, picks: impl Fn(&Purpose) -> bool) -> Bytes {
        self.allocations.iter().filter(|known| picks(&known.purpose)).map(|known| known.size).sum()
    }

    /// Moves names and stacks into other tables, which are then the ones behind them.
    pub(crate) fn move_names(&mut self, names: &mut Names, stacks: &mut Stacks) {
        let own = std::mem::take(&mut self.names);
        let own_stacks = std::mem::take(&mut self.stacks);
        // By number, as callers are always older than what they call.
        let mut moved_stacks: Vec<Stack> = vec![Stack::EMPTY];
        for (caller, frame) in own_stacks.calls() {
            let caller = moved_stacks.get(caller.0 as usize).copied().unwrap_or(Stack::EMPTY);
            moved_stacks.push(stacks.push(caller, names.intern(own.get(frame))));
        }
        let mut moved = |name: &mut Name| *name = names.intern(own.get(*name));
        for buffer in &mut self.buffers {
            moved(&mut buffer.instruction);
            moved(&mut buffer.op);
            moved(&mut buffer.shape);
            moved(&mut buffer.source);
            buffer.stack = moved_stacks.get(buffer.stack.0 as usize).copied().unwrap_or(Stack::EMPTY);
        }
        for parameter in &mut self.parameters {
            moved(&mut parameter.path);
            moved(&mut parameter.shape);
        }
        for result in &mut self.results {
            moved(&mut result.op);
            moved(&mut result.shape);
        }
    }

    /// An allocation by its place.
    #[must_use]
    pub(crate) fn allocation(&self, place: Option<u32>) -> Option<&Allocation> {
        self.allocations.get(usize::try_from(place?).ok()?)
    }

    /// The value that a part is of.
    #[must_use]
    pub fn buffer(&self, part: &Part) -> Option<&Buffer> {
        self.buffers.get(usize::try_from(part.buffer?).ok()?)
    }
}

/// The function that a call or a module is of, in the letters that modules have: `PjitFunction(step)` and `jit_step` are
/// both of `step`. `None` where the text is neither.
#[must_use]
pub(crate) fn function_of(text: &str) -> Option<String> {
    let call = text.strip_prefix("PjitFunction(").and_then(|rest| rest.strip_suffix(')'));
    let function = call.or_else(|| text.strip_prefix("jit_"))?;
    let is_kept = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let letters: String = function.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    Some(letters.trim_end_matches('_').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_modules_share_a_function() {
        assert_eq!(function_of("PjitFunction(step)"), function_of("jit_step"));
        assert_eq!(function_of("PjitFunction(<lambda>)"), function_of("jit__lambda_"));
        assert_eq!(function_of("PjitFunction(<lambda>)"), function_of("jit__lambda"));
        assert_ne!(function_of("PjitFunction(step)"), function_of("jit_steps"));
        assert_eq!(function_of("MemoryAllocation"), None);
    }
}
