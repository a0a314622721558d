//! Whether a sentence tells a failure that was told before: an error is printed by each handler that passes it on, cut here and whole there.

use crate::failure::{Dialect, Failure, SizeRange};

/// A failure without figures belongs to the one before it if that is at most so many lines away.
const NEAR_LINES: u64 = 60;

/// One that not even names who says so is a summary of what was told before: it may be farther away.
const SUMMARY_LINES: u64 = 500;

/// What a failure is to one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Another failure.
    Other,
    /// The same, and nothing new.
    Known,
    /// The same, and it tells more.
    Better,
}

/// Whether two marks of a launcher may be of one process: one of them may be missing.
pub(crate) fn may_be_one(known: &[u8], tag: &[u8]) -> bool {
    known == tag || known.is_empty() || tag.is_empty()
}

/// Compares a failure with one that is known, of the same process.
pub(crate) fn compare(known: &Failure, new: &Failure) -> Echo {
    let is_summary = new.dialect == Dialect::Library && new.library.is_none();
    let near = if is_summary { SUMMARY_LINES } else { NEAR_LINES };
    let is_near = first_line(new).saturating_sub(last_line(known)) <= near;
    match (is_bare(known), is_bare(new)) {
        (false, true) if is_near => Echo::Known,
        (true, true) if is_near => Echo::Known,
        (true, false) if is_near && is_sentence(known) => Echo::Better,
        (false, false) if is_sentence(known) && agree(known, new) => {
            // Libraries tell the same in several lines; anybody else repeats every figure.
            let is_one = known.dialect != Dialect::Library || is_near;
            match (is_one, figures(new) > figures(known)) {
                (false, _) => Echo::Other,
                (true, true) => Echo::Better,
                (true, false) => Echo::Known,
            }
        }
        _ => Echo::Other,
    }
}

/// Whether nothing is told but that it failed.
pub(crate) fn is_bare(failure: &Failure) -> bool {
    failure.rounded.is_none() && failure.requested.is_none() && is_sentence(failure)
}

/// Whether one sentence told it.
pub(crate) fn is_sentence(failure: &Failure) -> bool {
    use Dialect::{Library, PyTorch, TorchAsynchronous, Tpu};
    matches!(failure.dialect, Library | PyTorch | TorchAsynchronous | Tpu)
}

/// Whether no figure of one contradicts the other, and they ask for the same.
fn agree(known: &Failure, new: &Failure) -> bool {
    let is_one = |a: Option<SizeRange>, b: Option<SizeRange>| {
        a.zip(b).is_none_or(|(a, b)| a == b || a.and(b).is_some() && known.dialect == Dialect::Library)
    };
    known.dialect == new.dialect
        && known.library == new.library
        && known.rounded.is_some()
        && is_one(known.rounded, new.rounded)
        && known.device.as_ref().zip(new.device.as_ref()).is_none_or(|(a, b)| a == b)
        && is_one(known.memory.free, new.memory.free)
        && is_one(known.memory.total, new.memory.total)
        && is_one(known.memory.this_process, new.memory.this_process)
        && is_one(known.in_use, new.in_use)
        && is_one(known.free, new.free)
}

/// How many figures are told; one that is exact counts twice.
fn figures(failure: &Failure) -> usize {
    let told = [
        failure.rounded,
        failure.memory.free,
        failure.memory.total,
        failure.memory.this_process,
        failure.in_use,
        failure.free,
        failure.limit,
    ];
    told.iter().flatten().map(|told| if told.value().is_some() { 2 } else { 1 }).sum()
}

fn first_line(failure: &Failure) -> u64 {
    failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0)
}

fn last_line(failure: &Failure) -> u64 {
    failure.witnesses.last().and_then(|witness| witness.line).unwrap_or(0)
}
