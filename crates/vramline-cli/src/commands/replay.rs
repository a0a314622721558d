//! `vramline replay`: simulates the allocator of a trace.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use vramline::analysis::replay::{ExtraRequest, ReplayAnalysis, ReplayGate, ReplayOptions, replay};
use vramline::replay::Setting;
use vramline::units::{Bytes, Nanos};
use vramline::view::replay::Replay;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::printer;
use crate::progress::ProgressLine;

const HELP: &str = "\
Vramline simulates the allocators of TensorFlow, JAX and PyTorch. A replay is exact if the trace
begins before the first allocation, as with `vramline run`, and the simulation reproduces every
address and size.

Settings of --what-if, joined by commas:
    limit=8GiB            largest size of the pool
    restart=on|STEP       put what is in use at a step into an empty pool and continue from there
                          (on: the last step)
    allocator=cuda_malloc_async
                          CUDA's asynchronous pool; its rules are not public, so the answer is a
                          lower and an upper bound
  TensorFlow and JAX:
    growth=on|off         grow as needed, or take the whole limit at the first request
    gc=on|off             return idle regions to the driver before a request fails
    fragmentation=0.05    largest rounding of a block, as a share of the limit; 0 means 128 MiB
  PyTorch (its own names work too):
    expandable=on|off     segments that grow in place (expandable_segments)
    split_size=128MiB|off do not split blocks of this size or larger (max_split_size_mb)
    roundup=8             round sizes to this number of steps between powers of two
    gc=0.8|off            return idle segments once this share of the limit is reserved

Requests keep their recorded order. The driver's placement of new regions is unknown, so several
placements are tried; if the answer depends on the placement, Vramline says so.

Examples:
    vramline replay train.vram
    vramline replay train.vram --what-if limit=4GiB --what-if limit=4GiB,growth=off
    vramline replay train.vram --find limit             # the smallest limit that fits
    vramline replay snapshot.pickle --what-if expandable=on --what-if split_size=128MiB
    vramline replay train.vram --gate exact --gate fits --what-if limit=8GiB      # for CI

Exit codes: 0 done; 1 error; 2 usage; 3 a gate fails; 4 a gate cannot decide.";

/// Replay recorded allocations, also with another limit or setting.
///
/// Shows why the pool grew and how fragmented it was, and what would have happened with other settings.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReplayArgs {
    /// Recording (*.vram), profiler trace (*.xplane.pb), PyTorch memory snapshot, folder of a profiler run, or whole log directory. Files
    /// may be gzipped. - reads standard input.
    pub(crate) path: PathBuf,
    /// Also replay with these settings, such as limit=8GiB,growth=off. Can be given several times.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) what_if: Vec<Setting>,
    /// File with the settings of one --what-if per line. Empty lines and lines that begin with # are ignored.
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Find the smallest limit, in whole MiB, that fits.
    #[arg(long, value_enum)]
    pub(crate) find: Option<Find>,
    /// Add a request of this size at the end, or at the time of --at. If it does not fit, print the log that the framework would print.
    #[arg(long, value_name = "SIZE")]
    pub(crate) ask: Option<Bytes>,
    /// Time of --ask, such as 2.176s, 2176.2ms or 2176220145 (nanoseconds).
    #[arg(long, value_name = "TIME", requires = "ask")]
    pub(crate) at: Option<Nanos>,
    /// Op name to print for the request of --ask.
    #[arg(long, value_name = "NAME", requires = "ask", default_value = "", hide_default_value = true)]
    pub(crate) op: String,
    /// Condition to check: exit with 3 if it is false, with 4 if it cannot be decided. Can be given several times.
    #[arg(long, value_enum)]
    pub(crate) gate: Vec<Gate>,
    /// Replay only pools whose name contains NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Find {
    /// The smallest limit that fits.
    Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gate {
    /// Every pool is reproduced exactly from its first allocation.
    Exact,
    /// Every --what-if fits.
    Fits,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let mut what_if = args.what_if.clone();
    what_if.extend(settings_of(args)?);
    let find_limit = args.find == Some(Find::Limit);
    if args.gate.contains(&Gate::Fits) && what_if.is_empty() && !find_limit {
        let hint = "add settings to check, such as --what-if limit=8GiB";
        return Err(Failure::usage("--gate fits needs --what-if, --settings or --find", hint));
    }
    let mut input = Input::new(args.form.redact);
    let reading = input.read(&args.path)?;
    let op = input.redaction().map_or_else(|| args.op.clone(), |redaction| redaction.op(&args.op));
    let ask = args.ask.map(|bytes| ExtraRequest { bytes, at: args.at, op });
    let options = ReplayOptions { ask, pool: input.pool_part(args.pool.as_deref()), what_if, find_limit };
    let line = ProgressLine::timed("replaying");
    let analysis = replay(&reading, &options)?;
    drop(line);
    let document = Replay::from(&analysis);
    let exit = gates(&analysis, &args.gate);
    std::mem::forget(analysis);
    std::mem::forget(reading);
    if document.pools.is_empty() {
        let hint = document.warnings.first().map_or("", |warning| warning.hint.as_str());
        let why = document.warnings.first().map_or("it has no pool", |warning| warning.text.as_str());
        let shown = args.path.display();
        return Err(Failure::error(format!("cannot replay '{shown}': {why}"), hint));
    }
    Sink::stdout().answer(&document, args.form.json, |style| {
        if args.length.full {
            printer::replay::full(&document, style)
        } else {
            printer::replay::first_screen(&document, style)
        }
    })?;
    Ok(exit)
}

/// Reads the settings of a file, one per line.
fn settings_of(args: &ReplayArgs) -> Result<Vec<Setting>, Failure> {
    let Some(path) = &args.settings else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Ok(line.parse::<Setting>()?)).collect()
}

/// The worst result of the gates.
fn gates(analysis: &ReplayAnalysis<'_>, gates: &[Gate]) -> Exit {
    let says = |gate: &Gate| match gate {
        Gate::Exact => analysis.is_exact(),
        Gate::Fits => analysis.fits(),
    };
    match gates.iter().map(says).max() {
        None | Some(ReplayGate::Pass) => Exit::Done,
        Some(ReplayGate::NotCertain) => Exit::NotCertain,
        Some(ReplayGate::Fail) => Exit::No,
    }
}
