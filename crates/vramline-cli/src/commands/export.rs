//! `vramline export`: every allocation, for other tools.

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
parquet, csv and json hold one row for each allocation: pool, device, process, address, when it was
made and freed, bytes asked for, bytes of its chunk, op, layer, role, variable, shape, type, step, and
whether it lives at its pool's peak. docs/how-to/export.md has the columns.

perfetto is a trace in Chrome's event format, which https://ui.perfetto.dev and chrome://tracing open:
a counter for each pool, the steps, and a slice for each allocation.

Examples:
    vramline export train.vram --to parquet -o train.parquet
    duckdb -c \"SELECT role, sum(bytes) FROM 'train.parquet' WHERE at_peak GROUP BY role\"
    vramline export train.vram --to perfetto -o train.json
    vramline export snapshot.pickle --to csv -o - | head";

/// Hand the data to other tools: every allocation with its life, as a table or as a trace for Perfetto.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExportArgs {
    /// A recording (*.vram), a trace, a PyTorch snapshot, the folder of a profile run, or a whole log directory.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    pub(crate) to: ExportFormat,
    /// The file to write; - is standard output.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Only pools whose name contains this.
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
    match args.to {
        ExportFormat::Csv => table::csv(&pools, &mut out)?,
        ExportFormat::Json => table::json(&pools, &mut out)?,
        ExportFormat::Perfetto => perfetto::write(&pools, &mut out)?,
        ExportFormat::Parquet => parquet::write(&pools, &mut out)?,
    }
    bug::stumble("export");
    out.flush()?;
    drop(out);
    if let Some(file) = file {
        file.finish().with_context(|| format!("cannot write '{}'", args.output.display()))?;
    }
    // The process is about to end; giving back a large trace piece by piece would only delay that.
    drop(pools);
    std::mem::forget(reading);
    Ok(Exit::Done)
}

fn refused(args: &ExportArgs, nothing: NothingToExport) -> Failure {
    let (path, part) = (args.path.display(), args.pool.as_deref().unwrap_or_default());
    match nothing {
        NothingToExport::NoHistory => Failure::error(
            format!("there is no history of allocations in '{path}'"),
            "a trace, a snapshot with its history, or a recording with a trace has one",
        ),
        NothingToExport::NoSuchPool => Failure::error(
            format!("no pool whose name contains '{part}' in '{path}'"),
            "leave --pool out to export every pool",
        ),
    }
}
