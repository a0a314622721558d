//! *Internal.* Call stacks: a program that allocates from one place a million times has one stack.
//!
//! A [`Stack`] is a frame and the stack of its caller, so that stacks which share their outer frames share them here
//! too. It is a number that means something only together with the [`Stacks`] that gave it.

use rustc_hash::FxHashMap;

use crate::names::{Name, Names};

/// A call stack. Four bytes, compared by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stack(pub(crate) u32);

impl Stack {
    /// No frames, in every [`Stacks`].
    pub const EMPTY: Stack = Stack(0);

    /// The number, which means nothing by itself.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Whether there are no frames.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Stack::EMPTY
    }
}

/// The table behind [`Stack`].
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// The caller's stack and the frame, by number less one.
    calls: Vec<(Stack, Name)>,
    numbers: FxHashMap<(Stack, Name), Stack>,
}

impl Stacks {
    /// The stack of a frame that `caller` called, new or known.
    pub fn push(&mut self, caller: Stack, frame: Name) -> Stack {
        if let Some(&stack) = self.numbers.get(&(caller, frame)) {
            return stack;
        }
        // As with names: more do not fit any machine this runs on.
        let Ok(number) = u32::try_from(self.calls.len() + 1) else { return Stack::EMPTY };
        self.calls.push((caller, frame));
        self.numbers.insert((caller, frame), Stack(number));
        Stack(number)
    }

    /// Every stack, as that of its caller and its frame; callers come before what they call.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Stack, Name)> {
        self.calls.iter().copied()
    }

    /// The frames, innermost first.
    pub fn frames(&self, stack: Stack) -> impl Iterator<Item = Name> {
        let call = |stack: Stack| self.calls.get((stack.0 as usize).checked_sub(1)?).copied();
        // A caller is always older than what it calls, so that this ends.
        std::iter::successors(call(stack), move |&(caller, _)| call(caller)).map(|(_, frame)| frame)
    }

    /// The frames as text, innermost first.
    #[must_use]
    pub fn texts(&self, stack: Stack, names: &Names) -> Vec<String> {
        self.frames(stack).map(|frame| names.get(frame).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut names = Names::default();
        let mut stacks = Stacks::default();
        let [main, step, loss] = ["main", "step", "loss"].map(|text| names.intern(text));
        let outer = stacks.push(Stack::EMPTY, main);
        let inner = stacks.push(outer, step);
        assert_eq!(inner, stacks.push(outer, step));
        let other = stacks.push(outer, loss);
        assert_ne!(inner, other);
        assert_eq!(stacks.texts(inner, &names), ["step", "main"]);
        assert_eq!(stacks.frames(Stack::EMPTY).count(), 0);
        assert_eq!(stacks.frames(Stack(99)).count(), 0);
    }
}
