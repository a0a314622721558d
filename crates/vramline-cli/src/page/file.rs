//! A page as a file on disk.

use std::io::{self, Write};
use std::path::Path;

use anyhow::anyhow;

use crate::exit::Hinted;
use crate::output::OutputFile;

/// Writes a page, whole or not at all: a file that is half written shows nothing.
pub(crate) fn write(file: &Path, page: &str, out: &mut impl Write) -> Result<(), Hinted> {
    let written = || -> io::Result<()> {
        let mut part = OutputFile::create(file)?;
        part.write_all(page.as_bytes())?;
        part.finish()
    };
    written().map_err(|error| Hinted {
        error: anyhow!("cannot write '{}': {error}", file.display()),
        hint: "give a file in a folder that you may write to".to_owned(),
    })?;
    writeln!(out, "{}: {:.1} MB, open it in a browser", file.display(), page.len() as f64 / 1e6)
        .map_err(anyhow::Error::from)?;
    Ok(())
}
