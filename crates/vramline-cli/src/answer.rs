//! Writes an answer: as text for people, as a JSON document, or as an HTML page in a file.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::Args;
use serde::Serialize;

use crate::exit::Failure;
use crate::output::OutputFile;
use crate::printer::Style;

/// The help of `--redact`.
pub(crate) const REDACT: &str =
    "Replace private text with placeholders: command lines, paths, host names, labels, layers, source lines";

// The options of every verb that answers. (Not a doc comment: clap would use it as the help of the verb.)
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Form {
    /// Print the answer as a JSON document with exact byte counts.
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

// The option of every verb whose answer has more than a screen. (No doc comment, as above.)
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Length {
    /// Print everything, not only the first screen.
    #[arg(long)]
    pub(crate) full: bool,
}

/// A place to write answers to.
pub(crate) struct Sink<'a> {
    out: Box<dyn Write + 'a>,
    style: Style,
}

impl<'a> Sink<'a> {
    pub(crate) fn stdout() -> Sink<'a> {
        let out = io::stdout().lock();
        Sink { style: Style::of_terminal(out.is_terminal()), out: Box::new(io::BufWriter::new(out)) }
    }

    /// Standard error, not locked and not buffered: another thread writes the line of progress there.
    pub(crate) fn stderr() -> Sink<'a> {
        let out = io::stderr();
        Sink { style: Style::of_terminal(out.is_terminal()), out: Box::new(out) }
    }

    pub(crate) fn file(file: &'a mut OutputFile) -> Sink<'a> {
        Sink { style: Style::of_terminal(false), out: Box::new(io::BufWriter::new(file)) }
    }

    /// Writes a document as JSON, or as text for people.
    pub(crate) fn answer(
        &mut self,
        document: &impl Serialize,
        is_json: bool,
        text: impl FnOnce(Style) -> String,
    ) -> Result<(), Failure> {
        if is_json {
            serde_json::to_writer_pretty(&mut self.out, document).map_err(io::Error::from)?;
            writeln!(self.out)?;
            Ok(self.out.flush()?)
        } else {
            let text = text(self.style);
            self.text(&text)
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// Writes a page to a file, completely or not at all, and prints where it is.
    pub(crate) fn page(&mut self, file: &Path, page: &str) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let mut part = OutputFile::create(file)?;
            part.write_all(page.as_bytes())?;
            part.finish()
        };
        written().map_err(|error| {
            Failure::error(
                format!("cannot write '{}': {error}", file.display()),
                "give a file in a folder that you can write to",
            )
        })?;
        self.text(&format!("{}: {:.1} MB, open it in a browser\n", file.display(), page.len() as f64 / 1e6))
    }
}
