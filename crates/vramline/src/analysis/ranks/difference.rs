//! What makes the difference between two ranks: roles and owners at their peaks. The parts add up to the difference of the peaks.

use std::collections::BTreeMap;
use std::fmt;

use super::summary::{RankPart, RankSummary};
use crate::units::Bytes;

/// A part of the difference between two ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What it is for: a role, `rounding`, `before the recording`, or `beyond the trace`.
    pub what: &'static str,
    /// The layer, variable or op; empty where several owners too small to list are summed up, or where no owner is known.
    pub owner: String,
    /// The bytes of the first rank minus those of the second.
    pub bytes: i64,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", Bytes(self.bytes.unsigned_abs()), self.what)?;
        if self.owner.is_empty() { Ok(()) } else { write!(out, " ({})", self.owner) }
    }
}

/// The peak of the process, as far as no trace shows it.
const BEYOND: &str = "beyond the trace";

/// The maximum number of owners of a difference; the others are summed up by role.
const MAX_OWNERS: usize = 24;

/// What makes the difference between the peaks of two ranks, the most first; `None` where a trace does not show what one of them held.
pub(super) fn between(one: &RankSummary, other: &RankSummary) -> Option<Vec<Difference>> {
    let mut parts: BTreeMap<(&'static str, &str), i64> = BTreeMap::new();
    let (held, of_other) = (one.held.as_ref()?, other.held.as_ref()?);
    // An owner that only one of the two lists by name is in the sum of the other.
    let is_listed = |part: &RankPart| {
        let lists = |held: &[RankPart]| {
            held.iter().any(|known| (known.what, &known.owner) == (part.what, &part.owner))
        };
        lists(held) && lists(of_other) || is_whole(held) && is_whole(of_other)
    };
    for (held, sign) in [(held, 1), (of_other, -1)] {
        for part in held {
            let owner = if is_listed(part) { part.owner.as_str() } else { "" };
            *parts.entry((part.what, owner)).or_default() += sign * i64::try_from(part.bytes.0).ok()?;
        }
    }
    let beyond = |rank: &RankSummary| {
        let peak = i64::try_from(rank.peak?.0).ok()?;
        let traced: u64 = rank.held.as_ref()?.iter().map(|part| part.bytes.0).sum();
        peak.checked_sub(i64::try_from(traced).ok()?)
    };
    parts.insert((BEYOND, ""), beyond(one)?.checked_sub(beyond(other)?)?);
    let part = |((what, owner), bytes): ((&'static str, &str), i64)| Difference {
        what,
        owner: owner.to_owned(),
        bytes,
    };
    let mut parts: Vec<Difference> = parts.into_iter().map(part).filter(|part| part.bytes != 0).collect();
    parts.sort_by(|one, other| {
        (other.bytes.unsigned_abs(), one.what, &one.owner).cmp(&(
            one.bytes.unsigned_abs(),
            other.what,
            &other.owner,
        ))
    });
    Some(summed_up(parts))
}

/// Whether every owner is listed.
fn is_whole(held: &[RankPart]) -> bool {
    !held.iter().any(|part| part.is_rest)
}

fn summed_up(mut parts: Vec<Difference>) -> Vec<Difference> {
    if parts.len() <= MAX_OWNERS {
        return parts;
    }
    let rest = parts.split_off(MAX_OWNERS);
    for part in rest {
        match parts.iter_mut().find(|known| known.what == part.what && known.owner.is_empty()) {
            Some(known) => known.bytes += part.bytes,
            None => parts.push(Difference { owner: String::new(), ..part }),
        }
    }
    parts.retain(|part| part.bytes != 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes.unsigned_abs()));
    parts
}
