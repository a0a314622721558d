//! `vramline report`: reports what held memory at the peak.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use vramline::Reading;
use vramline::analysis::held::GroupBy;
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::ranks::RankChoice;
use vramline::analysis::report::{ReportOptions, report};
use vramline::units::Nanos;
use vramline::view::page::payload;
use vramline::view::report::Report;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::progress::ProgressLine;
use crate::{page, printer};

/// Number of rows that fit on one screen with the rest of the report.
const SCREEN_ROWS: usize = 12;

const HELP: &str = "\
Roles are parameters, gradients, optimizer, activations, inputs, state (what the program keeps
across steps), temporaries and unknown.

To record a job, use `vramline run -- python train.py`; the script does not change.

To make a trace yourself, with TensorFlow, before it creates the first tensor:
    tf.profiler.experimental.start(logdir)
    model.fit(...)                            # a few steps are enough
    tf.profiler.experimental.stop()
With JAX:
    with jax.profiler.trace(logdir): ...
With PyTorch, make a memory snapshot:
    torch.cuda.memory._record_memory_history()
    train()
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")
Without a GPU, set TF_CPU_ALLOCATOR_USE_BFC=1, so that TensorFlow uses its pool allocator on the
CPU.

Examples:
    vramline report train.vram
    vramline report train.vram --html train.html        # a page with timeline, map and tables
    vramline report logdir                              # the newest run in a log directory
    vramline report job.vram --rank 3                   # one rank of a distributed job
    vramline report host.xplane.pb --by layer
    vramline report host.xplane.pb --at 2.17s           # also what was in use at that time
    vramline report snapshot.pickle --by stack
    ssh gpu-machine cat run/snapshot.pickle | vramline report -
    vramline report host.xplane.pb --json | jq '.pools[0].at_peak.by_role'";

/// Report what held memory at the peak of a recording, trace or snapshot.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReportArgs {
    /// Recording (*.vram), profiler trace (*.xplane.pb), PyTorch memory snapshot, folder of a profiler run, or whole log directory. Files
    /// may be gzipped. - reads standard input.
    pub(crate) path: PathBuf,
    /// How to group the memory in use: by op, model layer, role or call stack.
    #[arg(long, value_enum, default_value_t = By::Op)]
    pub(crate) by: By,
    /// Number of rows per pool; the rest is summed up [default: 12; all with --json].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Also show what was in use at this time of the trace, such as 2.176s, 2176.2ms or 2176220145 (nanoseconds).
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Nanos>,
    /// Report only pools whose name contains NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Report only on this rank of a distributed job, as if it were recorded alone.
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Report only on the ranks of this host.
    #[arg(long, value_name = "NAME", conflicts_with = "rank")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
    /// Write the report to this file as an HTML page. The page is a single file and needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "by", "top", "at"], value_hint = clap::ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Op,
    Layer,
    Role,
    Stack,
}

impl From<By> for GroupBy {
    fn from(by: By) -> GroupBy {
        match by {
            By::Op => GroupBy::Op,
            By::Layer => GroupBy::Layer,
            By::Role => GroupBy::Role,
            By::Stack => GroupBy::Stack,
        }
    }
}

impl ReportArgs {
    fn choice(&self) -> RankChoice {
        RankChoice { rank: self.rank, host: self.host.clone(), main: None }
    }
}

pub(crate) fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.html {
        return write_page(args, file);
    }
    let mut input = Input::new(args.form.redact).with_ranks(args.choice());
    let reading = input.read(&args.path)?;
    let pool = input.pool_part(args.pool.as_deref());
    let shown = Shown {
        is_json: args.form.json,
        by: args.by.into(),
        top: args.top,
        at: args.at,
        pool: pool.as_deref(),
        is_full: args.length.full,
    };
    answer(&reading, &shown, &mut Sink::stdout())?;
    // The process is about to end: freeing a large trace would only delay that.
    std::mem::forget(reading);
    Ok(Exit::Done)
}

/// What to show of a reading, and how.
#[derive(Default)]
pub(crate) struct Shown<'a> {
    pub(crate) is_json: bool,
    pub(crate) by: GroupBy,
    pub(crate) top: Option<usize>,
    pub(crate) at: Option<Nanos>,
    pub(crate) pool: Option<&'a str>,
    pub(crate) is_full: bool,
}

/// Writes the report on a reading.
pub(crate) fn answer(reading: &Reading, shown: &Shown<'_>, out: &mut Sink<'_>) -> Result<(), Failure> {
    let line = ProgressLine::timed("analysing");
    // Who asks for rows or for a moment wants to see them, however many lines that takes.
    let is_first_screen = !(shown.is_json || shown.is_full || shown.top.is_some() || shown.at.is_some());
    let by = match shown.by {
        GroupBy::Layer if is_first_screen => GroupBy::RepeatedLayer,
        by => by,
    };
    let document = Report::from(report(
        reading,
        &ReportOptions {
            by,
            top: shown.top.or((!shown.is_json).then_some(SCREEN_ROWS)),
            at: shown.at,
            pool: shown.pool.map(str::to_owned),
        },
    ));
    drop(line);
    check_pool(shown.pool, &document)?;
    out.answer(&document, shown.is_json, |style| {
        if is_first_screen {
            printer::report::first_screen(&document, by, style)
        } else {
            printer::report::full(&document, by, style)
        }
    })
}

fn check_pool(pool: Option<&str>, report: &Report) -> Result<(), Failure> {
    match (pool, report.pools.as_slice()) {
        (Some(pool), []) => Err(Failure::error(
            format!("there is no pool whose name contains '{pool}'"),
            "leave out --pool to see every pool",
        )),
        _ => Ok(()),
    }
}

fn write_page(args: &ReportArgs, file: &Path) -> Result<Exit, Failure> {
    let mut input = Input::new(args.form.redact).with_ranks(args.choice());
    let mut reading = input.read_with_failures(&args.path)?;
    input.redact(&mut reading);
    let pool = input.pool_part(args.pool.as_deref());
    let options = ReportOptions { top: Some(PAGE_PEAK_ROWS), pool: pool.clone(), ..ReportOptions::default() };
    let line = input.progress("analysing");
    let mut report = report(&reading, &options);
    let document = Report::from(report.clone());
    check_pool(pool.as_deref(), &document)?;
    let verdict = printer::report::verdict_lines(&document);
    let page = page::page(&input.shown(&args.path), &verdict, &payload(&reading, &mut report), None);
    drop(line);
    std::mem::forget(reading);
    Sink::stdout().page(file, &page)?;
    Ok(Exit::Done)
}
