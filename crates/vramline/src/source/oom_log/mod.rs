//! Out-of-memory errors in a log of any size and state.
//!
//! Most of a log is skipped: [`needles`] finds the places that may matter, [`lines`] puts together there what was broken,
//! [`said`] reads each line with the words of each family of programs ([`bfc`], [`tensorflow`], [`xla`], [`torch`], [`library`], [`engines`]; [`general`] for the rest, [`prose`] against talk), and
//! [`failures`] makes failures of what was said: [`dump`] those of a pool's dump, [`sentences`] those that one sentence tells, [`refusals`] those of the driver; [`echo`]
//! knows what was said before. Memory is one buffer and the failures; of those the chunks are kept for the first ones only.
//!
//! What is not its job: saying why an allocation failed.

mod bfc;
mod dump;
mod echo;
mod engines;
mod failures;
mod general;
mod library;
mod lines;
mod needles;
mod prose;
mod refusals;
mod said;
mod sentences;
mod sizes;
mod tensorflow;
mod text;
mod torch;
mod xla;

use std::io;

use super::input::Input;
use crate::failure::Failures;
use failures::Collector;
use lines::{LONGEST_LINE, Lines};
use needles::{Needles, OVERLAP};

/// A log is read in pieces of this size.
const PIECE: usize = 256 << 10;

/// How far before a word that was found reading begins: the line's own begin, and the line before it where this is a rest.
const BACK: usize = 1024;

/// Lines about other things in a row after which the rest is skimmed again: within a dump, and outside.
const PATIENCE_WITHIN: u32 = 4000;
const PATIENCE: u32 = 24;

/// Reads every failure that a log tells of.
pub(crate) fn read(input: &Input) -> io::Result<Failures> {
    let mut stream = input.stream(PIECE)?;
    let needles = Needles::new();
    let (mut lines, mut collector, mut messages) = (Lines::default(), Collector::default(), Vec::new());
    // A log may begin in the middle of a dump.
    let mut patience = PATIENCE;
    let mut number = 1u64;
    // Up to here everything was read.
    let mut done = 0u64;
    loop {
        if patience == 0 {
            // Skim to the next place that may matter.
            let length = stream.ensure(PIECE)?;
            let window = stream.window();
            let begin = usize::try_from(done.saturating_sub(stream.position())).unwrap_or(0);
            let (count, is_found) = match needles.find(window, begin) {
                Some(at) => (line_before(window, begin, at), true),
                None if length < PIECE => (length, false),
                None => (length.saturating_sub(BACK + OVERLAP).max(1), false),
            };
            let skipped = window.get(..count).unwrap_or_default();
            number += feeds(skipped);
            stream.skip(count as u64)?;
            if is_found {
                patience = PATIENCE;
            } else if length < PIECE && stream.ensure(1)? == 0 {
                break;
            }
            continue;
        }
        let window = stream.window();
        let end = window.iter().take(LONGEST_LINE).position(|&byte| byte == b'\n' || byte == b'\r');
        let Some(end) = end else {
            let before = window.len();
            if before >= LONGEST_LINE {
                // Nobody's line. What is left of it is read like one more.
                lines.finish(true, &mut messages);
                stream.skip(LONGEST_LINE as u64)?;
                patience -= 1;
                done = stream.position();
            } else if stream.ensure(before.saturating_add(1).max(LONGEST_LINE))? == before {
                // The end of the file, perhaps in the middle of a line.
                lines.push(stream.window(), number, false, &mut messages);
                collector.take(&mut messages);
                break;
            }
            continue;
        };
        let line = window.get(..end).unwrap_or_default();
        // The carriage return of CRLF ends the line; what follows is nothing.
        let is_bare_return = window.get(end) == Some(&b'\r') && window.get(end + 1) == Some(&b'\n');
        let used = end + if is_bare_return { 2 } else { 1 };
        lines.push(line, number, true, &mut messages);
        if window.get(used - 1) == Some(&b'\n') {
            number += 1;
        }
        patience = if messages.is_empty() {
            patience - 1
        } else {
            collector.take(&mut messages);
            if collector.is_within() { PATIENCE_WITHIN } else { PATIENCE.max(patience) }
        };
        stream.skip(used as u64)?;
        if patience == 0 {
            lines.finish(true, &mut messages);
            collector.take(&mut messages);
            done = stream.position();
        }
    }
    lines.finish(true, &mut messages);
    collector.take(&mut messages);
    Ok(collector.finish(number))
}

/// Where the line before the one at `at` begins, not before `begin`.
fn line_before(window: &[u8], begin: usize, at: usize) -> usize {
    let from = begin.max(at.saturating_sub(BACK));
    let before = window.get(from..at).unwrap_or_default();
    let mut breaks = before.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match (breaks.next(), breaks.next()) {
        (_, Some((second, _))) => from + second + 1,
        // The begin of a line that is longer than that does not matter.
        (Some((first, _)), None) if from > begin => from + first + 1,
        _ => from,
    }
}

/// How many lines end in a piece of text.
fn feeds(text: &[u8]) -> u64 {
    // In short runs, so that the counts fit a byte and the compiler takes many at once.
    let run = |run: &[u8]| u64::from(run.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>());
    text.chunks(255).map(run).sum()
}
