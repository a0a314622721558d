//! `vramline oom`: why allocations failed.

use std::io::{self, Write};
use std::path::Path;

use vramline::analysis::oom::oom;
use vramline::source::SourceError;
use vramline::view::oom::OomReport;

use crate::cli::OomArgs;
use crate::commands::answer;
use crate::exit::Hinted;
use crate::printer::{self, Style};
use crate::watched;

pub(crate) fn run(args: &OomArgs) -> Result<(), Hinted> {
    let read = watched::read_failures(&args.paths, args.limit).map_err(hinted)?;
    let report = OomReport::from(&oom(&read));
    answer(&report, args.json, |style| printer::oom::oom(&report, args.all, style))
}

/// The same of a recording, to anywhere, where memory ran out: `vramline run` ends with it.
pub(crate) fn write(path: &Path, mut out: impl Write, is_terminal: bool) -> Result<(), Hinted> {
    let paths = [path.to_owned()];
    let read = watched::read_failures(&paths, None).map_err(hinted)?;
    if !read.failures.list.is_empty() {
        let text = printer::oom::oom(&OomReport::from(&oom(&read)), false, Style::of_terminal(is_terminal));
        out.write_all(text.as_bytes()).map_err(anyhow::Error::from)?;
    }
    Ok(())
}

fn hinted(error: SourceError) -> Hinted {
    let hint = match &error {
        SourceError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            "give the job's log, what TF_BFC_MEMORY_DUMP made, or a recording"
        }
        other => other.hint(),
    };
    Hinted { hint: hint.to_owned(), error: error.into() }
}
