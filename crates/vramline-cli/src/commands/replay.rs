//! `vramline replay`: the trace through its allocator.

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

const HELP: &str = "\
A replay is exact where the trace begins before the first allocation, as `vramline run` makes it, and
every address and size is reproduced. TensorFlow's, JAX's and PyTorch's allocators have rules here.

Settings of --what-if, joined by commas:
    limit=8GiB            what the pool may take
    restart=on|STEP       what is held at a step (on: the last) goes into an empty pool, and it goes on
    allocator=cuda_malloc_async   the driver's own pool: its rules are not public, the answer is bounds
  of TensorFlow's and JAX's:
    growth=on|off         grow as needed, or take the limit at the first request
    gc=on|off             give idle regions back before a request fails
    fragmentation=0.05    the share of the limit that a chunk may exceed its request by; 0 is 128 MiB
  of PyTorch's (its own names are taken as well):
    expandable=on|off     segments that grow in place (expandable_segments)
    split_size=128MiB|off blocks of this size and more are not split (max_split_size_mb)
    roundup=8             divisions between powers of two that sizes are rounded to
    gc=0.8|off            give idle segments back from this share of the limit on

Requests come in the recorded order. Where the driver would put regions is not known: several
placements are tried, and an answer that depends on it is given as such.

Examples:
    vramline replay train.vram
    vramline replay train.vram --what-if limit=4GiB --what-if limit=4GiB,growth=off
    vramline replay train.vram --find limit
    vramline replay snapshot.pickle --what-if expandable=on --what-if split_size=128MiB
    vramline replay train.vram --gate exact --gate fits --what-if limit=8GiB      for CI

Exit codes: 0 done, 1 error, 2 usage, 3 a gate says no, 4 a gate cannot be certain.";

/// Run a trace through its allocator: is it reproduced, what is fragmented and why, what would other settings do.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReplayArgs {
    /// A recording (*.vram), a trace (*.xplane.pb, gzip or not), the folder of a profile run, a whole log directory, or a
    /// PyTorch memory snapshot (*.pickle).
    pub(crate) path: PathBuf,
    /// Also run the same requests with these settings, such as limit=8GiB,growth=off; may be given several times.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) what_if: Vec<Setting>,
    /// A file with one --what-if a line; empty lines and those that begin with # are passed over.
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Look for the smallest limit, in whole MiB, that still fits.
    #[arg(long, value_enum)]
    pub(crate) find: Option<Find>,
    /// Also ask for this much at the end or at --at, and print what the framework would log where there is no room.
    #[arg(long, value_name = "SIZE")]
    pub(crate) ask: Option<Bytes>,
    /// The moment of --ask, such as 2176220145 (nanoseconds), 2176.2ms or 2.176s.
    #[arg(long, value_name = "TIME", requires = "ask")]
    pub(crate) at: Option<Nanos>,
    /// The op that --ask names.
    #[arg(long, value_name = "NAME", requires = "ask", default_value = "")]
    pub(crate) op: String,
    /// Exit with 3 where this does not hold, and with 4 where it is not certain; may be given several times.
    #[arg(long, value_enum)]
    pub(crate) gate: Vec<Gate>,
    /// Only pools whose name contains this.
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
    /// Every pool is reproduced from the start.
    Exact,
    /// Every what-if fits.
    Fits,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let mut what_if = args.what_if.clone();
    what_if.extend(settings_of(args)?);
    let find_limit = args.find == Some(Find::Limit);
    if args.gate.contains(&Gate::Fits) && what_if.is_empty() && !find_limit {
        let hint = "give at least one, such as --what-if limit=8GiB";
        return Err(Failure::usage("--gate fits needs a --what-if, --settings or --find", hint));
    }
    let mut input = Input::new(args.form.redact);
    let reading = input.read(&args.path)?;
    let op = input.redaction().map_or_else(|| args.op.clone(), |redaction| redaction.op(&args.op));
    let ask = args.ask.map(|bytes| ExtraRequest { bytes, at: args.at, op });
    let options = ReplayOptions { ask, pool: input.pool_part(args.pool.as_deref()), what_if, find_limit };
    let analysis = replay(&reading, &options)?;
    let document = Replay::from(&analysis);
    let exit = gates(&analysis, &args.gate);
    std::mem::forget(analysis);
    std::mem::forget(reading);
    if document.pools.is_empty() {
        let hint = document.warnings.first().map_or("", |warning| warning.hint.as_str());
        let why = document.warnings.first().map_or("there is none in it", |warning| warning.text.as_str());
        let shown = args.path.display();
        return Err(Failure::error(format!("no pool of '{shown}' can be replayed: {why}"), hint));
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

/// The settings of a file, one a line.
fn settings_of(args: &ReplayArgs) -> Result<Vec<Setting>, Failure> {
    let Some(path) = &args.settings else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Ok(line.parse::<Setting>()?)).collect()
}

/// The worst of what the gates say.
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
