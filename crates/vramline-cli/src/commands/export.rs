//! `vramline export`: every allocation, for other tools.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::{Context, anyhow};
use vramline::view::export;

use crate::cli::{ExportArgs, ExportFormat};
use crate::exit::Hinted;
use crate::export::{parquet, perfetto, table};
use crate::watched;

pub(crate) fn run(args: &ExportArgs) -> Result<(), Hinted> {
    let reading = watched::read(&args.path)
        .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?;
    let mut pools = export::pools(&reading);
    if pools.is_empty() {
        let error = anyhow!("there is no history of allocations in '{}'", args.path.display());
        let hint = "a trace, a snapshot with its history, or a recording with a trace has one".to_owned();
        return Err(Hinted { error, hint });
    }
    if let Some(part) = &args.pool {
        pools.retain(|pool| pool.name.contains(part.as_str()));
        if pools.is_empty() {
            let error = anyhow!("no pool whose name contains '{part}' in '{}'", args.path.display());
            return Err(Hinted { error, hint: "leave --pool out to export every pool".to_owned() });
        }
    }
    let is_stdout = args.output.as_os_str() == "-";
    let out: Box<dyn Write + Send> = if is_stdout {
        Box::new(io::stdout())
    } else {
        let file = File::create(&args.output)
            .with_context(|| format!("cannot write '{}'", args.output.display()))?;
        Box::new(file)
    };
    let mut out = BufWriter::with_capacity(1 << 18, out);
    match args.to {
        ExportFormat::Csv => table::csv(&pools, &mut out)?,
        ExportFormat::Json => table::json(&pools, &mut out)?,
        ExportFormat::Perfetto => perfetto::write(&pools, &mut out)?,
        ExportFormat::Parquet => parquet::write(&pools, &mut out)?,
    }
    out.flush().map_err(anyhow::Error::from)?;
    // The process is about to end; giving back a large trace piece by piece would only delay that.
    drop(pools);
    std::mem::forget(reading);
    Ok(())
}
