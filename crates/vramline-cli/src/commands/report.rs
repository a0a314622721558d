//! `vramline report`: what held the memory at the peak.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use vramline::Reading;
use vramline::analysis::held::GroupBy;
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::report::{ReportOptions, report};
use vramline::units::Nanos;
use vramline::view::page::payload;
use vramline::view::report::Report;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::{page, printer};

/// Rows that fit one screen beside the rest.
const SCREEN_ROWS: usize = 12;

const HELP: &str = "\
A recording comes from `vramline run -- python train.py`, without a change to the script.

To record a trace with TensorFlow, before the first tensor is made:
    tf.profiler.experimental.start(logdir)
    model.fit(...)                            # a few steps are enough
    tf.profiler.experimental.stop()
with JAX:
    with jax.profiler.trace(logdir): ...
with PyTorch, a memory snapshot:
    torch.cuda.memory._record_memory_history()
    train()
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")
Without a GPU, set TF_CPU_ALLOCATOR_USE_BFC=1 so that TensorFlow uses its pool allocator on the CPU.

Examples:
    vramline report train.vram                a recording
    vramline report train.vram --html train.html      a page: timeline, map, tables
    vramline report logdir                    the newest run in a log directory
    vramline report host.xplane.pb --by layer
    vramline report host.xplane.pb --at 2.17s what was held at that moment
    vramline report snapshot.pickle --by stack
    ssh gpu-machine cat run/snapshot.pickle | vramline report -
    vramline report host.xplane.pb --json | jq '.pools[0].at_peak.by_role'";

/// Say what held the memory: of a recording, of a trace that TensorFlow's or JAX's profiler wrote, or of a PyTorch
/// snapshot.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReportArgs {
    /// A recording (*.vram), a trace (*.xplane.pb), a PyTorch snapshot (gzip or not), the folder of a profile run, or a whole
    /// log directory; - is standard input.
    pub(crate) path: PathBuf,
    /// Group what was held by op, by model layer, by role or by call stack.
    #[arg(long, value_enum, default_value_t = By::Op)]
    pub(crate) by: By,
    /// Show so many rows a pool and sum up the rest [default: 12; with --json all].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Also show what was held at this moment of the trace, such as 2176220145 (nanoseconds), 2176.2ms or 2.176s.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Nanos>,
    /// Only pools whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
    /// Write the report to this file as a page for a browser: one file, which needs no network.
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

pub(crate) fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.html {
        return write_page(args, file);
    }
    let mut input = Input::new(args.form.redact);
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
    // The process is about to end; giving back a large trace piece by piece would only delay that.
    std::mem::forget(reading);
    Ok(Exit::Done)
}

/// What of a reading is shown, and how.
#[derive(Default)]
pub(crate) struct Shown<'a> {
    pub(crate) is_json: bool,
    pub(crate) by: GroupBy,
    pub(crate) top: Option<usize>,
    pub(crate) at: Option<Nanos>,
    pub(crate) pool: Option<&'a str>,
    pub(crate) is_full: bool,
}

/// Writes the report on what was read.
pub(crate) fn answer(reading: &Reading, shown: &Shown<'_>, out: &mut Sink<'_>) -> Result<(), Failure> {
    let document = Report::from(report(
        reading,
        &ReportOptions {
            by: shown.by,
            top: shown.top.or((!shown.is_json).then_some(SCREEN_ROWS)),
            at: shown.at,
            pool: shown.pool.map(str::to_owned),
        },
    ));
    check_pool(shown.pool, &document)?;
    out.answer(&document, shown.is_json, |style| {
        // Who asks for rows or for a moment wants to see them, however many lines that takes.
        if shown.is_full || shown.top.is_some() || shown.at.is_some() {
            printer::report::full(&document, shown.by, style)
        } else {
            printer::report::first_screen(&document, shown.by, style)
        }
    })
}

fn check_pool(pool: Option<&str>, report: &Report) -> Result<(), Failure> {
    match (pool, report.pools.as_slice()) {
        (Some(pool), []) => Err(Failure::error(
            format!("no pool whose name contains '{pool}'"),
            "leave --pool out to see every pool",
        )),
        _ => Ok(()),
    }
}

fn write_page(args: &ReportArgs, file: &Path) -> Result<Exit, Failure> {
    let mut input = Input::new(args.form.redact);
    let mut reading = input.read_with_failures(&args.path)?;
    input.redact(&mut reading);
    let pool = input.pool_part(args.pool.as_deref());
    let options = ReportOptions { top: Some(PAGE_PEAK_ROWS), pool: pool.clone(), ..ReportOptions::default() };
    let mut report = report(&reading, &options);
    let document = Report::from(report.clone());
    check_pool(pool.as_deref(), &document)?;
    let verdict = printer::report::verdict_lines(&document);
    let page = page::page(&input.shown(&args.path), &verdict, &payload(&reading, &mut report), None);
    std::mem::forget(reading);
    Sink::stdout().page(file, &page)?;
    Ok(Exit::Done)
}
