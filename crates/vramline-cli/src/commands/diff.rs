//! `vramline diff`: compares runs with the first one, and checks growth for CI.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use vramline::analysis::diff::{
    self, DiffOptions, Gate, PoolCurve, RunSide, Threshold, diff, names, pool_curves,
};
use vramline::analysis::ranks::RankChoice;
use vramline::analysis::report::{ReportAnalysis, ReportOptions, report};
use vramline::view::diff::Diff;
use vramline::view::diff_page;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::{page, printer};

const HELP: &str = "\
Every run is compared with the first, the baseline. Pools are matched by name, or by device if the
names differ; pools of compiled programs are matched by their purpose. Memory at the peak is
compared by role, op and layer, and steps by number. You can compare recordings and every other
file that `report` reads: eager with graph mode, two models, two versions, two batch sizes.

The memory of a job differs from run to run. Record it several times and give the repeats of each
run together. Vramline then compares medians, and ignores a difference that is not larger than the
difference between repeats of the same run.

Jobs of several ranks are compared rank by rank; --fail-over counts the rank that grew most.

Examples:
    vramline diff before.vram after.vram
    vramline diff before.vram after.vram --by layer
    vramline diff before.vram after.vram --html diff.html         # a page with charts
    vramline diff batch32.vram batch64.vram batch128.vram
    vramline diff before.vram after.vram --fail-over 2%           # for CI
    vramline diff --repeats before-*.vram --repeats after-*.vram --fail-over 64MiB
    vramline diff before.vram after.vram --fail-over 2% --markdown > comment.md
    vramline diff after.vram --repeats before-*.vram              # one run against repeats
    vramline diff before.vram after.vram --json | jq '.rows[] | select(.by == \"op\")'

Exit codes: 0 done; 1 error; 2 usage; 3 a peak grew by more than --fail-over; 4 --fail-over cannot
be checked, because the runs have no pool in common or a peak is unknown.";

/// Compare the memory of two or more runs, and fail CI if it grows.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DiffArgs {
    /// Runs to compare, the baseline first: recordings (*.vram), or any other file or folder that `report` reads.
    #[arg(value_name = "PATH", required_unless_present = "repeats", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) repeats: Repeats,
    /// Show the peaks and only this grouping [default: role, op and step; all with --json].
    #[arg(long, value_enum)]
    pub(crate) by: Option<DiffBy>,
    /// Number of rows per grouping, largest changes first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Exit with 3 if the peak of a pool grew by more than this compared with the baseline, such as 2% or 64MiB.
    #[arg(long, value_name = "SHARE|SIZE")]
    pub(crate) fail_over: Option<Threshold>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
    /// Print Markdown for the comment of a pull request: the gate, the peaks, and the details to unfold.
    #[arg(long, conflicts_with_all = ["json", "full", "html"])]
    pub(crate) markdown: bool,
    /// Write the comparison to this file as an HTML page. The page is a single file and needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "by"], value_hint = clap::ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// The groups of `--repeats A1 A2 --repeats B1 B2`, which clap's derived arguments do not keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats(pub(crate) Vec<Vec<PathBuf>>);

impl FromArgMatches for Repeats {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Repeats, clap::Error> {
        let given = matches.get_occurrences::<PathBuf>("repeats").into_iter().flatten();
        Ok(Repeats(given.map(|paths| paths.cloned().collect()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Repeats::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Repeats {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.arg(
            clap::Arg::new("repeats")
                .long("repeats")
                .value_name("PATH")
                .num_args(1..)
                .action(clap::ArgAction::Append)
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(clap::ValueHint::AnyPath)
                .help(
                    "Repeated recordings of the same run, as one side of the comparison. Can be given several times. \
                     Repeats come before runs without this option, so the first --repeats is the baseline",
                ),
        )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Repeats::augment_args(command)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffBy {
    Device,
    Role,
    Op,
    Layer,
    Step,
}

impl From<DiffBy> for diff::DiffBy {
    fn from(by: DiffBy) -> diff::DiffBy {
        match by {
            DiffBy::Device => diff::DiffBy::Device,
            DiffBy::Role => diff::DiffBy::Role,
            DiffBy::Op => diff::DiffBy::Op,
            DiffBy::Layer => diff::DiffBy::Layer,
            DiffBy::Step => diff::DiffBy::Step,
        }
    }
}

pub(crate) fn run(args: &DiffArgs) -> Result<Exit, Failure> {
    let alone = args.paths.iter().map(|path| vec![path.clone()]);
    let paths: Vec<Vec<PathBuf>> = args.repeats.0.iter().cloned().chain(alone).collect();
    if paths.len() < 2 {
        let hint = "give at least two runs, such as: vramline diff before.vram after.vram";
        return Err(Failure::usage("diff needs at least two runs, found one", hint));
    }
    let mut input = Input::new(args.form.redact).with_ranks(RankChoice::default());
    let (mut sides, mut curves, mut main) = (Vec::new(), Vec::new(), None);
    let shown: Vec<Vec<PathBuf>> =
        paths.iter().map(|side| side.iter().map(|path| input.shown(path)).collect()).collect();
    for (name, paths) in names(&shown).into_iter().zip(&paths) {
        let mut reports = Vec::new();
        for (repeat, path) in paths.iter().enumerate() {
            let (report, of_run) = read(&mut input, path, main, args.html.is_some() && repeat == 0)?;
            // Of jobs with several ranks the same one is compared in detail.
            main = main.or(report.ranks.as_ref().and_then(|ranks| ranks.main));
            reports.push(report);
            curves.extend(of_run);
        }
        sides.push(RunSide { name, reports });
    }
    let by = args.by.map(diff::DiffBy::from);
    let analysis = diff(&sides, &DiffOptions { by, fail_over: args.fail_over });
    let document = Diff::from(&analysis);
    let mut out = Sink::stdout();
    if let Some(file) = &args.html {
        let verdict = printer::diff::verdict_lines(&document);
        let data = diff_page::payload(&analysis, &curves);
        out.page(file, &page::comparison(&document.runs, &verdict, &data))?;
        // A CI log cannot show the page.
        out.text(&printer::diff::gate_lines(&document))?;
    } else if args.markdown {
        out.text(&printer::diff_markdown::comment(&document, by, args.top))?;
    } else {
        out.answer(&document, args.form.json, |style| {
            if args.length.full {
                printer::diff::full(&document, by, args.top, style)
            } else {
                printer::diff::first_screen(&document, by, args.top, style)
            }
        })?;
    }
    Ok(match document.gate {
        Gate::Fail => Exit::No,
        Gate::Unknown => Exit::NotCertain,
        Gate::Pass | Gate::None => Exit::Done,
    })
}

/// Reads a run and makes its report, with the curves for a page. The trace is freed before the next run is read.
fn read(
    input: &mut Input,
    path: &Path,
    main: Option<u64>,
    with_curves: bool,
) -> Result<(ReportAnalysis, Option<Vec<PoolCurve>>), Failure> {
    input.choose_main(main);
    let reading = input
        .read(path)
        .map_err(|failure| failure.context(format!("cannot compare '{}'", path.display())))?;
    let _line = input.progress("analysing");
    let curves = with_curves.then(|| pool_curves(&reading));
    Ok((report(&reading, &ReportOptions::default()), curves))
}
