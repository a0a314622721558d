//! What came and went outside the pools, and what it came with: one line of the ledger for each cause.

use std::fmt;

use crate::units::Nanos;

/// A change outside the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The last moment at which it was not there, on the monotonic clock.
    pub after: Nanos,
    /// The first moment at which it was.
    pub by: Nanos,
    /// By how many bytes.
    pub bytes: i64,
    /// What the program did between the two.
    pub cause: Cause,
}

/// What the program did while something came outside the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// No step, phase or mark lies in that time.
    #[default]
    Unmarked,
    /// Steps, by their numbers.
    Steps {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// A mark of the program, by its label.
    Mark(String),
    /// A phase, by its name.
    Phase(String),
    /// Several marks and phases, none of them a step.
    Several,
}

impl Cause {
    /// Whether two growths belong into one line. Steps do, whatever their numbers.
    fn is_like(&self, other: &Cause) -> bool {
        matches!((self, other), (Cause::Steps { .. }, Cause::Steps { .. })) || self == other
    }

    /// Both together, where they are alike.
    fn join(&mut self, other: &Cause) {
        if let (Cause::Steps { first, last }, Cause::Steps { first: other_first, last: other_last }) =
            (self, other)
        {
            *first = (*first).min(*other_first);
            *last = (*last).max(*other_last);
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Unmarked => out.write_str("outside every step and mark"),
            Cause::Steps { first, last } if first == last => write!(out, "step {first}"),
            Cause::Steps { first, last } => write!(out, "steps {first} to {last}"),
            Cause::Mark(label) => write!(out, "mark '{label}'"),
            Cause::Phase(name) => out.write_str(name),
            Cause::Several => out.write_str("several marks"),
        }
    }
}

/// Every growth of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowthGroup {
    /// What they came with.
    pub cause: Cause,
    /// All of them together.
    pub bytes: i64,
    /// How many they are.
    pub growths: usize,
    /// When the first of them was first seen, on the monotonic clock.
    pub first: Nanos,
    /// When the last of them was first seen.
    pub last: Nanos,
}

impl GrowthGroup {
    /// Groups growths, which are in order, by what they came with. The groups add up to all growths.
    #[must_use]
    pub fn all(growths: &[Growth]) -> Vec<GrowthGroup> {
        let mut groups: Vec<GrowthGroup> = Vec::new();
        for growth in growths {
            if let Some(group) = groups.iter_mut().find(|group| group.cause.is_like(&growth.cause)) {
                group.cause.join(&growth.cause);
                group.bytes = group.bytes.saturating_add(growth.bytes);
                group.growths += 1;
                group.last = growth.by;
                continue;
            }
            groups.push(GrowthGroup {
                cause: growth.cause.clone(),
                bytes: growth.bytes,
                growths: 1,
                first: growth.by,
                last: growth.by,
            });
        }
        groups
    }
}

impl fmt::Display for GrowthGroup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.growths {
            0 | 1 => self.cause.fmt(out),
            more => write!(out, "{}, {more} changes", self.cause),
        }
    }
}
