//! `vramline export`: exports every allocation for other tools.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use vramline::analysis::export::{self, NothingToExport};

use crate::answer::REDACT;
use crate::bug;
use crate::exit::{Exit, Failure};
use crate::export::{parquet, perfetto, table};
use crate::input::Input;
use crate::output::OutputFile;

const HELP: &str = "\
parquet, csv and json have one row per allocation: pool, device, process, address, time of
allocation and of free, requested bytes, allocated bytes, op, layer, role, variable, shape, dtype,
step, and whether it is in use at the peak of its pool. docs/how-to/export.md lists the columns.

perfetto is a trace in Chrome's event format for https://ui.perfetto.dev and chrome://tracing: a
counter for each pool, the steps, and a slice for each allocation.

Examples:
    vramline export train.vram --to parquet -o train.parquet
    duckdb -c \"SELECT role, sum(bytes) FROM 'train.parquet' WHERE at_peak GROUP BY role\"
    vramline export train.vram --to perfetto -o train.json
    vramline export snapshot.pickle --to csv -o - | head        # standard output";

/// Export every allocation to Parquet, CSV, JSON or Perfetto.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExportArgs {
    /// Recording (*.vram), profiler trace (*.xplane.pb), PyTorch memory snapshot, folder of a profiler run, or whole log directory.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Output format.
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: ExportFormat,
    /// File to write. - writes to standard output.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Export only pools whose name contains NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Parquet,
    Perfetto,
    Csv,
    Json,
}

pub(crate) fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    let mut input = Input::new(args.redact);
    let reading = input.read(&args.path)?;
    let pool = input.pool_part(args.pool.as_deref());
    let pools = export::pools(&reading, pool.as_deref()).map_err(|nothing| refused(args, nothing))?;
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
    let line = input.progress("exporting");
    match args.to {
        ExportFormat::Csv => table::csv(&pools, &mut out)?,
        ExportFormat::Json => table::json(&pools, &mut out)?,
        ExportFormat::Perfetto => perfetto::write(&pools, &mut out)?,
        ExportFormat::Parquet => parquet::write(&pools, &mut out)?,
    }
    drop(line);
    bug::stumble("export");
    out.flush()?;
    drop(out);
    if let Some(file) = file {
        file.finish().with_context(|| format!("cannot write '{}'", args.output.display()))?;
    }
    // The process is about to end: freeing a large trace would only delay that.
    drop(pools);
    std::mem::forget(reading);
    Ok(Exit::Done)
}

fn refused(args: &ExportArgs, nothing: NothingToExport) -> Failure {
    let (path, part) = (args.path.display(), args.pool.as_deref().unwrap_or_default());
    match nothing {
        NothingToExport::NoHistory => Failure::error(
            format!("'{path}' has no history of allocations"),
            "give a trace, a PyTorch snapshot with history, or a recording with a trace",
        ),
        NothingToExport::NoSuchPool => Failure::error(
            format!("'{path}' has no pool whose name contains '{part}'"),
            "leave out --pool to export every pool",
        ),
    }
}
