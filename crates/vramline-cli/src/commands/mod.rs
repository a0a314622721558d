//! One file a verb, one function each; here what they share: an answer, written as JSON or for people.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::exit::Hinted;
use crate::printer::Style;

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod man;
pub(crate) mod oom;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod top;
pub(crate) mod unpickle;
pub(crate) mod verify;

/// Writes a document to standard output: whole, as JSON, or as the text for people.
pub(crate) fn answer(
    document: &impl Serialize,
    json: bool,
    text: impl FnOnce(Style) -> String,
) -> Result<(), Hinted> {
    let written = || -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        if json {
            serde_json::to_writer_pretty(&mut out, document)?;
            writeln!(out)?;
        } else {
            out.write_all(text(Style::of_terminal(io::stdout().is_terminal())).as_bytes())?;
        }
        out.flush()
    };
    Ok(written().map_err(anyhow::Error::from)?)
}
