//! PyTorch's memory snapshots: `torch.cuda.memory._dump_snapshot(...)`, a pickle, plain or gzip.
//!
//! ```text
//! bytes -> machine (instructions) -> value (what they build) -> reading (the parts of a snapshot)
//!       -> layout (segments and blocks over time) -> fill (a history)
//! ```
//!
//! Nothing in a pickle is executed: a class or function that it refers to stays a name. Trace entries are read into columns
//! while the pickle is read, so that memory grows with their number, not with the size of the file, most of which is
//! repeated references to the same frames.

mod dump;
mod fault;
mod fill;
mod lanes;
mod layout;
mod machine;
mod owners;
mod place;
mod reading;
mod runs;
mod traceback;
mod value;

use std::io;

use super::Content;
use super::input::{Input, LARGE_PIECE};
use crate::warning::Warnings;
pub(crate) use fault::Fault;
use machine::{Machine, Ran};
use reading::Reading;

/// The error of a pickle that cannot be read.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

/// The magic number of PyTorch in the first pickle of an old checkpoint.
const CHECKPOINT: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Reads a snapshot.
pub(crate) fn read(input: &Input) -> Result<Content, Failure> {
    let mut warnings = Warnings::default();
    let reading = unpickle(input, &mut warnings)?;
    let mut history = fill::history(reading);
    history.warnings.append(warnings);
    Ok(Content::History(Box::new(history)))
}

/// Writes a snapshot as JSON.
pub(crate) fn write_json(input: &Input, out: &mut dyn io::Write) -> Result<(), Failure> {
    let mut reading = unpickle(input, &mut Warnings::default())?;
    Ok(dump::write(&mut reading, out)?)
}

fn unpickle(input: &Input, warnings: &mut Warnings) -> Result<Reading, Failure> {
    let mut stream = input.stream(LARGE_PIECE)?;
    let mut machine = Machine::new();
    stream.ensure(LARGE_PIECE)?;
    if stream.window().get(2..).is_some_and(|after| after.starts_with(CHECKPOINT)) {
        return Err(Fault::Checkpoint.into());
    }
    let mut wanted = 1;
    let top = loop {
        // The length in the file may be false: the buffer grows to twice the bytes that exist, not to that length.
        let room = stream.window().len().saturating_mul(2).max(LARGE_PIECE);
        let have = stream.ensure(room)?;
        if have < room && have < wanted {
            return Err(Fault::Cut(machine.position().saturating_add(have as u64)).into());
        }
        match machine.run(stream.window())? {
            Ran::Stopped(top) => break top,
            Ran::Hungry { used, wanted: more } => {
                stream.skip(used as u64)?;
                wanted = more;
            }
        }
    };
    let called: Vec<&str> = machine.called.iter().map(|&name| machine.values.names.get(name)).collect();
    if !called.is_empty() {
        warnings.add(
            "pickle-calls",
            format!("the pickle wants Python to call {}. Vramline calls nothing and skips the result", called.join(", ")),
            "PyTorch snapshots contain plain data only: do not load this file with Python's pickle unless you know who wrote it",
        );
    }
    let (mut values, room) = machine.into_parts();
    values.forget_reading();
    let mut reading = Reading::of(values, top, room)?;
    let left_out: Vec<&str> =
        reading.values.left_out.iter().map(|&name| reading.values.names.get(name)).collect();
    if !left_out.is_empty() {
        warnings.add(
            "unknown-keys",
            format!("keys of a newer PyTorch version were skipped: {}", left_out.join(", ")),
            "",
        );
    }
    reading.values.left_out.clear();
    Ok(reading)
}
