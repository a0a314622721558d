//! `vramline export`: every allocation, for other tools.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, anyhow};
use vramline::analysis::export::{self, NothingToExport};

use crate::cli::{ExportArgs, ExportFormat};
use crate::exit::Hinted;
use crate::export::{parquet, perfetto, table};
use crate::output::OutputFile;
use crate::{bug, watched};

pub(crate) fn run(args: &ExportArgs) -> Result<(), Hinted> {
    let reading = watched::read(&args.path)
        .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?;
    let pools = export::pools(&reading, args.pool.as_deref()).map_err(|nothing| refusal(args, nothing))?;
    let is_stdout = args.output.as_os_str() == "-";
    let mut file = None;
    let out: Box<dyn Write + Send + '_> = if is_stdout {
        Box::new(io::stdout())
    } else {
        let created = OutputFile::create(&args.output)
            .with_context(|| format!("cannot write '{}'", args.output.display()))?;
        Box::new(file.insert(created))
    };
    let mut out = BufWriter::with_capacity(1 << 18, out);
    match args.to {
        ExportFormat::Csv => table::csv(&pools, &mut out)?,
        ExportFormat::Json => table::json(&pools, &mut out)?,
        ExportFormat::Perfetto => perfetto::write(&pools, &mut out)?,
        ExportFormat::Parquet => parquet::write(&pools, &mut out)?,
    }
    bug::stumble("export");
    out.flush().map_err(anyhow::Error::from)?;
    drop(out);
    if let Some(file) = file {
        file.finish().with_context(|| format!("cannot write '{}'", args.output.display()))?;
    }
    // The process is about to end; giving back a large trace piece by piece would only delay that.
    drop(pools);
    std::mem::forget(reading);
    Ok(())
}

fn refusal(args: &ExportArgs, nothing: NothingToExport) -> Hinted {
    let (path, part) = (args.path.display(), args.pool.as_deref().unwrap_or_default());
    match nothing {
        NothingToExport::NoHistory => Hinted {
            error: anyhow!("there is no history of allocations in '{path}'"),
            hint: "a trace, a snapshot with its history, or a recording with a trace has one".to_owned(),
        },
        NothingToExport::NoSuchPool => Hinted {
            error: anyhow!("no pool whose name contains '{part}' in '{path}'"),
            hint: "leave --pool out to export every pool".to_owned(),
        },
    }
}
