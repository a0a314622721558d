//! Changes of memory outside the pools, grouped by what the program did at the time: one line of the ledger for each cause.

use std::fmt;

use crate::units::Nanos;

/// A change outside the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The last reading before the change, on the monotonic clock.
    pub after: Nanos,
    /// The first reading after the change.
    pub by: Nanos,
    /// By how many bytes.
    pub bytes: i64,
    /// What the program did between the two.
    pub cause: Cause,
}

/// What the program did while memory outside the pools changed.
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
    /// Several marks and phases, but no step.
    Several,
}

impl Cause {
    /// Whether two changes belong in one line. Steps do, regardless of their numbers.
    fn is_like(&self, other: &Cause) -> bool {
        matches!((self, other), (Cause::Steps { .. }, Cause::Steps { .. })) || self == other
    }

    /// Joins two causes, if they are alike.
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
            Cause::Unmarked => out.write_str("outside all steps and marks"),
            Cause::Steps { first, last } if first == last => write!(out, "step {first}"),
            Cause::Steps { first, last } => write!(out, "steps {first} to {last}"),
            Cause::Mark(label) => write!(out, "mark '{label}'"),
            Cause::Phase(name) => out.write_str(name),
            Cause::Several => out.write_str("several marks"),
        }
    }
}

/// Of each change, which are in order, whether all of it was still there after the later ones.
pub(super) fn are_kept(growths: &[Growth]) -> Vec<bool> {
    let mut lowest = 0_i64;
    let later = growths.iter().rev().map(|growth| {
        let is_kept = lowest >= 0;
        lowest = lowest.min(0).saturating_add(growth.bytes);
        is_kept
    });
    let mut kept: Vec<bool> = later.collect();
    kept.reverse();
    kept
}

/// All changes with the same cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowthGroup {
    /// Their cause.
    pub cause: Cause,
    /// Their total.
    pub bytes: i64,
    /// Their number.
    pub growths: usize,
    /// When the first change was seen, on the monotonic clock.
    pub first: Nanos,
    /// When the last change was seen.
    pub last: Nanos,
}

impl GrowthGroup {
    /// Groups changes, which are in order, by their cause. The groups add up to all changes.
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
