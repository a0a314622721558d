//! Where an answer goes, and in which form: text for people, one JSON document, or a page in a file.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::Args;
use serde::Serialize;

use crate::exit::Failure;
use crate::output::OutputFile;
use crate::printer::Style;

/// What `--redact` does, in the verbs that have it.
pub(crate) const REDACT: &str =
    "Replace private texts by placeholders: command lines, paths, host names, labels, layers, source lines";

// The options that every verb with an answer has. (No doc comment: clap would take it for that of the verb.)
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Form {
    /// Print everything as one JSON document, exact to the byte.
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

/// Somewhere to write answers to.
pub(crate) struct Sink<'a> {
    out: Box<dyn Write + 'a>,
    style: Style,
}

impl<'a> Sink<'a> {
    pub(crate) fn stdout() -> Sink<'a> {
        let out = io::stdout().lock();
        Sink { style: Style::of_terminal(out.is_terminal()), out: Box::new(io::BufWriter::new(out)) }
    }

    /// Not locked, and not kept back: the line of progress is written there too, by another thread.
    pub(crate) fn stderr() -> Sink<'a> {
        let out = io::stderr();
        Sink { style: Style::of_terminal(out.is_terminal()), out: Box::new(out) }
    }

    pub(crate) fn file(file: &'a mut OutputFile) -> Sink<'a> {
        Sink { style: Style::of_terminal(false), out: Box::new(io::BufWriter::new(file)) }
    }

    /// A document: whole, as JSON, or as the text for people.
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

    /// A page into its own file, whole or not at all: a file that is half written shows nothing. What is written here is where it is.
    pub(crate) fn page(&mut self, file: &Path, page: &str) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let mut part = OutputFile::create(file)?;
            part.write_all(page.as_bytes())?;
            part.finish()
        };
        written().map_err(|error| {
            Failure::error(
                format!("cannot write '{}': {error}", file.display()),
                "give a file in a folder that you may write to",
            )
        })?;
        self.text(&format!("{}: {:.1} MB, open it in a browser\n", file.display(), page.len() as f64 / 1e6))
    }
}
