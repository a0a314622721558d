//! `vramline export`: exports every allocation for other tools, and whole jobs for SQL.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use vramline::analysis::export::{self, NothingToExport};
use vramline::units::counted;
use vramline::view::dataset::queries::{QUERIES, VIEWS};

use crate::answer::REDACT;
use crate::bug;
use crate::exit::{Exit, Failure};
use crate::export::dataset::{self, DatasetExport};
use crate::export::{parquet, perfetto, table};
use crate::input::Input;
use crate::output::OutputFile;

const HELP: &str = "\
parquet, csv and json have one row per allocation: pool, device, process, address, time of
allocation and of free, requested bytes, allocated bytes, op, layer, role, variable, shape, dtype,
step, and whether it is in use at the peak of its pool. docs/how-to/export.md lists the columns.

perfetto is a trace in Chrome's event format for https://ui.perfetto.dev and chrome://tracing: a
counter for each pool, the steps, and a slice for each allocation.

dataset is a folder of Parquet files with the tables jobs, processes, devices, pools, steps, peaks,
ledger, findings, failures and errors, for SQL across many jobs with DuckDB or Spark. The last
argument is the folder. Exporting into it again adds recordings, and replaces those that it has. A
source that cannot be read becomes a row of errors. --queries prints the ready questions.
docs/how-to/fleet.md shows how to use it.

Examples:
    vramline export train.vram --to parquet -o train.parquet
    duckdb -c \"SELECT role, sum(bytes) FROM 'train.parquet' WHERE at_peak GROUP BY role\"
    vramline export train.vram --to perfetto -o train.json
    vramline export snapshot.pickle --to csv -o - | head        # standard output
    vramline export runs/*.vram --to dataset fleet              # many jobs, for SQL
    vramline export --queries                                   # the questions that come with it
    vramline export --queries waste                             # the SQL of one of them";

/// Export every allocation to Parquet, CSV, JSON or Perfetto, or many jobs to a dataset for SQL.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExportArgs {
    /// Recording (*.vram), profiler trace (*.xplane.pb), PyTorch memory snapshot, folder of a profiler run, or whole log directory. Several
    /// with --to dataset, also logs, dumps and folders with recordings.
    #[arg(required_unless_present = "queries", value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_name = "FORMAT", value_enum, required_unless_present = "queries")]
    pub(crate) to: Option<ExportFormat>,
    /// File to write. - writes to standard output. With --to dataset, the folder, if it is not the last argument.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) output: Option<PathBuf>,
    /// Export only pools whose name contains NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Write the table of allocations too: one row for each allocation of each trace. Only with --to dataset.
    #[arg(long)]
    pub(crate) allocations: bool,
    /// List the ready questions about a dataset, or print the SQL of one. `views` is what all of them need.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["paths", "to", "output", "pool", "allocations", "redact"])]
    pub(crate) queries: Option<String>,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Parquet,
    Perfetto,
    Csv,
    Json,
    Dataset,
}

pub(crate) fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    match (&args.queries, args.to) {
        (Some(name), _) => print_queries(name),
        (None, Some(ExportFormat::Dataset)) => export_dataset(args),
        (None, Some(format)) => export_allocations(args, format),
        (None, None) => Err(Failure::usage("--to is missing", "choose a format, such as --to parquet")),
    }
}

fn print_queries(name: &str) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    if name.is_empty() {
        let widest = QUERIES.iter().map(|query| query.name.len()).max().unwrap_or_default();
        for query in QUERIES {
            writeln!(out, "{:widest$}  {}", query.name, query.title())?;
        }
        return Ok(Exit::Done);
    }
    let known = QUERIES.iter().chain([&VIEWS]).find(|query| query.name == name);
    let query = known.ok_or_else(|| {
        Failure::usage(format!("there is no question '{name}'"), "list them with: vramline export --queries")
    })?;
    out.write_all(query.sql.as_bytes())?;
    Ok(Exit::Done)
}

fn export_dataset(args: &ExportArgs) -> Result<Exit, Failure> {
    if args.pool.is_some() {
        return Err(Failure::usage(
            "--pool does not work with --to dataset",
            "leave it out, and choose pools in SQL",
        ));
    }
    let (paths, folder) = match (&args.output, args.paths.split_last()) {
        (Some(folder), _) => (args.paths.as_slice(), folder),
        (None, Some((folder, paths))) if !paths.is_empty() => (paths, folder),
        (None, _) => {
            return Err(Failure::usage(
                "the folder of the dataset is missing",
                "give it as the last argument, as in: vramline export runs/*.vram --to dataset fleet",
            ));
        }
    };
    if let Some(path) = paths.iter().chain([folder]).find(|path| path.as_os_str() == "-") {
        return Err(Failure::usage(
            format!("'{}' does not work with --to dataset", path.display()),
            "give the paths of recordings or files, and a folder",
        ));
    }
    let options = DatasetExport { has_allocations: args.allocations, is_redacted: args.redact };
    let done = dataset::export(&dataset::sources(paths)?, folder, &options)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {} exported", folder.display(), counted(done.written, "source"))?;
    if done.unreadable > 0 {
        writeln!(out, "{} could not be read: see the table errors", counted(done.unreadable, "source"))?;
    }
    Ok(Exit::Done)
}

fn export_allocations(args: &ExportArgs, format: ExportFormat) -> Result<Exit, Failure> {
    let [path] = args.paths.as_slice() else {
        return Err(Failure::usage(
            format!("this format takes one path, but {} were given", args.paths.len()),
            "export each on its own, or all of them with --to dataset",
        ));
    };
    let Some(target) = &args.output else {
        return Err(Failure::usage(
            "the file to write is missing",
            "give it with -o FILE, or -o - for standard output",
        ));
    };
    if args.allocations {
        return Err(Failure::usage(
            "--allocations works only with --to dataset",
            "leave it out: the other formats have every allocation",
        ));
    }
    let mut input = Input::new(args.redact);
    let reading = input.read(path)?;
    let pool = input.pool_part(args.pool.as_deref());
    let pools = export::pools(&reading, pool.as_deref())
        .map_err(|nothing| refused(path, args.pool.as_deref(), nothing))?;
    let is_stdout = target.as_os_str() == "-";
    let mut file = None;
    let out: Box<dyn Write + Send + '_> = if is_stdout {
        Box::new(io::stdout())
    } else {
        let created =
            OutputFile::create(target).with_context(|| format!("cannot write '{}'", target.display()))?;
        Box::new(file.insert(created))
    };
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let line = input.progress("exporting");
    match format {
        ExportFormat::Csv => table::csv(&pools, &mut out)?,
        ExportFormat::Json => table::json(&pools, &mut out)?,
        ExportFormat::Perfetto => perfetto::write(&pools, &mut out)?,
        ExportFormat::Parquet | ExportFormat::Dataset => parquet::write(&pools, &mut out)?,
    }
    drop(line);
    bug::stumble("export");
    out.flush()?;
    drop(out);
    if let Some(file) = file {
        file.finish().with_context(|| format!("cannot write '{}'", target.display()))?;
    }
    // The process is about to end: freeing a large trace would only delay that.
    drop(pools);
    std::mem::forget(reading);
    Ok(Exit::Done)
}

fn refused(path: &Path, part: Option<&str>, nothing: NothingToExport) -> Failure {
    let (path, part) = (path.display(), part.unwrap_or_default());
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
