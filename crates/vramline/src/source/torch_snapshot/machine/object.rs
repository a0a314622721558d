//! Classes and functions that a pickle refers to: only their names are kept, and nothing is called.

use super::operand;
use super::text::utf8;
use super::{Machine, Next};
use crate::source::torch_snapshot::fault::Fault;
use crate::source::torch_snapshot::value::{Value, Word};

const NOT_TEXT: Fault = Fault::Mismatch("a name is not text");

impl Machine {
    pub(super) fn global<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (text, after) = dotted(args)?;
        self.push_opaque(&text)?;
        Ok(after)
    }

    pub(super) fn global_from_stack<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (name, module) = (self.pop()?, self.pop()?);
        let (Value::Text(name), Value::Text(module)) = (name.value(), module.value()) else {
            return Err(NOT_TEXT.into());
        };
        let names = &self.values.names;
        let text = format!("{}.{}", names.get(module), names.get(name));
        self.push_opaque(&text)?;
        Ok(args)
    }

    pub(super) fn instance<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (text, after) = dotted(args)?;
        let mark = self.mark()?;
        self.stack.truncate(mark);
        self.push_opaque(&text)?;
        self.call()?;
        Ok(after)
    }

    pub(super) fn instance_from_mark<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let mark = self.mark()?;
        self.stack.truncate(mark.saturating_add(1));
        self.call()?;
        Ok(args)
    }

    /// Replaces a callable and its arguments on the stack with an opaque result.
    pub(super) fn call_with<'a>(&mut self, values: usize, args: &'a [u8]) -> Next<'a> {
        for _ in 0..values {
            self.pop()?;
        }
        self.call()?;
        Ok(args)
    }

    /// Takes the state of an object.
    pub(super) fn build<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        self.pop()?;
        self.top()?;
        Ok(args)
    }

    pub(super) fn persistent_id<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        let (_, after) = operand::line(args)?;
        self.push_opaque("a persistent id")?;
        Ok(after)
    }

    pub(super) fn persistent_id_from_stack<'a>(&mut self, args: &'a [u8]) -> Next<'a> {
        self.pop()?;
        self.push_opaque("a persistent id")?;
        Ok(args)
    }

    /// Takes the number of a class, of so many bytes.
    pub(super) fn extension<'a>(&mut self, width: usize, args: &'a [u8]) -> Next<'a> {
        let (_, after) = operand::take(args, width)?;
        self.push_opaque("an extension code")?;
        Ok(after)
    }

    #[cold]
    fn push_opaque(&mut self, text: &str) -> Result<(), Fault> {
        let name = self.values.names.intern(text);
        self.push(Word::opaque(name))
    }

    /// Records that the pickle would call the value on top of the stack.
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
}

/// A module and a name in it, one line each.
fn dotted(args: &[u8]) -> Result<(String, &[u8]), super::Stop> {
    let (module, after) = operand::line(args)?;
    let (name, after) = operand::line(after)?;
    Ok((format!("{}.{}", utf8(module), utf8(name)), after))
}
